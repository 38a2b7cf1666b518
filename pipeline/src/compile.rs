//! Compiles the text of a pipeline file to a checked [`Pipeline`]: reads the spec, resolves names against the
//! catalogue, proves that the graph is acyclic and that the objective is possible. One pass finds all problems of a
//! file. It takes text and returns values; it does not look at model files or devices.
//!
//! The order of the stages: names and references (`reference`), options (`option`), cycle and order (`order`),
//! assembly, use of every module, objective (`objective`). The last two need a pipeline without errors.

mod adapt;
mod family;
mod objective;
pub(crate) mod option;
mod order;
mod reference;

use std::sync::Arc;

use indexmap::IndexMap;
use petgraph::graph::{DiGraph, NodeIndex};

use crate::catalog::{Catalog, ExecutionTime, ModelNeed, ModuleType, ValueType};
use crate::diagnostic::{Diagnostic, Diagnostics, Place, Sink};
use crate::distribution::WINDOW_DEFAULT;
use crate::document;
use crate::family::{Family, Files};
use crate::id::ModuleId;
use crate::near::{known, nearest};
use crate::pipeline::{
    BatchLimits, Edge, Module, OptionValue, Output, Pipeline, PortRef, Variant, Workers,
};
use crate::policy::PolicyConfig;
use crate::problem::Problem;
use crate::profile::ProfileSet;
use crate::schedule::{SCHEDULED_BATCH_MAX, SchedulePolicy};
use crate::spec::{self, ModuleSpec, QUEUE_DEFAULT, Spec};
use crate::variables::Variables;

use reference::{Target, Wires, Wiring};

/// A pipeline without errors.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The pipeline.
    pub pipeline: Pipeline,
    /// Warnings, sorted by line: parts of the file that its writer probably did not mean.
    pub warnings: Vec<Diagnostic>,
}

/// Compiles the text of a pipeline file. `file` is its name in messages. With profiles, an objective
/// that not even an idle system meets is an error.
///
/// # Errors
/// All problems of the file, sorted by line.
pub fn compile(
    text: &str,
    file: &str,
    catalog: &Catalog,
    profiles: Option<&ProfileSet>,
) -> Result<Compiled, Diagnostics> {
    compile_with(text, file, catalog, profiles, Outside::NOTHING)
}

/// What a pipeline file names that is not in its text.
#[derive(Clone, Copy)]
pub struct Outside<'a> {
    /// The variables that its values may name ([`crate::variables`]).
    pub variables: Variables<'a>,
    /// Lists the files of families; `None`: families stay without members.
    pub files: Option<Files<'a>>,
}

impl Outside<'_> {
    /// Nothing: no variable is set, and no file is listed.
    pub const NOTHING: Outside<'static> = Outside {
        variables: &|_| None,
        files: None,
    };
}

/// The same, where the file names what is outside of it.
///
/// # Errors
/// All problems of the file, sorted by line.
pub fn compile_with(
    text: &str,
    file: &str,
    catalog: &Catalog,
    profiles: Option<&ProfileSet>,
    outside: Outside<'_>,
) -> Result<Compiled, Diagnostics> {
    let mut sink = Sink::new(file);
    let pipeline = compile_into(&mut sink, text, catalog, profiles, outside);
    let warnings = sink.finish()?;
    let pipeline = pipeline.expect("a file without errors gives a pipeline");
    Ok(Compiled { pipeline, warnings })
}

/// Notes all problems; returns a pipeline unless one of them is an error.
fn compile_into(
    sink: &mut Sink,
    text: &str,
    catalog: &Catalog,
    profiles: Option<&ProfileSet>,
    outside: Outside<'_>,
) -> Option<Pipeline> {
    let root = match document::read(text, Some(outside.variables)) {
        Ok(Some(root)) if root.describe() != "nothing" => root,
        Ok(_) => {
            sink.error(
                &Place::root(),
                Problem::Empty {
                    fields: "name, slo, modules and outputs",
                },
            );
            return None;
        }
        Err(stops) => {
            crate::reader::broken(sink, stops);
            return None;
        }
    };
    let spec = spec::read(sink, &root);
    let types: Vec<Option<&ModuleType>> = spec
        .modules
        .iter()
        .map(|m| find_type(sink, m, catalog))
        .collect();
    let (options, outputs): (Vec<_>, Vec<_>) = spec
        .modules
        .iter()
        .zip(&types)
        .map(|(m, ty)| ty.map(|ty| option::check(sink, m, ty)).unwrap_or_default())
        .map(|checked| (checked.values, checked.outputs))
        .unzip();
    for (module, ty) in spec.modules.iter().zip(&types) {
        check_model(sink, module, *ty);
    }
    let families: Vec<Option<Arc<Family>>> = spec
        .modules
        .iter()
        .map(|m| family::list(sink, m.family.as_ref()?, outside.files))
        .collect();
    let wiring = reference::resolve(sink, &spec, &types, &outputs);
    check_schedules(sink, &spec, &types, &wiring);
    let order = order::topological(sink, &spec, &wiring);
    if sink.has_errors() {
        return None;
    }
    let parts = Parts {
        options,
        outputs,
        families,
    };
    let mut pipeline = assemble(&spec, &types, parts, &wiring, &order?);
    pipeline.adapt = adapt::resolve(sink, &mut pipeline.modules, spec.adapt.as_ref());
    if sink.has_errors() {
        return None;
    }
    warn_unused(sink, &pipeline);
    if let Some(profiles) = profiles {
        objective::check(sink, &pipeline, &spec.slo.place, profiles);
    }
    Some(pipeline)
}

