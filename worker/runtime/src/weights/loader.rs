//! Loaders: they make the operators of a device's weights, of the module library or emulated.

use std::sync::Arc;
use std::time::Duration;

use spillgate_backend::operator::{Inputs, Library, Operator, OperatorError, Outputs};
use spillgate_backend::{Backend, Copier};
use spillgate_pipeline::catalog::ModelNeed;
use spillgate_pipeline::id::{MemberId, VariantId, WeightsId};
use spillgate_pipeline::pipeline::Module;
use spillgate_process::clock::{Clock, use_exact_timers};
use spillgate_process::value::Value;

use super::Loader;
use crate::listed::ListedFile;
use crate::operators::{
    BackendFactory, WorkerSpec, build_operator, may_load, serving_operator, warm_up,
};

/// Sources of weights that are read before a load fails. Their files are equal, so a further one seldom helps.
pub(crate) const READS_MAX: usize = 2;
/// Sources of weights that cannot be loaded which the error names.
pub(crate) const NAMED_MAX: usize = 4;

/// Weights of a placement, and the modules that name them. Those that do have equal files.
#[derive(Clone)]
pub struct WeightsSpec {
    /// Where they can be read, in the order in which that is tried; at least one.
    pub sources: Vec<Source>,
}

/// A module that names weights.
#[derive(Clone)]
pub struct Source {
    /// A worker that runs with them. Its module has those variants alone that run with them.
    pub worker: WorkerSpec,
    /// Which of its family it is; 0 where the module has no family.
    pub member: MemberId,
    /// The files as they were when they were compared with those of the other sources.
    pub files: Vec<ListedFile>,
}

impl WeightsSpec {
    /// The one that named them first.
    pub fn first(&self) -> &Source {
        &self.sources[0]
    }

    /// A module without a family that names them, which cannot serve without them.
    pub fn needed_by(&self) -> Option<&Source> {
        self.sources.iter().find(|s| s.module().family.is_none())
    }

    /// Makes them ready to run, from the first of its sources whose files are as they were compared. A file that changed is not read where
    /// there are several: it is not what the others named. `is_serving` as in [`Loader::load`].
    ///
    /// # Errors
    /// When a file is missing, changed or does not fit.
    pub fn build(
        &self,
        library: &Library,
        backend: &mut dyn Backend,
        is_serving: bool,
    ) -> Result<Box<dyn Operator>, OperatorError> {
        if self.sources.len() == 1 {
            return self.first().build(library, backend, is_serving);
        }
        let (mut n_read, mut n_failed) = (0, 0);
        let mut said = String::new();
        for source in &self.sources {
            let is_as_listed = source.is_as_listed();
            n_read += usize::from(is_as_listed.is_ok());
            let built = is_as_listed.and_then(|()| {
                let operator = source.build(library, backend, is_serving)?;
                // It may have changed meanwhile.
                source.is_as_listed().map(|()| operator)
            });
            let Err(error) = built else {
                return built;
            };
            if n_failed < NAMED_MAX {
                said += &format!("; {error}");
            }
            n_failed += 1;
            if n_read == READS_MAX {
                break;
            }
        }
        let more = match n_failed > NAMED_MAX {
            true => format!("; and {} more", n_failed - NAMED_MAX),
            false => String::new(),
        };
        let n = self.sources.len();
        Err(OperatorError::Other(format!(
            "its {n} names had equal files when they were listed, and none of these can be loaded{said}{more}"
        )))
    }
}

impl Source {
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

    /// How long reading it takes: as its profile says, else as its check did, if that has loaded one.
    pub fn known_load(&self) -> Option<Duration> {
        let checked = self.worker.members.as_ref();
        let checked = checked.map(|members| members.first_load());
        self.worker.load.or(checked.filter(|load| !load.is_zero()))
    }

    fn needs_model(&self, library: &Library) -> bool {
        let kind = library.get(&self.module().op);
        kind.is_none_or(|kind| kind.module_type().model != ModelNeed::None)
    }

    fn is_as_listed(&self) -> Result<(), OperatorError> {
        let changed = self.files.iter().find_map(|file| file.is_as_listed().err());
        match changed {
            None => Ok(()),
            Some(why) => Err(OperatorError::Other(format!(
                "module {}: model {}: {why}",
                self.module().name,
                self.name()
            ))),
        }
    }

