//! Requests whose weights are not in memory ([`crate::weights::store`]). They wait apart from all others, so that batches are formed of
//! requests that can run, and go to their place among these when their weights are there.
//!
//! Where the drop policy or scheduler predicts, a request is given up once it would be late even if its weights were read next: the
//! estimate counts its load. One waits on all the same, until its deadline, where reading its weights costs nobody anything
//! ([`WeightStore::reads_free`]), else one of [`TRIED_ONE_IN`]. Without that, weights whose load exceeds the SLO would never be read, and a load
//! that took far too long once would decide for good.

use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::id::{RequestId, WeightsId};
use spillgate_pipeline::policy::recipe::{Bind, Keep};
use spillgate_pipeline::queue::{Queue, Waiting};
use spillgate_pipeline::request::{DropReason, Estimate, Request};
use spillgate_pipeline::time::Timestamp;

use super::core::Core;
use super::{Broker, Rejected};
use crate::weights::store::{Wanted, WeightStore};

/// Of so many requests in a row that their load makes late, one waits all the same.
pub(crate) const TRIED_ONE_IN: u32 = 8;

/// The requests of a broker that wait for weights.
pub(super) struct Cold<T> {
    by_weights: IndexMap<WeightsId, Queue<T>, FxBuildHasher>,
    /// Those that have no SLO, of all.
    n_background: usize,
    /// When the first of them may have to be given up.
    looks_at: Timestamp,
    /// Given up since one was spared.
    given_up: u32,
    /// It waits until its deadline.
    spared: Option<RequestId>,
}

impl<T> Default for Cold<T> {
    fn default() -> Self {
        Cold {
            by_weights: IndexMap::default(),
            n_background: 0,
            looks_at: Timestamp::MAX,
            given_up: 0,
            spared: None,
        }
    }
}

impl<T> Cold<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.by_weights.is_empty()
    }

    /// Requests without an SLO.
    pub(super) fn in_background(&self) -> usize {
        self.n_background
    }

    /// All others.
    pub(super) fn in_time(&self) -> usize {
        let all: usize = self.by_weights.values().map(Queue::len).sum();
        all - self.n_background
    }

    fn put(&mut self, weights: WeightsId, waiting: Vec<Waiting<T>>) {
        if waiting.is_empty() {
            return;
        }
        self.n_background += waiting.iter().filter(|w| w.request.background).count();
        let queue = self.by_weights.entry(weights).or_default();
        queue.put_back(waiting);
        self.look();
    }

    pub(super) fn contains(&self, id: RequestId) -> bool {
        self.by_weights.values().any(|queue| queue.contains(id))
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = RequestId> {
        self.requests().map(|request| request.id)
    }

    fn requests(&self) -> impl Iterator<Item = &Request> {
        let queues = self.by_weights.values();
        queues.flat_map(|queue| queue.iter().map(|w| &w.request))
    }

    pub(super) fn cancel(&mut self, id: RequestId) -> bool {
        self.remove(id).is_some()
    }

    pub(super) fn remove(&mut self, id: RequestId) -> Option<Waiting<T>> {
        let gone = self.by_weights.values_mut().find_map(|q| q.remove(id))?;
        self.by_weights.retain(|_, queue| !queue.is_empty());
        self.n_background -= usize::from(gone.request.background);
        Some(gone)
    }

    pub(super) fn take_all(&mut self) -> Vec<Waiting<T>> {
        self.n_background = 0;
        let queues = std::mem::take(&mut self.by_weights).into_values();
        let all = |mut queue: Queue<T>| std::iter::from_fn(move || queue.pop_first());
        queues.flat_map(all).collect()
    }

    /// When the first of them may have to be given up.
    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        (!self.is_empty()).then_some(self.looks_at)
    }

    /// They are looked at with the next event: when weights are there was another moment when they were looked at last.
    fn look(&mut self) {
        self.looks_at = Timestamp::ZERO;
    }
}

/// Whether requests that will be late are given up.
fn predicts<T>(core: &Core<T>) -> bool {
    let recipe = core.config.recipe;
    core.config.schedule.is_some() || recipe.bind == Bind::Late || recipe.keep == Keep::Estimate
}

impl<T> Broker<T> {
    /// Takes in a request whose weights are not there. It waits for them, or is rejected at once when the queue is full.
    pub(crate) fn arrive_cold(
        &mut self,
        now: Timestamp,
        weights: WeightsId,
        request: Request,
        payload: T,
        out: &mut Vec<Rejected<T>>,
    ) {
        if self.holds(request.id) {
            return;
        }
        let is_full = match request.background {
            true => self.in_background() >= self.core.config.background,
            false => self.in_time() >= self.core.config.capacity,
        };
        if is_full {
            let reason = DropReason::QueueFull;
            out.push(self.core.reject(now, request, payload, reason, None));
            return;
        }
        self.core.came(&request);
        let key = self.key(now, &request);
        self.cold.n_background += usize::from(request.background);
        let queue = self.cold.by_weights.entry(weights).or_default();
        queue.push(key, request, payload, now);
        self.cold.look();
    }

