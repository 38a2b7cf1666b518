//! The waiting requests: a double-ended priority queue on a min-max heap, with cancelled entries as bounded
//! tombstones.

use std::cmp::Ordering;

use indexmap::IndexSet;
use min_max_heap::MinMaxHeap;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::id::RequestId;
use spillgate_pipeline::request::Request;
use spillgate_pipeline::time::Timestamp;

/// Tombstones that are always allowed: below this, sweeping costs more than it frees.
pub(super) const TOMBSTONES_MIN: usize = 32;

/// A waiting request.
pub(super) struct Waiting<T> {
    key: Timestamp,
    sequence: u64,
    pub(super) request: Request,
    pub(super) arrived_at: Timestamp,
    pub(super) payload: T,
}

impl<T> Waiting<T> {
    fn rank(&self) -> (Timestamp, u64) {
        (self.key, self.sequence)
    }
}

impl<T> PartialEq for Waiting<T> {
    fn eq(&self, other: &Self) -> bool {
        self.rank() == other.rank()
    }
}

impl<T> Eq for Waiting<T> {}

impl<T> PartialOrd for Waiting<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Waiting<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

/// The queue of one broker.
pub(super) struct Queue<T> {
    heap: MinMaxHeap<Waiting<T>>,
    /// Ids in `heap` that are not cancelled. Membership only, never iterated.
    live: IndexSet<RequestId, FxBuildHasher>,
    sequence: u64,
}

impl<T> Queue<T> {
    pub(super) fn new() -> Self {
        Queue {
            heap: MinMaxHeap::new(),
            live: IndexSet::default(),
            sequence: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.live.len()
    }

    pub(super) fn push(&mut self, key: Timestamp, request: Request, payload: T, now: Timestamp) {
        self.live.insert(request.id);
        self.heap.push(Waiting {
            key,
            sequence: self.sequence,
            request,
            arrived_at: now,
            payload,
        });
        self.sequence += 1;
    }

    /// The least key. Tombstones at that end are removed by whoever makes them, so that this is exact.
    pub(super) fn first_key(&self) -> Option<Timestamp> {
        self.heap.peek_min().map(|w| w.key)
    }

    /// The request with the least key.
    pub(super) fn first(&self) -> Option<&Waiting<T>> {
        self.heap.peek_min()
    }

    /// The request with the greatest key.
    pub(super) fn last(&self) -> Option<&Waiting<T>> {
        self.heap.peek_max()
    }

    pub(super) fn pop_first(&mut self) -> Option<Waiting<T>> {
        let next = self.heap.pop_min()?;
        self.live.swap_remove(&next.request.id);
        self.trim();
        Some(next)
    }

    pub(super) fn pop_last(&mut self) -> Option<Waiting<T>> {
        let next = self.heap.pop_max()?;
        self.live.swap_remove(&next.request.id);
        self.trim();
        Some(next)
    }

    /// Requests that wait, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Waiting<T>> {
        let has_tombstones = self.heap.len() > self.live.len();
        self.heap
            .iter()
            .filter(move |w| !has_tombstones || self.live.contains(&w.request.id))
    }

    /// Forgets a request. False when it does not wait here.
    pub(super) fn cancel(&mut self, id: RequestId) -> bool {
        if !self.live.swap_remove(&id) {
            return false;
        }
        let tombstones = self.heap.len() - self.live.len();
        if tombstones > self.live.len() + TOMBSTONES_MIN {
            self.sweep();
        } else {
            self.trim();
        }
        true
    }

    /// Takes out one request. Rebuilds the heap around it: rare (a stream that asks for latest-frame-wins) and
    /// bounded by the queue's capacity.
    pub(super) fn remove(&mut self, id: RequestId) -> Option<Waiting<T>> {
        if !self.live.swap_remove(&id) {
            return None;
        }
        let (mut gone, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.heap)
            .into_iter()
            .partition(|w| w.request.id == id);
        self.heap = rest.into_iter().collect();
        self.trim();
        gone.pop()
    }

    /// Removes tombstones at both ends, so that both ends are requests that wait.
    fn trim(&mut self) {
        if self.heap.len() == self.live.len() {
            return;
        }
        while self
            .heap
            .peek_min()
            .is_some_and(|w| !self.live.contains(&w.request.id))
        {
            self.heap.pop_min();
        }
        while self
            .heap
            .peek_max()
            .is_some_and(|w| !self.live.contains(&w.request.id))
        {
            self.heap.pop_max();
        }
    }

    fn sweep(&mut self) {
        let live = &self.live;
        self.heap = std::mem::take(&mut self.heap)
            .into_iter()
            .filter(|w| live.contains(&w.request.id))
            .collect();
    }

    /// Entries of the heap, tombstones included.
    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.heap.len()
    }
}
