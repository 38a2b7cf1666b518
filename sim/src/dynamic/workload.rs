//! Dynamic workloads: applications with normal lengths, Poisson arrivals at one rate or at rates that change, an SLO as a
//! multiple of the 99th percentile of the time alone.

use std::time::Duration;

use rand::Rng;
use spillgate_pipeline::distribution::{BatchForm, BatchTime, FitError};
use spillgate_pipeline::schedule::Application;
use spillgate_pipeline::time::Timestamp;

use super::{Instance, Job};
use crate::draw;
use crate::trace::{self, TraceError};

/// Batch sizes of the reference workloads.
pub const SIZES: [u32; 5] = [1, 2, 4, 8, 16];
/// Lengths known before the start.
const HISTORY: usize = 2000;
/// The 99th percentile of the standard normal distribution.
const Z99: f64 = 2.326_347_874;
/// Number of lengths from which mean and percentile are computed.
const DRAWS: usize = 100_000;

/// Shape of a peak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// Normal, cut at the least length.
    #[default]
    Normal,
    /// Log-normal: a long tail, as measured times have.
    LogNormal,
}

/// One application: a peak of the distribution of lengths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mode {
    /// Mean length, ms.
    pub mean_ms: f64,
    /// Standard deviation, ms; zero for a static model.
    pub deviation_ms: f64,
    /// Its share of the requests, over the sum of all shares.
    pub weight: f64,
    /// Normal by default.
    pub shape: Shape,
}

impl Mode {
    /// A log-normal peak of that mean and 99th percentile, ms; normal and without spread when the percentile is not
    /// above the mean.
    pub fn from_percentile(mean_ms: f64, p99_ms: f64) -> Self {
        let ratio = (p99_ms / mean_ms).ln().max(0.0);
        // ln(p99 / mean) = z s - s^2 / 2, the smaller root.
        let s = Z99 - (Z99 * Z99 - 2.0 * ratio).max(0.0).sqrt();
        Mode {
            mean_ms,
            deviation_ms: mean_ms * ((s * s).exp() - 1.0).sqrt(),
            weight: 1.0,
            shape: if s > 0.0 {
                Shape::LogNormal
            } else {
                Shape::Normal
            },
        }
    }

    fn draw(&self, rng: &mut impl Rng) -> f64 {
        let normal = draw::normal(rng);
        match self.shape {
            Shape::Normal => self.mean_ms + self.deviation_ms * normal,
            Shape::LogNormal => {
                let variance = (1.0 + (self.deviation_ms / self.mean_ms).powi(2)).ln();
                self.mean_ms * (variance.sqrt() * normal - variance / 2.0).exp()
            }
        }
    }
}

/// A workload and its operating point.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// The applications.
    pub modes: Vec<Mode>,
    /// Shorter lengths are drawn anew, ms.
    pub least_ms: f64,
    /// The fixed part of a batch, as a share of the mean length; the rest is `c1`.
    pub fixed_share: f64,
    /// Arrival rate over the rate at which the device can serve single requests.
    pub load: f64,
    /// SLO over the 99th percentile of the time alone.
    pub slo: f64,
    /// Number of requests, with Poisson arrivals.
    pub requests: usize,
}

