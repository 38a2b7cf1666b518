//! What devices and controllers tell a gateway.

use std::sync::Arc;
use std::time::Duration;

use super::{Ask, ModuleState, Portion, Returned};
use spillgate_pipeline::id::{BatchId, MemberId, ModuleId, RequestId, WorkerId};
use spillgate_pipeline::policy::Guidance;
use spillgate_pipeline::request::Drop;
use spillgate_pipeline::time::Timestamp;

/// What a gateway is told.
#[derive(Clone, Debug, PartialEq)]
pub enum ToGateway {
    /// By a device: it bound a batch.
    Started(Started),
    /// By a device: a batch of a worker ended.
    Finished {
        /// The worker.
        worker: WorkerId,
        /// The batch.
        batch: BatchId,
        /// How long it took.
        took: Duration,
        /// Requests in it, those of other gateways included, and under a placement those of other workers.
        size: u32,
        /// Its members that are the gateway's.
        members: Vec<Finished>,
    },
    /// By a device: a request failed before it came into a batch.
    Failed {
        /// The worker.
        worker: WorkerId,
        /// The request.
        request: RequestId,
        /// A sentence for the client.
        why: String,
    },
    /// By a device: a worker dropped a request.
    Dropped {
        /// The worker.
        worker: WorkerId,
        /// The request.
        request: RequestId,
        /// Why.
        drop: Box<Drop>,
    },
    /// By a device: a request that it was told to forget had not begun.
    Forgotten {
        /// The worker at which it waited.
        worker: WorkerId,
        /// The request.
        request: RequestId,
    },
    /// By a device: a worker asks for requests.
    Ask(Ask),
    /// By a device: the ask of a worker with that serial is withdrawn.
    Withdrawn(WorkerId, u64),
    /// By a device: requests that a worker asked for and does not serve now.
    Returned(Returned),
    /// By a device: its process is about to end. The worker gets no more requests, and finishes what it has.
    Leaves(WorkerId),
    /// By a device: a worker has these models of its module's family in memory, or is about to (true), or no longer.
    Holds(WorkerId, Vec<(MemberId, bool)>),
    /// By a controller: the new plan for dispatch to its module.
    Plan(ModuleId, Box<ModulePlan>),
    /// By a controller: its state, for the entry gate.
    State(Arc<ModuleState>),
    /// By the controller of the source: the gateway's part of what the clients of all gateways share.
    Clients(Box<Portion>),
    /// By a controller: a worker takes requests from now on.
    Serve(WorkerId),
    /// By a controller: a worker gets no more requests, and finishes what it has.
    Retire(WorkerId),
    /// By a controller: a worker that gets no requests gets one, to see how long it takes.
    Try(WorkerId),
}

/// Batches that a device has bound at most: the one that runs and one behind it.
pub const BOUND_MAX: usize = 2;

/// A batch that a device bound: it runs now, or once the running one has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Started {
    /// The worker.
    pub worker: WorkerId,
    /// The batch. Batches of a device end in order of their ids.
    pub batch: BatchId,
    /// Requests in it.
    pub size: usize,
    /// When it is expected to end.
    pub expected_end: Timestamp,
}

/// A member of a batch that ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    /// The request.
    pub request: RequestId,
    /// What the module brought, or why it brought nothing.
    pub result: Result<Filled, Fault>,
}

/// Which outputs of a module are not empty, by ordinal: all that a `when:` looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filled(u64);

impl Filled {
    /// All outputs are there.
    pub const ALL: Filled = Filled(u64::MAX);

    /// One bit an output, from the lowest on.
    pub const fn from_bits(bits: u64) -> Self {
        Filled(bits)
    }

    /// One bit an output, from the lowest on.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The same, with this output.
    #[must_use]
    pub fn with(self, port: u16) -> Self {
        Filled(self.0 | 1 << port)
    }

    /// Whether that output is not empty.
    pub fn has(self, port: u16) -> bool {
        self.0 & (1 << port) != 0
    }
}

/// Why a module brought nothing for a request. Each holds a sentence for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The module says why.
    Module(String),
    /// Its outputs found no room in the account of bytes.
    Memory(String),
}

/// What dispatch to a module goes by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModulePlan {
    /// The shape of the module's batches.
    pub shape: BatchShape,
    /// Share of arrivals that is admitted (`pard-oc`); 1 without overload.
    pub admits: f64,
    /// Where requests are dropped that the backlog would make late; `None`: nowhere.
    pub backlog_check: Option<BacklogCheck>,
    /// The part of all requests that this gateway accepts: of what the pipeline can serve, so much is for its clients. 1 for
    /// the only gateway.
    pub part: f64,
    /// The controller has been there long enough to know all gateways. Before, what it knows of them is less than what it or
    /// another controller said before, if anything was said.
    pub knows_gateways: bool,
    /// The guidance of the module's brokers, for requests that wait at the gateway.
    pub guidance: Guidance,
}

/// The shape of a module's batches, for the forecast of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchShape {
    /// Requests in a batch, as planned.
    pub size: u32,
    /// Its execution time.
    pub execution: Duration,
}

/// The numbers behind the drop of requests at their first module.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BacklogCheck {
    /// Execution time of a batch here.
    pub execution: Duration,
    /// Execution times of the modules after this one, on the longest path. Queueing there is left out: it was measured
    /// over the last seconds, and to count it would drop requests for as long after each jam.
    pub downstream: Duration,
    /// Share of the SLO that is left to spare.
    pub margin: f64,
}
