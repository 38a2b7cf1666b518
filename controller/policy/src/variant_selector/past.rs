//! What is remembered of the last periods.

use std::collections::VecDeque;

/// Requests a second of all streams in the last periods.
#[derive(Clone, Debug, Default)]
pub(super) struct Bursts(VecDeque<f64>);

impl Bursts {
    /// Periods that count: a burst that comes again within 5 s finds room.
    const PAST: usize = 10;
    /// A number of requests strays by so many of its standard deviations without a burst.
    const DEVIATIONS: f64 = 2.0;

    /// So many requests came in so many seconds.
    pub(super) fn push(&mut self, n: f64, span: f64) {
        if self.0.len() == Self::PAST {
            self.0.pop_front();
        }
        let sure = (n - Self::DEVIATIONS * n.sqrt()).max(0.0);
        self.0.push_back(sure / span);
    }

    /// The rate of the highest one.
    pub(super) fn peak(&self) -> f64 {
        self.0.iter().copied().fold(0.0, f64::max)
    }
}

/// How long requests take with the variants that were chosen, over those of the variant that serves where none is chosen.
#[derive(Clone, Debug, Default)]
pub(super) struct Mixes(VecDeque<f64>);

impl Mixes {
    /// Decisions that count in the past: those of the window over which workers' pace is measured by default.
    const PAST: usize = 10;

    pub(super) fn push(&mut self, mix: f64) {
        if self.0.len() == Self::PAST {
            self.0.pop_front();
        }
        self.0.push_back(mix);
    }

    /// Since the last decision.
    pub(super) fn now(&self) -> f64 {
        self.0.back().copied().unwrap_or(1.0)
    }

    /// Over the last decisions.
    pub(super) fn past(&self) -> f64 {
        match self.0.len() {
            0 => 1.0,
            n => self.0.iter().sum::<f64>() / n as f64,
        }
    }
}
