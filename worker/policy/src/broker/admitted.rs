//! Modules whose time depends on what requests bring: the queue admits, and a batch scheduler forms batches of what it
//! admitted, from execution-time distributions.
//!
//! The queue keeps what the window of the scheduler has no room for; the window takes the most urgent of it. What a
//! request has left is counted to its module deadline, `sent_at + SLO - L_sub` (PARD §4.2), so the scheduler works for the
//! whole pipeline.

use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::id::RequestId;
use spillgate_pipeline::schedule::Application;
use spillgate_pipeline::time::Timestamp;

use super::queue::Waiting;
use super::{Broker, Formed, Member, Rejected};
use crate::schedule::{GivenUp, Pending, Scheduler, SchedulerConfig};

/// The scheduler and what it was given.
pub(super) struct Admitted<T> {
    pub(super) scheduler: Scheduler,
    waiting: IndexMap<RequestId, Waiting<T>, FxBuildHasher>,
    /// It wants to wait, until something changes.
    declined: bool,
    given_up: Vec<GivenUp>,
}

impl<T> Admitted<T> {
    /// # Panics
    /// When the configuration is none: planning makes only such as are.
    pub(super) fn new(config: SchedulerConfig) -> Self {
        let scheduler = Scheduler::new(config);
        Admitted {
            scheduler: scheduler.unwrap_or_else(|e| panic!("a scheduler was planned: {e}")),
            waiting: IndexMap::default(),
            declined: false,
            given_up: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The earliest module deadline, unless the scheduler wants to wait.
    pub(super) fn urgency(&self) -> Option<Timestamp> {
        let first = self.scheduler.next_expiry();
        first.filter(|_| !self.declined)
    }

    /// Something changed: the scheduler is to be asked again.
    pub(super) fn touch(&mut self) {
        self.declined = false;
    }

    pub(super) fn take(&mut self, id: RequestId) -> Option<Waiting<T>> {
        self.scheduler.remove(id);
        self.waiting.swap_remove(&id)
    }

    pub(super) fn take_any(&mut self) -> Option<Waiting<T>> {
        let id = *self.waiting.last()?.0;
        self.take(id)
    }

    /// Takes in how long a request ran alone.
    pub(super) fn learn(&mut self, now: Timestamp, application: Application, took: Duration) {
        let length = self.scheduler.length_ms(took);
        // A time that is none is no sample.
        if self.scheduler.learn(now, application, length).is_ok() {
            self.touch();
        }
    }

    /// The application is another one from now on.
    pub(super) fn forget(&mut self, application: Application) {
        self.scheduler.forget(application);
        self.touch();
    }
}

impl<T> Broker<T> {
    /// Moves requests from the queue to the scheduler's window while it has room.
    pub(super) fn admit(&mut self, now: Timestamp) {
        let Some(admitted) = &mut self.admitted else {
            return;
        };
        while admitted.scheduler.has_room() {
            let Some(next) = self.queue.pop_first() else {
                break;
            };
            let pending = Pending {
                id: next.request.id,
                application: next.request.application,
                deadline: self.guidance.module_deadline(&next.request),
                arrived_at: next.arrived_at,
            };
            let inserted = admitted.scheduler.insert(now, pending);
            inserted.expect("there is room, and requests have ids of their own");
            admitted.waiting.insert(next.request.id, next);
            admitted.touch();
        }
    }

    /// Module deadlines moved.
    pub(super) fn admit_anew(&mut self, now: Timestamp) {
        let Some(admitted) = &mut self.admitted else {
            return;
        };
        for (id, waiting) in &admitted.waiting {
            admitted.scheduler.remove(*id);
            let pending = Pending {
                id: *id,
                application: waiting.request.application,
                deadline: self.guidance.module_deadline(&waiting.request),
                arrived_at: waiting.arrived_at,
            };
            let inserted = admitted.scheduler.insert(now, pending);
            inserted.expect("it was there before");
        }
        admitted.touch();
    }

    /// The scheduler's next batch.
    pub(super) fn schedule(
        &mut self,
        now: Timestamp,
        starts_at: Timestamp,
        out: &mut Vec<Rejected<T>>,
    ) -> Formed<T> {
        let mut formed = Formed::default();
        let Some(admitted) = &mut self.admitted else {
            return formed;
        };
        let mut given_up = std::mem::take(&mut admitted.given_up);
        let batch = admitted.scheduler.next(starts_at.max(now), &mut given_up);
        admitted.declined = batch.is_none();
        if let Some(batch) = batch {
            formed.execution = batch.expected;
            formed.lengths = batch.lengths;
            formed.size = batch.size as usize;
            for id in &batch.members {
                let next = admitted.waiting.swap_remove(id);
                let next = next.expect("the scheduler batches what it was given");
                formed.members.push(Member {
                    request: next.request,
                    payload: next.payload,
                    arrived_at: next.arrived_at,
                    batched_at: now,
                });
            }
        }
        self.answer(now, &mut given_up, out);
        if let Some(admitted) = &mut self.admitted {
            admitted.given_up = given_up;
        }
        self.admit(now);
        formed
    }

    /// What the scheduler gives up because its time is over.
    pub(super) fn expire_admitted(&mut self, now: Timestamp, out: &mut Vec<Rejected<T>>) {
        let Some(admitted) = &mut self.admitted else {
            return;
        };
        let mut given_up = std::mem::take(&mut admitted.given_up);
        admitted.scheduler.expire(now, &mut given_up);
        self.answer(now, &mut given_up, out);
        if let Some(admitted) = &mut self.admitted {
            admitted.given_up = given_up;
        }
    }

    fn answer(&mut self, now: Timestamp, given_up: &mut Vec<GivenUp>, out: &mut Vec<Rejected<T>>) {
        for gone in given_up.drain(..) {
            let admitted = self.admitted.as_mut();
            let waiting = admitted.and_then(|a| a.waiting.swap_remove(&gone.id));
            if let Some(waiting) = waiting {
                let reason = gone.reason.drop_reason();
                let estimate = gone.estimate.map(|estimate| {
                    let downstream = self.guidance.downstream;
                    spillgate_pipeline::request::Estimate {
                        downstream,
                        ..estimate
                    }
                });
                out.push(self.reject(now, waiting.request, waiting.payload, reason, estimate));
            }
        }
    }
}
