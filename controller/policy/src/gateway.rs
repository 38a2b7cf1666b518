//! The gateway of one pipeline: the home of the requests that it accepted. It admits them, joins their branches, decides
//! which worker runs each module, passes what a module brought to the modules after it, and ends each request exactly
//! once.
//!
//! `P` is what the driver keeps for an open request and gets back when it ends; `L` is what the request carries to
//! workers.

mod dispatch;
mod ends;
mod joins;

use std::sync::Arc;

use indexmap::IndexMap;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::{DeviceId, ModuleId, RequestId, WorkerId};
use spillgate_pipeline::message::{Arrival, BatchReport, ToDevice};
use spillgate_pipeline::request::{Drop, DropReason, Outcome, Request};
use spillgate_pipeline::time::Timestamp;

use crate::dispatcher::{BatchShape, Dispatcher};
use crate::ledger::{Ledger, Offer, Refusal};
use crate::message::{ModulePlan, Place, ToController, ToGateway};
use crate::planner::Planned;
use joins::Joins;

/// What happens at a gateway.
pub enum Event<'a> {
    /// An accepted request is to be decoded by a worker of the source.
    Decode(RequestId),
    /// A module ran for requests.
    Done {
        /// The module.
        module: ModuleId,
        /// The requests and what the module brought.
        members: &'a [Member],
        /// Whether the `when:` of a module that looks at this one holds for a request.
        holds: &'a mut dyn FnMut(RequestId, ModuleId) -> bool,
    },
    /// A module is done with requests, or was skipped: one that follows it hears of it.
    Branches(Branches),
    /// A worker bound a batch.
    Started {
        /// The worker.
        worker: WorkerId,
        /// Requests in it.
        size: usize,
        /// When it is expected to end.
        expected_end: Timestamp,
    },
    /// A worker's batch of these requests ended.
    Ended {
        /// Its members.
        members: &'a [RequestId],
        /// What the worker reports.
        report: BatchReport,
    },
    /// A worker dropped a request: the request ends.
    Dropped(RequestId, Drop),
    /// A worker dropped a request: it is no longer there.
    Returned(WorkerId, RequestId),
    /// A worker that was told to forget a request had not begun it.
    Forgotten(WorkerId, RequestId),
    /// A controller has something to say.
    Controller(ToGateway),
    /// The client left.
    Cancel(RequestId),
    /// A newer frame takes the place of this request, if it still waits.
    Supersede(RequestId),
    /// All that has not ended is dropped.
    Abort,
    /// A worker died, for this reason.
    WorkerDown(WorkerId, &'a str),
    /// A worker serves, for the first time or again.
    WorkerUp(WorkerId),
    /// A worker gets no more requests, and finishes what it has.
    WorkerRetired(WorkerId),
}

/// What a module brought for a request.
#[derive(Clone, Debug)]
pub struct Member {
    /// The request.
    pub request: RequestId,
    /// How the request ends where the module brought nothing, and what is said of it.
    pub result: Result<(), (Outcome, String)>,
}

/// Branches of requests on their way to a module.
#[derive(Clone, Debug)]
pub struct Branches {
    /// The module that is done with them.
    pub from: ModuleId,
    /// The module that hears of it.
    pub to: ModuleId,
    /// The requests.
    pub members: Vec<Branch>,
}

/// One request of [`Branches`].
#[derive(Clone, Copy, Debug)]
pub struct Branch {
    /// The request.
    pub request: RequestId,
    /// The module before ran (false: it was skipped).
    pub present: bool,
    /// What the `when:` of the next module says, if it looks at the one before and that one ran.
    pub condition: Option<bool>,
}

/// What the driver must do, in this order.
#[derive(Debug)]
pub enum Command<P, L> {
    /// Carry this to a device.
    ToDevice(DeviceId, ToDevice<L>),
    /// Carry this to a controller.
    ToController(ModuleId, ToController),
    /// Carry this to the gateway itself.
    Branches(Branches),
    /// Answer the client.
    End(Box<Ended<P>>),
}

/// A request that has ended.
#[derive(Debug)]
pub struct Ended<P> {
    /// The request.
    pub request: Request,
    /// How.
    pub outcome: Outcome,
    /// When.
    pub at: Timestamp,
    /// For a failure: what is said of it.
    pub cause: Option<String>,
    /// The driver's own.
    pub payload: P,
}

struct Open<P, L> {
    request: Request,
    payload: P,
    load: L,
    joins: Joins,
}

