//! The world around the policies: virtual time, messages that travel, devices that take their time.

mod agenda;
mod config;
mod devices;
mod hostile;
mod scaling;
mod work;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spillgate_controller_policy::ledger::{Ledger, Offer, Refusal};
use spillgate_controller_policy::module::{Command, Event as ModuleEvent, ModuleController};
use spillgate_controller_policy::planner::BatchReport;
use spillgate_pipeline::id::{ModuleId, RequestId, WorkerId};
use spillgate_pipeline::invariants::{Checker, Violation};
use spillgate_pipeline::request::{Drop, DropReason, Estimate, Outcome, Request};
use spillgate_pipeline::schedule::Application;
use spillgate_pipeline::time::Timestamp;
use spillgate_worker_policy::broker::BrokerConfig;
use spillgate_worker_policy::device::{Arrival, Device, Event as DeviceEvent};

use crate::report::{Report, Tally};
use agenda::{Agenda, Branch, Message, Next, Occurrence};
pub use config::{
    Disturbance, HANDOFF_DEFAULT, HOP_DEFAULT, Hostile, HostileKind, Served, SimConfig, SimScaling,
};
use devices::EmulatedDevice;
use scaling::Scaling;
pub use work::{DynamicModule, DynamicWork};

/// Events of one run at most: a policy that never comes to rest is stopped.
const EVENTS_MAX: u64 = 4_000_000_000;

