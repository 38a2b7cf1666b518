//! The gateways: which one accepts a request, and how each is driven.

use std::time::Duration;

use rand::Rng;
use spillgate_controller_policy::gateway::{Command, Event as GatewayEvent, Gateway};
use spillgate_controller_policy::ledger::Offer;
use spillgate_controller_policy::refusal::Refusal;
use spillgate_controller_policy::shares::Party;
use spillgate_controller_policy::variant_selector::{FrameSize, StreamKey};
use spillgate_pipeline::id::{ClientId, GatewayId, RequestId};
use spillgate_pipeline::invariants::Violation;
use spillgate_pipeline::request::Request;
use spillgate_pipeline::schedule::Application;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::Address;

use super::World;
use super::agenda::Occurrence;
use super::cluster::Bug;
use super::crashes::Life;

/// A gateway.
pub(super) struct SimGateway {
    pub(super) life: Life,
    /// It keeps, of each open request, the device time that it used, in nanoseconds.
    pub(super) policy: Gateway<u64, ()>,
    /// Earliest wakeup in the agenda; later ones need none.
    pub(super) armed: Timestamp,
}

impl World {
    /// The gateway that the next request goes to: clients of one that is down go to the others. `None` when all are down.
    pub(super) fn owner_of_next(&mut self) -> Option<GatewayId> {
        let living: Vec<GatewayId> = self.gateways().filter(|id| self.is_ready(*id)).collect();
        self.draw_owner(&living)
    }

    /// One of these gateways, by what part of the requests each of them accepts.
    pub(super) fn draw_owner(&mut self, living: &[GatewayId]) -> Option<GatewayId> {
        if self.gateways.len() == 1 {
            return living.first().copied();
        }
        let part = |id: &GatewayId| self.config.gateways[id.idx()];
        let mut left = self.rng.random::<f64>() * living.iter().map(part).sum::<f64>();
        let chosen = living.iter().find(|id| {
            left -= part(id);
            left < 0.0
        });
        chosen.or(living.last()).copied()
    }

    /// A request that is sent and comes to its owner now.
    pub(super) fn offer(
        &self,
        id: RequestId,
        timeout: Option<Duration>,
        application: Application,
        party: Party,
    ) -> Offer {
        Offer {
            sent_at: self.clock(Address::Gateway(id.owner())).read(self.now),
            timeout,
            decoding: Duration::ZERO,
            application,
            client: ClientId::default(),
            party,
            members: self
                .config
                .families
                .as_ref()
                .map(|f| f.members(self.ordinal(id)))
                .unwrap_or_default(),
            stream: stream_of(&party),
            frame: FrameSize::default(),
        }
    }

    /// Offers a request to its owner.
    pub(super) fn admit(&mut self, id: RequestId, offer: &Offer) -> Result<Request, Refusal> {
        let here = self.clock(Address::Gateway(id.owner())).read(self.now);
        let owner = id.owner().idx();
        let policy = &mut self.gateways[owner].policy;
        let admitted = policy.admit(here, id, offer, || (0, ()));
        self.arm_gateway(owner);
        admitted
    }

    pub(super) fn drive_gateway(
        &mut self,
        owner: GatewayId,
        event: GatewayEvent<'_>,
    ) -> Result<(), Violation> {
        let mut commands = Vec::new();
        let here = self.clock(Address::Gateway(owner)).read(self.now);
        let SimGateway { policy, life, .. } = &mut self.gateways[owner.idx()];
        if life.is_down {
            return Ok(());
        }
        policy.on_event(here, event, &mut commands);
        for command in commands {
            match command {
                Command::Send(envelope) => self.send(envelope)?,
                Command::End(ended) => self.ended(&ended)?,
                Command::Ask { stream, asked } => self.ask_camera(stream, asked),
            }
        }
        self.arm_gateway(owner.idx());
        self.check_gateway(owner.idx())
    }

    fn arm_gateway(&mut self, owner: usize) {
        if self.config.bug == Some(Bug::NoTimer) {
            return;
        }
        let clock = self.clock(Address::Gateway(GatewayId(owner as u16)));
        let SimGateway { policy, armed, .. } = &mut self.gateways[owner];
        if let Some(at) = policy.next_wakeup().map(|at| clock.moment(at))
            && at < *armed
        {
            *armed = at;
            self.agenda.at(at, Occurrence::GatewayWakeup { owner });
        }
    }

    /// The gateways that live.
    pub(super) fn gateways(&self) -> impl Iterator<Item = GatewayId> + use<> {
        let gateways = (0..).zip(&self.gateways);
        let living = gateways.filter(|(_, owner)| !owner.life.is_down);
        let ids: Vec<GatewayId> = living.map(|(id, _)| GatewayId(id)).collect();
        ids.into_iter()
    }

    /// Requests that have not ended.
    pub(super) fn in_flight(&self) -> usize {
        self.gateways
            .iter()
            .map(|owner| owner.policy.in_flight())
            .sum()
    }
}

/// Streams are counted from 0 in each client, and few enough.
pub(super) fn stream_of(party: &Party) -> StreamKey {
    StreamKey(party.client.0 << u16::BITS | party.stream.0)
}
