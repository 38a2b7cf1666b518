//! A process that is a part of a topology: which roles it holds, and how what they say to the roles of other processes travels.

use std::sync::{Arc, OnceLock, Weak};

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use sha2::{Digest, Sha256};
use spillgate_backend::account::{Account, Holder};
use spillgate_backend::job::{Frame, FrameFormat, Job, are_outputs_of};
use spillgate_controller::host::{Now, Outgoing, PipelineHost, Roles, Way};
use spillgate_controller_policy::plan::Planned;
use spillgate_link::links::{self, Links, LinksConfig, Security};
use spillgate_link::tls::LinkTls;
use spillgate_link::wire::{Brought, Parcel};
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::{DeviceId, GatewayId, ModuleId, WorkerId};
use spillgate_pipeline::message::{
    Address, Envelope, Incarnation, Message, Place, Places, ToDevice,
};
use spillgate_pipeline::session::rights::{Member, Roster, Seat};
use spillgate_pipeline::session::{Greeting, PipelineHash};
use spillgate_pipeline::topology::Topology;
use spillgate_worker::device::DeviceHandle;

use crate::reload::Reload;
use crate::status::DeviceName;

/// What a process is in a topology.
#[derive(Clone, Debug)]
pub struct Part {
    /// The processes.
    pub topology: Arc<Topology>,
    /// The position of this one.
    pub process: usize,
    /// This life of it.
    pub incarnation: Incarnation,
    /// Certificates on both sides of each connection with other processes; `None`: plain text.
    pub tls: Option<Arc<LinkTls>>,
}

impl Part {
    /// The name of the process.
    pub fn name(&self) -> &str {
        &self.topology.processes[self.process].name
    }

    /// Whether the process has workers of a module.
    pub fn runs(&self, module: ModuleId) -> bool {
        let workers = &self.topology.processes[self.process].workers;
        workers
            .iter()
            .any(|(of, devices)| *of == module && !devices.is_empty())
    }

    /// The roles of the process; `devices` are those that it has.
    pub(crate) fn roles(&self, devices: Vec<DeviceId>) -> Roles {
        let of = &self.topology.processes[self.process];
        Roles {
            incarnation: self.incarnation,
            gateway: of.gateway,
            controllers: of.controllers.clone(),
            devices,
        }
    }

    /// The role of each address, with its process.
    fn roster(&self, pipeline: &Pipeline, device_names: &[DeviceName]) -> Roster {
        let processes = (0..self.topology.processes.len()).flat_map(|process| {
            let name = &self.topology.processes[process].name;
            let roles = self.topology.roles(process).into_iter();
            roles.map(move |role| (role, name.clone()))
        });
        let devices = (0..).map(|id| Address::Device(DeviceId(id)));
        let devices = devices
            .zip(device_names)
            .map(|(device, (process, _))| (device, process.as_str().into()));
        let seats = processes.chain(devices).map(|(role, process)| {
            let what = match role {
                Address::Gateway(_) => "gateway".to_owned(),
                Address::Controller(module) => {
                    format!("controller of {}", pipeline.modules[module.idx()].name)
                }
                Address::Device(_) => "worker".to_owned(),
            };
            (role, Seat { process, what })
        });
        seats.collect()
    }

    /// What it is to its peers.
    pub fn member(&self) -> Member {
        Member::from(&self.topology.processes[self.process])
    }

    /// Adds what can be read anew while it serves.
    pub(crate) fn add_to(&self, reload: &mut Reload) {
        if let Some(tls) = self.tls.clone() {
            reload.add("certificates of links", move || {
                tls.reload().map_err(|error| error.to_string())
            });
        }
    }

    /// What the process says about itself. Processes that would decide by other numbers have another hash.
    fn greeting(&self, roles: &Roles, pipeline: &Pipeline, planned: &Planned) -> Greeting {
        let text = format!("{pipeline:?} {planned:?} {:?}", self.topology);
        Greeting {
            addresses: roles.addresses(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pipeline: PipelineHash(Sha256::digest(text).into()),
            incarnation: self.incarnation,
        }
    }
}

/// The way from a host to other processes, which exists before the links do.
#[derive(Clone)]
pub(crate) struct Elsewhere {
    links: Arc<OnceLock<Arc<Links>>>,
    host: Arc<OnceLock<Weak<PipelineHost>>>,
    pipeline: Arc<Pipeline>,
    places: Arc<Places>,
}

impl Elsewhere {
    pub(crate) fn new(pipeline: Arc<Pipeline>, places: &[Place]) -> Self {
        Elsewhere {
            links: Arc::default(),
            host: Arc::default(),
            pipeline,
            places: Arc::new(Places::new(places)),
        }
    }

    /// The way for the host.
    pub(crate) fn way(&self) -> Way {
        let this = self.clone();
        Arc::new(move |outgoing: Outgoing| {
            // Without links there is no peer that could have been spoken to.
            let Some(links) = this.links.get() else {
                return;
            };
            let Outgoing { envelope, brought } = outgoing;
            let envelope = envelope.map(|worker, job| this.parcel(worker, &job));
            if let Err(unsent) = links.send(envelope, brought) {
                this.refuse(links, unsent);
            }
        })
    }

    /// Requests that find no room on their way are dropped. A worker that asked for them hears that there are none.
    fn refuse(&self, links: &Links, mut unsent: Envelope<Parcel>) {
        let requests = match &mut unsent.message {
            Message::Device(message) => {
                let requests = message.requests();
                if let ToDevice::Answer(answer) = message {
                    answer.requests.clear();
                    let _ = links.send(unsent, Vec::new());
                }
                requests
            }
            _ => return,
        };
        if let Some(host) = self.host.get().and_then(Weak::upgrade) {
            host.unsent(requests.into_iter());
        }
    }

