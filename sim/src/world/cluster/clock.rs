//! The clock of a process.

use spillgate_pipeline::time::Timestamp;

/// Parts of a million.
const MILLION: i128 = 1_000_000;

/// A clock that is off and drifts.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::world) struct Clock {
    /// What it shows at time zero, in nanoseconds.
    pub(in crate::world) ahead: i64,
    /// How much faster it runs, in parts per million.
    pub(in crate::world) ppm: i64,
}

impl Clock {
    /// What it shows at a time of the world.
    pub(in crate::world) fn read(self, at: Timestamp) -> Timestamp {
        let ran = i128::from(at.as_ns()) * (MILLION + i128::from(self.ppm));
        timestamp(ran.div_euclid(MILLION) + i128::from(self.ahead))
    }

    /// The first time of the world at which it shows at least that.
    pub(in crate::world) fn moment(self, shows: Timestamp) -> Timestamp {
        let spent = i128::from(shows.as_ns()) - i128::from(self.ahead);
        let rate = MILLION + i128::from(self.ppm);
        timestamp((spent * MILLION + rate - 1).div_euclid(rate))
    }
}

fn timestamp(ns: i128) -> Timestamp {
    Timestamp::from_ns(ns.clamp(0, i128::from(u64::MAX)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_the_first_at_which_the_clock_shows_it() {
        for (ahead, ppm) in [(0, 0), (3_600_000_000_000, 50), (-7, -50), (5, 100)] {
            let clock = Clock { ahead, ppm };
            for t in [1_000, 123_456_789, 60_000_000_017] {
                let shows = clock.read(Timestamp::from_ns(t));
                let moment = clock.moment(shows);
                assert!(clock.read(moment) >= shows && moment.as_ns() <= t);
            }
        }
    }
}
