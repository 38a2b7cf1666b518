//! The world around the policies: virtual time, messages that travel, devices that take their time.

mod agenda;
mod cameras;
mod cluster;
mod config;
mod crashes;
mod devices;
mod fleets;
mod gateways;
mod hostile;
mod memory;
mod noted;
mod roles;
mod rollouts;
mod traffic;
mod travel;
mod work;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spillgate_controller_policy::gateway::{Ended, Event as GatewayEvent};
use spillgate_controller_policy::module::{ControllerEvent, ModuleController};
use spillgate_controller_policy::rollout::Outcomes;
use spillgate_controller_policy::shares::Party;
use spillgate_pipeline::id::{DeviceId, GatewayId, Incarnation, ModuleId, RequestId, WorkerId};
use spillgate_pipeline::invariants::{Checker, Violation};
use spillgate_pipeline::pipeline::PortRef;
use spillgate_pipeline::request::Outcome;
use spillgate_pipeline::schedule::Application;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{Address, Filled, Place, Places};
use spillgate_worker_policy::broker::BrokerConfig;
use spillgate_worker_policy::device::DeviceEvent;

use crate::accuracies::Accuracies;
use crate::report::{Report, Tally};
use agenda::{Agenda, Next, Occurrence};
use cameras::Cameras;
pub use cameras::{CameraFigures, FrameBits, FramesReport, SimCamera};
pub use cluster::{Bug, ClusterReport, Traffic, Travelled};
use cluster::{Clock, Cluster, Due};
pub use config::{
    Disturbance, HANDOFF_DEFAULT, HOP_DEFAULT, Hostile, HostileKind, Served, SimConfig, SimScaling,
};
use crashes::Life;
use devices::EmulatedDevice;
use fleets::Placed;
pub use fleets::SimFleet;
use gateways::SimGateway;
use noted::{Kind, Noted};
use travel::Travel;
pub use work::{DynamicModule, DynamicWork};

/// Events of one run at most: a policy that never comes to rest is stopped.
pub(crate) const EVENTS_MAX: u64 = 4_000_000_000;

/// The first incarnation of each process.
const FIRST: Incarnation = Incarnation(0);

struct World {
    config: SimConfig,
    now: Timestamp,
    agenda: Agenda,
    noted: Noted,
    gateways: Vec<SimGateway>,
    controllers: Vec<ModuleController>,
    controller_lives: Vec<Life>,
    places: Vec<Place>,
    /// The same by id.
    all_places: Places,
    /// The processes, where they exchange only messages.
    cluster: Option<Box<Cluster>>,
    /// By module: the outputs that a `when:` looks at.
    watched: Vec<Vec<PortRef>>,
    /// Workers of each module.
    workers: Vec<Vec<WorkerId>>,
    devices: Vec<EmulatedDevice>,
    /// By ordinal of the configuration.
    fleets: Vec<Placed>,
    /// The ordinal of the next request beside the workload: of a hostile client or of a camera.
    next_beside: u64,
    cameras: Cameras,
    checker: Checker,
    rng: ChaCha8Rng,
    when: f64,
    pace: Vec<f64>,
    tally: Tally,
    /// By gateway: what its requests came to, as a rollout judges them.
    outcomes: Vec<Outcomes>,
}

/// Runs a configuration to its end.
///
/// # Errors
/// The first invariant that did not hold.
pub fn run(config: SimConfig) -> Result<Report, Violation> {
    if let Some(rollouts) = (config.cluster.as_ref()).and_then(|c| c.rollouts.clone()) {
        return rollouts::run(config, rollouts);
    }
    let mut world = World::new(config);
    world.start()?;
    while !world.is_over()
        && let Some((at, next)) = world.agenda.next()
    {
        world.advance(at)?;
        world.step(next)?;
    }
    world.finish()
}

impl World {
    /// The time is `at`.
    fn advance(&mut self, at: Timestamp) -> Result<(), Violation> {
        self.checker.time(at)?;
        self.now = at;
        assert!(
            self.noted.events() < EVENTS_MAX,
            "the run does not come to rest"
        );
        Ok(())
    }

    /// The run is over.
    fn finish(mut self) -> Result<Report, Violation> {
        self.checker.finished()?;
        self.check_members()?;
        self.count_fleets();
        self.count_memory();
        let cluster = self.cluster_report();
        let World {
            tally,
            config,
            noted,
            cameras,
            ..
        } = self;
        let mut report = tally.finish(&config, noted.events(), noted.hash());
        report.cluster = cluster;
        report.cameras = cameras.report(config.duration.saturating_sub(config.warm_up));
        Ok(report)
    }

