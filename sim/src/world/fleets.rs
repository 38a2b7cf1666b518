//! Devices under a placement: drives the fleets that decide for them. A fleet is in the process of the gateway, and so are its devices:
//! what it says to them, and what they say of LOADs and refusals, takes no time. Results and drops travel a hop to their gateway. The
//! fleet hears of the end of a batch with its results, and counts the hop as the time in which the outputs are made, as a server does with
//! the time that its results take.

use std::time::Duration;

use spillgate_pipeline::action::{Around, BatchItem, Done, Ended, Work};
use spillgate_pipeline::id::{ActionId, BatchId, DeviceId, ModelId, RequestId, WeightsId};
use spillgate_pipeline::invariants::Violation;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{
    Address, BatchReport, Finished, Message, ToController, ToGateway,
};
use spillgate_worker_policy::actions::Actions;
use spillgate_worker_policy::weights::fleet::{Fleet, FleetCommand, FleetEvent, FleetWorker};
use spillgate_worker_policy::weights::placement::{Placement, PlacementConfig, PlacementPolicy};

use super::World;
use super::agenda::Occurrence;
use super::memory::stretched;
use super::noted::Kind;
use crate::placement::device::{Due, Hardware, Held, PlacedDevice};

/// Devices under one placement.
#[derive(Clone, Debug)]
pub struct SimFleet {
    /// The placement.
    pub name: PlacementPolicy,
    /// What it serves, with the execution times of the profile.
    pub config: PlacementConfig,
    /// The workers on its devices, with the ids that a run gives: in order of modules, and of [`super::SimConfig::workers`].
    pub workers: Vec<FleetWorker>,
    /// The ordinals of its devices in the world, in the order of `config`.
    pub devices: Vec<u16>,
}

/// A fleet that runs.
pub(super) struct Placed {
    policy: Fleet<()>,
    devices: Vec<PlacedDevice<BatchItem<()>>>,
    /// Earliest wakeup in the agenda; later ones need none.
    armed: Timestamp,
}

impl Placed {
    pub(super) fn new(fleet: &SimFleet) -> Self {
        let config = &fleet.config;
        let pages: Vec<u32> = config.weights.iter().map(|w| w.pages).collect();
        let devices = config.devices.iter().map(|device| {
            let actions = Actions::new(device.pages, pages.clone(), &device.resident);
            PlacedDevice::new(actions)
        });
        Placed {
            policy: Fleet::new(
                Placement::new(fleet.name, config.clone()),
                fleet.workers.clone(),
            ),
            devices: devices.collect(),
            armed: Timestamp::MAX,
        }
    }
}

/// The hardware of the devices of a fleet: the times of its models, with the disturbances of the world. Inputs and outputs take no time.
struct Emulated<'a> {
    world: &'a mut World,
    fleet: usize,
}

impl Emulated<'_> {
    fn config(&self) -> &PlacementConfig {
        &self.world.config.fleets[self.fleet].config
    }
}

impl Hardware<BatchItem<()>> for Emulated<'_> {
    fn input(&mut self, _: ModelId, _: &[BatchItem<()>]) -> Duration {
        Duration::ZERO
    }

    fn execution(&mut self, model: ModelId, members: &[BatchItem<()>]) -> Duration {
        let config = self.config();
        let size = members.len() as u32;
        let at = config.sizes.iter().position(|s| *s == size);
        let profiled = config.models[model.idx()].execution[at.expect("batches are never padded")];
        let requests: Vec<RequestId> = members.iter().map(|m| m.request.id).collect();
        let module = self.world.places[members[0].worker.idx()].module;
        let factor = self.world.factor(module, &requests);
        stretched(profiled, factor)
    }

    fn output(&mut self, _: ModelId, _: &[BatchItem<()>]) -> Duration {
        Duration::ZERO
    }

    fn load(&mut self, weights: WeightsId) -> Duration {
        let profiled = self.config().weights[weights.idx()].load;
        let factor = self.world.noise();
        stretched(profiled, factor)
    }
}