/// A module as the gateway sees it.
struct Stage {
    joiner: joins::Joiner,
    dispatcher: Dispatcher,
    plan: ModulePlan,
    /// Admission by chance.
    rng: ChaCha8Rng,
}

/// The gateway of one pipeline.
pub struct Gateway<P, L> {
    pipeline: Arc<Pipeline>,
    successors: Vec<Vec<ModuleId>>,
    places: IndexMap<WorkerId, Place, FxBuildHasher>,
    ledger: Ledger<Open<P, L>>,
    stages: Vec<Stage>,
    /// Requests of the event under way, by device.
    sends: Vec<(DeviceId, Vec<Arrival<L>>)>,
}

impl<P, L: Clone> Gateway<P, L> {
    /// The gateway of a pipeline that these workers serve.
    pub fn new(
        pipeline: &Arc<Pipeline>,
        planned: &Arc<Planned>,
        places: &[Place],
        seed: u64,
    ) -> Self {
        let on_devices: Vec<Vec<usize>> = pipeline
            .modules
            .iter()
            .map(|module| {
                let serving = places.iter().filter(|p| p.module == module.id);
                serving.map(|p| p.device.idx()).collect()
            })
            .collect();
        let stage = |id: ModuleId| {
            let serving = places.iter().filter(|p| p.module == id);
            let workers: Vec<WorkerId> = serving.map(|p| p.worker).collect();
            let shape = BatchShape {
                size: planned.batch[id.idx()],
                execution: planned.duration(id),
            };
            Stage {
                joiner: joins::Joiner::new(pipeline, id),
                dispatcher: Dispatcher::new(pipeline.policy.dispatch(), shape, &workers),
                plan: ModulePlan {
                    shape,
                    admits: 1.0,
                    door: None,
                },
                rng: ChaCha8Rng::seed_from_u64(seed ^ u64::from(id.0)),
            }
        };
        let ids = pipeline.modules.iter().map(|m| m.id);
        Gateway {
            successors: ids.clone().map(|id| pipeline.successors(id)).collect(),
            places: places.iter().map(|p| (p.worker, *p)).collect(),
            ledger: Ledger::new(pipeline, planned, &on_devices),
            stages: ids.map(stage).collect(),
            pipeline: pipeline.clone(),
            sends: Vec::new(),
        }
    }

    /// Accepts a request, which then enters by [`Event::Done`] of the source or by [`Event::Decode`].
    ///
    /// # Errors
    /// When it is refused: see [`Ledger::admit`].
    pub fn admit(
        &mut self,
        now: Timestamp,
        id: RequestId,
        offer: &Offer,
        payload: P,
        load: L,
    ) -> Result<Request, Refusal> {
        self.ledger.admit(now, id, offer, |request| Open {
            request: *request,
            payload,
            load,
            joins: Joins::default(),
        })
    }

    /// Takes in one event.
    pub fn on_event(&mut self, now: Timestamp, event: Event<'_>, out: &mut Vec<Command<P, L>>) {
        match event {
            Event::Decode(id) => self.enter(now, id, out),
            Event::Done {
                module,
                members,
                holds,
            } => self.done(now, module, members, holds, out),
            Event::Branches(branches) => self.join(now, &branches, out),
            Event::Started {
                worker,
                size,
                expected_end,
            } => {
                if let Some(stage) = self.stage_of(worker) {
                    stage.dispatcher.started(worker, size, expected_end);
                }
            }
            Event::Ended { members, report } => self.batch_ended(members, report, out),
            Event::Dropped(id, drop) => self.end(now, id, Outcome::Dropped(drop), None, out),
            Event::Returned(worker, id) => {
                if let Some(module) = self.places.get(&worker).map(|p| p.module) {
                    self.stages[module.idx()].dispatcher.take_back(id);
                    out.push(Command::ToController(module, ToController::Dropped));
                }
            }
            Event::Forgotten(worker, id) => {
                if let Some(module) = self.places.get(&worker).map(|p| p.module)
                    && self.ledger.forgotten(id)
                {
                    out.push(Command::ToController(module, ToController::Unasked));
                }
            }
            Event::Controller(message) => self.hear(now, message, out),
            Event::Cancel(id) => self.drop_from_here(now, id, DropReason::Cancelled, out),
            Event::Supersede(id) => self.withdraw(id, out),
            Event::Abort => {
                for id in self.ledger.open_requests() {
                    self.drop_from_here(now, id, DropReason::Draining, out);
                }
            }
            Event::WorkerDown(worker, cause) => self.worker_down(now, worker, cause, out),
            Event::WorkerUp(worker) => self.workers_change(worker, Dispatcher::worker_up, out),
            Event::WorkerRetired(worker) => self.workers_change(worker, Dispatcher::retire, out),
        }
        for (device, requests) in self.sends.drain(..) {
            out.push(Command::ToDevice(device, ToDevice::Requests(requests)));
        }
    }

