//! What a fleet hears and says.

use spillgate_pipeline::action::{Action, Done, Member};
use spillgate_pipeline::id::{DeviceId, GatewayId, RequestId, WorkerId};
use spillgate_pipeline::message::{Arrival, ToGateway};
use spillgate_pipeline::policy::Guidance;
use spillgate_pipeline::request::DropReason;

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
        action: Action<Member<T>>,
    },
    /// Tell this to a gateway.
    Tell {
        /// The worker. It says which pipeline's gateway is meant.
        worker: WorkerId,
        /// The gateway.
        home: GatewayId,
        /// What it says.
        message: ToGateway,
    },
}