    fn build(
        &self,
        library: &Library,
        backend: &mut dyn Backend,
        is_serving: bool,
    ) -> Result<Box<dyn Operator>, OperatorError> {
        let Source { worker, member, .. } = self;
        may_load(worker, *member)?;
        if is_serving {
            return serving_operator(worker, *member, library, backend);
        }
        let mut operator = build_operator(worker, *member, library, backend)?;
        let of_larger = match worker.from_start {
            true => backend.first_runs(),
            false => 0,
        };
        warm_up(worker, &mut *operator, of_larger);
        Ok(operator)
    }
}

/// Loads weights of the module library on a backend.
pub struct OperatorLoader {
    backend: Box<dyn Backend>,
    library: Arc<Library>,
    weights: Arc<[WeightsSpec]>,
}

impl OperatorLoader {
    /// A loader of these weights, by id.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn new(
        backend: BackendFactory,
        library: Arc<Library>,
        weights: Arc<[WeightsSpec]>,
    ) -> Result<Self, OperatorError> {
        Ok(OperatorLoader {
            backend: backend()?,
            library,
            weights,
        })
    }
}

impl Loader for OperatorLoader {
    fn load(
        &mut self,
        weights: WeightsId,
        is_serving: bool,
    ) -> Result<Box<dyn Operator>, OperatorError> {
        self.weights[weights.idx()].build(&self.library, &mut *self.backend, is_serving)
    }

    fn copier(&self) -> Option<Arc<dyn Copier>> {
        self.backend.copier()
    }
}

/// Takes the time that profiles say. Types without a model really run; for others the outputs are empty values.
pub struct EmulatedLoader {
    clock: Clock,
    library: Arc<Library>,
    weights: Arc<[WeightsSpec]>,
    /// Time to read each.
    loads: Arc<[Duration]>,
}

impl EmulatedLoader {
    /// A loader of these weights, by id, with the time that each take to load.
    pub fn new(
        clock: &Clock,
        library: Arc<Library>,
        weights: Arc<[WeightsSpec]>,
        loads: Arc<[Duration]>,
    ) -> Self {
        use_exact_timers();
        EmulatedLoader {
            clock: clock.clone(),
            library,
            weights,
            loads,
        }
    }
}

impl Loader for EmulatedLoader {
    fn load(
        &mut self,
        weights: WeightsId,
        is_serving: bool,
    ) -> Result<Box<dyn Operator>, OperatorError> {
        let start = self.clock.now();
        let source = self.weights[weights.idx()].first();
        may_load(&source.worker, source.member)?;
        let really_runs = match source.needs_model(&self.library) {
            true => None,
            false => Some(build_operator(
                &source.worker,
                source.member,
                &self.library,
                &mut crate::operators::NoModels,
            )?),
        };
        let operator = Box::new(Emulated {
            clock: self.clock.clone(),
            source: source.clone(),
            really_runs,
        });
        // Before the device serves nobody waits for it.
        if is_serving {
            self.clock.occupy(start, self.loads[weights.idx()]);
        }
        Ok(operator)
    }
}

struct Emulated {
    clock: Clock,
    source: Source,
    /// Of a type without a model.
    really_runs: Option<Box<dyn Operator>>,
}

impl Operator for Emulated {
    fn run(&mut self, variant: usize, batch: &[Inputs]) -> Vec<Result<Outputs, OperatorError>> {
        let start = self.clock.now();
        let results = match &mut self.really_runs {
            Some(operator) => operator.run(variant, batch),
            None => {
                let outputs = self.source.module().outputs.iter();
                let outputs: Outputs = outputs.map(|(_, ty)| Value::empty(*ty)).collect();
                batch.iter().map(|_| Ok(outputs.clone())).collect()
            }
        };
        let execution = &self.source.worker.execution;
        let times = execution.of_variant(VariantId(variant as u16));
        self.clock.occupy(start, times[batch.len() - 1]);
        results
    }

    fn example(&self, _: usize) -> Inputs {
        Vec::new()
    }
}

#[cfg(test)]
mod tests;
