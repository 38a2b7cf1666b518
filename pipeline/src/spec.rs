//! The pipeline as written: fields, defaults and ranges, names still unresolved. [`crate::compile()`]
//! turns it into a [`crate::Pipeline`].
//!
//! A field with a problem gets its default here and the problem is noted. So the pipeline fails in the end, but the
//! other fields are checked too.

mod adapt;
pub(crate) mod clients;
mod module;

use std::time::Duration;

use crate::catalog::ValueType;
use crate::clients::Clients;
use crate::diagnostic::{Place, Sink};
use crate::document::{Content, Node};
use crate::pipeline::{Damaged, Limits, Source};
use crate::policy::{DispatchPolicyName, DropPolicy, POLICY_DEFAULT, PolicyConfig, WINDOW_DEFAULT};
use crate::problem::Problem;
use crate::reader;

/// Shortest objective: a frame takes longer over a local network.
pub const SLO_MIN: Duration = Duration::from_millis(1);
/// Longest objective: requests that can wait an hour need no deadline.
pub const SLO_MAX: Duration = Duration::from_secs(3600);
/// Most modules: the graph stays readable and planning stays quick.
pub const MODULES_MAX: usize = 1024;
/// Most variants of a module.
pub const VARIANTS_MAX: usize = 64;
/// Most fields of a result.
pub const OUTPUTS_MAX: usize = 1024;
/// Largest `batch: max`, and so the largest batch at all. Narrower limits are defined beside their reasons; an
/// assertion at compile time keeps each of them below this one.
pub const BATCH_MAX: u32 = 1024;
/// Most workers of a module: the simulator runs thousands of devices.
pub const WORKERS_MAX: u32 = 10_000;
/// Longest queue of a worker.
pub const QUEUE_MAX: u32 = 1 << 20;
/// Largest side of a network input, in pixels.
pub const INPUT_MAX: u32 = 16_384;

/// Highest `in_flight`.
pub const IN_FLIGHT_MAX: u32 = 1 << 20;
/// Highest `pixels`: a gigapixel, more than any camera sends.
pub const PIXELS_MAX: u32 = 1 << 30;
/// Shortest `decoding`: less than any picture takes.
pub(crate) const DECODING_MIN: Duration = Duration::from_micros(10);
/// Longest `decoding`: no frame may occupy a decoder for longer.
pub(crate) const DECODING_MAX: Duration = Duration::from_secs(60);
/// Highest `frame_bytes`: a gigabyte, more than any codec needs.
pub const FRAME_BYTES_MAX: u32 = 1 << 30;
/// Highest `objects`.
pub const OBJECTS_MAX: u32 = 1 << 16;

/// Default batch limit.
pub const BATCH_DEFAULT: u32 = 8;
/// Default queue bound: a second of a fast camera.
pub const QUEUE_DEFAULT: u32 = 64;
/// Default bounds at the gateway: 8K pictures, 16 MiB frames.
pub const LIMITS_DEFAULT: Limits = Limits {
    in_flight: 1024,
    in_flight_per_stream: 64,
    pixels: 7680 * 4320,
    frame_bytes: 16 << 20,
    decoding: None,
    objects: 32,
    damaged: Damaged::Served,
};

/// Fields of the file.
const ROOT_FIELDS: [&str; 8] = [
    "name", "slo", "source", "modules", "outputs", "policy", "limits", "clients",
];
const POLICY_FIELDS: [&str; 6] = ["drop", "dispatch", "lambda", "gate", "window", "adapt"];
/// Largest `gate`: a larger one refuses nothing.
pub const GATE_MAX: f64 = 100.0;
/// Shortest window of a State Planner: shorter ones hold too few batches.
pub const WINDOW_MIN: Duration = Duration::from_millis(100);
/// Longest window: older values say nothing about a burst.
pub const WINDOW_MAX: Duration = Duration::from_secs(3600);

const _: () = assert!(WINDOW_MIN.as_nanos() <= WINDOW_DEFAULT.as_nanos());
const _: () = assert!(WINDOW_DEFAULT.as_nanos() <= WINDOW_MAX.as_nanos());
const LIMIT_FIELDS: [&str; 7] = [
    "in_flight",
    "in_flight_per_stream",
    "pixels",
    "frame_bytes",
    "decoding",
    "objects",
    "damaged",
];

pub(crate) use adapt::AdaptSpec;
use adapt::read_adapt;
use module::read_modules;
pub(crate) use module::{FRAME_MIN_MAX, FamilySpec, ModuleSpec};

/// A pipeline as written.
pub(crate) struct Spec<'n> {
    pub(crate) name: String,
    pub(crate) slo: Located<Duration>,
    pub(crate) source: Source,
    pub(crate) modules_place: Place,
    pub(crate) modules: Vec<ModuleSpec<'n>>,
    pub(crate) outputs: Vec<(String, Located<String>)>,
    pub(crate) policy: PolicyConfig,
    pub(crate) adapt: Option<Located<AdaptSpec>>,
    pub(crate) limits: Limits,
    pub(crate) clients: Clients,
}

