//! How many messages travel, and how large they are: fields at the sizes that they take when packed, without the payloads of
//! requests.

use spillgate_protocol::message::{
    Envelope, Message, ModuleState, SHARE_STEPS, ToController, ToDevice, ToGateway,
};

/// Addresses, incarnation and kind.
const HEADER: usize = 16;
/// An id of a request, of a batch, a serial, a moment or a duration.
const WORD: usize = 8;
/// An id of a worker, a count or a reason.
const SHORT: usize = 4;
/// A request: id, two moments, application, client, decoding time.
const REQUEST: usize = 3 * WORD + 3 * SHORT;
/// Guidance: downstream, share, order, batch.
const GUIDANCE: usize = 2 * WORD + 2 * SHORT;

/// The bytes of an envelope.
pub(super) fn bytes(envelope: &Envelope<()>) -> usize {
    let message = match &envelope.message {
        Message::Gateway(message) => to_gateway(message),
        Message::Controller(message) => to_controller(message),
        Message::Device(message) => to_device(message),
    };
    HEADER + message
}

fn to_gateway(message: &ToGateway) -> usize {
    match message {
        ToGateway::Started(_) => 2 * SHORT + 2 * WORD,
        ToGateway::Finished { members, .. } => 2 * SHORT + 2 * WORD + members.len() * 2 * WORD,
        ToGateway::Failed { why, .. } => 2 * SHORT + WORD + why.len(),
        ToGateway::Dropped { .. } => 3 * SHORT + 6 * WORD,
        ToGateway::Forgotten { .. } => SHORT + WORD,
        ToGateway::Ask(_) => 3 * SHORT + 3 * WORD,
        ToGateway::Withdrawn(..) => SHORT + WORD,
        ToGateway::Returned(returned) => 2 * SHORT + WORD + returned.requests.len() * 2 * WORD,
        ToGateway::Plan(..) => SHORT + 9 * WORD + GUIDANCE,
        ToGateway::State(state) => state_bytes(state),
        ToGateway::Holds(_, models) => SHORT + models.len() * SHORT,
        ToGateway::Clients(portion) => 2 * WORD + portion.parts.len() * 2 * WORD,
        ToGateway::Leaves(_) | ToGateway::Serve(_) | ToGateway::Retire(_) | ToGateway::Try(_) => {
            SHORT
        }
    }
}

fn to_controller(message: &ToController) -> usize {
    match message {
        ToController::Demand(_) => (5 + SHARE_STEPS) * WORD,
        ToController::Clients(report) => WORD + report.named.len() * (3 * WORD + SHORT),
        ToController::Report(report) => SHORT + 2 * WORD + report.members.len() * 2 * WORD,
        ToController::Loaded(..) => 2 * SHORT,
        ToController::Peer(state) => state_bytes(state),
    }
}

fn to_device(message: &ToDevice<()>) -> usize {
    match message {
        ToDevice::Requests(requests) => requests.len() * (SHORT + REQUEST),
        ToDevice::Answer(answer) => 3 * SHORT + WORD + answer.requests.len() * (REQUEST + WORD),
        ToDevice::Cancel(..) => SHORT + WORD,
        ToDevice::Withdraw(..) => 2 * SHORT + WORD,
        ToDevice::Reassigned(_) | ToDevice::Load(_) | ToDevice::Unload(_) => SHORT,
        ToDevice::Guide(..) => SHORT + GUIDANCE,
    }
}

fn state_bytes(state: &ModuleState) -> usize {
    let samples = state.batch_waits.len() + state.executions.len() + SHARE_STEPS;
    14 * WORD + samples * SHORT
}
