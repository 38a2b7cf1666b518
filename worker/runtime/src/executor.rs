//! Executors: they run a batch on a device thread, with the operators of its modules, emulated time, or the decoding of
//! frames. An executor is built on the device's thread and stays there.

pub(crate) mod build;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use indexmap::IndexMap;
use nix::time::{ClockId, clock_gettime};
use spillgate_backend::account::Lease;
use spillgate_backend::clock::{Clock, use_exact_timers};
use spillgate_backend::job::{Failure, Job, Ran};
use spillgate_backend::operator::{Inputs, Library, Operator, OperatorError};
use spillgate_backend::value::{Image, Value};
use spillgate_backend::{Backend, BackendError};
use spillgate_picture::{Decoded, NotDecoded, Picture, PictureKind, decode};
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::catalog::ModelNeed;
use spillgate_pipeline::execution::ModuleExecution;
use spillgate_pipeline::id::{MemberId, ModuleId, WorkerId};
use spillgate_pipeline::pipeline::Damaged;
use spillgate_pipeline::request::ModelChoice;

use crate::members::Members;
pub(crate) use build::may_load;
pub use build::{EXAMPLE_OBJECTS, build_operator, serving_operator, warm_up};

/// Decoding is stopped after this many times the processor time that was computed from the picture's bytes, or after the pipeline's bound
/// for a picture (`limits.decoding`) if that is less. The factor allows for slow machines; that others are busy on it does not count.
const DECODING_SLACK: u32 = 8;
/// But no decoding is stopped before it took this long.
const DECODING_LEAST: Duration = Duration::from_millis(50);

/// Runs batches on one device.
pub trait Executor {
    /// Runs one batch of a worker's module, with that model of it. One result a job, in order; an
    /// error is a sentence for the client whose request failed.
    /// A worker that is not loaded is loaded first.
    fn execute(&mut self, worker: WorkerId, model: ModelChoice, jobs: &[&Job]) -> Vec<Ran>;

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
    /// Expected execution times by variant and batch size.
    pub execution: ModuleExecution,
    /// It is loaded when its device starts. Other workers are loaded when a controller asks for them.
    pub from_start: bool,
    /// The files of its module's family, if it has one. `None`: any of them may be loaded.
    pub members: Option<Arc<dyn Members>>,
    /// How long reading a model takes, as the profile says.
    pub load: Option<Duration>,
}

/// Makes the backend of a device on the device's own thread.
pub type BackendFactory = Box<dyn FnOnce() -> Result<Box<dyn Backend>, BackendError> + Send>;

/// Runs the operators of the module library on a backend, of modules without a family.
pub struct OperatorExecutor {
    backend: Box<dyn Backend>,
    library: Arc<Library>,
    workers: IndexMap<WorkerId, OperatorWorker>,
    inputs: Vec<Inputs>,
}

struct OperatorWorker {
    spec: WorkerSpec,
    /// If it is loaded.
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

    /// The operator of a worker, which is loaded unless it is.
    fn operator(
        &mut self,
        worker: WorkerId,
    ) -> Result<(&WorkerSpec, &mut dyn Operator), OperatorError> {
        let known = self.workers.get_mut(&worker);
        let OperatorWorker { spec, operator } =
            known.expect("batches are for this device's workers");
        let operator = match operator {
            Some(loaded) => loaded,
            None => {
                let (library, backend) = (&self.library, &mut *self.backend);
                let alone = MemberId::default();
                operator.insert(match spec.from_start {
                    true => {
                        let mut operator = build_operator(spec, alone, library, backend)?;
                        warm_up(spec, &mut *operator, backend.first_runs());
                        operator
                    }
                    false => serving_operator(spec, alone, library, backend)?,
                })
            }
        };
        Ok((spec, &mut **operator))
    }
}

impl Executor for OperatorExecutor {
    fn execute(&mut self, worker: WorkerId, model: ModelChoice, jobs: &[&Job]) -> Vec<Ran> {
        let mut inputs = std::mem::take(&mut self.inputs);
        let (spec, operator) = match self.operator(worker) {
            Ok(found) => found,
            Err(error) => {
                let failed = |_| Err(Failure::Module(error.to_string()));
                return jobs.iter().map(failed).collect();
            }
        };
        let module = &spec.pipeline.modules[spec.module.idx()];
        inputs.extend(jobs.iter().map(|job| job.inputs(module)));
        let variant = module.variant(model.variant);
        let results = operator.run(variant, &inputs);
        inputs.clear();
        self.inputs = inputs;
        results
            .into_iter()
            .map(|r| r.map_err(|e| Failure::Module(e.to_string())))
            .collect()
    }

