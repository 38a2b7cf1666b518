//! Waiting requests: a double-ended priority queue on a min-max heap.
//!
//! A cancelled request stays in the heap as a tombstone until it comes to an end of the heap, or until there are more
//! tombstones than live entries plus [`TOMBSTONES_MIN`]: then the heap is swept. Both ends are always requests that
//! wait. The owner of the queue bounds how many wait.

use std::cmp::Ordering;

use indexmap::IndexSet;
use min_max_heap::MinMaxHeap;
use rustc_hash::FxBuildHasher;

use crate::id::RequestId;
use crate::request::{ModelChoice, Request};
use crate::time::Timestamp;

/// Tombstones that are always allowed: below this, sweeping costs more than it frees.
pub const TOMBSTONES_MIN: usize = 32;

/// A waiting request.
pub struct Waiting<T> {
    key: Timestamp,
    sequence: u64,
    /// The request.
    pub request: Request,
    /// When it was pushed.
    pub arrived_at: Timestamp,
    /// What its owner attached to it.
    pub payload: T,
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

/// The queue, sorted by key; equal keys in order of arrival.
pub struct Queue<T> {
    heap: MinMaxHeap<Waiting<T>>,
    /// Ids in `heap` that are not cancelled. Membership only, never iterated.
    live: IndexSet<RequestId, FxBuildHasher>,
    sequence: u64,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Queue {
            heap: MinMaxHeap::new(),
            live: IndexSet::default(),
            sequence: 0,
        }
    }
}

impl<T> Queue<T> {
    /// Requests that wait.
    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// Adds a request that arrives `now`. A request that waits here already waits on as it did.
    pub fn push(&mut self, key: Timestamp, request: Request, payload: T, now: Timestamp) {
        if !self.live.insert(request.id) {
            return;
        }
        self.heap.push(Waiting {
            key,
            sequence: self.sequence,
            request,
            arrived_at: now,
            payload,
        });
        self.sequence += 1;
    }

    /// The least key.
    pub fn first_key(&self) -> Option<Timestamp> {
        self.heap.peek_min().map(|w| w.key)
    }

    /// The request with the least key.
    pub fn first(&self) -> Option<&Waiting<T>> {
        self.heap.peek_min()
    }

    /// The request with the greatest key.
    pub fn last(&self) -> Option<&Waiting<T>> {
        self.heap.peek_max()
    }

    /// Takes out the request with the least key.
    pub fn pop_first(&mut self) -> Option<Waiting<T>> {
        let next = self.heap.pop_min()?;
        self.live.swap_remove(&next.request.id);
        self.clear_tombstones();
        Some(next)
    }

    /// Takes out the request with the greatest key.
    pub fn pop_last(&mut self) -> Option<Waiting<T>> {
        let next = self.heap.pop_max()?;
        self.live.swap_remove(&next.request.id);
        self.clear_tombstones();
        Some(next)
    }