    /// What the driver keeps for a request; `None` once it has ended.
    pub fn payload_mut(&mut self, id: RequestId) -> Option<&mut P> {
        Some(&mut self.ledger.get_mut(id)?.payload)
    }

    /// The request of that id; `None` once it has ended.
    pub fn request(&self, id: RequestId) -> Option<&Request> {
        Some(&self.ledger.get(id)?.request)
    }

    /// Requests a second that are offered, refused ones included, over the last seconds.
    pub fn offered_rate(&mut self, now: Timestamp) -> f64 {
        self.ledger.offered_rate(now)
    }

    /// Requests a second that the entry gate lets pass; `None` when there is none or it is open.
    pub fn gate_rate(&self) -> Option<f64> {
        self.ledger.gate_rate()
    }

    /// Refuses what comes from now on.
    pub fn drain(&mut self) {
        self.ledger.drain();
    }

    /// Requests that have not ended.
    pub fn in_flight(&self) -> usize {
        self.ledger.in_flight()
    }

    fn stage_of(&mut self, worker: WorkerId) -> Option<&mut Stage> {
        let module = self.places.get(&worker)?.module;
        Some(&mut self.stages[module.idx()])
    }

    fn hear(&mut self, now: Timestamp, message: ToGateway, out: &mut Vec<Command<P, L>>) {
        match message {
            ToGateway::Plan(module, plan) => {
                let stage = &mut self.stages[module.idx()];
                stage.dispatcher.reshape(plan.shape);
                stage.plan = plan;
            }
            ToGateway::State(state) => {
                let offered = ToController::Offered(self.ledger.learn(now, &state));
                out.push(Command::ToController(state.module, offered));
            }
        }
    }

    /// A batch ended: its members are no longer at their worker.
    fn batch_ended(
        &mut self,
        members: &[RequestId],
        report: BatchReport,
        out: &mut Vec<Command<P, L>>,
    ) {
        let Some(module) = self.places.get(&report.worker).map(|p| p.module) else {
            return;
        };
        let dispatcher = &mut self.stages[module.idx()].dispatcher;
        for &id in members {
            dispatcher.take_back(id);
        }
        dispatcher.ended(report.worker, members.len());
        out.push(Command::ToController(module, ToController::Report(report)));
    }

    /// A module ran for requests: the results count and are passed on where the request has not ended.
    fn done(
        &mut self,
        now: Timestamp,
        module: ModuleId,
        members: &[Member],
        holds: &mut dyn FnMut(RequestId, ModuleId) -> bool,
        out: &mut Vec<Command<P, L>>,
    ) {
        let mut passed = Vec::with_capacity(members.len());
        for Member { request, result } in members {
            if !self.ledger.ran(*request, module) {
                continue;
            }
            match result {
                Ok(()) => passed.push(*request),
                Err((outcome, cause)) => {
                    self.end(now, *request, *outcome, Some(cause.clone()), out);
                }
            }
        }
        self.pass(now, module, &passed, Some(holds), out);
    }

    fn worker_down(
        &mut self,
        now: Timestamp,
        worker: WorkerId,
        cause: &str,
        out: &mut Vec<Command<P, L>>,
    ) {
        let Some(module) = self.places.get(&worker).map(|p| p.module) else {
            return;
        };
        let lost = self.stages[module.idx()].dispatcher.worker_down(worker);
        for id in lost {
            let cause = Some(cause.to_owned());
            self.end(now, id, Outcome::Failed { module }, cause, out);
        }
        self.count_workers(module, out);
    }

    fn workers_change(
        &mut self,
        worker: WorkerId,
        change: fn(&mut Dispatcher, WorkerId),
        out: &mut Vec<Command<P, L>>,
    ) {
        if let Some(module) = self.places.get(&worker).map(|p| p.module) {
            change(&mut self.stages[module.idx()].dispatcher, worker);
            self.count_workers(module, out);
        }
    }

    fn count_workers(&self, module: ModuleId, out: &mut Vec<Command<P, L>>) {
        let up = self.stages[module.idx()].dispatcher.workers_up();
        out.push(Command::ToController(module, ToController::Workers(up)));
    }
}

#[cfg(test)]
mod tests;
