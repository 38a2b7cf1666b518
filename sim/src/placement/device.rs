//! A device: its queues of actions, and the hardware that it drives. Both are emulated time.

use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::action::{Action, Window, Work};
use spillgate_pipeline::id::{ActionId, ModelId, RequestId};
use spillgate_pipeline::time::Timestamp;
use spillgate_worker_policy::actions::{ActionCommand, Actions};

use super::agenda::{Agenda, Rank};
use super::noise::Noise;
use super::report::Logged;
use super::run::Event;
use super::scenario::{Scenario, ScenarioModel};

/// An action that the device has.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) model: ModelId,
    /// Of a batch; of a LOAD none.
    pub(super) members: Vec<RequestId>,
    pub(super) estimate: Duration,
    window: Window,
    pub(super) expected_end: Timestamp,
    pub(super) took: Duration,
}

#[derive(Debug)]
pub(super) struct Device {
    ordinal: usize,
    actions: Actions,
    travel: Duration,
    executions: Noise,
    transfers: Noise,
    input_free: Timestamp,
    output_free: Timestamp,
    pub(super) held: IndexMap<ActionId, Held, FxBuildHasher>,
    wakes_at: Option<Timestamp>,
    /// Time for which it executed and for which its link was in use, of the time that counts.
    pub(super) executed: Duration,
    pub(super) transferred: Duration,
}

/// Time to copy kilobytes over a link.
pub(super) fn copy(kb: f64, link_mb_per_ms: f64) -> Duration {
    Duration::from_nanos((kb / 1000.0 / link_mb_per_ms * 1e6) as u64)
}

impl Device {
    pub(super) fn new(scenario: &Scenario, ordinal: usize) -> Self {
        let pages = scenario.models.iter().map(|m| m.pages).collect();
        let resident = &scenario.resident[ordinal];
        let system = &scenario.system;
        let stream = ordinal as u64 * 2;
        Device {
            ordinal,
            actions: Actions::new(system.pages_per_gpu, pages, resident),
            travel: Duration::from_nanos((system.net_ms * 1e6) as u64),
            executions: Noise::new(system, stream),
            transfers: Noise::new(system, stream + 1),
            input_free: Timestamp::ZERO,
            output_free: Timestamp::ZERO,
            held: IndexMap::default(),
            wakes_at: None,
            executed: Duration::ZERO,
            transferred: Duration::ZERO,
        }
    }

    pub(super) fn receive(
        &mut self,
        now: Timestamp,
        world: &mut World<'_>,
        action: Action<RequestId>,
        estimate: Duration,
    ) {
        let (model, members) = match &action.work {
            Work::Infer { model, members } => (*model, members.clone()),
            Work::Load(model) | Work::Unload(model) => (*model, Vec::new()),
        };
        if !matches!(action.work, Work::Unload(_)) {
            let held = Held {
                model,
                members,
                estimate,
                window: action.window,
                expected_end: action.expected_end,
                took: Duration::ZERO,
            };
            let sent = if held.members.is_empty() {
                "send_load"
            } else {
                "send_infer"
            };
            world.log(now, self.ordinal, sent, &held);
            self.held.insert(action.id, held);
        }
        let mut out = Vec::new();
        self.actions.receive(now, action, &mut out);
        self.carry_out(now, world, out);
    }

    pub(super) fn input_ready(&mut self, now: Timestamp, world: &mut World<'_>, id: ActionId) {
        let mut out = Vec::new();
        self.actions.input_ready(now, id, &mut out);
        self.carry_out(now, world, out);
    }

    pub(super) fn executed(&mut self, now: Timestamp, world: &mut World<'_>, id: ActionId) {
        if let Some(batch) = self.held.get(&id) {
            let model = world.model(batch.model);
            let kb = model.output_kb * batch.members.len() as f64;
            let copied = self.output_free.max(now) + copy(kb, world.scenario.system.link_mb_per_ms);
            self.output_free = copied;
            let event = Event::Result {
                device: self.ordinal,
                action: id,
                ended_at: Some(now),
            };
            world.agenda.push(copied + self.travel, Rank::Device, event);
        }
        let mut out = Vec::new();
        self.actions.executed(now, id, &mut out);
        self.carry_out(now, world, out);
    }

