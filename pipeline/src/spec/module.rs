//! Modules as written: their fields, defaults and ranges.

use std::time::Duration;

use crate::diagnostic::{Place, Sink};
use crate::distribution::{SAMPLES_ENOUGH, SAMPLES_MAX, WINDOW_DEFAULT, Window};
use crate::document::{Content, Node};
use crate::pipeline::{BatchLimits, Variant, Workers};
use crate::problem::Problem;
use crate::reader::{self, Fields};
use crate::schedule::SchedulePolicy;

use super::{
    BATCH_DEFAULT, BATCH_MAX, INPUT_MAX, Located, MODULES_MAX, QUEUE_DEFAULT, QUEUE_MAX,
    VARIANTS_MAX, WORKERS_MAX, missing, read_reference,
};

/// Fields of a module.
const MODULE_FIELDS: [&str; 16] = [
    "op",
    "model",
    "models",
    "default_model",
    "input",
    "accuracy",
    "variants",
    "inputs",
    "when",
    "batch",
    "schedule",
    "workers",
    "device",
    "queue",
    "frame_min",
    "options",
];
const VARIANT_FIELDS: [&str; 3] = ["model", "input", "accuracy"];

/// Most pixels of `frame_min`: the longer side of an 8K picture.
pub(crate) const FRAME_MIN_MAX: u32 = 7680;

/// Least and greatest age of the samples of execution times.
const AGE_MIN: Duration = Duration::from_secs(1);
/// See [`AGE_MIN`].
const AGE_MAX: Duration = Duration::from_secs(3600);

/// A module as written.
pub(crate) struct ModuleSpec<'n> {
    pub(crate) name: String,
    pub(crate) place: Place,
    pub(crate) op: Option<Located<String>>,
    /// Inputs and the references they name.
    pub(crate) inputs: Vec<(String, Located<String>)>,
    /// Some of the inputs could not be read, so others may only seem to be missing.
    pub(crate) has_unread_inputs: bool,
    pub(crate) inputs_place: Place,
    pub(crate) when: Option<Located<String>>,
    pub(crate) variants: Vec<Variant>,
    pub(crate) family: Option<FamilySpec>,
    /// Each of the fields about models, where it is written.
    pub(crate) model_fields: Vec<Located<&'static str>>,
    pub(crate) batch: BatchLimits,
    /// The place of its size, or of the module.
    pub(crate) batch_place: Place,
    pub(crate) schedule: Option<SchedulePolicy>,
    pub(crate) window: Window,
    pub(crate) workers: Workers,
    pub(crate) devices: Vec<String>,
    pub(crate) queue: usize,
    pub(crate) frame_min: u32,
    pub(crate) options: Fields<'n>,
    pub(crate) options_place: Place,
}

/// A family of models as written.
pub(crate) struct FamilySpec {
    /// The pattern of its files.
    pub(crate) models: Located<String>,
    pub(crate) default: Option<Located<String>>,
}

pub(super) fn read_modules<'n>(
    sink: &mut Sink,
    node: &'n Node,
    place: &Place,
) -> Vec<ModuleSpec<'n>> {
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
    let (mut variants, model_fields) = read_model(sink, &fields);
    let family = read_family(sink, &fields);
    if let (Some(family), [all]) = (&family, &mut variants[..]) {
        all.model.clone_from(&family.models.value);
    }
    let mut batch_place = place.clone();
    let batch = fields.get("batch").and_then(|f| {
        let batch = reader::record(sink, f.node, &f.place, "a map, like { max: 8 }", &["max"]);
        let max = batch.get("max")?;
        batch_place = max.place.clone();
        Some(BatchLimits {
            max: reader::count(sink, max.node, &max.place, 1, BATCH_MAX)?,
        })
    });
    let (schedule, window) = match fields.get("schedule") {
        Some(f) => read_schedule(sink, f.node, &f.place),
        None => (None, WINDOW_DEFAULT),
    };
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
    let frame_min = fields
        .get("frame_min")
        .and_then(|f| reader::count(sink, f.node, &f.place, 1, FRAME_MIN_MAX));
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
        family,
        model_fields,
        batch: batch.unwrap_or(BatchLimits { max: BATCH_DEFAULT }),
        batch_place,
        schedule,
        window,
        workers: workers.unwrap_or(Workers { min: 1, max: 1 }),
        devices: devices.unwrap_or_else(|| vec!["auto".to_owned()]),
        queue: queue as usize,
        frame_min: frame_min.unwrap_or_default(),
        options,
        options_place,
    }
}

