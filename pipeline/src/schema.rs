//! The JSON Schema (draft 2020-12) of pipeline files, for editors: every field with its description and range, and
//! the inputs and options of each op. The schema describes the form of a file; only [`crate::compile()`] checks
//! references and graph.

mod clients;
mod variables;

use serde_json::{Map, Value, json};

use crate::catalog::{
    Catalog, GROUP_TEXTS_MAX, GROUPS_MAX, ModelNeed, ModuleType, OptionSpec, OptionType, Port,
};
use crate::compile::option::LIST_LEN_MAX;
use crate::distribution::{self, SAMPLES_ENOUGH, SAMPLES_MAX};
use crate::family::MEMBERS_MAX;
use crate::pipeline::Damaged;
use crate::policy::{AdaptName, DispatchPolicyName, DropPolicy, POLICY_DEFAULT, WINDOW_DEFAULT};
use crate::schedule::SchedulePolicy;
use crate::spec::{
    BATCH_DEFAULT, BATCH_MAX, FRAME_BYTES_MAX, FRAME_MIN_MAX, GATE_MAX, IN_FLIGHT_MAX, INPUT_MAX,
    LIMITS_DEFAULT, MODULES_MAX, OBJECTS_MAX, OUTPUTS_MAX, PIXELS_MAX, QUEUE_DEFAULT, QUEUE_MAX,
    VARIANTS_MAX, WORKERS_MAX,
};
use crate::time::format_duration;

/// Where the dialect is defined.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";
const NAME_PATTERN: &str = "^[A-Za-z][A-Za-z0-9_-]{0,63}$";
const REFERENCE_PATTERN: &str = "^\\$[A-Za-z][A-Za-z0-9_-]{0,63}\\.[A-Za-z][A-Za-z0-9_-]{0,63}$";
const DURATION_PATTERN: &str = "^[0-9]*\\.?[0-9]+ *(ns|us|ms|s|m|h)$";
const DEVICE_PATTERN: &str = "^(auto|(cpu|cuda|emulated)(:(0|[1-9][0-9]{0,4}))?)$";

/// The schema of pipeline files whose ops are those of the catalogue.
pub fn json_schema(catalog: &Catalog) -> Value {
    variables::allow(json!({
        "$schema": DIALECT,
        "title": "Spillgate pipeline",
        "description": "A DAG of modules served under one end-to-end latency objective.",
        "type": "object",
        "additionalProperties": false,
        "required": ["name", "slo", "modules", "outputs"],
        "properties": {
            "name": {
                "description": "Its name, by which clients address it.",
                "type": "string",
                "pattern": NAME_PATTERN,
            },
            "slo": {
                "description": "The end-to-end latency objective: every request is to be answered within it. \
                                1ms to an hour, like 400ms.",
                "type": "string",
                "pattern": DURATION_PATTERN,
            },
            "source": {
                "description": "What a request carries: one field, an image or bytes; modules \
                                read it as $source.NAME. Default: { frame: image }.",
                "type": "object",
                "minProperties": 1,
                "maxProperties": 1,
                "propertyNames": { "pattern": NAME_PATTERN },
                "additionalProperties": { "enum": ["image", "bytes"] },
                "default": { "frame": "image" },
            },
            "modules": {
                "description": "The modules, each under a name of your choice. The graph follows from what \
                                they refer to in inputs and when.",
                "type": "object",
                "minProperties": 1,
                "maxProperties": MODULES_MAX,
                "propertyNames": { "pattern": NAME_PATTERN, "not": { "const": "source" } },
                "additionalProperties": { "$ref": "#/$defs/module" },
            },
            "outputs": {
                "description": "What a result carries: names of your choice, each with the output it comes \
                                from, like plates: $plates.text.",
                "type": "object",
                "minProperties": 1,
                "maxProperties": OUTPUTS_MAX,
                "propertyNames": { "pattern": NAME_PATTERN },
                "additionalProperties": { "$ref": "#/$defs/reference" },
            },
            "policy": policy(),
            "limits": limits(),
            "clients": clients::schema(),
        },
        "$defs": {
            "reference": {
                "description": "Where a value comes from: $MODULE.OUTPUT of another module, or $source.NAME, what \
                                a request carries.",
                "type": "string",
                "pattern": REFERENCE_PATTERN,
            },
            "duration": {
                "description": "A time with its unit: 500us, 20ms, 1.5s, 2m.",
                "type": "string",
                "pattern": DURATION_PATTERN,
            },
            "model": {
                "description": "The model file, relative to the pipeline file.",
                "type": "string",
                "minLength": 1,
            },
            "input": integer("Side of the square network input in pixels.", 1, INPUT_MAX.into()),
            "accuracy": {
                "description": "Measured accuracy of the model.",
                "type": "number",
                "minimum": 0,
                "maximum": 1,
            },
            "device": {
                "description": "A kind of device with or without its number, like cuda:0; or auto: a GPU where there is one, else the processor.",
                "type": "string",
                "pattern": DEVICE_PATTERN,
            },
            "module": module(catalog),
        },
    }))
}

