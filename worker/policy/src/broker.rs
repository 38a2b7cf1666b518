//! The Request Broker (PARD §4.3): owns the requests that wait for one module on one device, in a
//! double-ended priority queue, and moves them into the forming batch.
//!
//! Collection as in PARD: the moment a batch starts to execute, the next one is filled from the queue
//! until full or empty; later arrivals join it on arrival while there is room. The broker starts nothing
//! itself: [`crate::device::Device`] takes the forming batch when the device is free.
//!
//! Invariants: a request is in the queue or in the forming batch, never in both; at most `capacity`
//! wait; the forming batch has at most `batch_max`; cancelled entries stay in the heap as tombstones, never
//! more than the live ones plus `TOMBSTONES_MIN`.

use std::cmp::Ordering;
use std::time::Duration;

use indexmap::IndexSet;
use min_max_heap::MinMaxHeap;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::id::{ModuleId, RequestId};
use spillgate_pipeline::request::{Drop, DropReason, Estimate, Request};
use spillgate_pipeline::time::Timestamp;

use crate::drop_policy::{DropPolicy, Moment};

/// Tombstones that are always allowed: below this, sweeping costs more than it frees.
const TOMBSTONES_MIN: usize = 32;

/// What a broker is built from.
pub struct BrokerConfig {
    /// The module it serves.
    pub module: ModuleId,
    /// Most requests that wait, the forming batch included.
    pub capacity: usize,
    /// Most requests in a batch.
    pub batch_max: u32,
    /// Expected execution time by batch size; entry 0 is size 1. At least `batch_max` entries.
    pub execution: Vec<Duration>,
    /// Decides who is kept and who comes first.
    pub policy: Box<dyn DropPolicy>,
}

/// A request in a forming or running batch, with what its driver attached to it.
#[derive(Debug)]
pub struct Member<T> {
    /// The request.
    pub request: Request,
    /// The driver's own.
    pub payload: T,
    /// t_r.
    pub arrived_at: Timestamp,
    /// t_b.
    pub batched_at: Timestamp,
}

/// A request that left without being executed.
#[derive(Debug)]
pub struct Rejected<T> {
    /// The request.
    pub request: Request,
    /// The driver's own.
    pub payload: T,
    /// Where, why, when.
    pub drop: Drop,
}

struct Waiting<T> {
    key: Timestamp,
    sequence: u64,
    request: Request,
    arrived_at: Timestamp,
    payload: T,
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

/// The broker of one worker.
pub struct Broker<T> {
    config: BrokerConfig,
    queue: MinMaxHeap<Waiting<T>>,
    /// Ids in `queue` that are not cancelled. Membership only, never iterated.
    live: IndexSet<RequestId, FxBuildHasher>,
    forming: Vec<Member<T>>,
    sequence: u64,
}

impl<T> Broker<T> {
    /// An empty broker.
    ///
    /// # Panics
    /// When `batch_max` is zero or an execution time is missing: the compiler of pipelines excludes both.
    pub fn new(config: BrokerConfig) -> Self {
        assert!(config.batch_max > 0, "a batch holds at least one request");
        assert!(
            config.execution.len() >= config.batch_max as usize,
            "an execution time is known for each batch size"
        );
        Broker {
            config,
            queue: MinMaxHeap::new(),
            live: IndexSet::default(),
            forming: Vec::new(),
            sequence: 0,
        }
    }

    /// The module it serves.
    pub fn module(&self) -> ModuleId {
        self.config.module
    }

    /// Requests that wait, the forming batch included.
    pub fn waiting(&self) -> usize {
        self.live.len() + self.forming.len()
    }

    /// Earliest deadline in the forming batch; `None` when it is empty.
    pub fn forming_deadline(&self) -> Option<Timestamp> {
        self.forming.iter().map(|m| m.request.deadline).min()
    }

    /// Expected execution time of a batch of that size.
    pub fn execution(&self, size: usize) -> Duration {
        self.config.execution[size.max(1) - 1]
    }

    /// Takes in a request. It waits, or is rejected at once when the queue is full.
    pub fn arrive(
        &mut self,
        now: Timestamp,
        request: Request,
        payload: T,
        out: &mut Vec<Rejected<T>>,
    ) {
        if self.waiting() >= self.config.capacity {
            out.push(self.reject(now, request, payload, DropReason::QueueFull, None));
            return;
        }
        let key = self.config.policy.key(&request, now);
        self.live.insert(request.id);
        self.queue.push(Waiting {
            key,
            sequence: self.sequence,
            request,
            arrived_at: now,
            payload,
        });
        self.sequence += 1;
    }

