//! One OS thread that owns one device, and the handle by which others reach it.
//!
//! Whoever brings a request locks the device and drives its policy in place: no channel, no task. The
//! thread sleeps only while nothing waits. When a batch ends its results are delivered *before* the policy
//! hears of the end, so that what they bring to modules on the same device competes for the next batch.
//!
//! A panic while a batch runs fails that batch and ends the thread: its workers are reported down, what
//! waits is answered, and readiness sees it.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use spillgate_backend::job::{Failure, Job, Ran};
use spillgate_backend::operator::OperatorError;
use spillgate_pipeline::id::{DeviceId, WorkerId};
use spillgate_pipeline::message::{ToDevice, ToGateway};
use spillgate_pipeline::request::DropReason;
use spillgate_pipeline::time::Timestamp;
use spillgate_worker_policy::device::{Batch, Command, Device, Event, Rerun};

use crate::clock::Clock;
use crate::executor::Executor;
use crate::timer::{Alarm, Sleeper, TimerThread};

/// Batches that a policy has bound at a time: one to run, one behind it.
const BOUND_MAX: usize = 2;

/// A batch that ended, with one result a member.
pub struct Finished {
    /// The device.
    pub device: DeviceId,
    /// The batch as it was started.
    pub batch: Batch<Arc<Job>>,
    /// One result a member, in order.
    pub results: Vec<Ran>,
    /// When it ended.
    pub ended_at: Timestamp,
}

/// Who is told what happened to requests. Called without any lock of the device held, so that it may call
/// back into this or another device.
pub trait Upstream: Send + Sync {
    /// The device's policy says this to a gateway of the pipeline that the worker serves.
    fn tell(&self, worker: WorkerId, message: ToGateway);

    /// A batch ended.
    fn finished(&self, finished: Finished);

    /// A finished request ran again, for its time alone; nothing else comes of it.
    fn reran(&self, worker: WorkerId, took: Duration);

    /// A worker that was asked for is ready, or cannot be.
    fn loaded(&self, worker: WorkerId, result: Result<(), OperatorError>);

    /// The device died; its workers serve no more.
    fn down(&self, device: DeviceId, cause: &str);
}

struct State {
    policy: Device<Arc<Job>>,
    /// Batches that the policy has bound and the thread has not yet taken: the one that is to run now, and at
    /// most one behind it.
    next: VecDeque<Batch<Arc<Job>>>,
    /// The finished request that is to run again, before any of those.
    rerun: Option<Rerun<Arc<Job>>>,
    /// Workers to be loaded, and those to be unloaded once nothing is bound or waits for them. A worker is in one
    /// of them at most.
    load: Vec<WorkerId>,
    unload: Vec<WorkerId>,
    commands: Vec<Command<Arc<Job>>>,
    stop: bool,
}

/// What a device's thread is to do next.
enum Task {
    Run(Batch<Arc<Job>>),
    Rerun(Rerun<Arc<Job>>),
    Load(WorkerId),
    Unload(WorkerId),
}

struct Shared {
    id: DeviceId,
    name: String,
    clock: Clock,
    state: Mutex<State>,
    work: Condvar,
    upstream: Arc<dyn Upstream>,
    alarm: Mutex<Option<Alarm>>,
    alive: AtomicBool,
}

/// Reaches a device. Cheap to clone.
#[derive(Clone)]
pub struct DeviceHandle {
    shared: Arc<Shared>,
    alarm: Alarm,
}

/// The thread of a device.
pub struct DeviceThread {
    handle: DeviceHandle,
    thread: JoinHandle<()>,
}

/// What a device is started with.
pub struct DeviceConfig {
    /// Its id.
    pub id: DeviceId,
    /// Its name, as in the pipeline file.
    pub name: String,
    /// Its policy.
    pub policy: Device<Arc<Job>>,
}

/// Makes the executor, on the device's thread.
pub type ExecutorFactory<E> = Box<dyn FnOnce() -> Result<Box<dyn Executor>, E> + Send>;

/// What the policy has to say to others, without the lock. Mostly it is one thing, which needs no allocation.
#[derive(Default)]
struct Reports {
    first: Option<(WorkerId, ToGateway)>,
    more: Vec<(WorkerId, ToGateway)>,
}

impl Reports {
    fn push(&mut self, report: (WorkerId, ToGateway)) {
        match self.first {
            None => self.first = Some(report),
            Some(_) => self.more.push(report),
        }
    }
}

