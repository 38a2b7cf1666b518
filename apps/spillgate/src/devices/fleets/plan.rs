//! Which devices form fleets, and which models they serve with which weights.
//!
//! Weights are told apart by what they are built from: the module's type and options, and the content of their file. The variants of a
//! module that name one file are models that run with the same weights: to run another one of them costs nothing.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use spillgate_backend::operator::Library;
use spillgate_controller_policy::plan::Planned;
use spillgate_pipeline::id::{
    DeviceId, MemberId, ModelId, ModuleId, VariantId, WeightsId, WorkerId,
};
use spillgate_pipeline::pipeline::Pipeline;
use spillgate_pipeline::profile::device_kind;
use spillgate_worker::listed::ListedFile;
use spillgate_worker::operators::WorkerSpec;
use spillgate_worker::weights::loader::{Source, WeightsSpec};
use spillgate_worker_policy::weights::fleet::FleetWorker;

use super::contents::{ContentId, Contents};
use crate::device_assignment::AssignedWorker;
use crate::devices::start::Assigned;
use crate::model_files::{option_files, weights_bytes};

/// A fleet before its devices are started.
pub(crate) struct FleetPlan {
    pub(super) kind: String,
    pub(super) devices: Vec<(DeviceId, String)>,
    pub(super) workers: Vec<FleetWorker>,
    /// The device of each worker.
    devices_of: IndexMap<WorkerId, DeviceId>,
    /// The pipeline of each worker.
    pub(super) pipelines: IndexMap<WorkerId, Arc<Pipeline>>,
    /// The workers that come and go with the load, and whether each serves from the start.
    pub(super) scaled: IndexMap<WorkerId, bool>,
    pub(super) weights: Vec<WeightsSpec>,
    /// By weights.
    pub(super) bytes: Vec<u64>,
    pub(super) models: Vec<PlannedModel>,
    /// Weights that are loaded from the start, as far as they fit.
    pub(super) resident: Vec<WeightsId>,
    /// By what they are built from: weights, and the models that run with them.
    known: IndexMap<Built, (WeightsId, Vec<ModelId>)>,
    /// The models of each module, by member or by variant.
    of_modules: IndexMap<(String, ModuleId), Vec<ModelId>>,
}

/// A model of a fleet.
#[derive(Clone, Copy)]
pub(super) struct PlannedModel {
    pub(super) weights: WeightsId,
    /// Which variant of the operator of its weights it is.
    pub(super) variant: usize,
}

/// What weights are built from: type, options and bounds of a module, and the contents of its files.
type Built = (String, Vec<Vec<(String, ContentId)>>);

/// Which devices form fleets, in order.
pub(crate) fn plan(
    devices: &[&Assigned],
    planned: impl Fn(&Arc<Pipeline>) -> Arc<Planned>,
    library: &Library,
) -> Vec<FleetPlan> {
    type Key = (String, Vec<(String, ModuleId)>);
    let mut contents = Contents::default();
    let mut fleets: IndexMap<Key, FleetPlan> = IndexMap::new();
    for Assigned { id, name, workers } in devices.iter().copied() {
        let kind = device_kind(name).to_owned();
        let serves = workers.iter().map(|p| &p.spec);
        let mut serves: Vec<_> = serves
            .map(|spec| (spec.pipeline.name.clone(), spec.module))
            .collect();
        serves.sort();
        let fleet = fleets.entry((kind.clone(), serves));
        let fleet = fleet.or_insert_with(|| FleetPlan {
            kind,
            devices: Vec::new(),
            workers: Vec::new(),
            devices_of: IndexMap::new(),
            pipelines: IndexMap::new(),
            scaled: IndexMap::new(),
            weights: Vec::new(),
            bytes: Vec::new(),
            models: Vec::new(),
            resident: Vec::new(),
            known: IndexMap::new(),
            of_modules: IndexMap::new(),
        });
        fleet.devices.push((*id, name.clone()));
        for AssignedWorker { spec, .. } in workers {
            let downstream = downstream(&spec.pipeline, &planned(&spec.pipeline), spec.module);
            let models = fleet.models_of(spec, library, &mut contents);
            let worker = FleetWorker {
                worker: spec.worker,
                module: spec.module,
                models,
                by_variant: chooses_variants(spec),
                capacity: spec.pipeline.modules[spec.module.idx()].queue,
                background: spec.pipeline.limits.background(),
                downstream,
            };
            fleet.devices_of.insert(spec.worker, *id);
            fleet.pipelines.insert(spec.worker, spec.pipeline.clone());
            let scales = spec.pipeline.modules[spec.module.idx()].workers;
            if scales.min < scales.max {
                fleet.scaled.insert(spec.worker, spec.from_start);
            }
            fleet.workers.push(worker);
        }
    }
    let n = contents.uncompared();
    if n > 0 {
        tracing::warn!(
            "{n} files of models may equal others, and are models of their own: too many or too large to be compared"
        );
    }
    fleets.into_values().collect()
}

/// Whether the variants of a worker's module are chosen request by request.
fn chooses_variants(spec: &WorkerSpec) -> bool {
    spec.pipeline.adapted() == Some(spec.module)
}

/// The worker, had its module these variants alone.
fn with_variants(spec: &WorkerSpec, variants: &[VariantId]) -> WorkerSpec {
    WorkerSpec {
        pipeline: Arc::new(spec.pipeline.with_variants(spec.module, variants)),
        execution: spec.execution.only(variants),
        ..spec.clone()
    }
}

