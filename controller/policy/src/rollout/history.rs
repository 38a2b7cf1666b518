//! What a revision's requests came to in its last minute: what a new one is compared with.

use std::collections::VecDeque;
use std::time::Duration;

use spillgate_pipeline::time::Timestamp;

use super::judgement::Outcomes;

/// A slot of the window: six make a minute.
const SLOT: Duration = Duration::from_secs(10);
/// Slots of the window.
pub(crate) const SLOTS: usize = 6;
/// A window older than this says nothing about the load of today.
pub(crate) const AGE_MAX: Duration = Duration::from_secs(3600);

/// The outcomes of the last minute in which there were any.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    /// By the number of the slot, oldest first.
    slots: VecDeque<(u64, Outcomes)>,
}

fn slot_of(at: Timestamp) -> u64 {
    at.as_ns() / SLOT.as_nanos() as u64
}

impl History {
    pub(super) fn add(&mut self, now: Timestamp, outcomes: Outcomes) {
        if outcomes.all() == 0 {
            return;
        }
        let slot = slot_of(now);
        match self.slots.back_mut() {
            Some((of, known)) if *of >= slot => known.add(outcomes),
            _ => self.slots.push_back((slot, outcomes)),
        }
        let is_old = |of: &(u64, Outcomes)| of.0 + SLOTS as u64 <= slot;
        while self.slots.front().is_some_and(is_old) {
            self.slots.pop_front();
        }
    }

    /// The sum, unless it is too old.
    pub(super) fn last(&self, now: Timestamp) -> Option<Outcomes> {
        let (newest, _) = self.slots.back()?;
        let age_max = AGE_MAX.as_nanos() / SLOT.as_nanos();
        if slot_of(now) > newest + age_max as u64 {
            return None;
        }
        let mut sum = Outcomes::default();
        self.slots
            .iter()
            .for_each(|(_, outcomes)| sum.add(*outcomes));
        Some(sum)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn second(n: u64) -> Timestamp {
        Timestamp::from_ns(n * 1_000_000_000)
    }

    proptest! {
        #[test]
        fn it_is_the_sum_of_the_minute_before_the_last_requests(
            gaps in proptest::collection::vec((0u64..90, 0u64..5, 0u64..3), 1..60),
            later in 0u64..8000,
        ) {
            let mut history = History::default();
            let mut all: Vec<(u64, Outcomes)> = Vec::new();
            let mut now = 0;
            for (gap, in_time, failed) in gaps {
                now += gap;
                let outcomes = Outcomes { in_time, failed, ..Outcomes::default() };
                history.add(second(now), outcomes);
                all.push((now, outcomes));
            }
            // The slow reference: all that ever happened.
            let newest = all.iter().rev().find(|(_, of)| of.all() > 0).map(|(at, _)| at / 10);
            let expected = newest.filter(|newest| (now + later) / 10 <= newest + 360).map(|newest| {
                let mut sum = Outcomes::default();
                let recent = all.iter().filter(|(at, _)| at / 10 + 6 > newest);
                recent.for_each(|(_, of)| sum.add(*of));
                sum
            });
            prop_assert_eq!(history.last(second(now + later)), expected);
            prop_assert!(history.slots.len() <= SLOTS);
        }
    }
}
