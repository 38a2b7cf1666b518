//! Which workers of a device are to be made ready, and which are to give back what they hold.
//!
//! A load takes the device like a batch. It starts when nothing runs and nothing is bound, before the next batch is
//! bound: a worker is waited for, and a busy device would never come to it. An unload takes no time of the device. It waits
//! until the worker has no request here.
//!
//! Invariants: one worker loads at a time; a worker is to be loaded or to be unloaded, not both.

use std::collections::VecDeque;

use spillgate_pipeline::id::WorkerId;

#[derive(Debug, Default)]
pub(super) struct Loads {
    /// What the device loads now.
    loading: Option<WorkerId>,
    /// To be loaded, in the order in which they were asked for.
    waiting: VecDeque<WorkerId>,
    /// To be unloaded once they have no request here.
    retired: Vec<WorkerId>,
}

impl Loads {
    /// A worker is to be loaded. One that was to be unloaded keeps what it holds.
    pub(super) fn load(&mut self, worker: WorkerId) {
        self.retired.retain(|w| *w != worker);
        if self.loading != Some(worker) && !self.waiting.contains(&worker) {
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

    /// The device takes up the next load.
    pub(super) fn start(&mut self) -> Option<WorkerId> {
        if self.loading.is_none() {
            self.loading = self.waiting.pop_front();
            return self.loading;
        }
        None
    }

    /// The load that ran has ended.
    pub(super) fn ended(&mut self) {
        self.loading = None;
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
        let loading = self.loading;
        let is_free = |w: &WorkerId| Some(*w) != loading && has_no_request(*w);
        let idx = self.retired.iter().position(is_free)?;
        Some(self.retired.remove(idx))
    }

    /// Whether the device loads a worker.
    pub(super) fn is_loading(&self) -> bool {
        self.loading.is_some()
    }

    /// Whether the device loads a worker, or is to before it binds a batch.
    pub(super) fn come_first(&self) -> bool {
        self.is_loading() || !self.waiting.is_empty()
    }

    /// Nothing is loaded or unloaded any more; the load that runs still ends.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.retired.clear();
    }
}
