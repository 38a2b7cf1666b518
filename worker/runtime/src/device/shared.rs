//! What the thread of a device and its handles share: the policy behind a lock.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::{Condvar, Mutex};
use spillgate_backend::job::Job;
use spillgate_pipeline::id::{DeviceId, WorkerId};
use spillgate_pipeline::message::{BOUND_MAX, ToGateway};
use spillgate_pipeline::time::Timestamp;
use spillgate_worker_policy::device::{Batch, Command, Device, Event, Rerun};

use super::Upstream;
use crate::clock::Clock;
use crate::executor::Executor;
use crate::timer::{Alarm, Sleeper};

pub(super) struct State {
    pub(super) policy: Device<Arc<Job>>,
    /// Batches that the policy has bound and the thread has not yet taken: the one that is to run now, and at
    /// most one behind it.
    pub(super) next: VecDeque<Batch<Arc<Job>>>,
    /// The finished request that is to run again, before any of those.
    pub(super) rerun: Option<Rerun<Arc<Job>>>,
    /// Workers to be loaded, and those to be unloaded once nothing is bound or waits for them. A worker is in one
    /// of them at most.
    pub(super) load: Vec<WorkerId>,
    pub(super) unload: Vec<WorkerId>,
    pub(super) commands: Vec<Command<Arc<Job>>>,
    pub(super) stop: bool,
}

/// What a device's thread is to do next.
pub(super) enum Task {
    Run(Batch<Arc<Job>>),
    Rerun(Rerun<Arc<Job>>),
    Load(WorkerId),
    Unload(WorkerId),
}

pub(super) struct Shared {
    pub(super) id: DeviceId,
    pub(super) name: String,
    pub(super) clock: Clock,
    pub(super) state: Mutex<State>,
    pub(super) work: Condvar,
    pub(super) upstream: Arc<dyn Upstream>,
    pub(super) alarm: Mutex<Option<Alarm>>,
    pub(super) alive: AtomicBool,
}

/// What the policy has to say to others, without the lock. Mostly it is one thing, which needs no allocation.
#[derive(Default)]
pub(super) struct Reports {
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

impl Shared {
    /// A device on which nothing is bound.
    pub(super) fn new(
        id: DeviceId,
        name: String,
        policy: Device<Arc<Job>>,
        clock: Clock,
        upstream: Arc<dyn Upstream>,
    ) -> Self {
        Shared {
            id,
            name,
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
        }
    }

    /// Drives the policy with one event. What others are to know is returned, to be reported without the lock.
    pub(super) fn drive(&self, event: Event<'_, Arc<Job>>) -> (Reports, Option<Timestamp>) {
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
    pub(super) fn follow(&self, event: Event<'_, Arc<Job>>) {
        let (reports, wakeup) = self.drive(event);
        if let (Some(at), Some(alarm)) = (wakeup, &*self.alarm.lock()) {
            alarm.arm(at);
        }
        self.report(reports);
    }

    /// Gives back what a worker holds; nothing of it is run again from here on.
    pub(super) fn unload(&self, executor: &mut dyn Executor, worker: WorkerId) {
        self.follow(Event::Unloaded(worker));
        let mut state = self.state.lock();
        if state.rerun.as_ref().is_some_and(|r| r.worker == worker) {
            // It was told to run just before: it is unloaded after that.
            if !state.load.contains(&worker) {
                state.unload.push(worker);
            }
            return;
        }
        drop(state);
        executor.unload(worker);
    }

    pub(super) fn report(&self, reports: Reports) {
        let Some((worker, message)) = reports.first else {
            return;
        };
        self.upstream.tell(worker, message);
        for (worker, message) in reports.more {
            self.upstream.tell(worker, message);
        }
    }

    pub(super) fn next_task(&self) -> Option<Task> {
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
