//! What a device thread runs for a batch: the operators of its modules, emulated time, or the decoding
//! of frames. Built on the device's thread and kept there.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use indexmap::IndexMap;
use spillgate_backend::emulated;
use spillgate_backend::job::Job;
use spillgate_backend::operator::{
    BuildContext, Inputs, Library, Operator, OperatorError, Outputs,
};
use spillgate_backend::value::Value;
use spillgate_backend::{Backend, BackendError};
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::catalog::ModelNeed;
use spillgate_pipeline::id::{ModuleId, WorkerId};

use crate::decode;

/// Runs batches on one device.
pub trait Executor {
    /// Runs one batch of a worker's module. One result a job, in order; an error is a sentence for the
    /// client whose request failed.
    /// A worker that is not loaded is loaded first.
    fn execute(&mut self, worker: WorkerId, jobs: &[&Job]) -> Vec<Result<Outputs, String>>;

    /// Makes ready what the worker needs to run: its model in memory. Does nothing if it is.
    ///
    /// # Errors
    /// When a model or another file is missing or does not fit.
    fn load(&mut self, worker: WorkerId) -> Result<(), OperatorError>;

    /// Gives back what the worker holds.
    fn unload(&mut self, worker: WorkerId);
}

/// A worker to be built: one module of one pipeline.
#[derive(Clone)]
pub struct WorkerSpec {
    /// Its id.
    pub worker: WorkerId,
    /// Its pipeline.
    pub pipeline: Arc<Pipeline>,
    /// Folder of the pipeline's file.
    pub base_dir: PathBuf,
    /// Its module; `ModuleId::SOURCE` decodes frames.
    pub module: ModuleId,
    /// Expected execution time by batch size, from 1.
    pub execution: Vec<Duration>,
    /// It is loaded when its device starts; others are when they are asked for.
    pub from_start: bool,
}

/// Makes the backend of a device on the device's own thread.
pub type BackendFactory = Box<dyn FnOnce() -> Result<Box<dyn Backend>, BackendError> + Send>;

/// Runs the operators of the module library on a backend.
pub struct OperatorExecutor {
    backend: Box<dyn Backend>,
    library: Arc<Library>,
    workers: IndexMap<WorkerId, OperatorWorker>,
    inputs: Vec<Inputs>,
}

struct OperatorWorker {
    spec: WorkerSpec,
    /// While it is loaded.
    operator: Option<Box<dyn Operator>>,
}

impl OperatorExecutor {
    /// Builds the operators of those of these workers that serve from the start.
    ///
    /// # Errors
    /// When the device, a model or another file is missing or does not fit.
    pub fn build(
        backend: BackendFactory,
        library: Arc<Library>,
        specs: &[WorkerSpec],
    ) -> Result<Self, OperatorError> {
        let of = |spec: &WorkerSpec| {
            let (spec, operator) = (spec.clone(), None);
            (spec.worker, OperatorWorker { spec, operator })
        };
        let mut executor = OperatorExecutor {
            backend: backend()?,
            library,
            workers: specs.iter().map(of).collect(),
            inputs: Vec::new(),
        };
        for spec in specs.iter().filter(|spec| spec.from_start) {
            executor.load(spec.worker)?;
        }
        Ok(executor)
    }

    fn worker(&mut self, worker: WorkerId) -> &mut OperatorWorker {
        let known = self.workers.get_mut(&worker);
        known.expect("batches are for this device's workers")
    }
}

/// Builds the operator of one module.
///
/// # Errors
/// When a model or another file is missing or does not fit.
pub fn build_operator(
    spec: &WorkerSpec,
    library: &Library,
    backend: &mut dyn Backend,
) -> Result<Box<dyn Operator>, OperatorError> {
    let module = &spec.pipeline.modules[spec.module.idx()];
    let kind = library.get(&module.op).ok_or_else(|| {
        OperatorError::Other(format!(
            "module {}: no type \"{}\" in this server",
            module.name, module.op
        ))
    })?;
    let context = BuildContext {
        module,
        base_dir: &spec.base_dir,
        limits: &spec.pipeline.limits,
        backend,
    };
    kind.build(context)
        .map_err(|e| OperatorError::Other(format!("module {} ({}): {e}", module.name, module.op)))
}

impl Executor for OperatorExecutor {
    fn execute(&mut self, worker: WorkerId, jobs: &[&Job]) -> Vec<Result<Outputs, String>> {
        if let Err(error) = self.load(worker) {
            return jobs.iter().map(|_| Err(error.to_string())).collect();
        }
        let mut inputs = std::mem::take(&mut self.inputs);
        let worker = self.worker(worker);
        let module = &worker.spec.pipeline.modules[worker.spec.module.idx()];
        inputs.extend(jobs.iter().map(|job| job.inputs(module)));
        // Until variants are adapted, the most accurate one, which is the last.
        let variant = module.variants.len().saturating_sub(1);
        let operator = worker.operator.as_mut().expect("it was just loaded");
        let results = operator.run(variant, &inputs);
        inputs.clear();
        self.inputs = inputs;
        results
            .into_iter()
            .map(|r| r.map_err(|e| e.to_string()))
            .collect()
    }

