//! What the batches of a device run with: the operators of weights that are in memory, or a decoder.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_backend::Copier;
use spillgate_backend::operator::{Inputs, OperatorError, Outputs};
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::{ModelId, ModuleId, WeightsId, WorkerId};
use spillgate_pipeline::pipeline::Module;
use spillgate_pipeline::request::ModelChoice;
use spillgate_process::job::{Failure, Job, Ran};

use super::threads::panic_text;
use crate::decoder::Decoder;
use crate::weights::{LoaderFactory, Slots};

/// What a device runs.
pub enum Models {
    /// The operators of modules.
    Of(ModelsConfig),
    /// It decodes the frames of these pipelines, by worker.
    Decoder(Vec<(WorkerId, Arc<Pipeline>)>),
}

/// The operators of a device.
pub struct ModelsConfig {
    /// Reads weights, on a thread of its own.
    pub loader: LoaderFactory,
    /// What is larger than the memory of the device, and what its requests hear.
    pub too_large: Vec<(WeightsId, String)>,
    /// What is read before the device serves, as its chooser has it.
    pub resident: Vec<WeightsId>,
    /// Of these, what the device does not serve without.
    pub needed: Vec<WeightsId>,
    /// What each model runs with, and which variant of the operator it is.
    pub models: Arc<[(WeightsId, usize)]>,
    /// The workers whose requests it may get.
    pub workers: Arc<IndexMap<WorkerId, WorkerModels, FxBuildHasher>>,
}

/// What a worker runs.
#[derive(Clone)]
pub struct WorkerModels {
    /// Its pipeline.
    pub pipeline: Arc<Pipeline>,
    /// Its module.
    pub module: ModuleId,
    /// Its models, by member of the family or by variant.
    pub models: Vec<ModelId>,
    /// They are those of variants.
    pub by_variant: bool,
}

impl WorkerModels {
    fn module(&self) -> &Module {
        &self.pipeline.modules[self.module.idx()]
    }
}

/// Runs batches.
pub(super) enum Serving {
    Of(Operators),
    Decoder(Decoder),
}

/// Operators of weights that are in memory.
pub(super) struct Operators {
    pub(super) slots: Slots,
    models: Arc<[(WeightsId, usize)]>,
    workers: Arc<IndexMap<WorkerId, WorkerModels, FxBuildHasher>>,
    /// Set before the device serves, where it has its own memory.
    pub(super) copier: OnceLock<Arc<dyn Copier>>,
}

/// What the loading thread begins with.
pub(super) struct FirstLoads {
    pub(super) loader: LoaderFactory,
    pub(super) resident: Vec<WeightsId>,
    pub(super) needed: Vec<WeightsId>,
}

impl Models {
    /// What serves, and what is read before.
    pub(super) fn serving(self) -> (Serving, Option<FirstLoads>) {
        let ModelsConfig {
            loader,
            too_large,
            resident,
            needed,
            models,
            workers,
        } = match self {
            Models::Of(config) => config,
            Models::Decoder(of) => return (Serving::Decoder(Decoder::new(of)), None),
        };
        let slots = Slots::default();
        for (weights, why) in too_large {
            slots.refuse(weights, &why);
        }
        let operators = Operators {
            slots,
            models,
            workers,
            copier: OnceLock::new(),
        };
        let first = FirstLoads {
            loader,
            resident,
            needed,
        };
        (Serving::Of(operators), Some(first))
    }
}

impl Operators {
    /// What a model runs with, and which variant of its operator it is.
    pub(super) fn model(&self, model: ModelId) -> (WeightsId, usize) {
        self.models[model.idx()]
    }

    /// The model that serves a request; `None` where its module has no such model.
    fn chosen(&self, worker: WorkerId, model: ModelChoice) -> Option<ModelId> {
        let of = &self.workers[&worker];
        let ordinal = match of.by_variant {
            true => model.variant.idx(),
            false => model.member.idx(),
        };
        of.models.get(ordinal).copied()
    }

    /// The inputs of a request at a worker.
    pub(super) fn inputs(&self, worker: WorkerId, job: &Job) -> Inputs {
        job.inputs(self.workers[&worker].module())
    }

    /// Runs a batch of a model as a whole.
    pub(super) fn run(&self, model: ModelId, inputs: &[Inputs]) -> Vec<Ran> {
        let (weights, variant) = self.model(model);
        match self.slots.get(weights) {
            Ok(of) => results(inputs.len(), || of.operator.lock().run(variant, inputs)),
            Err(why) => all_fail(inputs.len(), why.to_string()),
        }
    }
}

impl Serving {
    /// Runs a batch of one worker as a whole, with that model of its module. `inputs` is empty before and after.
    pub(super) fn run<'j>(
        &self,
        worker: WorkerId,
        model: ModelChoice,
        jobs: impl Iterator<Item = &'j Job>,
        inputs: &mut Vec<Inputs>,
    ) -> Vec<Ran> {
        let operators = match self {
            Serving::Of(operators) => operators,
            Serving::Decoder(decoder) => return decoder.run(worker, jobs),
        };
        inputs.extend(jobs.map(|job| operators.inputs(worker, job)));
        let results = match operators.chosen(worker, model) {
            Some(model) => operators.run(model, inputs),
            None => all_fail(inputs.len(), "its module has no such model".to_owned()),
        };
        inputs.clear();
        results
    }

    /// Whether inputs of models that run with weights are prepared apart from the execution.
    pub(super) fn prepares(&self, weights: WeightsId) -> bool {
        let of = self.operators().map(|of| of.slots.get(weights));
        matches!(of, Some(Ok(of)) if of.preparation.is_some())
    }

    /// The operators, of a device that is no decoder.
    pub(super) fn operators(&self) -> Option<&Operators> {
        match self {
            Serving::Of(operators) => Some(operators),
            Serving::Decoder(_) => None,
        }
    }
}

/// The results of a batch of that many, one each.
pub(super) fn results(
    n: usize,
    make: impl FnOnce() -> Vec<Result<Outputs, OperatorError>>,
) -> Vec<Ran> {
    match catch_unwind(AssertUnwindSafe(make)) {
        Ok(results) if results.len() == n => {
            let results = results.into_iter();
            results
                .map(|r| r.map_err(|e| Failure::Module(e.to_string())))
                .collect()
        }
        Ok(results) => {
            let answered = results.len();
            all_fail(n, format!("the module answered {answered} of {n} requests"))
        }
        Err(panic) => all_fail(n, module_panicked(&*panic)),
    }
}

pub(super) fn module_panicked(panic: &(dyn Any + Send)) -> String {
    let why = format!("the module panicked: {}", panic_text(panic));
    tracing::error!(why);
    why
}

pub(super) fn all_fail(n: usize, why: String) -> Vec<Ran> {
    vec![Err(Failure::Module(why)); n]
}
