//! Requests of clients without an SLO (`slo: none`). They wait apart from all others, in no drop policy's order and no scheduler's set, so
//! that no rule for requests with a deadline sees them. The device takes a batch of them when nothing else waits there.
//!
//! A running batch is not stopped, so a request that arrives behind it waits for its end. Therefore such batches are short
//! ([`spillgate_pipeline::Pipeline::background_time`]).

use spillgate_pipeline::id::{RequestId, VariantId};
use spillgate_pipeline::queue::{Queue, Waiting};
use spillgate_pipeline::request::Request;
use spillgate_pipeline::time::Timestamp;

/// The requests without an SLO that wait at a worker, those that are given up first in front.
pub(super) struct Background<T> {
    waiting: Queue<T>,
}

impl<T> Default for Background<T> {
    fn default() -> Self {
        Background {
            waiting: Queue::default(),
        }
    }
}

impl<T> Background<T> {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn contains(&self, id: RequestId) -> bool {
        self.waiting.contains(id)
    }

    /// The variant of the first of them.
    pub(super) fn first_variant(&self) -> Option<VariantId> {
        Some(self.waiting.first()?.request.variant)
    }

    pub(super) fn push(&mut self, now: Timestamp, request: Request, payload: T) {
        self.waiting.push(request.deadline, request, payload, now);
    }

    /// When the first of them is given up.
    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        self.waiting.first_key()
    }

    /// Takes out those whose time is over.
    pub(super) fn expire(&mut self, now: Timestamp) -> Vec<Waiting<T>> {
        let is_over = |queue: &Queue<T>| queue.first_key().is_some_and(|key| key <= now);
        let mut over = Vec::new();
        while is_over(&self.waiting) {
            over.extend(self.waiting.pop_first());
        }
        over
    }

    /// Takes out up to `size` of them, all of the first one's model.
    pub(super) fn take(&mut self, size: usize) -> Vec<Waiting<T>> {
        let Some(first) = self.waiting.first() else {
            return Vec::new();
        };
        let others = self.waiting.set_aside_others(first.request.model());
        let taken = std::iter::from_fn(|| self.waiting.pop_first()).take(size);
        let taken = taken.collect();
        self.waiting.put_back(others);
        taken
    }

    /// Takes out these requests.
    pub(super) fn take_those(&mut self, is_one: impl Fn(&Request) -> bool) -> Vec<Waiting<T>> {
        self.waiting.take_those(is_one)
    }

    /// Takes in requests that were taken out.
    pub(super) fn put_back(&mut self, waiting: Vec<Waiting<T>>) {
        self.waiting.put_back(waiting);
    }

    pub(super) fn cancel(&mut self, id: RequestId) -> bool {
        self.waiting.cancel(id)
    }

    pub(super) fn remove(&mut self, id: RequestId) -> Option<Waiting<T>> {
        self.waiting.remove(id)
    }

    pub(super) fn requests(&self) -> impl Iterator<Item = &Request> {
        self.waiting.iter().map(|w| &w.request)
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = RequestId> {
        self.waiting.iter().map(|w| w.request.id)
    }

    pub(super) fn take_all(&mut self) -> Vec<Waiting<T>> {
        std::iter::from_fn(|| self.waiting.pop_first()).collect()
    }
}
