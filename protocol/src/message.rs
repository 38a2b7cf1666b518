//! The messages between gateways, controllers and devices: one enum for each receiver, in envelopes that name the sender and
//! its incarnation. Payloads are opaque: `L` is what a request carries to a worker.

pub(crate) mod clients;
mod clocks;
mod ids;
mod pull;
mod rights;
pub(crate) mod to_controller;
mod to_device;
pub(crate) mod to_gateway;

use spillgate_pipeline::id::{DeviceId, GatewayId, Incarnation, ModuleId, WorkerId};
use spillgate_pipeline::request::Request;

pub use clients::{ClientReport, NAMED_MAX, Offered, Portion};
pub use ids::{Ids, UnknownId};
pub use pull::{Answer, Ask, Lent, Returned};
pub use to_controller::{
    BatchReport, Demand, ModuleState, SHARE_STEPS, STATE_SAMPLES_MAX, Shares, ToController,
};
pub use to_device::{Arrival, Place, ToDevice};
pub use to_gateway::{
    BOUND_MAX, BacklogCheck, BatchShape, Fault, Filled, Finished, ModulePlan, Started, ToGateway,
};

/// A role of one pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A gateway.
    Gateway(GatewayId),
    /// The controller of a module.
    Controller(ModuleId),
    /// A device with its workers.
    Device(DeviceId),
}

impl Address {
    /// Whether two roles have anything to say to each other.
    pub fn speaks_to(self, other: Address) -> bool {
        let is_alike = matches!(
            (self, other),
            (Address::Gateway(_), Address::Gateway(_)) | (Address::Device(_), Address::Device(_))
        );
        !is_alike && self != other
    }
}

/// A message on its way.
#[derive(Clone, Debug, PartialEq)]
pub struct Envelope<L> {
    /// The role that sent it.
    pub from: Address,
    /// The sender's incarnation.
    pub incarnation: Incarnation,
    /// The role that it is for.
    pub to: Address,
    /// What it says.
    pub message: Message<L>,
}

impl<L> Envelope<L> {
    /// The same with other payloads. `payload` hears for which worker and request each is.
    pub fn map<M>(self, mut payload: impl FnMut(WorkerId, &Request, L) -> M) -> Envelope<M> {
        self.filter_map(|worker, request, with| Some(payload(worker, request, with)))
    }

    /// The same with other payloads. Requests that have none are left out.
    pub fn filter_map<M>(
        self,
        mut payload: impl FnMut(WorkerId, &Request, L) -> Option<M>,
    ) -> Envelope<M> {
        let message = match self.message {
            Message::Gateway(message) => Message::Gateway(message),
            Message::Controller(message) => Message::Controller(message),
            Message::Device(message) => Message::Device(message.filter_map(&mut payload)),
        };
        Envelope {
            from: self.from,
            incarnation: self.incarnation,
            to: self.to,
            message,
        }
    }
}

/// What an envelope holds, by the role that it is for.
#[derive(Clone, Debug, PartialEq)]
pub enum Message<L> {
    /// For a gateway.
    Gateway(ToGateway),
    /// For a controller.
    Controller(ToController),
    /// For a device.
    Device(ToDevice<L>),
}

/// A way on which envelopes travel. The envelopes of one sender to one receiver arrive in the order in which they were sent,
/// or are lost with the connection.
pub trait EnvelopeSender<L> {
    /// Sends an envelope on its way.
    fn send(&self, envelope: Envelope<L>);
}

/// The incarnation in which each peer of a role greeted last. Messages of other incarnations are ignored: they were under way
/// when their sender died, or come from a process that does not know yet that it was given up.
#[derive(Clone, Debug, Default)]
pub struct Sessions {
    gateways: Vec<Option<Incarnation>>,
    controllers: Vec<Option<Incarnation>>,
    devices: Vec<Option<Incarnation>>,
}

impl Sessions {
    /// A peer greets.
    pub fn greet(&mut self, peer: Address, incarnation: Incarnation) {
        let (lives, idx) = self.lives_mut(peer);
        if lives.len() <= idx {
            lives.resize(idx + 1, None);
        }
        lives[idx] = Some(incarnation);
    }

    /// A peer is gone, until it greets again.
    pub fn lose(&mut self, peer: Address) {
        let (lives, idx) = self.lives_mut(peer);
        if let Some(life) = lives.get_mut(idx) {
            *life = None;
        }
    }

    /// Whether what a peer said in that life counts.
    pub fn counts(&self, peer: Address, incarnation: Incarnation) -> bool {
        self.life(peer) == Some(incarnation)
    }

    /// Whether a peer is known that has another life: it was never lost.
    pub fn knows_other(&self, peer: Address, incarnation: Incarnation) -> bool {
        self.life(peer).is_some_and(|life| life != incarnation)
    }

    fn life(&self, peer: Address) -> Option<Incarnation> {
        let life = match peer {
            Address::Gateway(id) => self.gateways.get(usize::from(id.0)),
            Address::Controller(id) => self.controllers.get(id.idx()),
            Address::Device(id) => self.devices.get(id.idx()),
        };
        *life?
    }

    fn lives_mut(&mut self, peer: Address) -> (&mut Vec<Option<Incarnation>>, usize) {
        match peer {
            Address::Gateway(id) => (&mut self.gateways, usize::from(id.0)),
            Address::Controller(id) => (&mut self.controllers, id.idx()),
            Address::Device(id) => (&mut self.devices, id.idx()),
        }
    }
}

/// Workers by id.
#[derive(Clone, Debug, Default)]
pub struct Places(Vec<Option<Place>>);

impl Places {
    /// These workers.
    pub fn new(places: &[Place]) -> Self {
        let n = places.iter().map(|p| p.worker.idx() + 1).max().unwrap_or(0);
        let mut by_id = vec![None; n];
        for place in places {
            by_id[place.worker.idx()] = Some(*place);
        }
        Places(by_id)
    }

    /// A worker joins. Another one of that id is forgotten.
    pub fn join(&mut self, place: Place) {
        let idx = place.worker.idx();
        if self.0.len() <= idx {
            self.0.resize(idx + 1, None);
        }
        self.0[idx] = Some(place);
    }

    /// A worker is one of the pipeline's no more.
    pub fn leave(&mut self, worker: WorkerId) {
        if let Some(place) = self.0.get_mut(worker.idx()) {
            *place = None;
        }
    }

    /// Where a worker is; `None` for one of another pipeline.
    pub fn get(&self, worker: WorkerId) -> Option<Place> {
        *self.0.get(worker.idx())?
    }

    /// All, in order of id.
    pub fn iter(&self) -> impl Iterator<Item = &Place> {
        self.0.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_life_that_greeted_last_counts() {
        let device = Address::Device(DeviceId(3));
        let mut sessions = Sessions::default();
        assert!(!sessions.counts(device, Incarnation(1)), "it never greeted");
        sessions.greet(device, Incarnation(1));
        assert!(sessions.counts(device, Incarnation(1)));
        sessions.lose(device);
        assert!(!sessions.counts(device, Incarnation(1)));
        sessions.greet(device, Incarnation(2));
        assert!(!sessions.counts(device, Incarnation(1)));
        assert!(sessions.counts(device, Incarnation(2)));
    }
}