/// A value and where it stands.
pub(crate) struct Located<T> {
    pub(crate) value: T,
    pub(crate) place: Place,
}

/// Reads the fields of a pipeline file.
pub(crate) fn read<'n>(sink: &mut Sink, root: &'n Node) -> Spec<'n> {
    let place = Place::root();
    let fields = reader::record(
        sink,
        root,
        &place,
        "a map with name, slo, modules, outputs",
        &ROOT_FIELDS,
    );
    let is_map = matches!(root.content, Content::Mapping(_));
    let mut need = |key: &str, example: &str| {
        let field = fields.get(key);
        if field.is_none() && is_map {
            missing(sink, &place, key, example);
        }
        field
    };
    let name_field = need("name", "name: traffic");
    let slo_field = need("slo", "slo: 400ms");
    let modules_field = need("modules", "modules: { detect: { op: ... } }");
    let outputs_field = need("outputs", "outputs: { vehicles: $detect.vehicles }");

    let mut name = String::new();
    if let Some(field) = name_field
        && let Some(text) = reader::text(sink, field.node, &field.place, "a name, like traffic")
    {
        reader::check_name(sink, text, &field.place);
        name = text.to_owned();
    }
    let slo = slo_field
        .and_then(|f| {
            let value = reader::duration(sink, f.node, &f.place, SLO_MIN, SLO_MAX)?;
            Some(Located {
                value,
                place: f.place.clone(),
            })
        })
        .unwrap_or(Located {
            value: SLO_MAX,
            place: place.clone(),
        });
    let source = fields
        .get("source")
        .and_then(|f| read_source(sink, f.node, &f.place));
    let modules = match modules_field {
        Some(f) => read_modules(sink, f.node, &f.place),
        None => Vec::new(),
    };
    let outputs = match outputs_field {
        Some(f) => read_outputs(sink, f.node, &f.place),
        None => Vec::new(),
    };
    let policy = fields
        .get("policy")
        .map(|f| read_policy(sink, f.node, &f.place));
    let (policy, adapt) = policy.unwrap_or((POLICY_DEFAULT, None));
    let limits = fields
        .get("limits")
        .map(|f| read_limits(sink, f.node, &f.place));
    let clients = fields
        .get("clients")
        .map(|f| clients::read_clients(sink, f.node, &f.place));
    Spec {
        name,
        slo,
        source: source.unwrap_or_else(|| Source {
            field: "frame".to_owned(),
            ty: ValueType::Image,
        }),
        modules_place: modules_field.map_or(place, |f| f.place.clone()),
        modules,
        outputs,
        policy,
        adapt,
        limits: limits.unwrap_or(LIMITS_DEFAULT),
        clients: clients.unwrap_or_else(Clients::equal),
    }
}

fn missing(sink: &mut Sink, place: &Place, field: &str, example: &str) {
    let (field, example) = (field.to_owned(), example.to_owned());
    sink.error(place, Problem::MissingField { field, example });
}

fn read_source(sink: &mut Sink, node: &Node, place: &Place) -> Option<Source> {
    const EXAMPLE: &str = "frame: image";
    let fields = reader::map(
        sink,
        node,
        place,
        "a map with one field, like { frame: image }",
    );
    let n_fields = fields.iter().count();
    if n_fields == 0 && matches!(node.content, Content::Mapping(_)) {
        sink.error(place, Problem::NoEntries { example: EXAMPLE });
    }
    if n_fields > 1 {
        let what = "fields of a request";
        sink.error(
            place,
            Problem::TooMany {
                what,
                count: n_fields,
                limit: 1,
            },
        );
    }
    let field = fields.iter().next()?;
    reader::check_name(sink, field.key, &field.place);
    const TYPES: [ValueType; 2] = [ValueType::Image, ValueType::Bytes];
    let names = TYPES.map(ValueType::name);
    let ty = reader::choice(sink, field.node, &field.place, "source type", &names)?;
    Some(Source {
        field: field.key.to_owned(),
        ty: TYPES[ty],
    })
}

fn read_reference(sink: &mut Sink, node: &Node, place: &Place) -> Option<Located<String>> {
    const EXPECTED: &str = "a reference, like $module.output";
    match &node.content {
        Content::Scalar(text, value) if value.is_string() => Some(Located {
            value: text.clone(),
            place: place.clone(),
        }),
        _ => reader::wrong_value(sink, node, place, EXPECTED),
    }
}

