//! Lets a batch scheduler form the batches, from distributions of execution times: for modules whose time depends on
//! the contents of requests.
//!
//! The scheduler gets the most urgent requests; the queue keeps those that it has no room for. The scheduler counts the
//! time left to a request's module deadline, `sent_at + SLO - L_sub` (PARD §4.2), so it works for the whole pipeline.

use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::id::RequestId;
use spillgate_pipeline::queue::Waiting;
use spillgate_pipeline::request::{Estimate, Request};
use spillgate_pipeline::schedule::Application;
use spillgate_pipeline::time::Timestamp;

use super::core::Core;
use super::{Formed, Rejected};
use crate::schedule::{GivenUp, Lengths, Pending, Scheduler, SchedulerConfig};

/// Members of a family of which the scheduler is asked for a batch, while it wants to wait with each.
pub(crate) const MEMBERS_TRIED_MAX: usize = 8;

/// The scheduler and the requests that it was given.
pub(super) struct Scheduled<T> {
    pub(super) scheduler: Scheduler,
    waiting: IndexMap<RequestId, Waiting<T>, FxBuildHasher>,
    /// The scheduler wants to wait, until something changes.
    declined: bool,
    /// At a module with a family: requests of other members that waited in the queue when something changed last.
    others: usize,
    /// Scratch.
    given_up: Vec<GivenUp>,
}

impl<T> Scheduled<T> {
    /// # Panics
    /// When the scheduler refuses its configuration: planning makes only valid configurations.
    pub(super) fn new(config: SchedulerConfig) -> Self {
        let scheduler = Scheduler::new(config);
        Scheduled {
            scheduler: scheduler.unwrap_or_else(|e| panic!("a scheduler was planned: {e}")),
            waiting: IndexMap::default(),
            declined: false,
            others: 0,
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

    pub(super) fn requests(&self) -> impl Iterator<Item = &Request> {
        self.waiting.values().map(|w| &w.request)
    }

    pub(super) fn ids(&self) -> Vec<RequestId> {
        self.waiting.keys().copied().collect()
    }

    pub(super) fn holds(&self, id: RequestId) -> bool {
        self.waiting.contains_key(&id)
    }

    /// Takes out one request.
    pub(super) fn take(&mut self, id: RequestId) -> Option<Waiting<T>> {
        self.scheduler.remove(id);
        self.waiting.swap_remove(&id)
    }

    /// Takes out some request, while there is one.
    pub(super) fn take_any(&mut self) -> Option<Waiting<T>> {
        let id = *self.waiting.last()?.0;
        self.take(id)
    }

    /// Takes in how long a request ran alone.
    pub(super) fn learn(&mut self, now: Timestamp, application: Application, took: Duration) {
        let length = self.scheduler.length_ms(took);
        // The scheduler refuses a length that is not a valid time; such a length is no sample.
        if self.scheduler.learn(now, application, length).is_ok() {
            self.declined = false;
        }
    }

    /// From now on this number stands for another application.
    pub(super) fn forget(&mut self, application: Application) {
        self.scheduler.forget(application);
        self.declined = false;
    }

    /// Takes in how long a batch took that was expected to take `expected`.
    pub(super) fn executed(
        &mut self,
        now: Timestamp,
        size: usize,
        expected: (Duration, Lengths),
        took: Duration,
    ) {
        self.scheduler.executed(now, size as u32, expected, took);
        self.declined = false;
    }

    /// Time passed: what was learnt and is not confirmed fades.
    pub(super) fn age(&mut self, now: Timestamp) {
        self.scheduler.age(now);
    }

    /// Moves requests from the queue to the scheduler while it has room. Where the module has several models, the scheduler gets those
    /// of one model at a time: of the one that it has, else of the one that the order puts first.
    pub(super) fn admit(&mut self, core: &mut Core<T>, now: Timestamp) {
        if !core.is_mixed() {
            return self.admit_all(core, now);
        }
        let held = self.waiting.values().next().map(|w| w.request.model());
        let first = || core.queue.first().map(|w| w.request.model());
        if let Some(model) = held.or_else(first) {
            let others = core.queue.set_aside_others(model);
            self.admit_all(core, now);
            core.queue.put_back(others);
        }
        if core.queue.len() != self.others {
            self.others = core.queue.len();
            self.declined = false;
        }
    }

    fn admit_all(&mut self, core: &mut Core<T>, now: Timestamp) {
        while self.scheduler.has_room() {
            let Some(next) = core.queue.pop_first() else {
                break;
            };
            let inserted = self.scheduler.insert(now, pending(core, &next));
            inserted.expect("there is room, and requests have ids of their own");
            self.waiting.insert(next.request.id, next);
            self.declined = false;
        }
    }

    /// Gives the scheduler all its requests anew, because their module deadlines moved.
    pub(super) fn admit_anew(&mut self, core: &Core<T>, now: Timestamp) {
        for (id, waiting) in &self.waiting {
            self.scheduler.remove(*id);
            let inserted = self.scheduler.insert(now, pending(core, waiting));
            inserted.expect("it was there before");
        }
        self.declined = false;
    }

    /// The scheduler's next batch, which starts at `starts_at`. Where the module has a family, it is of the member that the order
    /// puts first; if the scheduler wants to wait for more of that one, of the next.
    pub(super) fn form(
        &mut self,
        core: &mut Core<T>,
        now: Timestamp,
        starts_at: Timestamp,
        out: &mut Vec<Rejected<T>>,
    ) -> Formed<T> {
        if !core.is_mixed() {
            return self.form_of_held(core, now, starts_at, out);
        }
        self.yield_to_first(core);
        let mut declined = Vec::new();
        let mut formed = Formed::default();
        for _ in 0..MEMBERS_TRIED_MAX {
            self.admit(core, now);
            formed = self.form_of_held(core, now, starts_at, out);
            let others_wait = self.first_of_others(core).is_some();
            if !formed.members.is_empty() || !others_wait {
                break;
            }
            declined.extend(self.take_all());
        }
        if !declined.is_empty() {
            let has_declined = formed.members.is_empty();
            if has_declined {
                declined.extend(self.take_all());
            }
            core.queue.put_back(declined);
            self.admit(core, now);
            self.declined = has_declined;
        }
        formed
    }

    /// The most urgent request of the queue, if it is of another member than the scheduler has.
    fn first_of_others<'c>(&self, core: &'c Core<T>) -> Option<&'c Waiting<T>> {
        let held = self.waiting.values().next()?.request.model();
        core.queue.first().filter(|w| w.request.model() != held)
    }

