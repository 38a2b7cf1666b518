//! The faults of a cluster.

use std::time::Duration;

use super::{TIME_MAX, missing, unknown};
use crate::cluster::{Fault, Scripted};
use crate::diagnostic::{Place, Sink};
use crate::document::Node;
use crate::problem::Problem;
use crate::reader::{self, Field, Fields};

/// A fault as it is written.
pub(super) const FAULT: &str = "{ at: 10s, for: 2s, crash: machine-1 }";

/// Slowest that a node may be.
const FACTOR_MAX: f64 = 1000.0;
/// Most messages a second of a rogue node.
const RATE_MAX: f64 = 1e5;
/// Shortest pause, and shortest time from one to the next.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// Kinds, by the field that names the nodes.
const KINDS: [&str; 8] = [
    "break",
    "partition",
    "one_way",
    "crash",
    "slow",
    "stall",
    "lose",
    "rogue",
];
const FIELDS: [&str; 16] = [
    "at",
    "for",
    "break",
    "partition",
    "one_way",
    "crash",
    "slow",
    "stall",
    "lose",
    "rogue",
    "late",
    "silent",
    "factor",
    "pause",
    "every",
    "rate",
];

/// Reads a fault; the nodes have these names.
pub(super) fn read(
    sink: &mut Sink,
    node: &Node,
    place: &Place,
    names: &[&str],
) -> Option<Scripted> {
    let expected = format!("a fault, like {FAULT}");
    let fields = reader::record(sink, node, place, &expected, &FIELDS);
    let at = time(sink, &fields, place, "at", "at: 10s");
    let lasts = time(sink, &fields, place, "for", "for: 2s");
    let mut kinds = fields.iter().filter(|f| KINDS.contains(&f.key));
    let Some(kind) = kinds.next() else {
        let field = "what goes wrong";
        missing(
            sink,
            place,
            field,
            &format!("one of {}, like crash: machine-1", KINDS.join(", ")),
        );
        return None;
    };
    if let Some(second) = kinds.next() {
        let what = format!("what goes wrong ({})", kind.key);
        sink.error(&second.place, Problem::Repeated { what });
    }
    let fault = fault(sink, kind, &fields, place, names)?;
    Some(Scripted {
        at: at?,
        lasts: lasts?,
        fault,
    })
}

fn time(
    sink: &mut Sink,
    fields: &Fields<'_>,
    place: &Place,
    name: &str,
    example: &str,
) -> Option<Duration> {
    match fields.get(name) {
        Some(f) => reader::duration(sink, f.node, &f.place, Duration::ZERO, TIME_MAX),
        None => {
            missing(sink, place, name, example);
            None
        }
    }
}

fn fault(
    sink: &mut Sink,
    kind: &Field<'_>,
    fields: &Fields<'_>,
    place: &Place,
    names: &[&str],
) -> Option<Fault> {
    let (node, at) = (kind.node, &kind.place);
    match kind.key {
        "break" => Some(Fault::Break {
            between: two_nodes(sink, node, at, names)?,
            late: switch(sink, fields, "late"),
        }),
        "partition" | "one_way" => {
            let [from, to] = two_nodes(sink, node, at, names)?;
            let both = kind.key == "partition";
            Some(Fault::Partition { from, to, both })
        }
        "crash" => Some(Fault::Crash {
            node: one_node(sink, node, at, names)?,
            silent: switch(sink, fields, "silent"),
        }),
        "slow" => {
            let node = one_node(sink, node, at, names);
            let Some(f) = fields.get("factor") else {
                missing(sink, place, "factor", "factor: 3");
                return None;
            };
            let factor = reader::number(sink, f.node, &f.place, 1.0, FACTOR_MAX)?;
            Some(Fault::Slow {
                node: node?,
                factor,
            })
        }
        "stall" => {
            let node = one_node(sink, node, at, names);
            let mut of = |name, example| match fields.get(name) {
                Some(f) => reader::duration(sink, f.node, &f.place, PAUSE_MIN, TIME_MAX),
                None => {
                    missing(sink, place, name, example);
                    None
                }
            };
            let pause = of("pause", "pause: 200ms");
            let every = of("every", "every: 1s");
            Some(Fault::Stall {
                node: node?,
                pause: pause?,
                every: every?,
            })
        }
        "lose" => Some(Fault::Loss {
            part: reader::number(sink, node, at, 0.0, 1.0)?,
        }),
        _ => {
            let node = one_node(sink, node, at, names);
            let Some(f) = fields.get("rate") else {
                missing(sink, place, "rate", "rate: 100");
                return None;
            };
            let rate = reader::number(sink, f.node, &f.place, 1e-3, RATE_MAX)?;
            Some(Fault::Rogue { node: node?, rate })
        }
    }
}

fn switch(sink: &mut Sink, fields: &Fields<'_>, name: &str) -> bool {
    let field = fields.get(name);
    field
        .and_then(|f| reader::truth(sink, f.node, &f.place))
        .unwrap_or(false)
}

/// Two different nodes.
pub(super) fn two_nodes(
    sink: &mut Sink,
    node: &Node,
    place: &Place,
    names: &[&str],
) -> Option<[usize; 2]> {
    let expected = "two nodes, like [edge-a, machine-1]";
    let list = reader::list(sink, node, place, expected)?;
    let [a, b] = list else {
        return reader::wrong_kind(sink, node, place, expected);
    };
    let a_idx = one_node(sink, a, &place.index(0, a.line), names);
    let b_idx = one_node(sink, b, &place.index(1, b.line), names);
    let (a_idx, b_idx) = (a_idx?, b_idx?);
    if a_idx == b_idx {
        let what = format!("node {}", names[a_idx]);
        sink.error(place, Problem::Repeated { what });
        return None;
    }
    Some([a_idx, b_idx])
}

fn one_node(sink: &mut Sink, node: &Node, place: &Place, names: &[&str]) -> Option<usize> {
    let name = reader::text(sink, node, place, "the name of a node")?;
    let found = names.iter().position(|known| *known == name);
    if found.is_none() {
        sink.error(place, unknown("node", name, names));
    }
    found
}
