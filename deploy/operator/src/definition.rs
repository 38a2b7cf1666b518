//! What a `Pipeline` resource defines, checked by the compiler of pipelines as the processes check their files.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use spillgate_pipeline::catalog::ValueType;
use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::near::nearest;
use spillgate_pipeline::pipeline::Module;
use spillgate_pipeline::profile::{ProfileSet, device_kind};
use spillgate_pipeline::profile_file::{parse_profiles, render_profiles};
use spillgate_pipeline::{Catalog, Diagnostics, Pipeline, compile};

use crate::crd::{self, ModuleWorkers, PipelineSpec, WORKERS_MAX};
use crate::short_hash;

/// Most bytes of a pipeline's text and its profiles: as much as is published to processes.
pub const TEXT_BYTES_MAX: usize = spillgate_protocol::publication::DEFINITION_BYTES_MAX;

/// The source, as `modules:` of the resource calls it.
pub const SOURCE: &str = "source";

/// What is wrong with a resource: the field, what is wrong, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Wrong(pub String);

/// What a resource defines.
#[derive(Clone, Debug)]
pub struct Definition {
    /// The text of the pipeline file that processes read.
    pub text: String,
    /// The pipeline.
    pub pipeline: Pipeline,
    /// Execution times that the resource states.
    pub given: ProfileSet,
    /// The modules' workers, by the names of modules; each module of the pipeline is there, and the source where
    /// pictures are decoded.
    pub workers: BTreeMap<String, Workers>,
    /// The kind of device that each module runs on: `cpu`, `cuda` or `emulated`.
    pub kinds: BTreeMap<String, String>,
    /// A hash of all that execution times depend on.
    pub models: String,
}

/// The workers of a module.
#[derive(Clone, Debug, PartialEq)]
pub enum Workers {
    /// They have processes of their own.
    Own {
        /// Least and most of them.
        replicas: (u32, u32),
        /// What else was said.
        stated: ModuleWorkers,
    },
    /// They run in the processes of another module.
    With {
        /// `MODULE` or `PIPELINE/MODULE`.
        other: String,
        /// Least and most of them, where that is said: the processes are as many as each of their modules needs.
        replicas: Option<(u32, u32)>,
    },
}

impl Workers {
    /// The module in whose processes they run; `None`: in processes of their own.
    pub fn with(&self) -> Option<&str> {
        match self {
            Workers::Own { .. } => None,
            Workers::With { other, .. } => Some(other),
        }
    }
}

/// What a definition came to.
type Outcome = Result<Arc<Definition>, Wrong>;

/// What definitions of a set came to. Each is compiled once, and kept while a resource or what it had before says it.
#[derive(Default)]
pub struct Compiled {
    /// By what was compiled: whether this pass asked for it, and what it came to.
    all: BTreeMap<[u8; 32], (bool, Outcome)>,
}

impl Compiled {
    /// What [`define`] says.
    ///
    /// # Errors
    /// As there.
    pub fn define(
        &mut self,
        name: &str,
        spec: &PipelineSpec,
        from_config_map: Option<&str>,
        catalog: &Catalog,
    ) -> Result<Arc<Definition>, Wrong> {
        let stated = serde_json::to_vec(&(name, spec, from_config_map));
        let key = Sha256::digest(stated.map_err(|error| Wrong(error.to_string()))?);
        let define = || define(name, spec, from_config_map, catalog).map(Arc::new);
        let (is_used, result) = self
            .all
            .entry(key.into())
            .or_insert_with(|| (true, define()));
        *is_used = true;
        result.clone()
    }

    /// A pass has ended: what nobody asked for in it is forgotten.
    pub fn end_pass(&mut self) {
        self.all.retain(|_, (is_used, _)| std::mem::take(is_used));
    }
}