    /// Gives all that it was given back to the queue, where another member's request is before them.
    fn yield_to_first(&mut self, core: &mut Core<T>) {
        let first = self.first_of_others(core);
        if first.is_some_and(|first| self.waiting.values().all(|held| first < held)) {
            let held = self.take_all();
            core.queue.put_back(held);
        }
    }

    /// Takes out all requests.
    fn take_all(&mut self) -> Vec<Waiting<T>> {
        std::iter::from_fn(|| self.take_any()).collect()
    }

    /// A batch of what the scheduler was given.
    fn form_of_held(
        &mut self,
        core: &mut Core<T>,
        now: Timestamp,
        starts_at: Timestamp,
        out: &mut Vec<Rejected<T>>,
    ) -> Formed<T> {
        let mut formed = Formed::default();
        let starts_at = starts_at.max(now);
        let batch = self.scheduler.next(starts_at, &mut self.given_up);
        self.declined = batch.is_none();
        if let Some(batch) = batch {
            formed.execution = batch.expected;
            formed.lengths = batch.lengths;
            formed.size = batch.size as usize;
            for id in &batch.members {
                let next = self.waiting.swap_remove(id);
                let next = next.expect("the scheduler batches what it was given");
                formed.members.push(core.bind(next, now));
            }
        }
        self.answer(core, now, out);
        self.admit(core, now);
        formed
    }

    /// Drops the requests that the scheduler gives up because their time is over.
    pub(super) fn expire(&mut self, core: &Core<T>, now: Timestamp, out: &mut Vec<Rejected<T>>) {
        self.scheduler.expire(now, &mut self.given_up);
        self.answer(core, now, out);
    }

    /// Rejects the requests that the scheduler gave up.
    fn answer(&mut self, core: &Core<T>, now: Timestamp, out: &mut Vec<Rejected<T>>) {
        for gone in self.given_up.drain(..) {
            let Some(waiting) = self.waiting.swap_remove(&gone.id) else {
                continue;
            };
            let estimate = gone.estimate.map(|estimate| Estimate {
                downstream: core.guidance.downstream,
                ..estimate
            });
            let reason = gone.reason.drop_reason();
            out.push(core.reject(now, waiting.request, waiting.payload, reason, estimate));
        }
    }
}

/// A request as the scheduler sees it.
fn pending<T>(core: &Core<T>, waiting: &Waiting<T>) -> Pending {
    Pending {
        id: waiting.request.id,
        application: waiting.request.application,
        deadline: core.module_deadline(&waiting.request),
        arrived_at: waiting.arrived_at,
    }
}
