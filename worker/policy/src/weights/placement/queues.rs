//! The requests that wait, in one queue a model, in order of their deadlines (ties: the one that arrived first).
//!
//! Indexes keep the cost of an event apart from the number of models: the moment at which the first request of a queue can no
//! longer be in time, the deadline of the first request, by which shadows of devices sort the models they hold, and the models that requests
//! without a deadline wait for.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use std::time::Duration;

use spillgate_pipeline::id::{ModelId, RequestId};
use spillgate_pipeline::time::Timestamp;

/// A sum that falls below this part of its peak is added up anew.
const ROUNDS: f64 = 1e-9;

/// A request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) id: RequestId,
    /// The moment by which its batch is to end.
    pub(super) deadline: Timestamp,
    /// From there to the moment from which on it is late.
    pub(super) kept_free: Duration,
    /// From its arrival to the moment from which on it is late.
    pub(super) slo: Duration,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// The sum of 1 / SLO over the requests that wait, in 1/s: by the execution time of one it gives their demand for devices.
    pressure: f64,
    /// The largest such sum since it was last added up anew.
    peak: f64,
    /// The same over those that devices have.
    under_way: f64,
    /// How many of them.
    n_under_way: usize,
    /// The deadline of the first request, as the indexes know it.
    key: Option<Timestamp>,
    /// The expiry that stands in the heap for this queue.
    expires: Option<Timestamp>,
    /// The SLO of the first request without a deadline, as its index knows it.
    background: Option<Duration>,
}

#[derive(Debug)]
pub(super) struct Queues {
    queues: Vec<Queue>,
    /// Expiries of queues; one that its queue does not know any more is stale.
    expiries: BinaryHeap<Reverse<(Timestamp, ModelId)>>,
    /// Models with requests without a deadline, by the first of these. It waits for the end of time: the longer its SLO, the earlier it came.
    background: BTreeSet<(Reverse<Duration>, ModelId)>,
}

impl Waiting {
    /// Whether it is of a client without an SLO.
    pub(super) fn is_background(&self) -> bool {
        self.deadline == Timestamp::MAX
    }

    /// 1 / SLO, in 1/s.
    pub(super) fn pressure(&self) -> f64 {
        let slo = self.slo.as_secs_f64();
        if slo > 0.0 { 1.0 / slo } else { 0.0 }
    }
}

impl Queues {
    pub(super) fn new(models: usize) -> Self {
        Queues {
            queues: (0..models).map(|_| Queue::default()).collect(),
            expiries: BinaryHeap::new(),
            background: BTreeSet::new(),
        }
    }

    pub(super) fn push(&mut self, model: ModelId, waiting: Waiting) {
        let queue = &mut self.queues[model.idx()];
        let at = queue
            .waiting
            .partition_point(|w| w.deadline <= waiting.deadline);
        queue.waiting.insert(at, waiting);
        queue.pressure += waiting.pressure();
        queue.peak = queue.peak.max(queue.pressure);
    }

    /// Takes `count` requests from the position `first` on.
    pub(super) fn take(&mut self, model: ModelId, first: usize, count: usize) -> Vec<Waiting> {
        let queue = &mut self.queues[model.idx()];
        let taken: Vec<Waiting> = queue.waiting.drain(first..first + count).collect();
        queue.left(&taken);
        taken
    }

    pub(super) fn remove(&mut self, model: ModelId, id: RequestId) {
        let queue = &mut self.queues[model.idx()];
        if let Some(at) = queue.waiting.iter().position(|w| w.id == id) {
            let removed = queue.waiting.remove(at);
            queue.left(removed.as_slice());
        }
    }

    /// Removes the requests whose deadline is before `deadline`.
    pub(super) fn drop_before(
        &mut self,
        model: ModelId,
        deadline: Timestamp,
        mut dropped: impl FnMut(RequestId),
    ) {
        let queue = &mut self.queues[model.idx()];
        while let Some(first) = queue.waiting.front().copied()
            && first.deadline < deadline
        {
            queue.waiting.pop_front();
            queue.left(&[first]);
            dropped(first.id);
        }
    }

    /// The requests of a model, the first deadline first.
    pub(super) fn of(&self, model: ModelId) -> impl Iterator<Item = &Waiting> {
        self.queues[model.idx()].waiting.iter()
    }

    pub(super) fn len(&self, model: ModelId) -> usize {
        self.queues[model.idx()].waiting.len()
    }

    /// Requests of a model that have a deadline. They come before the others.
    pub(super) fn urgent(&self, model: ModelId) -> usize {
        let waiting = &self.queues[model.idx()].waiting;
        match waiting.back() {
            Some(last) if last.is_background() => waiting.partition_point(|w| !w.is_background()),
            _ => waiting.len(),
        }
    }

    /// Models for which requests without a deadline wait, the one that has waited longest first.
    pub(super) fn in_background(&self) -> impl Iterator<Item = ModelId> {
        self.background.iter().map(|(_, model)| *model)
    }