    fn new(mut config: SimConfig) -> Self {
        if let Some(work) = &config.work {
            // State Planners read from the pipeline which scheduler a module has.
            let pipeline = Arc::make_mut(&mut config.pipeline);
            for (module, dynamic) in pipeline.modules.iter_mut().zip(&work.modules) {
                module.schedule = dynamic.as_ref().map(|d| d.schedule.policy);
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
        let mut fleet_of = vec![None; n_devices];
        for (i, fleet) in config.fleets.iter().enumerate() {
            for &device in &fleet.devices {
                fleet_of[usize::from(device)] = Some(i);
            }
        }
        config.remember_models(n_devices);
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
                let broker = BrokerConfig::of(
                    &pipeline,
                    module.id,
                    config.planned.batch[module.id.idx()],
                    config.planned.execution.of_module(module.id).clone(),
                    config.work.as_ref().and_then(|work| {
                        let module = work.modules[module.id.idx()].as_ref()?;
                        Some(module.schedule.clone())
                    }),
                );
                if fleet_of[usize::from(device)].is_none() {
                    brokers[usize::from(device)].push((worker, broker));
                }
            }
            workers.push(serving);
        }
        let modules = pipeline.modules.iter().map(|m| m.id);
        let controllers: Vec<ModuleController> = modules
            .map(|m| crashes::controller(&config, &places, m, FIRST, Timestamp::ZERO))
            .collect();
        let gateways = (0..config.gateways.len() as u16).map(|id| SimGateway {
            policy: crashes::gateway(&config, &places, GatewayId(id), FIRST, Timestamp::ZERO),
            life: Life::default(),
            armed: Timestamp::MAX,
        });
        let gateways: Vec<SimGateway> = gateways.collect();
        let skew_max = config.clock_skew.as_nanos() as f64;
        let devices = brokers
            .into_iter()
            .zip(fleet_of)
            .enumerate()
            .map(|(device, (brokers, fleet))| EmulatedDevice {
                fleet,
                policy: config.device_policy(device, &brokers),
                brokers,
                running: None,
                rerun_since: None,
                bound: VecDeque::new(),
                is_down: false,
                armed: Timestamp::MAX,
                skew: (skew_max * (2.0 * rng.random::<f64>() - 1.0)) as i64,
                life: 0,
                just_freed: false,
            })
            .collect();
        let travel = Travel::new(config.hop, config.jitter, config.seed);
        let cluster = config.cluster.as_ref();
        let cluster = cluster.map(|c| Box::new(Cluster::new(c, &places, config.bug, config.seed)));
        // A cancellation has to reach its device.
        let longest = match &cluster {
            Some(cluster) => cluster.cancel_delay(),
            None => travel.longest(),
        };
        let checker = Checker::default().cancel_delay(longest);
        World {
            now: Timestamp::ZERO,
            agenda: Agenda::new(travel, config.arrivals.clone()),
            noted: Noted::new(),
            gateways,
            controller_lives: vec![Life::default(); controllers.len()],
            controllers,
            all_places: Places::new(&places),
            cluster,
            places,
            watched: pipeline.watched(),
            workers,
            devices,
            fleets: config.fleets.iter().map(Placed::new).collect(),
            next_beside: config.arrivals.len() as u64,
            cameras: Cameras::new(
                &config.cameras,
                config.gateways.len(),
                Accuracies::of(&config.pipeline),
            ),
            checker,
            rng,
            when: config.when_probability,
            pace: vec![1.0; pipeline.modules.len()],
            tally: Tally::new(&config),
            outcomes: vec![Outcomes::default(); config.gateways.len()],
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
        self.start_cameras();
        match self.cluster {
            Some(_) => self.start_cluster()?,
            None => self.greet()?,
        }
        self.teach()
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

    /// Something happened to `subject`.
    fn note(&mut self, kind: Kind, subject: u64) {
        self.noted.note(self.now, kind, subject);
    }

    /// Whether nothing is left that the report would show. Sessions go on for ever, and so do the asks of idle devices.
    fn is_over(&self) -> bool {
        let pipeline = &self.config.pipeline;
        let goes_on =
            self.cluster.is_some() || pipeline.modules.iter().any(|m| pipeline.is_pulled(m.id));
        self.all_answered() && goes_on
    }

    /// Whether no request is to come or under way.
    fn all_answered(&self) -> bool {
        self.agenda.all_offered() && self.cameras.are_done() && self.in_flight() == 0
    }

    /// The clock of a role.
    fn clock(&self, role: Address) -> Clock {
        match (&self.cluster, role) {
            (Some(cluster), _) => cluster.clock(role),
            (None, Address::Device(id)) => Clock {
                ahead: self.devices[id.idx()].skew,
                ppm: 0,
            },
            (None, _) => Clock::default(),
        }
    }

    fn step(&mut self, next: Next) -> Result<(), Violation> {
        let next = match next {
            Next::Occurrence(occurrence) => match self.stalled_until(&occurrence) {
                Some(until) => {
                    self.agenda.at(until, occurrence);
                    return Ok(());
                }
                None => Next::Occurrence(occurrence),
            },
            next => next,
        };
        match next {
            Next::Offer(i) => self.offer_next(i),
            Next::Message(message) => self.deliver(message),
            Next::Occurrence(occurrence) => self.occur(occurrence),
        }
    }

    fn offer_next(&mut self, i: usize) -> Result<(), Violation> {
        let owner = self.owner_of_next();
        self.offer_ordinal(owner, i)
    }

    /// The request of that ordinal goes to a gateway, once that does something. `None`: no gateway can be reached.
    fn offer_ordinal(&mut self, owner: Option<GatewayId>, i: usize) -> Result<(), Violation> {
        self.note(Kind::Offer, i as u64);
        let stalls = owner.and_then(|id| {
            let cluster = self.cluster.as_ref()?;
            cluster.stalled(self.now, Address::Gateway(id))
        });
        match (owner, stalls) {
            (Some(owner), Some(until)) => {
                let due = Due::Offer { ordinal: i, owner };
                self.agenda.at(until, Occurrence::Cluster(due));
                Ok(())
            }
            (Some(owner), None) => self.offer_to(owner, i),
            (None, _) => {
                if self.is_reported(i) {
                    let application = self.application(i);
                    self.tally.offered(self.now, application);
                    self.tally.refused("unreachable");
                }
                Ok(())
            }
        }
    }

    fn application(&self, i: usize) -> Application {
        let sender = self.config.clients.as_ref().and_then(|c| c.sender(i));
        match (&self.config.work, sender) {
            (Some(work), _) => work.application(i),
            (None, Some(sender)) => sender.application,
            (None, None) => Application::default(),
        }
    }

    /// Whether the request of that ordinal comes after the warm-up.
    fn is_reported(&self, i: usize) -> bool {
        self.config.arrivals[i] >= Timestamp::ZERO + self.config.warm_up
    }

    /// The request of that ordinal comes to a gateway.
    fn offer_to(&mut self, owner: GatewayId, i: usize) -> Result<(), Violation> {
        let id = match &mut self.cluster {
            Some(cluster) => cluster.next_id(owner, i as u64),
            None => RequestId::at(owner, FIRST, i as u64),
        };
        let hurried = self.config.hurried;
        let hurried = hurried.filter(|(part, _)| self.rng.random::<f64>() < *part);
        let hurried = hurried.map(|(_, share)| self.config.pipeline.slo.mul_f64(share));
        let stated = self.config.timeouts.as_ref().map(|all| all[i]);
        let timeout = [hurried, stated].into_iter().flatten().min();
        let application = self.application(i);
        let clients = self.config.clients.as_ref();
        let party = clients.map_or(Party::ONLY, |c| c.requests[i].1);
        let is_reported = self.is_reported(i);
        match party.background {
            _ if !is_reported => {}
            true => self.tally.offered_background(),
            false => self.tally.offered(self.now, application),
        }
        let admitted = match self.gateways[owner.idx()].life.is_down {
            true => Err("unreachable"),
            false => {
                let offer = self.offer(id, timeout, application, party);
                let admitted = self.admit(id, &offer);
                if admitted.is_err() && !party.background {
                    self.outcomes[owner.idx()].dropped += 1;
                }
                admitted.map_err(|refusal| refusal.label())
            }
        };
        let admitted = match admitted {
            Ok(admitted) => admitted,
            Err(_) if party.background || !is_reported => return Ok(()),
            Err(reason) => {
                self.tally.refused(reason);
                return Ok(());
            }
        };
        self.checker.accepted(id)?;
        if self.cluster.is_some() {
            self.must_end(owner, &admitted);
        }
        if self.config.cancelled > 0.0 && self.rng.random::<f64>() < self.config.cancelled {
            self.agenda.at(
                self.now + self.config.pipeline.slo / 2,
                Occurrence::Leave(id),
            );
        }
        let filled = self.filled(ModuleId::SOURCE);
        self.drive_gateway(owner, GatewayEvent::Read(id, Ok(filled)))
    }

    /// Which outputs of a module are not empty for a request, as far as a `when:` looks at them.
    fn filled(&mut self, module: ModuleId) -> Filled {
        let (rng, when) = (&mut self.rng, self.when);
        let ports = self.watched[module.idx()].iter();
        ports.fold(Filled::default(), |filled, port| {
            if rng.random::<f64>() < when {
                filled.with(port.port)
            } else {
                filled
            }
        })
    }

    fn occur(&mut self, occurrence: Occurrence) -> Result<(), Violation> {
        match occurrence {
            // The device was lost meanwhile, and its running batch with it.
            Occurrence::BatchStart { device, life }
            | Occurrence::BatchEnd { device, life, .. }
            | Occurrence::RerunEnd { device, life, .. }
            | Occurrence::ReadEnd { device, life }
                if self.devices[device].life != life =>
            {
                Ok(())
            }
            Occurrence::BatchStart { device, .. } => self.execute(device),
            Occurrence::BatchEnd { device, batch, .. } => {
                self.note(Kind::BatchEnd, (device as u64) << 40 | batch.0);
                self.batch_end(device)
            }
            Occurrence::RerunEnd { device, batch, .. } => {
                self.note(Kind::RerunEnd, (device as u64) << 40 | batch.0);
                self.rerun_end(device, batch)
            }
            Occurrence::DeviceWakeup { device } => {
                if self.devices[device].armed <= self.now {
                    self.devices[device].armed = Timestamp::MAX;
                }
                self.note(Kind::DeviceWakeup, device as u64);
                self.drive_device(device, DeviceEvent::Wakeup)
            }
            Occurrence::GatewayWakeup { owner } => {
                let armed = &mut self.gateways[owner].armed;
                if *armed <= self.now {
                    *armed = Timestamp::MAX;
                }
                self.note(Kind::GatewayWakeup, owner as u64);
                self.drive_gateway(GatewayId(owner as u16), GatewayEvent::Wakeup)
            }
            // The controller began anew meanwhile, with wakeups of its own.
            Occurrence::ControllerWakeup { module, life }
                if !self.controller_lives[module.idx()].is(life) =>
            {
                Ok(())
            }
            Occurrence::ControllerWakeup { module, life } => {
                self.note(Kind::ControllerWakeup, u64::from(module.0));
                self.drive_controller(module, ControllerEvent::Wakeup)?;
                // Planners exchange states forever; when no request is to come or under way the run is over.
                if !self.all_answered() {
                    self.arm_controller(module, life);
                }
                Ok(())
            }
            Occurrence::Hostile(clients) => self.offer_hostile(clients),
            Occurrence::Camera { camera, due } => self.on_camera(camera, due),
            Occurrence::Leave(request) => {
                self.note(Kind::Leave, request.0);
                self.drive_gateway(request.owner(), GatewayEvent::Cancel(request))
            }
            Occurrence::Disturbance(disturbance) => self.disturb(disturbance),
            Occurrence::ReadEnd { device, .. } => self.read_end(device),
            Occurrence::Cluster(due) => self.fall_due(due),
            Occurrence::Placed { fleet, device, due } => self.placed_due(fleet, device, due),
            Occurrence::FleetWakeup { fleet } => self.wake_fleet(fleet),
        }
    }

    fn ended(&mut self, ended: &Ended<u64>) -> Result<(), Violation> {
        let (mut request, outcome, used) = (ended.request, ended.outcome, ended.payload);
        self.checker.ended(request.id, outcome)?;
        if !request.background && !outcome.is_clients_doing() {
            let of = &mut self.outcomes[request.id.owner().idx()];
            match outcome {
                Outcome::Completed => of.in_time += 1,
                Outcome::Late => of.late += 1,
                Outcome::Dropped(_) => of.dropped += 1,
                Outcome::Failed { .. } => of.failed += 1,
            }
        }
        let ordinal = self.ordinal(request.id) as usize;
        let of_camera = self.frame_ended(&request, outcome);
        let counts = match of_camera {
            Some(counts) => counts,
            None if !self.counts(request.id) => {
                self.tally.wasted(used);
                return Ok(());
            }
            None => self.is_reported(ordinal),
        };
        if counts {
            let owner = Address::Gateway(request.id.owner());
            request.sent_at = self.clock(owner).moment(request.sent_at);
            self.tally.ended(&request, ordinal, self.now, outcome, used);
        } else {
            self.tally.used(used);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