/// The variants of a module that may serve, by file: those of one file run with the same weights.
fn by_file(spec: &WorkerSpec) -> IndexMap<&str, Vec<VariantId>> {
    let module = &spec.pipeline.modules[spec.module.idx()];
    let mut files: IndexMap<&str, Vec<VariantId>> = IndexMap::new();
    for (id, variant) in (0..).zip(&module.variants) {
        if chooses_variants(spec) || usize::from(id) == module.served() {
            let of_file = files.entry(&variant.model).or_default();
            of_file.push(VariantId(id));
        }
    }
    files
}

/// Execution time of the modules after one, alone, on the longest path.
fn downstream(pipeline: &Pipeline, planned: &Planned, module: ModuleId) -> Duration {
    let after = pipeline.successors(module).into_iter();
    let through = after.map(|next| {
        let own = planned.execution[next.idx()].first();
        own.copied().unwrap_or_default() + downstream(pipeline, planned, next)
    });
    through.max().unwrap_or_default()
}

impl FleetPlan {
    /// The workers of a device.
    pub(super) fn workers_of(&self, device: DeviceId) -> impl Iterator<Item = &FleetWorker> {
        let is_there = move |of: &&FleetWorker| self.devices_of[&of.worker] == device;
        self.workers.iter().filter(is_there)
    }

    /// The models of a worker, by member or by variant.
    fn models_of(
        &mut self,
        spec: &WorkerSpec,
        library: &Library,
        contents: &mut Contents,
    ) -> Vec<ModelId> {
        let of = (spec.pipeline.name.clone(), spec.module);
        if let Some(known) = self.of_modules.get(&of) {
            return known.clone();
        }
        let module = &spec.pipeline.modules[spec.module.idx()];
        let alone = MemberId::default();
        let mut models: Vec<ModelId> = Vec::new();
        let mut resident: Vec<ModelId> = Vec::new();
        match &module.family {
            // A type without a model.
            None if module.variants.is_empty() => {
                models = self.read((spec, alone), None, library, contents);
                resident.clone_from(&models);
            }
            None => {
                let mut by_variant: Vec<(VariantId, ModelId)> = Vec::new();
                for (file, variants) in by_file(spec) {
                    let spec = with_variants(spec, &variants);
                    let of_file = self.read((&spec, alone), Some(file), library, contents);
                    by_variant.extend(variants.into_iter().zip(of_file));
                }
                by_variant.sort_unstable_by_key(|(variant, _)| *variant);
                models.extend(by_variant.into_iter().map(|(_, model)| model));
                // The most accurate first, as far as they fit.
                resident.extend(models.iter().rev());
            }
            Some(family) => {
                for (id, member) in family.ids().zip(&family.members) {
                    models.extend(self.read((spec, id), Some(&member.file), library, contents));
                }
                resident.extend(family.default.iter().map(|id| models[id.idx()]));
            }
        }
        for model in resident {
            let weights = self.models[model.idx()].weights;
            if !self.resident.contains(&weights) {
                self.resident.push(weights);
            }
        }
        self.of_modules.insert(of, models.clone());
        models
    }

    /// The models of a worker that run with the weights in a file: one for each variant of its module, or the one member.
    fn read(
        &mut self,
        (spec, member): (&WorkerSpec, MemberId),
        file: Option<&str>,
        library: &Library,
        contents: &mut Contents,
    ) -> Vec<ModelId> {
        let mut listed = Vec::new();
        let mut kind = FleetPlan::kind_of(spec, library, contents, &mut listed);
        if self.kind == "emulated" {
            // An emulated operator is made of its times.
            let _ = write!(kind, " {:?}", spec.execution);
        }
        let path = file.map(|file| spec.base_dir.join(file));
        let files = path.iter();
        let files = files.map(|path| contents.of_model(path, &mut listed));
        let built = (kind, files.collect());
        let source = Source {
            worker: spec.clone(),
            member,
            files: listed,
        };
        if let Some((weights, models)) = self.known.get(&built) {
            self.weights[weights.idx()].sources.push(source);
            return models.clone();
        }
        let weights = WeightsId(self.weights.len() as u32);
        // A file takes at least a page.
        self.bytes.push(match &path {
            None => 0,
            Some(path) => weights_bytes(path).map_or(1, |bytes| bytes.max(1)),
        });
        let module = source.module();
        let variants = match chooses_variants(spec) {
            true => 0..module.variants.len(),
            false => module.served()..module.served() + 1,
        };
        let sources = vec![source];
        self.weights.push(WeightsSpec { sources });
        let first = self.models.len() as u32;
        let models = variants.map(|variant| PlannedModel { weights, variant });
        self.models.extend(models);
        let models: Vec<ModelId> = (first..self.models.len() as u32).map(ModelId).collect();
        self.known.insert(built, (weights, models.clone()));
        models
    }

    /// What the weights of a worker are built from beside their file. `listed` gets the files that options name.
    fn kind_of(
        spec: &WorkerSpec,
        library: &Library,
        contents: &mut Contents,
        listed: &mut Vec<ListedFile>,
    ) -> String {
        let module = &spec.pipeline.modules[spec.module.idx()];
        let files = option_files(module, library);
        let options = module.options.iter().map(|(name, value)| {
            match files.iter().find(|(of, _)| of == name) {
                Some((_, file)) => {
                    let content = contents.of(spec.base_dir.join(file), listed);
                    format!("{name}: {content:?}")
                }
                None => format!("{name}: {value:?}"),
            }
        });
        let options: Vec<String> = options.collect();
        let inputs: Vec<_> = module.variants.iter().map(|v| v.input).collect();
        let (op, limits, served) = (&module.op, &spec.pipeline.limits, module.served());
        format!("{op} {options:?} {inputs:?} {limits:?} {served}")
    }
}
