//! The weights of a device that are not all there from the start: its thread runs batches with what a thread beside it reads.

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
use spillgate_backend::operator::{Inputs, OperatorError};
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::{ModelId, ModuleId, WeightsId, WorkerId};
use spillgate_pipeline::request::ModelChoice;
use spillgate_worker_policy::device::DeviceEvent;

use super::panic_text;
use super::shared::Shared;
use crate::confinement;
use crate::executor::Executor;
use crate::weights::{Loader, LoaderFactory, Slots, loading_panicked};

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
    /// Of these, what the device does not serve without.
    pub needed: Vec<WeightsId>,
    /// What each model runs with, and which variant of the operator it is.
    pub models: Arc<[(WeightsId, usize)]>,
    /// Its workers.
    pub workers: IndexMap<WorkerId, WeightsWorker, FxBuildHasher>,
}

/// Runs batches with what is in memory.
pub(super) struct SlotsExecutor {
    slots: Arc<Slots>,
    models: Arc<[(WeightsId, usize)]>,
    workers: IndexMap<WorkerId, WeightsWorker, FxBuildHasher>,
    /// Empty between batches.
    inputs: Vec<Inputs>,
}

impl SlotsExecutor {
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

impl Executor for SlotsExecutor {
    fn execute(&mut self, worker: WorkerId, model: ModelChoice, jobs: &[&Job]) -> Vec<Ran> {
        let all_fail = |why: &str| vec![Err(Failure::Module(why.to_owned())); jobs.len()];
        let Some((weights, variant)) = self.model(worker, model) else {
            return all_fail("its module has no such model");
        };
        let of = match self.slots.get(weights) {
            Ok(of) => of,
            Err(why) => return all_fail(&why),
        };
        let mut inputs = std::mem::take(&mut self.inputs);
        let served = &self.workers[&worker];
        let module = &served.pipeline.modules[served.module.idx()];
        inputs.extend(jobs.iter().map(|job| job.inputs(module)));
        let results = of.operator.lock().run(variant, &inputs);
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
) -> Result<(SlotsExecutor, JoinHandle<()>), OperatorError> {
    let WeightsConfig {
        loader,
        too_large,
        resident,
        needed,
        models,
        workers,
    } = config;
    let slots = Arc::new(Slots::default());
    for (weights, why) in too_large {
        slots.refuse(weights, &why);
    }
    let executor = SlotsExecutor {
        slots: slots.clone(),
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
                let begin = AssertUnwindSafe(|| {
                    confinement::enter()?;
                    let mut loader = loader()?;
                    for weights in resident {
                        let read = slots.read(&mut *loader, weights, false);
                        match read {
                            Err(error) if !needed.contains(&weights) => {
                                tracing::warn!(%error, "the default of a family cannot be loaded");
                                shared.state.lock().policy.lack(weights);
                            }
                            read => read?,
                        }
                    }
                    Ok(loader)
                });
                let begun =
                    catch_unwind(begin).unwrap_or_else(|panic| Err(loading_panicked(&*panic)));
                match begun {
                    Ok(mut loader) => {
                        let _ = started.send(Ok(()));
                        let reads = AssertUnwindSafe(|| {
                            while let Some((weights, gone)) = shared.reads.next() {
                                read(&shared, &slots, &mut *loader, weights, &gone);
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

fn read(
    shared: &Shared,
    slots: &Slots,
    loader: &mut dyn Loader,
    weights: WeightsId,
    gone: &[WeightsId],
) {
    gone.iter().for_each(|weights| slots.forget(*weights));
    let read = slots.read(loader, weights, true);
    if let Err(error) = &read {
        tracing::warn!(device = shared.name, %error, "weights cannot be loaded");
    }
    if shared.alive.load(Ordering::Acquire) {
        shared.drive(DeviceEvent::ReadEnded(read.is_ok()));
    }
}
