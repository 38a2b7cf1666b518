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
use spillgate_controller_policy::gateway::{
    Command, Ended, Event as GatewayEvent, Gateway, Member,
};
use spillgate_controller_policy::ledger::{Offer, Refusal};
use spillgate_controller_policy::message::{Place, ToController, ToGateway};
use spillgate_controller_policy::module::{
    Command as ControllerCommand, Event as ControllerEvent, ModuleController,
};
use spillgate_pipeline::id::{ClientId, DeviceId, ModuleId, RequestId, WorkerId};
use spillgate_pipeline::invariants::{Checker, Violation};
use spillgate_pipeline::message::ToDevice;
use spillgate_pipeline::request::Request;
use spillgate_pipeline::schedule::Application;
use spillgate_pipeline::time::Timestamp;
use spillgate_worker_policy::broker::BrokerConfig;
use spillgate_worker_policy::device::{Device, Event as DeviceEvent};
use spillgate_worker_policy::policy::BrokerPolicy;

use crate::report::{Report, Tally};
use agenda::{Agenda, Message, Next, Occurrence};
pub use config::{
    Disturbance, HANDOFF_DEFAULT, HOP_DEFAULT, Hostile, HostileKind, Served, SimConfig, SimScaling,
};
use devices::EmulatedDevice;
use scaling::Scaling;
pub use work::{DynamicModule, DynamicWork};

/// Events of one run at most: a policy that never comes to rest is stopped.
const EVENTS_MAX: u64 = 4_000_000_000;

type GatewayCommand = Command<u64, ()>;

