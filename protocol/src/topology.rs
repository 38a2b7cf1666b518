//! The processes that serve a pipeline together, and which roles each of them holds, where a file says so for all of them.
//!
//! ```yaml
//! processes:
//!   - { name: gateway-0, gateway: true }
//!   - { name: controller-0, controllers: all, address: control.example.org:7720 }
//!   - { name: detect-0, workers: { source: 1, detect: [cuda:0] }, address: 10.0.0.7:7720 }
//!   - { name: plates-0, workers: { plates: 2 }, address: 10.0.0.8:7720 }
//! silence: { suspect: 1s, lose: 3s }
//! placement: spillgate
//! ```
//!
//! A number of workers stands for so many workers on the devices that the pipeline file names for the module, in turn.
//! Without `silence:` its values are those above. `placement:`, or `memory: { cuda:0: 12GiB }` of a process, puts the devices of all
//! processes under a placement, each process by itself.

pub(crate) mod read;
mod registered;

use std::sync::Arc;

use crate::session::Timing;
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::catalog::ValueType;
use spillgate_pipeline::id::{GatewayId, ModuleId};
use spillgate_pipeline::near::{self, nearest};
use spillgate_pipeline::pipeline::Module;
use spillgate_pipeline::placement::Sharing;
use spillgate_pipeline::problem::Problem;

pub use read::parse_topology;
pub use registered::{
    check_address, controllers_of, entries_by_pipeline, entries_for, pipeline_of, workers_of,
};

/// Most processes.
pub(crate) const PROCESSES_MAX: usize = 1024;
/// Longest address: the longest name that DNS knows, and a port.
const ADDRESS_LEN_MAX: usize = 260;

/// The processes that serve a pipeline, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Topology {
    /// The processes.
    pub processes: Vec<Process>,
    /// When a silent process is suspected, and when it is lost.
    pub timing: Timing,
    /// How models share the devices of each process; `None`: devices keep the models that they have loaded.
    pub sharing: Option<Sharing>,
}

/// One process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its name.
    pub name: Arc<str>,
    /// Where other processes reach it: host and port. A process that is a gateway alone needs none: it dials.
    pub address: Option<String>,
    /// The gateway that it holds.
    pub gateway: Option<GatewayId>,
    /// The modules whose controllers it holds.
    pub controllers: Vec<ModuleId>,
    /// By module: the devices of its workers, one a worker.
    pub workers: Vec<(ModuleId, Vec<String>)>,
    /// Bytes for weights, by device.
    pub memory: Vec<(String, u64)>,
}

impl Topology {
    /// The position of the process of that name.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.processes.iter().position(|p| &*p.name == name)
    }

    /// Gateways in it.
    pub fn n_gateways(&self) -> usize {
        self.processes
            .iter()
            .filter(|p| p.gateway.is_some())
            .count()
    }

    /// The modules whose controllers no process holds.
    fn without_controller<'a>(&self, pipeline: &'a Pipeline) -> impl Iterator<Item = &'a Module> {
        let lacks = |module: &&Module| {
            self.processes
                .iter()
                .all(|p| !p.controllers.contains(&module.id))
        };
        pipeline.modules.iter().filter(lacks)
    }

    /// The modules that need a worker and have none.
    fn without_worker<'a>(&self, pipeline: &'a Pipeline) -> impl Iterator<Item = &'a Module> {
        let lacks = |module: &&Module| {
            // Only pictures are decoded.
            let needs = module.id != ModuleId::SOURCE || pipeline.source.ty == ValueType::Image;
            let mut workers = self.processes.iter().flat_map(|p| &p.workers);
            needs && !workers.any(|(of, devices)| *of == module.id && !devices.is_empty())
        };
        pipeline.modules.iter().filter(lacks)
    }
}

/// Whether this is a host and a port.
fn is_address(text: &str) -> bool {
    text.len() <= ADDRESS_LEN_MAX
        && text.rsplit_once(':').is_some_and(|(host, port)| {
            let is_v6 = host.starts_with('[') && host.ends_with(']');
            let is_host = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
            !host.is_empty()
                && (is_v6 || host.chars().all(is_host))
                && port.parse::<u16>().is_ok_and(|port| port > 0)
        })
}

/// The devices that the pipeline file names for so many workers.
fn devices(module: &Module, n: u32) -> Vec<String> {
    let named = &module.devices;
    (0..n as usize)
        .map(|i| match named.len() {
            0 => format!("decode:{i}"),
            n_named => named[i % n_named].clone(),
        })
        .collect()
}

fn unknown_module(pipeline: &Pipeline, name: &str) -> Problem {
    unknown("module", name, || {
        pipeline.modules.iter().map(|m| m.name.as_str())
    })
}

fn unknown<'a, I: Iterator<Item = &'a str>>(
    what: &str,
    name: &str,
    known: impl Fn() -> I,
) -> Problem {
    Problem::UnknownChoice {
        what: what.to_owned(),
        value: name.to_owned(),
        near: nearest(name, known()),
        known: near::known(known()),
    }
}

#[cfg(test)]
mod tests;