    /// Requests that wait, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Waiting<T>> {
        let has_tombstones = self.heap.len() > self.live.len();
        self.heap
            .iter()
            .filter(move |w| !has_tombstones || self.live.contains(&w.request.id))
    }

    /// Whether a request waits here.
    pub fn contains(&self, id: RequestId) -> bool {
        self.live.contains(&id)
    }

    /// Forgets a request. False when it does not wait here.
    pub fn cancel(&mut self, id: RequestId) -> bool {
        if !self.live.swap_remove(&id) {
            return false;
        }
        self.clear_tombstones();
        true
    }

    /// Takes out one request. Rebuilds the heap around it: rare (a stream that asks for latest-frame-wins) and
    /// bounded by the queue's capacity.
    pub fn remove(&mut self, id: RequestId) -> Option<Waiting<T>> {
        if !self.live.swap_remove(&id) {
            return None;
        }
        let (mut gone, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.heap)
            .into_iter()
            .partition(|w| w.request.id == id);
        self.heap = rest.into_iter().collect();
        self.clear_tombstones();
        gone.pop()
    }

    /// Takes out the requests of all models but one, for [`Queue::put_back`]. It looks at all that wait, which is as much as
    /// the owner allows.
    pub fn set_aside_others(&mut self, model: ModelChoice) -> Vec<Waiting<T>> {
        self.take_those(|request| request.model() != model)
    }

    /// Takes out these requests. It looks at all that wait.
    pub fn take_those(&mut self, is_one: impl Fn(&Request) -> bool) -> Vec<Waiting<T>> {
        if !self.heap.iter().any(|w| is_one(&w.request)) {
            return Vec::new();
        }
        self.sweep();
        let all = std::mem::take(&mut self.heap).into_iter();
        let (taken, kept): (Vec<_>, Vec<_>) = all.partition(|w| is_one(&w.request));
        self.heap = kept.into_iter().collect();
        for one in &taken {
            self.live.swap_remove(&one.request.id);
        }
        taken
    }

    /// Takes in requests that were taken out. They wait again where they did.
    pub fn put_back(&mut self, waiting: impl IntoIterator<Item = Waiting<T>>) {
        for waiting in waiting {
            if self.live.insert(waiting.request.id) {
                self.heap.push(waiting);
            }
        }
    }

    /// Removes tombstones: those at both ends, so that both ends are requests that wait, or all where there are many.
    fn clear_tombstones(&mut self) {
        let tombstones = self.heap.len() - self.live.len();
        if tombstones == 0 {
            return;
        }
        if tombstones > self.live.len() + TOMBSTONES_MIN {
            return self.sweep();
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
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::id::{MemberId, VariantId};

    fn request(id: u64) -> Request {
        Request::new(RequestId(id), Timestamp::ZERO, Timestamp::ZERO)
    }

    fn at(ns: u64) -> Timestamp {
        Timestamp::from_ns(ns)
    }

    /// Heap entries that are allowed for so many live ones.
    fn entries_max(queue: &Queue<()>) -> usize {
        2 * queue.len() + TOMBSTONES_MIN
    }

    #[test]
    fn tombstones_are_bounded() {
        let mut queue = Queue::default();
        for id in 0..1_000 {
            queue.push(at(1_000_000), request(id), (), at(0));
        }
        for id in 0..1_000 {
            assert!(queue.cancel(RequestId(id)));
            assert!(queue.heap.len() <= entries_max(&queue));
        }
        assert!(queue.is_empty());
        assert!(!queue.cancel(RequestId(0)), "a second cancel finds nothing");
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push(u64),
        PopFirst,
        PopLast,
        Cancel(u64),
        Remove(u64),
        SetAside(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0u64..50).prop_map(Step::Push),
            1 => Just(Step::PopFirst),
            1 => Just(Step::PopLast),
            3 => (0u64..150).prop_map(Step::Cancel),
            1 => (0u64..150).prop_map(Step::Remove),
            1 => (0u64..3).prop_map(Step::SetAside),
        ]
    }

    /// Three models, of two members and two variants.
    fn model_of(id: u64) -> ModelChoice {
        let (member, variant) = [(0, 0), (0, 1), (1, 0)][(id % 3) as usize];
        ModelChoice {
            member: MemberId(member),
            variant: VariantId(variant),
        }
    }

    proptest! {
        /// The queue against the obvious reference: a sorted vector of keys and ids.
        #[test]
        fn agrees_with_a_sorted_vector(steps in prop::collection::vec(step(), 0..300)) {
            let mut queue = Queue::default();
            let mut sorted: Vec<(u64, u64)> = Vec::new();
            let mut next_id = 0;
            let id_of = |waiting: Option<Waiting<()>>| waiting.map(|w| w.request.id.0);
            for step in steps {
                match step {
                    Step::Push(key) => {
                        let request = Request {
                            member: model_of(next_id).member,
                            variant: model_of(next_id).variant,
                            ..request(next_id)
                        };
                        queue.push(at(key), request, (), at(0));
                        sorted.push((key, next_id));
                        sorted.sort_unstable();
                        next_id += 1;
                    }
                    Step::PopFirst => {
                        let first = (!sorted.is_empty()).then(|| sorted.remove(0).1);
                        prop_assert_eq!(id_of(queue.pop_first()), first);
                    }
                    Step::PopLast => {
                        prop_assert_eq!(id_of(queue.pop_last()), sorted.pop().map(|e| e.1));
                    }
                    Step::Cancel(id) => {
                        let waits = sorted.iter().any(|e| e.1 == id);
                        sorted.retain(|e| e.1 != id);
                        prop_assert_eq!(queue.cancel(RequestId(id)), waits);
                    }
                    Step::Remove(id) => {
                        let waits = sorted.iter().any(|e| e.1 == id);
                        sorted.retain(|e| e.1 != id);
                        prop_assert_eq!(id_of(queue.remove(RequestId(id))), waits.then_some(id));
                    }
                    Step::SetAside(model) => {
                        let others = queue.set_aside_others(model_of(model));
                        let is_one = |id: u64| model_of(id) == model_of(model);
                        let mut aside: Vec<u64> = others.iter().map(|w| w.request.id.0).collect();
                        let mut expected: Vec<u64> =
                            sorted.iter().map(|e| e.1).filter(|id| !is_one(*id)).collect();
                        aside.sort_unstable();
                        expected.sort_unstable();
                        prop_assert_eq!(aside, expected);
                        let first = sorted.iter().map(|e| e.1).find(|id| is_one(*id));
                        prop_assert_eq!(queue.first().map(|w| w.request.id.0), first);
                        queue.put_back(others);
                    }
                }
                prop_assert_eq!(queue.len(), sorted.len());
                prop_assert_eq!(queue.first_key(), sorted.first().map(|e| at(e.0)));
                prop_assert_eq!(queue.last().map(|w| w.request.id.0), sorted.last().map(|e| e.1));
                prop_assert_eq!(queue.iter().count(), sorted.len());
                prop_assert!(queue.heap.len() <= entries_max(&queue));
            }
        }
    }
}
