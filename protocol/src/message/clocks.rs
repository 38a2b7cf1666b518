//! The times in a message, from the sender's clock to the receiver's.

use super::{Ask, BatchReport, Message, Started, ToController, ToDevice, ToGateway};
use spillgate_pipeline::request::Request;
use spillgate_pipeline::time::Timestamp;

impl<L> Message<L> {
    /// Replaces each time of the sender's clock by that of the receiver's: see
    /// [`Session::to_mine`](crate::session::Session::to_mine).
    pub fn translate(&mut self, to_mine: impl Fn(Timestamp) -> Timestamp) {
        match self {
            Message::Gateway(message) => to_gateway(message, to_mine),
            Message::Controller(message) => to_controller(message, to_mine),
            Message::Device(message) => to_device(message, to_mine),
        }
    }
}

fn to_gateway(message: &mut ToGateway, to_mine: impl Fn(Timestamp) -> Timestamp) {
    match message {
        ToGateway::Started(Started { expected_end, .. }) => *expected_end = to_mine(*expected_end),
        ToGateway::Dropped { drop, .. } => drop.at = to_mine(drop.at),
        ToGateway::Ask(Ask {
            starts_at, until, ..
        }) => {
            *starts_at = to_mine(*starts_at);
            *until = until.map(to_mine);
        }
        ToGateway::Returned(returned) => {
            for (_, since) in &mut returned.requests {
                *since = to_mine(*since);
            }
        }
        ToGateway::Finished { .. }
        | ToGateway::Failed { .. }
        | ToGateway::Forgotten { .. }
        | ToGateway::Withdrawn(..)
        | ToGateway::Leaves(_)
        | ToGateway::Plan(..)
        | ToGateway::Clients(_)
        | ToGateway::Holds(..)
        | ToGateway::State(_)
        | ToGateway::Serve(_)
        | ToGateway::Retire(_)
        | ToGateway::Try(_) => {}
    }
}

fn to_controller(message: &mut ToController, to_mine: impl Fn(Timestamp) -> Timestamp) {
    match message {
        ToController::Report(BatchReport {
            started_at,
            ended_at,
            members,
            ..
        }) => {
            *started_at = to_mine(*started_at);
            *ended_at = to_mine(*ended_at);
            for (arrived_at, batched_at) in members {
                *arrived_at = to_mine(*arrived_at);
                *batched_at = to_mine(*batched_at);
            }
        }
        ToController::Demand(_)
        | ToController::Clients(_)
        | ToController::Loaded(..)
        | ToController::Peer(_) => {}
    }
}

fn to_device<L>(message: &mut ToDevice<L>, to_mine: impl Fn(Timestamp) -> Timestamp) {
    match message {
        ToDevice::Requests(arrivals) => {
            for arrival in arrivals {
                of_request(&mut arrival.request, &to_mine);
            }
        }
        ToDevice::Answer(answer) => {
            for offered in &mut answer.requests {
                of_request(&mut offered.request, &to_mine);
                offered.since = to_mine(offered.since);
            }
        }
        ToDevice::Cancel(..)
        | ToDevice::Withdraw(..)
        | ToDevice::Reassigned(_)
        | ToDevice::Guide(..)
        | ToDevice::Load(_)
        | ToDevice::Unload(_) => {}
    }
}

fn of_request(request: &mut Request, to_mine: impl Fn(Timestamp) -> Timestamp) {
    request.sent_at = to_mine(request.sent_at);
    request.deadline = to_mine(request.deadline);
}
