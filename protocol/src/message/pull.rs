//! Dispatch `pull`: a worker asks the owners of requests for work, and hands back what its batch has no room for.

use spillgate_pipeline::id::{RequestId, WorkerId};
use spillgate_pipeline::policy::BudgetOrder;
use spillgate_pipeline::request::Request;
use spillgate_pipeline::time::Timestamp;

/// A worker asks a gateway for requests that wait there for its module. Each ask of a worker takes the place of the one
/// before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The worker.
    pub worker: WorkerId,
    /// Rises with each ask of one incarnation of the worker's device.
    pub serial: u64,
    /// Requests that it wants from all gateways together.
    pub most: u32,
    /// Requests that waited at the other gateways when they answered last.
    pub elsewhere: u32,
    /// When the batch is expected to start.
    pub starts_at: Timestamp,
    /// The gateway answers at once, and sends what comes to it until then. `None`: the worker is idle. The gateway answers when
    /// a request comes, unless the ask is withdrawn before.
    pub until: Option<Timestamp>,
}

/// What a gateway has for a worker that asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer<L> {
    /// The worker.
    pub worker: WorkerId,
    /// The ask.
    pub serial: u64,
    /// The end of its queue from which the gateway took the requests.
    pub order: BudgetOrder,
    /// Requests that wait on at the gateway.
    pub waiting: u32,
    /// The requests; none where nothing waits.
    pub requests: Vec<Lent<L>>,
}

/// A request that its owner lends to a worker that asked: the worker serves it, or hands it back.
#[derive(Clone, Debug, PartialEq)]
pub struct Lent<L> {
    /// The request.
    pub request: Request,
    /// When it came to the module.
    pub since: Timestamp,
    /// What it carries.
    pub payload: L,
}

/// What a worker tells a gateway once it has bound a batch or has heard an answer too late.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Returned {
    /// The worker.
    pub worker: WorkerId,
    /// The last ask of the worker: it stands no more.
    pub serial: u64,
    /// Requests that wait at the other gateways now.
    pub elsewhere: u32,
    /// Requests of the gateway that the batch has no room for, and when each came to the module.
    pub requests: Vec<(RequestId, Timestamp)>,
}