struct Open {
    request: Request,
    /// Device time that it used, in nanoseconds.
    used: u64,
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
    scaling: Option<Scaling>,
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
    fn new(mut config: SimConfig) -> Self {
        if let Some(work) = &config.work {
            // Planners go by what the pipeline says.
            let pipeline = Arc::make_mut(&mut config.pipeline);
            for (module, dynamic) in pipeline.modules.iter_mut().zip(&work.modules) {
                module.schedule = dynamic.as_ref().map(|d| d.schedule.name);
            }
        }
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
                    recipe: pipeline.policy.drop.recipe(),
                    schedule: config.work.as_ref().and_then(|work| {
                        let module = work.modules[module.id.idx()].as_ref()?;
                        Some(module.schedule.clone())
                    }),
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
        let on_devices: Vec<Vec<usize>> = config
            .workers
            .iter()
            .map(|on| on.iter().map(|&device| usize::from(device)).collect())
            .collect();
        let skew_max = config.clock_skew.as_nanos() as f64;
        let devices = brokers
            .into_iter()
            .map(|brokers| EmulatedDevice {
                policy: Device::new(brokers.clone(), config.handoff),
                brokers,
                running: None,
                rerun_since: None,
                bound: VecDeque::new(),
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
            ledger: Ledger::new(&pipeline, &config.planned, &on_devices),
            modules,
            successors: pipeline
                .modules
                .iter()
                .map(|m| pipeline.successors(m.id))
                .collect(),
            places,
            workers,
            devices,
            open: (0..config.arrivals.len()).map(|_| None).collect(),
            checker,
            rng,
            when: config.when_probability,
            pace: vec![1.0; pipeline.modules.len()],
            tally: Tally::new(&config),
            scaling: config.scaling.as_ref().map(Scaling::new),
            config,
        }
    }

    fn start(&mut self) -> Result<(), Violation> {
        for (at, disturbance) in self.config.disturbances.clone() {
            self.agenda.at(at, Occurrence::Disturbance(disturbance));
        }
        for clients in 0..self.config.hostile.len() {
            self.agenda
                .at(Timestamp::ZERO, Occurrence::Hostile(clients));
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
        self.teach()?;
        self.start_scaling()
    }

    /// Earlier requests fill the distributions.
    fn teach(&mut self) -> Result<(), Violation> {
        let Some(work) = self.config.work.clone() else {
            return Ok(());
        };
        for (module, dynamic) in work.modules.iter().enumerate() {
            let Some(dynamic) = dynamic else { continue };
            for worker in self.workers[module].clone() {
                let device = self.places[worker.idx()].0;
                for &(application, length_ms) in work.history.iter() {
                    let ms = dynamic.time.alone_ms(length_ms);
                    let ran = DeviceEvent::Ran {
                        worker,
                        application,
                        took: Duration::from_nanos((ms * 1e6).round() as u64),
                    };
                    self.drive_device(device, ran)?;
                }
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
        let id = RequestId(i as u64);
        let timeout = self
            .config
            .hurried
            .filter(|(part, _)| self.rng.random::<f64>() < *part)
            .map(|(_, share)| self.config.pipeline.slo.mul_f64(share));
        let application = match &self.config.work {
            Some(work) => work.application(i),
            None => Application::default(),
        };
        self.tally.offered(self.now, application);
        let request = match self.admit(id, timeout) {
            Ok(request) => Request {
                application,
                ..request
            },
            Err(refusal) => {
                self.tally.refused(refusal.reason().label());
                return Ok(());
            }
        };
        self.checker.accepted(id)?;
        self.open[id.0 as usize] = Some(Open { request, used: 0 });
        if self.config.cancelled > 0.0 && self.rng.random::<f64>() < self.config.cancelled {
            self.agenda.at(
                self.now + self.config.pipeline.slo / 2,
                Occurrence::Leave(id),
            );
        }
        self.passed(ModuleId::SOURCE, &[(request, true)])
    }

    fn admit(&mut self, id: RequestId, timeout: Option<Duration>) -> Result<Request, Refusal> {
        let offer = Offer {
            sent_at: self.now,
            timeout,
            decoding: Duration::ZERO,
        };
        self.ledger.admit(self.now, id, &offer)
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
            Message::Forgotten { module, request } => {
                self.note(18, request.0);
                match self.ledger.forgotten(request) {
                    true => self.drive_module(module, ModuleEvent::Unasked),
                    false => Ok(()),
                }
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
            Message::Offered { to, rate } => self.drive_module(to, ModuleEvent::Offered(rate)),
            Message::Peer { to, state } => {
                self.note(8, u64::from(to.0) << 32 | state.version);
                if to == ModuleId::SOURCE {
                    let rate = self.ledger.learn(self.now, &state);
                    let to = state.module;
                    self.agenda.send(self.now, Message::Offered { to, rate });
                }
                self.drive_module(to, ModuleEvent::Peer(Box::new((*state).clone())))
            }
        }
    }

    fn occur(&mut self, occurrence: Occurrence) -> Result<(), Violation> {
        match occurrence {
            Occurrence::BatchStart { device } => self.execute(device),
            // The device was lost meanwhile, and what it ran with it.
            Occurrence::BatchEnd { device, life, .. }
            | Occurrence::RerunEnd { device, life, .. }
                if self.devices[device].life != life =>
            {
                Ok(())
            }
            Occurrence::BatchEnd { device, batch, .. } => {
                self.note(9, (device as u64) << 40 | batch.0);
                self.batch_end(device)
            }
            Occurrence::RerunEnd { device, batch, .. } => {
                self.note(16, (device as u64) << 40 | batch.0);
                self.rerun_end(device, batch)
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
            Occurrence::Hostile(clients) => self.offer_hostile(clients),
            Occurrence::Leave(request) => {
                self.note(12, request.0);
                let drop = self.drop_of(request, ModuleId::SOURCE, DropReason::Cancelled, None);
                drop.map_or(Ok(()), |drop| {
                    self.end_early(request, Outcome::Dropped(drop))
                })
            }
            Occurrence::Disturbance(disturbance) => self.disturb(disturbance),
            Occurrence::Scale => self.scale(),
            Occurrence::ColdStarted { module, ordinal } => self.cold_started(module, ordinal),
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

    fn ended(&mut self, id: RequestId, outcome: Outcome) -> Result<(), Violation> {
        self.checker.ended(id, outcome)?;
        let open = self.open[id.0 as usize].take().expect("what ends was open");
        if self.counts(id) {
            self.tally
                .ended(&open.request, self.now, outcome, open.used);
        } else {
            self.tally.wasted(open.used);
        }
        Ok(())
    }

    fn end_early(&mut self, id: RequestId, outcome: Outcome) -> Result<(), Violation> {
        let Some(ended) = self.ledger.end(id) else {
            return Ok(());
        };
        self.ended(id, outcome)?;
        let mut told = 0;
        for module in 0..self.modules.len() as u16 {
            let mut commands = Vec::new();
            self.modules[usize::from(module)].on_event(
                self.now,
                ModuleEvent::Forget(id),
                &mut commands,
            );
            let cancels = commands.iter();
            told += cancels
                .filter(|c| matches!(c, Command::CancelAt { .. }))
                .count();
            self.perform(ModuleId(module), commands)?;
        }
        if outcome.is_clients_doing() {
            self.ledger.gives_back(self.now, &ended, told);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
