//! A device under a placement: its queues of actions, and the hardware that they drive. Both are emulated time. A device executes one
//! batch at a time. It reads weights over a link beside that, one model at a time. Inputs and outputs are copied on streams of their own.
//!
//! Its driver says what is to happen when, and brings what is [`Due`] back at its moment.

use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::action::{Action, Ended, Window, Work};
use spillgate_pipeline::id::{ActionId, ModelId, WeightsId};
use spillgate_pipeline::time::Timestamp;
use spillgate_worker_policy::actions::{ActionCommand, Actions};

/// How long the steps of a device take. `M` is a member of a batch.
pub(crate) trait Hardware<M> {
    /// To copy the inputs of a batch.
    fn input(&mut self, model: ModelId, members: &[M]) -> Duration;

    /// To execute a batch.
    fn execution(&mut self, model: ModelId, members: &[M]) -> Duration;

    /// To copy the outputs of a batch.
    fn output(&mut self, model: ModelId, members: &[M]) -> Duration;

    /// To read weights.
    fn load(&mut self, weights: WeightsId) -> Duration;
}

/// What happens on a device at a moment to come.
#[derive(Debug)]
pub(crate) enum Due {
    /// The inputs of a batch are there.
    InputReady(ActionId),
    /// A batch has run.
    Executed(ActionId),
    /// Weights were read, in that time.
    Loaded(ActionId, Duration),
    /// The moment has come that [`Actions::next_wakeup`] named.
    Wakeup,
    /// The device says what became of an action.
    Done(ActionId, Ended),
}

/// An action that a device has.
#[derive(Debug)]
pub(crate) struct Held<M> {
    /// Of a batch; of a LOAD none.
    pub(crate) model: Option<ModelId>,
    pub(crate) weights: WeightsId,
    /// Of a batch; of a LOAD none.
    pub(crate) members: Vec<M>,
    /// How long it was expected to take.
    pub(crate) estimate: Duration,
    pub(crate) window: Window,
    pub(crate) expected_end: Timestamp,
}

#[derive(Debug)]
pub(crate) struct PlacedDevice<M> {
    actions: Actions,
    input_free: Timestamp,
    output_free: Timestamp,
    held: IndexMap<ActionId, Held<M>, FxBuildHasher>,
    /// How long the batch that executes takes.
    takes: Duration,
    wakes_at: Option<Timestamp>,
}

impl<M> PlacedDevice<M> {
    /// A device with these queues and that cache.
    pub(crate) fn new(actions: Actions) -> Self {
        PlacedDevice {
            actions,
            input_free: Timestamp::ZERO,
            output_free: Timestamp::ZERO,
            held: IndexMap::default(),
            takes: Duration::ZERO,
            wakes_at: None,
        }
    }

    /// An action that it has.
    pub(crate) fn held(&self, id: ActionId) -> Option<&Held<M>> {
        self.held.get(&id)
    }

    /// The model and members of a batch that it has.
    fn batch(&self, id: ActionId) -> Option<(ModelId, &[M])> {
        let held = self.held.get(&id)?;
        Some((held.model?, &held.members))
    }

    /// Takes out an action that was [`Due::Done`].
    pub(crate) fn take(&mut self, id: ActionId) -> Option<Held<M>> {
        self.held.swap_remove(&id)
    }

    /// An action arrives. `out` gets what is due and when.
    pub(crate) fn receive(
        &mut self,
        now: Timestamp,
        action: Action<M>,
        hardware: &mut impl Hardware<M>,
        out: &mut Vec<(Timestamp, Due)>,
    ) {
        let Action {
            id,
            work,
            window,
            starts_at,
            expected_end,
        } = action;
        let (work, held) = match work {
            Work::Infer {
                model,
                weights,
                members,
            } => {
                let copied = Vec::new();
                let work = Work::Infer {
                    model,
                    weights,
                    members: copied,
                };
                (work, Some((Some(model), weights, members)))
            }
            Work::Load(weights) => (Work::Load(weights), Some((None, weights, Vec::new()))),
            Work::Unload(weights) => (Work::Unload(weights), None),
        };
        if let Some((model, weights, members)) = held {
            let held = Held {
                model,
                weights,
                members,
                estimate: expected_end.since(starts_at),
                window,
                expected_end,
            };
            self.held.insert(id, held);
        }
        let action: Action<()> = Action {
            id,
            work,
            window,
            starts_at,
            expected_end,
        };
        let mut commands = Vec::new();
        self.actions.receive(now, action, &mut commands);
        self.carry_out(now, commands, hardware, out);
    }

    /// The moment of what was due has come. What is [`Due::Done`] is for the driver.
    pub(crate) fn on(
        &mut self,
        now: Timestamp,
        due: &Due,
        hardware: &mut impl Hardware<M>,
        out: &mut Vec<(Timestamp, Due)>,
    ) {
        let mut commands = Vec::new();
        match *due {
            Due::InputReady(id) => self.actions.input_ready(now, id, &mut commands),
            Due::Executed(id) => {
                if let Some((model, members)) = self.batch(id) {
                    let copies = hardware.output(model, members);
                    self.output_free = self.output_free.max(now) + copies;
                    let took = self.takes;
                    let ended = Ended::Ran { at: now, took };
                    out.push((self.output_free, Due::Done(id, ended)));
                }
                self.actions.executed(now, id, &mut commands);
            }
            Due::Loaded(id, _) => self.actions.loaded(now, id, true, &mut commands),
            Due::Wakeup => {
                self.wakes_at.take_if(|at| *at <= now);
                self.actions.wake(now, &mut commands);
            }
            Due::Done(..) => {}
        }
        self.carry_out(now, commands, hardware, out);
        if let Due::Loaded(id, took) = *due {
            out.push((now, Due::Done(id, Ended::Ran { at: now, took })));
        }
    }

    fn carry_out(
        &mut self,
        now: Timestamp,
        commands: Vec<ActionCommand<()>>,
        hardware: &mut impl Hardware<M>,
        out: &mut Vec<(Timestamp, Due)>,
    ) {
        for command in commands {
            match command {
                ActionCommand::CopyInput(id, ..) => {
                    let Some((model, members)) = self.batch(id) else {
                        continue;
                    };
                    let copies = hardware.input(model, members);
                    self.input_free = self.input_free.max(now) + copies;
                    out.push((self.input_free, Due::InputReady(id)));
                }
                ActionCommand::Execute(id) => {
                    let Some((model, members)) = self.batch(id) else {
                        continue;
                    };
                    self.takes = hardware.execution(model, members);
                    out.push((now + self.takes, Due::Executed(id)));
                }
                ActionCommand::Load(id, weights) => {
                    let took = hardware.load(weights);
                    out.push((now + took, Due::Loaded(id, took)));
                }
                ActionCommand::Unload(_) => {}
                ActionCommand::Refuse(id, cause) => {
                    out.push((now, Due::Done(id, Ended::Refused(cause))));
                }
            }
        }
        if let Some(at) = self.actions.next_wakeup()
            && at > now
            && self.wakes_at.is_none_or(|w| at < w)
        {
            self.wakes_at = Some(at);
            out.push((at, Due::Wakeup));
        }
    }
}