/// The module's type; notes an op that is not in the catalogue.
fn find_type<'c>(
    sink: &mut Sink,
    module: &ModuleSpec<'_>,
    catalog: &'c Catalog,
) -> Option<&'c ModuleType> {
    let op = module.op.as_ref()?;
    let ty = catalog.get(&op.value);
    if ty.is_none() {
        let names = || catalog.types().map(|t| t.name.as_str());
        sink.error(
            &op.place,
            Problem::UnknownOp {
                op: op.value.clone(),
                near: nearest(&op.value, names()),
                known: known(names()),
            },
        );
    }
    ty
}

/// A model where the type runs one, none where it does not.
fn check_model(sink: &mut Sink, module: &ModuleSpec<'_>, ty: Option<&ModuleType>) {
    let Some(ty) = ty else { return };
    let named = |field: &str| module.model_fields.iter().any(|f| f.value == field);
    match ty.model {
        ModelNeed::Required if !["model", "models", "variants"].into_iter().any(named) => {
            sink.error(
                &module.place,
                Problem::ModelMissing {
                    op: ty.name.clone(),
                },
            );
        }
        ModelNeed::Required => {}
        ModelNeed::None => {
            for field in &module.model_fields {
                let (op, field, place) = (ty.name.clone(), field.value, &field.place);
                sink.error(place, Problem::ModelNotAllowed { op, field });
            }
        }
    }
}

/// What was found out about each module, in the order of the file.
struct Parts {
    options: Vec<IndexMap<String, OptionValue>>,
    outputs: Vec<Vec<(String, ValueType)>>,
    families: Vec<Option<Arc<Family>>>,
}

/// Puts the checked parts together. `order` holds positions in the file.
fn assemble(
    spec: &Spec<'_>,
    types: &[Option<&ModuleType>],
    mut parts: Parts,
    wiring: &Wiring,
    order: &[usize],
) -> Pipeline {
    let mut ids = vec![ModuleId::SOURCE; spec.modules.len()];
    for (i, module) in order.iter().enumerate() {
        // At most MODULES_MAX of them.
        ids[*module] = ModuleId(i as u16 + 1);
    }
    let port = |target: &Target| PortRef {
        module: target.module.map_or(ModuleId::SOURCE, |m| ids[m]),
        port: target.port,
    };
    let mut modules = vec![source_module(spec)];
    let mut graph = DiGraph::new();
    graph.add_node(ModuleId::SOURCE);
    for &at in order {
        let (module, wires) = (&spec.modules[at], &wiring.modules[at]);
        let ty = types[at].expect("a module without a type is an error");
        let id = ids[at];
        let node = graph.add_node(id);
        let mut edges: IndexMap<ModuleId, Edge> = IndexMap::new();
        const NO_EDGE: Edge = Edge {
            condition: false,
            required: false,
        };
        for (input, wire) in ty.inputs.iter().zip(&wires.inputs) {
            if let Some(target) = wire {
                edges.entry(port(target).module).or_insert(NO_EDGE).required |= !input.optional;
            }
        }
        if let Some(target) = &wires.when {
            edges
                .entry(port(target).module)
                .or_insert(NO_EDGE)
                .condition = true;
        }
        for (from, edge) in edges {
            graph.add_edge(NodeIndex::new(from.idx()), node, edge);
        }
        modules.push(Module {
            id,
            name: module.name.clone(),
            op: ty.name.clone(),
            inputs: wires.inputs.iter().map(|w| w.as_ref().map(port)).collect(),
            outputs: std::mem::take(&mut parts.outputs[at]),
            when: wires.when.as_ref().map(port),
            variants: best_last(&module.variants),
            fixed: None,
            frame_min: module.frame_min,
            family: parts.families[at].take(),
            batch: module.batch,
            schedule: schedule(spec, module, ty, wires),
            window: module.window,
            workers: module.workers,
            devices: module.devices.clone(),
            queue: module.queue,
            options: std::mem::take(&mut parts.options[at]),
            line: module.place.line,
        });
    }
    let schedules: Vec<Option<SchedulePolicy>> =
        modules[1..].iter().map(|m: &Module| m.schedule).collect();
    let outputs = wiring
        .outputs
        .iter()
        .map(|(name, target)| Output {
            name: name.clone(),
            from: port(target),
            ty: target.ty,
        })
        .collect();
    Pipeline {
        name: spec.name.clone(),
        slo: spec.slo.value,
        source: spec.source.clone(),
        modules,
        graph,
        outputs,
        policy: PolicyConfig {
            drop: spec.policy.drop_under(schedules),
            ..spec.policy.clone()
        },
        adapt: None,
        limits: spec.limits,
        clients: spec.clients.clone(),
    }
}

