//! What a process is in a set: its name, its roles, and how it knows the others.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use spillgate_controller::host::Roles;
use spillgate_link::tls::LinkTls;
use spillgate_pipeline::id::{DeviceId, GatewayId, Incarnation, ModuleId};
use spillgate_protocol::membership::{Member, MemberDevice};
use spillgate_protocol::session::Timing;
use spillgate_protocol::session::rights::{Kind, LinkProcess};
use spillgate_protocol::topology::{Process, Topology};

use crate::device_sharing::DeviceSharing;
use crate::reload::Reload;

/// How a process knows the others of its set.
#[derive(Clone, Debug)]
pub enum KnownBy {
    /// By a file that names all of them.
    Topology,
    /// It registers with these controllers, each a host and a port, and hears of the others from them.
    Controllers(Vec<String>),
}

/// What a process is for one of its pipelines.
#[derive(Clone, Debug)]
pub struct PipelineRole {
    /// The name of the pipeline.
    pub pipeline: String,
    /// The processes of the topology; this one alone where it registers.
    pub topology: Arc<Topology>,
    /// The position of this one.
    pub process: usize,
}

impl PipelineRole {
    /// The process, as its topology has it.
    pub fn process(&self) -> &Process {
        &self.topology.processes[self.process]
    }

    /// Whether the process has workers of a module.
    pub fn runs(&self, module: ModuleId) -> bool {
        let workers = &self.process().workers;
        workers
            .iter()
            .any(|(of, devices)| *of == module && !devices.is_empty())
    }

    /// Whether the process is one of that kind. One that has nothing of the pipeline is a worker ([`Member::is_worker`]).
    pub fn is(&self, kind: Kind) -> bool {
        let of = self.process();
        let is_gateway = of.gateway.is_some();
        let is_controller = !of.controllers.is_empty();
        match kind {
            Kind::Gateway => is_gateway,
            Kind::Controller => is_controller,
            Kind::Worker => !of.workers.is_empty() || !(is_gateway || is_controller),
        }
    }
}

/// What a process is in a set.
#[derive(Clone, Debug)]
pub struct ProcessRole {
    /// Its name.
    pub name: Arc<str>,
    /// What it is for each pipeline that it serves, at least one.
    pub pipelines: Vec<PipelineRole>,
    /// When a silent process is suspected, and when it is lost.
    pub timing: Timing,
    /// How it knows the others.
    pub known_by: KnownBy,
    /// The name of the set.
    pub set: Arc<str>,
    /// This life of it.
    pub incarnation: Incarnation,
    /// Where it listens for other processes; `None`: none reaches it.
    pub listener: Option<Arc<TcpListener>>,
    /// Where others reach it. Without a host: at the host from which it dials.
    pub address: Option<String>,
    /// The placement of its devices; `None`: they keep the models that they have loaded.
    pub sharing: Option<DeviceSharing>,
    /// Certificates on both sides of each connection with other processes; `None`: plain text.
    pub tls: Option<Arc<LinkTls>>,
}

impl ProcessRole {
    /// What it is for the pipeline of that name; `None`: it holds nothing of it.
    pub fn of(&self, pipeline: &str) -> Option<&PipelineRole> {
        self.pipelines.iter().find(|of| of.pipeline == pipeline)
    }

    /// Whether it is one of that kind, for any pipeline.
    pub fn is(&self, kind: Kind) -> bool {
        self.pipelines.iter().any(|of| of.is(kind))
    }

    /// Whether it has workers of a module of a pipeline.
    pub fn runs(&self, pipeline: &str, module: ModuleId) -> bool {
        self.of(pipeline).is_some_and(|of| of.runs(module))
    }

    /// Where it listens.
    pub fn listen(&self) -> Option<SocketAddr> {
        self.listener.as_ref()?.local_addr().ok()
    }

    /// The roles of the process for a pipeline; `devices` are those that it has for it.
    pub(crate) fn roles(&self, of: &PipelineRole, devices: Vec<DeviceId>) -> Roles {
        let of = of.process();
        Roles {
            incarnation: self.incarnation,
            // Each process calls its own gateway the first one.
            gateway: of.gateway.map(|_| GatewayId(0)),
            controllers: of.controllers.clone(),
            devices,
        }
    }

    /// What it says that it is for a pipeline; `devices` are those that it has for it.
    pub(crate) fn member(&self, of: &PipelineRole, devices: Vec<MemberDevice>) -> Member {
        let of = of.process();
        Member {
            name: self.name.clone(),
            incarnation: self.incarnation,
            version: env!("CARGO_PKG_VERSION").into(),
            address: self.address.as_deref().map(Into::into),
            is_gateway: of.gateway.is_some(),
            controllers: of.controllers.clone(),
            devices,
        }
    }

    /// What its certificate should cover.
    pub fn link_process(&self) -> LinkProcess {
        let kinds = [Kind::Gateway, Kind::Controller, Kind::Worker];
        LinkProcess {
            name: Some(self.name.clone()),
            kinds: kinds.into_iter().filter(|kind| self.is(*kind)).collect(),
        }
    }

    /// Adds what can be read anew while it serves.
    pub(crate) fn add_to(&self, reload: &mut Reload) {
        if let Some(tls) = self.tls.clone() {
            reload.add("certificates of links", tls.files(), move || {
                tls.reload().map_err(|error| error.to_string())
            });
        }
    }
}
