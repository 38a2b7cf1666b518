//! Clients whose requests come to nothing.

use std::time::Duration;

use spillgate_pipeline::id::{ModuleId, RequestId};
use spillgate_pipeline::invariants::Violation;
use spillgate_pipeline::request::Outcome;
use spillgate_pipeline::time::Timestamp;

use super::agenda::Occurrence;
use super::{Hostile, HostileKind, Open, World};

impl World {
    /// A request of hostile clients, and the time of their next one.
    pub(super) fn offer_hostile(&mut self, clients: usize) -> Result<(), Violation> {
        let Hostile { kind, rate } = self.config.hostile[clients];
        let next = self.now + Duration::from_secs_f64(1.0 / rate);
        if next < Timestamp::ZERO + self.config.duration {
            self.agenda.at(next, Occurrence::Hostile(clients));
        }
        let id = RequestId(self.open.len() as u64);
        self.open.push(None);
        self.note(17, id.0);
        let timeout = match kind {
            HostileKind::Hurry(timeout) => Some(timeout),
            HostileKind::Unreadable | HostileKind::Leave(_) => None,
        };
        let Ok(request) = self.admit(id, timeout) else {
            return Ok(());
        };
        self.checker.accepted(id)?;
        self.open[id.0 as usize] = Some(Open { request, used: 0 });
        match kind {
            HostileKind::Hurry(_) => {}
            HostileKind::Unreadable => {
                let module = ModuleId::SOURCE;
                return self.end_early(id, Outcome::Failed { module });
            }
            HostileKind::Leave(after) => {
                self.agenda.at(self.now + after, Occurrence::Leave(id));
            }
        }
        self.passed(ModuleId::SOURCE, &[(request, true)])
    }

    /// Whether the request is one of the workload.
    pub(super) fn counts(&self, id: RequestId) -> bool {
        (id.0 as usize) < self.config.arrivals.len()
    }
}
