//! The threads of a device.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use spillgate_backend::operator::OperatorError;
use spillgate_process::clock::{Clock, use_exact_timers};

use super::DeviceConfig;
use super::driver::{Chooser, LoadTask, Shared, State};
use super::models::FirstLoads;
use crate::timer::TimerThread;
use crate::weights::{Loader, loading_panicked};
use crate::{confinement, cores};

/// The threads of a device. They end when it is dropped.
pub struct DeviceThreads {
    stop: Box<dyn Fn() + Send + Sync>,
    threads: Vec<JoinHandle<()>>,
}

/// How the start of a thread went.
type Started = SyncSender<Result<(), OperatorError>>;

/// Starts the threads of a device, and waits until they have what they need, and what is there from the start is read.
///
/// # Errors
/// When the loader cannot be built, or something that is there from the start cannot be read.
pub(super) fn start<C: Chooser>(
    config: DeviceConfig,
    chooser: C,
    clock: &Clock,
    timers: &TimerThread,
    upstream: C::Upstream,
) -> Result<(Arc<Shared<C>>, DeviceThreads), OperatorError> {
    let DeviceConfig {
        id,
        name,
        models,
        core,
    } = config;
    let (serving, first) = models.serving();
    let shared = Shared::new((id, name.clone()), chooser, serving, clock, upstream);
    let shared = Arc::new(shared);
    let _ = shared.alarm.set(timers.add(shared.clone()));
    let mut device = DeviceThreads {
        stop: Box::new({
            let shared = shared.clone();
            move || shared.stop()
        }),
        threads: Vec::new(),
    };
    // Weights are read before anything executes.
    if let Some(first) = first {
        device.spawn(&shared, "load", |shared, started| {
            load(shared, first, started);
        })?;
    }
    if C::HAS_STEPS {
        device.spawn(&shared, "input", |shared, started| {
            if !ready(started, confinement::enter()) {
                return;
            }
            let is_over = |s: &State<C>| s.stop;
            while let Some(batch) = shared.next(&shared.inputs, is_over, |w| w.inputs.pop_front()) {
                C::prepare(shared, batch);
            }
        })?;
    }
    device.spawn(&shared, "device", move |shared, started| {
        cores::execute_on(core, &shared.name);
        use_exact_timers();
        if !ready(started, confinement::enter()) {
            return;
        }
        let mut inputs = Vec::new();
        let is_over = |s: &State<C>| s.stop;
        while let Some(run) = shared.next(&shared.runs, is_over, |w| w.runs.pop_front()) {
            C::execute(shared, run, &mut inputs);
        }
    })?;
    if C::HAS_STEPS {
        device.spawn(&shared, "answer", |shared, started| {
            ready(started, Ok(()));
            // All others have ended.
            let is_over = |s: &State<C>| s.stop && s.busy == 1;
            while let Some(report) =
                shared.next(&shared.reports, is_over, |w| w.reports.pop_front())
            {
                C::report(shared, report);
            }
        })?;
    }
    Ok((shared, device))
}

/// Says how the start of a thread went, and whether it goes on.
fn ready(started: &Started, how: Result<(), OperatorError>) -> bool {
    let is_ready = how.is_ok();
    started.send(how).is_ok() && is_ready
}

impl DeviceThreads {
    fn spawn<C: Chooser>(
        &mut self,
        shared: &Arc<Shared<C>>,
        does: &str,
        run: impl FnOnce(&Shared<C>, &Started) + Send + 'static,
    ) -> Result<(), OperatorError> {
        let (started, has_started) = sync_channel(1);
        let name = format!("{does} {}", shared.name);
        shared.state.lock().busy += 1;
        let thread = shared.clock.spawn(name.clone(), {
            let shared = shared.clone();
            move || {
                let outcome = catch_unwind(AssertUnwindSafe(|| run(&shared, &started)));
                ended(&shared, outcome.err());
            }
        });
        self.threads
            .push(thread.expect("the system gives threads for each device"));
        let ended = || OperatorError::Other(format!("the thread \"{name}\" ended"));
        has_started.recv().map_err(|_| ended())?
    }

    /// Ends the threads once what runs is done. Waits for them at most `limit`; false when one was still busy then and was left
    /// behind.
    pub fn stop(mut self, limit: Duration) -> bool {
        (self.stop)();
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

impl Drop for DeviceThreads {
    fn drop(&mut self) {
        (self.stop)();
    }
}

/// A thread ended. A module's panic is its batch's; any other is ours, and must not leave requests unanswered.
fn ended<C: Chooser>(shared: &Shared<C>, panic: Option<Box<dyn Any + Send>>) {
    shared.state.lock().busy -= 1;
    shared.reports.notify_one();
    let lived = shared.alive.swap(false, Ordering::AcqRel);
    let Some(panic) = panic else {
        return;
    };
    let cause = format!("the device panicked: {}", panic_text(&*panic));
    tracing::error!(device = shared.name, cause, "a thread of the device died");
    if lived {
        let end = AssertUnwindSafe(|| C::died(shared, &cause));
        if catch_unwind(end).is_err() {
            tracing::error!(device = shared.name, "what waited is not answered");
        }
    }
}

/// Reads weights and gives them back.
fn load<C: Chooser>(shared: &Shared<C>, first: FirstLoads, started: &Started) {
    let Some(operators) = shared.serving.operators() else {
        return;
    };
    let slots = &operators.slots;
    let begin = || {
        confinement::enter()?;
        let mut loader = (first.loader)()?;
        if let Some(copier) = loader.copier() {
            let _ = operators.copier.set(copier);
        }
        for &weights in &first.resident {
            let read = slots.read(&mut *loader, weights, false);
            match read {
                Err(error) if !first.needed.contains(&weights) => {
                    tracing::warn!(%error, "the default of a family cannot be loaded");
                    shared.state.lock().chooser.lack(weights);
                }
                read => read?,
            }
        }
        Ok(loader)
    };
    let begun: Result<Box<dyn Loader>, OperatorError> = catch_unwind(AssertUnwindSafe(begin))
        .unwrap_or_else(|panic| Err(loading_panicked(&*panic)));
    let mut loader = match begun {
        Ok(loader) => loader,
        Err(error) => {
            ready(started, Err(error));
            return;
        }
    };
    ready(started, Ok(()));
    let is_over = |s: &State<C>| s.stop;
    while let Some(task) = shared.next(&shared.loads, is_over, |w| w.loads.pop_front()) {
        match task {
            LoadTask::Read(read, weights, gone) => {
                gone.iter().for_each(|weights| slots.forget(*weights));
                let started_at = shared.clock.now();
                let result = slots.read(&mut *loader, weights, true);
                if let Err(error) = &result {
                    tracing::warn!(device = shared.name, %error, "weights cannot be loaded");
                }
                C::read(shared, read, started_at, result);
            }
            LoadTask::Forget(gone) => gone.iter().for_each(|weights| slots.forget(*weights)),
        }
    }
}

pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
