//! The controller of one module: its State Planner, and who is told what it finds. It stands beside the way of requests.

use std::sync::Arc;

use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::{DeviceId, ModuleId};
use spillgate_pipeline::message::ToDevice;
use spillgate_pipeline::policy::Guidance;
use spillgate_pipeline::time::Timestamp;

use crate::message::{Place, ToController, ToGateway};
use crate::planner::{Computation, Computed, ModuleState, Planned, StatePlanner};

/// What happens at a controller.
#[derive(Debug)]
pub enum Event {
    /// A message came.
    Message(ToController),
    /// The time of [`ModuleController::next_wakeup`] has come.
    Wakeup,
    /// An estimate that a command asked for was made.
    Computed(Box<Computed>),
}

/// What the driver must do, in this order. `L` is what requests carry to workers: a controller sends none.
#[derive(Debug)]
pub enum Command<L> {
    /// Carry this to the gateways.
    ToGateway(ToGateway),
    /// Carry this to the controller of another module.
    ToController(ModuleId, ToController),
    /// Carry this to a device.
    ToDevice(DeviceId, ToDevice<L>),
    /// Make this estimate and bring back the result: thousands of draws, so not under anybody's lock.
    Compute(Box<Computation>),
}

/// The controller of one module of one pipeline.
pub struct ModuleController {
    module: ModuleId,
    n_modules: usize,
    workers: Vec<Place>,
    planner: StatePlanner,
}

impl ModuleController {
    /// The controller of `module`, which has its workers among these.
    pub fn new(
        pipeline: &Arc<Pipeline>,
        module: ModuleId,
        planned: &Arc<Planned>,
        places: &[Place],
        seed: u64,
    ) -> Self {
        let serving = places.iter().filter(|p| p.module == module);
        let workers: Vec<Place> = serving.copied().collect();
        let n_workers = workers.len();
        ModuleController {
            module,
            n_modules: pipeline.modules.len(),
            workers,
            planner: StatePlanner::new(pipeline.clone(), module, planned.clone(), n_workers, seed),
        }
    }

    /// What gateways and workers are to go by from the start.
    pub fn start<L>(&self, out: &mut Vec<Command<L>>) {
        self.tell_plan(out);
        self.guide(self.planner.guidance(), out);
    }

    /// Part of the requests of the pipeline that run the module.
    pub fn probability(&mut self, now: Timestamp) -> f64 {
        self.planner.probability(now)
    }

    /// What the module's brokers go by.
    pub fn guidance(&self) -> Guidance {
        self.planner.guidance()
    }

    /// The state that was published last.
    pub fn published(&self) -> Option<&ModuleState> {
        self.planner.published()
    }

    /// The next moment at which something happens without an event from outside.
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        self.planner.next_wakeup()
    }

    /// Takes in one event.
    pub fn on_event<L>(&mut self, now: Timestamp, event: Event, out: &mut Vec<Command<L>>) {
        match event {
            Event::Message(message) => self.hear(now, message),
            Event::Wakeup => {
                let woken = self.planner.wake(now);
                if let Some(state) = woken.publish {
                    self.publish(&state, out);
                }
                self.tell_plan(out);
                out.extend(woken.compute.map(|c| Command::Compute(Box::new(c))));
                if let Some(guidance) = woken.guidance {
                    self.guide(guidance, out);
                }
            }
            Event::Computed(computed) => {
                let guidance = self.planner.computed(*computed);
                self.tell_plan(out);
                self.guide(guidance, out);
            }
        }
    }

    fn hear(&mut self, now: Timestamp, message: ToController) {
        match message {
            ToController::Reached(request, runs) => self.planner.reached(now, &request, runs),
            ToController::Dropped => self.planner.dropped(now),
            ToController::Unasked => self.planner.unasked(),
            ToController::Offered(rate) => self.planner.offered(rate),
            ToController::Workers(up) => self.planner.set_workers(up),
            ToController::Report(report) => self.planner.batch(now, &report),
            ToController::Peer(state) => self.planner.peer(state),
        }
    }

    /// The state goes to the gateways, and to the controllers of the other modules.
    fn publish<L>(&self, state: &Arc<ModuleState>, out: &mut Vec<Command<L>>) {
        out.push(Command::ToGateway(ToGateway::State(state.clone())));
        let others = (0..self.n_modules as u16).map(ModuleId);
        out.extend(
            others
                .filter(|m| *m != self.module)
                .map(|m| Command::ToController(m, ToController::Peer(state.clone()))),
        );
    }

    fn tell_plan<L>(&self, out: &mut Vec<Command<L>>) {
        let plan = ToGateway::Plan(self.module, self.planner.plan());
        out.push(Command::ToGateway(plan));
    }

    fn guide<L>(&self, guidance: Guidance, out: &mut Vec<Command<L>>) {
        out.extend(
            self.workers.iter().map(|place| {
                Command::ToDevice(place.device, ToDevice::Guide(place.worker, guidance))
            }),
        );
    }
}
