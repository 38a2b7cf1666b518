//! What passes between the gateways and the controllers of one pipeline.

use std::sync::Arc;
use std::time::Duration;

use spillgate_pipeline::id::{DeviceId, ModuleId, WorkerId};
use spillgate_pipeline::message::BatchReport;
use spillgate_pipeline::request::Request;

use crate::dispatcher::BatchShape;
use crate::planner::ModuleState;

/// A worker of a pipeline and the device that it is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The worker.
    pub worker: WorkerId,
    /// The module that it serves.
    pub module: ModuleId,
    /// Its device.
    pub device: DeviceId,
}

/// What a controller is told.
#[derive(Clone, Debug)]
pub enum ToController {
    /// By a gateway: a request reached the module, and runs it (false: skips it).
    Reached(Request, bool),
    /// By a gateway: a request was dropped at the module, or at the entry to it.
    Dropped,
    /// By a gateway: a request that had reached the module ended by its client's doing before a device ran it.
    Unasked,
    /// By a gateway: so many requests a second are offered to the pipeline, refused ones included.
    Offered(f64),
    /// By a gateway: so many workers serve the module.
    Workers(usize),
    /// By a worker: a batch ended.
    Report(BatchReport),
    /// By the controller of another module: its state.
    Peer(Arc<ModuleState>),
}

/// What a controller tells the gateways.
#[derive(Clone, Debug)]
pub enum ToGateway {
    /// What dispatch to a module goes by from now on.
    Plan(ModuleId, ModulePlan),
    /// A module's state, for the entry gate.
    State(Arc<ModuleState>),
}

/// What dispatch to a module goes by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModulePlan {
    /// The shape of the module's batches.
    pub shape: BatchShape,
    /// Share of arrivals that is admitted (`pard-oc`); 1 without overload.
    pub admits: f64,
    /// Where requests are refused that the backlog would make late; `None`: nowhere.
    pub door: Option<DoorPlan>,
}

/// The numbers behind the refusal of requests at their first module.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DoorPlan {
    /// Execution time of a batch here.
    pub execution: Duration,
    /// Execution times of the modules after this one, on the longest path. Queueing there is left out: it was measured
    /// over the last seconds, and to count it would refuse requests for as long after each jam.
    pub downstream: Duration,
    /// Share of the SLO that is left to spare.
    pub margin: f64,
}
