//! `pace-window`: the mean pace of the last two seconds, and how much single batches deviate from it.

use std::time::Duration;

use crate::time::Timestamp;
use crate::window::Window;

/// Span of the pace: short, so that a worker that slows down is noticed before many requests are late.
const SPAN: Duration = Duration::from_secs(2);
/// Bounds of the ratio of one batch: a clock that jumps must not close the gate.
const RANGE: (f64, f64) = (0.1, 20.0);

#[derive(Clone, Debug)]
pub(super) struct Windowed {
    ratios: Window,
    last: Option<f64>,
    /// Half the squared differences between successive batches. Their mean is the variance, and a change of the pace
    /// itself hardly affects it (von Neumann).
    steps: Window,
    factor: f64,
    spread: f64,
}

impl Windowed {
    /// The spread is taken over the last `spread`.
    pub(super) fn new(spread: Duration) -> Self {
        // Means do not depend on when a window began.
        let born = Timestamp::ZERO;
        Windowed {
            ratios: Window::new(SPAN, born),
            last: None,
            steps: Window::new(spread, born),
            factor: 1.0,
            spread: 0.0,
        }
    }

    pub(super) fn observe(&mut self, now: Timestamp, ratio: f64) {
        let ratio = ratio.clamp(RANGE.0, RANGE.1);
        self.ratios.add(now, ratio, 1, ratio);
        if let Some(last) = self.last.replace(ratio) {
            let step = (ratio - last).powi(2) / 2.0;
            self.steps.add(now, step, 1, step);
        }
        self.age(now);
    }

    pub(super) fn age(&mut self, now: Timestamp) {
        self.factor = self.ratios.weighted_mean(now).unwrap_or(1.0);
        self.spread = self.steps.weighted_mean(now).unwrap_or(0.0).sqrt();
    }

    pub(super) fn factor(&self) -> f64 {
        self.factor
    }

    /// The standard deviation from batch to batch.
    pub(super) fn spread(&self) -> f64 {
        self.spread
    }
}
