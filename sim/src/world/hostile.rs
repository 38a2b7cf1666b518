//! Hostile clients: their requests never complete.

use std::time::Duration;

use spillgate_controller_policy::gateway::Event as GatewayEvent;
use spillgate_controller_policy::shares::Party;
use spillgate_pipeline::id::{GatewayId, ModuleId, RequestId};
use spillgate_pipeline::invariants::Violation;
use spillgate_pipeline::schedule::Application;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::Fault;

use super::agenda::Occurrence;
use super::noted::Kind;
use super::{Hostile, HostileKind, World};

impl World {
    /// A request of hostile clients, and the time of their next one.
    pub(super) fn offer_hostile(&mut self, clients: usize) -> Result<(), Violation> {
        let Hostile { kind, rate } = self.config.hostile[clients];
        let next = self.now + Duration::from_secs_f64(1.0 / rate);
        if next < Timestamp::ZERO + self.config.duration {
            self.agenda.at(next, Occurrence::Hostile(clients));
        }
        let Some(owner) = self.owner_of_next() else {
            return Ok(());
        };
        let id = self.next_beside(owner);
        self.note(Kind::HostileOffer, id.0);
        let timeout = match kind {
            HostileKind::Hurry(timeout) => Some(timeout),
            HostileKind::Unreadable | HostileKind::Leave(_) => None,
        };
        let offer = self.offer(id, timeout, Application::default(), Party::ONLY);
        if self.admit(id, &offer).is_err() {
            return Ok(());
        }
        self.checker.accepted(id)?;
        match kind {
            HostileKind::Hurry(_) => {}
            HostileKind::Unreadable => {
                let unread = Fault::Module("no picture".to_owned());
                return self.drive_gateway(owner, GatewayEvent::Read(id, Err(unread)));
            }
            HostileKind::Leave(after) => {
                self.agenda.at(self.now + after, Occurrence::Leave(id));
            }
        }
        let filled = self.filled(ModuleId::SOURCE);
        self.drive_gateway(owner, GatewayEvent::Read(id, Ok(filled)))
    }

    /// The id of the next request beside the workload.
    pub(super) fn next_beside(&mut self, owner: GatewayId) -> RequestId {
        self.next_beside += 1;
        RequestId::at(owner, super::FIRST, self.next_beside - 1)
    }

    /// The ordinal of a request in the workload.
    pub(super) fn ordinal(&self, id: RequestId) -> u64 {
        match &self.cluster {
            Some(cluster) => cluster.ordinal(id),
            None => id.ordinal(),
        }
    }

    /// Whether the request is one of the workload.
    pub(super) fn counts(&self, id: RequestId) -> bool {
        (self.ordinal(id) as usize) < self.config.arrivals.len()
    }
}
