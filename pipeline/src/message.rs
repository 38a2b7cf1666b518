//! What passes between gateways, controllers and devices. Payloads are opaque: `L` is what a request carries to a worker.

use crate::id::{RequestId, WorkerId};
use crate::policy::Guidance;
use crate::request::{DropReason, Request};
use crate::time::Timestamp;

/// A request on its way to a worker.
#[derive(Clone, Debug)]
pub struct Arrival<L> {
    /// The worker that it is dispatched to.
    pub worker: WorkerId,
    /// The request.
    pub request: Request,
    /// What it carries.
    pub payload: L,
}

/// What a gateway or a controller tells a device.
#[derive(Debug)]
pub enum ToDevice<L> {
    /// Serve these requests. They travel together, so that they may start as one batch.
    Requests(Vec<Arrival<L>>),
    /// Forget a request that ended.
    Cancel(RequestId),
    /// Drop a request for this reason if it still waits.
    Withdraw(RequestId, DropReason),
    /// A worker's broker is to go by this from now on.
    Guide(WorkerId, Guidance),
    /// Make a worker ready, and say when it is.
    Load(WorkerId),
    /// Give back what a worker holds once it has no more requests.
    Unload(WorkerId),
}

/// One batch that ended, as its worker reports it.
#[derive(Clone, Debug)]
pub struct BatchReport {
    /// The worker.
    pub worker: WorkerId,
    /// When it started.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// t_r and t_b of each member.
    pub members: Vec<(Timestamp, Timestamp)>,
}
