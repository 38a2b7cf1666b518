//! The part of the devices' time that is planned: it follows from what is lost.

use spillgate_pipeline::policy::adapt::Constants;

/// The part that is planned.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlannedPart {
    part: f64,
    /// Where it was when losses last began.
    lost_at: f64,
    /// Too many requests were lost in the last period.
    is_losing: bool,
}

impl PlannedPart {
    pub(super) fn new(constants: &Constants) -> Self {
        PlannedPart {
            part: constants.part_max,
            lost_at: f64::INFINITY,
            is_losing: false,
        }
    }

    /// The part.
    pub(super) fn part(self) -> f64 {
        self.part
    }

    /// This part of a period's requests was lost. `may_fall`: some stream could be served smaller.
    pub(super) fn period_ended(&mut self, lost: f64, may_fall: bool, constants: &Constants) {
        let is_losing = lost > constants.loss;
        if is_losing && !self.is_losing {
            self.lost_at = self.part;
        }
        self.is_losing = is_losing;
        if !is_losing {
            let is_near = self.part + constants.rise > constants.near * self.lost_at;
            let rise = if is_near {
                constants.rise_near
            } else {
                constants.rise
            };
            self.part = (self.part + rise).min(constants.part_max);
        } else if may_fall {
            let fall = (constants.fall * (lost - constants.loss)).min(constants.fall_max);
            self.part = (self.part * (1.0 - fall)).max(constants.part_min);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Constants = Constants::USUAL;

    /// Ends so many periods; the part after each.
    fn periods(planned: &mut PlannedPart, n: usize, lost: f64) -> Vec<f64> {
        let after = |_| {
            planned.period_ended(lost, true, &USUAL);
            planned.part()
        };
        (0..n).map(after).collect()
    }

    fn is_close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn it_falls_by_what_is_lost_beyond_one_in_two_hundred() {
        let mut planned = PlannedPart::new(&USUAL);
        assert_eq!(periods(&mut planned, 1, USUAL.loss), [USUAL.part_max]);
        let fallen = periods(&mut planned, 2, 0.055);
        assert!(
            is_close(fallen[1], USUAL.part_max * 0.95 * 0.95),
            "{fallen:?}"
        );
        let fallen = periods(&mut planned, 1, 0.5);
        assert!(
            is_close(fallen[0], USUAL.part_max * 0.95 * 0.95 * 0.85),
            "{fallen:?}"
        );
        assert_eq!(periods(&mut planned, 20, 1.0).pop(), Some(USUAL.part_min));
        let before = planned.part();
        planned.period_ended(1.0, false, &USUAL);
        assert_eq!(planned.part(), before, "nobody can be served smaller");
    }

    #[test]
    fn it_rises_fast_to_where_losses_began_and_slowly_from_there() {
        let mut planned = PlannedPart::new(&USUAL);
        periods(&mut planned, 4, 0.16);
        let low = planned.part();
        let risen = periods(&mut planned, 10, 0.0);
        assert!(is_close(risen[9], low + 10.0 * USUAL.rise), "{risen:?}");
        // From 0.956 on: two whole steps, and what is left to the top.
        let risen = periods(&mut planned, 30, 0.0);
        let steps: Vec<f64> = risen.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let fast = steps
            .iter()
            .filter(|step| is_close(**step, USUAL.rise))
            .count();
        let slow = steps
            .iter()
            .filter(|step| is_close(**step, USUAL.rise_near));
        assert_eq!(fast, 19, "{steps:?}");
        assert_eq!(slow.count(), 2, "{steps:?}");
        assert_eq!(periods(&mut planned, 20, 0.0).pop(), Some(USUAL.part_max));
    }

    /// That a device was away for a while says nothing of a part that was planned then.
    #[test]
    fn losses_that_go_on_began_once() {
        let mut planned = PlannedPart::new(&USUAL);
        periods(&mut planned, 20, 1.0);
        let risen = periods(&mut planned, 40, 0.0);
        assert!(
            is_close(risen[39], USUAL.part_min + 40.0 * USUAL.rise),
            "{risen:?}"
        );
    }
}