fn policy() -> Value {
    json!({
        "description": "Which policies drop requests and choose workers; what is left out has a default.",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "drop": {
                "description": "Which requests are dropped, in which order the others are served. \
                                docs/policy.md explains each.",
                "enum": DropPolicy::OFFERED.map(DropPolicy::name),
                "default": POLICY_DEFAULT.drop.name(),
            },
            "dispatch": {
                "description": "Which worker of a module a request goes to. Default: earliest-start \
                                for spillgate (pull where several gateways decide, and at the module whose \
                                variants are chosen), least-outstanding for the others. Only policies \
                                that bind late can pull.",
                "enum": DispatchPolicyName::OFFERED.map(DispatchPolicyName::name),
            },
            "lambda": {
                "description": "Quantile of the waits downstream that the estimate counts with. \
                                Default: 0.1 for pard and its ablations, spillgate has its own.",
                "type": "number",
                "minimum": 0,
                "maximum": 1,
            },
            "gate": {
                "description": "Requests are refused at the gateway over this multiple of the \
                                bottleneck's capacity; 0: never. Default: 0 for published policies.",
                "type": "number",
                "minimum": 0,
                "maximum": GATE_MAX,
            },
            "window": {
                "description": "Length of the sliding windows of the State Planners.",
                "$ref": "#/$defs/duration",
                "default": format_duration(WINDOW_DEFAULT),
            },
            "adapt": adapt(),
        },
    })
}

fn adapt() -> Value {
    let names = AdaptName::ALL.map(AdaptName::name);
    json!({
        "description": "How the variant that serves a request is chosen, of the first module with several. Default: \
                        spillgate where each of them states its accuracy, else fixed: the most accurate one serves.",
        "anyOf": [
            { "enum": names },
            {
                "type": "object",
                "additionalProperties": false,
                "required": ["name"],
                "properties": {
                    "name": { "enum": names },
                    "variant": integer(
                        "With fixed: ordinal of the variant that serves, from 0, in order of accuracy.",
                        0,
                        VARIANTS_MAX as i64 - 1,
                    ),
                },
            },
        ],
    })
}

fn limits() -> Value {
    let bound = |text: &str, high: u32, default: u64| {
        let mut value = integer(text, 1, high.into());
        value["default"] = default.into();
        value
    };
    let d = LIMITS_DEFAULT;
    json!({
        "description": "Bounds on what clients send. A request over a bound is answered at once and never queued.",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "in_flight": bound("Most requests in flight; one more is refused.", IN_FLIGHT_MAX, d.in_flight as u64),
            "in_flight_per_stream": bound(
                "Most requests in flight of one client's stream; one more is refused.",
                IN_FLIGHT_MAX,
                d.in_flight_per_stream as u64,
            ),
            "pixels": bound("Most pixels of a frame, as its header says; a larger one is refused.", PIXELS_MAX, d.pixels),
            "frame_bytes": bound(
                "Most bytes of a frame as it is sent; a larger one is refused.",
                FRAME_BYTES_MAX,
                d.frame_bytes as u64,
            ),
            "decoding": {
                "description": "Most time that decoding a frame may take, as computed from its bytes and as it runs: half of the SLO unless said otherwise.",
                "$ref": "#/$defs/duration",
            },
            "objects": bound(
                "Most objects of a frame that a module works on; those of lowest score are left out, and results say so.",
                OBJECTS_MAX,
                d.objects as u64,
            ),
            "damaged": {
                "description": "What happens to frames whose picture is damaged but decodes: their results tell of it, or they are refused.",
                "enum": Damaged::ALL.map(Damaged::name),
                "default": d.damaged.name(),
            },
        },
    })
}

