//! Names of devices: of the machine, and in a topology.

use std::fmt;
use std::sync::Arc;

use indexmap::IndexMap;
use parking_lot::RwLock;
use rustc_hash::FxBuildHasher;
use spillgate_backend::torch;
use spillgate_pipeline::id::DeviceId;
use spillgate_protocol::membership::Member;

/// The resolved name of a device: `auto`, `cpu` and `cuda` get their ordinal; `auto` is the first GPU, else the CPU.
pub fn resolve_device(name: &str) -> String {
    match name {
        "auto" => torch::auto(),
        "cpu" => "cpu:0".to_owned(),
        "cuda" => "cuda:0".to_owned(),
        other => other.to_owned(),
    }
}

/// A device of a topology.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeviceName {
    /// The process that has it; empty where a process is no part of a topology.
    pub(crate) process: String,
    /// Its name there.
    pub(crate) device: String,
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.process.as_str() {
            "" => f.write_str(&self.device),
            process => write!(f, "{process}/{}", self.device),
        }
    }
}

/// The names of the devices of all processes that are known. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeviceNames(Arc<RwLock<IndexMap<DeviceId, DeviceName, FxBuildHasher>>>);

impl DeviceNames {
    /// Those of this process.
    pub(crate) fn new(own: impl IntoIterator<Item = (DeviceId, DeviceName)>) -> Self {
        DeviceNames(Arc::new(RwLock::new(own.into_iter().collect())))
    }

    /// Another process has devices of these ids, in its order.
    pub(crate) fn join(&self, member: &Member, ids: &[DeviceId]) {
        let names = member.devices.iter().map(|device| DeviceName {
            process: member.name.to_string(),
            device: device.name.to_string(),
        });
        self.0.write().extend(ids.iter().copied().zip(names));
    }

    /// These devices have left.
    pub(crate) fn forget(&self, ids: &[DeviceId]) {
        self.0.write().retain(|id, _| !ids.contains(id));
    }

    /// The name of a device; an empty one where it has left.
    pub(crate) fn of(&self, device: DeviceId) -> DeviceName {
        self.0.read().get(&device).cloned().unwrap_or_default()
    }
}
