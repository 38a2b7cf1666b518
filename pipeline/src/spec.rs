//! The pipeline as written: fields, defaults and ranges, names still unresolved. [`crate::compile`]
//! turns it into a [`crate::Pipeline`].
//!
//! A field with a problem gets its default here; the problem is noted, so the pipeline is refused in
//! the end, but the other fields are still looked at.

use std::time::Duration;

use crate::catalog::ValueType;
use crate::diagnostic::{Place, Sink};
use crate::document::{Content, Node};
use crate::pipeline::{
    Batch, DispatchPolicyName, DropPolicyName, Limits, PolicyConfig, Source, Variant, Workers,
};
use crate::problem::Problem;
use crate::reader::{self, Fields};

/// Shortest objective: less than one frame takes over a local network.
pub const SLO_MIN: Duration = Duration::from_millis(1);
/// Longest objective: whoever can wait an hour needs no deadline.
pub const SLO_MAX: Duration = Duration::from_secs(3600);
/// Most modules: the graph stays readable and planning stays quick.
pub const MODULES_MAX: usize = 1024;
/// Most variants of a module.
pub const VARIANTS_MAX: usize = 64;
/// Most fields of a result.
pub const OUTPUTS_MAX: usize = 1024;
/// Most requests in a batch.
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
    objects: 32,
};

/// Fields of the file.
pub(crate) const ROOT_FIELDS: [&str; 7] = [
    "name", "slo", "source", "modules", "outputs", "policy", "limits",
];
/// Fields of a module.
pub(crate) const MODULE_FIELDS: [&str; 12] = [
    "op", "model", "input", "accuracy", "variants", "inputs", "when", "batch", "workers", "device",
    "queue", "options",
];
const VARIANT_FIELDS: [&str; 3] = ["model", "input", "accuracy"];
const POLICY_FIELDS: [&str; 2] = ["drop", "dispatch"];
const LIMIT_FIELDS: [&str; 5] = [
    "in_flight",
    "in_flight_per_stream",
    "pixels",
    "frame_bytes",
    "objects",
];

/// A pipeline as written.
pub(crate) struct Spec<'n> {
    pub(crate) name: String,
    pub(crate) slo: Located<Duration>,
    pub(crate) source: Source,
    pub(crate) modules_place: Place,
    pub(crate) modules: Vec<ModuleSpec<'n>>,
    pub(crate) outputs: Vec<(String, Located<String>)>,
    pub(crate) policy: PolicyConfig,
    pub(crate) limits: Limits,
}

/// A value and where it stands.
pub(crate) struct Located<T> {
    pub(crate) value: T,
    pub(crate) place: Place,
}

/// A module as written.
pub(crate) struct ModuleSpec<'n> {
    pub(crate) name: String,
    pub(crate) place: Place,
    pub(crate) op: Option<Located<String>>,
    /// Inputs and the references they name.
    pub(crate) inputs: Vec<(String, Located<String>)>,
    /// Some of the inputs could not be read: others may only seem to be missing.
    pub(crate) has_unread_inputs: bool,
    pub(crate) inputs_place: Place,
    pub(crate) when: Option<Located<String>>,
    pub(crate) variants: Vec<Variant>,
    /// Each of the fields that speak of a model, where there is one.
    pub(crate) model_fields: Vec<Located<&'static str>>,
    pub(crate) batch: Batch,
    pub(crate) workers: Workers,
    pub(crate) devices: Vec<String>,
    pub(crate) queue: usize,
    pub(crate) options: Fields<'n>,
    pub(crate) options_place: Place,
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
    let limits = fields
        .get("limits")
        .map(|f| read_limits(sink, f.node, &f.place));
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
        policy: policy.unwrap_or(POLICY_DEFAULT),
        limits: limits.unwrap_or(LIMITS_DEFAULT),
    }
}

/// Policies of a file that names none.
pub const POLICY_DEFAULT: PolicyConfig = PolicyConfig {
    drop: DropPolicyName::Deadline,
    dispatch: DispatchPolicyName::LeastOutstanding,
};

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

fn read_modules<'n>(sink: &mut Sink, node: &'n Node, place: &Place) -> Vec<ModuleSpec<'n>> {
    let fields = reader::map(sink, node, place, "a map of modules");
    let count = fields.iter().count();
    if count == 0 && matches!(node.content, Content::Mapping(_)) {
        sink.error(
            place,
            Problem::NoEntries {
                example: "detect: { op: ... }",
            },
        );
    }
    if count > MODULES_MAX {
        sink.error(
            place,
            Problem::TooMany {
                what: "modules",
                count,
                limit: MODULES_MAX,
            },
        );
    }
    let mut modules = Vec::new();
    for field in fields.iter().take(MODULES_MAX) {
        if field.key == "source" {
            sink.error(&field.place, Problem::ReservedName);
        } else {
            reader::check_name(sink, field.key, &field.place);
        }
        modules.push(read_module(sink, field.key, field.node, &field.place));
    }
    modules
}

