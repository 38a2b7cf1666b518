//! The world around the policies: virtual time, messages that travel, devices that take their time.

mod agenda;
mod config;

use std::sync::Arc;
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spillgate_controller_policy::ledger::Ledger;
use spillgate_controller_policy::module::{Command, Event as ModuleEvent, ModuleController};
use spillgate_controller_policy::planner::BatchReport;
use spillgate_pipeline::id::{BatchId, DeviceId, ModuleId, RequestId, WorkerId};
use spillgate_pipeline::invariants::{Checker, Violation};
use spillgate_pipeline::request::{Drop, DropReason, Estimate, Outcome, Request};
use spillgate_pipeline::time::Timestamp;
use spillgate_worker_policy::broker::{BrokerConfig, Member};
use spillgate_worker_policy::device::{
    Arrival, Batch, Command as DeviceCommand, Device, Event as DeviceEvent,
};
use spillgate_worker_policy::policy::BrokerPolicy;

use crate::report::{Report, Tally};
use agenda::{Agenda, Branch, Message, Next, Occurrence};
pub use config::{Disturbance, HANDOFF_DEFAULT, HOP_DEFAULT, SimConfig};

/// Events of one run at most: a policy that never comes to rest is stopped.
const EVENTS_MAX: u64 = 4_000_000_000;

struct Open {
    request: Request,
    /// Device time that it used, in nanoseconds.
    used: u64,
}

struct Running {
    batch: BatchId,
    worker: WorkerId,
    module: ModuleId,
    started_at: Timestamp,
    members: Vec<Member<()>>,
}

struct EmulatedDevice {
    policy: Device<()>,
    brokers: Vec<(WorkerId, BrokerConfig)>,
    running: Option<Running>,
    /// Bound, not started: it waits for the running batch, or for the hand-off.
    bound: Option<Batch<()>>,
    /// Earliest wakeup in the agenda; later ones need none.
    armed: Timestamp,
    /// Its clock less the world's, in nanoseconds.
    skew: i64,
    /// Rises when it dies: what it still had to do is void.
    life: u32,
    /// It has just become free: a batch bound now pays the hand-off.
    just_freed: bool,
}

struct World {
    config: SimConfig,
    now: Timestamp,
    agenda: Agenda,
    hash: u64,
    events: u64,
    ledger: Ledger,
    modules: Vec<ModuleController>,
    successors: Vec<Vec<ModuleId>>,
    /// Device and module of each worker.
    places: Vec<(usize, ModuleId)>,
    /// Workers of each module.
    workers: Vec<Vec<WorkerId>>,
    devices: Vec<EmulatedDevice>,
    open: Vec<Option<Open>>,
    checker: Checker,
    rng: ChaCha8Rng,
    when: f64,
    pace: Vec<f64>,
    tally: Tally,
}

/// Runs a configuration to its end.
///
/// # Errors
/// The first invariant that did not hold.
pub fn run(config: SimConfig) -> Result<Report, Violation> {
    let mut world = World::new(config);
    world.start()?;
    while let Some((at, next)) = world.agenda.next() {
        world.checker.time(at)?;
        world.now = at;
        assert!(world.events < EVENTS_MAX, "the run does not come to rest");
        world.step(next)?;
    }
    world.checker.finished()?;
    let World {
        tally,
        config,
        events,
        hash,
        ..
    } = world;
    Ok(tally.finish(&config, events, hash))
}

