//! Reads the file of a cluster for the simulator:
//!
//! ```yaml
//! network: { delay: 0.5ms, jitter: 0.1ms }
//! nodes:
//!   - { name: edge-a, gateway: true }
//!   - { name: edge-b, gateway: true, share: 2, clock: { ahead: 200ms, drift_ppm: 50 } }
//!   - { name: control, controllers: all }
//!   - { name: machine-1, devices: [0, 1] }
//! links:
//!   - { between: [edge-b, machine-1], delay: 2ms, jitter: 0.5ms }
//! registers: true
//! faults:
//!   - { at: 10s, for: 2s, crash: machine-1, silent: true }
//!   - { at: 20s, for: 5s, partition: [edge-a, control] }
//!   - { at: 30s, for: 5s, away: machine-1, leaves: true, renamed: true }
//!   - { at: 40s, for: 5s, impostor: machine-1, of: control }
//! draw: { faults: 6, from: 30s, until: 50s }
//! ```
//!
//! A controller or device that no node names is a node of its own. With `registers: true` processes know each other by registration
//! and the lists of controllers alone. Each shows a certificate for its
//! name and its roles.

mod faults;

use std::time::Duration;

use crate::cluster::{Cluster, Draws, Node as Process, NodeLink, Travel};
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::diagnostic::{Diagnostics, Place, Sink};
use spillgate_pipeline::document::{Content, Node};
use spillgate_pipeline::id::{DeviceId, GatewayId, ModuleId};
use spillgate_pipeline::near::{self, nearest};
use spillgate_pipeline::problem::Problem;
use spillgate_pipeline::reader::{self, Fields};
use spillgate_protocol::message::Address;

/// Most nodes, links or faults that can be written.
const ENTRIES_MAX: usize = 4096;
/// Longest time in the file: no run is longer.
pub(crate) const TIME_MAX: Duration = Duration::from_secs(24 * 3600);
/// Longest travel of a message. Sessions give up after 3 s.
const TRAVEL_MAX: Duration = Duration::from_secs(1);
/// Farthest that a clock is off.
const AHEAD_MAX: Duration = Duration::from_secs(1800);
/// Most drift. Sessions count with 100 ppm.
const DRIFT_MAX: i64 = 100;
/// Largest share of a gateway relative to another one's.
const SHARE_MAX: f64 = 1e6;
/// Most drawn faults.
const DRAWN_MAX: u32 = 1000;

const FIELDS: [&str; 6] = ["network", "nodes", "links", "registers", "faults", "draw"];
const NODE_FIELDS: [&str; 6] = [
    "name",
    "gateway",
    "share",
    "controllers",
    "devices",
    "clock",
];
const NODE: &str = "{ name: edge-a, gateway: true }";
const LINK: &str = "{ between: [edge-a, machine-1], delay: 2ms }";

/// What the nodes of the file serve.
#[derive(Clone, Copy, Debug)]
pub struct Served<'a> {
    /// The pipeline.
    pub pipeline: &'a Pipeline,
    /// Its devices.
    pub n_devices: usize,
    /// Requests that come.
    pub n_requests: usize,
}

struct Reading<'a> {
    served: Served<'a>,
    cluster: Cluster,
    /// The line of each role.
    lines: Vec<(Address, usize)>,
    /// Where the name of each node stands.
    names: Vec<Place>,
}

/// Reads the text of the file of a cluster. `file` is its name in messages.
///
/// # Errors
/// All problems of the file, sorted by line.
pub fn parse_cluster(text: &str, file: &str, served: Served<'_>) -> Result<Cluster, Diagnostics> {
    let mut sink = Sink::new(file);
    let mut reading = Reading {
        served,
        cluster: Cluster::default(),
        lines: Vec::new(),
        names: Vec::new(),
    };
    if let Some(root) = reader::root(&mut sink, text, "nodes: [...]") {
        reading.read(&mut sink, &root);
    }
    sink.finish()?;
    Ok(reading.cluster)
}