    fn load(&mut self, worker: WorkerId) -> Result<(), OperatorError> {
        self.operator(worker).map(|_| ())
    }

    fn unload(&mut self, worker: WorkerId) {
        self.workers[&worker].operator = None;
    }
}

/// Takes the time that the profile says. Types without a model really run; for others the outputs are
/// empty values.
pub struct EmulatedExecutor {
    clock: Clock,
    workers: IndexMap<WorkerId, EmulatedWorker>,
    /// Empty between batches.
    inputs: Vec<Inputs>,
}

struct EmulatedWorker {
    spec: WorkerSpec,
    /// Built for types without a model.
    operator: Option<Box<dyn Operator>>,
}

/// The backend of an emulated device has no models.
pub(crate) struct NoModels;

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
    pub fn build(
        clock: &Clock,
        library: &Library,
        specs: &[WorkerSpec],
    ) -> Result<Self, OperatorError> {
        use_exact_timers();
        let mut workers = IndexMap::new();
        for spec in specs {
            let module = &spec.pipeline.modules[spec.module.idx()];
            let without_model = library
                .get(&module.op)
                .is_some_and(|kind| kind.module_type().model == ModelNeed::None);
            let operator = without_model
                .then(|| build_operator(spec, MemberId::default(), library, &mut NoModels))
                .transpose()?;
            workers.insert(
                spec.worker,
                EmulatedWorker {
                    spec: spec.clone(),
                    operator,
                },
            );
        }
        Ok(EmulatedExecutor {
            clock: clock.clone(),
            workers,
            inputs: Vec::new(),
        })
    }
}

