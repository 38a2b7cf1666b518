//! Names of devices: of the machine, and in a topology.

use std::fmt;

use spillgate_backend::torch;

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

impl DeviceName {
    /// From its name among all devices, as [`fmt::Display`] writes it.
    pub(crate) fn of(name: &str) -> Self {
        let (process, device) = name.split_once('/').unwrap_or(("", name));
        DeviceName {
            process: process.to_owned(),
            device: device.to_owned(),
        }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.process.as_str() {
            "" => f.write_str(&self.device),
            process => write!(f, "{process}/{}", self.device),
        }
    }
}