/// Checks a resource. `from_config_map` is the text that `configMapRef` names.
///
/// # Errors
/// What is wrong, in one sentence for each problem.
pub fn define(
    name: &str,
    spec: &PipelineSpec,
    from_config_map: Option<&str>,
    catalog: &Catalog,
) -> Result<Definition, Wrong> {
    let (mut root, place) = original(spec, from_config_map)?;
    let given = given(spec)?;
    // What the user wrote comes first: its problems are the user's, at the user's places.
    let compiled = match from_config_map {
        Some(text) => compiled(text, &place, catalog)?,
        None => {
            root.entry("name").or_insert_with(|| json!(name));
            compiled(&text_of(&root)?, &place, catalog)?
        }
    };
    let workers = workers(spec, &compiled)?;
    state_workers(&mut root, spec);
    let text = text_of(&root)?;
    let pipeline = self::compiled(&text, &place, catalog)?;
    let kinds = kinds(spec, &pipeline, &workers);
    for module in &pipeline.modules[1..] {
        let name = &module.name;
        let has = |variant: usize| {
            given
                .get("emulated", name, &module.profile_key(variant))
                .is_some()
        };
        if kinds[name] == "emulated" && !(0..module.variants.len()).all(has) {
            return Err(Wrong(format!(
                "spec.profiles.emulated.{name} is missing: an emulated device takes the times that it is given; write {name}: {{ \"{}\": {{ \
                 alpha: 5ms, beta: 10ms, max: 8 }} }}",
                module.profile_key(0)
            )));
        }
    }
    Ok(Definition {
        models: models(&pipeline),
        kinds,
        text,
        pipeline,
        given,
        workers,
    })
}

/// What the user wrote, and where.
fn original(
    spec: &PipelineSpec,
    from_config_map: Option<&str>,
) -> Result<(Map<String, Value>, String), Wrong> {
    match (&spec.pipeline, &spec.config_map_ref) {
        (Some(pipeline), _) => {
            fits("spec.pipeline", text_of(pipeline)?.len())?;
            Ok((pipeline.clone(), "spec.pipeline".to_owned()))
        }
        (None, Some(of)) => {
            let place = format!("ConfigMap {}, {}", of.name, of.key);
            let Some(text) = from_config_map else {
                return Err(Wrong(format!(
                    "spec.configMapRef: there is no ConfigMap {} with the key {} in this namespace; create it: kubectl create configmap {} \
                     --from-file={}=FILE",
                    of.name, of.key, of.name, of.key
                )));
            };
            fits(&place, text.len())?;
            let read: Result<Value, _> = serde_yaml::from_str(text);
            match read {
                Ok(Value::Object(root)) => Ok((root, place)),
                Ok(_) => Err(Wrong(format!(
                    "{place}: it is no pipeline; write name, slo, modules and outputs"
                ))),
                Err(error) => Err(Wrong(format!("{place}: {error}"))),
            }
        }
        (None, None) => Err(Wrong(
            "spec.pipeline is missing; write name, slo, modules and outputs there".to_owned(),
        )),
    }
}

fn given(spec: &PipelineSpec) -> Result<ProfileSet, Wrong> {
    let Some(profiles) = &spec.profiles else {
        return Ok(ProfileSet::default());
    };
    let text = serde_yaml::to_string(profiles).map_err(|error| Wrong(error.to_string()))?;
    fits("spec.profiles", text.len())?;
    parse_profiles(&text, "spec.profiles").map_err(|problems| wrong(&problems, "spec.profiles"))
}

/// YAML with sorted keys: the text is the same whoever writes it.
fn text_of(root: &Map<String, Value>) -> Result<String, Wrong> {
    let sorted = sorted(&Value::Object(root.clone()));
    serde_yaml::to_string(&sorted).map_err(|error| Wrong(format!("spec.pipeline: {error}")))
}

fn sorted(value: &Value) -> serde_yaml::Value {
    match value {
        Value::Object(map) => {
            let each: BTreeMap<&String, &Value> = map.iter().collect();
            let each = each
                .into_iter()
                .map(|(key, value)| (key.as_str().into(), sorted(value)));
            serde_yaml::Value::Mapping(each.collect())
        }
        Value::Array(list) => serde_yaml::Value::Sequence(list.iter().map(sorted).collect()),
        other => serde_yaml::to_value(other).unwrap_or_default(),
    }
}

fn compiled(text: &str, place: &str, catalog: &Catalog) -> Result<Pipeline, Wrong> {
    let compiled = compile(text, place, catalog, None);
    let compiled = compiled.map_err(|problems| wrong(&problems, place))?;
    Ok(compiled.pipeline)
}

