//! `pace-held`: the pace from batch to batch, in force once it is off by much.

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
    /// In force.
    factor: f64,
}

impl Default for Held {
    fn default() -> Self {
        Held {
            smoothed: 1.0,
            factor: 1.0,
        }
    }
}

impl Held {
    pub(super) fn observe(&mut self, ratio: f64) {
        self.smoothed += WEIGHT * (ratio.clamp(RATIO_MIN, RATIO_MAX) - self.smoothed);
        let off = self.smoothed / self.factor;
        if off >= CHANGE || off <= 1.0 / CHANGE {
            self.factor = self.smoothed;
        }
    }

    pub(super) fn factor(&self) -> f64 {
        self.factor
    }
}
