//! The faults of a cluster.

use std::time::Duration;

use super::{TIME_MAX, missing, unknown};
use crate::cluster::{Fault, Node as Process, Scripted};
use spillgate_pipeline::diagnostic::{Place, Sink};
use spillgate_pipeline::document::Node;
use spillgate_pipeline::near;
use spillgate_pipeline::problem::Problem;
use spillgate_pipeline::reader::{self, Field, Fields};

/// A fault as it is written.
pub(super) const FAULT: &str = "{ at: 10s, for: 2s, crash: machine-1 }";

/// Slowest that a node may be.
const FACTOR_MAX: f64 = 1000.0;
/// Most messages a second of a rogue node.
const RATE_MAX: f64 = 1e5;
/// Shortest pause, and shortest time from one to the next.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// Fields of a fault: when, then the kinds, by the field that names the nodes, then what some kinds have besides.
const FIELDS: [&str; 22] = [
    "at",
    "for",
    "break",
    "partition",
    "one_way",
    "crash",
    "away",
    "impostor",
    "slow",
    "stall",
    "lose",
    "rogue",
    "late",
    "twice",
    "silent",
    "leaves",
    "renamed",
    "of",
    "factor",
    "pause",
    "every",
    "rate",
];
/// The kinds among [`FIELDS`].
const KINDS: &[&str] = FIELDS.split_at(2).1.split_at(10).0;

/// Reads a fault of these nodes.
pub(super) fn read(
    sink: &mut Sink,
    node: &Node,
    place: &Place,
    nodes: &[Process],
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
    check_fields(sink, kind.key, &fields);
    let fault = fault(sink, kind, &fields, place, nodes)?;
    Some(Scripted {
        at: at?,
        lasts: lasts?,
        fault,
    })
}

/// A kind has no fields of other kinds.
fn check_fields(sink: &mut Sink, kind: &str, fields: &Fields<'_>) {
    let own: &[&str] = match kind {
        "break" => &["late", "twice"],
        "crash" => &["silent"],
        "away" => &["leaves", "renamed"],
        "impostor" => &["of"],
        "slow" => &["factor"],
        "stall" => &["pause", "every"],
        "rogue" => &["rate"],
        _ => &[],
    };
    let known = [&["at", "for", kind], own].concat();
    for field in fields.iter() {
        if !known.contains(&field.key) && !KINDS.contains(&field.key) {
            let problem = Problem::UnknownField {
                field: field.key.to_owned(),
                near: None,
                known: near::known(known.iter().copied()),
            };
            sink.error(&field.place, problem);
        }
    }
}

/// Faults of one kind that go on at one node at the same time: the end of one would end the other. Connections that are broken or
/// cut off twice come back after the later end.
pub(super) fn check_overlaps(sink: &mut Sink, faults: &[(Place, Scripted)], nodes: &[Process]) {
    let is_over = |a: &Scripted, b: &Scripted| a.at + a.lasts <= b.at;
    for (i, (place, fault)) in faults.iter().enumerate() {
        let Some(what) = ends_others(&fault.fault, nodes) else {
            continue;
        };
        let mut before = faults[..i].iter();
        let other = before.find(|(_, other)| {
            let goes_on = !is_over(other, fault) && !is_over(fault, other);
            goes_on && ends_others(&other.fault, nodes).as_ref() == Some(&what)
        });
        if let Some((first, _)) = other {
            let first = first.line;
            sink.error(place, Problem::Overlaps { what, first });
        }
    }
}

/// What the end of a fault ends, as it is written.
fn ends_others(fault: &Fault, nodes: &[Process]) -> Option<String> {
    let of = |kind: &str, node: usize| Some(format!("{kind}: {}", nodes[node].name));
    match *fault {
        Fault::Break { .. } | Fault::Partition { .. } => None,
        Fault::Crash { node, .. } => of("crash", node),
        Fault::Away { node, .. } => of("away", node),
        Fault::Impostor { node, .. } => of("impostor", node),
        Fault::Slow { node, .. } => of("slow", node),
        Fault::Stall { node, .. } => of("stall", node),
        Fault::Loss { .. } => Some("lose".to_owned()),
        Fault::Rogue { node, .. } => of("rogue", node),
    }
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
    nodes: &[Process],
) -> Option<Fault> {
    let (node, at) = (kind.node, &kind.place);
    match kind.key {
        "break" => Some(Fault::Break {
            between: two_nodes(sink, node, at, nodes)?,
            late: switch(sink, fields, "late"),
            twice: switch(sink, fields, "twice"),
        }),
        "partition" | "one_way" => {
            let [from, to] = two_nodes(sink, node, at, nodes)?;
            let both = kind.key == "partition";
            Some(Fault::Partition { from, to, both })
        }
        "crash" => Some(Fault::Crash {
            node: one_node(sink, node, at, nodes)?,
            silent: switch(sink, fields, "silent"),
        }),
        "away" => Some(Fault::Away {
            node: one_node(sink, node, at, nodes)?,
            leaves: switch(sink, fields, "leaves"),
            renamed: switch(sink, fields, "renamed"),
        }),
        "impostor" => {
            let node = one_node(sink, node, at, nodes);
            let Some(f) = fields.get("of") else {
                missing(sink, place, "of", "of: machine-2");
                return None;
            };
            let of = one_node(sink, f.node, &f.place, nodes)?;
            Some(Fault::Impostor { node: node?, of })
        }
        "slow" => {
            let node = one_node(sink, node, at, nodes);
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
            let node = one_node(sink, node, at, nodes);
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
            let node = one_node(sink, node, at, nodes);
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

/// Two different nodes that talk.
pub(super) fn two_nodes(
    sink: &mut Sink,
    node: &Node,
    place: &Place,
    nodes: &[Process],
) -> Option<[usize; 2]> {
    let expected = "two nodes, like [edge-a, machine-1]";
    let list = reader::list(sink, node, place, expected)?;
    let [a, b] = list else {
        return reader::wrong_kind(sink, node, place, expected);
    };
    let a_idx = one_node(sink, a, &place.index(0, a.line), nodes);
    let b_idx = one_node(sink, b, &place.index(1, b.line), nodes);
    let (a_idx, b_idx) = (a_idx?, b_idx?);
    let (a, b) = (&nodes[a_idx], &nodes[b_idx]);
    if a_idx == b_idx {
        let what = format!("node {}", a.name);
        sink.error(place, Problem::Repeated { what });
        return None;
    }
    if !a.talks_to(b) {
        let (a, b) = (a.name.clone(), b.name.clone());
        sink.error(place, Problem::NothingBetween { a, b });
        return None;
    }
    Some([a_idx, b_idx])
}

fn one_node(sink: &mut Sink, node: &Node, place: &Place, nodes: &[Process]) -> Option<usize> {
    let name = reader::text(sink, node, place, "the name of a node")?;
    let found = nodes.iter().position(|known| known.name == name);
    if found.is_none() {
        let names: Vec<&str> = nodes.iter().map(|n| n.name.as_str()).collect();
        sink.error(place, unknown("node", name, &names));
    }
    found
}