/// All problems of a definition, with the paths of their fields in the resource.
fn wrong(problems: &Diagnostics, place: &str) -> Wrong {
    let lines = problems.list.iter().map(|problem| {
        let path = match (problem.path.as_str(), place.starts_with("spec.")) {
            ("", true) => place.to_owned(),
            (path, true) => format!("{place}.{path}"),
            ("", false) => format!("{place}:{}", problem.line),
            (path, false) => format!("{place}:{}: {path}", problem.line),
        };
        format!("{path}: {}", problem.problem)
    });
    /// Nobody reads more in one line.
    const SHOWN_MAX: usize = 3;
    let mut shown: Vec<String> = lines.collect();
    let more = shown.len().saturating_sub(SHOWN_MAX);
    shown.truncate(SHOWN_MAX);
    let mut text = shown.join("; ");
    if more > 0 {
        text += &format!("; and {more} more");
    }
    Wrong(text)
}

/// Writes devices and bounds of workers into the pipeline. The number of workers is the resource's matter: the pipeline leaves it open,
/// so that another number is no other revision.
fn state_workers(root: &mut Map<String, Value>, spec: &PipelineSpec) {
    let Some(Value::Object(modules)) = root.get_mut("modules") else {
        return;
    };
    for (name, module) in modules {
        let Value::Object(module) = module else {
            continue;
        };
        module.insert(
            "workers".to_owned(),
            json!({ "min": 1, "max": WORKERS_MAX }),
        );
        let device = spec.modules.get(name).and_then(|of| of.device.as_ref());
        if let Some(device) = device {
            module.insert("device".to_owned(), json!(device));
        }
    }
}

fn workers(spec: &PipelineSpec, pipeline: &Pipeline) -> Result<BTreeMap<String, Workers>, Wrong> {
    let modules = || pipeline.modules[1..].iter();
    for name in spec.modules.keys() {
        if name != SOURCE && modules().all(|module| module.name != *name) {
            let near = nearest(name, modules().map(|module| module.name.as_str()));
            let near = near.map_or_else(
                || "write the names of spec.pipeline.modules".to_owned(),
                |near| format!("did you mean {near}?"),
            );
            return Err(Wrong(format!(
                "spec.modules.{name}: the pipeline has no module of this name; {near}"
            )));
        }
    }
    let mut all = BTreeMap::new();
    for module in modules() {
        let Some(stated) = spec.modules.get(&module.name) else {
            let name = &module.name;
            return Err(Wrong(format!(
                "spec.modules.{name} is missing: nobody runs the module {name}; write {name}: {{}} for one worker, or {name}: {{ with: \
                 MODULE }} for the processes of another module"
            )));
        };
        all.insert(module.name.clone(), of_module(stated, module));
    }
    match (spec.modules.get(SOURCE), pipeline.source.ty) {
        (Some(stated), ValueType::Image) => {
            all.insert(SOURCE.to_owned(), of_module(stated, &pipeline.modules[0]));
        }
        (None, ValueType::Image) => {
            let other = first_after_source(pipeline).name.clone();
            let with = Workers::With {
                other,
                replicas: None,
            };
            all.insert(SOURCE.to_owned(), with);
        }
        (Some(_), _) => {
            return Err(Wrong(format!(
                "spec.modules.{SOURCE}: the source of this pipeline is no picture, and nothing of it is decoded; take {SOURCE} out"
            )));
        }
        (None, _) => {}
    }
    Ok(all)
}

fn of_module(stated: &ModuleWorkers, module: &Module) -> Workers {
    match &stated.with {
        Some(with) => Workers::With {
            other: with.clone(),
            replicas: stated.replicas.map(|of| (of.min, of.max)),
        },
        None => Workers::Own {
            replicas: match stated.replicas {
                Some(crd::Replicas { min, max }) => (min, max),
                // As the pipeline file says it.
                None => (
                    module.workers.min.clamp(1, WORKERS_MAX),
                    module.workers.max.clamp(1, WORKERS_MAX),
                ),
            },
            stated: stated.clone(),
        },
    }
}

