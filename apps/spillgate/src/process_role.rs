//! What a process is in a topology: one of its processes, with its roles.

use std::net::SocketAddr;
use std::sync::Arc;

use spillgate_controller::host::Roles;
use spillgate_link::tls::LinkTls;
use spillgate_pipeline::id::{DeviceId, Incarnation, ModuleId};
use spillgate_protocol::session::rights::LinkProcess;
use spillgate_protocol::topology::{Process, Topology};

use crate::device_name::resolve_device;
use crate::device_sharing::DeviceSharing;
use crate::reload::Reload;

/// What a process is in a topology.
#[derive(Clone, Debug)]
pub struct ProcessRole {
    /// The processes.
    pub topology: Arc<Topology>,
    /// The position of this one.
    pub process: usize,
    /// This life of it.
    pub incarnation: Incarnation,
    /// Where it listens for other processes; `None`: none reaches it.
    pub listen: Option<SocketAddr>,
    /// Certificates on both sides of each connection with other processes; `None`: plain text.
    pub tls: Option<Arc<LinkTls>>,
}

impl ProcessRole {
    /// The process, as its topology has it.
    pub fn process(&self) -> &Process {
        &self.topology.processes[self.process]
    }

    /// The name of the process.
    pub fn name(&self) -> &str {
        &self.process().name
    }

    /// Whether the process has workers of a module.
    pub fn runs(&self, module: ModuleId) -> bool {
        let workers = &self.process().workers;
        workers
            .iter()
            .any(|(of, devices)| *of == module && !devices.is_empty())
    }

    /// The placement of its devices, as the topology says; `None`: they keep the models that they have loaded.
    pub fn sharing(&self) -> Option<DeviceSharing> {
        let sharing = self.topology.sharing?;
        let of = self.process();
        let memory = of.memory.iter();
        Some(DeviceSharing {
            decider: sharing.decider,
            is_fair: sharing.is_fair,
            memory: memory
                .map(|(device, bytes)| (resolve_device(device), *bytes))
                .collect(),
        })
    }

    /// The roles of the process; `devices` are those that it has.
    pub(crate) fn roles(&self, devices: Vec<DeviceId>) -> Roles {
        let of = self.process();
        Roles {
            incarnation: self.incarnation,
            gateway: of.gateway,
            controllers: of.controllers.clone(),
            devices,
        }
    }

    /// What it is to its peers.
    pub fn member(&self) -> LinkProcess {
        LinkProcess::from(self.process())
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
