//! What the threads of a device and its handles share: its queues of actions, and the batches that wait.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use indexmap::IndexMap;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use spillgate_backend::Copier;
use spillgate_backend::clock::{Clock, Signal};
use spillgate_backend::job::{Job, Ran};
use spillgate_backend::operator::Pass;
use spillgate_pipeline::action::{Action, Done, Ended, Member, Work};
use spillgate_pipeline::id::{ActionId, DeviceId, ModelId, WeightsId, WorkerId};
use spillgate_pipeline::time::Timestamp;
use spillgate_worker_policy::actions::{ActionCommand, Actions};

use super::{DeviceAction, RanBatch, Reports, WorkerModules};
use crate::timer::{Alarm, Sleeper};
use crate::weights::Slots;

/// A batch that the device has.
pub(super) struct Batch {
    pub(super) id: ActionId,
    pub(super) model: ModelId,
    pub(super) weights: WeightsId,
    pub(super) members: Vec<Member<Arc<Job>>>,
    pub(super) expected: Duration,
    pub(super) told_end: Timestamp,
    pub(super) prepared: Prepared,
    /// How long that took.
    pub(super) prepare: Duration,
}

/// What a batch runs on.
pub(super) enum Prepared {
    /// The inputs of its members: its operator runs as a whole.
    Whole,
    /// The input of its model.
    Pass(Pass),
    /// Nothing, for this reason.
    Failed(String),
}

/// A batch whose inputs are to be prepared.
pub(super) struct InputTask {
    pub(super) id: ActionId,
    pub(super) model: ModelId,
    pub(super) weights: WeightsId,
    pub(super) jobs: Vec<(WorkerId, Arc<Job>)>,
}

/// A batch that was executed.
pub(super) struct Executed {
    /// Its results are still to be made.
    pub(super) ran: RanBatch,
    pub(super) outcome: Outcome,
    pub(super) prepare: Duration,
}

/// What an execution gave.
pub(super) enum Outcome {
    Results(Vec<Ran>),
    /// The model's output.
    Pass(Pass),
}

/// What the loading thread is to do.
pub(super) enum LoadTask {
    Load(ActionId, WeightsId),
    Unload(WeightsId),
}

/// What the thread that brings results is to do.
pub(super) enum Report {
    Ran(Executed),
    Done(Done),
}

pub(super) struct State {
    pub(super) actions: Actions,
    /// Those that wait for their turn.
    pub(super) batches: IndexMap<ActionId, Batch, FxBuildHasher>,
    /// What runs next: at most one, as one executes at a time.
    pub(super) next: Option<Batch>,
    pub(super) inputs: VecDeque<ActionId>,
    pub(super) loads: VecDeque<LoadTask>,
    pub(super) reports: VecDeque<Report>,
    pub(super) commands: Vec<ActionCommand<Member<Arc<Job>>>>,
    pub(super) stop: bool,
    /// Threads that may still have something to report.
    pub(super) busy: usize,
}

pub(super) struct Shared {
    pub(super) id: DeviceId,
    pub(super) name: String,
    pub(super) clock: Clock,
    pub(super) modules: WorkerModules,
    pub(super) state: Mutex<State>,
    /// A batch is to run.
    pub(super) runs: Signal,
    /// Inputs are to be prepared.
    pub(super) inputs: Signal,
    /// Weights are to be read or given back.
    pub(super) loads: Signal,
    /// Something is to be reported.
    pub(super) reports: Signal,
    /// Those in memory.
    pub(super) weights: Slots,
    /// Which variant of the operator of its weights each model is.
    pub(super) variants: Arc<[usize]>,
    /// Set before the device serves, where it has its own memory.
    pub(super) copier: OnceLock<Arc<dyn Copier>>,
    pub(super) upstream: Arc<dyn Reports>,
    /// Set before the device is driven.
    pub(super) alarm: OnceLock<Alarm>,
    pub(super) alive: AtomicBool,
}