struct World {
    config: SimConfig,
    now: Timestamp,
    agenda: Agenda,
    hash: u64,
    events: u64,
    /// It keeps, of each open request, the device time that it used, in nanoseconds.
    gateway: Gateway<u64, ()>,
    controllers: Vec<ModuleController>,
    places: Vec<Place>,
    /// Workers of each module.
    workers: Vec<Vec<WorkerId>>,
    devices: Vec<EmulatedDevice>,
    /// The id of the next request of hostile clients.
    next_hostile: u64,
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
        for module in &pipeline.modules {
            let mut serving = Vec::new();
            for &device in &config.workers[module.id.idx()] {
                let worker = WorkerId(places.len() as u32);
                places.push(Place {
                    worker,
                    module: module.id,
                    device: DeviceId(device),
                });
                serving.push(worker);
                let broker = BrokerConfig {
                    module: module.id,
                    capacity: module.queue,
                    batch: config.planned.batch[module.id.idx()],
                    execution: config.planned.execution[module.id.idx()].clone(),
                    policy: BrokerPolicy::by_name(pipeline.policy.drop),
                    schedule: config.work.as_ref().and_then(|work| {
                        let module = work.modules[module.id.idx()].as_ref()?;
                        Some(module.schedule.clone())
                    }),
                };
                brokers[usize::from(device)].push((worker, broker));
            }
            workers.push(serving);
        }
        let controller =
            |id| ModuleController::new(&pipeline, id, &config.planned, &places, config.seed);
        let controllers = pipeline.modules.iter().map(|m| controller(m.id)).collect();
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
            gateway: Gateway::new(&pipeline, &config.planned, &places, config.seed),
            controllers,
            places,
            workers,
            devices,
            next_hostile: config.arrivals.len() as u64,
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
        for module in 0..self.controllers.len() {
            let id = ModuleId(module as u16);
            if let Some(at) = self.controllers[module].next_wakeup() {
                self.agenda
                    .at(at, Occurrence::ControllerWakeup { module: id });
            }
            let mut commands = Vec::new();
            self.controllers[module].start(&mut commands);
            for command in commands {
                match command {
                    ControllerCommand::ToGateway(message) => {
                        self.drive_gateway(GatewayEvent::Controller(message))?;
                    }
                    ControllerCommand::ToDevice(device, message) => {
                        self.tell_device(device, message)?;
                    }
                    _ => {}
                }
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
                let device = self.places[worker.idx()].device.idx();
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
        if let Err(refusal) = self.admit(id, timeout, application) {
            self.tally.refused(refusal.reason().label());
            return Ok(());
        }
        self.checker.accepted(id)?;
        if self.config.cancelled > 0.0 && self.rng.random::<f64>() < self.config.cancelled {
            self.agenda.at(
                self.now + self.config.pipeline.slo / 2,
                Occurrence::Leave(id),
            );
        }
        self.done(ModuleId::SOURCE, &[came(id)])
    }

    fn admit(
        &mut self,
        id: RequestId,
        timeout: Option<Duration>,
        application: Application,
    ) -> Result<Request, Refusal> {
        let offer = Offer {
            sent_at: self.now,
            timeout,
            decoding: Duration::ZERO,
            application,
            client: ClientId::default(),
        };
        self.gateway.admit(self.now, id, &offer, 0, ())
    }

    /// A module ran for requests.
    fn done(&mut self, module: ModuleId, members: &[Member]) -> Result<(), Violation> {
        let (rng, when) = (&mut self.rng, self.when);
        let mut commands = Vec::new();
        let done = GatewayEvent::Done {
            module,
            members,
            holds: &mut |_, _| rng.random::<f64>() < when,
        };
        self.gateway.on_event(self.now, done, &mut commands);
        self.follow_gateway(commands)
    }

    fn deliver(&mut self, message: Message) -> Result<(), Violation> {
        match message {
            Message::Branches(branches) => {
                for branch in &branches.members {
                    self.note(2, branch.request.0 << 8 | u64::from(branches.to.0));
                }
                self.drive_gateway(GatewayEvent::Branches(branches))
            }
            Message::Started {
                worker,
                size,
                expected_end,
            } => {
                self.note(3, u64::from(worker.0));
                self.drive_gateway(GatewayEvent::Started {
                    worker,
                    size,
                    expected_end,
                })
            }
            Message::Ended { members, report } => {
                for member in &members {
                    self.note(4, member.0);
                }
                let members = &members;
                self.drive_gateway(GatewayEvent::Ended { members, report })
            }
            Message::Forgotten { worker, request } => {
                self.note(18, request.0);
                self.drive_gateway(GatewayEvent::Forgotten(worker, request))
            }
            Message::Returned { worker, request } => {
                self.note(5, request.0);
                self.drive_gateway(GatewayEvent::Returned(worker, request))
            }
            Message::Device { device, message } => {
                match &message {
                    ToDevice::Cancel(request) => self.note(6, request.0),
                    ToDevice::Guide(_, guidance) => {
                        self.note(7, guidance.downstream.as_nanos() as u64);
                    }
                    _ => {}
                }
                self.tell_device(device, message)
            }
            Message::State(state) => {
                self.note(8, state.version);
                let peer = ToController::Peer(state.clone());
                self.drive_gateway(GatewayEvent::Controller(ToGateway::State(state)))?;
                self.drive_controller(ModuleId::SOURCE, ControllerEvent::Message(peer))
            }
            Message::Controller { to, message } => {
                if let ToController::Peer(state) = &message {
                    self.note(8, u64::from(to.0) << 32 | state.version);
                }
                self.drive_controller(to, ControllerEvent::Message(message))
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
                self.drive_controller(module, ControllerEvent::Wakeup)?;
                // Planners exchange states forever; when no request is to come or under way the run is over.
                if !(self.agenda.all_offered() && self.gateway.in_flight() == 0)
                    && let Some(at) = self.controllers[module.idx()].next_wakeup()
                {
                    self.agenda.at(at, Occurrence::ControllerWakeup { module });
                }
                Ok(())
            }
            Occurrence::Hostile(clients) => self.offer_hostile(clients),
            Occurrence::Leave(request) => {
                self.note(12, request.0);
                self.drive_gateway(GatewayEvent::Cancel(request))
            }
            Occurrence::Disturbance(disturbance) => self.disturb(disturbance),
            Occurrence::Scale => self.scale(),
            Occurrence::ColdStarted { module, ordinal } => self.cold_started(module, ordinal),
        }
    }

    fn drive_gateway(&mut self, event: GatewayEvent<'_>) -> Result<(), Violation> {
        let mut commands = Vec::new();
        self.gateway.on_event(self.now, event, &mut commands);
        self.follow_gateway(commands)
    }

    fn follow_gateway(&mut self, commands: Vec<GatewayCommand>) -> Result<(), Violation> {
        for command in commands {
            match command {
                Command::ToDevice(device, message @ ToDevice::Requests(_)) => {
                    self.tell_device(device, message)?;
                }
                Command::ToDevice(device, message) => {
                    self.agenda
                        .send(self.now, Message::Device { device, message });
                }
                Command::ToController(to, message @ ToController::Offered(_)) => {
                    self.agenda
                        .send(self.now, Message::Controller { to, message });
                }
                Command::ToController(to, message) => {
                    self.drive_controller(to, ControllerEvent::Message(message))?;
                }
                Command::Branches(branches) => {
                    self.agenda.send(self.now, Message::Branches(branches));
                }
                Command::End(ended) => self.ended(&ended)?,
            }
        }
        Ok(())
    }

    fn drive_controller(
        &mut self,
        module: ModuleId,
        event: ControllerEvent,
    ) -> Result<(), Violation> {
        let mut commands = Vec::new();
        self.controllers[module.idx()].on_event(self.now, event, &mut commands);
        self.follow_controller(module, commands)
    }

    fn follow_controller(
        &mut self,
        module: ModuleId,
        commands: Vec<ControllerCommand<()>>,
    ) -> Result<(), Violation> {
        // States to the source's controller travel with those to the gateway.
        let mut lost = Vec::new();
        for command in commands {
            match command {
                ControllerCommand::ToGateway(ToGateway::State(state)) => {
                    let loss = self.config.exchange_loss;
                    let rng = &mut self.rng;
                    let is_lost = |_| loss > 0.0 && rng.random::<f64>() < loss;
                    lost = (0..self.controllers.len()).map(is_lost).collect();
                    if module != ModuleId::SOURCE && !lost[ModuleId::SOURCE.idx()] {
                        self.agenda.send(self.now, Message::State(state));
                    }
                }
                ControllerCommand::ToGateway(message) => {
                    self.drive_gateway(GatewayEvent::Controller(message))?;
                }
                ControllerCommand::ToController(to, message) => {
                    if to != ModuleId::SOURCE && !lost[to.idx()] {
                        self.agenda
                            .send(self.now, Message::Controller { to, message });
                    }
                }
                ControllerCommand::ToDevice(device, message) => {
                    self.agenda
                        .send(self.now, Message::Device { device, message });
                }
                ControllerCommand::Compute(computation) => {
                    let computed = ControllerEvent::Computed(Box::new(computation.run()));
                    self.drive_controller(module, computed)?;
                }
            }
        }
        Ok(())
    }

    fn tell_device(&mut self, device: DeviceId, message: ToDevice<()>) -> Result<(), Violation> {
        let device = device.idx();
        match message {
            ToDevice::Requests(mut requests) => {
                self.drive_device(device, DeviceEvent::Arrivals(&mut requests))
            }
            ToDevice::Cancel(request) => self.drive_device(device, DeviceEvent::Cancel(request)),
            ToDevice::Withdraw(request, reason) => {
                self.drive_device(device, DeviceEvent::Withdraw(request, reason))
            }
            ToDevice::Guide(worker, guidance) => {
                self.drive_device(device, DeviceEvent::Guide(worker, guidance))
            }
            ToDevice::Load(_) | ToDevice::Unload(_) => Ok(()),
        }
    }

    fn ended(&mut self, ended: &Ended<u64>) -> Result<(), Violation> {
        let (request, outcome, used) = (&ended.request, ended.outcome, ended.payload);
        self.checker.ended(request.id, outcome)?;
        if self.counts(request.id) {
            self.tally.ended(request, self.now, outcome, used);
        } else {
            self.tally.wasted(used);
        }
        Ok(())
    }
}

/// A request came in, and the source has read it.
fn came(request: RequestId) -> Member {
    Member {
        request,
        result: Ok(()),
    }
}

#[cfg(test)]
mod tests;