fn read_module<'n>(sink: &mut Sink, name: &str, node: &'n Node, place: &Place) -> ModuleSpec<'n> {
    let expected = "a map with op and inputs";
    let fields = reader::record(sink, node, place, expected, &MODULE_FIELDS);
    let op = match fields.get("op") {
        Some(f) => reader::text(sink, f.node, &f.place, "the name of an op").map(|text| Located {
            value: text.to_owned(),
            place: f.place.clone(),
        }),
        None => {
            if matches!(node.content, Content::Mapping(_)) {
                missing(sink, place, "op", "op: NAME");
            }
            None
        }
    };
    let (mut inputs, mut has_unread_inputs, mut inputs_place) = (Vec::new(), false, place.clone());
    if let Some(f) = fields.get("inputs") {
        inputs_place = f.place.clone();
        has_unread_inputs = !matches!(f.node.content, Content::Mapping(_));
        let expected = "a map of inputs, like { image: $source.frame }";
        for input in reader::map(sink, f.node, &f.place, expected).iter() {
            match read_reference(sink, input.node, &input.place) {
                Some(reference) => inputs.push((input.key.to_owned(), reference)),
                None => has_unread_inputs = true,
            }
        }
    }
    let when = fields
        .get("when")
        .and_then(|f| read_reference(sink, f.node, &f.place));
    let (variants, model_fields) = read_model(sink, &fields);
    let batch = fields.get("batch").and_then(|f| {
        let batch = reader::record(sink, f.node, &f.place, "a map, like { max: 8 }", &["max"]);
        let max = batch.get("max")?;
        Some(Batch {
            max: reader::count(sink, max.node, &max.place, 1, BATCH_MAX)?,
        })
    });
    let workers = fields
        .get("workers")
        .and_then(|f| read_workers(sink, f.node, &f.place));
    let devices = fields
        .get("device")
        .map(|f| read_devices(sink, f.node, &f.place));
    let queue = fields
        .get("queue")
        .and_then(|f| reader::count(sink, f.node, &f.place, 1, QUEUE_MAX))
        .unwrap_or(QUEUE_DEFAULT);
    let (options, options_place) = match fields.get("options") {
        Some(f) => {
            let expected = "a map of options";
            (
                reader::map(sink, f.node, &f.place, expected),
                f.place.clone(),
            )
        }
        None => (Fields::default(), place.clone()),
    };
    ModuleSpec {
        name: name.to_owned(),
        place: place.clone(),
        op,
        inputs,
        has_unread_inputs,
        inputs_place,
        when,
        variants,
        model_fields,
        batch: batch.unwrap_or(Batch { max: BATCH_DEFAULT }),
        workers: workers.unwrap_or(Workers { min: 1, max: 1 }),
        devices: devices.unwrap_or_else(|| vec!["auto".to_owned()]),
        queue: queue as usize,
        options,
        options_place,
    }
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

/// `model`, `input` and `accuracy`, or `variants`.
fn read_model(sink: &mut Sink, fields: &Fields<'_>) -> (Vec<Variant>, Vec<Located<&'static str>>) {
    let mut named = Vec::new();
    for field in VARIANT_FIELDS.into_iter().chain(["variants"]) {
        if let Some(f) = fields.get(field) {
            named.push(Located {
                value: field,
                place: f.place.clone(),
            });
        }
    }
    let Some(list_field) = fields.get("variants") else {
        let has_model = fields.get("model").is_some();
        let variant = read_variant(sink, fields);
        return (if has_model { vec![variant] } else { Vec::new() }, named);
    };
    for field in named.iter().filter(|f| f.value != "variants") {
        sink.error(
            &field.place,
            Problem::ModelAndVariants { field: field.value },
        );
    }
    let expected = "a list of variants, like [{ model: FILE, input: 320 }]";
    let entries =
        reader::list(sink, list_field.node, &list_field.place, expected).unwrap_or_default();
    if entries.is_empty() && matches!(list_field.node.content, Content::Sequence(_)) {
        let example = "[{ model: FILE, input: 320 }]";
        sink.error(&list_field.place, Problem::NoEntries { example });
    }
    if entries.len() > VARIANTS_MAX {
        let (what, count, limit) = ("variants", entries.len(), VARIANTS_MAX);
        sink.error(&list_field.place, Problem::TooMany { what, count, limit });
    }
    let mut variants: Vec<Variant> = Vec::new();
    for (i, entry) in entries.iter().take(VARIANTS_MAX).enumerate() {
        let place = list_field.place.index(i, entry.line);
        let expected = "a variant, like { model: FILE, input: 320 }";
        let fields = reader::record(sink, entry, &place, expected, &VARIANT_FIELDS);
        if fields.get("model").is_none() && matches!(entry.content, Content::Mapping(_)) {
            missing(sink, &place, "model", "model: FILE");
        }
        let variant = read_variant(sink, &fields);
        if matches!(entry.content, Content::Mapping(_))
            && let Some(first) = variants.iter().position(|v| v.input == variant.input)
        {
            sink.error(
                &place,
                Problem::EqualVariants {
                    input: variant.input,
                    first,
                },
            );
        }
        variants.push(variant);
    }
    (variants, named)
}

