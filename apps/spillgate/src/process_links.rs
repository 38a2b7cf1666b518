//! How what the roles of this process say to those of other processes travels.

use std::sync::{Arc, OnceLock, Weak};

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_controller::host::{OnEnded, Outgoing, OutgoingSender, PipelineHost, Roles};
use spillgate_controller_policy::plan::Planned;
use spillgate_link::links::{self, PeerLinks, PeerLinksConfig, Security};
use spillgate_link::wire::{self, Parcel};
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::{DeviceId, GatewayId, RequestId, WorkerId};
use spillgate_pipeline::request::{Drop, DropReason, Request};
use spillgate_process::account::Account;
use spillgate_process::clock::Clock;
use spillgate_protocol::message::{Address, Envelope, Message, Place, Places, ToDevice, ToGateway};
use spillgate_protocol::session::Greeting;
use spillgate_protocol::session::rights::{RoleHolder, Roster};
use spillgate_protocol::values::Peer;

use crate::agreement;
use crate::device_name::DeviceName;
use crate::devices::Device;
use crate::process_role::ProcessRole;
use crate::values::{Unpacked, Values};

/// The way from a host to other processes, which exists before the links do.
#[derive(Clone)]
pub(crate) struct RemoteRouter {
    links: Arc<OnceLock<Arc<PeerLinks>>>,
    host: Arc<OnceLock<Weak<PipelineHost>>>,
    places: Arc<Places>,
    values: Arc<Values>,
}

impl RemoteRouter {
    /// `device_names`: by id, the process that has the device, and its name there. `account`: of what other processes send.
    pub(crate) fn new(
        pipeline: Arc<Pipeline>,
        places: &[Place],
        device_names: &[DeviceName],
        account: Arc<Account>,
    ) -> Self {
        let places = Arc::new(Places::new(places));
        let values = Values::new(pipeline, places.clone(), device_names, account);
        RemoteRouter {
            links: Arc::default(),
            host: Arc::default(),
            places,
            values: Arc::new(values),
        }
    }

    /// What is kept and held for other processes.
    pub(crate) fn values(&self) -> Arc<Values> {
        self.values.clone()
    }

    /// The way for the host.
    pub(crate) fn way(&self) -> OutgoingSender {
        let this = self.clone();
        Arc::new(move |outgoing: Outgoing| {
            // Without links there is no peer that could have been spoken to.
            if let Some(links) = this.links.get()
                && let Some(way) = links.way(outgoing.envelope.to)
            {
                this.send(links, &way, outgoing);
            }
        })
    }

    fn send(&self, links: &PeerLinks, way: &links::PeerSender, outgoing: Outgoing) {
        let Outgoing { envelope, brought } = outgoing;
        let brought = self.values.bring(&envelope, brought);
        let turn = way.turn();
        let (envelope, told) = self.values.pack(way.peer(), envelope);
        let sent = way.send(envelope, brought);
        drop(turn);
        if let Err(unsent) = sent {
            self.drop_unsent(way, unsent);
        }
        let ended = self.values.ended_since(way.peer(), told);
        if !ended.is_empty() {
            links.tell_ended(way.peer(), ended);
        }
    }

    /// Requests that find no room on their way are dropped. A worker that asked for them hears that there are none.
    fn drop_unsent(&self, way: &links::PeerSender, mut unsent: Envelope<Parcel>) {
        let requests = match &mut unsent.message {
            Message::Device(message) => {
                let requests = message.requests();
                if let ToDevice::Answer(answer) = message {
                    answer.requests.clear();
                    let _ = way.send(unsent, Vec::new());
                }
                requests
            }
            _ => return,
        };
        let ids = requests.iter().map(|(_, id)| *id);
        self.values.lacks(way.peer(), ids);
        if let Some(host) = self.host.get().and_then(Weak::upgrade) {
            host.unsent(requests.into_iter());
        }
    }

