//! A topology from addresses alone, as flags and variables of the environment give them where there is no file:
//!
//! ```text
//! --gateways gateway-[0-1]
//! --controllers control-0.control:7720
//! --workers detect=detect-[0-3].detect:7720,plates=plates-0.plates:7720
//! ```
//!
//! A range in brackets stands for one process a number. A process has the name of its host up to the first dot, as the
//! pods of a StatefulSet have; one at an IP address or at `localhost` is named `host-10-0-0-7-7720`, `localhost-7720`. Roles at one
//! address are one process. A worker runs on the first device that the pipeline file names for its module.

use thiserror::Error;

use super::{PROCESSES_MAX, Process, Topology, devices, is_address, unknown_module};
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::{GatewayId, ModuleId};
use spillgate_pipeline::problem::{Problem, one_line};
use spillgate_pipeline::reader::is_name;

/// What is given in place of a file, each an entry of a list.
#[derive(Clone, Copy, Debug, Default)]
pub struct Addresses<'a> {
    /// Names of gateways, which dial and need no address: `gateway-[0-1]`.
    pub gateways: &'a [String],
    /// Addresses of controllers: `HOST:PORT` for those of all modules, or `MODULE=HOST:PORT`.
    pub controllers: &'a [String],
    /// Addresses of workers: `MODULE=HOST:PORT`.
    pub workers: &'a [String],
}

/// Why addresses make no topology.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{flag}: {problem}")]
pub struct AddressError {
    /// The flag.
    pub flag: &'static str,
    /// What is wrong, and what would be right.
    pub problem: Problem,
}

const GATEWAYS: &str = "--gateways";
const CONTROLLERS: &str = "--controllers";
const WORKERS: &str = "--workers";

impl Addresses<'_> {
    /// The processes at these addresses: gateways, controllers, workers, each in the order given. All processes need the
    /// same lists in the same order, as they would need the same file.
    ///
    /// # Errors
    /// The first problem.
    pub fn topology(&self, pipeline: &Pipeline) -> Result<Topology, AddressError> {
        let mut reading = Reading {
            pipeline,
            topology: Topology::default(),
        };
        reading.each(GATEWAYS, self.gateways, Reading::gateway)?;
        reading.each(CONTROLLERS, self.controllers, Reading::controllers)?;
        reading.each(WORKERS, self.workers, Reading::worker)?;
        reading.check()?;
        Ok(reading.topology)
    }
}

struct Reading<'a> {
    pipeline: &'a Pipeline,
    topology: Topology,
}

