//! Execution times compared with the profile: the pace of the workers, and the deviation of single batches from it.

use std::time::Duration;

use spillgate_pipeline::time::Timestamp;

use super::window::Window;

/// Span of the pace: short, so that a worker that slows down is noticed before many requests are late.
const PACE_WINDOW: Duration = Duration::from_secs(2);
/// Bounds of the pace: a clock that jumps must not close the gate.
const PACE_RANGE: (f64, f64) = (0.1, 20.0);

/// Measured over planned execution times, batch by batch.
pub(super) struct Pace {
    ratios: Window,
    last: Option<f64>,
    /// Half the squared differences between successive batches. Their mean is the variance, and a change of the pace
    /// itself hardly affects it (von Neumann).
    steps: Window,
}

impl Pace {
    /// A pace without measurements. The spread is computed over the last `length`.
    pub(super) fn new(length: Duration, born: Timestamp) -> Self {
        Pace {
            ratios: Window::new(PACE_WINDOW, born),
            last: None,
            steps: Window::new(length, born),
        }
    }

    /// Adds a batch: its measured and its planned execution time.
    pub(super) fn add(&mut self, now: Timestamp, took: Duration, planned: Duration) {
        if planned.is_zero() {
            return;
        }
        let ratio = took.as_secs_f64() / planned.as_secs_f64();
        let ratio = ratio.clamp(PACE_RANGE.0, PACE_RANGE.1);
        self.ratios.add(now, ratio, 1, ratio);
        if let Some(last) = self.last.replace(ratio) {
            let step = (ratio - last).powi(2) / 2.0;
            self.steps.add(now, step, 1, step);
        }
    }

    /// Mean of measured over planned; 1 without measurements.
    pub(super) fn mean(&mut self, now: Timestamp) -> f64 {
        self.ratios.weighted_mean(now).unwrap_or(1.0)
    }

    /// Its standard deviation from batch to batch; 0 without measurements.
    pub(super) fn spread(&mut self, now: Timestamp) -> f64 {
        self.steps.weighted_mean(now).unwrap_or(0.0).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn the_spread_is_the_deviation_and_a_change_of_pace_is_none() {
        let mut pace = Pace::new(Duration::from_secs(5), Timestamp::ZERO);
        let planned = Duration::from_millis(20);
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut now = Timestamp::ZERO;
        for i in 0..500 {
            now = now + planned;
            let level = if i < 300 { 1.0 } else { 2.0 };
            // Uniform within 0.3 to both sides: deviation 0.3 / sqrt(3).
            let ratio = level + 0.3 * (2.0 * rng.random::<f64>() - 1.0);
            pace.add(now, planned.mul_f64(ratio), planned);
        }
        assert!((pace.mean(now) - 2.0).abs() < 0.05, "{}", pace.mean(now));
        let spread = pace.spread(now);
        assert!((0.15..0.20).contains(&spread), "{spread}");
    }
}
