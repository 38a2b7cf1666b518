//! Reads the section `clients:`.

use indexmap::IndexMap;

use super::{IN_FLIGHT_MAX, missing};
use crate::clients::{CLASSES, Clients, ClientsBy, Rights, Strangers, StreamsBy, WEIGHT};
use crate::diagnostic::{Place, Sink};
use crate::document::{Content, Node};
use crate::problem::Problem;
use crate::reader::{self, Fields};

const FIELDS: [&str; 6] = ["by", "streams", "metadata", "strangers", "each", "named"];
const RIGHTS_FIELDS: [&str; 5] = ["weight", "class", "rate", "in_flight", "slo"];
const RIGHTS_EXPECTED: &str = "a map, like { weight: 2, class: 1 }";
/// Slowest and fastest rate of a client, in requests a second: one in a hundred seconds, and more than a server serves.
pub(crate) const RATE: (f64, f64) = (0.01, 1e6);
/// Most clients that are named. For more, a proxy must check them.
pub(crate) const NAMED_MAX: usize = 4096;
/// Longest name of a header.
const HEADER_LEN_MAX: usize = 64;

pub(super) fn read_clients(sink: &mut Sink, node: &Node, place: &Place) -> Clients {
    let expected = "a map, like { by: address }";
    let fields = reader::record(sink, node, place, expected, &FIELDS);
    let mut clients = Clients::equal();
    if let Some(f) = fields.get("by") {
        let names = ClientsBy::ALL.map(ClientsBy::name);
        if let Some(i) = reader::choice(sink, f.node, &f.place, "way to tell clients apart", &names)
        {
            clients.by = ClientsBy::ALL[i];
        }
    }
    if let Some(f) = fields.get("streams") {
        let names = StreamsBy::ALL.map(StreamsBy::name);
        if let Some(i) = reader::choice(sink, f.node, &f.place, "way to tell streams apart", &names)
        {
            clients.streams = StreamsBy::ALL[i];
        }
    }
    clients.metadata = read_header(sink, place, &fields, &clients);
    if let Some(f) = fields.get("strangers") {
        let names = Strangers::ALL.map(Strangers::name);
        let what = "place of clients without history";
        if let Some(i) = reader::choice(sink, f.node, &f.place, what, &names) {
            clients.strangers = Strangers::ALL[i];
        }
    }
    if let Some(f) = fields.get("each") {
        clients.each = read_rights(sink, f.node, &f.place, Rights::EQUAL);
    }
    if let Some(f) = fields.get("named") {
        clients.named = read_named(sink, f.node, &f.place, clients.each);
    }
    clients
}

/// The name of the header, which is there if and only if clients or streams are told apart by it.
fn read_header(
    sink: &mut Sink,
    place: &Place,
    fields: &Fields<'_>,
    clients: &Clients,
) -> Option<String> {
    let is_used = clients.by == ClientsBy::Metadata || clients.streams == StreamsBy::Metadata;
    let Some(f) = fields.get("metadata") else {
        if is_used {
            missing(sink, place, "metadata", "metadata: x-client");
        }
        return None;
    };
    let name = reader::text(sink, f.node, &f.place, "a header, like x-client")?;
    let fits = name.len() <= HEADER_LEN_MAX
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.".contains(&b));
    if !fits {
        let name = name.to_owned();
        sink.error(&f.place, Problem::BadHeader { name });
        return None;
    }
    if !is_used {
        sink.error(&f.place, Problem::UnusedHeader);
    }
    Some(name.to_owned())
}

/// What an entry does not say is as for the clients that are not named.
fn read_named(
    sink: &mut Sink,
    node: &Node,
    place: &Place,
    each: Rights,
) -> IndexMap<String, Rights> {
    let expected = "a map of clients, like { control-room: { weight: 4 } }";
    let fields = reader::map(sink, node, place, expected);
    let count = fields.iter().count();
    if count == 0 && matches!(node.content, Content::Mapping(_)) {
        let example = "control-room: { weight: 4 }";
        sink.error(place, Problem::NoEntries { example });
    }
    if count > NAMED_MAX {
        let (what, limit) = ("clients", NAMED_MAX);
        sink.error(place, Problem::TooMany { what, count, limit });
    }
    let named = fields.iter().take(NAMED_MAX);
    named
        .map(|f| (f.key.to_owned(), read_rights(sink, f.node, &f.place, each)))
        .collect()
}

fn read_rights(sink: &mut Sink, node: &Node, place: &Place, otherwise: Rights) -> Rights {
    let fields = reader::record(sink, node, place, RIGHTS_EXPECTED, &RIGHTS_FIELDS);
    let mut rights = otherwise;
    if let Some(weight) = read_weight(sink, &fields) {
        rights.weight = weight;
    }
    if let Some(class) = read_class(sink, &fields) {
        rights.class = class;
    }
    if let Some(f) = fields.get("rate") {
        rights.rate = reader::number(sink, f.node, &f.place, RATE.0, RATE.1);
    }
    if let Some(f) = fields.get("in_flight") {
        rights.in_flight = reader::count(sink, f.node, &f.place, 1, IN_FLIGHT_MAX);
    }
    rights.background |= read_background(sink, &fields);
    rights
}

/// Whether the fields say that a client has no SLO. A client's own SLO is that of the pipeline: a request may ask for less.
pub(crate) fn read_background(sink: &mut Sink, fields: &Fields<'_>) -> bool {
    let Some(f) = fields.get("slo") else {
        return false;
    };
    let slo = reader::choice(sink, f.node, &f.place, "SLO of a client", &["none"]);
    slo.is_some()
}

/// A client's weight, if the fields have one.
pub(crate) fn read_weight(sink: &mut Sink, fields: &Fields<'_>) -> Option<f64> {
    let f = fields.get("weight")?;
    reader::number(sink, f.node, &f.place, WEIGHT.0, WEIGHT.1)
}

/// A client's priority class, if the fields have one.
pub(crate) fn read_class(sink: &mut Sink, fields: &Fields<'_>) -> Option<u8> {
    let f = fields.get("class")?;
    let class = reader::count(sink, f.node, &f.place, 0, CLASSES as u32 - 1)?;
    u8::try_from(class).ok()
}