    /// Told of each request of the host's gateway that has ended.
    pub(crate) fn on_ended(&self) -> OnEnded {
        let this = self.clone();
        Box::new(move |request| {
            let Some(links) = this.links.get() else {
                return;
            };
            for peer in this.values.ends(request) {
                links.tell_ended(peer, vec![request]);
            }
        })
    }

    /// Gives requests back to the process of their gateway: they refer to values that are not kept here.
    fn give_back(&self, peer: Peer, requests: Envelope<Parcel>) {
        if let Some(links) = self.links.get() {
            links.give_back(peer, requests);
        }
    }
}

/// The roles of this process, as its links see them.
struct LocalRoles {
    host: Arc<PipelineHost>,
    devices: IndexMap<DeviceId, Device, FxBuildHasher>,
    router: RemoteRouter,
    /// The process of each role.
    roster: Roster,
}

impl LocalRoles {
    /// A gateway or controller of another process says something to a device of this one.
    fn tell_device(&self, peer: Peer, device: DeviceId, envelope: Envelope<Parcel>) {
        let Some(device) = self.devices.get(&device) else {
            return;
        };
        let from = envelope.from;
        let Message::Device(message) = &envelope.message else {
            return;
        };
        if !message.is_for(from, &self.router.places) {
            return;
        }
        let Unpacked { envelope, refused } = match self.router.values.unpack(envelope) {
            Ok(unpacked) => unpacked,
            Err(lacking) => return self.router.give_back(peer, lacking),
        };
        for (worker, request) in refused {
            self.drop_request(worker, &request);
        }
        if let Message::Device(message) = envelope.message {
            device.tell(from, message);
        }
    }

    /// The values of a request find no room.
    fn drop_request(&self, worker: WorkerId, request: &Request) {
        let Some(place) = self.router.places.get(worker) else {
            return;
        };
        let at = self.host.now();
        let drop = Drop {
            module: place.module,
            reason: DropReason::Memory,
            at,
            budget: request.deadline.budget_at(at),
            estimate: None,
        };
        let dropped = ToGateway::Dropped {
            worker,
            request: request.id,
            drop: Box::new(drop),
        };
        self.host.device_says(worker, request.id.owner(), dropped);
    }

    /// The name of a process in the topology.
    fn name(&self, peer: &Greeting) -> &str {
        let seat = peer
            .addresses
            .first()
            .and_then(|role| self.roster.get(role));
        seat.map_or("a process without a name", |seat| &seat.process)
    }

    fn gateways(peer: &Greeting) -> impl Iterator<Item = GatewayId> {
        peer.addresses.iter().filter_map(|address| match address {
            Address::Gateway(id) => Some(*id),
            _ => None,
        })
    }

    fn each_device(&self, peer: &Greeting, tell: impl Fn(&Device, GatewayId)) {
        for gateway in Self::gateways(peer) {
            for device in self.devices.values() {
                tell(device, gateway);
            }
        }
    }
}

impl links::Roles for LocalRoles {
    fn met(&self, peer: &Greeting) {
        tracing::info!(
            peer = self.name(peer),
            life = peer.incarnation.0,
            "peer met"
        );
        Self::gateways(peer).for_each(|gateway| self.router.values.loses(gateway));
        self.host.met(&peer.addresses, peer.incarnation);
        self.each_device(peer, Device::greet);
    }

    fn parted(&self, peer: &Greeting, cause: &str) {
        tracing::warn!(
            peer = self.name(peer),
            life = peer.incarnation.0,
            cause,
            "peer lost"
        );
        Self::gateways(peer).for_each(|gateway| self.router.values.loses(gateway));
        self.host.parted(&peer.addresses, cause);
        self.each_device(peer, Device::lose);
    }

    fn doubted(&self, peer: &Greeting, is_suspected: bool) {
        let peer_name = self.name(peer);
        match is_suspected {
            true => tracing::warn!(
                peer = peer_name,
                "peer is suspected: silent, or without an answer"
            ),
            false => tracing::info!(peer = peer_name, "peer answers again"),
        }
        self.host.doubted(&peer.addresses, is_suspected);
        if is_suspected {
            self.each_device(peer, Device::suspect);
        }
    }

