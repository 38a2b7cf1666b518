//! A device under a placement: it carries out the actions that it is sent, and nothing else. [`Actions`] decides in which order, and whether at
//! all.

mod batches;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_backend::operator::{Inputs, OperatorError, Pass};
use spillgate_pipeline::action::{Action, BatchItem, Done, Ended, Work as Asked};
use spillgate_pipeline::id::{ActionId, DeviceId, ModelId, WeightsId};
use spillgate_pipeline::time::Timestamp;
use spillgate_process::clock::Clock;
use spillgate_process::job::{Job, Ran};
use spillgate_worker_policy::actions::{ActionCommand, Actions};

use super::driver::{Chooser, LoadTask, Shared, Work};
use super::models::Serving;
use super::{DeviceConfig, DeviceThreads, RanBatch, threads};
use crate::timer::TimerThread;

/// An action for a device; its members carry their jobs.
pub type DeviceAction = Action<BatchItem<Arc<Job>>>;

/// Hears from devices. Called without any lock of the device held.
pub trait Reports: Send + Sync {
    /// A batch ran. Its `Done` follows.
    fn ran(&self, batch: RanBatch);

    /// What became of an action.
    fn done(&self, device: DeviceId, done: Done);
}

/// The actions of a device, and the batches among them.
struct Placed {
    actions: Actions,
    /// Those that wait for their turn.
    batches: IndexMap<ActionId, Batch, FxBuildHasher>,
    /// Empty between events.
    commands: Vec<ActionCommand<BatchItem<Arc<Job>>>>,
}

/// A batch that the device has.
struct Batch {
    id: ActionId,
    model: ModelId,
    members: Vec<BatchItem<Arc<Job>>>,
    expected: Duration,
    reported_end: Timestamp,
    prepared: Prepared,
    /// How long that took.
    prepare: Duration,
}

/// What a batch runs on.
enum Prepared {
    /// The inputs of its members: its operator runs as a whole.
    Whole,
    /// The input of its model.
    Pass(Pass),
    /// Nothing, for this reason.
    Failed(String),
}

/// A batch that was executed; its results are still to be made.
struct Executed {
    ran: RanBatch,
    outcome: Outcome,
    prepare: Duration,
}

/// What an execution gave.
enum Outcome {
    Results(Vec<Ran>),
    /// The model's output.
    Pass(Pass),
}

/// What the reporting thread is to do.
enum Report {
    Ran(Box<Executed>),
    Done(Done),
}

/// What happens to a device under a placement.
enum Event {
    Received(DeviceAction),
    /// The inputs of a batch are on the device. This is what it runs on, and how long that took.
    Prepared(ActionId, Prepared, Duration),
    Executed(ActionId),
    Read(ActionId, bool),
    Wakeup,
}

/// Starts a device, and waits until the models that are there from the start are loaded.
///
/// # Errors
/// When the loader cannot be built, or one of those models cannot be loaded.
pub fn start(
    config: DeviceConfig,
    actions: Actions,
    clock: &Clock,
    timers: &TimerThread,
    upstream: Arc<dyn Reports>,
) -> Result<(PlacedHandle, DeviceThreads), OperatorError> {
    let placed = Placed {
        actions,
        batches: IndexMap::default(),
        commands: Vec::new(),
    };
    let (shared, threads) = threads::start(config, placed, clock, timers, upstream)?;
    Ok((PlacedHandle { shared }, threads))
}

impl Chooser for Placed {
    type Event<'e> = Event;
    type Run = Batch;
    type Read = ActionId;
    type Report = Report;
    /// What is refused.
    type Outgoing = Vec<Done>;
    type Upstream = Arc<dyn Reports>;

    const HAS_STEPS: bool = true;

