//! `pace-ewma`: the pace from batch to batch, smoothed exponentially.

use super::super::fading::{Fading, LEAP_MAX, nearer};
use crate::time::Timestamp;

/// Weight of the newest batch.
const WEIGHT: f64 = 0.25;
/// Bounds of the ratio of one batch: a clock that jumps must not make a worker look infinitely slow.
const RATIO_MIN: f64 = 0.1;
/// See [`RATIO_MIN`].
const RATIO_MAX: f64 = 20.0;
/// A pace this close to one is one: without noise the difference is rounding, and exact times are kept.
const ROUNDING: f64 = 0.01;
/// Batches that end this close to their expected end are on time: the difference is rounding.
const SPREAD_MIN: f64 = 0.01;

const _: () = assert!(0.0 < WEIGHT && WEIGHT <= 1.0);
const _: () = assert!(LEAP_MAX * RATIO_MIN < RATIO_MAX && LEAP_MAX > 1.0);
const _: () = assert!(0.0 < RATIO_MIN && RATIO_MIN < 1.0 - ROUNDING);
const _: () = assert!(1.0 + ROUNDING < RATIO_MAX);

#[derive(Clone, Debug)]
pub(super) struct Smoothed {
    learnt: f64,
    /// In force: what has not faded of it.
    factor: f64,
    fading: Fading,
    /// Usual deviation of single batches from it.
    spread: f64,
}

impl Default for Smoothed {
    fn default() -> Self {
        Smoothed {
            learnt: 1.0,
            factor: 1.0,
            fading: Fading::default(),
            spread: 0.0,
        }
    }
}

impl Smoothed {
    pub(super) fn observe(&mut self, now: Timestamp, ratio: f64) {
        self.age(now);
        let before = nearer(ratio, self.learnt, self.factor);
        let ratio = ratio.clamp(RATIO_MIN, RATIO_MAX.min(LEAP_MAX * before));
        self.spread += WEIGHT * ((ratio - before).abs() - self.spread);
        self.learnt = before + WEIGHT * (ratio - before);
        if (self.learnt - 1.0).abs() < ROUNDING {
            self.learnt = 1.0;
        }
        self.factor = self.learnt;
        self.fading.confirm(now);
    }

    pub(super) fn age(&mut self, now: Timestamp) {
        self.factor = self.fading.of(now, 1.0, self.learnt);
    }

    pub(super) fn factor(&self) -> f64 {
        self.factor
    }

    pub(super) fn spread(&self) -> f64 {
        if self.spread < SPREAD_MIN {
            return 0.0;
        }
        self.spread
    }
}