    /// Whether a request without a deadline waits for a model.
    pub(super) fn has_background(&self, model: ModelId) -> bool {
        self.queues[model.idx()].background.is_some()
    }

    /// The position of the first request with at least that deadline, and its deadline.
    pub(super) fn first_from(
        &self,
        model: ModelId,
        deadline: Timestamp,
    ) -> Option<(usize, Timestamp)> {
        let waiting = &self.queues[model.idx()].waiting;
        // Mostly it is the first: what cannot be in time does not stay.
        let at = match waiting.front() {
            Some(first) if first.deadline >= deadline => 0,
            _ => waiting.partition_point(|w| w.deadline < deadline),
        };
        waiting.get(at).map(|w| (at, w.deadline))
    }

    /// Whether the request at that position of its queue has a deadline.
    pub(super) fn has_deadline(&self, model: ModelId, at: usize) -> bool {
        let waiting = self.queues[model.idx()].waiting.get(at);
        waiting.is_some_and(|w| !w.is_background())
    }

    /// Requests of a model are under way.
    pub(super) fn went(&mut self, model: ModelId, members: &[Waiting]) {
        let queue = &mut self.queues[model.idx()];
        queue.n_under_way += members.len();
        queue.under_way += members.iter().map(Waiting::pressure).sum::<f64>();
    }

    /// They are no more.
    pub(super) fn came_back(&mut self, model: ModelId, members: &[Waiting]) {
        let queue = &mut self.queues[model.idx()];
        queue.n_under_way -= members.len();
        queue.under_way -= members.iter().map(Waiting::pressure).sum::<f64>();
        if queue.n_under_way == 0 {
            // What rounding left over goes.
            queue.under_way = 0.0;
        }
    }

    /// The sum of 1 / SLO over the open requests of a model, those under way among them, in 1/s.
    pub(super) fn pressure(&self, model: ModelId) -> f64 {
        let queue = &self.queues[model.idx()];
        queue.pressure + queue.under_way
    }

    /// The same over those that wait and have at least that deadline.
    pub(super) fn pressure_from(&self, model: ModelId, deadline: Timestamp) -> f64 {
        let queue = &self.queues[model.idx()];
        match self.first_from(model, deadline) {
            None => 0.0,
            Some((0, _)) => queue.pressure,
            Some((at, _)) => queue.waiting.range(at..).map(Waiting::pressure).sum(),
        }
    }

    /// The deadline of the first request, as the indexes know it.
    pub(super) fn key(&self, model: ModelId) -> Option<Timestamp> {
        self.queues[model.idx()].key
    }

    /// Lets the indexes follow the first request of a queue, which alone takes `alone`. Gives the key before and after.
    pub(super) fn rekey(
        &mut self,
        model: ModelId,
        alone: Duration,
    ) -> (Option<Timestamp>, Option<Timestamp>) {
        let urgent = self.urgent(model);
        let queue = &mut self.queues[model.idx()];
        let background = queue.waiting.get(urgent).map(|w| w.slo);
        if background != queue.background {
            if let Some(slo) = queue.background {
                self.background.remove(&(Reverse(slo), model));
            }
            self.background
                .extend(background.map(|slo| (Reverse(slo), model)));
            queue.background = background;
        }
        let before = queue.key;
        queue.key = queue.waiting.front().map(|w| w.deadline);
        // Without a deadline there is no expiry.
        let expires = queue.key.filter(|d| *d < Timestamp::MAX).map(|d| d - alone);
        if expires != queue.expires {
            queue.expires = expires;
            self.expiries.extend(expires.map(|at| Reverse((at, model))));
        }
        (before, queue.key)
    }

    /// When the first request of any queue can no longer be in time.
    pub(super) fn next_expiry(&mut self) -> Option<Timestamp> {
        while let Some(Reverse((at, model))) = self.expiries.peek() {
            if self.queues[model.idx()].expires == Some(*at) {
                return Some(*at);
            }
            self.expiries.pop();
        }
        None
    }

    /// A model whose first request can no longer be in time at `now`.
    pub(super) fn pop_expired(&mut self, now: Timestamp) -> Option<ModelId> {
        self.next_expiry().filter(|at| *at < now)?;
        let Reverse((_, model)) = self.expiries.pop()?;
        self.queues[model.idx()].expires = None;
        Some(model)
    }
}

impl Queue {
    fn left(&mut self, gone: &[Waiting]) {
        self.pressure -= gone.iter().map(Waiting::pressure).sum::<f64>();
        if self.pressure < self.peak * ROUNDS || self.waiting.is_empty() {
            // Little is left of what was much larger: rounding may have eaten it, and a model without demand is never loaded.
            self.pressure = self.waiting.iter().map(Waiting::pressure).sum();
            self.peak = self.pressure;
        }
    }
}
