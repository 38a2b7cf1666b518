//! The threads of a device under a placement.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use indexmap::IndexMap;
use parking_lot::{Condvar, Mutex};
use spillgate_backend::job::{Failure, Ran};
use spillgate_backend::operator::{Inputs, OperatorError};
use spillgate_pipeline::action::{Done, Ended};
use spillgate_pipeline::id::{ActionId, ModelId, WorkerId};

use super::shared::{Batch, LoadTask, Report, Shared, State};
use super::{LoadedModel, Loader, LoaderFactory, PlacedConfig, PlacedHandle, RanBatch, Reports};
use crate::clock::Clock;
use crate::device::panic_text;
use crate::timer::TimerThread;

/// The threads of a device. They end when it is dropped.
pub struct PlacedDevice {
    handle: PlacedHandle,
    threads: Vec<JoinHandle<()>>,
}

/// How the start of the loading thread went.
type Started = SyncSender<Result<(), OperatorError>>;

impl PlacedDevice {
    /// Starts the threads, and waits until the models that are there from the start are loaded.
    ///
    /// # Errors
    /// When the loader cannot be built, or one of those models cannot be loaded.
    pub fn start(
        config: PlacedConfig,
        clock: Clock,
        timers: &TimerThread,
        upstream: Arc<dyn Reports>,
        loader: LoaderFactory,
    ) -> Result<Self, OperatorError> {
        let PlacedConfig {
            id,
            name,
            actions,
            resident,
            modules,
        } = config;
        let shared = Arc::new(Shared {
            id,
            name: name.clone(),
            clock,
            modules,
            state: Mutex::new(State {
                actions,
                batches: IndexMap::default(),
                next: None,
                loads: Default::default(),
                reports: Default::default(),
                commands: Vec::new(),
                stop: false,
                busy: 2,
            }),
            runs: Condvar::new(),
            loads: Condvar::new(),
            reports: Condvar::new(),
            models: Mutex::default(),
            upstream,
            alarm: OnceLock::new(),
            alive: AtomicBool::new(true),
        });
        let _ = shared.alarm.set(timers.add(shared.clone()));
        let (started, has_started) = std::sync::mpsc::sync_channel(1);
        let threads = vec![
            spawn(&shared, format!("load {name}"), move |shared| {
                ends(shared, |shared| load(shared, loader, &resident, &started));
            }),
            spawn(&shared, format!("device {name}"), |shared| {
                ends(shared, execute)
            }),
            spawn(&shared, format!("answer {name}"), report),
        ];
        let handle = PlacedHandle { shared };
        let device = PlacedDevice { handle, threads };
        let ended = || OperatorError::Other(format!("the loading thread of {name} ended"));
        has_started.recv().map_err(|_| ended())??;
        Ok(device)
    }

    /// Reaches the device.
    pub fn handle(&self) -> PlacedHandle {
        self.handle.clone()
    }

