//! How what the roles of this process say to those of other processes travels.

use std::sync::{Arc, OnceLock, Weak};

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_controller::host::{OnEnded, Outgoing, OutgoingSender, PipelineHost};
use spillgate_link::links::{self, PeerLinks, PeerLinksConfig, PeerRoles};
use spillgate_link::wire::{self, Parcel};
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::{DeviceId, GatewayId, RequestId, WorkerId};
use spillgate_pipeline::request::{Drop, DropReason, Request};
use spillgate_process::account::Account;
use spillgate_process::clock::Clock;
use spillgate_protocol::membership::{Member, MemberIds, OwnIds};
use spillgate_protocol::message::{Address, Envelope, Message, Place, ToDevice, ToGateway};
use spillgate_protocol::session::{Greeting, WireVersions};
use spillgate_protocol::values::Peer;
use spillgate_telemetry::Processes;

use crate::agreement;
use crate::device_name::DeviceNames;
use crate::devices::Device;
use crate::process_role::ProcessRole;
use crate::profile_agreement::ProfileAgreement;
use crate::set_links::SetLinks;
use crate::values::{Unpacked, Values};

/// The way from a host to other processes, which exists before the links do.
#[derive(Clone)]
pub(crate) struct RemoteRouter {
    links: Arc<OnceLock<Arc<PeerLinks>>>,
    host: Arc<OnceLock<Weak<PipelineHost>>>,
    values: Arc<Values>,
}