impl World {
    pub(super) fn drive_fleet(
        &mut self,
        fleet: usize,
        event: FleetEvent<'_, ()>,
    ) -> Result<(), Violation> {
        let mut commands = Vec::new();
        let now = self.now;
        self.fleets[fleet]
            .policy
            .on_event(now, event, &mut commands);
        for command in commands {
            match command {
                FleetCommand::Do { device, action } => {
                    if let Work::Infer { members, .. } = &action.work {
                        let ids: Vec<RequestId> = members.iter().map(|m| m.request.id).collect();
                        let (device, batch) = (self.ordinal_of(fleet, device), action.id);
                        self.checker
                            .batch_bound(device, BatchId(batch.0), now, &ids)?;
                    }
                    self.on_placed(fleet, device, |d, hardware, out| {
                        d.receive(now, action, hardware, out);
                    })?;
                }
                FleetCommand::Tell {
                    worker,
                    gateway,
                    message,
                } => {
                    let device = self.places[worker.idx()].device.idx();
                    self.say(device, Address::Gateway(gateway), Message::Gateway(message))?;
                }
            }
        }
        let Placed { policy, armed, .. } = &mut self.fleets[fleet];
        if let Some(at) = policy.next_wakeup(now)
            && at < *armed
        {
            *armed = at;
            self.agenda.at(at, Occurrence::FleetWakeup { fleet });
        }
        Ok(())
    }

    pub(super) fn wake_fleet(&mut self, fleet: usize) -> Result<(), Violation> {
        let armed = &mut self.fleets[fleet].armed;
        // An earlier one came, and armed anew.
        if *armed > self.now {
            return Ok(());
        }
        *armed = Timestamp::MAX;
        self.note(Kind::FleetWakeup, fleet as u64);
        self.drive_fleet(fleet, FleetEvent::Wakeup)
    }

    fn ordinal_of(&self, fleet: usize, device: DeviceId) -> DeviceId {
        DeviceId(self.config.fleets[fleet].devices[device.idx()])
    }

    /// Something happens on a device of a fleet. What follows goes on the agenda.
    fn on_placed(
        &mut self,
        fleet: usize,
        device: DeviceId,
        act: impl FnOnce(
            &mut PlacedDevice<BatchItem<()>>,
            &mut Emulated<'_>,
            &mut Vec<(Timestamp, Due)>,
        ),
    ) -> Result<(), Violation> {
        let mut devices = std::mem::take(&mut self.fleets[fleet].devices);
        let mut all_due = Vec::new();
        let mut hardware = Emulated { world: self, fleet };
        act(&mut devices[device.idx()], &mut hardware, &mut all_due);
        self.fleets[fleet].devices = devices;
        for (mut at, due) in all_due {
            match &due {
                Due::Executed(action) => self.placed_starts(fleet, device, *action)?,
                Due::Loaded(action, took) => {
                    let subject = u64::from(self.ordinal_of(fleet, device).0) << 40 | action.0;
                    self.note(Kind::LoadStart, subject);
                    self.tally.link(*took);
                }
                Due::Done(action, Ended::Ran { .. }) if self.is_batch(fleet, device, *action) => {
                    at = at + self.config.hop;
                }
                Due::Done(..) | Due::InputReady(_) | Due::Wakeup => {}
            }
            let due = Occurrence::Placed { fleet, device, due };
            self.agenda.at(at, due);
        }
        Ok(())
    }

    fn is_batch(&self, fleet: usize, device: DeviceId, action: ActionId) -> bool {
        let held = self.fleets[fleet].devices[device.idx()].held(action);
        held.is_some_and(|held| held.model.is_some())
    }

    /// A batch of a fleet begins to execute.
    fn placed_starts(
        &mut self,
        fleet: usize,
        device: DeviceId,
        action: ActionId,
    ) -> Result<(), Violation> {
        let ordinal = self.ordinal_of(fleet, device);
        self.note(Kind::BatchStart, u64::from(ordinal.0) << 40 | action.0);
        let held = self.fleets[fleet].devices[device.idx()].held(action);
        let Some((held, model)) = held.and_then(|held| Some((held, held.model?))) else {
            return Ok(());
        };
        let size = held.members.len();
        let config = &self.config.fleets[fleet].config;
        let n_sizes = config.models[model.idx()].execution.len();
        let most = config.sizes[n_sizes - 1];
        // Modules that share a model may bring a request once each.
        let mut asked: Vec<_> = held
            .members
            .iter()
            .map(|m| (m.request.id, m.worker))
            .collect();
        asked.sort_unstable();
        let is_once = asked.windows(2).all(|pair| pair[0] != pair[1]);
        let mut ids: Vec<RequestId> = asked.into_iter().map(|(id, _)| id).collect();
        if is_once {
            ids.dedup();
        }
        let batch = BatchId(action.0);
        self.checker
            .batch_started(ordinal, batch, most, self.now, &ids)?;
        self.tally.batch(size);
        Ok(())
    }

