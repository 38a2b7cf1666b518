//! The pace of a worker: how fast it is compared with its profile, learnt from the batches that ended.

use std::time::Duration;

/// Weight of the newest batch in the smoothed ratio of measured to expected execution time.
const WEIGHT: f64 = 0.25;
/// Bounds of that ratio: a clock that jumps must not make a worker look infinitely slow.
const RATIO_MIN: f64 = 0.1;
/// See [`RATIO_MIN`].
const RATIO_MAX: f64 = 20.0;
/// One batch counts as at most this many times as slow as the worker was: a device that paused is not slow. Otherwise it would
/// refuse requests for as long as it takes to doubt its pace.
const LEAP_MAX: f64 = 3.0;
/// A ratio this close to one is one: without noise the difference is rounding, and exact times are kept.
const ROUNDING: f64 = 0.01;
/// Part of the pace that is forgotten with each request that an idle device gives up because of the pace. A worker that
/// is really slow then runs one request in many in vain.
const DOUBT: f64 = 0.01;
/// Batches that end this close to their expected end are on time: the difference is rounding.
const STRAY_MIN: f64 = 0.01;

const _: () = assert!(0.0 < WEIGHT && WEIGHT <= 1.0);
const _: () = assert!(
    0.0 < DOUBT && DOUBT < WEIGHT,
    "a batch tells more than a doubt"
);
const _: () = assert!(LEAP_MAX * RATIO_MIN < RATIO_MAX && LEAP_MAX > 1.0);
const _: () = assert!(0.0 < RATIO_MIN && RATIO_MIN < 1.0 - ROUNDING);
const _: () = assert!(1.0 + ROUNDING < RATIO_MAX);

/// Measured over expected execution time.
#[derive(Debug)]
pub(super) struct Pace {
    /// The ratio, smoothed; 1 for policies that trust the profile.
    ratio: f64,
    /// Usual deviation of single batches from it, smoothed.
    stray: f64,
}

impl Default for Pace {
    fn default() -> Self {
        Pace {
            ratio: 1.0,
            stray: 0.0,
        }
    }
}

impl Pace {
    /// The expected time of a batch that takes `expected` by the profile.
    pub(super) fn of(&self, expected: Duration) -> Duration {
        if self.ratio == 1.0 {
            expected
        } else {
            expected.mul_f64(self.ratio)
        }
    }

    /// The time by the profile of a batch that is expected to take this long: the inverse of [`Pace::of`].
    pub(super) fn profiled(&self, expected: Duration) -> Duration {
        expected.div_f64(self.ratio)
    }

    /// Usual difference between the expected and the actual end of a batch that takes `expected` by the profile.
    pub(super) fn stray(&self, expected: Duration) -> Duration {
        if self.stray < STRAY_MIN {
            return Duration::ZERO;
        }
        expected.mul_f64(self.stray)
    }

    /// Takes in how long a batch took, and how long it takes by the profile.
    pub(super) fn observe(&mut self, profiled: Duration, took: Duration) {
        let ratio = took.as_secs_f64() / profiled.as_secs_f64();
        let most = RATIO_MAX.min(LEAP_MAX * self.ratio);
        let ratio = ratio.clamp(RATIO_MIN, most);
        self.stray += WEIGHT * ((ratio - self.ratio).abs() - self.stray);
        self.ratio += WEIGHT * (ratio - self.ratio);
        if (self.ratio - 1.0).abs() < ROUNDING {
            self.ratio = 1.0;
        }
    }

    /// Whether the worker is slower than its profile.
    pub(super) fn is_slow(&self) -> bool {
        self.ratio > 1.0
    }

    /// Moves the pace a little towards the profile.
    pub(super) fn doubt(&mut self) {
        self.ratio += DOUBT * (1.0 - self.ratio);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Seed 124 of the swarm: a worker of batches of 9 ms paused for 297 ms and then dropped hundreds of requests.
    #[test]
    fn a_device_that_paused_is_not_slow_and_a_slow_one_is_found() {
        let mut pace = Pace::default();
        pace.observe(MS * 9, MS * 306);
        assert_eq!(pace.ratio, 1.5);
        for _ in 0..8 {
            pace.observe(MS * 9, MS * 9);
        }
        assert!(pace.ratio < 1.06, "{}", pace.ratio);
        for _ in 0..12 {
            pace.observe(MS * 9, MS * 90);
        }
        assert!(pace.ratio > 8.0, "{}", pace.ratio);
    }
}