impl World {
    fn new(config: SimConfig) -> Self {
        let pipeline = config.pipeline.clone();
        let mut rng = ChaCha8Rng::seed_from_u64(config.seed);
        let n_devices = config
            .workers
            .iter()
            .flatten()
            .max()
            .map_or(0, |d| usize::from(*d) + 1);
        let mut brokers: Vec<Vec<(WorkerId, BrokerConfig)>> = vec![Vec::new(); n_devices];
        let mut places = Vec::new();
        let mut workers = Vec::new();
        let mut modules = Vec::new();
        for module in &pipeline.modules {
            let mut serving = Vec::new();
            for &device in &config.workers[module.id.idx()] {
                let worker = WorkerId(places.len() as u32);
                places.push((usize::from(device), module.id));
                serving.push(worker);
                let broker = BrokerConfig {
                    module: module.id,
                    capacity: module.queue,
                    batch: config.planned.batch[module.id.idx()],
                    execution: config.planned.execution[module.id.idx()].clone(),
                    policy: BrokerPolicy::by_name(pipeline.policy.drop),
                };
                brokers[usize::from(device)].push((worker, broker));
            }
            modules.push(ModuleController::new(
                &pipeline,
                module.id,
                &config.planned,
                &serving,
                config.seed,
            ));
            workers.push(serving);
        }
        let skew_max = config.clock_skew.as_nanos() as f64;
        let devices = brokers
            .into_iter()
            .map(|brokers| EmulatedDevice {
                policy: Device::new(brokers.clone(), config.handoff),
                brokers,
                running: None,
                bound: None,
                armed: Timestamp::MAX,
                skew: (skew_max * (2.0 * rng.random::<f64>() - 1.0)) as i64,
                life: 0,
                just_freed: false,
            })
            .collect();
        // A cancellation needs a hop to reach its device.
        let checker = Checker::default().cancel_delay(config.hop);
        World {
            now: Timestamp::ZERO,
            agenda: Agenda::new(config.hop, config.arrivals.clone()),
            hash: 0xcbf2_9ce4_8422_2325,
            events: 0,
            ledger: Ledger::new(&pipeline),
            modules,
            successors: pipeline
                .modules
                .iter()
                .map(|m| pipeline.successors(m.id))
                .collect(),
            places,
            workers,
            devices,
            open: Vec::with_capacity(config.arrivals.len()),
            checker,
            rng,
            when: config.when_probability,
            pace: vec![1.0; pipeline.modules.len()],
            tally: Tally::new(&config),
            config,
        }
    }

    fn start(&mut self) -> Result<(), Violation> {
        for (at, disturbance) in self.config.disturbances.clone() {
            self.agenda.at(at, Occurrence::Disturbance(disturbance));
        }
        for module in 0..self.modules.len() {
            let id = ModuleId(module as u16);
            if let Some(at) = self.modules[module].next_wakeup() {
                self.agenda
                    .at(at, Occurrence::ControllerWakeup { module: id });
            }
            let guidance = self.modules[module].guidance();
            for worker in self.workers[module].clone() {
                let device = self.places[worker.idx()].0;
                self.drive_device(device, DeviceEvent::Guide(worker, guidance))?;
            }
        }
        Ok(())
    }

    /// Counts an event and mixes it into the hash: what happened to whom, at what time.
    fn note(&mut self, kind: u64, subject: u64) {
        self.events += 1;
        for word in [self.now.as_ns(), kind << 56 | subject] {
            self.hash = (self.hash ^ word)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(29);
        }
    }

    fn step(&mut self, next: Next) -> Result<(), Violation> {
        match next {
            Next::Offer(i) => self.offer(i),
            Next::Message(message) => self.deliver(message),
            Next::Occurrence(occurrence) => self.occur(occurrence),
        }
    }

    fn offer(&mut self, i: usize) -> Result<(), Violation> {
        self.note(1, i as u64);
        self.tally.offered(self.now);
        let id = RequestId(i as u64);
        let timeout = self
            .config
            .hurried
            .filter(|(part, _)| self.rng.random::<f64>() < *part)
            .map(|(_, share)| self.config.pipeline.slo.mul_f64(share));
        let request = match self.ledger.admit(self.now, id, self.now, timeout) {
            Ok(request) => request,
            Err(refusal) => {
                self.open.push(None);
                self.tally.refused(refusal.reason().label());
                return Ok(());
            }
        };
        self.checker.accepted(id)?;
        self.open.push(Some(Open { request, used: 0 }));
        if self.config.cancelled > 0.0 && self.rng.random::<f64>() < self.config.cancelled {
            self.agenda.at(
                self.now + self.config.pipeline.slo / 2,
                Occurrence::Leave(id),
            );
        }
        self.passed(ModuleId::SOURCE, &[(request, true)])
    }

