//! Arrival times of requests.

use std::time::Duration;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use spillgate_pipeline::time::Timestamp;

use crate::draw::gap;

/// The arrival process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// Equal gaps.
    Constant,
    /// A Poisson process.
    Poisson,
}

/// Arrival times at `rate` requests a second for `duration`, in order.
pub fn arrivals(law: Arrivals, rate: f64, duration: Duration, seed: u64) -> Vec<Timestamp> {
    assert!(rate.is_finite() && rate > 0.0, "a rate is positive");
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let end = duration.as_secs_f64();
    let mut at = 0.0;
    let mut times = Vec::with_capacity((rate * end * 1.1) as usize);
    loop {
        at += match law {
            Arrivals::Constant => 1.0 / rate,
            Arrivals::Poisson => gap(&mut rng, rate),
        };
        if at >= end {
            return times;
        }
        times.push(Timestamp::from_ns((at * 1e9) as u64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poisson_process_has_its_rate_and_spread() {
        let times = arrivals(Arrivals::Poisson, 1000.0, Duration::from_secs(20), 7);
        let n = times.len() as f64;
        assert!((n - 20_000.0).abs() < 4.0 * 20_000f64.sqrt(), "{n}");
        let gaps: Vec<f64> = times
            .windows(2)
            .map(|w| w[1].since(w[0]).as_secs_f64())
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let var = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!(
            (var.sqrt() / mean - 1.0).abs() < 0.03,
            "exponential gaps have CV 1"
        );
        assert_eq!(
            times,
            arrivals(Arrivals::Poisson, 1000.0, Duration::from_secs(20), 7)
        );
    }
}