/// Why there is no such workload.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WorkloadError {
    /// No application, or a number that is not valid.
    #[error("a workload has applications with positive means and weights, a positive load and SLO")]
    Numbers,
    /// The time of a batch is not valid.
    #[error(transparent)]
    Time(#[from] FitError),
    /// The rates are not valid.
    #[error(transparent)]
    Rates(#[from] TraceError),
}

impl Workload {
    /// The reference workload of docs/schedulers.md: two applications, half of the requests each, at 20 and 90 ms.
    pub fn reference(slo: f64, requests: usize) -> Self {
        let mode = |mean_ms| Mode {
            mean_ms,
            deviation_ms: 10.0,
            weight: 1.0,
            shape: Shape::Normal,
        };
        Workload {
            modes: vec![mode(20.0), mode(90.0)],
            least_ms: 2.0,
            fixed_share: 0.7,
            load: 1.5,
            slo,
            requests,
        }
    }

    /// Draws an instance: Poisson arrivals.
    ///
    /// # Errors
    /// When the numbers make no workload.
    pub fn instance(&self, rng: &mut impl Rng) -> Result<Instance, WorkloadError> {
        let (mut instance, rate_per_ms) = self.empty(rng)?;
        let mut at_ms = 0.0;
        for _ in 0..self.requests {
            at_ms += draw::gap(rng, rate_per_ms);
            let at = Timestamp::from_ns((at_ms * 1e6) as u64);
            instance.jobs.push(self.job(rng, at));
        }
        Ok(instance)
    }

    /// The same with a rate that changes each second. Arrivals are Poisson within a second, and their number is not
    /// fixed. The rates are scaled so that their mean is the load.
    ///
    /// # Errors
    /// When the numbers make no workload, or the rates are all zero.
    pub fn instance_at(
        &self,
        rates: &[f64],
        rng: &mut impl Rng,
    ) -> Result<Instance, WorkloadError> {
        let (mut instance, rate_per_ms) = self.empty(rng)?;
        let rates = trace::scaled(rates, 1e3 * rate_per_ms)?;
        for at in trace::poisson_arrivals(&rates, rng) {
            instance.jobs.push(self.job(rng, at));
        }
        Ok(instance)
    }

    /// An instance before any request, and the mean rate of arrivals per ms.
    fn empty(&self, rng: &mut impl Rng) -> Result<(Instance, f64), WorkloadError> {
        let positive = |x: f64| x.is_finite() && x > 0.0;
        let valid = |m: &Mode| {
            positive(m.mean_ms)
                && m.mean_ms > self.least_ms
                && positive(m.weight)
                && m.deviation_ms.is_finite()
                && m.deviation_ms >= 0.0
        };
        let is_valid = !self.modes.is_empty() && self.modes.iter().all(valid);
        if !is_valid || !positive(self.load) || !positive(self.slo) {
            return Err(WorkloadError::Numbers);
        }
        let draws: Vec<f64> = (0..DRAWS).map(|_| self.length(rng).1).collect();
        let mean = draws.iter().sum::<f64>() / DRAWS as f64;
        let c1 = 1.0 - self.fixed_share;
        let time = BatchTime::new(BatchForm::Padded, self.fixed_share * mean, c1, 0.0)?;
        let mut alone: Vec<f64> = draws.iter().map(|&length| time.alone_ms(length)).collect();
        alone.sort_unstable_by(f64::total_cmp);
        let p99_ms = alone[DRAWS * 99 / 100];
        let slo = Duration::from_secs_f64(self.slo * p99_ms * 1e-3);
        let mut instance = Instance::new(time, SIZES.to_vec(), slo);
        instance.history = (0..HISTORY).map(|_| self.length(rng)).collect();
        Ok((instance, self.load / time.alone_ms(mean)))
    }

    fn job(&self, rng: &mut impl Rng, at: Timestamp) -> Job {
        let (application, length_ms) = self.length(rng);
        Job {
            at,
            application,
            length_ms,
        }
    }

    fn length(&self, rng: &mut impl Rng) -> (Application, f64) {
        let total: f64 = self.modes.iter().map(|mode| mode.weight).sum();
        let mut left = rng.random::<f64>() * total;
        let mut chosen = self.modes.len() - 1;
        for (i, mode) in self.modes.iter().enumerate() {
            if left < mode.weight {
                chosen = i;
                break;
            }
            left -= mode.weight;
        }
        let mode = self.modes[chosen];
        // The mean lies above the least length, so at least half of the draws are good.
        loop {
            let length_ms = mode.draw(rng);
            if length_ms >= self.least_ms {
                return (Application(chosen as u16), length_ms);
            }
        }
    }
}