    /// A module ran for requests, or was skipped: its successors hear of it a hop later.
    fn passed(&mut self, module: ModuleId, requests: &[(Request, bool)]) -> Result<(), Violation> {
        if self.successors[module.idx()].is_empty() {
            for (request, _) in requests {
                if let Some(outcome) = self.ledger.sink_done(self.now, request.id) {
                    self.ended(request.id, outcome)?;
                }
            }
            return Ok(());
        }
        for s in 0..self.successors[module.idx()].len() {
            let to = self.successors[module.idx()][s];
            let when = self.config.pipeline.modules[to.idx()].when;
            let conditional = when.is_some_and(|port| port.module == module);
            let branches: Vec<Branch> = requests
                .iter()
                .map(|&(request, present)| {
                    let condition =
                        (conditional && present).then(|| self.rng.random::<f64>() < self.when);
                    (request, present, condition)
                })
                .collect();
            let message = Message::Branches {
                from: module,
                to,
                branches,
            };
            self.agenda.send(self.now, message);
        }
        Ok(())
    }

    fn deliver(&mut self, message: Message) -> Result<(), Violation> {
        match message {
            Message::Branches { from, to, branches } => {
                let mut commands = Vec::with_capacity(branches.len());
                for (request, present, condition) in branches {
                    self.note(2, request.id.0 << 8 | u64::from(to.0));
                    if self.ledger.is_open(request.id) {
                        let branch = ModuleEvent::Branch {
                            request,
                            from,
                            present,
                            condition,
                        };
                        self.modules[to.idx()].on_event(self.now, branch, &mut commands);
                    }
                }
                self.perform(to, commands)
            }
            Message::Started {
                worker,
                size,
                expected_end,
            } => {
                self.note(3, u64::from(worker.0));
                let module = self.places[worker.idx()].1;
                let started = ModuleEvent::Started {
                    worker,
                    size,
                    expected_end,
                };
                self.drive_module(module, started)
            }
            Message::Ended {
                worker,
                started_at,
                ended_at,
                members,
            } => {
                let module = self.places[worker.idx()].1;
                for member in &members {
                    self.note(4, member.request.id.0);
                    self.drive_module(module, ModuleEvent::Returned(member.request.id))?;
                }
                let times: Vec<(Timestamp, Timestamp)> = members
                    .iter()
                    .map(|m| (m.arrived_at, m.batched_at))
                    .collect();
                let report = BatchReport {
                    started_at,
                    ended_at,
                    members: &times,
                };
                self.drive_module(module, ModuleEvent::Ended { worker, report })
            }
            Message::Dropped { module, request } => {
                self.note(5, request.0);
                self.drive_module(module, ModuleEvent::Dropped(request))
            }
            Message::Cancel { worker, request } => {
                self.note(6, request.0);
                let device = self.places[worker.idx()].0;
                self.drive_device(device, DeviceEvent::Cancel(request))
            }
            Message::Guide { worker, guidance } => {
                self.note(7, guidance.downstream.as_nanos() as u64);
                let device = self.places[worker.idx()].0;
                self.drive_device(device, DeviceEvent::Guide(worker, guidance))
            }
            Message::Peer { to, state } => {
                self.note(8, u64::from(to.0) << 32 | state.version);
                if to == ModuleId::SOURCE {
                    self.ledger.learn(self.now, &state);
                }
                self.drive_module(to, ModuleEvent::Peer((*state).clone()))
            }
        }
    }