    fn heard(&self, peer: Peer, envelope: Envelope<Parcel>, brought: Vec<wire::ItemOutputs>) {
        if let Address::Device(device) = envelope.to {
            return self.tell_device(peer, device, envelope);
        }
        let brought = self.router.values.take(peer, &envelope, brought);
        // Only devices get requests.
        let envelope = envelope.filter_map(|_, _, _| None);
        self.host.heard(envelope, brought);
    }

    fn ended(&self, peer: &Greeting, requests: Vec<RequestId>) {
        let its: Vec<GatewayId> = Self::gateways(peer).collect();
        let of_its = requests.into_iter().filter(|id| its.contains(&id.owner()));
        self.router.values.ended(of_its);
    }

    fn lacking(&self, peer: Peer, greeting: &Greeting, envelope: Envelope<Parcel>) {
        if let Message::Device(message) = &envelope.message {
            let ids = message.requests().into_iter().map(|(_, id)| id);
            self.router.values.lacks(peer, ids);
        }
        self.host.lacking(envelope, greeting.incarnation);
    }
}

/// What links a process to the others.
pub(crate) struct LinkSetup<'a> {
    pub(crate) role: &'a ProcessRole,
    pub(crate) roles: &'a Roles,
    pub(crate) host: &'a Arc<PipelineHost>,
    pub(crate) planned: &'a Planned,
    pub(crate) devices: IndexMap<DeviceId, Device, FxBuildHasher>,
    /// By id: the process that has the device, and the device's name there.
    pub(crate) device_names: &'a [DeviceName],
    pub(crate) router: &'a RemoteRouter,
    pub(crate) clock: Clock,
}

impl LinkSetup<'_> {
    /// The links, which dial nobody yet.
    pub(crate) fn links(self) -> Arc<PeerLinks> {
        let greeting = greeting(self.role, self.roles, self.host.pipeline(), self.planned);
        let roster = roster(self.role, self.host.pipeline(), self.device_names);
        let tls = self.role.tls.clone();
        let security = tls.map(|tls| Security {
            tls,
            roster: roster.clone(),
        });
        let local = LocalRoles {
            host: self.host.clone(),
            devices: self.devices,
            router: self.router.clone(),
            roster,
        };
        let links = PeerLinks::new(PeerLinksConfig {
            me: Arc::new(greeting),
            timing: self.role.topology.timing,
            seed: self.role.incarnation.0,
            now: Arc::new(move || self.clock.now()),
            roles: Arc::new(local),
            security,
        });
        let _ = self.router.host.set(Arc::downgrade(self.host));
        let _ = self.router.links.set(links.clone());
        links
    }
}

/// The role of each address, with its process.
fn roster(role: &ProcessRole, pipeline: &Pipeline, device_names: &[DeviceName]) -> Roster {
    let topology = &role.topology;
    let processes = (0..topology.processes.len()).flat_map(|process| {
        let name = &topology.processes[process].name;
        let roles = topology.roles(process).into_iter();
        roles.map(move |role| (role, name.clone()))
    });
    let devices = (0..).map(|id| Address::Device(DeviceId(id)));
    let devices = devices
        .zip(device_names)
        .map(|(device, name)| (device, name.process.as_str().into()));
    let seats = processes.chain(devices).map(|(role, process)| {
        let what = match role {
            Address::Gateway(_) => "gateway".to_owned(),
            Address::Controller(module) => {
                format!("controller of {}", pipeline.modules[module.idx()].name)
            }
            Address::Device(_) => "worker".to_owned(),
        };
        (role, RoleHolder { process, what })
    });
    seats.collect()
}

/// What the process says about itself. Processes that would decide by other numbers have another hash.
fn greeting(role: &ProcessRole, roles: &Roles, pipeline: &Pipeline, planned: &Planned) -> Greeting {
    Greeting {
        addresses: roles.addresses(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pipeline: agreement::hash(pipeline, planned, &role.topology),
        incarnation: role.incarnation,
    }
}
