//! The threads of a device under a placement.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use indexmap::IndexMap;
use parking_lot::Mutex;
use spillgate_backend::clock::{Clock, Signal};
use spillgate_backend::job::{Failure, Ran};
use spillgate_backend::operator::{Inputs, Operator, OperatorError, Outputs, Pass};
use spillgate_pipeline::action::{Around, Done, Ended};
use spillgate_pipeline::id::{ActionId, WeightsId, WorkerId};
use spillgate_pipeline::pipeline::Module;

use super::shared::{
    Batch, Executed, InputTask, LoadTask, Outcome, Prepared, Report, Shared, State,
};
use super::{PlacedConfig, PlacedHandle, RanBatch, Reports};
use crate::device::panic_text;
use crate::timer::TimerThread;
use crate::weights::{Loader, LoaderFactory, Slots, loading_panicked};
use crate::{confinement, cores};

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
        clock: &Clock,
        timers: &TimerThread,
        upstream: Arc<dyn Reports>,
        loader: LoaderFactory,
    ) -> Result<Self, OperatorError> {
        let PlacedConfig {
            id,
            name,
            actions,
            resident,
            variants,
            modules,
            core,
        } = config;
        let shared = Arc::new(Shared {
            id,
            name: name.clone(),
            clock: clock.clone(),
            modules,
            state: Mutex::new(State {
                actions,
                batches: IndexMap::default(),
                next: None,
                inputs: Default::default(),
                loads: Default::default(),
                reports: Default::default(),
                commands: Vec::new(),
                stop: false,
                busy: 3,
            }),
            inputs: Signal::new(clock),
            runs: Signal::new(clock),
            loads: Signal::new(clock),
            reports: Signal::new(clock),
            weights: Slots::default(),
            variants,
            copier: OnceLock::new(),
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
            spawn(&shared, format!("input {name}"), |shared| {
                ends(shared, prepare);
            }),
            spawn(&shared, format!("device {name}"), move |shared| {
                cores::execute_on(core, &shared.name);
                ends(shared, execute);
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

/// Runs what works with models and may report something, and says when it has ended.
fn ends(shared: &Shared, run: impl FnOnce(&Shared)) {
    let confined = || match confinement::enter() {
        Ok(()) => run(shared),
        Err(why) => panic!("{why}"),
    };
    let outcome = catch_unwind(AssertUnwindSafe(confined));
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
    let clock = shared.clock.clone();
    clock
        .spawn(name, move || {
            let outcome = catch_unwind(AssertUnwindSafe(|| run(&shared)));
            if let Err(panic) = outcome {
                let cause = panic_text(&*panic);
                tracing::error!(device = shared.name, cause, "a thread of the device died");
            }
            shared.alive.store(false, Ordering::Release);
        })
        .expect("the system gives threads for each device")
}

/// Prepares the inputs of batches, in the order in which they came.
fn prepare(shared: &Shared) {
    while let Some(task) = shared.wait(&shared.inputs, |s| s.stop, take_input) {
        let InputTask {
            id,
            model,
            weights,
            jobs,
        } = task;
        let of = shared.weights.get(weights).ok();
        let inputs = jobs
            .iter()
            .map(|(worker, job)| job.inputs(module(shared, *worker)));
        let inputs: Vec<Inputs> = inputs.collect();
        let started_at = shared.clock.now();
        let by = of.and_then(|of| of.preparation.clone());
        let variant = shared.variants[model.idx()];
        let prepared = by.map_or(Prepared::Whole, |by| {
            let pass = catch_unwind(AssertUnwindSafe(|| {
                let mut pass = by.prepare(variant, &inputs);
                if let Some(copier) = shared.copier.get()
                    && let Err(error) = pass.copy(&**copier)
                {
                    tracing::debug!(device = shared.name, %error, "the batch copies its input itself");
                }
                pass
            }));
            pass.map_or_else(
                |panic| Prepared::Failed(module_panicked(&*panic)),
                Prepared::Pass,
            )
        });
        let now = shared.clock.now();
        shared.act(|state| {
            // It may have been refused meanwhile.
            if let Some(batch) = state.batches.get_mut(&id) {
                batch.prepared = prepared;
                batch.prepare = now.since(started_at);
            }
            state.actions.input_ready(now, id, &mut state.commands);
        });
    }
}

/// The next batch whose inputs are to be prepared.
fn take_input(state: &mut State) -> Option<InputTask> {
    loop {
        let id = state.inputs.pop_front()?;
        // One that was refused needs no inputs.
        if let Some(batch) = state.batches.get(&id) {
            let members = batch.members.iter();
            return Some(InputTask {
                id,
                model: batch.model,
                weights: batch.weights,
                jobs: members.map(|m| (m.worker, m.payload.clone())).collect(),
            });
        }
    }
}

fn module(shared: &Shared, worker: WorkerId) -> &Module {
    let (pipeline, module) = &shared.modules[&worker];
    &pipeline.modules[module.idx()]
}

/// Executes batches, one after the other.
fn execute(shared: &Shared) {
    let mut inputs: Vec<Inputs> = Vec::new();
    while let Some(batch) = shared.wait(&shared.runs, |s| s.stop, |s| s.next.take()) {
        let Batch {
            id,
            model,
            weights,
            members,
            expected,
            told_end,
            prepared,
            prepare,
        } = batch;
        let of = shared.weights.get(weights);
        let variant = shared.variants[model.idx()];
        if let Prepared::Whole = prepared {
            let of_member = members
                .iter()
                .map(|m| m.payload.inputs(module(shared, m.worker)));
            inputs.extend(of_member);
        }
        let n = members.len();
        let started_at = shared.clock.now();
        let outcome = match (of, prepared) {
            (Err(why), _) => Outcome::Results(all_fail(n, why.to_string())),
            (_, Prepared::Failed(why)) => Outcome::Results(all_fail(n, why)),
            (Ok(of), Prepared::Pass(pass)) => forward(&mut **of.operator.lock(), variant, pass, n),
            (Ok(of), Prepared::Whole) => {
                let operator = &mut **of.operator.lock();
                Outcome::Results(results(n, || operator.run(variant, &inputs)))
            }
        };
        let ended_at = shared.clock.now();
        shared.act(|state| state.actions.executed(ended_at, id, &mut state.commands));
        inputs.clear();
        let ran = RanBatch {
            id,
            model,
            members,
            results: Vec::new(),
            started_at,
            expected,
            told_end,
            ended_at,
        };
        shared.report([Report::Ran(Executed {
            ran,
            outcome,
            prepare,
        })]);
    }
}

/// Runs the model of a batch whose input is prepared.
fn forward(operator: &mut dyn Operator, variant: usize, mut pass: Pass, n: usize) -> Outcome {
    let forward = AssertUnwindSafe(|| {
        pass.forward(|input| operator.forward(variant, input));
        pass
    });
    match catch_unwind(forward) {
        Ok(pass) => Outcome::Pass(pass),
        Err(panic) => Outcome::Results(all_fail(n, module_panicked(&*panic))),
    }
}

/// The results of a batch of that many, one each.
fn results(n: usize, make: impl FnOnce() -> Vec<Result<Outputs, OperatorError>>) -> Vec<Ran> {
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

fn module_panicked(panic: &(dyn Any + Send)) -> String {
    let why = format!("the module panicked: {}", panic_text(panic));
    tracing::error!(why);
    why
}

fn all_fail(n: usize, why: String) -> Vec<Ran> {
    vec![Err(Failure::Module(why)); n]
}

/// Reads weights and gives them back, in the order in which that was asked for.
fn load(shared: &Shared, loader: LoaderFactory, resident: &[WeightsId], started: &Started) {
    let build = || {
        let mut loader = loader()?;
        if let Some(copier) = loader.copier() {
            let _ = shared.copier.set(copier);
        }
        for &weights in resident {
            shared.weights.read(&mut *loader, weights, false)?;
        }
        Ok(loader)
    };
    let built = catch_unwind(AssertUnwindSafe(build))
        .unwrap_or_else(|panic| Err(loading_panicked(&*panic)));
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
            LoadTask::Load(id, weights) => read(shared, &mut *loader, id, weights),
            LoadTask::Unload(weights) => shared.weights.forget(weights),
        }
    }
}

fn read(shared: &Shared, loader: &mut dyn Loader, id: ActionId, weights: WeightsId) {
    let started_at = shared.clock.now();
    let result = shared.weights.read(loader, weights, true);
    let is_there = result.is_ok();
    let at = shared.clock.now();
    shared.act(|state| {
        state.actions.loaded(at, id, is_there, &mut state.commands);
    });
    let ended = match result {
        Ok(()) => Ended::Ran {
            at,
            took: at.since(started_at),
        },
        Err(error) => {
            tracing::warn!(device = shared.name, %error, "weights cannot be loaded");
            Ended::Failed(error.to_string().into())
        }
    };
    shared.report([Report::Done(Done::new(id, ended))]);
}

/// Brings what has ended to where it is awaited, in the order in which it ended.
fn report(shared: &Shared) {
    let is_over = |state: &State| state.stop && state.busy == 0;
    let next = |state: &mut State| state.reports.pop_front();
    while let Some(report) = shared.wait(&shared.reports, is_over, next) {
        match report {
            Report::Ran(executed) => finish(shared, executed),
            Report::Done(done) => shared.upstream.done(shared.id, done),
        }
    }
}

/// Makes the results of a batch, and brings them and its end.
fn finish(shared: &Shared, executed: Executed) {
    let Executed {
        mut ran,
        outcome,
        prepare,
    } = executed;
    let n = ran.members.len();
    let mut around = Around::default();
    ran.results = match outcome {
        Outcome::Results(results) => results,
        Outcome::Pass(pass) => {
            let begun = shared.clock.now();
            let results = results(n, || pass.finish());
            let finish = shared.clock.now().since(begun);
            around = Around { prepare, finish };
            results
        }
    };
    let ended = Ended::Ran {
        at: ran.ended_at,
        took: ran.ended_at.since(ran.started_at),
    };
    let id = ran.id;
    shared.upstream.ran(shared.id, ran);
    let done = Done { id, ended, around };
    shared.upstream.done(shared.id, done);
}
