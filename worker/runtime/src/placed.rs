//! A device under a placement: it carries out the actions that it is sent, and nothing else ([`Actions`] decides in which order
//! and whether at all).
//!
//! Four threads serve it. One prepares the inputs of batches, where their type has that step apart, and copies them to the device where that
//! has its own memory. One executes batches, and does nothing else. One reads and gives back weights, beside the batches. One makes results
//! of what models gave, which it copies from the device first, and brings them to where they are awaited.
//!
//! A panic while a batch runs fails that batch. The model serves on: operators keep nothing from batch to batch.

mod handle;
mod shared;
#[cfg(test)]
mod tests;
mod threads;

use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_backend::job::{Job, Ran};
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::action::{Action, Done, Member};
use spillgate_pipeline::id::{ActionId, DeviceId, ModelId, ModuleId, WeightsId, WorkerId};
use spillgate_pipeline::time::Timestamp;
use spillgate_worker_policy::actions::Actions;

pub use handle::PlacedHandle;
pub use threads::PlacedDevice;

/// An action for a device; its members carry their jobs.
pub type DeviceAction = Action<Member<Arc<Job>>>;

/// The pipeline and module of each worker.
pub type WorkerModules = Arc<IndexMap<WorkerId, (Arc<Pipeline>, ModuleId), FxBuildHasher>>;

/// A batch that ran, with one result a member.
pub struct RanBatch {
    /// The action.
    pub id: ActionId,
    /// Its model.
    pub model: ModelId,
    /// Its members.
    pub members: Vec<Member<Arc<Job>>>,
    /// One result a member, in order.
    pub results: Vec<Ran>,
    /// When it began.
    pub started_at: Timestamp,
    /// How long it was expected to take.
    pub expected: Duration,
    /// When it was expected to end as it was sent.
    pub told_end: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
}

/// Hears from devices. Called without any lock of the device held.
pub trait Reports: Send + Sync {
    /// A batch ran. Its `Done` follows.
    fn ran(&self, device: DeviceId, batch: RanBatch);

    /// What became of an action.
    fn done(&self, device: DeviceId, done: Done);
}

/// What a device is started with.
pub struct PlacedConfig {
    /// Its id.
    pub id: DeviceId,
    /// Its name.
    pub name: String,
    /// Its queues of actions and its cache.
    pub actions: Actions,
    /// Weights that are there from the start, as in `actions`.
    pub resident: Vec<WeightsId>,
    /// Which variant of the operator of its weights each model is.
    pub variants: Arc<[usize]>,
    /// The pipeline and module of each worker whose requests it may get: they say where the inputs of a request are.
    pub modules: WorkerModules,
    /// The core on which its batches execute; `None`: any.
    pub core: Option<usize>,
}