    /// What was due on a device of a fleet.
    pub(super) fn placed_due(
        &mut self,
        fleet: usize,
        device: DeviceId,
        due: Due,
    ) -> Result<(), Violation> {
        let now = self.now;
        let ordinal = self.ordinal_of(fleet, device);
        match &due {
            Due::Done(action, ended) => {
                return self.placed_done(fleet, device, *action, ended.clone());
            }
            Due::Executed(action) => {
                self.note(Kind::BatchEnd, u64::from(ordinal.0) << 40 | action.0);
                self.checker.batch_ended(ordinal, BatchId(action.0), now)?;
            }
            Due::InputReady(_) | Due::Loaded(..) | Due::Wakeup => {}
        }
        self.on_placed(fleet, device, |d, hardware, out| {
            d.on(now, &due, hardware, out);
        })
    }

    /// A device says what became of an action.
    fn placed_done(
        &mut self,
        fleet: usize,
        device: DeviceId,
        action: ActionId,
        ended: Ended,
    ) -> Result<(), Violation> {
        let Some(held) = self.fleets[fleet].devices[device.idx()].take(action) else {
            return Ok(());
        };
        let subject = u64::from(self.ordinal_of(fleet, device).0) << 40 | action.0;
        self.note(Kind::ActionDone, subject);
        let mut done = Done::new(action, ended);
        if let Ended::Ran { at, took } = done.ended
            && held.model.is_some()
        {
            done.around = Around {
                prepare: Duration::ZERO,
                finish: self.now.since(at),
            };
            self.bring_results(BatchId(action.0), held, (at, took))?;
        }
        self.drive_fleet(fleet, FleetEvent::Done(device, done))
    }

    /// Brings the results of a batch to their gateways: each worker of which it has requests reports its own.
    fn bring_results(
        &mut self,
        batch: BatchId,
        held: Held<BatchItem<()>>,
        (at, took): (Timestamp, Duration),
    ) -> Result<(), Violation> {
        let size = held.members.len() as u32;
        let share = took.as_nanos() as u64 / u64::from(size);
        for member in &held.members {
            self.charge(member.request.id, share);
        }
        let mut rest = held.members;
        while let Some(first) = rest.first() {
            let worker = first.worker;
            let (own, others) = rest.into_iter().partition(|m| m.worker == worker);
            rest = others;
            let own: Vec<BatchItem<()>> = own;
            let place = self.places[worker.idx()];
            let timed = own.iter().filter(|m| !m.request.background);
            let report = BatchReport {
                worker,
                variant: own.first().map(|m| m.request.variant).unwrap_or_default(),
                started_at: at - took,
                ended_at: at,
                size,
                members: timed.map(|m| (m.arrived_at, m.batched_at)).collect(),
            };
            for owner in self.gateways() {
                let of = own.iter().filter(|m| m.request.id.owner() == owner);
                let members = of.map(|member| Finished {
                    request: member.request.id,
                    result: Ok(self.filled(place.module)),
                });
                let members: Vec<Finished> = members.collect();
                if !members.is_empty() {
                    let finished = ToGateway::Finished {
                        worker,
                        batch,
                        took,
                        size,
                        members,
                    };
                    let (to, message) = (Address::Gateway(owner), Message::Gateway(finished));
                    self.say_now(place.device.idx(), to, message)?;
                }
            }
            if !report.members.is_empty() {
                let to = Address::Controller(place.module);
                let message = Message::Controller(ToController::Report(report));
                self.say_now(place.device.idx(), to, message)?;
            }
        }
        Ok(())
    }

    /// What the devices of all fleets did.
    pub(super) fn count_fleets(&mut self) {
        for (fleet, Placed { policy, .. }) in self.config.fleets.iter().zip(&self.fleets) {
            for device in 0..fleet.devices.len() as u16 {
                self.tally.account(policy.account(DeviceId(device)));
            }
        }
    }
}
