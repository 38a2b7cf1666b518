//! One OS thread that owns one device, and the handle by which others reach it.
//!
//! Whoever brings a request locks the device and drives its policy in place: no channel, no task. The
//! thread sleeps only while nothing waits. When a batch ends its results are delivered *before* the policy
//! hears of the end, so that what they bring to modules on the same device competes for the next batch.
//!
//! Where weights give way to each other, a second thread reads them, beside the batches.
//!
//! A panic while a batch runs fails that batch and ends the thread: its workers are reported down, what
//! waits is answered, and readiness sees it.

mod handle;
mod shared;
mod thread;
mod weights;

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use spillgate_backend::job::{Job, Ran};
use spillgate_backend::operator::OperatorError;
use spillgate_pipeline::action::Load;
use spillgate_pipeline::id::{DeviceId, GatewayId, WorkerId};
use spillgate_pipeline::message::ToGateway;
use spillgate_pipeline::time::Timestamp;
use spillgate_worker_policy::device::{Batch, Device};

use crate::executor::Executor;

pub use handle::DeviceHandle;
pub use thread::DeviceThread;
pub(crate) use thread::panic_text;
pub use weights::{WeightsConfig, WeightsWorker};

/// A batch that ended, with one result a member.
pub struct Finished {
    /// The device.
    pub device: DeviceId,
    /// The batch as it was started.
    pub batch: Batch<Arc<Job>>,
    /// One result a member, in order.
    pub results: Vec<Ran>,
    /// How the model was read for which it waited, if it did.
    pub load: Option<Load>,
    /// When it was expected to end as it was bound.
    pub told_end: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// The gateways that hear of its end, even if they have no request in it.
    pub forecasters: Forecasters,
}

/// Gateways: mostly it is one.
pub type Forecasters = SmallVec<[GatewayId; 4]>;

/// Who is told what happened to requests. Called without any lock of the device held, so that it may call
/// back into this or another device.
pub trait Upstream: Send + Sync {
    /// The device's policy says this to that gateway of the pipeline that the worker serves.
    fn tell(&self, worker: WorkerId, home: GatewayId, message: ToGateway);

    /// A batch ended.
    fn finished(&self, finished: Finished);

    /// A finished request ran again, for its time alone; nothing else comes of it.
    fn reran(&self, worker: WorkerId, took: Duration);

    /// A worker that was asked for is ready, or cannot be.
    fn loaded(&self, worker: WorkerId, result: Result<(), OperatorError>);

    /// The device died; its workers serve no more.
    fn down(&self, device: DeviceId, cause: &str);
}

/// What a device is started with.
pub struct DeviceConfig {
    /// Its id.
    pub id: DeviceId,
    /// Its name, as in the pipeline file.
    pub name: String,
    /// Its policy.
    pub policy: Device<Arc<Job>>,
    /// The core on which its batches execute; `None`: any.
    pub core: Option<usize>,
}

/// Makes the executor, on the device's thread.
pub type ExecutorFactory<E> = Box<dyn FnOnce() -> Result<Box<dyn Executor>, E> + Send>;