impl DeviceThread {
    /// Starts the thread and waits until its executor is built.
    ///
    /// # Errors
    /// What the executor's factory says: a missing device or model.
    pub fn start<E: Send + 'static>(
        config: DeviceConfig,
        clock: Clock,
        timers: &TimerThread,
        upstream: Arc<dyn Upstream>,
        executor: ExecutorFactory<E>,
    ) -> Result<Self, E> {
        let DeviceConfig { id, name, policy } = config;
        let shared = Arc::new(Shared {
            id,
            name: name.clone(),
            clock,
            state: Mutex::new(State {
                policy,
                next: VecDeque::with_capacity(BOUND_MAX),
                rerun: None,
                load: Vec::new(),
                unload: Vec::new(),
                commands: Vec::new(),
                stop: false,
            }),
            work: Condvar::new(),
            upstream,
            alarm: Mutex::new(None),
            alive: AtomicBool::new(true),
        });
        let alarm = timers.add(shared.clone());
        *shared.alarm.lock() = Some(alarm.clone());
        let handle = DeviceHandle {
            shared: shared.clone(),
            alarm,
        };
        let (ready_tx, ready_rx) = std::sync::mpsc::sync_channel(1);
        let thread = std::thread::Builder::new()
            .name(format!("device {name}"))
            .spawn(move || match executor() {
                Ok(mut executor) => {
                    let _ = ready_tx.send(Ok(()));
                    let work = AssertUnwindSafe(|| run(&shared, &mut *executor));
                    // A module's panic is its batch's; any other is ours, and must not leave requests unanswered.
                    if let Err(panic) = catch_unwind(work) {
                        let cause = format!("the device panicked: {}", panic_text(&*panic));
                        let end = AssertUnwindSafe(|| died(&shared, &cause));
                        if catch_unwind(end).is_err() {
                            tracing::error!(device = shared.name, "what waited is not answered");
                        }
                    }
                }
                Err(error) => {
                    shared.alive.store(false, Ordering::Release);
                    let _ = ready_tx.send(Err(error));
                }
            })
            .expect("the system gives a thread for each device");
        ready_rx
            .recv()
            .expect("the thread says how its start went")?;
        Ok(DeviceThread { handle, thread })
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
        let give_up = std::time::Instant::now() + limit;
        while !self.thread.is_finished() {
            if std::time::Instant::now() >= give_up {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.thread.join().is_ok()
    }
}

impl DeviceHandle {
    /// Takes in a message.
    pub fn tell(&self, message: ToDevice<Arc<Job>>) {
        match message {
            ToDevice::Requests(mut requests) => self.drive(Event::Arrivals(&mut requests)),
            ToDevice::Cancel(request) => self.drive(Event::Cancel(request)),
            ToDevice::Withdraw(request, reason) => self.drive(Event::Withdraw(request, reason)),
            ToDevice::Guide(worker, guidance) => self.drive(Event::Guide(worker, guidance)),
            ToDevice::Load(worker) => self.load(worker),
            ToDevice::Unload(worker) => self.unload(worker),
            ToDevice::Reassigned(application) => self.drive(Event::Reassigned(application)),
        }
    }

    /// Rejects what waits and what still comes.
    pub fn close(&self, reason: DropReason) {
        self.drive(Event::Close(reason));
    }

    /// Makes a worker ready, between two batches; [`Upstream::loaded`] says when.
    fn load(&self, worker: WorkerId) {
        let mut state = self.shared.state.lock();
        state.unload.retain(|w| *w != worker);
        if !state.load.contains(&worker) {
            state.load.push(worker);
        }
        self.shared.work.notify_one();
    }

    /// Gives back what a worker holds once it has no more requests.
    fn unload(&self, worker: WorkerId) {
        let mut state = self.shared.state.lock();
        state.load.retain(|w| *w != worker);
        if !state.unload.contains(&worker) {
            state.unload.push(worker);
        }
        self.shared.work.notify_one();
    }

    /// Whether its thread lives.
    pub fn is_alive(&self) -> bool {
        self.shared.alive.load(Ordering::Acquire)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Requests that wait at a worker.
    pub fn waiting(&self, worker: WorkerId) -> usize {
        self.shared.state.lock().policy.waiting(worker)
    }

    fn drive(&self, event: Event<'_, Arc<Job>>) {
        let (reports, wakeup) = self.shared.drive(event);
        if let Some(at) = wakeup {
            self.alarm.arm(at);
        }
        self.shared.report(reports);
    }
}

impl Shared {
    /// Drives the policy with one event. What others are to know is returned, to be reported without the lock.
    fn drive(&self, event: Event<'_, Arc<Job>>) -> (Reports, Option<Timestamp>) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let State {
            policy,
            next,
            rerun,
            commands,
            ..
        } = &mut *state;
        policy.on_event(now, event, commands);
        let mut reports = Reports::default();
        let mut started = false;
        for command in commands.drain(..) {
            match command {
                Command::Execute(batch) => {
                    next.push_back(batch);
                    debug_assert!(next.len() <= BOUND_MAX, "one batch at a time");
                    started = true;
                }
                Command::Rerun(next) => {
                    *rerun = Some(next);
                    started = true;
                }
                Command::Tell {
                    worker, message, ..
                } => {
                    reports.push((worker, message));
                }
            }
        }
        let wakeup = policy.next_wakeup();
        drop(state);
        if started {
            self.work.notify_one();
        }
        (reports, wakeup)
    }

    /// Drives the policy from the device's own thread.
    fn follow(&self, event: Event<'_, Arc<Job>>) {
        let (reports, wakeup) = self.drive(event);
        if let (Some(at), Some(alarm)) = (wakeup, &*self.alarm.lock()) {
            alarm.arm(at);
        }
        self.report(reports);
    }

    /// Gives back what a worker holds; nothing of it is run again from here on.
    fn unload(&self, executor: &mut dyn Executor, worker: WorkerId) {
        self.follow(Event::Unloaded(worker));
        let mut state = self.state.lock();
        if state.rerun.as_ref().is_some_and(|r| r.worker == worker) {
            // It was told to run just before: it is unloaded after that.
            state.unload.push(worker);
            return;
        }
        drop(state);
        executor.unload(worker);
    }

    fn report(&self, reports: Reports) {
        let Some((worker, message)) = reports.first else {
            return;
        };
        self.upstream.tell(worker, message);
        for (worker, message) in reports.more {
            self.upstream.tell(worker, message);
        }
    }

    fn next_task(&self) -> Option<Task> {
        let mut state = self.state.lock();
        loop {
            // Before the next batch: who asked for it waits, and a busy device would never come to it.
            if let Some(worker) = state.load.pop() {
                return Some(Task::Load(worker));
            }
            // Told to run when nothing else did: what is bound by now is behind it.
            if let Some(rerun) = state.rerun.take() {
                return Some(Task::Rerun(rerun));
            }
            if let Some(batch) = state.next.pop_front() {
                return Some(Task::Run(batch));
            }
            if state.stop {
                return None;
            }
            let policy = &state.policy;
            let idle = state.unload.iter().position(|w| policy.waiting(*w) == 0);
            if let Some(idx) = idle {
                return Some(Task::Unload(state.unload.swap_remove(idx)));
            }
            self.work.wait(&mut state);
        }
    }
}

impl Sleeper for Shared {
    fn wake(&self, _now: Timestamp) -> Option<Timestamp> {
        let (reports, wakeup) = self.drive(Event::Wakeup);
        self.report(reports);
        wakeup
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
                shared.upstream.loaded(worker, result);
                Ok(())
            }
            Task::Unload(worker) => {
                shared.unload(executor, worker);
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
    let (reports, _) = shared.drive(Event::Close(DropReason::NoWorker));
    shared.report(reports);
    // What was bound behind it went down with its workers.
    let mut state = shared.state.lock();
    state.next.clear();
    state.rerun = None;
}

/// Executes a batch and tells who is to know. `Err` when the module panicked.
fn run_batch(
    shared: &Shared,
    executor: &mut dyn Executor,
    mut batch: Batch<Arc<Job>>,
) -> Result<(), String> {
    // The policy says how long it takes; when it starts is seen here.
    let execution = batch.expected_end.since(batch.started_at);
    batch.started_at = shared.clock.now();
    batch.expected_end = batch.started_at + execution;
    let jobs: Vec<&Job> = batch.members.iter().map(|m| &*m.payload).collect();
    let outcome = execute(executor, batch.worker, &jobs);
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
    let sampled = batch.sampled.filter(|&i| results[i].is_ok());
    let sampled = sampled.map(|i| batch.members[i].payload.clone());
    shared.upstream.finished(Finished {
        device: shared.id,
        batch,
        results,
        ended_at,
    });
    if panicked.is_ok() {
        shared.follow(Event::BatchEnded {
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
    let results = execute(executor, rerun.worker, &[&rerun.payload])?;
    let took = shared.clock.now().since(started_at);
    shared.upstream.reran(rerun.worker, took);
    let succeeded = results.iter().all(Result::is_ok);
    shared.follow(Event::Reran {
        batch: rerun.id,
        took: succeeded.then_some(took),
    });
    Ok(())
}

/// One result a job, or what the module panicked with.
fn execute(
    executor: &mut dyn Executor,
    worker: WorkerId,
    jobs: &[&Job],
) -> Result<Vec<Ran>, String> {
    let outcome = catch_unwind(AssertUnwindSafe(|| executor.execute(worker, jobs)));
    let results =
        outcome.map_err(|panic| format!("the module panicked: {}", panic_text(&*panic)))?;
    assert_eq!(
        results.len(),
        jobs.len(),
        "an operator answers each request"
    );
    Ok(results)
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