fn read_variant(sink: &mut Sink, fields: &Fields<'_>) -> Variant {
    let model = fields
        .get("model")
        .and_then(|f| reader::text(sink, f.node, &f.place, "the path of a model file"));
    let input = fields
        .get("input")
        .and_then(|f| reader::count(sink, f.node, &f.place, 1, INPUT_MAX));
    let accuracy = fields
        .get("accuracy")
        .and_then(|f| reader::number(sink, f.node, &f.place, 0.0, 1.0));
    Variant {
        model: model.unwrap_or_default().to_owned(),
        input,
        accuracy,
    }
}

fn read_workers(sink: &mut Sink, node: &Node, place: &Place) -> Option<Workers> {
    if matches!(node.content, Content::Scalar(..)) {
        let n = reader::count(sink, node, place, 1, WORKERS_MAX)?;
        return Some(Workers { min: n, max: n });
    }
    let expected = "a number, or a map like { min: 1, max: 4 }";
    let fields = reader::record(sink, node, place, expected, &["min", "max"]);
    let mut bound = |key: &str| {
        let field = fields.get(key)?;
        reader::count(sink, field.node, &field.place, 1, WORKERS_MAX)
    };
    let (min, max) = (bound("min"), bound("max"));
    let workers = match (min, max) {
        (Some(min), Some(max)) => Workers { min, max },
        (Some(min), None) => Workers { min, max: min },
        (None, max) => Workers {
            min: 1,
            max: max.unwrap_or(1),
        },
    };
    if workers.min > workers.max {
        let (min, max) = (u64::from(workers.min), u64::from(workers.max));
        sink.error(place, Problem::MinAboveMax { min, max });
    }
    Some(workers)
}

fn read_devices(sink: &mut Sink, node: &Node, place: &Place) -> Vec<String> {
    const EXPECTED: &str = "a device or a list of devices, like [cuda:0, cuda:1]";
    let mut devices: Vec<String> = Vec::new();
    match &node.content {
        Content::Sequence(list) => {
            if list.is_empty() {
                sink.error(
                    place,
                    Problem::NoEntries {
                        example: "[cuda:0, cuda:1]",
                    },
                );
            }
            for (i, entry) in list.iter().enumerate() {
                let place = place.index(i, entry.line);
                let Some(device) = read_device(sink, entry, &place, "a device, like cuda:0") else {
                    continue;
                };
                if devices.contains(&device) {
                    sink.error(&place, Problem::RepeatedDevice { device });
                } else {
                    devices.push(device);
                }
            }
        }
        _ => devices.extend(read_device(sink, node, place, EXPECTED)),
    }
    if devices.len() > 1 && devices.iter().any(|d| d == "auto") {
        sink.error(place, Problem::AutoWithOthers);
    }
    devices
}

fn read_device(sink: &mut Sink, node: &Node, place: &Place, expected: &str) -> Option<String> {
    let text = reader::text(sink, node, place, expected)?;
    if !is_device(text) {
        sink.error(
            place,
            Problem::UnknownDevice {
                device: text.to_owned(),
            },
        );
        return None;
    }
    Some(text.to_owned())
}

/// `auto`, or a kind, with or without a number.
fn is_device(text: &str) -> bool {
    let (kind, number) = match text.split_once(':') {
        Some((kind, number)) => (kind, Some(number)),
        None => (text, None),
    };
    let is_number = |n: &str| n.parse::<u16>().is_ok_and(|value| value.to_string() == n);
    match kind {
        "auto" => number.is_none(),
        "cpu" | "cuda" | "emulated" => number.is_none_or(is_number),
        _ => false,
    }
}

fn read_policy(sink: &mut Sink, node: &Node, place: &Place) -> PolicyConfig {
    let expected = "a map, like { drop: deadline }";
    let fields = reader::record(sink, node, place, expected, &POLICY_FIELDS);
    let mut policy = POLICY_DEFAULT;
    if let Some(f) = fields.get("drop") {
        let names = DropPolicyName::ALL.map(DropPolicyName::name);
        if let Some(i) = reader::choice(sink, f.node, &f.place, "drop policy", &names) {
            policy.drop = DropPolicyName::ALL[i];
        }
    }
    if let Some(f) = fields.get("dispatch") {
        let names = DispatchPolicyName::ALL.map(DispatchPolicyName::name);
        if let Some(i) = reader::choice(sink, f.node, &f.place, "dispatch policy", &names) {
            policy.dispatch = DispatchPolicyName::ALL[i];
        }
    }
    policy
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
    limits.objects = objects.map_or(limits.objects, |n| n as usize);
    limits
}
