//! The weights of a device that give way to each other: its thread runs batches with what a thread beside it reads.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;

use indexmap::IndexMap;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use spillgate_backend::clock::{Clock, Signal};
use spillgate_backend::job::{Failure, Job, Ran};
use spillgate_backend::operator::{Inputs, Operator, OperatorError};
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::{ModelId, ModuleId, WeightsId, WorkerId};
use spillgate_pipeline::request::ModelChoice;
use spillgate_worker_policy::device::DeviceEvent;

use super::panic_text;
use super::shared::Shared;
use crate::confinement;
use crate::executor::Executor;
use crate::placed::{Loader, LoaderFactory};

/// What a worker of such a device runs.
#[derive(Clone)]
pub struct WeightsWorker {
    /// Its pipeline.
    pub pipeline: Arc<Pipeline>,
    /// Its module.
    pub module: ModuleId,
    /// Its models, by member of the family or by variant.
    pub models: Vec<ModelId>,
    /// They are those of variants.
    pub by_variant: bool,
}

/// How such a device is started.
pub struct WeightsConfig {
    /// Reads weights, on a thread of its own.
    pub loader: LoaderFactory,
    /// What is larger than the memory of the device, and what its requests hear.
    pub too_large: Vec<(WeightsId, String)>,
    /// What is read before the device serves, as its policy has it.
    pub resident: Vec<WeightsId>,
    /// What each model runs with, and which variant of the operator it is.
    pub models: Arc<[(WeightsId, usize)]>,
    /// Its workers.
    pub workers: IndexMap<WorkerId, WeightsWorker, FxBuildHasher>,
}

/// An operator that is there, or why it is not.
type Slot = Result<Arc<Mutex<Box<dyn Operator>>>, Arc<str>>;

/// What was read, for the thread that runs batches.
#[derive(Default)]
pub(super) struct Store {
    slots: Mutex<IndexMap<WeightsId, Slot, FxBuildHasher>>,
}

impl Store {
    fn put(&self, weights: WeightsId, read: Result<Box<dyn Operator>, OperatorError>) {
        let slot = match read {
            Ok(operator) => Ok(Arc::new(Mutex::new(operator))),
            Err(why) => Err(why.to_string().into()),
        };
        let before = self.slots.lock().insert(weights, slot);
        // Without the lock: it takes a while.
        drop(before);
    }

    fn forget(&self, weights: WeightsId) {
        let gone = self.slots.lock().swap_remove(&weights);
        drop(gone);
    }

    fn get(&self, weights: WeightsId) -> Slot {
        let slot = self.slots.lock().get(&weights).cloned();
        slot.unwrap_or_else(|| Err("its weights are not in memory".into()))
    }
}

/// Runs batches with what the store has.
pub(super) struct StoreExecutor {
    store: Arc<Store>,
    models: Arc<[(WeightsId, usize)]>,
    workers: IndexMap<WorkerId, WeightsWorker, FxBuildHasher>,
    /// Empty between batches.
    inputs: Vec<Inputs>,
}

impl StoreExecutor {
    /// What a model runs with, and which variant of its operator it is; `None` where the module has no such model.
    fn model(&self, worker: WorkerId, model: ModelChoice) -> Option<(WeightsId, usize)> {
        let of = &self.workers[&worker];
        let ordinal = match of.by_variant {
            true => model.variant.idx(),
            false => model.member.idx(),
        };
        let model = of.models.get(ordinal)?;
        Some(self.models[model.idx()])
    }
}

impl Executor for StoreExecutor {
    fn execute(&mut self, worker: WorkerId, model: ModelChoice, jobs: &[&Job]) -> Vec<Ran> {
        let all_fail = |why: &str| vec![Err(Failure::Module(why.to_owned())); jobs.len()];
        let Some((weights, variant)) = self.model(worker, model) else {
            return all_fail("its module has no such model");
        };
        let operator = match self.store.get(weights) {
            Ok(operator) => operator,
            Err(why) => return all_fail(&why),
        };
        let mut inputs = std::mem::take(&mut self.inputs);
        let of = &self.workers[&worker];
        let module = &of.pipeline.modules[of.module.idx()];
        inputs.extend(jobs.iter().map(|job| job.inputs(module)));
        let results = operator.lock().run(variant, &inputs);
        inputs.clear();
        self.inputs = inputs;
        let failed = |error: OperatorError| Failure::Module(error.to_string());
        results.into_iter().map(|r| r.map_err(failed)).collect()
    }

