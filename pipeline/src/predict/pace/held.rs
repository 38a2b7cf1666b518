//! `pace-held`: the pace from batch to batch, in force once it is off by much.

use super::super::fading::{Fading, LEAP_MAX, nearer};
use crate::time::Timestamp;

/// Weight of the newest batch.
const WEIGHT: f64 = 0.125;
/// Bounds of the ratio of one batch: a clock that jumps must not make a device look infinitely slow.
const RATIO_MIN: f64 = 0.05;
/// See [`RATIO_MIN`].
const RATIO_MAX: f64 = 20.0;
/// The pace is in force once it differs by this factor from the one that was: chance alone does not make it so large.
const CHANGE: f64 = 2.0;

const _: () = assert!(0.0 < WEIGHT && WEIGHT <= 1.0);
const _: () = assert!(1.0 < CHANGE && CHANGE < RATIO_MAX);
const _: () = assert!(0.0 < RATIO_MIN && RATIO_MIN < 1.0 / CHANGE);

#[derive(Clone, Debug)]
pub(super) struct Held {
    smoothed: f64,
    /// In force while it is confirmed.
    learnt: f64,
    /// In force: what has not faded of it.
    factor: f64,
    fading: Fading,
}

impl Default for Held {
    fn default() -> Self {
        Held {
            smoothed: 1.0,
            learnt: 1.0,
            factor: 1.0,
            fading: Fading::default(),
        }
    }
}

impl Held {
    pub(super) fn observe(&mut self, now: Timestamp, ratio: f64) {
        self.age(now);
        if nearer(ratio, self.learnt, self.factor) != self.learnt {
            // What is in force stays until it is off by much, so it begins with the profile.
            *self = Held::default();
        }
        let ratio = ratio.clamp(RATIO_MIN, RATIO_MAX.min(LEAP_MAX * self.smoothed));
        self.smoothed += WEIGHT * (ratio - self.smoothed);
        let off = self.smoothed / self.learnt;
        if off >= CHANGE || off <= 1.0 / CHANGE {
            self.learnt = self.smoothed;
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
}
