//! Guidance ages while the controller that gave it is away.

use std::time::Duration;

use super::{BudgetOrder, Guidance};

/// Guidance ages when nothing newer came for so long. Controllers send it each second.
pub const AGES_AFTER: Duration = Duration::from_secs(2);
/// From then on it is the conservative one.
pub const AGED_AFTER: Duration = Duration::from_secs(3);
/// It ages in steps of this length, so that nobody has to look more often.
pub const AGE_STEP: Duration = Duration::from_millis(500);

impl Guidance {
    /// The guidance that was given so long ago and stands since. What was measured of queues and waits downstream gives way to
    /// what a plan leaves for them, step by step, and requests are served in the order of a module within its capacity.
    /// Batch sizes stay: they follow workers and their pace, and a plan's size would be no better guess.
    #[must_use]
    pub fn aged(&self, silence: Duration) -> Guidance {
        if silence < AGES_AFTER {
            return *self;
        }
        if silence >= AGED_AFTER {
            return Guidance {
                downstream: self.planned,
                order: BudgetOrder::LowestFirst,
                ..*self
            };
        }
        let steps = (silence - AGES_AFTER).as_nanos() / AGE_STEP.as_nanos() + 1;
        let all = (AGED_AFTER - AGES_AFTER).as_nanos() / AGE_STEP.as_nanos() + 1;
        let part = steps as f64 / all as f64;
        let was = self.downstream.mul_f64(1.0 - part);
        Guidance {
            downstream: was + self.planned.mul_f64(part),
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guidance_ages_step_by_step_into_the_planned_one() {
        let ms = Duration::from_millis;
        let told = Guidance {
            downstream: ms(160),
            planned: ms(100),
            order: BudgetOrder::HighestFirst,
            batch: Some(7),
            ..Guidance::NONE
        };
        let aged = |s: f64| told.aged(Duration::from_secs_f64(s));
        assert_eq!(aged(1.9), told);
        let downstream = [2.0, 2.4, 2.5, 2.9, 3.0, 90.0].map(|s| aged(s).downstream.as_millis());
        assert_eq!(downstream, [140, 140, 120, 120, 100, 100]);
        assert_eq!(aged(2.9).order, BudgetOrder::HighestFirst);
        let last = aged(3.0);
        assert_eq!(
            (last.order, last.batch),
            (BudgetOrder::LowestFirst, Some(7))
        );
        assert_eq!(Guidance::NONE.aged(ms(60_000)), Guidance::NONE);
    }
}