impl Shared {
    /// An action arrives.
    pub(super) fn receive(&self, action: DeviceAction, refused: &mut Vec<Done>) {
        let now = self.clock.now();
        let expected_end = action.expected_end;
        self.drive(refused, |state| {
            let Action {
                id,
                work,
                window,
                starts_at,
                ..
            } = action;
            let work = match work {
                Work::Load(weights) => Work::Load(weights),
                Work::Unload(weights) => Work::Unload(weights),
                Work::Infer {
                    model,
                    weights,
                    members,
                } => {
                    let batch = Batch {
                        id,
                        model,
                        weights,
                        members,
                        expected: expected_end.since(starts_at),
                        told_end: expected_end,
                        prepared: Prepared::Whole,
                        prepare: Duration::ZERO,
                    };
                    state.batches.insert(id, batch);
                    Work::Infer {
                        model,
                        weights,
                        members: Vec::new(),
                    }
                }
            };
            let action = Action {
                id,
                work,
                window,
                starts_at,
                expected_end,
            };
            state.actions.receive(now, action, &mut state.commands);
        });
    }

    /// Changes the queues of actions, and carries out what follows. `refused` gets what is refused.
    pub(super) fn drive(&self, refused: &mut Vec<Done>, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        change(&mut state);
        let (mut inputs, mut runs, mut loads) = (false, false, false);
        // Inputs that are there let a batch start, so one command may bring others.
        while !state.commands.is_empty() {
            for command in std::mem::take(&mut state.commands) {
                match command {
                    ActionCommand::CopyInput(id, weights, _) if self.prepares(weights) => {
                        state.inputs.push_back(id);
                        inputs = true;
                    }
                    ActionCommand::CopyInput(id, _, _) => {
                        let now = self.clock.now();
                        let State {
                            actions, commands, ..
                        } = &mut *state;
                        actions.input_ready(now, id, commands);
                    }
                    ActionCommand::Execute(id) => {
                        state.next = state.batches.swap_remove(&id);
                        runs = true;
                    }
                    ActionCommand::Load(id, weights) => {
                        state.loads.push_back(LoadTask::Load(id, weights));
                        loads = true;
                    }
                    ActionCommand::Unload(weights) => {
                        state.loads.push_back(LoadTask::Unload(weights));
                        loads = true;
                    }
                    ActionCommand::Refuse(id, cause) => {
                        state.batches.swap_remove(&id);
                        let ended = Ended::Refused(cause);
                        refused.push(Done::new(id, ended));
                    }
                }
            }
        }
        let wakeup = state.actions.next_wakeup();
        drop(state);
        if inputs {
            self.inputs.notify_one();
        }
        if runs {
            self.runs.notify_one();
        }
        if loads {
            self.loads.notify_one();
        }
        if let (Some(at), Some(alarm)) = (wakeup, self.alarm.get()) {
            alarm.arm(at);
        }
    }

    /// Whether inputs of models that run with weights are prepared apart from the execution.
    fn prepares(&self, weights: WeightsId) -> bool {
        (self.weights.get(weights)).is_ok_and(|of| of.preparation.is_some())
    }

    /// The same on a thread of the device: what is refused is reported by the thread for that.
    pub(super) fn act(&self, change: impl FnOnce(&mut State)) {
        let mut refused = Vec::new();
        self.drive(&mut refused, change);
        if !refused.is_empty() {
            self.report(refused.into_iter().map(Report::Done));
        }
    }

    /// The threads end when nothing is left to do.
    pub(super) fn stop(&self) {
        self.state.lock().stop = true;
        for changed in [&self.inputs, &self.runs, &self.loads, &self.reports] {
            changed.notify_one();
        }
    }

    /// A thread has ended that had something to report.
    pub(super) fn is_done(&self) {
        self.state.lock().busy -= 1;
        self.reports.notify_one();
    }

    pub(super) fn report(&self, reports: impl IntoIterator<Item = Report>) {
        self.state.lock().reports.extend(reports);
        self.reports.notify_one();
    }

    /// Waits for what a thread is to do next; `None` when there is nothing and the thread is to end.
    pub(super) fn wait<W>(
        &self,
        changed: &Signal,
        is_over: impl Fn(&State) -> bool,
        mut take: impl FnMut(&mut State) -> Option<W>,
    ) -> Option<W> {
        let mut state = self.state.lock();
        loop {
            let work = take(&mut state);
            if work.is_some() || is_over(&state) {
                return work;
            }
            changed.wait(&mut state);
        }
    }
}

impl Sleeper for Shared {
    fn wake(&self, _now: Timestamp) -> Option<Timestamp> {
        let now = self.clock.now();
        self.act(|state| state.actions.wake(now, &mut state.commands));
        // It has armed itself.
        None
    }
}