fn read_outputs(sink: &mut Sink, node: &Node, place: &Place) -> Vec<(String, Located<String>)> {
    let fields = reader::map(sink, node, place, "a map of results");
    let count = fields.iter().count();
    if count == 0 && matches!(node.content, Content::Mapping(_)) {
        sink.error(
            place,
            Problem::NoEntries {
                example: "vehicles: $detect.vehicles",
            },
        );
    }
    if count > OUTPUTS_MAX {
        sink.error(
            place,
            Problem::TooMany {
                what: "outputs",
                count,
                limit: OUTPUTS_MAX,
            },
        );
    }
    let mut outputs = Vec::new();
    for f in fields.iter().take(OUTPUTS_MAX) {
        reader::check_name(sink, f.key, &f.place);
        if let Some(reference) = read_reference(sink, f.node, &f.place) {
            outputs.push((f.key.to_owned(), reference));
        }
    }
    outputs
}

fn read_policy(
    sink: &mut Sink,
    node: &Node,
    place: &Place,
) -> (PolicyConfig, Option<Located<AdaptSpec>>) {
    let expected = "a map, like { drop: spillgate }";
    let fields = reader::record(sink, node, place, expected, &POLICY_FIELDS);
    let mut policy = POLICY_DEFAULT;
    if let Some(f) = fields.get("drop") {
        let names = DropPolicy::OFFERED.map(DropPolicy::name);
        if let Some(i) = reader::offered(
            sink,
            f.node,
            &f.place,
            "drop policy",
            (&names, &DropPolicy::LABORATORY),
        ) {
            policy.drop = DropPolicy::OFFERED[i];
            policy.drop_is_named = true;
        }
    }
    if let Some(f) = fields.get("dispatch") {
        let names = DispatchPolicyName::OFFERED.map(DispatchPolicyName::name);
        if let Some(i) = reader::offered(
            sink,
            f.node,
            &f.place,
            "dispatch policy",
            (&names, &DispatchPolicyName::LABORATORY),
        ) {
            policy.dispatch = Some(DispatchPolicyName::OFFERED[i]);
            if let Some(problem) = policy.contradiction() {
                sink.error(&f.place, problem);
            }
        }
    }
    if let Some(f) = fields.get("lambda") {
        policy.lambda = reader::number(sink, f.node, &f.place, 0.0, 1.0);
    }
    if let Some(f) = fields.get("gate") {
        policy.gate = reader::number(sink, f.node, &f.place, 0.0, GATE_MAX);
    }
    if let Some(f) = fields.get("window")
        && let Some(window) = reader::duration(sink, f.node, &f.place, WINDOW_MIN, WINDOW_MAX)
    {
        policy.window = window;
    }
    let adapt = fields.get("adapt").and_then(|f| {
        Some(Located {
            value: read_adapt(sink, f.node, &f.place)?,
            place: f.place.clone(),
        })
    });
    (policy, adapt)
}

fn read_limits(sink: &mut Sink, node: &Node, place: &Place) -> Limits {
    let expected = "a map, like { in_flight: 1024 }";
    let fields = reader::record(sink, node, place, expected, &LIMIT_FIELDS);
    let mut bound = |key: &str, high: u32| {
        let field = fields.get(key)?;
        reader::count(sink, field.node, &field.place, 1, high)
    };
    let in_flight = bound("in_flight", IN_FLIGHT_MAX);
    let per_stream = bound("in_flight_per_stream", IN_FLIGHT_MAX);
    let pixels = bound("pixels", PIXELS_MAX);
    let frame_bytes = bound("frame_bytes", FRAME_BYTES_MAX);
    let objects = bound("objects", OBJECTS_MAX);
    let mut limits = LIMITS_DEFAULT;
    if let Some(n) = in_flight {
        limits.in_flight = n as usize;
    }
    limits.in_flight_per_stream = match per_stream {
        Some(n) => n as usize,
        None => limits.in_flight_per_stream.min(limits.in_flight),
    };
    if limits.in_flight_per_stream > limits.in_flight
        && let Some(f) = fields.get("in_flight_per_stream")
    {
        let value = limits.in_flight_per_stream as u64;
        sink.error(
            &f.place,
            Problem::StreamAboveTotal {
                value,
                limit: limits.in_flight as u64,
            },
        );
    }
    limits.pixels = pixels.map_or(limits.pixels, u64::from);
    limits.frame_bytes = frame_bytes.map_or(limits.frame_bytes, |n| n as usize);
    if let Some(f) = fields.get("decoding") {
        limits.decoding = reader::duration(sink, f.node, &f.place, DECODING_MIN, DECODING_MAX);
    }
    limits.objects = objects.map_or(limits.objects, |n| n as usize);
    if let Some(f) = fields.get("damaged") {
        let names = Damaged::ALL.map(Damaged::name);
        if let Some(i) = reader::choice(sink, f.node, &f.place, "fate of damaged pictures", &names)
        {
            limits.damaged = Damaged::ALL[i];
        }
    }
    limits
}