    fn occur(&mut self, occurrence: Occurrence) -> Result<(), Violation> {
        match occurrence {
            Occurrence::BatchStart { device } => self.execute(device),
            Occurrence::BatchEnd {
                device,
                batch,
                life,
            } => {
                if self.devices[device].life != life {
                    return Ok(());
                }
                self.note(9, (device as u64) << 40 | batch.0);
                self.batch_end(device)
            }
            Occurrence::DeviceWakeup { device } => {
                if self.devices[device].armed <= self.now {
                    self.devices[device].armed = Timestamp::MAX;
                }
                self.note(10, device as u64);
                self.drive_device(device, DeviceEvent::Wakeup)
            }
            Occurrence::ControllerWakeup { module } => {
                self.note(11, u64::from(module.0));
                self.drive_module(module, ModuleEvent::Wakeup)?;
                // Planners exchange states forever; when no request is to come or under way the run is over.
                if !(self.agenda.all_offered() && self.ledger.in_flight() == 0)
                    && let Some(at) = self.modules[module.idx()].next_wakeup()
                {
                    self.agenda.at(at, Occurrence::ControllerWakeup { module });
                }
                Ok(())
            }
            Occurrence::Leave(request) => {
                self.note(12, request.0);
                let drop = self.drop_of(request, ModuleId::SOURCE, DropReason::Cancelled, None);
                drop.map_or(Ok(()), |drop| {
                    self.end_early(request, Outcome::Dropped(drop))
                })
            }
            Occurrence::Disturbance(disturbance) => self.disturb(disturbance),
        }
    }

    fn drive_module(&mut self, module: ModuleId, event: ModuleEvent<'_>) -> Result<(), Violation> {
        let mut commands = Vec::new();
        self.modules[module.idx()].on_event(self.now, event, &mut commands);
        self.perform(module, commands)
    }

    fn perform(&mut self, module: ModuleId, commands: Vec<Command>) -> Result<(), Violation> {
        // Requests that came together reach a device together: they may start as one batch.
        let mut sends: Vec<(usize, Vec<Arrival<()>>)> = Vec::new();
        let mut skipped = Vec::new();
        for command in commands {
            match command {
                Command::Send { request, worker } => {
                    let device = self.places[worker.idx()].0;
                    let arrival = Arrival {
                        worker,
                        request,
                        payload: (),
                    };
                    match sends.iter_mut().find(|(d, _)| *d == device) {
                        Some((_, list)) => list.push(arrival),
                        None => sends.push((device, vec![arrival])),
                    }
                }
                Command::Skip(request) => skipped.push((request, false)),
                Command::Drop {
                    request,
                    reason,
                    estimate,
                } => {
                    if let Some(drop) = self.drop_of(request, module, reason, estimate) {
                        self.end_early(request, Outcome::Dropped(drop))?;
                    }
                }
                Command::Fail(request) => self.end_early(request, Outcome::Failed { module })?,
                Command::CancelAt { request, worker } => {
                    self.agenda
                        .send(self.now, Message::Cancel { worker, request });
                }
                Command::Publish(state) => {
                    let state = Arc::new(state);
                    for to in (0..self.modules.len() as u16).map(ModuleId) {
                        let is_lost = self.config.exchange_loss > 0.0
                            && self.rng.random::<f64>() < self.config.exchange_loss;
                        if to != module && !is_lost {
                            let state = state.clone();
                            self.agenda.send(self.now, Message::Peer { to, state });
                        }
                    }
                }
                Command::Compute(computation) => {
                    let computed = ModuleEvent::Computed(Box::new(computation.run()));
                    self.drive_module(module, computed)?;
                }
                Command::Guide(guidance) => {
                    for &worker in &self.workers[module.idx()] {
                        self.agenda
                            .send(self.now, Message::Guide { worker, guidance });
                    }
                }
            }
        }
        if !skipped.is_empty() {
            self.passed(module, &skipped)?;
        }
        for (device, mut arrivals) in sends {
            self.drive_device(device, DeviceEvent::Arrivals(&mut arrivals))?;
        }
        Ok(())
    }

