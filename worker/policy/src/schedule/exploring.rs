//! Runs requests of unknown applications alone, so that a scheduler learns how long they are.
//!
//! An overloaded device is never idle, so no request runs again to be measured ([`crate::profiler`]). A batch of
//! several members does not show how long one of them is. So a scheduler that starts with wrong laws would keep them,
//! and serve a fraction of the requests that it could. Therefore a request of an application without enough samples, or
//! without recent ones, runs in a batch of its own now and then. ORLOJ (§4.1) assumes spare resources for its profiler
//! instead.
//!
//! Until samples replace the prior, one such batch follows the other. After that such batches become rarer with more
//! samples, down to one in [`FRESH`], and there are none while samples come by themselves. A batch that gave no sample
//! is not repeated before [`FRESH`] has passed.

use std::time::Duration;

use spillgate_pipeline::distribution::Learner;
use spillgate_pipeline::schedule::Application;
use spillgate_pipeline::time::Timestamp;

use super::book::Book;
use super::strategy::{Chosen, View};

/// The newest sample is recent for so long, where there are enough samples.
pub(super) const FRESH: Duration = Duration::from_secs(30);
/// This many samples are enough. Where there are fewer, the newest is recent for a proportional part of [`FRESH`].
const ENOUGH: f64 = 256.0;
/// A request that runs alone should have this many times its expected time left, because the expectation is a guess.
const SPARE: f64 = 2.0;

const _: () = assert!(SPARE >= 1.0, "the expected time fits");

#[derive(Debug, Default)]
pub(super) struct Explorer {
    /// When a request of each application was last run alone to learn from it.
    asked: Vec<Option<Timestamp>>,
}

impl Explorer {
    /// A request to be run alone, if the sizes allow that and one of the applications needs samples.
    pub(super) fn choose(&mut self, view: View<'_>) -> Option<Chosen> {
        let View { now, book, set } = view;
        if book.sizes().first() != Some(&1) {
            return None;
        }
        self.asked.resize(set.applications(), None);
        for idx in 0..set.applications() {
            let application = Application(idx as u16);
            if !self.is_to_learn(now, book, application) {
                continue;
            }
            let expected_ms = book
                .time()
                .alone_ms(book.law(book.law_idx(application)).mean());
            let in_time = view.in_ms(SPARE * expected_ms);
            let spare = set.due_from(idx, in_time).next();
            let Some(pending) = spare.or_else(|| set.first_of(idx)) else {
                continue;
            };
            self.asked[idx] = Some(now);
            return Some(Chosen {
                size: 1,
                members: vec![pending.id],
                expected_ms,
            });
        }
        None
    }

    fn is_to_learn(&self, now: Timestamp, book: &Book, application: Application) -> bool {
        let learner = book.learner(application);
        let newest = learner.and_then(Learner::newest);
        if let Some(asked) = self.asked[application.idx()]
            && newest.is_none_or(|newest| newest < asked)
            && now.since(asked) < FRESH
        {
            // Such a request is under way, or gave no sample.
            return false;
        }
        let (Some(learner), Some(newest)) = (learner, newest) else {
            return true;
        };
        let fresh = FRESH.mul_f64((learner.len() as f64 / ENOUGH).min(1.0));
        !learner.is_taught() || now.since(newest) > fresh
    }
}

#[cfg(test)]
mod tests {
    use spillgate_pipeline::distribution::{BatchForm, BatchTime, WINDOW_DEFAULT};
    use spillgate_pipeline::id::RequestId;
    use spillgate_pipeline::schedule::SchedulePolicy;

    use super::*;
    use crate::schedule::{Pending, Scheduler, SchedulerConfig, Scoring};

    const MS: Duration = Duration::from_millis(1);

    fn scheduler() -> Scheduler {
        let config = SchedulerConfig {
            policy: SchedulePolicy::ORLOJ,
            sizes: vec![1, 2, 4],
            planned: 4,
            time: BatchTime::new(BatchForm::Padded, 1.0, 0.5, 0.0).unwrap(),
            prior_ms: 10.0,
            scoring: Scoring::default(),
            window: WINDOW_DEFAULT,
            capacity: 1000,
        };
        Scheduler::new(config).unwrap()
    }

    /// Requests that ran alone in so many batches, a batch every 20 ms, with ample requests of two applications.
    fn alone(n_batches: u32, answers: bool) -> [u32; 2] {
        let mut scheduler = scheduler();
        let mut alone = [0; 2];
        let mut next_id = 0;
        for i in 0..n_batches {
            let now = Timestamp::ZERO + 20 * MS * i;
            while scheduler.len() < 40 {
                let pending = Pending {
                    id: RequestId(next_id),
                    application: Application((next_id % 2) as u16),
                    deadline: now + 400 * MS,
                    arrived_at: now,
                };
                scheduler.insert(now, pending).unwrap();
                next_id += 1;
            }
            let batch = scheduler.next(now, &mut Vec::new()).unwrap();
            if let [one] = batch.members.as_slice() {
                let application = (one.0 % 2) as u16;
                alone[usize::from(application)] += 1;
                if answers {
                    let end = now + 10 * MS;
                    let learnt = scheduler.learn(end, Application(application), 9.0);
                    learnt.unwrap();
                }
            }
        }
        alone
    }

    #[test]
    fn each_application_runs_alone_until_it_is_known_and_then_rarely() {
        let known = alone(16, true);
        assert_eq!(known, [8, 8]);
        let minute = alone(3000, true);
        assert!(minute.iter().all(|n| (15..40).contains(n)), "{minute:?}");
    }

    #[test]
    fn what_teaches_nothing_is_not_repeated_at_once() {
        let unanswered = alone(3000, false);
        assert_eq!(unanswered, [2, 2], "one in half a minute");
    }
}