    /// These weights are there: the requests that waited for them go to their place among the others.
    pub(crate) fn weights_came(&mut self, weights: WeightsId) {
        let Some(mut queue) = self.cold.by_weights.swap_remove(&weights) else {
            return;
        };
        let all = std::iter::from_fn(|| queue.pop_first());
        let (background, in_time): (Vec<_>, Vec<_>) = all.partition(|w| w.request.background);
        self.cold.n_background -= background.len();
        self.core.queue.put_back(in_time);
        self.background.put_back(background);
    }

    /// These weights gave way: the requests that `is_of` them wait for them again. No batch has one.
    pub(crate) fn weights_went(&mut self, weights: WeightsId, is_of: impl Fn(&Request) -> bool) {
        let mut gone = self.core.queue.take_those(&is_of);
        gone.extend(self.background.take_those(&is_of));
        self.cold.put(weights, gone);
    }

    /// When weights are there has changed.
    pub(crate) fn look_at_cold(&mut self) {
        self.cold.look();
    }

    /// Whether a request waits for weights here.
    pub(crate) fn has_cold(&self) -> bool {
        !self.cold.is_empty()
    }

    /// The requests that wait for a batch, for weights that are there.
    pub(crate) fn warm(&self) -> impl Iterator<Item = &Request> {
        let in_time = self.core.queue.iter().map(|w| &w.request);
        in_time.chain(self.background.requests())
    }

    /// The requests in the batch that is formed, or at the scheduler.
    pub(crate) fn forming(&self) -> Vec<&Request> {
        self.formation.requests()
    }

    /// What requests wait for. `there_at`: when weights would be there if they were read now.
    pub(crate) fn wanted_weights(
        &self,
        there_at: impl Fn(WeightsId) -> Timestamp,
    ) -> impl Iterator<Item = Wanted> {
        self.cold.by_weights.iter().map(move |(&weights, queue)| {
            let at = there_at(weights);
            let is_in_time = |request: &Request| {
                let ends_at = at + self.core.execution_alone(request);
                !request.background && ends_at <= self.core.module_deadline(request)
            };
            // The one that is spared is to show how long reading its weights takes.
            let counts = |r: &Request| is_in_time(r) || self.cold.spared == Some(r.id);
            let requests = || queue.iter().map(|w| &w.request);
            Wanted {
                weights,
                in_time: requests().filter(|r| counts(r)).count(),
                deadline: requests()
                    .map(|r| r.deadline)
                    .min()
                    .unwrap_or(Timestamp::MAX),
                is_background: requests().all(|r| r.background),
            }
        })
    }

    /// Drops the requests whose deadline has passed while they waited for weights, and those that would be late if these were read next.
    pub(crate) fn expire_cold(
        &mut self,
        now: Timestamp,
        memory: &WeightStore,
        out: &mut Vec<Rejected<T>>,
    ) {
        if self.cold.looks_at > now || self.cold.is_empty() {
            return;
        }
        let (core, cold) = (&self.core, &mut self.cold);
        let mut gone: Vec<(RequestId, DropReason, Option<Estimate>)> = Vec::new();
        cold.looks_at = Timestamp::MAX;
        let spared = cold.spared.filter(|id| cold.contains(*id));
        cold.spared = spared;
        for (&weights, queue) in &cold.by_weights {
            // How long from when it is decided that they are read.
            let wait = memory.there_at(now, weights).since(now);
            let tried_one_in = match memory.reads_free() {
                true => 1,
                false => TRIED_ONE_IN,
            };
            for waiting in queue.iter() {
                let request = &waiting.request;
                let expires = core.expires() || request.background;
                if expires && request.deadline <= now {
                    gone.push((request.id, DropReason::Expired, None));
                    continue;
                }
                if expires {
                    cold.looks_at = cold.looks_at.min(request.deadline);
                }
                if request.background || !predicts(core) || cold.spared == Some(request.id) {
                    continue;
                }
                let execution = core.execution_alone(request);
                let needs = wait + execution;
                let deadline = core.module_deadline(request);
                if now + needs <= deadline {
                    // The moment at which it would be late even if its weights were read next.
                    let latest = deadline - needs;
                    cold.looks_at = cold.looks_at.min(latest + Duration::from_nanos(1));
                } else if cold.spared.is_none() && cold.given_up + 1 >= tried_one_in {
                    cold.given_up = 0;
                    cold.spared = Some(request.id);
                } else {
                    cold.given_up += 1;
                    let estimate = Estimate {
                        wait,
                        execution,
                        downstream: core.guidance.downstream,
                    };
                    gone.push((request.id, DropReason::Predicted, Some(estimate)));
                }
            }
        }
        for (id, reason, estimate) in gone {
            if let Some(next) = self.cold.remove(id) {
                let rejected =
                    (self.core).reject(now, next.request, next.payload, reason, estimate);
                out.push(rejected);
            }
        }
    }
}