/// `models` and `default_model`.
fn read_family(sink: &mut Sink, fields: &Fields<'_>) -> Option<FamilySpec> {
    let mut read = |key: &str, expected: &str| {
        let f = fields.get(key)?;
        let value = reader::text(sink, f.node, &f.place, expected)?.to_owned();
        let place = f.place.clone();
        Some(Located { value, place })
    };
    let models = read("models", "a pattern of model files, like models/*.pt");
    let default = read("default_model", "the name of a model of the family");
    for field in ["model", "variants"] {
        if let Some(f) = fields.get(field)
            && fields.get("models").is_some()
        {
            sink.error(&f.place, Problem::ModelAndFamily { field });
        }
    }
    if let Some(f) = fields.get("default_model")
        && fields.get("models").is_none()
    {
        sink.error(&f.place, Problem::DefaultWithoutFamily);
    }
    let models = models?;
    Some(FamilySpec { models, default })
}

/// `model` or `models`, `input` and `accuracy`; or `variants`.
fn read_model(sink: &mut Sink, fields: &Fields<'_>) -> (Vec<Variant>, Vec<Located<&'static str>>) {
    let mut named = Vec::new();
    let all = ["variants", "models", "default_model"];
    for field in VARIANT_FIELDS.into_iter().chain(all) {
        if let Some(f) = fields.get(field) {
            named.push(Located {
                value: field,
                place: f.place.clone(),
            });
        }
    }
    let Some(list_field) = fields.get("variants") else {
        let variant = read_variant(sink, fields);
        let has_model = fields.get("model").is_some() || fields.get("models").is_some();
        return (if has_model { vec![variant] } else { Vec::new() }, named);
    };
    let excluded = named.iter().filter(|f| VARIANT_FIELDS.contains(&f.value));
    for field in excluded {
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

fn read_schedule(sink: &mut Sink, node: &Node, place: &Place) -> (Option<SchedulePolicy>, Window) {
    let by_name = |sink: &mut Sink, node: &Node, place: &Place| {
        let names = SchedulePolicy::OFFERED.map(SchedulePolicy::name);
        let i = reader::offered(
            sink,
            node,
            place,
            "batch scheduler",
            (&names, &SchedulePolicy::LABORATORY),
        )?;
        Some(SchedulePolicy::OFFERED[i])
    };
    if !matches!(node.content, Content::Mapping(_)) {
        return (by_name(sink, node, place), WINDOW_DEFAULT);
    }
    let expected = "a batch scheduler, or a map like { name: goodput, samples: 500, age: 60s }";
    let fields = reader::record(sink, node, place, expected, &["name", "samples", "age"]);
    let name = fields
        .get("name")
        .and_then(|f| by_name(sink, f.node, &f.place));
    let mut window = WINDOW_DEFAULT;
    let (least, most) = (SAMPLES_ENOUGH as u32, SAMPLES_MAX as u32);
    if let Some(f) = fields.get("samples")
        && let Some(samples) = reader::count(sink, f.node, &f.place, least, most)
    {
        window.samples = samples as usize;
    }
    if let Some(f) = fields.get("age")
        && let Some(age) = reader::duration(sink, f.node, &f.place, AGE_MIN, AGE_MAX)
    {
        window.age = age;
    }
    (name, window)
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
