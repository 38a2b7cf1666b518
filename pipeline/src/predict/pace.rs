//! The pace of a model on a device: measured over profiled time, for all sizes together.

mod held;
mod smoothed;
#[cfg(test)]
mod tests;
mod windowed;

use std::time::Duration;

use crate::time::Timestamp;
use held::Held;
use smoothed::Smoothed;
use windowed::Windowed;

/// How a pace follows the measured times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaceRule {
    /// `pace-ewma`: smoothed exponentially, from batch to batch. One batch counts little, and a pace of nearly one is one.
    Ewma,
    /// `pace-window`: the mean over the last two seconds, by time, so that few and many batches count alike.
    Window {
        /// The span over which the deviation of single batches is taken.
        spread: Duration,
    },
    /// `pace-held`: smoothed exponentially, and in force only once it is off by a factor of two. For expectations that are
    /// right on average by themselves, and that cost much to compute anew.
    Held,
}

impl PaceRule {
    /// Its name in settings and reports.
    pub fn name(self) -> &'static str {
        match self {
            PaceRule::Ewma => "pace-ewma",
            PaceRule::Window { .. } => "pace-window",
            PaceRule::Held => "pace-held",
        }
    }
}

/// Measured over profiled time, by one of the rules; 1 until something is measured.
#[derive(Clone, Debug)]
pub struct Pace(State);

#[derive(Clone, Debug)]
enum State {
    Smoothed(Smoothed),
    Windowed(Box<Windowed>),
    Held(Held),
}

impl Pace {
    /// A pace of 1.
    pub fn new(rule: PaceRule) -> Self {
        Pace(match rule {
            PaceRule::Ewma => State::Smoothed(Smoothed::default()),
            PaceRule::Window { spread } => State::Windowed(Box::new(Windowed::new(spread))),
            PaceRule::Held => State::Held(Held::default()),
        })
    }

    /// Takes in measured over profiled time of a batch. Returns whether the pace in force changed.
    pub fn observe(&mut self, now: Timestamp, ratio: f64) -> bool {
        if !ratio.is_finite() {
            return false;
        }
        let before = self.factor();
        match &mut self.0 {
            State::Smoothed(pace) => pace.observe(now, ratio),
            State::Windowed(pace) => pace.observe(now, ratio),
            State::Held(pace) => pace.observe(now, ratio),
        }
        self.factor() != before
    }

    /// Measured over profiled time.
    pub fn factor(&self) -> f64 {
        match &self.0 {
            State::Smoothed(pace) => pace.factor(),
            State::Windowed(pace) => pace.factor(),
            State::Held(pace) => pace.factor(),
        }
    }

    /// Usual deviation of a single batch from the pace, as a part of the profiled time. `pace-held` does not know it.
    pub fn spread(&self) -> f64 {
        match &self.0 {
            State::Smoothed(pace) => pace.spread(),
            State::Windowed(pace) => pace.spread(),
            State::Held(_) => 0.0,
        }
    }

    /// The expected time of what was profiled to take that long.
    pub fn expect(&self, profiled: Duration) -> Duration {
        let factor = self.factor();
        if factor == 1.0 {
            profiled
        } else {
            profiled.mul_f64(factor)
        }
    }

    /// The profiled time of what is expected to take that long: the inverse of [`Pace::expect`].
    pub fn profiled(&self, expected: Duration) -> Duration {
        expected.div_f64(self.factor())
    }

    /// Whether the device is slower than its profile.
    pub fn is_slow(&self) -> bool {
        self.factor() > 1.0
    }

    /// Time passed: what is too old for a window counts no more, and a slow pace that nothing confirms fades. Returns whether the
    /// pace in force changed.
    pub fn age(&mut self, now: Timestamp) -> bool {
        let before = self.factor();
        match &mut self.0 {
            State::Smoothed(pace) => pace.age(now),
            State::Windowed(pace) => pace.age(now),
            State::Held(pace) => pace.age(now),
        }
        self.factor() != before
    }
}