impl Reading<'_> {
    fn read(&mut self, sink: &mut Sink, root: &Node) {
        let place = Place::root();
        let expected = "a map with the field nodes";
        let fields = reader::record(sink, root, &place, expected, &FIELDS);
        if let Some(network) = fields.get("network") {
            let expected = "the travel of messages, like { delay: 0.5ms, jitter: 0.1ms }";
            let known = ["delay", "jitter"];
            let of = reader::record(sink, network.node, &network.place, expected, &known);
            self.cluster.travel = travel(sink, &of);
        }
        let Some(nodes) = fields.get("nodes") else {
            return missing(sink, &place, "nodes", &format!("nodes: [{NODE}]"));
        };
        let expected = format!("a list of nodes, like [{NODE}]");
        for (place, entry) in entries(sink, nodes.node, &nodes.place, "nodes", &expected) {
            self.node(sink, entry, &place);
        }
        self.check_gateways(sink, &nodes.place);
        self.add_others(sink);
        if let Some(links) = fields.get("links") {
            let expected = format!("a list of links, like [{LINK}]");
            for (place, entry) in entries(sink, links.node, &links.place, "links", &expected) {
                self.link(sink, entry, &place);
            }
        }
        if let Some(f) = fields.get("registers") {
            self.cluster.registers = reader::truth(sink, f.node, &f.place).unwrap_or(false);
        }
        if let Some(faults) = fields.get("faults") {
            let expected = format!("a list of faults, like [{}]", faults::FAULT);
            let mut read = Vec::new();
            for (place, entry) in entries(sink, faults.node, &faults.place, "faults", &expected) {
                let fault = faults::read(sink, entry, &place, &self.cluster.nodes);
                read.extend(fault.map(|fault| (place, fault)));
            }
            faults::check_overlaps(sink, &read, &self.cluster.nodes);
            self.cluster.faults = read.into_iter().map(|(_, fault)| fault).collect();
        }
        self.cluster.draws = fields
            .get("draw")
            .and_then(|f| draws(sink, f.node, &f.place));
    }

    fn node(&mut self, sink: &mut Sink, node: &Node, place: &Place) {
        let expected = format!("a node, like {NODE}");
        let fields = reader::record(sink, node, place, &expected, &NODE_FIELDS);
        if !matches!(node.content, Content::Mapping(_)) {
            return;
        }
        let Some(name) = fields.get("name") else {
            return missing(sink, place, "name", "name: edge-a");
        };
        let named = reader::text(sink, name.node, &name.place, "a name, like edge-a");
        let Some(text) = named else { return };
        reader::check_name(sink, text, &name.place);
        if self.cluster.nodes.iter().any(|n| n.name == text) {
            let what = format!("a node {text:?}");
            sink.error(&name.place, Problem::Repeated { what });
        }
        self.names.push(name.place.clone());
        let mut process = Process::new(text.to_owned(), Vec::new());
        self.roles(sink, &fields, &mut process);
        if process.roles.is_empty() {
            let example = "gateway: true, controllers: all or devices: [0]".to_owned();
            let field = "a role".to_owned();
            sink.error(place, Problem::MissingField { field, example });
        }
        if let Some(f) = fields.get("share") {
            if fields.get("gateway").is_none() {
                missing(sink, place, "gateway", "gateway: true");
            }
            let share = reader::number(sink, f.node, &f.place, 1.0 / SHARE_MAX, SHARE_MAX);
            process.share = share.unwrap_or(1.0);
        }
        if let Some(f) = fields.get("clock") {
            clock(sink, f.node, &f.place, &mut process);
        }
        self.cluster.nodes.push(process);
    }

    fn roles(&mut self, sink: &mut Sink, fields: &Fields<'_>, process: &mut Process) {
        if let Some(f) = fields.get("gateway")
            && reader::truth(sink, f.node, &f.place) == Some(true)
        {
            let gateways = self.lines.iter();
            let n = gateways.filter(|(role, _)| matches!(role, Address::Gateway(_)));
            let id = GatewayId(n.count() as u16);
            self.take(sink, &f.place, Address::Gateway(id), process);
        }
        if let Some(f) = fields.get("controllers") {
            let n = self.served.pipeline.modules.len() as u16;
            if is_all(f.node) {
                for module in (0..n).map(ModuleId) {
                    self.take(sink, &f.place, Address::Controller(module), process);
                }
            } else {
                self.controllers(sink, f.node, &f.place, process);
            }
        }
        let Some(f) = fields.get("devices") else {
            return;
        };
        let n = self.served.n_devices as u16;
        if is_all(f.node) {
            for device in (0..n).map(DeviceId) {
                self.take(sink, &f.place, Address::Device(device), process);
            }
            return;
        }
        let expected = "a list of devices by number, like [0, 1], or all";
        for (i, entry) in reader::list(sink, f.node, &f.place, expected)
            .unwrap_or_default()
            .iter()
            .enumerate()
        {
            let place = f.place.index(i, entry.line);
            if let Some(id) = reader::integer(sink, entry, &place, 0, i64::from(n) - 1) {
                let role = Address::Device(DeviceId(id as u16));
                self.take(sink, &place, role, process);
            }
        }
    }

    fn controllers(&mut self, sink: &mut Sink, node: &Node, place: &Place, process: &mut Process) {
        let modules = &self.served.pipeline.modules;
        let known: Vec<&str> = modules.iter().map(|m| m.name.as_str()).collect();
        let expected = "a list of modules, like [detect], or all";
        let list = reader::list(sink, node, place, expected).unwrap_or_default();
        for (i, entry) in list.iter().enumerate() {
            let place = place.index(i, entry.line);
            if let Some(name) = reader::text(sink, entry, &place, "the name of a module") {
                match known.iter().position(|known| *known == name) {
                    Some(module) => {
                        let role = Address::Controller(ModuleId(module as u16));
                        self.take(sink, &place, role, process);
                    }
                    None => sink.error(&place, unknown("module", name, &known)),
                }
            }
        }
    }

    /// A node takes a role that no other one has.
    fn take(&mut self, sink: &mut Sink, place: &Place, role: Address, process: &mut Process) {
        if let Some((_, line)) = self.lines.iter().find(|(taken, _)| *taken == role) {
            let what = format!("{} (line {line})", self.describe(role));
            return sink.error(place, Problem::Repeated { what });
        }
        self.lines.push((role, place.line));
        process.roles.push(role);
    }

    fn describe(&self, role: Address) -> String {
        match role {
            Address::Gateway(id) => format!("gateway {}", id.0),
            Address::Controller(module) => {
                format!(
                    "the controller of {}",
                    self.served.pipeline.modules[module.idx()].name
                )
            }
            Address::Device(id) => format!("device {}", id.0),
        }
    }

    /// There is a gateway, and no more of them than requests: the others would show nothing.
    fn check_gateways(&self, sink: &mut Sink, place: &Place) {
        let gateways = self.lines.iter();
        let lines: Vec<usize> = gateways
            .filter(|(role, _)| matches!(role, Address::Gateway(_)))
            .map(|(_, line)| *line)
            .collect();
        let (n, limit) = (lines.len(), self.served.n_requests);
        if n == 0 && !sink.has_errors() {
            return missing(sink, place, "a gateway", NODE);
        }
        if let Some(line) = lines.get(limit) {
            let place = Place {
                line: *line,
                ..place.clone()
            };
            let what = "gateways, for that number of requests,";
            let problem = Problem::TooMany {
                what,
                count: n,
                limit,
            };
            sink.error(&place, problem);
        }
    }

    /// Controllers and devices that no node names are nodes of their own.
    fn add_others(&mut self, sink: &mut Sink) {
        let modules = self.served.pipeline.modules.iter();
        let controllers = modules.map(|m| {
            let name = format!("controller-{}", m.name);
            (Address::Controller(m.id), name)
        });
        let devices = (0..self.served.n_devices as u16)
            .map(|d| (Address::Device(DeviceId(d)), format!("device-{d}")));
        for (role, name) in controllers.chain(devices) {
            if self.lines.iter().any(|(taken, _)| *taken == role) {
                continue;
            }
            let mut written = self.cluster.nodes.iter().zip(&self.names);
            if let Some((_, place)) = written.find(|(node, _)| node.name == name) {
                let what = self.describe(role);
                sink.error(place, Problem::TakenName { name, what });
                continue;
            }
            self.cluster.nodes.push(Process::new(name, vec![role]));
        }
    }

    fn link(&mut self, sink: &mut Sink, node: &Node, place: &Place) {
        let expected = format!("a link, like {LINK}");
        let known = ["between", "delay", "jitter"];
        let fields = reader::record(sink, node, place, &expected, &known);
        let Some(between) = fields.get("between") else {
            return missing(sink, place, "between", "between: [edge-a, machine-1]");
        };
        let nodes = &self.cluster.nodes;
        let ends = faults::two_nodes(sink, between.node, &between.place, nodes);
        let travel = travel(sink, &fields);
        let Some([a, b]) = ends else { return };
        let mut links = self.cluster.links.iter();
        if links.any(|l| l.between == [a, b] || l.between == [b, a]) {
            let what = format!("the link of {} and {}", nodes[a].name, nodes[b].name);
            return sink.error(&between.place, Problem::Repeated { what });
        }
        let between = [a, b];
        self.cluster.links.push(NodeLink { between, travel });
    }
}

