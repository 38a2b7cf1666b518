//! What the thread of a device and its handles share: the policy behind a lock.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use spillgate_backend::clock::{Clock, Signal};
use spillgate_backend::job::Job;
use spillgate_pipeline::id::{DeviceId, GatewayId, WorkerId};
use spillgate_pipeline::message::{BOUND_MAX, ToGateway};
use spillgate_pipeline::time::Timestamp;
use spillgate_worker_policy::device::{Batch, Device, DeviceCommand, DeviceEvent, Rerun};

use super::Upstream;
use super::weights::Reads;
use crate::timer::{Alarm, Sleeper};

pub(super) struct State {
    pub(super) policy: Device<Arc<Job>>,
    /// What the policy has commanded and the thread has not yet taken, in order.
    pub(super) tasks: VecDeque<Task>,
    pub(super) commands: Vec<DeviceCommand<Arc<Job>>>,
    pub(super) stop: bool,
}

/// What a device's thread is to do.
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
    pub(super) work: Signal,
    /// Weights that are to be read.
    pub(super) reads: Reads,
    pub(super) upstream: Arc<dyn Upstream>,
    /// Set before the device is driven.
    pub(super) alarm: OnceLock<Alarm>,
    pub(super) alive: AtomicBool,
}

/// What the policy has to say to others, without the lock. Mostly it is one thing, which needs no allocation.
#[derive(Default)]
struct Reports {
    first: Option<(WorkerId, GatewayId, ToGateway)>,
    more: Vec<(WorkerId, GatewayId, ToGateway)>,
}

impl Reports {
    fn push(&mut self, report: (WorkerId, GatewayId, ToGateway)) {
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
            state: Mutex::new(State {
                policy,
                tasks: VecDeque::with_capacity(BOUND_MAX),
                commands: Vec::new(),
                stop: false,
            }),
            work: Signal::new(&clock),
            reads: Reads::new(&clock),
            clock,
            upstream,
            alarm: OnceLock::new(),
            alive: AtomicBool::new(true),
        }
    }

    /// Drives the policy with one event: tells the thread what to do, asks to be woken, and tells others without the lock what
    /// they are to know.
    pub(super) fn drive(&self, event: DeviceEvent<'_, Arc<Job>>) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let State {
            policy,
            tasks,
            commands,
            ..
        } = &mut *state;
        policy.on_event(now, event, commands);
        let mut reports = Reports::default();
        let mut has_more = false;
        for command in commands.drain(..) {
            let task = match command {
                DeviceCommand::Execute(batch) => Task::Run(batch),
                DeviceCommand::Rerun(rerun) => Task::Rerun(rerun),
                DeviceCommand::Load(worker) => Task::Load(worker),
                DeviceCommand::Unload(worker) => Task::Unload(worker),
                DeviceCommand::Read(weights, gone) => {
                    // The policy asks for one at a time.
                    self.reads.push(weights, gone);
                    continue;
                }
                DeviceCommand::Tell {
                    worker,
                    home,
                    message,
                } => {
                    reports.push((worker, home, message));
                    continue;
                }
            };
            tasks.push_back(task);
            has_more = true;
        }
        let wakeup = policy.next_wakeup();
        drop(state);
        if has_more {
            self.work.notify_one();
        }
        if let (Some(at), Some(alarm)) = (wakeup, self.alarm.get()) {
            alarm.arm(at);
        }
        self.report(reports);
    }

    fn report(&self, reports: Reports) {
        let Some((worker, home, message)) = reports.first else {
            return;
        };
        self.upstream.tell(worker, home, message);
        for (worker, home, message) in reports.more {
            self.upstream.tell(worker, home, message);
        }
    }

    /// Waits for the next task; `None` when there is none and the thread is to stop.
    pub(super) fn next_task(&self) -> Option<Task> {
        let mut state = self.state.lock();
        loop {
            let task = state.tasks.pop_front();
            if task.is_some() || state.stop {
                return task;
            }
            self.work.wait(&mut state);
        }
    }
}

impl Sleeper for Shared {
    fn wake(&self, _now: Timestamp) -> Option<Timestamp> {
        self.drive(DeviceEvent::Wakeup);
        // It has armed itself.
        None
    }
}