    fn on_event(
        &mut self,
        now: Timestamp,
        event: Event,
        serving: &Serving,
        work: &mut Work<Self>,
        refused: &mut Vec<Done>,
    ) {
        let Placed {
            actions,
            batches,
            commands,
        } = self;
        match event {
            Event::Received(action) => {
                let action = keep(batches, action);
                actions.receive(now, action, commands);
            }
            Event::Prepared(id, prepared, took) => {
                // It may have been refused meanwhile.
                if let Some(batch) = batches.get_mut(&id) {
                    batch.prepared = prepared;
                    batch.prepare = took;
                }
                actions.input_ready(now, id, commands);
            }
            Event::Executed(id) => actions.executed(now, id, commands),
            Event::Read(id, is_there) => actions.loaded(now, id, is_there, commands),
            Event::Wakeup => actions.wake(now, commands),
        }
        // Inputs that are there let a batch start, so one command may bring others.
        while !commands.is_empty() {
            for command in std::mem::take(commands) {
                match command {
                    ActionCommand::CopyInput(id, weights, _) => match serving.prepares(weights) {
                        true => work.inputs.push_back(id),
                        false => actions.input_ready(now, id, commands),
                    },
                    ActionCommand::Execute(id) => work.runs.extend(batches.swap_remove(&id)),
                    ActionCommand::Load(id, weights) => {
                        work.loads
                            .push_back(LoadTask::Read(id, weights, Vec::new()));
                    }
                    ActionCommand::Unload(weights) => {
                        work.loads.push_back(LoadTask::Forget(vec![weights]));
                    }
                    ActionCommand::Refuse(id, cause) => {
                        batches.swap_remove(&id);
                        refused.push(Done::new(id, Ended::Refused(cause)));
                    }
                }
            }
        }
    }

    fn next_wakeup(&self) -> Option<Timestamp> {
        self.actions.next_wakeup()
    }

    fn wakeup() -> Event {
        Event::Wakeup
    }

    /// On a thread of the device: what is refused is reported by the thread for that.
    fn send(shared: &Shared<Self>, refused: Vec<Done>) {
        refused
            .into_iter()
            .for_each(|done| shared.post(Report::Done(done)));
    }

    fn prepare(shared: &Shared<Self>, batch: ActionId) {
        batches::prepare(shared, batch);
    }

    fn execute(shared: &Shared<Self>, batch: Batch, inputs: &mut Vec<Inputs>) {
        batches::execute(shared, batch, inputs);
    }

    fn read(
        shared: &Shared<Self>,
        id: ActionId,
        started_at: Timestamp,
        result: Result<(), OperatorError>,
    ) {
        let at = shared.clock.now();
        shared.drive(Event::Read(id, result.is_ok()));
        let ended = match result {
            Ok(()) => Ended::Ran {
                at,
                took: at.since(started_at),
            },
            Err(error) => Ended::Failed(error.to_string().into()),
        };
        shared.post(Report::Done(Done::new(id, ended)));
    }

    fn report(shared: &Shared<Self>, report: Report) {
        match report {
            Report::Ran(executed) => batches::finish(shared, *executed),
            Report::Done(done) => shared.upstream.done(shared.id, done),
        }
    }

    /// What the placement does not have, it does not ask for.
    fn lack(&mut self, _: WeightsId) {}

    /// Its fleet hears no more of it, and readiness shows that.
    fn died(_: &Shared<Self>, _: &str) {}
}

/// Keeps the members of a batch until it runs.
fn keep(
    batches: &mut IndexMap<ActionId, Batch, FxBuildHasher>,
    action: DeviceAction,
) -> DeviceAction {
    let work = match action.work {
        Asked::Infer {
            model,
            weights,
            members,
        } => {
            let batch = Batch {
                id: action.id,
                model,
                members,
                expected: action.expected_end.since(action.starts_at),
                reported_end: action.expected_end,
                prepared: Prepared::Whole,
                prepare: Duration::ZERO,
            };
            batches.insert(action.id, batch);
            let members = Vec::new();
            Asked::Infer {
                model,
                weights,
                members,
            }
        }
        other => other,
    };
    Action { work, ..action }
}

/// Reaches a device under a placement. Cheap to clone.
#[derive(Clone)]
pub struct PlacedHandle {
    shared: Arc<Shared<Placed>>,
}

impl PlacedHandle {
    /// Takes in an action. `refused` gets what is refused at once; all else is reported when it has ended.
    pub fn receive(&self, action: DeviceAction, refused: &mut Vec<Done>) {
        refused.append(&mut self.shared.decide(Event::Received(action)));
    }

    /// Whether its threads live.
    pub fn is_alive(&self) -> bool {
        self.shared.is_alive()
    }

    /// Its id in its fleet.
    pub fn id(&self) -> DeviceId {
        self.shared.id
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }
}
