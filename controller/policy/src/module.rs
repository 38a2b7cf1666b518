//! The controller of one module: its State Planner and its scaler. It handles no requests. It receives reports, and
//! sends guidance to workers, plans to gateways and the list of workers.

mod clients;
mod following;
mod reported;
pub(crate) mod slow;
mod workers;

use std::sync::Arc;
use std::time::Duration;

use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::{DeviceId, GatewayId, Incarnation, ModuleId, WorkerId};
use spillgate_pipeline::policy::Guidance;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{
    Address, Envelope, Message, ModuleState, Place, Sessions, ToController, ToDevice, ToGateway,
};

use crate::plan::Planned;
use crate::planner::{Computation, Computed, StatePlanner};
use crate::scaling::{self, CarriedOut, LocalWorkers, ModuleScaling, SCALING_PERIOD, Scaler};
use clients::ClientReports;
pub use following::WorkersView;
use reported::Reported;
use slow::SlowWorkers;
use workers::Worker;

/// So long after it began, all gateways have greeted a controller: they dial at least every 5 s.
const GATEWAYS_KNOWN_AFTER: Duration = Duration::from_secs(6);

/// What happens at a controller.
#[derive(Debug)]
pub enum ControllerEvent {
    /// These workers join. They get requests once their devices have greeted. Those of other modules are ignored.
    Joined(Vec<Place>),
    /// A device is none of the pipeline's any more. Its id, and those of its workers, may be given to others.
    Left(DeviceId),
    /// A peer greets: a process began, or a connection to it.
    Greeted(Address, Incarnation),
    /// A peer is gone.
    Lost(Address),
    /// A peer is silent. It may be slow, or dead.
    Suspected(Address),
    /// A suspected peer spoke again.
    Trusted(Address),
    /// A peer sent a message in that incarnation.
    Message(Address, Incarnation, ToController),
    /// The time of [`ModuleController::next_wakeup`] has come.
    Wakeup,
    /// An estimate that a command asked for is finished.
    Computed(Box<Computed>),
}

/// What the driver must do, in this order. `L` is the payload of requests to workers; a controller sends no requests.
#[derive(Debug)]
pub enum ControllerCommand<L> {
    /// Send this.
    Send(Envelope<L>),
    /// Make this estimate and bring back the result. It takes thousands of draws, so no lock may be held meanwhile.
    Compute(Box<Computation>),
}

/// What a controller is built from.
#[derive(Clone, Copy, Debug)]
pub struct ControllerConfig<'a> {
    /// Its module.
    pub module: ModuleId,
    /// The incarnation of this controller.
    pub incarnation: Incarnation,
    /// Its pipeline.
    pub pipeline: &'a Arc<Pipeline>,
    /// Batch sizes and execution times.
    pub planned: &'a Arc<Planned>,
    /// The pipeline's first workers.
    pub places: &'a [Place],
    /// How the number of workers follows the load; `None`: it is fixed, and all serve all the time.
    pub scaling: Option<ModuleScaling>,
    /// Seed of the planner's draws.
    pub seed: u64,
    /// When this incarnation began.
    pub born: Timestamp,
}

/// The controller of one module of one pipeline.
pub struct ModuleController {
    module: ModuleId,
    incarnation: Incarnation,
    born: Timestamp,
    n_modules: usize,
    /// By ordinal.
    workers: Vec<Worker>,
    slow: SlowWorkers,
    /// The gateway that tries a worker next.
    tries_with: usize,
    gateways: Vec<GatewayId>,
    sessions: Sessions,
    reported: Reported,
    clients: ClientReports,
    planner: StatePlanner,
    scaler: Scaler,
    /// `None`: the number of workers is fixed.
    scales_at: Option<Timestamp>,
    /// Where the workers that are wanted start and retire in this process.
    local: Option<LocalWorkers>,
    n_ignored: u64,
}