fn module(catalog: &Catalog) -> Value {
    let ops: Vec<&str> = catalog.types().map(|ty| ty.name.as_str()).collect();
    let about_ops: Vec<String> = catalog
        .types()
        .map(|ty| format!("- {}: {}", ty.name, ty.doc))
        .collect();
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["op"],
        "properties": {
            "op": {
                "description": format!("What the module does (`spillgate modules NAME` says more):\n{}", about_ops.join("\n")),
                "enum": ops,
            },
            "model": { "$ref": "#/$defs/model" },
            "models": {
                "description": format!("A family of models, in place of model: a pattern of files relative to the pipeline \
                                file, with * and ? in its last part, like models/*.pt. A model is named by its file without \
                                the last ending, and each frame names one. At most {MEMBERS_MAX} files."),
                "type": "string",
                "minLength": 1,
            },
            "default_model": {
                "description": "The model of the family for frames that name none. Default: such frames are refused.",
                "type": "string",
                "minLength": 1,
            },
            "input": { "$ref": "#/$defs/input" },
            "accuracy": { "$ref": "#/$defs/accuracy" },
            "variants": {
                "description": "Several models for the same work, each with its own input size; \
                                in place of model.",
                "type": "array",
                "minItems": 1,
                "maxItems": VARIANTS_MAX,
                "items": {
                    "type": "object",
                    "additionalProperties": false,
                    "required": ["model"],
                    "properties": {
                        "model": { "$ref": "#/$defs/model" },
                        "input": { "$ref": "#/$defs/input" },
                        "accuracy": { "$ref": "#/$defs/accuracy" },
                    },
                },
            },
            "inputs": {
                "description": "Where each input comes from.",
                "type": "object",
                "additionalProperties": { "$ref": "#/$defs/reference" },
            },
            "when": {
                "description": "The module runs only for requests for which this output is not empty: at \
                                least one box, text or label.",
                "$ref": "#/$defs/reference",
            },
            "batch": {
                "description": "Limits of a batch.",
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "max": with_default(
                        integer("Most requests in a batch.", 1, BATCH_MAX.into()),
                        BATCH_DEFAULT,
                    ),
                },
            },
            "workers": {
                "description": "How many workers: a number, or bounds between which they follow the load; \
                                those beyond min are on a device each. Default: 1.",
                "anyOf": [
                    integer("So many.", 1, WORKERS_MAX.into()),
                    {
                        "type": "object",
                        "additionalProperties": false,
                        "properties": {
                            "min": integer("At least; default 1.", 1, WORKERS_MAX.into()),
                            "max": integer("At most; default min.", 1, WORKERS_MAX.into()),
                        },
                    },
                ],
            },
            "device": {
                "description": "The device, or the devices, that may serve it. Default: auto.",
                "anyOf": [
                    { "$ref": "#/$defs/device" },
                    {
                        "type": "array",
                        "minItems": 1,
                        "uniqueItems": true,
                        "items": { "$ref": "#/$defs/device" },
                    },
                ],
            },
            "schedule": {
                "description": "Who forms its batches from execution-time distributions: docs/schedulers.md. Default: \
                                goodput where the time of the op depends on what a request brings and the drop policy \
                                is spillgate, else none.",
                "anyOf": [
                    { "enum": SchedulePolicy::OFFERED.map(SchedulePolicy::name) },
                    {
                        "type": "object",
                        "additionalProperties": false,
                        "properties": {
                            "name": { "enum": SchedulePolicy::OFFERED.map(SchedulePolicy::name) },
                            "samples": with_default(
                                integer(
                                    "Execution times of each application that count.",
                                    SAMPLES_ENOUGH as i64,
                                    SAMPLES_MAX as i64,
                                ),
                                distribution::WINDOW_DEFAULT.samples as u32,
                            ),
                            "age": {
                                "description": "How long they count, 1s to 60m.",
                                "$ref": "#/$defs/duration",
                                "default": format_duration(distribution::WINDOW_DEFAULT.age),
                            },
                        },
                    },
                ],
            },
            "queue": with_default(
                integer("Bound of each worker's queue.", 1, QUEUE_MAX.into()),
                QUEUE_DEFAULT,
            ),
            "frame_min": integer(
                "Longer side in pixels that a frame needs for this module: clients that adapt are asked for no smaller ones.",
                1,
                FRAME_MIN_MAX.into(),
            ),
            "options": { "description": "Options of the op.", "type": "object" },
        },
        "dependentSchemas": {
            "variants": {
                "properties": { "model": false, "input": false, "accuracy": false },
            },
            "models": {
                "properties": { "model": false, "variants": false },
            },
            "default_model": { "required": ["models"] },
        },
        "allOf": catalog.types().map(rules_of_op).collect::<Vec<_>>(),
    })
}

