//! The thread that owns a device: it runs what the policy has bound.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use smallvec::SmallVec;
use spillgate_backend::clock::Clock;
use spillgate_backend::job::{Failure, Job, Ran};
use spillgate_backend::operator::OperatorError;
use spillgate_pipeline::id::WorkerId;
use spillgate_pipeline::request::{DropReason, ModelChoice};
use spillgate_worker_policy::device::{Batch, DeviceEvent, Rerun};

use super::shared::{Shared, Task};
use super::weights::{self, WeightsConfig};
use super::{DeviceConfig, DeviceHandle, ExecutorFactory, Finished, Upstream};
use crate::executor::Executor;
use crate::timer::TimerThread;
use crate::{confinement, cores};

/// The thread of a device.
pub struct DeviceThread {
    handle: DeviceHandle,
    thread: JoinHandle<()>,
    /// Reads weights, where these give way to each other.
    loader: Option<JoinHandle<()>>,
}

impl DeviceThread {
    /// Starts the thread and waits until its executor is built.
    ///
    /// # Errors
    /// What the executor's factory says: a missing device or model.
    pub fn start<E: Send + 'static>(
        config: DeviceConfig,
        clock: &Clock,
        timers: &TimerThread,
        upstream: Arc<dyn Upstream>,
        executor: ExecutorFactory<E>,
    ) -> Result<Self, E> {
        let core = config.core;
        let shared = begin(config, clock, timers, upstream);
        Self::run(shared, core, None, executor)
    }

    /// Starts a device whose weights give way to each other, and waits until those that are there from the start are read.
    ///
    /// # Errors
    /// When the loader cannot be built, or something that is there from the start cannot be read.
    pub fn start_with_weights(
        config: DeviceConfig,
        clock: &Clock,
        timers: &TimerThread,
        upstream: Arc<dyn Upstream>,
        weights: WeightsConfig,
    ) -> Result<Self, OperatorError> {
        let core = config.core;
        let shared = begin(config, clock, timers, upstream);
        let (executor, loader) = weights::start(&shared, weights)?;
        let executor = Box::new(executor) as Box<dyn Executor + Send>;
        Self::run(
            shared,
            core,
            Some(loader),
            Box::new(move || {
                confinement::enter()?;
                Ok(executor as Box<dyn Executor>)
            }),
        )
    }

    fn run<E: Send + 'static>(
        shared: Arc<Shared>,
        core: Option<usize>,
        loader: Option<JoinHandle<()>>,
        executor: ExecutorFactory<E>,
    ) -> Result<Self, E> {
        let handle = DeviceHandle {
            shared: shared.clone(),
        };
        let (ready_tx, ready_rx) = std::sync::mpsc::sync_channel(1);
        let thread = handle
            .shared
            .clock
            .spawn(format!("device {}", shared.name), move || {
                cores::execute_on(core, &shared.name);
                match executor() {
                    Ok(mut executor) => {
                        let _ = ready_tx.send(Ok(()));
                        serve(&shared, &mut *executor);
                    }
                    Err(error) => {
                        shared.alive.store(false, Ordering::Release);
                        let _ = ready_tx.send(Err(error));
                    }
                }
            })
            .expect("the system gives a thread for each device");
        ready_rx
            .recv()
            .expect("the thread says how its start went")?;
        Ok(DeviceThread {
            handle,
            thread,
            loader,
        })
    }

    /// Reaches the device.
    pub fn handle(&self) -> DeviceHandle {
        self.handle.clone()
    }

    /// Ends the thread once the running batch is done, rejecting what waits. Waits for it at most
    /// `limit`; false when it was still busy then and was left behind.
    pub fn stop(self, limit: Duration) -> bool {
        self.handle.close(DropReason::Draining);
        self.handle.shared.state.lock().stop = true;
        self.handle.shared.work.notify_one();
        self.handle.shared.reads.stop();
        let threads = std::iter::once(self.thread).chain(self.loader);
        let threads: Vec<JoinHandle<()>> = threads.collect();
        let give_up = std::time::Instant::now() + limit;
        while !threads.iter().all(JoinHandle::is_finished) {
            if std::time::Instant::now() >= give_up {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        threads.into_iter().all(|thread| thread.join().is_ok())
    }
}

/// Runs until told to stop. Whatever happens, what waits is answered.
fn serve(shared: &Arc<Shared>, executor: &mut dyn Executor) {
    let work = AssertUnwindSafe(|| run(shared, executor));
    // A module's panic is its batch's; any other is ours, and must not leave requests unanswered.
    if let Err(panic) = catch_unwind(work) {
        let cause = format!("the device panicked: {}", panic_text(&*panic));
        let end = AssertUnwindSafe(|| died(shared, &cause));
        if catch_unwind(end).is_err() {
            tracing::error!(device = shared.name, "what waited is not answered");
        }
    }
}

fn run(shared: &Arc<Shared>, executor: &mut dyn Executor) {
    while let Some(task) = shared.next_task() {
        let done = match task {
            Task::Run(batch) => run_batch(shared, executor, batch),
            Task::Rerun(rerun) => run_again(shared, executor, &rerun),
            Task::Load(worker) => {
                let load = AssertUnwindSafe(|| executor.load(worker));
                let result = catch_unwind(load).unwrap_or_else(|panic| {
                    let cause = format!("loading panicked: {}", panic_text(&*panic));
                    Err(OperatorError::Other(cause))
                });
                // In this order: a load that is asked for from now on is another one, and reported again.
                shared.drive(DeviceEvent::LoadEnded);
                shared.upstream.loaded(worker, result);
                Ok(())
            }
            Task::Unload(worker) => {
                executor.unload(worker);
                Ok(())
            }
        };
        if let Err(cause) = done {
            died(shared, &cause);
            return;
        }
    }
    shared.alive.store(false, Ordering::Release);
}

/// Nothing is served here any more.
fn died(shared: &Shared, cause: &str) {
    tracing::error!(device = shared.name, cause, "device thread died");
    shared.alive.store(false, Ordering::Release);
    shared.upstream.down(shared.id, cause);
    shared.drive(DeviceEvent::Close(DropReason::NoWorker));
    // What was bound behind it went down with its workers.
    shared.state.lock().tasks.clear();
    shared.reads.stop();
}

/// What the threads of a device and its handles share.
fn begin(
    config: DeviceConfig,
    clock: &Clock,
    timers: &TimerThread,
    upstream: Arc<dyn Upstream>,
) -> Arc<Shared> {
    let DeviceConfig {
        id, name, policy, ..
    } = config;
    let shared = Arc::new(Shared::new(id, name, policy, clock.clone(), upstream));
    let _ = shared.alarm.set(timers.add(shared.clone()));
    shared
}

/// Executes a batch and tells who is to know. `Err` when the module panicked.
fn run_batch(
    shared: &Shared,
    executor: &mut dyn Executor,
    mut batch: Batch<Arc<Job>>,
) -> Result<(), String> {
    // A batch holds requests of one model.
    let model = batch.members.first().map(|m| m.request.model());
    let of = (batch.worker, model.unwrap_or_default());
    // The policy says how long it takes; when it starts is seen here.
    let told_end = batch.expected_end;
    let execution = batch.expected_end.since(batch.started_at);
    batch.started_at = shared.clock.now();
    batch.expected_end = batch.started_at + execution;
    let jobs: SmallVec<[&Job; 16]> = batch.members.iter().map(|m| &*m.payload).collect();
    let outcome = execute(executor, of, &jobs);
    drop(jobs);
    let ended_at = shared.clock.now();
    let (id, took) = (batch.id, ended_at.since(batch.started_at));
    let (results, panicked) = match outcome {
        Ok(results) => (results, Ok(())),
        Err(cause) => (
            {
                let failed = |_| Err(Failure::Module(cause.clone()));
                batch.members.iter().map(failed).collect()
            },
            Err(cause),
        ),
    };
    let read = batch.read;
    let sampled = batch.sampled.filter(|&i| results[i].is_ok());
    let sampled = sampled.map(|i| batch.members[i].payload.clone());
    let forecasters = shared.state.lock().policy.forecasters(batch.worker).into();
    shared.upstream.finished(Finished {
        device: shared.id,
        batch,
        results,
        load: read,
        told_end,
        ended_at,
        forecasters,
    });
    if panicked.is_ok() {
        shared.drive(DeviceEvent::BatchEnded {
            batch: id,
            took,
            sampled,
        });
    }
    panicked
}

/// Executes a finished request once more. `Err` when the module panicked.
fn run_again(
    shared: &Shared,
    executor: &mut dyn Executor,
    rerun: &Rerun<Arc<Job>>,
) -> Result<(), String> {
    let started_at = shared.clock.now();
    let results = execute(executor, (rerun.worker, rerun.model), &[&rerun.payload])?;
    let took = shared.clock.now().since(started_at);
    shared.upstream.reran(rerun.worker, took);
    let succeeded = results.iter().all(Result::is_ok);
    shared.drive(DeviceEvent::Reran {
        batch: rerun.id,
        took: succeeded.then_some(took),
    });
    Ok(())
}

/// One result a job, or what the module panicked with.
fn execute(
    executor: &mut dyn Executor,
    (worker, model): (WorkerId, ModelChoice),
    jobs: &[&Job],
) -> Result<Vec<Ran>, String> {
    let outcome = catch_unwind(AssertUnwindSafe(|| executor.execute(worker, model, jobs)));
    let results =
        outcome.map_err(|panic| format!("the module panicked: {}", panic_text(&*panic)))?;
    assert_eq!(
        results.len(),
        jobs.len(),
        "an operator answers each request"
    );
    Ok(results)
}

pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