impl ModuleController {
    /// A controller that no peer has greeted yet.
    pub fn new(config: &ControllerConfig<'_>) -> Self {
        let &ControllerConfig {
            module,
            incarnation,
            pipeline,
            planned,
            places,
            scaling,
            seed,
            born,
        } = config;
        let of_module = places.iter().filter(|p| p.module == module);
        let mut workers: Vec<Worker> = of_module.map(|place| Worker::new(*place)).collect();
        let local = scaling.filter(|of| of.carried_out == CarriedOut::Here);
        let local = local.map(LocalWorkers::new);
        for ordinal in local.iter().flat_map(LocalWorkers::off_at_first) {
            workers[ordinal as usize].serves = false;
        }
        let n_workers = workers.len() as u32;
        let scaling_or_fixed = scaling.unwrap_or(ModuleScaling::fixed(n_workers));
        let up = workers.iter().filter(|worker| worker.serves).count();
        ModuleController {
            module,
            incarnation,
            born,
            n_modules: pipeline.modules.len(),
            planner: StatePlanner::new(pipeline.clone(), module, planned.clone(), up, seed, born),
            slow: SlowWorkers::new(workers.len()),
            tries_with: 0,
            workers,
            gateways: Vec::new(),
            sessions: Sessions::default(),
            reported: Reported::default(),
            clients: ClientReports::default(),
            scaler: Scaler::new(scaling_or_fixed, born),
            scales_at: scaling.map(|_| born + SCALING_PERIOD),
            local,
            n_ignored: 0,
        }
    }

    /// The current guidance of the module's brokers.
    pub fn guidance(&self) -> Guidance {
        self.planner.guidance()
    }

    /// The state that was published last.
    pub fn published(&self) -> Option<&ModuleState> {
        self.planner.published()
    }

    /// Messages that were ignored: of another life, or not their sender's to say.
    pub fn n_ignored(&self) -> u64 {
        self.n_ignored
    }