    /// Moves requests from the queue into the forming batch while there is room, dropping those that
    /// the policy gives up. `device_free_at` is the expected end of what the device runs, or `now`.
    pub fn collect(
        &mut self,
        now: Timestamp,
        device_free_at: Timestamp,
        out: &mut Vec<Rejected<T>>,
    ) {
        while self.forming.len() < self.config.batch_max as usize {
            let Some(next) = self.queue.pop_min() else {
                break;
            };
            if !self.live.swap_remove(&next.request.id) {
                continue;
            }
            let moment = Moment {
                now,
                starts_at: device_free_at.max(now),
                execution: self.execution(self.forming.len() + 1),
            };
            match self.config.policy.keep(&next.request, &moment) {
                Ok(()) => self.forming.push(Member {
                    request: next.request,
                    payload: next.payload,
                    arrived_at: next.arrived_at,
                    batched_at: now,
                }),
                Err((reason, estimate)) => {
                    out.push(self.reject(now, next.request, next.payload, reason, estimate));
                }
            }
        }
    }

    /// Drops what has expired in the queue and in the forming batch, for policies that expire.
    pub fn expire(&mut self, now: Timestamp, out: &mut Vec<Rejected<T>>) {
        if !self.config.policy.expires() {
            return;
        }
        while self
            .queue
            .peek_min()
            .is_some_and(|w| w.request.deadline <= now)
        {
            let Some(next) = self.queue.pop_min() else {
                break;
            };
            if self.live.swap_remove(&next.request.id) {
                out.push(self.reject(now, next.request, next.payload, DropReason::Expired, None));
            }
        }
        let mut i = 0;
        while i < self.forming.len() {
            if self.forming[i].request.deadline <= now {
                let gone = self.forming.remove(i);
                out.push(self.reject(now, gone.request, gone.payload, DropReason::Expired, None));
            } else {
                i += 1;
            }
        }
    }

    /// Earliest moment at which [`Broker::expire`] has something to do.
    pub fn next_expiry(&self) -> Option<Timestamp> {
        if !self.config.policy.expires() {
            return None;
        }
        let queued = self.queue.peek_min().map(|w| w.request.deadline);
        [queued, self.forming_deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Forgets a request wherever it waits. False when it does not wait here.
    pub fn cancel(&mut self, id: RequestId) -> bool {
        if self.live.swap_remove(&id) {
            let tombstones = self.queue.len() - self.live.len();
            if tombstones > self.live.len() + TOMBSTONES_MIN {
                self.sweep();
            }
            return true;
        }
        let before = self.forming.len();
        self.forming.retain(|m| m.request.id != id);
        self.forming.len() < before
    }

    /// Rejects one request for that reason, if it waits here.
    pub fn withdraw(
        &mut self,
        now: Timestamp,
        id: RequestId,
        reason: DropReason,
        out: &mut Vec<Rejected<T>>,
    ) {
        if let Some(at) = self.forming.iter().position(|m| m.request.id == id) {
            let gone = self.forming.remove(at);
            out.push(self.reject(now, gone.request, gone.payload, reason, None));
        } else if self.live.contains(&id) {
            // The payload sits somewhere in the heap: rebuild it around the one entry. Rare (a stream that
            // asks for latest-frame-wins) and bounded by the queue's capacity.
            let (gone, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.queue)
                .into_iter()
                .partition(|w| w.request.id == id);
            self.queue = rest.into_iter().collect();
            self.live.swap_remove(&id);
            out.extend(
                gone.into_iter()
                    .map(|w| self.reject(now, w.request, w.payload, reason, None)),
            );
        }
    }

    /// Hands over the forming batch; empty when nothing waits.
    pub fn take_batch(&mut self) -> Vec<Member<T>> {
        std::mem::take(&mut self.forming)
    }

    /// Rejects everything that waits, for the given reason.
    pub fn reject_all(&mut self, now: Timestamp, reason: DropReason, out: &mut Vec<Rejected<T>>) {
        for member in std::mem::take(&mut self.forming) {
            out.push(self.reject(now, member.request, member.payload, reason, None));
        }
        while let Some(next) = self.queue.pop_min() {
            if self.live.swap_remove(&next.request.id) {
                out.push(self.reject(now, next.request, next.payload, reason, None));
            }
        }
    }

    fn reject(
        &self,
        now: Timestamp,
        request: Request,
        payload: T,
        reason: DropReason,
        estimate: Option<Estimate>,
    ) -> Rejected<T> {
        let budget = request.deadline.budget_at(now);
        let drop = Drop {
            module: self.config.module,
            reason,
            at: now,
            budget,
            estimate,
        };
        Rejected {
            request,
            payload,
            drop,
        }
    }

    fn sweep(&mut self) {
        let live = &self.live;
        self.queue = std::mem::take(&mut self.queue)
            .into_iter()
            .filter(|w| live.contains(&w.request.id))
            .collect();
    }
}

#[cfg(test)]
mod tests;
