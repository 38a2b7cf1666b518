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
    fn execute(&mut self, worker: WorkerId, jobs: &[&Job]) -> Vec<Result<Outputs, String>>;
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
}

/// Makes the backend of a device on the device's own thread.
pub type BackendFactory = Box<dyn FnOnce() -> Result<Box<dyn Backend>, BackendError> + Send>;

/// Runs the operators of the module library on a backend.
pub struct OperatorExecutor {
    _backend: Box<dyn Backend>,
    workers: IndexMap<WorkerId, (WorkerSpec, Box<dyn Operator>)>,
    inputs: Vec<Inputs>,
}

impl OperatorExecutor {
    /// Builds the operators of these workers.
    ///
    /// # Errors
    /// When the device, a model or another file is missing or does not fit.
    pub fn build(
        backend: BackendFactory,
        library: &Library,
        specs: &[WorkerSpec],
    ) -> Result<Self, OperatorError> {
        let mut backend = backend()?;
        let mut workers = IndexMap::new();
        for spec in specs {
            let operator = build_operator(spec, library, &mut *backend)?;
            workers.insert(spec.worker, (spec.clone(), operator));
        }
        Ok(OperatorExecutor {
            _backend: backend,
            workers,
            inputs: Vec::new(),
        })
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
        let (spec, operator) = self
            .workers
            .get_mut(&worker)
            .expect("batches are for this device's workers");
        let module = &spec.pipeline.modules[spec.module.idx()];
        self.inputs.clear();
        self.inputs
            .extend(jobs.iter().map(|job| job.inputs(module)));
        // Until variants are adapted, the most accurate one, which is the last.
        let variant = module.variants.len().saturating_sub(1);
        let results = operator.run(variant, &self.inputs);
        self.inputs.clear();
        results
            .into_iter()
            .map(|r| r.map_err(|e| e.to_string()))
            .collect()
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