    /// The next moment at which something happens without an event from outside.
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        let all = [
            self.planner.next_wakeup(),
            self.scales_at,
            self.slow.next_trial(),
        ];
        all.into_iter().flatten().min()
    }

    /// Whether it says anew each second what it said before. Under a policy that does not adapt, it says it to each that greets.
    pub fn repeats(&self) -> bool {
        self.planner.next_wakeup().is_some()
    }

    /// Takes in one event.
    pub fn on_event<L>(
        &mut self,
        now: Timestamp,
        event: ControllerEvent,
        out: &mut Vec<ControllerCommand<L>>,
    ) {
        match event {
            ControllerEvent::Greeted(peer, incarnation) => {
                self.greeted(now, peer, incarnation, out)
            }
            ControllerEvent::Joined(places) => self.join(&places),
            ControllerEvent::Left(device) => self.forget(now, device, out),
            ControllerEvent::Lost(peer) => self.lost(now, peer, out),
            ControllerEvent::Suspected(peer) => self.doubt(peer, true, out),
            ControllerEvent::Trusted(peer) => self.doubt(peer, false, out),
            ControllerEvent::Message(from, incarnation, message) => {
                if self.sessions.counts(from, incarnation) && self.may_say(from, &message) {
                    self.hear(now, from, incarnation, message, out);
                } else {
                    self.n_ignored += 1;
                }
            }
            ControllerEvent::Wakeup => self.wake(now, out),
            ControllerEvent::Computed(computed) => {
                let guidance = self.planner.computed(*computed);
                if !self.hears_no_worker() {
                    self.tell_plan(now, out);
                    self.guide(guidance, out);
                }
            }
        }
    }

    fn hear<L>(
        &mut self,
        now: Timestamp,
        from: Address,
        incarnation: Incarnation,
        message: ToController,
        out: &mut Vec<ControllerCommand<L>>,
    ) {
        match message {
            ToController::Demand(demand) => {
                if let Address::Gateway(gateway) = from {
                    let more = self.reported.take(now, gateway, incarnation, &demand);
                    self.planner.demanded(now, &more);
                }
            }
            ToController::Clients(report) => {
                if let Address::Gateway(gateway) = from {
                    let portions = self.clients.take(now, gateway, *report);
                    if !self.knows_gateways(now) {
                        // They would divide the capacity among the gateways that happened to greet first.
                        return;
                    }
                    for (to, portion) in portions {
                        let message = ToGateway::Clients(Box::new(portion));
                        self.send(Address::Gateway(to), Message::Gateway(message), out);
                    }
                }
            }
            ToController::Report(report) => self.ran(now, &report, out),
            ToController::Loaded(worker, is_ready) => {
                if let Some(ordinal) = self.ordinal_of(worker) {
                    let event = match is_ready {
                        true => scaling::Event::Started(ordinal),
                        false => scaling::Event::NotStarted(ordinal),
                    };
                    self.scale(now, event, out);
                }
            }
            ToController::Peer(state) => self.planner.peer(incarnation, state),
        }
    }

    /// Whether the message is its sender's to say: a device speaks for its own workers, a controller for its module.
    fn may_say(&self, from: Address, message: &ToController) -> bool {
        let is_on = |worker: WorkerId| {
            let mut places = self.workers.iter().map(|w| w.place);
            places.any(|p| p.worker == worker && from == Address::Device(p.device))
        };
        match message {
            ToController::Demand(_) => matches!(from, Address::Gateway(_)),
            ToController::Clients(_) => {
                self.module == ModuleId::SOURCE && matches!(from, Address::Gateway(_))
            }
            ToController::Report(report) => is_on(report.worker),
            ToController::Loaded(worker, _) => is_on(*worker),
            ToController::Peer(state) => {
                from == Address::Controller(state.module) && state.module.idx() < self.n_modules
            }
        }
    }

    fn wake<L>(&mut self, now: Timestamp, out: &mut Vec<ControllerCommand<L>>) {
        if self.planner.next_wakeup().is_some_and(|at| at <= now) {
            // A worker of a device that has not greeted by now does not count.
            self.planner.set_workers(self.n_up());
            let woken = self.planner.wake(now);
            out.extend(
                woken
                    .compute
                    .map(|c| ControllerCommand::Compute(Box::new(c))),
            );
            if !self.hears_no_worker() {
                if let Some(state) = woken.publish {
                    self.publish(&state, out);
                }
                self.tell_plan(now, out);
                if let Some(guidance) = woken.guidance {
                    self.guide(guidance, out);
                }
            }
        }
        self.try_out(now, out);
        self.follow_load(now, out);
    }

    /// Sends a new peer the current plan, list of workers or guidance.
    fn greeted<L>(
        &mut self,
        now: Timestamp,
        peer: Address,
        incarnation: Incarnation,
        out: &mut Vec<ControllerCommand<L>>,
    ) {
        if self.sessions.knows_other(peer, incarnation) {
            self.lost(now, peer, out);
        }
        self.sessions.greet(peer, incarnation);
        match peer {
            Address::Gateway(gateway) => {
                if !self.gateways.contains(&gateway) {
                    self.gateways.push(gateway);
                }
                // The others have a smaller part of the requests now.
                self.tell_plan(now, out);
                for ordinal in 0..self.workers.len() {
                    // Its gateways know more of it than a controller that has just begun, or that lost it.
                    let worker = &self.workers[ordinal];
                    if worker.is_lost || (worker.serves && !worker.is_known) {
                        continue;
                    }
                    let listed = self.listed(ordinal);
                    self.send(peer, Message::Gateway(listed), out);
                }
            }
            Address::Device(device) => {
                for ordinal in self.ordinals_on(device) {
                    let worker = &mut self.workers[ordinal as usize];
                    let (id, serves) = (worker.place.worker, worker.serves);
                    let was_known = std::mem::replace(&mut worker.is_known, true);
                    let was_lost = std::mem::take(&mut worker.is_lost);
                    let guide = ToDevice::Guide(id, self.planner.guidance());
                    self.send(peer, Message::Device(guide), out);
                    if !was_known {
                        self.serves(ordinal, serves, out);
                    }
                    if was_lost {
                        match self.local {
                            Some(_) => self.scale(now, scaling::Event::Returned(ordinal), out),
                            None => self.serves(ordinal, true, out),
                        }
                    }
                }
            }
            Address::Controller(_) => {}
        }
    }

    /// The workers of a device that is gone serve no more, as far as this controller knows. Gateways have sessions of their own
    /// with the device, so they are told nothing.
    fn lost<L>(&mut self, now: Timestamp, peer: Address, out: &mut Vec<ControllerCommand<L>>) {
        self.sessions.lose(peer);
        match peer {
            Address::Gateway(gateway) => {
                self.gateways.retain(|g| *g != gateway);
                self.reported.lose(gateway);
                self.clients.lose(gateway);
                // Its clients go to the other gateways now.
                self.tell_plan(now, out);
            }
            Address::Controller(_) => {}
            Address::Device(device) => {
                for ordinal in self.ordinals_on(device) {
                    self.slow.forget(ordinal as usize);
                    let worker = &mut self.workers[ordinal as usize];
                    (worker.is_lost, worker.is_suspected) = (true, false);
                    worker.serves = false;
                    self.planner.set_workers(self.n_up());
                    self.spare_nobody(out);
                    self.scale(now, scaling::Event::Died(ordinal), out);
                }
            }
        }
    }

    /// The state goes to the gateways, and to the controllers of the other modules.
    fn publish<L>(&self, state: &Arc<ModuleState>, out: &mut Vec<ControllerCommand<L>>) {
        self.tell_gateways(&ToGateway::State(state.clone()), out);
        for other in (0..self.n_modules as u16).map(ModuleId) {
            if other != self.module {
                let peer = Message::Controller(ToController::Peer(state.clone()));
                self.send(Address::Controller(other), peer, out);
            }
        }
    }

    fn tell_plan<L>(&mut self, now: Timestamp, out: &mut Vec<ControllerCommand<L>>) {
        for i in 0..self.gateways.len() {
            let gateway = self.gateways[i];
            let plan = self.plan_for(now, gateway);
            self.send(Address::Gateway(gateway), Message::Gateway(plan), out);
        }
    }

    fn plan_for(&mut self, now: Timestamp, gateway: GatewayId) -> ToGateway {
        let part = self.reported.part(now, gateway, self.gateways.len());
        let plan = self.planner.plan(part, self.knows_gateways(now));
        ToGateway::Plan(self.module, Box::new(plan))
    }

    fn knows_gateways(&self, now: Timestamp) -> bool {
        now.since(self.born) >= GATEWAYS_KNOWN_AFTER
    }

    fn guide<L>(&self, guidance: Guidance, out: &mut Vec<ControllerCommand<L>>) {
        for Worker { place, .. } in &self.workers {
            let guide = ToDevice::Guide(place.worker, guidance);
            self.tell_device(place.device, guide, out);
        }
    }

    fn ordinal_of(&self, worker: WorkerId) -> Option<u32> {
        let mut workers = self.workers.iter();
        let ordinal = workers.position(|w| w.place.worker == worker)?;
        Some(ordinal as u32)
    }

    fn ordinals_on(&self, device: DeviceId) -> Vec<u32> {
        let workers = (0..).zip(&self.workers);
        let on_it = workers.filter(|(_, w)| w.place.device == device);
        on_it.map(|(ordinal, _)| ordinal).collect()
    }

    fn tell_gateways<L>(&self, message: &ToGateway, out: &mut Vec<ControllerCommand<L>>) {
        for &gateway in &self.gateways {
            let message = Message::Gateway(message.clone());
            self.send(Address::Gateway(gateway), message, out);
        }
    }

    fn tell_device<L>(
        &self,
        device: DeviceId,
        message: ToDevice<L>,
        out: &mut Vec<ControllerCommand<L>>,
    ) {
        self.send(Address::Device(device), Message::Device(message), out);
    }

    fn send<L>(&self, to: Address, message: Message<L>, out: &mut Vec<ControllerCommand<L>>) {
        out.push(ControllerCommand::Send(Envelope {
            from: Address::Controller(self.module),
            incarnation: self.incarnation,
            to,
            message,
        }));
    }
}

#[cfg(test)]
mod tests;