    fn load(&mut self, worker: WorkerId) -> Result<(), OperatorError> {
        let known = self.workers.get_mut(&worker);
        let worker = known.expect("batches are for this device's workers");
        if worker.operator.is_none() {
            let operator = build_operator(&worker.spec, &self.library, &mut *self.backend)?;
            worker.operator = Some(operator);
        }
        Ok(())
    }

    fn unload(&mut self, worker: WorkerId) {
        self.worker(worker).operator = None;
    }
}

/// Takes the time that the profile says. Types without a model really run; for others the outputs are
/// empty values.
pub struct EmulatedExecutor {
    workers: IndexMap<WorkerId, EmulatedWorker>,
}

struct EmulatedWorker {
    spec: WorkerSpec,
    /// Built for types without a model.
    operator: Option<Box<dyn Operator>>,
}

/// The backend of an emulated device has no models.
struct NoModels;

impl Backend for NoModels {
    fn device_kind(&self) -> &'static str {
        "emulated"
    }

    fn load(
        &mut self,
        path: &std::path::Path,
    ) -> Result<Box<dyn spillgate_backend::Model>, BackendError> {
        Err(BackendError::Load {
            path: path.to_owned(),
            detail: "an emulated device runs no models".to_owned(),
        })
    }
}

impl EmulatedExecutor {
    /// An emulated device that serves these workers.
    ///
    /// # Errors
    /// When a type without a model cannot be built.
    pub fn build(library: &Library, specs: &[WorkerSpec]) -> Result<Self, OperatorError> {
        emulated::use_exact_timers();
        let mut workers = IndexMap::new();
        for spec in specs {
            let module = &spec.pipeline.modules[spec.module.idx()];
            let without_model = library
                .get(&module.op)
                .is_some_and(|kind| kind.module_type().model == ModelNeed::None);
            let operator = without_model
                .then(|| build_operator(spec, library, &mut NoModels))
                .transpose()?;
            workers.insert(
                spec.worker,
                EmulatedWorker {
                    spec: spec.clone(),
                    operator,
                },
            );
        }
        Ok(EmulatedExecutor { workers })
    }
}

impl Executor for EmulatedExecutor {
    fn execute(&mut self, worker: WorkerId, jobs: &[&Job]) -> Vec<Result<Outputs, String>> {
        let start = Instant::now();
        let worker = self
            .workers
            .get_mut(&worker)
            .expect("batches are for this device's workers");
        let module = &worker.spec.pipeline.modules[worker.spec.module.idx()];
        let results = match &mut worker.operator {
            Some(operator) => {
                let inputs: Vec<Inputs> = jobs.iter().map(|job| job.inputs(module)).collect();
                operator
                    .run(0, &inputs)
                    .into_iter()
                    .map(|r| r.map_err(|e| e.to_string()))
                    .collect()
            }
            None => jobs
                .iter()
                .map(|_| {
                    Ok(module
                        .outputs
                        .iter()
                        .map(|(_, ty)| Value::empty(*ty))
                        .collect())
                })
                .collect(),
        };
        emulated::occupy(start, worker.spec.execution[jobs.len() - 1]);
        results
    }

    /// Types without a model have nothing to load.
    fn load(&mut self, _: WorkerId) -> Result<(), OperatorError> {
        Ok(())
    }

    fn unload(&mut self, _: WorkerId) {}
}

/// Decodes frames: the source module.
pub struct DecodeExecutor {
    pipelines: IndexMap<WorkerId, Arc<Pipeline>>,
}

impl DecodeExecutor {
    /// A decoder for the sources of these pipelines.
    pub fn new(specs: &[WorkerSpec]) -> Self {
        DecodeExecutor {
            pipelines: specs
                .iter()
                .map(|s| (s.worker, s.pipeline.clone()))
                .collect(),
        }
    }
}

impl Executor for DecodeExecutor {
    fn execute(&mut self, worker: WorkerId, jobs: &[&Job]) -> Vec<Result<Outputs, String>> {
        let pipeline = &self.pipelines[&worker];
        jobs.iter()
            .map(|job| {
                let image = contained(|| decode::decode(job.frame(), &pipeline.limits))?;
                Ok(vec![Value::Image(image)])
            })
            .collect()
    }

    fn load(&mut self, _: WorkerId) -> Result<(), OperatorError> {
        Ok(())
    }

    fn unload(&mut self, _: WorkerId) {}
}

/// Decoders are other people's code and take any client's bytes: one that panics must cost that frame
/// only, not the thread that decodes everybody's. They keep no state that a panic could leave half done.
fn contained<T>(decode: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(decode))
        .unwrap_or_else(|_| Err("the frame cannot be decoded: the decoder failed on it".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decoder_that_panics_costs_its_frame_only() {
        let error = contained::<()>(|| panic!("index out of bounds")).unwrap_err();
        assert!(error.contains("cannot be decoded"), "{error}");
        assert_eq!(contained(|| Ok(1)), Ok(1));
    }
}
