//! Bursty traces without a file.

use rand::Rng;

use crate::draw::normal;

/// A trace of stated burstiness: log-normal rates whose logarithm is a stationary first-order autoregression.
/// Its coefficient of variation is `cv`, and the correlation of its logarithm falls to 1/e within `burst` seconds.
/// For comparison: the real traces of the reference workload have a CV of 0.1 to 0.9 over 20 minutes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bursty {
    /// Mean rate, requests a second; exact over the trace.
    pub mean: f64,
    /// Standard deviation / mean of the distribution that the rates are drawn from. A trace of few bursts shows less.
    pub cv: f64,
    /// How long a burst lasts, seconds.
    pub burst: f64,
    /// Length of the trace.
    pub seconds: u32,
}

impl Bursty {
    /// Requests a second in each second.
    pub fn rates(&self, rng: &mut impl Rng) -> Vec<f64> {
        // exp of a normal with this deviation has the coefficient of variation `cv`.
        let sigma = (self.cv * self.cv).ln_1p().sqrt();
        let keep = if self.burst > 0.0 {
            (-1.0 / self.burst).exp()
        } else {
            0.0
        };
        let fresh = (1.0 - keep * keep).sqrt();
        let mut level = normal(rng);
        let mut rates: Vec<f64> = (0..self.seconds)
            .map(|_| {
                let rate = (sigma * level).exp();
                level = keep * level + fresh * normal(rng);
                rate
            })
            .collect();
        let scale = self.mean * rates.len() as f64 / rates.iter().sum::<f64>();
        for rate in &mut rates {
            *rate *= scale;
        }
        rates
    }
}
