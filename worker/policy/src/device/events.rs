//! What a device hears, and what its driver must do.

use std::time::Duration;

use spillgate_pipeline::action::BatchItem;
use spillgate_pipeline::id::{BatchId, GatewayId, ModuleId, RequestId, WeightsId, WorkerId};
use spillgate_pipeline::policy::Guidance;
use spillgate_pipeline::request::{DropReason, ModelChoice};
use spillgate_pipeline::schedule::Application;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{Answer, Arrival, ToGateway};

#[cfg(doc)]
use crate::device::Device;

/// What happens to a device.
#[derive(Debug)]
pub enum DeviceEvent<'a, T> {
    /// A gateway greets: it hears of these workers, those of its pipeline, and of their batches that are bound from now on.
    Greeted(GatewayId, &'a [WorkerId]),
    /// A gateway is gone: its requests are forgotten.
    Lost(GatewayId),
    /// A gateway is silent: it is not waited for until it answers again.
    Suspected(GatewayId),
    /// Requests arrived together; they are drained from the vector. They may start as one batch.
    Arrivals(&'a mut Vec<Arrival<T>>),
    /// A gateway answers a worker that asked for requests.
    Answer(GatewayId, Answer<T>),
    /// A request ended elsewhere: forget it.
    Cancel(WorkerId, RequestId),
    /// Drop a request for this reason if it still waits here. A request that executes goes on.
    Withdraw(WorkerId, RequestId, DropReason),
    /// The running batch ended.
    BatchEnded {
        /// The batch.
        batch: BatchId,
        /// How long it ran.
        took: Duration,
        /// The payload that [`Batch::sampled`] asked for, unless that member failed.
        sampled: Option<T>,
    },
    /// What [`DeviceCommand::Read`] asked for has ended. False: it could not be read.
    ReadEnded(bool),
    /// The rerun ended.
    Reran {
        /// The rerun.
        batch: BatchId,
        /// How long it ran; `None` when it failed.
        took: Option<Duration>,
    },
    /// Make that worker ready to serve.
    Load(WorkerId),
    /// Give back what that worker alone holds, once it has no request here.
    Unload(WorkerId),
    /// The application is another one from now on.
    Reassigned(Application),
    /// The State Planner of a worker's module has new downstream state.
    Guide(WorkerId, Guidance),
    /// A request of that application ran alone at a worker for so long, in the past or beside serving.
    Ran {
        /// The worker.
        worker: WorkerId,
        /// Whose request it was.
        application: Application,
        /// How long.
        took: Duration,
    },
    /// The time of [`Device::next_wakeup`] has come.
    Wakeup,
    /// The process is about to end: gateways hear of it, what is here and on its way is served, and nothing is asked for.
    Leave,
    /// Reject everything that waits and everything that still arrives.
    Close(DropReason),
}

/// What the driver must do, in this order: what runs on the device runs when what was commanded before has ended.
#[derive(Debug)]
pub enum DeviceCommand<T> {
    /// Run this batch: now, or when the running one ends.
    Execute(Batch<T>),
    /// Run this request again, alone, now. Its result is not used, only its time.
    Rerun(Rerun<T>),
    /// A worker that was to be made ready is, or cannot be, since these weights cannot be read.
    Loaded(WorkerId, Result<(), WeightsId>),
    /// Read these weights beside what runs, and say [`DeviceEvent::ReadEnded`]. The others give way before. No batch that is bound is of one of
    /// them.
    Read(WeightsId, Vec<WeightsId>),
    /// Give back these weights: no worker that serves needs them.
    Forget(Vec<WeightsId>),
    /// Tell this to a gateway.
    Tell {
        /// The worker. It says which pipeline's gateway is meant, where a process has gateways of several pipelines.
        worker: WorkerId,
        /// The gateway.
        gateway: GatewayId,
        /// What it says.
        message: ToGateway,
    },
}

/// A batch to execute.
#[derive(Debug)]
pub struct Batch<T> {
    /// Its id, unique on this device.
    pub id: BatchId,
    /// The worker whose module runs.
    pub worker: WorkerId,
    /// That module.
    pub module: ModuleId,
    /// t_e, as expected when it is bound.
    pub started_at: Timestamp,
    /// When it is expected to end.
    pub expected_end: Timestamp,
    /// Its requests, at least one.
    pub members: Vec<BatchItem<T>>,
    /// The request among them whose payload is to be handed back when the batch ends, to be run again.
    pub sampled: Option<usize>,
}

/// A finished request that runs again, for its time alone ([`crate::profiler`]).
#[derive(Debug)]
pub struct Rerun<T> {
    /// An id as of a batch.
    pub id: BatchId,
    /// The worker whose module runs.
    pub worker: WorkerId,
    /// Which request it was.
    pub request: RequestId,
    /// The model that it is for.
    pub model: ModelChoice,
    /// The driver's own.
    pub payload: T,
}