/// The entries of a list, as many as are read.
fn entries<'n>(
    sink: &mut Sink,
    node: &'n Node,
    place: &Place,
    what: &'static str,
    expected: &str,
) -> Vec<(Place, &'n Node)> {
    let list = reader::list(sink, node, place, expected).unwrap_or_default();
    if list.len() > ENTRIES_MAX {
        let (count, limit) = (list.len(), ENTRIES_MAX);
        sink.error(place, Problem::TooMany { what, count, limit });
        return Vec::new();
    }
    let entries = list.iter().enumerate();
    entries
        .map(|(i, entry)| (place.index(i, entry.line), entry))
        .collect()
}

fn travel(sink: &mut Sink, fields: &Fields<'_>) -> Travel {
    let mut of = |name| {
        let f = fields.get(name)?;
        reader::duration(sink, f.node, &f.place, Duration::ZERO, TRAVEL_MAX)
    };
    Travel {
        delay: of("delay").unwrap_or_default(),
        jitter: of("jitter").unwrap_or_default(),
    }
}

fn clock(sink: &mut Sink, node: &Node, place: &Place, process: &mut Process) {
    let expected = "how a clock is off, like { ahead: 200ms, drift_ppm: 50 } or { behind: 200ms }";
    let known = ["ahead", "behind", "drift_ppm"];
    let fields = reader::record(sink, node, place, expected, &known);
    if let (Some(_), Some(second)) = (fields.get("ahead"), fields.get("behind")) {
        let what = "how far the clock is off".to_owned();
        sink.error(&second.place, Problem::Repeated { what });
    }
    for (name, sign) in [("ahead", 1), ("behind", -1)] {
        if let Some(f) = fields.get(name) {
            let span = reader::duration(sink, f.node, &f.place, Duration::ZERO, AHEAD_MAX);
            process.ahead_ns += sign * span.unwrap_or_default().as_nanos() as i64;
        }
    }
    if let Some(f) = fields.get("drift_ppm") {
        let ppm = reader::integer(sink, f.node, &f.place, -DRIFT_MAX, DRIFT_MAX);
        process.drift_ppm = ppm.unwrap_or_default();
    }
}