/// The kinds of device that modules run on: as it is said, else what their processes have.
fn kinds(
    spec: &PipelineSpec,
    pipeline: &Pipeline,
    workers: &BTreeMap<String, Workers>,
) -> BTreeMap<String, String> {
    let of = |module: &Module| {
        let known = |device: &&String| device_kind(device) != "auto";
        if let Some(device) = module.devices.iter().find(known) {
            return device_kind(device).to_owned();
        }
        let processes = match workers.get(&module.name) {
            Some(Workers::With { other, .. }) => spec.modules.get(other),
            _ => spec.modules.get(&module.name),
        };
        let kind = match processes.map_or(0, gpus) {
            0 => "cpu",
            _ => "cuda",
        };
        kind.to_owned()
    };
    let modules = pipeline.modules[1..].iter();
    modules
        .map(|module| (module.name.clone(), of(module)))
        .collect()
}

/// GPUs of a process, as its limits say.
pub fn gpus(stated: &ModuleWorkers) -> u32 {
    let limits = stated.resources.as_ref().and_then(|of| of.limits.as_ref());
    let gpus = limits
        .into_iter()
        .flatten()
        .filter(|(name, _)| name.ends_with("/gpu"));
    gpus.filter_map(|(_, quantity)| quantity.0.parse::<u32>().ok())
        .sum()
}

/// The first module that takes what clients send: decoded frames need not travel there.
fn first_after_source(pipeline: &Pipeline) -> &Module {
    let takes_source = |module: &&Module| {
        let mut inputs = module.inputs.iter().flatten();
        inputs.any(|input| input.module == ModuleId::SOURCE)
    };
    let mut modules = pipeline.modules[1..].iter();
    let first = modules.find(takes_source);
    first.unwrap_or(&pipeline.modules[1])
}

/// A hash of all that execution times depend on.
fn models(pipeline: &Pipeline) -> String {
    let each = pipeline.modules[1..].iter().map(|module| {
        let Module {
            name,
            op,
            variants,
            batch,
            options,
            ..
        } = module;
        let variants: Vec<_> = variants.iter().map(|of| (&of.model, of.input)).collect();
        format!("{name:?} {op:?} {variants:?} {batch:?} {options:?}")
    });
    short_hash(each.collect::<Vec<_>>().join("\n").as_bytes())
}

impl Definition {
    /// The objective.
    pub fn slo(&self) -> String {
        spillgate_pipeline::time::format_duration(self.pipeline.slo)
    }

    /// The kinds of devices of which execution times are missing, where these are known already.
    pub fn missing(&self, known: &ProfileSet) -> Vec<String> {
        let mut kinds: Vec<String> = Vec::new();
        for module in &self.pipeline.modules[1..] {
            let kind = &self.kinds[&module.name];
            let has = |variant: usize| {
                let key = module.profile_key(variant);
                known.get(kind, &module.name, &key).is_some()
            };
            let is_missing = kind != "emulated" && (0..module.variants.len()).any(|v| !has(v));
            if is_missing && !kinds.contains(kind) {
                kinds.push(kind.clone());
            }
        }
        kinds
    }

    /// The text of the file of profiles: what the resource states, and what was measured besides.
    pub fn profiles_text(&self, measured: &ProfileSet) -> String {
        let mut all = self.given.clone();
        all.fill_from(measured);
        render_profiles(&all, "")
    }

    /// Whether what processes read reaches them.
    ///
    /// # Errors
    /// How much it is.
    pub fn fits(&self, profiles: &str) -> Result<(), Wrong> {
        fits(
            "spec.pipeline and its profiles",
            self.text.len() + profiles.len(),
        )
    }
}

/// Whether a controller publishes so many bytes. It is asked before anything is compiled.
fn fits(what: &str, bytes: usize) -> Result<(), Wrong> {
    match bytes <= TEXT_BYTES_MAX {
        true => Ok(()),
        false => Err(Wrong(format!(
            "{what}: these are {bytes} bytes, and at most {TEXT_BYTES_MAX} reach the processes of a set; split the pipeline"
        ))),
    }
}
