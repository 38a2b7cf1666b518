//! Reads the file of a topology.

use std::time::Duration;

use super::{PROCESSES_MAX, Process, Topology, devices, is_address, unknown_module};
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::diagnostic::{Diagnostics, Place, Sink};
use spillgate_pipeline::document::{Content, Node};
use spillgate_pipeline::id::{GatewayId, ModuleId};
use spillgate_pipeline::placement::{Decider, PlacementPolicy, Sharing, parse_memory};
use spillgate_pipeline::problem::Problem;
use spillgate_pipeline::reader::{self, Field, Fields};

/// Most workers of a module in one process.
pub(crate) const WORKERS_MAX: u32 = 64;

/// Bounds of the silence after which a process is suspected. A busy machine is silent for some milliseconds now and then.
const SUSPECT: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(60)];
/// The longest silence after which a process is lost.
const LOSE_MAX: Duration = Duration::from_secs(600);
/// Where only one of the two is written: how much longer it takes to lose a process than to suspect it.
const LOSE_PER_SUSPECT: u32 = 3;

const ROOT_FIELDS: [&str; 4] = ["processes", "silence", "placement", "fairness"];
const FIELDS: [&str; 6] = [
    "name",
    "gateway",
    "controllers",
    "workers",
    "address",
    "memory",
];
const PROCESS: &str = "{ name: gateway-0, gateway: true }";
const ADDRESS: &str = "address: 127.0.0.1:7720";

struct Reading<'a> {
    pipeline: &'a Pipeline,
    topology: Topology,
    /// The line of the controller of each module.
    controllers: Vec<Option<usize>>,
}

/// Reads the text of the file of a topology. `file` is its name in messages.
///
/// # Errors
/// All problems of the file, sorted by line.
pub fn parse_topology(
    text: &str,
    file: &str,
    pipeline: &Pipeline,
) -> Result<Topology, Diagnostics> {
    let mut sink = Sink::new(file);
    let mut reading = Reading {
        pipeline,
        topology: Topology::default(),
        controllers: vec![None; pipeline.modules.len()],
    };
    if let Some(root) = reader::root(&mut sink, text, "processes: [...]") {
        reading.read(&mut sink, &root);
    }
    sink.finish()?;
    Ok(reading.topology)
}

