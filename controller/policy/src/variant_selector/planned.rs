//! The part of the devices' time that is planned: it follows from what is lost.

/// Of the devices' time, at most this part is planned: arrivals are uneven.
pub(super) const PART_MAX: f64 = 0.97;
/// The least part.
const PART_MIN: f64 = 0.3;
/// Losses of a period that are too many, as a part of its requests.
const LOSS: f64 = 0.005;
/// In a period in which more than [`LOSS`] of the requests were lost, the part falls by so many times what is beyond that: losses are weighed
/// against the accuracy that less of the devices' time costs.
const FALL: f64 = 1.0;
/// It falls by no more than this part of it in a period.
const FALL_MAX: f64 = 0.15;
/// What the part gains in a period without such losses.
const RISE: f64 = 0.015;
/// The same close to where losses last began: to try again each few periods whether they would begin there costs more than it gains.
const RISE_NEAR: f64 = 0.005;
/// From this part on, of the one at which they began.
const NEAR: f64 = 0.99;

/// The part that is planned.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlannedPart {
    part: f64,
    /// Where it was when losses last began.
    lost_at: f64,
    /// Too many requests were lost in the last period.
    is_losing: bool,
}

impl Default for PlannedPart {
    fn default() -> Self {
        PlannedPart {
            part: PART_MAX,
            lost_at: f64::INFINITY,
            is_losing: false,
        }
    }
}

impl PlannedPart {
    /// The part.
    pub(super) fn part(self) -> f64 {
        self.part
    }

    /// This part of a period's requests was lost. `may_fall`: some stream could be served smaller.
    pub(super) fn period_ended(&mut self, lost: f64, may_fall: bool) {
        let is_losing = lost > LOSS;
        if is_losing && !self.is_losing {
            self.lost_at = self.part;
        }
        self.is_losing = is_losing;
        if !is_losing {
            let is_near = self.part + RISE > NEAR * self.lost_at;
            let rise = if is_near { RISE_NEAR } else { RISE };
            self.part = (self.part + rise).min(PART_MAX);
        } else if may_fall {
            let fall = (FALL * (lost - LOSS)).min(FALL_MAX);
            self.part = (self.part * (1.0 - fall)).max(PART_MIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ends so many periods; the part after each.
    fn periods(planned: &mut PlannedPart, n: usize, lost: f64) -> Vec<f64> {
        let after = |_| {
            planned.period_ended(lost, true);
            planned.part()
        };
        (0..n).map(after).collect()
    }

    fn is_close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn it_falls_by_what_is_lost_beyond_one_in_two_hundred() {
        let mut planned = PlannedPart::default();
        assert_eq!(periods(&mut planned, 1, LOSS), [PART_MAX]);
        let fallen = periods(&mut planned, 2, 0.055);
        assert!(is_close(fallen[1], PART_MAX * 0.95 * 0.95), "{fallen:?}");
        let fallen = periods(&mut planned, 1, 0.5);
        assert!(
            is_close(fallen[0], PART_MAX * 0.95 * 0.95 * 0.85),
            "{fallen:?}"
        );
        assert_eq!(periods(&mut planned, 20, 1.0).pop(), Some(PART_MIN));
        let before = planned.part();
        planned.period_ended(1.0, false);
        assert_eq!(planned.part(), before, "nobody can be served smaller");
    }

    #[test]
    fn it_rises_fast_to_where_losses_began_and_slowly_from_there() {
        let mut planned = PlannedPart::default();
        periods(&mut planned, 4, 0.16);
        let low = planned.part();
        let risen = periods(&mut planned, 10, 0.0);
        assert!(is_close(risen[9], low + 10.0 * RISE), "{risen:?}");
        // From 0.956 on: two whole steps, and what is left to the top.
        let risen = periods(&mut planned, 30, 0.0);
        let steps: Vec<f64> = risen.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let fast = steps.iter().filter(|step| is_close(**step, RISE)).count();
        let slow = steps.iter().filter(|step| is_close(**step, RISE_NEAR));
        assert_eq!(fast, 19, "{steps:?}");
        assert_eq!(slow.count(), 2, "{steps:?}");
        assert_eq!(periods(&mut planned, 20, 0.0).pop(), Some(PART_MAX));
    }

    /// That a device was away for a while says nothing of a part that was planned then.
    #[test]
    fn losses_that_go_on_began_once() {
        let mut planned = PlannedPart::default();
        periods(&mut planned, 20, 1.0);
        let risen = periods(&mut planned, 40, 0.0);
        assert!(is_close(risen[39], PART_MIN + 40.0 * RISE), "{risen:?}");
    }
}