fn draws(sink: &mut Sink, node: &Node, place: &Place) -> Option<Draws> {
    let expected = "faults to draw, like { faults: 6, from: 30s, until: 50s }";
    let fields = reader::record(sink, node, place, expected, &["faults", "from", "until"]);
    let n = match fields.get("faults") {
        Some(f) => reader::count(sink, f.node, &f.place, 1, DRAWN_MAX)?,
        None => {
            missing(sink, place, "faults", "faults: 6");
            return None;
        }
    };
    let from = match fields.get("from") {
        Some(f) => reader::duration(sink, f.node, &f.place, Duration::ZERO, TIME_MAX)?,
        None => Duration::ZERO,
    };
    let Some(f) = fields.get("until") else {
        missing(sink, place, "until", "until: 50s");
        return None;
    };
    let until = reader::duration(sink, f.node, &f.place, from, TIME_MAX)?;
    Some(Draws { n, from, until })
}

fn is_all(node: &Node) -> bool {
    matches!(&node.content, Content::Scalar(text, _) if text == "all")
}

fn unknown(what: &str, value: &str, known: &[&str]) -> Problem {
    Problem::UnknownChoice {
        what: what.to_owned(),
        value: value.to_owned(),
        near: nearest(value, known.iter().copied()),
        known: near::known(known.iter().copied()),
    }
}

fn missing(sink: &mut Sink, place: &Place, field: &str, example: &str) {
    let (field, example) = (field.to_owned(), example.to_owned());
    sink.error(place, Problem::MissingField { field, example });
}

#[cfg(test)]
mod tests;