    /// What a worker needs of a request.
    fn parcel(&self, worker: WorkerId, job: &Job) -> Parcel {
        let Some(place) = self.places.get(worker) else {
            return Parcel::default();
        };
        if place.module == ModuleId::SOURCE {
            return Parcel {
                frame: Some(job.frame().clone()),
                outputs: Vec::new(),
            };
        }
        let inputs = self.pipeline.modules[place.module.idx()].inputs.iter();
        let mut modules: Vec<ModuleId> = inputs.flatten().map(|port| port.module).collect();
        modules.sort_unstable();
        modules.dedup();
        let outputs = modules.into_iter();
        let outputs = outputs.filter_map(|module| Some((module, job.outputs(module)?.clone())));
        Parcel {
            frame: None,
            outputs: outputs.collect(),
        }
    }
}

/// The roles of this process, as its links see them.
struct Local {
    host: Arc<PipelineHost>,
    devices: IndexMap<DeviceId, DeviceHandle, FxBuildHasher>,
    places: Arc<Places>,
    /// Of values that other processes sent.
    holder: Arc<Holder>,
    /// The process of each role.
    roster: Roster,
}

impl Local {
    /// The values of a request at a worker of this process.
    fn job(&self, parcel: Parcel) -> Arc<Job> {
        let Parcel { frame, outputs } = parcel;
        let frame = frame.unwrap_or(Frame {
            format: FrameFormat::Bytes,
            data: bytes::Bytes::new(),
            width: 0,
            height: 0,
        });
        let modules = &self.host.pipeline().modules;
        let job = Job::new(frame, None, modules.len(), self.holder.clone());
        for (module, outputs) in outputs {
            let of = modules.get(module.idx());
            if of.is_some_and(|of| are_outputs_of(of, &outputs)) {
                // The account has no bound that it could break.
                let _ = job.set_outputs(module, outputs);
            }
        }
        Arc::new(job)
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

    fn each_device(&self, peer: &Greeting, tell: impl Fn(&DeviceHandle, GatewayId)) {
        for home in Self::gateways(peer) {
            for device in self.devices.values() {
                tell(device, home);
            }
        }
    }
}

impl links::Roles for Local {
    fn met(&self, peer: &Greeting) {
        tracing::info!(
            peer = self.name(peer),
            life = peer.incarnation.0,
            "peer met"
        );
        self.host.met(&peer.addresses, peer.incarnation);
        self.each_device(peer, DeviceHandle::greet);
    }

    fn parted(&self, peer: &Greeting, cause: &str) {
        tracing::warn!(
            peer = self.name(peer),
            life = peer.incarnation.0,
            cause,
            "peer lost"
        );
        self.host.parted(&peer.addresses, cause);
        self.each_device(peer, DeviceHandle::lose);
    }

    fn doubted(&self, peer: &Greeting, is_suspected: bool) {
        let peer_name = self.name(peer);
        match is_suspected {
            true => tracing::warn!(peer = peer_name, "peer is silent and suspected"),
            false => tracing::info!(peer = peer_name, "peer speaks again"),
        }
        self.host.doubted(&peer.addresses, is_suspected);
        if is_suspected {
            self.each_device(peer, DeviceHandle::suspect);
        }
    }

    fn heard(&self, envelope: Envelope<Parcel>, brought: Vec<Brought>) {
        let envelope = envelope.map(|_, parcel| self.job(parcel));
        let Address::Device(device) = envelope.to else {
            return self.host.heard(envelope, brought);
        };
        let Some(device) = self.devices.get(&device) else {
            return;
        };
        let from = envelope.from;
        if let Message::Device(message) = envelope.message
            && message.is_for(from, &self.places)
        {
            device.tell(from, message);
        }
    }
}

/// What links a process to the others.
pub(crate) struct Linked<'a> {
    pub(crate) part: &'a Part,
    pub(crate) roles: &'a Roles,
    pub(crate) host: &'a Arc<PipelineHost>,
    pub(crate) planned: &'a Planned,
    pub(crate) devices: IndexMap<DeviceId, DeviceHandle, FxBuildHasher>,
    /// By id: the process that has the device, and the device's name there.
    pub(crate) device_names: &'a [DeviceName],
    pub(crate) elsewhere: &'a Elsewhere,
    pub(crate) now: Now,
}

impl Linked<'_> {
    /// The links, which dial nobody yet.
    pub(crate) fn links(self) -> Arc<Links> {
        let greeting = self
            .part
            .greeting(self.roles, self.host.pipeline(), self.planned);
        let roster = self.part.roster(self.host.pipeline(), self.device_names);
        let tls = self.part.tls.clone();
        let security = tls.map(|tls| Security {
            tls,
            roster: roster.clone(),
        });
        let local = Local {
            host: self.host.clone(),
            devices: self.devices,
            places: self.elsewhere.places.clone(),
            holder: Account::unbounded().holder(),
            roster,
        };
        let links = Links::new(LinksConfig {
            me: Arc::new(greeting),
            timing: self.part.topology.timing,
            seed: self.part.incarnation.0,
            now: self.now,
            roles: Arc::new(local),
            security,
        });
        let _ = self.elsewhere.host.set(Arc::downgrade(self.host));
        let _ = self.elsewhere.links.set(links.clone());
        links
    }
}