impl RemoteRouter {
    /// `own`: the workers of this process. `account`: of what other processes send.
    pub(crate) fn new(pipeline: Arc<Pipeline>, own: &[Place], account: Arc<Account>) -> Self {
        RemoteRouter {
            links: Arc::default(),
            host: Arc::default(),
            values: Arc::new(Values::new(pipeline, own, account)),
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
    device_names: DeviceNames,
    processes: Processes,
    profiles: ProfileAgreement,
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
        if !message.is_for(from, self.host.workers()) {
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
        let Some(place) = self.host.workers().get(worker) else {
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

    fn gateways(peer: &PeerRoles) -> impl Iterator<Item = GatewayId> {
        peer.addresses.iter().filter_map(|address| match address {
            Address::Gateway(id) => Some(*id),
            _ => None,
        })
    }

    /// The workers of this process.
    fn own_workers(&self) -> Vec<WorkerId> {
        self.host.workers().iter().map(|of| of.worker).collect()
    }

    fn each_device(&self, peer: &PeerRoles, tell: impl Fn(&Device, GatewayId)) {
        for gateway in Self::gateways(peer) {
            for device in self.devices.values() {
                tell(device, gateway);
            }
        }
    }
}

impl links::Roles for LocalRoles {
    fn joined(&self, member: &Arc<Member>, ids: &MemberIds) {
        self.device_names.join(member, &ids.devices);
        let workers = ids.places.iter().map(|place| place.worker);
        let pipeline = self.host.pipeline();
        self.processes.join(pipeline, &member.name, workers);
        self.router.values.join(&ids.places);
        // The host last: from then on it may send to these workers.
        self.host.join(&ids.places);
    }

    fn left(&self, member: &Arc<Member>, ids: &MemberIds) {
        tracing::info!(peer = &*member.name, "peer left");
        // The host first: from then on it sends nothing to these workers.
        self.host.forget(&ids.devices);
        self.router.values.forget(&ids.places, ids.gateway);
        self.device_names.forget(&ids.devices);
        self.profiles.left(member);
    }

    fn met(&self, peer: &PeerRoles) {
        let member = peer.member();
        let life = member.incarnation;
        tracing::info!(peer = &*member.name, life = life.0, "peer met");
        if &*member.version != env!("CARGO_PKG_VERSION") {
            let (theirs, mine) = (&*member.version, env!("CARGO_PKG_VERSION"));
            tracing::warn!(
                peer = &*member.name,
                theirs,
                mine,
                "the peer runs another version of the program"
            );
        }
        Self::gateways(peer).for_each(|gateway| self.router.values.loses(gateway));
        let wrong = self.profiles.joined(member, self.host.pipeline());
        if let Some(links) = self.router.links.get() {
            // Of all that see it the controllers say so.
            links.find(&member.name, wrong.as_deref(), self.host.has_controllers());
        }
        self.host.met(&peer.addresses, life);
        let workers = self.own_workers();
        self.each_device(peer, |device, gateway| device.greet(gateway, &workers));
    }

    fn parted(&self, peer: &PeerRoles, cause: &str) {
        let member = peer.member();
        let life = member.incarnation.0;
        tracing::warn!(peer = &*member.name, life, cause, "peer lost");
        Self::gateways(peer).for_each(|gateway| self.router.values.loses(gateway));
        self.host.parted(&peer.addresses, cause);
        self.each_device(peer, Device::lose);
    }

    fn doubted(&self, peer: &PeerRoles, is_suspected: bool) {
        let name = &*peer.member().name;
        match is_suspected {
            true => tracing::warn!(
                peer = name,
                "peer is suspected: silent, or without an answer"
            ),
            false => tracing::info!(peer = name, "peer answers again"),
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

    fn ended(&self, requests: Vec<RequestId>) {
        self.router.values.ended(requests.into_iter());
    }

    fn lacking(&self, peer: Peer, roles: &PeerRoles, envelope: Envelope<Parcel>) {
        if let Message::Device(message) = &envelope.message {
            let ids = message.requests().into_iter().map(|(_, id)| id);
            self.router.values.lacks(peer, ids);
        }
        self.host.lacking(envelope, roles.member().incarnation);
    }
}

/// What links a process to the others that serve a pipeline.
pub(crate) struct LinkSetup<'a> {
    pub(crate) role: &'a ProcessRole,
    pub(crate) host: &'a Arc<PipelineHost>,
    /// What the process is.
    pub(crate) member: Member,
    /// The ids of its roles.
    pub(crate) own: OwnIds,
    /// The other processes of the topology.
    pub(crate) others: &'a [Arc<Member>],
    /// Those that have workers of the pipeline.
    pub(crate) devices: IndexMap<DeviceId, Device, FxBuildHasher>,
    /// Of this process; those of the others are added.
    pub(crate) device_names: DeviceNames,
    /// What it has in common with the links of other revisions.
    pub(crate) set: &'a SetLinks,
    pub(crate) router: &'a RemoteRouter,
    pub(crate) clock: Clock,
}

impl LinkSetup<'_> {
    /// The links, which dial nobody yet.
    pub(crate) fn links(self) -> Arc<PeerLinks> {
        let pipeline = self.host.pipeline();
        let greeting = Greeting {
            member: Arc::new(self.member),
            set: self.role.set.clone(),
            pipeline: pipeline.name.as_str().into(),
            hash: agreement::hash(pipeline),
            wire: WireVersions::OWN,
            published: None,
        };
        let own = self.own.ids.places.iter().map(|place| place.worker);
        let name = &greeting.member.name;
        self.set.processes.join(pipeline, name, own);
        let local = LocalRoles {
            host: self.host.clone(),
            devices: self.devices,
            router: self.router.clone(),
            device_names: self.device_names,
            processes: self.set.processes.clone(),
            profiles: ProfileAgreement::default(),
        };
        let [a, b, c, d, ..] = greeting.hash.0;
        let links = PeerLinks::new(PeerLinksConfig {
            me: Arc::new(greeting),
            own: self.own,
            fixed: self.others.to_vec(),
            timing: self.role.timing,
            // The pipelines of a process do not dial at the same times.
            seed: self.role.incarnation.0 ^ u64::from(u32::from_le_bytes([a, b, c, d])),
            now: Arc::new(move || self.clock.now()),
            roles: Arc::new(local),
            tls: self.role.tls.clone(),
            complaints: self.set.complaints.clone(),
            revisions: self.set.revisions(),
        });
        let _ = self.router.host.set(Arc::downgrade(self.host));
        let _ = self.router.links.set(links.clone());
        links
    }
}

#[cfg(test)]
mod tests;