impl Reading<'_> {
    fn each(
        &mut self,
        flag: &'static str,
        entries: &[String],
        mut read: impl FnMut(&mut Self, &str) -> Result<(), Problem>,
    ) -> Result<(), AddressError> {
        for entry in entries {
            let texts = expanded(entry.trim());
            let all = texts.and_then(|texts| texts.iter().try_for_each(|text| read(self, text)));
            all.map_err(|problem| AddressError { flag, problem })?;
        }
        Ok(())
    }

    fn gateway(&mut self, name: &str) -> Result<(), Problem> {
        let gateway = GatewayId(self.topology.n_gateways() as u16);
        let process = self.add(name, None)?;
        process.gateway = Some(gateway);
        Ok(())
    }

    fn controllers(&mut self, text: &str) -> Result<(), Problem> {
        let all = || self.pipeline.modules.iter().map(|m| m.id).collect();
        let (modules, address) = match text.split_once('=') {
            Some((module, address)) => (vec![self.module(module)?], address),
            None => (all(), text),
        };
        for &module in &modules {
            let mut others = self.topology.processes.iter();
            if others.any(|p| p.controllers.contains(&module)) {
                let name = &self.pipeline.modules[module.idx()].name;
                return Err(Problem::Repeated {
                    what: format!("the controller of {name}"),
                });
            }
        }
        self.at(address)?.controllers.extend(modules);
        Ok(())
    }

    fn worker(&mut self, text: &str) -> Result<(), Problem> {
        let Some((name, address)) = text.split_once('=') else {
            return Err(expected("MODULE=HOST:PORT", text));
        };
        let module = self.module(name)?;
        let devices = devices(&self.pipeline.modules[module.idx()], 1);
        let process = self.at(address)?;
        if process.workers.iter().any(|(of, _)| *of == module) {
            return Err(Problem::Repeated {
                what: format!("the worker of {name} at {address}"),
            });
        }
        process.workers.push((module, devices));
        Ok(())
    }

    fn module(&self, name: &str) -> Result<ModuleId, Problem> {
        let found = self.pipeline.modules.iter().find(|m| m.name == name);
        found
            .map(|m| m.id)
            .ok_or_else(|| unknown_module(self.pipeline, name))
    }

    /// The process at an address.
    fn at(&mut self, address: &str) -> Result<&mut Process, Problem> {
        if !is_address(address) {
            return Err(expected(
                "a host and a port, like detect-0.detect:7720",
                address,
            ));
        }
        let mut processes = self.topology.processes.iter();
        let known = processes.position(|p| p.address.as_deref() == Some(address));
        match known {
            Some(known) => Ok(&mut self.topology.processes[known]),
            None => self.add(&name_of(address), Some(address)),
        }
    }

    fn add(&mut self, name: &str, address: Option<&str>) -> Result<&mut Process, Problem> {
        if !is_name(name) {
            let name = name.to_owned();
            return Err(Problem::BadName { name });
        }
        if self.topology.position(name).is_some() {
            let what = format!(
                "a process named {name:?} (hosts need names that differ up to the first dot)"
            );
            return Err(Problem::Repeated { what });
        }
        let count = self.topology.processes.len() + 1;
        if count > PROCESSES_MAX {
            let (what, limit) = ("processes", PROCESSES_MAX);
            return Err(Problem::TooMany { what, count, limit });
        }
        self.topology.processes.push(Process {
            name: name.into(),
            address: address.map(str::to_owned),
            gateway: None,
            controllers: Vec::new(),
            workers: Vec::new(),
            memory: Vec::new(),
        });
        Ok(&mut self.topology.processes[count - 1])
    }

    /// Each role is there.
    fn check(&self) -> Result<(), AddressError> {
        let missing = |flag, field: &str, example: String| {
            let field = field.to_owned();
            let problem = Problem::MissingField { field, example };
            Err(AddressError { flag, problem })
        };
        if self.topology.n_gateways() == 0 {
            return missing(GATEWAYS, "a gateway", "gateway-0".to_owned());
        }
        let mut controllers = self.topology.without_controller(self.pipeline);
        if let Some(module) = controllers.next() {
            let name = &module.name;
            let example = format!("{name}=control-0:7720, or control-0:7720 for all modules");
            return missing(CONTROLLERS, &format!("the controller of {name}"), example);
        }
        let mut workers = self.topology.without_worker(self.pipeline);
        if let Some(module) = workers.next() {
            let name = &module.name;
            let example = format!("{name}={name}-0:7720");
            return missing(WORKERS, &format!("a worker of {name}"), example);
        }
        Ok(())
    }
}

fn expected(what: &str, found: &str) -> Problem {
    Problem::WrongKind {
        expected: what.to_owned(),
        found: format!("\"{}\"", one_line(found)),
    }
}

/// The name of the process at an address.
fn name_of(address: &str) -> String {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    let is_v4 = host.chars().all(|c| c.is_ascii_digit() || c == '.');
    if is_v4 || host.starts_with('[') {
        let plain = host.trim_start_matches('[').trim_end_matches(']');
        let dashed = plain.replace(['.', ':'], "-");
        return format!("host-{dashed}-{port}");
    }
    match host.split('.').next() {
        Some("localhost") => format!("localhost-{port}"),
        label => label.unwrap_or_default().to_owned(),
    }
}

/// One text a number of the range in it, if there is one.
fn expanded(text: &str) -> Result<Vec<String>, Problem> {
    let Some((before, range, after)) = range_of(text) else {
        return Ok(vec![text.to_owned()]);
    };
    let numbers = range.split_once('-').and_then(|(low, high)| {
        let numbers = low.parse::<u32>().ok()?..=high.parse::<u32>().ok()?;
        let count = u64::from(*numbers.end()) + 1;
        let fits = count.saturating_sub(u64::from(*numbers.start())) <= PROCESSES_MAX as u64;
        // Numbers of equal width are written with zeros in front of them.
        (!numbers.is_empty() && fits).then_some((numbers, low.len()))
    });
    let Some((numbers, width)) = numbers else {
        let expected_range = format!("a range like [0-3], of at most {PROCESSES_MAX} numbers");
        return Err(expected(&expected_range, &format!("[{range}]")));
    };
    let each = numbers.map(|number| format!("{before}{number:0width$}{after}"));
    Ok(each.collect())
}

/// The first part in brackets that is no IPv6 address, with what stands before and after it.
fn range_of(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once('[')?;
    let (range, after) = rest.split_once(']')?;
    (!range.contains(':')).then_some((before, range, after))
}

#[cfg(test)]
mod tests;
