//! The processes of a topology, as traces name them.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use spillgate_pipeline::id::WorkerId;

/// In which process what runs.
#[derive(Clone, Debug, Default)]
pub struct Processes {
    /// The name of this process.
    pub here: String,
    /// The process of each worker.
    pub workers: HashMap<WorkerId, String>,
}

impl Processes {
    /// The process of a worker. What no worker does, a source of bytes above all, is done here.
    pub(crate) fn of(&self, worker: WorkerId) -> &str {
        self.workers.get(&worker).unwrap_or(&self.here)
    }
}

/// Known once workers are placed; never where there is no topology.
pub(crate) type KnownProcesses = Arc<OnceLock<Processes>>;