/// The form of a module of this op.
fn rules_of_op(ty: &ModuleType) -> Value {
    let mut required = Vec::new();
    let needs_inputs = ty.inputs.iter().any(|p| !p.optional);
    if needs_inputs {
        required.push("inputs");
    }
    if ty.options.iter().any(|o| o.required) {
        required.push("options");
    }
    let names = |ports: &[Port]| -> Vec<String> {
        ports
            .iter()
            .filter(|p| !p.optional)
            .map(|p| p.name.clone())
            .collect()
    };
    let inputs: Map<String, Value> = ty
        .inputs
        .iter()
        .map(|p| (p.name.clone(), input_of(p)))
        .collect();
    let options: Map<String, Value> = ty
        .options
        .iter()
        .map(|o| (o.name.clone(), value_of_option(ty, o)))
        .collect();
    let required_options: Vec<&str> = ty
        .options
        .iter()
        .filter(|o| o.required)
        .map(|o| o.name.as_str())
        .collect();
    let mut properties = Map::new();
    properties.insert(
        "inputs".to_owned(),
        json!({
            "properties": inputs,
            "required": names(&ty.inputs),
            "additionalProperties": false,
        }),
    );
    properties.insert(
        "options".to_owned(),
        json!({
            "properties": options,
            "required": required_options,
            "additionalProperties": false,
        }),
    );
    let mut then = json!({ "required": required });
    match ty.model {
        ModelNeed::Required => {
            then["anyOf"] = json!([
                { "required": ["model"] },
                { "required": ["models"] },
                { "required": ["variants"] },
            ]);
        }
        ModelNeed::None => {
            for field in [
                "model",
                "models",
                "default_model",
                "input",
                "accuracy",
                "variants",
            ] {
                properties.insert(field.to_owned(), Value::Bool(false));
            }
        }
    }
    then["properties"] = Value::Object(properties);
    json!({
        "if": { "properties": { "op": { "const": ty.name } }, "required": ["op"] },
        "then": then,
    })
}

fn input_of(port: &Port) -> Value {
    let optional = if port.optional { ", optional" } else { "" };
    json!({
        "description": format!("{} (Type: {}{optional}.)", sentence(&port.doc), port.ty),
        "$ref": "#/$defs/reference",
    })
}

fn value_of_option(ty: &ModuleType, option: &OptionSpec) -> Value {
    let mut value = match &option.ty {
        OptionType::Bool => json!({ "type": "boolean" }),
        OptionType::Integer(low, high) => {
            json!({ "type": "integer", "minimum": low, "maximum": high })
        }
        OptionType::Number(low, high) => {
            json!({ "type": "number", "minimum": low, "maximum": high })
        }
        OptionType::Text | OptionType::File => json!({ "type": "string", "minLength": 1 }),
        OptionType::Choice(words) => json!({ "enum": words }),
        OptionType::Numbers(0) => json!({ "type": "array", "items": { "type": "number" } }),
        OptionType::Numbers(len) => json!({
            "type": "array",
            "items": { "type": "number" },
            "minItems": len,
            "maxItems": len,
        }),
        OptionType::Texts => {
            json!({ "type": "array", "items": { "type": "string", "minLength": 1 } })
        }
        OptionType::NumberByText(low, high) => json!({
            "type": "object",
            "maxProperties": LIST_LEN_MAX,
            "additionalProperties": { "type": "number", "minimum": low, "maximum": high },
        }),
        OptionType::Groups(_) => {
            let taken: Vec<&str> = ty.outputs.iter().map(|o| o.name.as_str()).collect();
            json!({
                "type": "object",
                "maxProperties": GROUPS_MAX,
                "propertyNames": { "pattern": NAME_PATTERN, "not": { "enum": taken } },
                "additionalProperties": {
                    "type": "array",
                    "items": { "type": "string", "minLength": 1 },
                    "minItems": 1,
                    "maxItems": GROUP_TEXTS_MAX,
                },
            })
        }
    };
    value["description"] = sentence(&option.doc).into();
    value
}

/// Turns the catalogue's phrases into sentences.
fn sentence(doc: &str) -> String {
    let mut letters = doc.chars();
    let first = letters
        .next()
        .map(|letter| letter.to_uppercase().to_string());
    let end = if doc.ends_with('.') { "" } else { "." };
    format!("{}{}{end}", first.unwrap_or_default(), letters.as_str())
}

fn integer(text: &str, low: i64, high: i64) -> Value {
    json!({ "description": text, "type": "integer", "minimum": low, "maximum": high })
}

fn with_default(mut value: Value, default: u32) -> Value {
    value["default"] = default.into();
    value
}