    fn drop_of(
        &self,
        request: RequestId,
        module: ModuleId,
        reason: DropReason,
        estimate: Option<Estimate>,
    ) -> Option<Drop> {
        let open = self.open[request.0 as usize].as_ref()?;
        Some(Drop {
            module,
            reason,
            at: self.now,
            budget: open.request.deadline.budget_at(self.now),
            estimate,
        })
    }

    fn drive_device(&mut self, device: usize, event: DeviceEvent<'_, ()>) -> Result<(), Violation> {
        let mut commands = Vec::new();
        let d = &mut self.devices[device];
        let there = shifted(self.now, d.skew);
        d.policy.on_event(there, event, &mut commands);
        for command in commands {
            match command {
                DeviceCommand::Execute(batch) => self.bound(device, batch)?,
                DeviceCommand::Drop { rejected, .. } => {
                    let module = rejected.drop.module;
                    let request = rejected.request.id;
                    self.agenda
                        .send(self.now, Message::Dropped { module, request });
                    self.end_early(request, Outcome::Dropped(rejected.drop))?;
                }
            }
        }
        let d = &mut self.devices[device];
        if let Some(at) = d.policy.next_wakeup() {
            let at = shifted(at, -d.skew).max(self.now);
            if at < d.armed {
                d.armed = at;
                self.agenda.at(at, Occurrence::DeviceWakeup { device });
            }
        }
        Ok(())
    }

    /// A batch was bound: it starts now, after the hand-off, or when the running one ends.
    fn bound(&mut self, device: usize, batch: Batch<()>) -> Result<(), Violation> {
        let ids: Vec<RequestId> = batch.members.iter().map(|m| m.request.id).collect();
        self.checker
            .batch_bound(DeviceId(device as u16), batch.id, self.now, &ids)?;
        let started = Message::Started {
            worker: batch.worker,
            size: batch.members.len(),
            expected_end: batch.expected_end,
        };
        self.agenda.send(self.now, started);
        let binds_late = BrokerPolicy::by_name(self.config.pipeline.policy.drop).bind
            == spillgate_worker_policy::policy::Bind::Late;
        let d = &mut self.devices[device];
        d.bound = Some(batch);
        if d.running.is_none() {
            let pays = d.just_freed && binds_late;
            let at = if pays {
                self.now + self.config.handoff
            } else {
                self.now
            };
            self.agenda.at(at, Occurrence::BatchStart { device });
        }
        Ok(())
    }

    /// Starts the bound batch.
    fn execute(&mut self, device: usize) -> Result<(), Violation> {
        let Some(batch) = self.devices[device].bound.take() else {
            return Ok(());
        };
        let ids: Vec<RequestId> = batch.members.iter().map(|m| m.request.id).collect();
        self.note(13, (device as u64) << 40 | batch.id.0);
        let max = self.config.planned.execution[batch.module.idx()].len() as u32;
        self.checker
            .batch_started(DeviceId(device as u16), batch.id, max, self.now, &ids)?;
        self.tally.batch(ids.len());
        let took = self.execution(batch.module, ids.len());
        let d = &mut self.devices[device];
        self.agenda.at(
            self.now + took,
            Occurrence::BatchEnd {
                device,
                batch: batch.id,
                life: d.life,
            },
        );
        d.running = Some(Running {
            batch: batch.id,
            worker: batch.worker,
            module: batch.module,
            started_at: self.now,
            members: batch.members,
        });
        Ok(())
    }

    fn execution(&mut self, module: ModuleId, size: usize) -> Duration {
        let planned = self.config.planned.execution[module.idx()][size - 1];
        let mut factor = self.pace[module.idx()];
        if self.config.noise > 0.0 {
            // Box-Muller; 1 - u lies in (0, 1], so that the logarithm is finite.
            let (u, v) = (1.0 - self.rng.random::<f64>(), self.rng.random::<f64>());
            let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
            factor *= (1.0 + self.config.noise * normal).max(0.1);
        }
        if factor == 1.0 {
            planned
        } else {
            planned.mul_f64(factor)
        }
    }