impl Reading<'_> {
    fn read(&mut self, sink: &mut Sink, root: &Node) {
        let place = Place::root();
        let expected = "a map with the field processes";
        let fields = reader::record(sink, root, &place, expected, &ROOT_FIELDS);
        if let Some(f) = fields.get("silence") {
            self.silence(sink, f);
        }
        let Some(processes) = fields.get("processes") else {
            return missing(
                sink,
                &place,
                "processes",
                &format!("processes: [{PROCESS}]"),
            );
        };
        let expected = format!("a list of processes, like [{PROCESS}]");
        let list = reader::list(sink, processes.node, &processes.place, &expected);
        let list = list.unwrap_or_default();
        if list.len() > PROCESSES_MAX {
            let (what, count, limit) = ("processes", list.len(), PROCESSES_MAX);
            return sink.error(&processes.place, Problem::TooMany { what, count, limit });
        }
        for (i, entry) in list.iter().enumerate() {
            self.process(sink, entry, &processes.place.index(i, entry.line));
        }
        self.sharing(sink, &fields);
        if !sink.has_errors() {
            self.check(sink, &processes.place);
        }
    }

    /// Devices are under a placement where one is named, or a device has memory for weights.
    fn sharing(&mut self, sink: &mut Sink, fields: &Fields<'_>) {
        let placement = fields.get("placement").and_then(|f| {
            let names = Decider::OFFERED.map(Decider::name);
            let chosen = reader::offered(
                sink,
                f.node,
                &f.place,
                "placement",
                (&names, &PlacementPolicy::LABORATORY),
            )?;
            Some(Decider::OFFERED[chosen])
        });
        let fairness = fields.get("fairness").and_then(|f| {
            let chosen = reader::choice(sink, f.node, &f.place, "fairness", &["on", "off"])?;
            Some((chosen == 0, f.place.clone()))
        });
        let mut processes = self.topology.processes.iter();
        let has_memory = processes.any(|p| !p.memory.is_empty());
        if placement.is_some() || has_memory {
            self.topology.sharing = Some(Sharing {
                decider: placement.unwrap_or_default(),
                is_fair: fairness.is_none_or(|(is_fair, _)| is_fair),
            });
        } else if let Some((_, place)) = fairness {
            missing(sink, &place, "placement", "placement: spillgate");
        }
    }

    fn silence(&mut self, sink: &mut Sink, f: &Field<'_>) {
        let expected = "{ suspect: 1s, lose: 3s }";
        let of = reader::record(sink, f.node, &f.place, expected, &["suspect", "lose"]);
        let read = |sink: &mut Sink, name: &str, low, high| {
            let f = of.get(name)?;
            reader::duration(sink, f.node, &f.place, low, high)
        };
        let suspect = read(sink, "suspect", SUSPECT[0], SUSPECT[1]);
        let least = 2 * suspect.unwrap_or(SUSPECT[0]);
        let lose = read(sink, "lose", least, LOSE_MAX);
        let usual = self.topology.timing;
        let (suspect, lose) = match (suspect, lose) {
            (Some(suspect), Some(lose)) => (suspect, lose),
            (Some(suspect), None) => (suspect, LOSE_PER_SUSPECT * suspect),
            (None, Some(lose)) => (usual.suspicion().min(lose / LOSE_PER_SUSPECT), lose),
            (None, None) => return,
        };
        if let Ok(timing) = usual.with_silence(suspect, lose) {
            self.topology.timing = timing;
        }
    }

    fn process(&mut self, sink: &mut Sink, node: &Node, place: &Place) {
        let expected = format!("a process, like {PROCESS}");
        let fields = reader::record(sink, node, place, &expected, &FIELDS);
        if !matches!(node.content, Content::Mapping(_)) {
            return;
        }
        let Some(name) = fields.get("name") else {
            return missing(sink, place, "name", "name: gateway-0");
        };
        let named = reader::text(sink, name.node, &name.place, "a name, like gateway-0");
        let Some(text) = named else { return };
        reader::check_name(sink, text, &name.place);
        if self.topology.position(text).is_some() {
            let what = format!("a process {text:?}");
            sink.error(&name.place, Problem::Repeated { what });
        }
        let process = Process {
            name: text.into(),
            address: fields.get("address").and_then(|f| self.address(sink, f)),
            gateway: self.gateway(sink, &fields),
            controllers: self.controllers(sink, &fields),
            workers: self.workers(sink, &fields),
            memory: memory(sink, &fields),
        };
        if process.workers.is_empty()
            && let Some(f) = fields.get("memory")
        {
            missing(sink, &f.place, "workers", "workers: { detect: [cuda:0] }");
        }
        let is_gateway_alone = process.controllers.is_empty() && process.workers.is_empty();
        if is_gateway_alone && process.gateway.is_none() {
            let example = "gateway: true, controllers: all or workers: { detect: 1 }";
            missing(sink, place, "a role", example);
        } else if !is_gateway_alone && fields.get("address").is_none() {
            missing(sink, place, "address", ADDRESS);
        }
        self.topology.processes.push(process);
    }

    fn address(&self, sink: &mut Sink, f: &Field<'_>) -> Option<String> {
        let expected = "a host and a port, like 10.0.0.7:7720 or detect-0.example.org:7720";
        let text = reader::text(sink, f.node, &f.place, expected)?;
        if !is_address(text) {
            return reader::wrong_value(sink, f.node, &f.place, expected);
        }
        let processes = self.topology.processes.iter();
        if let Some(other) = processes
            .clone()
            .find(|p| p.address.as_deref() == Some(text))
        {
            let what = format!("the address of {}", other.name);
            sink.error(&f.place, Problem::Repeated { what });
        }
        Some(text.to_owned())
    }

    fn gateway(&self, sink: &mut Sink, fields: &Fields<'_>) -> Option<GatewayId> {
        let f = fields.get("gateway")?;
        let holds = reader::truth(sink, f.node, &f.place)?;
        let n = self
            .topology
            .processes
            .iter()
            .filter(|p| p.gateway.is_some());
        holds.then_some(GatewayId(n.count() as u16))
    }

    fn controllers(&mut self, sink: &mut Sink, fields: &Fields<'_>) -> Vec<ModuleId> {
        let Some(f) = fields.get("controllers") else {
            return Vec::new();
        };
        let mut taken = Vec::new();
        if matches!(&f.node.content, Content::Scalar(text, _) if text == "all") {
            for module in self.pipeline.modules.iter().map(|m| m.id) {
                self.take(sink, &f.place, module, &mut taken);
            }
            return taken;
        }
        let expected = "a list of modules, like [detect], or all";
        let list = reader::list(sink, f.node, &f.place, expected).unwrap_or_default();
        for (i, entry) in list.iter().enumerate() {
            let place = f.place.index(i, entry.line);
            if let Some(name) = reader::text(sink, entry, &place, "the name of a module")
                && let Some(module) = self.module(sink, name, &place)
            {
                self.take(sink, &place, module, &mut taken);
            }
        }
        taken
    }

    /// A process takes the controller of a module that no other one has.
    fn take(&mut self, sink: &mut Sink, place: &Place, module: ModuleId, to: &mut Vec<ModuleId>) {
        let name = &self.pipeline.modules[module.idx()].name;
        match &mut self.controllers[module.idx()] {
            Some(line) => {
                let what = format!("the controller of {name} (line {line})");
                sink.error(place, Problem::Repeated { what });
            }
            free => {
                *free = Some(place.line);
                to.push(module);
            }
        }
    }

    fn module(&self, sink: &mut Sink, name: &str, place: &Place) -> Option<ModuleId> {
        let found = self.pipeline.modules.iter().find(|m| m.name == name);
        if found.is_none() {
            sink.error(place, unknown_module(self.pipeline, name));
        }
        found.map(|module| module.id)
    }

    fn workers(&self, sink: &mut Sink, fields: &Fields<'_>) -> Vec<(ModuleId, Vec<String>)> {
        let Some(f) = fields.get("workers") else {
            return Vec::new();
        };
        let expected = "workers by module, like { detect: 1 } or { detect: [cuda:0, cuda:1] }";
        let of = reader::map(sink, f.node, &f.place, expected);
        let mut workers = Vec::new();
        for entry in of.iter() {
            let Some(module) = self.module(sink, entry.key, &entry.place) else {
                continue;
            };
            let devices = match &entry.node.content {
                Content::Sequence(list) => list
                    .iter()
                    .enumerate()
                    .filter_map(|(i, device)| {
                        let place = entry.place.index(i, device.line);
                        let text = reader::text(sink, device, &place, "a device, like cuda:0")?;
                        Some(text.to_owned())
                    })
                    .collect(),
                _ => {
                    let n = reader::count(sink, entry.node, &entry.place, 1, WORKERS_MAX);
                    devices(&self.pipeline.modules[module.idx()], n.unwrap_or_default())
                }
            };
            workers.push((module, devices));
        }
        workers
    }

    /// Each module has a controller and a worker, and there is a gateway.
    fn check(&self, sink: &mut Sink, place: &Place) {
        let topology = &self.topology;
        if topology.n_gateways() == 0 {
            missing(sink, place, "a gateway", PROCESS);
        }
        for module in topology.without_controller(self.pipeline) {
            let name = &module.name;
            let example = format!("{{ name: controller-0, controllers: [{name}], {ADDRESS} }}");
            missing(sink, place, &format!("the controller of {name}"), &example);
        }
        for module in topology.without_worker(self.pipeline) {
            let name = &module.name;
            let example = format!("{{ name: {name}-0, workers: {{ {name}: 1 }}, {ADDRESS} }}");
            missing(sink, place, &format!("a worker of {name}"), &example);
        }
    }
}

/// The bytes that devices have for weights.
fn memory(sink: &mut Sink, fields: &Fields<'_>) -> Vec<(String, u64)> {
    let Some(f) = fields.get("memory") else {
        return Vec::new();
    };
    let expected = "memory for weights by device, like { cuda:0: 12GiB }";
    let of = reader::map(sink, f.node, &f.place, expected);
    let entry = |f: &Field<'_>| {
        let text = reader::text(sink, f.node, &f.place, "memory, like 12GiB")?;
        match parse_memory(text) {
            Ok(bytes) => Some((f.key.to_owned(), bytes)),
            Err(right) => {
                let expected = format!("memory, like 12GiB ({right})");
                reader::wrong_value(sink, f.node, &f.place, &expected)
            }
        }
    };
    of.iter().filter_map(entry).collect()
}

fn missing(sink: &mut Sink, place: &Place, field: &str, example: &str) {
    let (field, example) = (field.to_owned(), example.to_owned());
    sink.error(place, Problem::MissingField { field, example });
}
