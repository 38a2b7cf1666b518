//! `pace-ewma`: the pace from batch to batch, smoothed exponentially.

/// Weight of the newest batch.
const WEIGHT: f64 = 0.25;
/// Bounds of the ratio of one batch: a clock that jumps must not make a worker look infinitely slow.
const RATIO_MIN: f64 = 0.1;
/// See [`RATIO_MIN`].
const RATIO_MAX: f64 = 20.0;
/// One batch counts as at most this many times as slow as the worker was: a device that paused is not slow. Otherwise it would
/// refuse requests for as long as it takes to doubt its pace.
const LEAP_MAX: f64 = 3.0;
/// A pace this close to one is one: without noise the difference is rounding, and exact times are kept.
const ROUNDING: f64 = 0.01;
/// Part of the pace that is forgotten with each request that an idle device gives up because of the pace. A worker that
/// is really slow then runs one request in many in vain.
const DOUBT: f64 = 0.01;
/// Batches that end this close to their expected end are on time: the difference is rounding.
const SPREAD_MIN: f64 = 0.01;

const _: () = assert!(0.0 < WEIGHT && WEIGHT <= 1.0);
const _: () = assert!(
    0.0 < DOUBT && DOUBT < WEIGHT,
    "a batch tells more than a doubt"
);
const _: () = assert!(LEAP_MAX * RATIO_MIN < RATIO_MAX && LEAP_MAX > 1.0);
const _: () = assert!(0.0 < RATIO_MIN && RATIO_MIN < 1.0 - ROUNDING);
const _: () = assert!(1.0 + ROUNDING < RATIO_MAX);

#[derive(Clone, Debug)]
pub(super) struct Smoothed {
    factor: f64,
    /// Usual deviation of single batches from it.
    spread: f64,
}

impl Default for Smoothed {
    fn default() -> Self {
        Smoothed {
            factor: 1.0,
            spread: 0.0,
        }
    }
}

impl Smoothed {
    pub(super) fn observe(&mut self, ratio: f64) {
        let most = RATIO_MAX.min(LEAP_MAX * self.factor);
        let ratio = ratio.clamp(RATIO_MIN, most);
        self.spread += WEIGHT * ((ratio - self.factor).abs() - self.spread);
        self.factor += WEIGHT * (ratio - self.factor);
        if (self.factor - 1.0).abs() < ROUNDING {
            self.factor = 1.0;
        }
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

    /// Moves a little towards the profile.
    pub(super) fn doubt(&mut self) {
        self.factor += DOUBT * (1.0 - self.factor);
    }
}
