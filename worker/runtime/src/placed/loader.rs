//! Loaders: they make the operators of a device's models, of the module library or emulated.

use std::sync::Arc;
use std::time::{Duration, Instant};

use spillgate_backend::Backend;
use spillgate_backend::emulated;
use spillgate_backend::operator::{Inputs, Library, Operator, OperatorError, Outputs};
use spillgate_backend::value::Value;
use spillgate_pipeline::catalog::ModelNeed;
use spillgate_pipeline::id::{MemberId, ModelId};
use spillgate_pipeline::pipeline::Module;

use super::{LoadedModel, Loader};
use crate::executor::{BackendFactory, WorkerSpec, build_operator, may_load, warm_up};

/// A model of a placement: the module that runs it, and which of its family it is.
#[derive(Clone)]
pub struct ModelSpec {
    /// A worker that serves it.
    pub worker: WorkerSpec,
    /// The member; 0 where the module has no family.
    pub member: MemberId,
}

impl ModelSpec {
    /// Its module, with the whole family.
    pub fn module(&self) -> &Module {
        &self.worker.pipeline.modules[self.worker.module.idx()]
    }

    /// Its name in its family, or that of its file; empty for a type without a model.
    pub fn name(&self) -> &str {
        let module = self.module();
        let member = module
            .family
            .as_ref()
            .and_then(|family| family.name(self.member));
        let file = || {
            module
                .variants
                .get(module.served())
                .map(|v| v.model.as_str())
        };
        member.or_else(file).unwrap_or("")
    }

    fn needs_model(&self, library: &Library) -> bool {
        let kind = library.get(&self.module().op);
        kind.is_none_or(|kind| kind.module_type().model != ModelNeed::None)
    }
}

/// Loads models of the module library on a backend.
pub struct OperatorLoader {
    backend: Box<dyn Backend>,
    library: Arc<Library>,
    models: Arc<[ModelSpec]>,
}

impl OperatorLoader {
    /// A loader of these models, by id.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn new(
        backend: BackendFactory,
        library: Arc<Library>,
        models: Arc<[ModelSpec]>,
    ) -> Result<Self, OperatorError> {
        Ok(OperatorLoader {
            backend: backend()?,
            library,
            models,
        })
    }
}

impl Loader for OperatorLoader {
    fn load(&mut self, model: ModelId) -> Result<LoadedModel, OperatorError> {
        let ModelSpec { worker, member } = &self.models[model.idx()];
        may_load(worker, *member)?;
        let mut operator = build_operator(worker, *member, &self.library, &mut *self.backend)?;
        warm_up(worker, &mut *operator);
        Ok(LoadedModel {
            operator,
            variant: worker.pipeline.modules[worker.module.idx()].served(),
        })
    }
}

/// Takes the time that profiles say. Types without a model really run; for others the outputs are empty values.
pub struct EmulatedLoader {
    library: Arc<Library>,
    models: Arc<[ModelSpec]>,
    /// Time to read the weights of each model.
    loads: Arc<[Duration]>,
}

impl EmulatedLoader {
    /// A loader of these models, by id, with the time that each takes to load.
    pub fn new(library: Arc<Library>, models: Arc<[ModelSpec]>, loads: Arc<[Duration]>) -> Self {
        emulated::use_exact_timers();
        EmulatedLoader {
            library,
            models,
            loads,
        }
    }
}

impl Loader for EmulatedLoader {
    fn load(&mut self, model: ModelId) -> Result<LoadedModel, OperatorError> {
        let start = Instant::now();
        let spec = &self.models[model.idx()];
        may_load(&spec.worker, spec.member)?;
        let really_runs = match spec.needs_model(&self.library) {
            true => None,
            false => Some(build_operator(
                &spec.worker,
                spec.member,
                &self.library,
                &mut crate::executor::NoModels,
            )?),
        };
        let operator = Box::new(Emulated {
            spec: spec.clone(),
            really_runs,
        });
        emulated::occupy(start, self.loads[model.idx()]);
        Ok(LoadedModel {
            operator,
            variant: 0,
        })
    }
}

struct Emulated {
    spec: ModelSpec,
    /// Of a type without a model.
    really_runs: Option<Box<dyn Operator>>,
}

impl Operator for Emulated {
    fn run(&mut self, variant: usize, batch: &[Inputs]) -> Vec<Result<Outputs, OperatorError>> {
        let start = Instant::now();
        let results = match &mut self.really_runs {
            Some(operator) => operator.run(variant, batch),
            None => {
                let outputs = self.spec.module().outputs.iter();
                let outputs: Outputs = outputs.map(|(_, ty)| Value::empty(*ty)).collect();
                batch.iter().map(|_| Ok(outputs.clone())).collect()
            }
        };
        emulated::occupy(start, self.spec.worker.execution[batch.len() - 1]);
        results
    }

    fn example(&self, _: usize) -> Inputs {
        Vec::new()
    }
}
