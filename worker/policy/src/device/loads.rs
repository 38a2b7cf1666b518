//! Which workers of a device are to be made ready, and which are to give back what they alone hold.
//!
//! What a worker needs is read beside the batches, before what requests wait for, as the load asks for the worker. Weights are given back when
//! the worker has no request here.
//!
//! Invariant: a worker is to be loaded or to be unloaded, not both.

use std::collections::VecDeque;

use spillgate_pipeline::id::WorkerId;

#[derive(Debug, Default)]
pub(super) struct Loads {
    /// To be loaded, in the order in which they were asked for.
    waiting: VecDeque<WorkerId>,
    /// To be unloaded once they have no request here.
    retired: Vec<WorkerId>,
}

impl Loads {
    /// A worker is to be loaded. One that was to be unloaded keeps what it holds.
    pub(super) fn load(&mut self, worker: WorkerId) {
        self.retired.retain(|w| *w != worker);
        if !self.waiting.contains(&worker) {
            self.waiting.push_back(worker);
        }
    }

    /// A worker is to be unloaded. One that was to be loaded is loaded no more.
    pub(super) fn unload(&mut self, worker: WorkerId) {
        self.waiting.retain(|w| *w != worker);
        if !self.retired.contains(&worker) {
            self.retired.push(worker);
        }
    }

    /// The worker that is loaded next.
    pub(super) fn next(&self) -> Option<WorkerId> {
        self.waiting.front().copied()
    }

    /// That worker is loaded, or cannot be.
    pub(super) fn ended(&mut self) {
        self.waiting.pop_front();
    }

    /// Whether a worker is to be unloaded.
    pub(super) fn has_retired(&self) -> bool {
        !self.retired.is_empty()
    }

    /// A worker to unload, among those that have no request here.
    pub(super) fn take_retired(
        &mut self,
        has_no_request: impl Fn(WorkerId) -> bool,
    ) -> Option<WorkerId> {
        let idx = self.retired.iter().position(|w| has_no_request(*w))?;
        Some(self.retired.remove(idx))
    }

    /// Nothing is loaded or unloaded any more.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.retired.clear();
    }
}