/// The scheduler of a module: the one that is written, or the default of its type.
fn schedule(
    spec: &Spec<'_>,
    module: &ModuleSpec<'_>,
    ty: &ModuleType,
    wires: &Wires,
) -> Option<SchedulePolicy> {
    let default = || default_schedule(spec, ty, wires);
    module.schedule.or_else(default)
}

/// A scheduler forms batches up to a limit of its own.
fn check_schedules(
    sink: &mut Sink,
    spec: &Spec<'_>,
    types: &[Option<&ModuleType>],
    wiring: &Wiring,
) {
    for ((module, ty), wires) in spec.modules.iter().zip(types).zip(&wiring.modules) {
        let named = ty.and_then(|ty| schedule(spec, module, ty, wires));
        let (max, limit) = (module.batch.max, SCHEDULED_BATCH_MAX);
        if let Some(name) = named
            && max > limit
        {
            let schedule = name.name();
            let problem = Problem::ScheduledBatch {
                max,
                limit,
                schedule,
            };
            sink.error(&module.batch_place, problem);
        }
    }
}

/// The scheduler of a module that names none: that of the drop policy, where the execution time depends on the input.
fn default_schedule(spec: &Spec<'_>, ty: &ModuleType, wires: &Wires) -> Option<SchedulePolicy> {
    let varies = match &ty.time {
        ExecutionTime::Fixed => false,
        ExecutionTime::Varies => true,
        ExecutionTime::VariesWith(input) => {
            let mut wired = ty.inputs.iter().zip(&wires.inputs);
            wired.any(|(port, wire)| port.name == *input && wire.is_some())
        }
    };
    spec.policy
        .drop
        .recipe()
        .dynamic_schedule
        .filter(|_| varies)
}

/// The source as a module: it has one output and nothing else.
fn source_module(spec: &Spec<'_>) -> Module {
    Module {
        id: ModuleId::SOURCE,
        name: "source".to_owned(),
        op: "source".to_owned(),
        inputs: Vec::new(),
        outputs: vec![(spec.source.field.clone(), spec.source.ty)],
        when: None,
        variants: Vec::new(),
        fixed: None,
        frame_min: 0,
        family: None,
        batch: BatchLimits { max: 1 },
        schedule: None,
        window: WINDOW_DEFAULT,
        workers: Workers { min: 1, max: 1 },
        devices: Vec::new(),
        queue: QUEUE_DEFAULT as usize,
        options: IndexMap::new(),
        line: 1,
    }
}

/// Best accuracy last: by accuracy where every variant states it, else by input size.
fn best_last(variants: &[Variant]) -> Vec<Variant> {
    let mut variants = variants.to_vec();
    if variants.iter().all(|v| v.accuracy.is_some()) {
        let accuracy = |v: &Variant| v.accuracy.unwrap_or_default();
        variants.sort_by(|a, b| {
            accuracy(a)
                .total_cmp(&accuracy(b))
                .then(a.input.cmp(&b.input))
        });
    } else {
        variants.sort_by_key(|v| v.input);
    }
    variants
}

/// Warns of modules whose outputs no result depends on.
fn warn_unused(sink: &mut Sink, pipeline: &Pipeline) {
    let mut used = vec![false; pipeline.modules.len()];
    for output in &pipeline.outputs {
        used[output.from.module.idx()] = true;
    }
    // Successors come later in the order.
    for id in (0..pipeline.modules.len()).rev() {
        if used[id] {
            for before in pipeline.predecessors(pipeline.modules[id].id) {
                used[before.idx()] = true;
            }
        }
    }
    for module in pipeline
        .modules
        .iter()
        .skip(1)
        .filter(|m| !used[m.id.idx()])
    {
        let place = Place {
            line: module.line,
            path: "modules".to_owned(),
        };
        sink.warn(
            &place.field(&module.name, module.line),
            Problem::UnusedModule,
        );
    }
}
