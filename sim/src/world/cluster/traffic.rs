//! What travels between processes, by who says it to whom.

use serde::Serialize;
use spillgate_protocol::message::Address;

/// Messages of one kind of role to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Travelled {
    /// How many.
    pub messages: u64,
    /// Their bytes, without the payloads of requests.
    pub bytes: u64,
}

impl Travelled {
    pub(super) fn add(&mut self, bytes: usize) {
        self.messages += 1;
        self.bytes += bytes as u64;
    }
}

/// Messages between processes, by who says them to whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// From gateways to workers.
    pub gateway_to_worker: Travelled,
    /// From workers to gateways.
    pub worker_to_gateway: Travelled,
    /// From gateways to controllers.
    pub gateway_to_controller: Travelled,
    /// From controllers to gateways, but for lists.
    pub controller_to_gateway: Travelled,
    /// From workers to controllers.
    pub worker_to_controller: Travelled,
    /// From controllers to workers.
    pub controller_to_worker: Travelled,
    /// Between controllers.
    pub controller_to_controller: Travelled,
    /// Lists of members, from controllers to gateways.
    pub lists: Travelled,
}

impl Traffic {
    /// Those between two kinds of roles.
    pub(super) fn of(&mut self, from: Address, to: Address) -> &mut Travelled {
        match (from, to) {
            (Address::Gateway(_), Address::Controller(_)) => &mut self.gateway_to_controller,
            (Address::Gateway(_), _) => &mut self.gateway_to_worker,
            (Address::Device(_), Address::Controller(_)) => &mut self.worker_to_controller,
            (Address::Device(_), _) => &mut self.worker_to_gateway,
            (Address::Controller(_), Address::Gateway(_)) => &mut self.controller_to_gateway,
            (Address::Controller(_), Address::Device(_)) => &mut self.controller_to_worker,
            (Address::Controller(_), Address::Controller(_)) => &mut self.controller_to_controller,
        }
    }
}
