//! One device: the threads that carry out what is decided for it, and the handles by which others reach it.
//!
//! A *chooser* decides which batches run and which weights are read: the brokers of the device ([`brokers`]), or a placement, whose actions
//! wait in order ([`actions`]). One driver carries out what either of them decides:
//!
//! - *prepare*: the inputs of a batch, where a placement asks for that before the batch runs;
//! - *execute*: batches, one after the other, and nothing else;
//! - *load*: weights are read and given back beside the batches, in the order in which that was asked for;
//! - *report*: what ended, to where it is awaited.
//!
//! Whoever brings an event locks the device and drives its chooser in place: no channel, no task. A thread sleeps only while it has nothing to do.
//!
//! Under brokers the executing thread reports, *before* the brokers hear of the end, so that what the results bring to modules on the same
//! device competes for the next batch. Under a placement inputs and results are made on threads of their own, so that how long a batch takes
//! is how long its model runs.
//!
//! A module that panics fails its batch. The device serves on: operators keep nothing from batch to batch. Any other panic ends the device: its
//! workers are reported down, what waits is answered, and readiness sees it.

pub mod actions;
pub mod brokers;
mod driver;
mod models;
mod threads;

use std::sync::Arc;

use smallvec::SmallVec;
use spillgate_pipeline::action::BatchItem;
use spillgate_pipeline::id::{BatchId, DeviceId, GatewayId};
use spillgate_pipeline::time::Timestamp;
use spillgate_process::job::{Job, Ran};

pub use models::{Models, ModelsConfig, WorkerModels};
pub use threads::DeviceThreads;
pub(crate) use threads::panic_text;

/// What a device is started with.
pub struct DeviceConfig {
    /// Its id.
    pub id: DeviceId,
    /// Its name, as in the pipeline file.
    pub name: String,
    /// What its batches run with.
    pub models: Models,
    /// The core on which they execute; `None`: any.
    pub core: Option<usize>,
}

/// A batch that ran, with one result a request.
pub struct RanBatch {
    /// The device.
    pub device: DeviceId,
    /// The batch.
    pub id: BatchId,
    /// Its requests.
    pub members: Vec<BatchItem<Arc<Job>>>,
    /// One result a request, in order.
    pub results: Vec<Ran>,
    /// When it began.
    pub started_at: Timestamp,
    /// When it was expected to end then.
    pub expected_end: Timestamp,
    /// When it was expected to end as it was bound.
    pub reported_end: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// The gateways that hear of its end, even if they have no request in it.
    pub forecasters: Forecasters,
}

/// Gateways: mostly it is one.
pub type Forecasters = SmallVec<[GatewayId; 4]>;