impl Executor for EmulatedExecutor {
    fn execute(&mut self, worker: WorkerId, model: ModelChoice, jobs: &[&Job]) -> Vec<Ran> {
        let start = self.clock.now();
        let worker = self
            .workers
            .get_mut(&worker)
            .expect("batches are for this device's workers");
        let module = &worker.spec.pipeline.modules[worker.spec.module.idx()];
        let results = match &mut worker.operator {
            Some(operator) => {
                self.inputs
                    .extend(jobs.iter().map(|job| job.inputs(module)));
                let results = operator.run(0, &self.inputs);
                self.inputs.clear();
                results
                    .into_iter()
                    .map(|r| r.map_err(|e| Failure::Module(e.to_string())))
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
        let times = worker.spec.execution.of_variant(model.variant);
        self.clock.occupy(start, times[jobs.len() - 1]);
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
    fn execute(&mut self, worker: WorkerId, _: ModelChoice, jobs: &[&Job]) -> Vec<Ran> {
        let pipeline = &self.pipelines[&worker];
        jobs.iter()
            .map(|job| {
                let image = contained(|| decode_job(job, pipeline))?;
                Ok(vec![Value::Image(image)])
            })
            .collect()
    }

    fn load(&mut self, _: WorkerId) -> Result<(), OperatorError> {
        Ok(())
    }

    fn unload(&mut self, _: WorkerId) {}
}

/// Decoders are third-party code and read any client's bytes. A panic must fail only that frame, not the thread that
/// decodes the frames of all clients. Decoders keep no state that a panic could leave inconsistent.
fn contained<T>(decode: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(decode)).unwrap_or_else(|_| {
        let text = "the frame cannot be decoded: the decoder failed on it";
        Err(Failure::Module(text.to_owned()))
    })
}

/// Decodes a request's frame. It stops when the request has ended, or when decoding takes much longer than was computed.
/// The bytes of the decoded picture are taken from the account before a byte is decoded.
fn decode_job(job: &Job, pipeline: &Pipeline) -> Result<Arc<Image>, Failure> {
    let picture = Picture::of(job.frame(), pipeline.limits.pixels)?;
    let lease = job.holder().take(picture.bytes).map_err(Failure::Memory)?;
    let most = pipeline.decoding_max().max(DECODING_LEAST);
    let give_up =
        processor_time() + (picture.decoding * DECODING_SLACK).clamp(DECODING_LEAST, most);
    let mut stops = || job.has_ended() || processor_time() > give_up;
    match decode(job.frame(), &picture, &mut stops) {
        Ok(Decoded { rgb, damage }) => {
            if let Some(damage) = damage {
                if pipeline.limits.damaged == Damaged::Refused {
                    let text = damage.explain();
                    let text = format!("{text}; such frames are refused here (limits.damaged)");
                    return Err(Failure::Module(text));
                }
                job.note_damage(damage);
            }
            Ok(Arc::new(Image {
                width: picture.width,
                height: picture.height,
                rgb: match picture.kind {
                    PictureKind::Rgb8 => rgb,
                    _ => held(lease, rgb),
                },
            }))
        }
        Err(NotDecoded::Unreadable(text)) => Err(Failure::Module(text)),
        Err(NotDecoded::Stopped) => Err(Failure::Module(
            "decoding the frame was stopped: its client left, or it took far longer than pictures of its size and length do".to_owned(),
        )),
    }
}

/// Of this thread so far.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.expect("every thread has this clock").into()
}

/// A decoded picture, and the bytes that it still holds.
fn held(mut lease: Lease, rgb: Bytes) -> Bytes {
    lease.shrink_to(rgb.len() as u64);
    lease.around(rgb)
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use spillgate_backend::operator::{BuildContext, ModuleKind, Outputs};
    use spillgate_pipeline::catalog::{ModuleType, ValueType};
    use spillgate_pipeline::compile::compile;

    use super::*;

    /// Notes the sizes of its batches; fails from a size on, and panics from one.
    #[derive(Clone)]
    struct Noted {
        sizes: Arc<Mutex<Vec<usize>>>,
        fails_from: usize,
        panics_from: usize,
    }

    impl ModuleKind for Noted {
        fn module_type(&self) -> ModuleType {
            ModuleType::new("noted", "notes its batches", ModelNeed::Required)
                .input("image", ValueType::Image, "what comes in")
                .output("payload", ValueType::Bytes, "what goes out")
        }

        fn build(&self, _: BuildContext<'_>) -> Result<Box<dyn Operator>, OperatorError> {
            Ok(Box::new(self.clone()))
        }
    }

    impl Operator for Noted {
        fn run(&mut self, _: usize, batch: &[Inputs]) -> Vec<Result<Outputs, OperatorError>> {
            self.sizes.lock().push(batch.len());
            assert!(batch.len() < self.panics_from, "told to");
            let result = |_| match batch.len() < self.fails_from {
                true => Ok(vec![Value::Bytes("x".into())]),
                false => Err(OperatorError::Other("does not fit".to_owned())),
            };
            batch.iter().map(result).collect()
        }

        fn example(&self, objects: usize) -> Inputs {
            assert!(objects > 0);
            vec![Some(Value::Bytes("x".into()))]
        }
    }

    /// Sizes that a module with batches of four has run once it is loaded, when its device starts or later.
    fn warmed(fails_from: usize, panics_from: usize, from_start: bool) -> Vec<usize> {
        const YAML: &str =
            "{ name: p, slo: 1s, modules: { m: { op: noted, model: m.pt, batch: { max: 4 },
            inputs: { image: $source.frame } } }, outputs: { payload: $m.payload } }";
        let noted = Noted {
            sizes: Arc::default(),
            fails_from,
            panics_from,
        };
        let mut library = Library::new();
        library.register(noted.clone());
        let compiled =
            compile(YAML, "p.yaml", &library.catalog(), None).unwrap_or_else(|e| panic!("{e}"));
        let spec = |worker, from_start| WorkerSpec {
            worker: WorkerId(worker),
            pipeline: Arc::new(compiled.pipeline.clone()),
            base_dir: PathBuf::new(),
            module: ModuleId(1),
            execution: ModuleExecution::default(),
            from_start,
            members: None,
            load: None,
        };
        let backend: BackendFactory = Box::new(|| Ok(Box::new(NoModels)));
        let specs = [spec(0, from_start), spec(1, false)];
        let built = OperatorExecutor::build(backend, Arc::new(library), &specs);
        built
            .and_then(|mut executor| executor.load(WorkerId(0)))
            .expect("it loads");
        noted.sizes.lock().clone()
    }

    #[test]
    fn a_model_that_was_loaded_has_run_at_each_size() {
        assert_eq!(warmed(100, 100, true), [1, 1, 2, 3, 4]);
        assert_eq!(warmed(100, 100, false), [1, 1], "beside others that serve");
    }

    #[test]
    fn a_model_that_fails_on_its_example_is_loaded() {
        assert_eq!(warmed(3, 100, true), [1, 1, 2, 3]);
        assert_eq!(warmed(100, 2, true), [1, 1, 2]);
    }

    #[test]
    fn a_decoder_that_panics_costs_its_frame_only() {
        let failure = contained::<()>(|| panic!("index out of bounds")).unwrap_err();
        let text = "the frame cannot be decoded: the decoder failed on it".to_owned();
        assert_eq!(failure, Failure::Module(text));
        assert_eq!(contained(|| Ok(1)), Ok(1));
    }
}