    /// Ends the threads once what runs is done. Waits for them at most `limit`; false when one was still busy then and was left
    /// behind.
    pub fn stop(mut self, limit: Duration) -> bool {
        self.handle.shared.stop();
        let give_up = std::time::Instant::now() + limit;
        while !self.threads.iter().all(JoinHandle::is_finished) {
            if std::time::Instant::now() >= give_up {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let threads = std::mem::take(&mut self.threads);
        threads.into_iter().all(|thread| thread.join().is_ok())
    }
}

impl Drop for PlacedDevice {
    fn drop(&mut self) {
        self.handle.shared.stop();
    }
}

/// Runs what may report something, and says when it has ended.
fn ends(shared: &Shared, run: impl FnOnce(&Shared)) {
    let outcome = catch_unwind(AssertUnwindSafe(|| run(shared)));
    shared.is_done();
    if let Err(panic) = outcome {
        resume_unwind(panic);
    }
}

fn spawn(
    shared: &Arc<Shared>,
    name: String,
    run: impl FnOnce(&Shared) + Send + 'static,
) -> JoinHandle<()> {
    let shared = shared.clone();
    std::thread::Builder::new()
        .name(name)
        .spawn(move || {
            let outcome = catch_unwind(AssertUnwindSafe(|| run(&shared)));
            if let Err(panic) = outcome {
                let cause = panic_text(&*panic);
                tracing::error!(device = shared.name, cause, "a thread of the device died");
            }
            shared.alive.store(false, Ordering::Release);
        })
        .expect("the system gives threads for each device")
}

/// Executes batches, one after the other.
fn execute(shared: &Shared) {
    let mut inputs: Vec<Inputs> = Vec::new();
    while let Some(batch) = shared.wait(&shared.runs, |s| s.stop, |s| s.next.take()) {
        let Batch {
            id,
            model,
            members,
            expected,
        } = batch;
        let of = shared.models.lock().get(&model).cloned();
        let module = |worker: &WorkerId| {
            let (pipeline, module) = &shared.modules[worker];
            &pipeline.modules[module.idx()]
        };
        let of_member = members.iter().map(|m| m.payload.inputs(module(&m.worker)));
        inputs.extend(of_member);
        let started_at = shared.clock.now();
        let results = match of {
            Some(of) => run(&mut of.lock(), &inputs),
            None => all_fail(inputs.len(), "its model is not in memory".to_owned()),
        };
        let ended_at = shared.clock.now();
        shared.act(|state| state.actions.executed(ended_at, id, &mut state.commands));
        inputs.clear();
        let ended = Ended::Ran {
            at: ended_at,
            took: ended_at.since(started_at),
        };
        let ran = RanBatch {
            id,
            model,
            members,
            results,
            started_at,
            expected,
            ended_at,
        };
        shared.report([Report::Ran(ran), Report::Done(Done { id, ended })]);
    }
}

fn run(model: &mut LoadedModel, inputs: &[Inputs]) -> Vec<Ran> {
    let LoadedModel { operator, variant } = model;
    let outcome = catch_unwind(AssertUnwindSafe(|| operator.run(*variant, inputs)));
    match outcome {
        Ok(results) if results.len() == inputs.len() => {
            let results = results.into_iter();
            results
                .map(|r| r.map_err(|e| Failure::Module(e.to_string())))
                .collect()
        }
        Ok(results) => {
            let n = results.len();
            let why = format!("the module answered {n} of {} requests", inputs.len());
            all_fail(inputs.len(), why)
        }
        Err(panic) => {
            let why = format!("the module panicked: {}", panic_text(&*panic));
            tracing::error!(why);
            all_fail(inputs.len(), why)
        }
    }
}

fn all_fail(n: usize, why: String) -> Vec<Ran> {
    vec![Err(Failure::Module(why)); n]
}

/// Reads weights and gives them back, in the order in which that was asked for.
fn load(shared: &Shared, loader: LoaderFactory, resident: &[ModelId], started: &Started) {
    let build = || {
        let mut loader = loader()?;
        for &model in resident {
            keep(shared, model, loader.load(model)?);
        }
        Ok(loader)
    };
    let built =
        catch_unwind(AssertUnwindSafe(build)).unwrap_or_else(|panic| Err(panicked(&*panic)));
    let mut loader = match built {
        Ok(loader) => loader,
        Err(error) => {
            let _ = started.send(Err(error));
            return;
        }
    };
    let _ = started.send(Ok(()));
    while let Some(task) = shared.wait(&shared.loads, |s| s.stop, |s| s.loads.pop_front()) {
        match task {
            LoadTask::Load(id, model) => read(shared, &mut *loader, id, model),
            LoadTask::Unload(model) => {
                let gone = shared.models.lock().swap_remove(&model);
                // Without the lock: it takes a while.
                drop(gone);
            }
        }
    }
}

fn read(shared: &Shared, loader: &mut dyn Loader, id: ActionId, model: ModelId) {
    let started_at = shared.clock.now();
    let result = catch_unwind(AssertUnwindSafe(|| loader.load(model)));
    let result = result.unwrap_or_else(|panic| Err(panicked(&*panic)));
    let is_there = result.is_ok();
    let why = result.map(|of| keep(shared, model, of)).err();
    let at = shared.clock.now();
    shared.act(|state| {
        state.actions.loaded(at, id, is_there, &mut state.commands);
    });
    let ended = match why {
        None => Ended::Ran {
            at,
            took: at.since(started_at),
        },
        Some(error) => {
            tracing::warn!(device = shared.name, %error, "a model cannot be loaded");
            Ended::Failed(error.to_string().into())
        }
    };
    shared.report([Report::Done(Done { id, ended })]);
}

fn panicked(panic: &(dyn Any + Send)) -> OperatorError {
    OperatorError::Other(format!("loading panicked: {}", panic_text(panic)))
}

fn keep(shared: &Shared, model: ModelId, of: LoadedModel) {
    let of = Arc::new(Mutex::new(of));
    shared.models.lock().insert(model, of);
}

/// Brings what has ended to where it is awaited, in the order in which it ended.
fn report(shared: &Shared) {
    let is_over = |state: &State| state.stop && state.busy == 0;
    let next = |state: &mut State| state.reports.pop_front();
    while let Some(report) = shared.wait(&shared.reports, is_over, next) {
        match report {
            Report::Ran(batch) => shared.upstream.ran(shared.id, batch),
            Report::Done(done) => shared.upstream.done(shared.id, done),
        }
    }
}
