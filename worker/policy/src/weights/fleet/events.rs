//! What a fleet hears and says.

use std::sync::Arc;

use spillgate_pipeline::action::{Action, BatchItem, Done};
use spillgate_pipeline::id::{DeviceId, GatewayId, RequestId, WorkerId};
use spillgate_pipeline::policy::Guidance;
use spillgate_pipeline::request::DropReason;
use spillgate_protocol::message::{Arrival, ToGateway};

#[cfg(doc)]
use super::Fleet;

/// What happens to a fleet.
#[derive(Debug)]
pub enum FleetEvent<'a, T> {
    /// Requests arrived; they are drained from the vector.
    Arrivals(&'a mut Vec<Arrival<T>>),
    /// A request ended elsewhere: forget it.
    Cancel(WorkerId, RequestId),
    /// Drop a request for this reason if it still waits here. A request that executes goes on.
    Withdraw(WorkerId, RequestId, DropReason),
    /// A gateway greets.
    Greeted(GatewayId),
    /// The process is about to end: gateways hear of it, and what is here and on its way is served.
    Leave,
    /// A gateway is gone: its requests are forgotten.
    Lost(GatewayId),
    /// The State Planner of a worker's module has new downstream state.
    Guide(WorkerId, Guidance),
    /// A device says what became of an action.
    Done(DeviceId, Done),
    /// Reject everything that waits and everything that still arrives.
    Close(DropReason),
    /// The time of [`Fleet::next_wakeup`] has come.
    Wakeup,
}

/// What the driver of a fleet must do, in this order.
#[derive(Debug)]
pub enum FleetCommand<T> {
    /// A device is to carry out an action. Those for one device arrive in this order.
    Do {
        /// The device.
        device: DeviceId,
        /// The action.
        action: Action<BatchItem<T>>,
    },
    /// Tell this to a gateway.
    Tell {
        /// The worker. It says which pipeline's gateway is meant.
        worker: WorkerId,
        /// The gateway.
        gateway: GatewayId,
        /// What it says.
        message: ToGateway,
    },
}

pub(super) fn tell<T>(worker: WorkerId, request: RequestId, message: ToGateway) -> FleetCommand<T> {
    FleetCommand::Tell {
        worker,
        gateway: request.owner(),
        message,
    }
}

/// Its request ended elsewhere.
pub(super) fn forgotten<T>(member: &BatchItem<T>) -> FleetCommand<T> {
    let (worker, request) = (member.worker, member.request.id);
    tell(worker, request, ToGateway::Forgotten { worker, request })
}

/// Its request has failed, for this reason: a sentence for its client.
pub(super) fn fail<T>(member: &BatchItem<T>, why: &Arc<str>) -> FleetCommand<T> {
    let (worker, request) = (member.worker, member.request.id);
    let message = ToGateway::Failed {
        worker,
        request,
        why: why.to_string(),
    };
    tell(worker, request, message)
}