    pub(super) fn loaded(
        &mut self,
        now: Timestamp,
        world: &mut World<'_>,
        id: ActionId,
        took: Duration,
    ) {
        let mut out = Vec::new();
        self.actions.loaded(now, id, true, &mut out);
        self.carry_out(now, world, out);
        let event = Event::LoadResult {
            device: self.ordinal,
            action: id,
            took: Some(took),
        };
        world.agenda.push(now + self.travel, Rank::Device, event);
    }

    pub(super) fn wake(&mut self, now: Timestamp, world: &mut World<'_>) {
        if self.wakes_at.is_some_and(|at| at <= now) {
            self.wakes_at = None;
        }
        let mut out = Vec::new();
        self.actions.wake(now, &mut out);
        self.carry_out(now, world, out);
    }

    fn carry_out(
        &mut self,
        now: Timestamp,
        world: &mut World<'_>,
        commands: Vec<ActionCommand<RequestId>>,
    ) {
        let device = self.ordinal;
        for command in commands {
            match command {
                ActionCommand::CopyInput(action, model, members) => {
                    let kb = world.model(model).input_kb * members.len() as f64;
                    let copied =
                        self.input_free.max(now) + copy(kb, world.scenario.system.link_mb_per_ms);
                    self.input_free = copied;
                    let event = Event::InputReady { device, action };
                    world.agenda.push(copied, Rank::Device, event);
                }
                ActionCommand::Execute(action) => {
                    let Some(batch) = self.held.get_mut(&action) else {
                        continue;
                    };
                    let size = batch.members.len() as u32;
                    let at = world.scenario.sizes.iter().position(|s| *s == size);
                    let at = at.expect("batches are never padded");
                    let base = world.scenario.models[batch.model.idx()].execution[at];
                    batch.took = self.executions.takes(base);
                    let event = Event::Executed { device, action };
                    world.agenda.push(now + batch.took, Rank::Device, event);
                    world.log(now, device, "exec", batch);
                    self.executed += world.counted(now, batch.took);
                }
                ActionCommand::Load(action, model) => {
                    let took = self.transfers.takes(world.model(model).load);
                    let event = Event::LoadEnded {
                        device,
                        action,
                        took,
                    };
                    world.agenda.push(now + took, Rank::Device, event);
                    if let Some(load) = self.held.get(&action) {
                        world.log(now, device, "load", load);
                    }
                    self.transferred += world.counted(now, took);
                }
                ActionCommand::Unload(_) => {}
                ActionCommand::Refuse(action, _) => {
                    let is_batch = |held: &Held| !held.members.is_empty();
                    let event = match self.held.get(&action).is_some_and(is_batch) {
                        true => Event::Result {
                            device,
                            action,
                            ended_at: None,
                        },
                        false => Event::LoadResult {
                            device,
                            action,
                            took: None,
                        },
                    };
                    world.agenda.push(now + self.travel, Rank::Device, event);
                }
            }
        }
        if let Some(at) = self.actions.next_wakeup()
            && at > now
            && self.wakes_at.is_none_or(|w| at < w)
        {
            self.wakes_at = Some(at);
            world
                .agenda
                .push(at, Rank::Device, Event::DeviceWakeup { device });
        }
    }
}

/// What a device sees around it.
pub(super) struct World<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) agenda: &'a mut Agenda<Event>,
    /// The time over which figures are taken.
    pub(super) counts: (Timestamp, Timestamp),
    pub(super) log: Option<&'a mut Vec<Logged>>,
}

impl World<'_> {
    fn model(&self, model: ModelId) -> &ScenarioModel {
        &self.scenario.models[model.idx()]
    }

    /// The part of an action that falls into the time that counts.
    fn counted(&self, begins: Timestamp, took: Duration) -> Duration {
        let (from, to) = self.counts;
        (begins + took).min(to).since(begins.max(from))
    }

    /// Notes an action as it is sent or begins.
    pub(super) fn log(&mut self, now: Timestamp, device: usize, event: &'static str, held: &Held) {
        if let Some(log) = &mut self.log {
            log.push(Logged {
                at: now,
                device,
                event,
                model: held.model,
                size: held.members.len(),
                window: held.window,
                expected_end: held.expected_end,
            });
        }
    }
}