    /// Weights come and go with the requests.
    fn load(&mut self, _: WorkerId) -> Result<(), OperatorError> {
        Ok(())
    }

    fn unload(&mut self, _: WorkerId) {}
}

/// What the thread that reads is to do.
pub(super) struct Reads {
    tasks: Mutex<Tasks>,
    changed: Signal,
}

#[derive(Default)]
struct Tasks {
    /// What is to be read, and what gives way before.
    waiting: VecDeque<(WeightsId, Vec<WeightsId>)>,
    stop: bool,
}

impl Reads {
    pub(super) fn new(clock: &Clock) -> Self {
        Reads {
            tasks: Mutex::default(),
            changed: Signal::new(clock),
        }
    }

    pub(super) fn push(&self, weights: WeightsId, gone: Vec<WeightsId>) {
        self.tasks.lock().waiting.push_back((weights, gone));
        self.changed.notify_one();
    }

    /// Ends the thread once what it reads is read.
    pub(super) fn stop(&self) {
        self.tasks.lock().stop = true;
        self.changed.notify_one();
    }

    fn next(&self) -> Option<(WeightsId, Vec<WeightsId>)> {
        let mut tasks = self.tasks.lock();
        loop {
            if tasks.stop {
                return None;
            }
            if let Some(next) = tasks.waiting.pop_front() {
                return Some(next);
            }
            self.changed.wait(&mut tasks);
        }
    }
}

/// Starts the thread that reads, and waits until what is there from the start is read.
///
/// # Errors
/// When the loader cannot be built, or something that is there from the start cannot be read.
pub(super) fn start(
    shared: &Arc<Shared>,
    config: WeightsConfig,
) -> Result<(StoreExecutor, JoinHandle<()>), OperatorError> {
    let WeightsConfig {
        loader,
        too_large,
        resident,
        models,
        workers,
    } = config;
    let store = Arc::new(Store::default());
    for (weights, why) in too_large {
        store.put(weights, Err(OperatorError::Other(why)));
    }
    let executor = StoreExecutor {
        store: store.clone(),
        models,
        workers,
        inputs: Vec::new(),
    };
    let (started, has_started) = sync_channel(1);
    let thread = shared
        .clock
        .spawn(format!("load {}", shared.name), {
            let shared = shared.clone();
            move || {
                let begin = AssertUnwindSafe(|| begin(loader, &resident, &store));
                let begun = catch_unwind(begin).unwrap_or_else(|panic| Err(panicked(&*panic)));
                match begun {
                    Ok(mut loader) => {
                        let _ = started.send(Ok(()));
                        let reads = AssertUnwindSafe(|| {
                            while let Some((weights, gone)) = shared.reads.next() {
                                read(&shared, &store, &mut *loader, weights, &gone);
                            }
                        });
                        // Nothing is read any more: readiness is to show it.
                        if let Err(panic) = catch_unwind(reads) {
                            let cause = panic_text(&*panic);
                            tracing::error!(device = shared.name, cause, "loading thread died");
                            shared.alive.store(false, Ordering::Release);
                        }
                    }
                    Err(error) => {
                        let _ = started.send(Err(error));
                    }
                }
            }
        })
        .expect("the system gives threads for each device");
    let ended = || OperatorError::Other(format!("the loading thread of {} ended", shared.name));
    has_started.recv().map_err(|_| ended())??;
    Ok((executor, thread))
}

fn begin(
    loader: LoaderFactory,
    resident: &[WeightsId],
    store: &Store,
) -> Result<Box<dyn Loader>, OperatorError> {
    confinement::enter()?;
    let mut loader = loader()?;
    for &weights in resident {
        store.put(weights, Ok(loader.load(weights, false)?));
    }
    Ok(loader)
}

fn read(
    shared: &Shared,
    store: &Store,
    loader: &mut dyn Loader,
    weights: WeightsId,
    gone: &[WeightsId],
) {
    gone.iter().for_each(|weights| store.forget(*weights));
    let read = catch_unwind(AssertUnwindSafe(|| loader.load(weights, true)));
    let read = read.unwrap_or_else(|panic| Err(panicked(&*panic)));
    let is_there = read.is_ok();
    if let Err(error) = &read {
        tracing::warn!(device = shared.name, %error, "weights cannot be loaded");
    }
    store.put(weights, read);
    if shared.alive.load(Ordering::Acquire) {
        shared.drive(DeviceEvent::ReadEnded(is_there));
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> OperatorError {
    OperatorError::Other(format!("loading panicked: {}", panic_text(panic)))
}