    fn batch_end(&mut self, device: usize) -> Result<(), Violation> {
        let ended = self.devices[device].running.take();
        let Running {
            batch,
            worker,
            module,
            started_at,
            members,
        } = ended.expect("a batch that ends has started");
        self.checker
            .batch_ended(DeviceId(device as u16), batch, self.now)?;
        let took = self.now.since(started_at);
        let share = took.as_nanos() as u64 / members.len() as u64;
        // Results first, then the device: what they bring to modules here competes for the next batch.
        let mut requests = Vec::with_capacity(members.len());
        for member in &members {
            match &mut self.open[member.request.id.0 as usize] {
                Some(open) => {
                    open.used += share;
                    requests.push((open.request, true));
                }
                None => self.tally.wasted(share),
            }
        }
        self.passed(module, &requests)?;
        let skew = self.devices[device].skew;
        let ended = Message::Ended {
            worker,
            started_at: shifted(started_at, skew),
            ended_at: shifted(self.now, skew),
            members,
        };
        self.agenda.send(self.now, ended);
        if self.devices[device].bound.is_some() {
            self.execute(device)?;
        } else {
            self.devices[device].just_freed = true;
        }
        let event = DeviceEvent::BatchEnded { batch, took };
        self.drive_device(device, event)?;
        self.devices[device].just_freed = false;
        Ok(())
    }

    fn disturb(&mut self, disturbance: Disturbance) -> Result<(), Violation> {
        self.note(14, 0);
        match disturbance {
            Disturbance::Pace(module, pace) => self.pace[module.idx()] = pace,
            Disturbance::When(probability) => self.when = probability,
            Disturbance::Down(module, ordinal) => {
                let worker = self.workers[module.idx()][ordinal];
                let d = &mut self.devices[self.places[worker.idx()].0];
                d.life += 1;
                d.policy = Device::new(d.brokers.clone(), self.config.handoff);
                d.bound = None;
                d.armed = Timestamp::MAX;
                if let Some(lost) = d.running.take() {
                    let used = self.now.since(lost.started_at).as_nanos() as u64;
                    self.tally.wasted(used);
                }
                self.checker
                    .device_lost(DeviceId(self.places[worker.idx()].0 as u16));
                self.drive_module(module, ModuleEvent::WorkerDown(worker))?;
            }
            Disturbance::Up(module, ordinal) => {
                let worker = self.workers[module.idx()][ordinal];
                let guidance = self.modules[module.idx()].guidance();
                let device = self.places[worker.idx()].0;
                self.drive_device(device, DeviceEvent::Guide(worker, guidance))?;
                self.drive_module(module, ModuleEvent::WorkerUp(worker))?;
            }
        }
        Ok(())
    }

    fn ended(&mut self, id: RequestId, outcome: Outcome) -> Result<(), Violation> {
        self.checker.ended(id, outcome)?;
        let open = self.open[id.0 as usize].take().expect("what ends was open");
        self.tally
            .ended(&open.request, self.now, outcome, open.used);
        Ok(())
    }

    fn end_early(&mut self, id: RequestId, outcome: Outcome) -> Result<(), Violation> {
        if !self.ledger.end(id) {
            return Ok(());
        }
        self.ended(id, outcome)?;
        for module in 0..self.modules.len() as u16 {
            self.drive_module(ModuleId(module), ModuleEvent::Forget(id))?;
        }
        Ok(())
    }
}

/// A time of the world as a clock that is off by `skew` nanoseconds shows it.
fn shifted(at: Timestamp, skew: i64) -> Timestamp {
    Timestamp::from_ns(at.as_ns().saturating_add_signed(skew))
}

#[cfg(test)]
mod tests;
