//! What is known of workers, for people.

use spillgate_pipeline::id::WorkerId;

/// A worker as a gateway sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerView {
    /// The worker.
    pub worker: WorkerId,
    /// Whether it gets requests.
    pub health: WorkerHealth,
    /// Requests of this gateway that it has.
    pub has: usize,
}

/// Whether a worker gets requests, and why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerHealth {
    /// It gets requests.
    Serves,
    /// Its controller set it aside because it is slow, or does not need it now.
    SetAside,
    /// Its process is about to end.
    Leaves,
    /// Its process is silent.
    Suspected,
    /// There is no session with its process.
    Away,
}
