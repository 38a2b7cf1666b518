//! The gateway of one pipeline: the owner of the requests that it accepted. It admits them, joins their branches, passes what
//! a module brought to the modules after it, and ends each request exactly once: at the latest by its own timer, a grace after
//! the deadline, when an answer is lost. Which worker runs a request at a module is for the `Stage` of that module.
//!
//! `P` is what the driver keeps for an open request and gets back when it ends; `L` is what the request carries to
//! workers.

mod adapting;
mod age;
pub(crate) mod applications;
mod content;
mod demand;
mod effects;
pub(crate) mod ends;
mod exchange;
mod hear;
mod joins;
mod route;
mod view;
mod workers;

use std::sync::Arc;
use std::time::Duration;

use spillgate_pipeline::Pipeline;
use spillgate_pipeline::catalog::ValueType;
use spillgate_pipeline::id::{
    DeviceId, GatewayId, Incarnation, ModuleId, RequestId, VariantId, WorkerId,
};
use spillgate_pipeline::request::{DropReason, Outcome, Request};
use spillgate_pipeline::schedule::Application;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{
    Address, Arrival, Envelope, Fault, Filled, Message, Place, Places, Sessions, ToController,
    ToDevice, ToGateway,
};

pub use crate::dispatcher::{WorkerHealth, WorkerView};
use crate::ledger::{Ledger, Offer};
use crate::plan::Planned;
use crate::refusal::Refusal;
pub use crate::stage::ModuleView;
use crate::stage::{Effect, Stage, StageConfig};
use crate::uplink::UplinkReport;
use crate::variant_selector::{Asked, StreamKey, StreamWorker};
use adapting::Adapting;
use applications::Applications;
use content::Content;
use demand::Demands;
use exchange::Exchange;
use joins::{Joins, Route};
pub use view::{AdaptationView, Forecast, GatewayView};

/// What happens at a gateway.
#[derive(Debug)]
pub enum Event<'a> {
    /// The source has read an accepted request, or cannot.
    Read(RequestId, Result<Filled, Fault>),
    /// An accepted request is to be read by a worker of the source.
    Decode(RequestId),
    /// These workers join the pipeline. They get requests once their devices have greeted.
    Joined(&'a [Place]),
    /// A device is none of the pipeline's any more. What is sent to it is lost; its id, and those of its workers, may be given to
    /// others.
    Left(DeviceId),
    /// A peer greets: a process began, or a connection to it.
    Greeted(Address, Incarnation),
    /// A peer is gone, for this reason.
    Lost(Address, &'a str),
    /// A peer is silent. It may be slow, or dead.
    Suspected(Address),
    /// A suspected peer spoke again.
    Trusted(Address),
    /// A peer sent a message in that incarnation.
    Message(Address, Incarnation, ToGateway),
    /// A request that was sent to a worker found no room on its way there.
    Unsent(WorkerId, RequestId),
    /// The client left.
    Cancel(RequestId),
    /// The client of a stream adapts, and says this of its link.
    Uplink(StreamKey, UplinkReport),
    /// A newer frame takes the place of this request, if it still waits.
    Supersede(RequestId),
    /// All that has not ended is dropped.
    Abort,
    /// The time of [`Gateway::next_wakeup`] has come.
    Wakeup,
}

/// What the driver must do, in this order.
#[derive(Debug)]
pub enum Command<P, L> {
    /// Send this.
    Send(Envelope<L>),
    /// Answer the client.
    End(Box<Ended<P>>),
    /// Tell the client of a stream, which adapts, what its frames should be like from now on.
    Ask {
        /// The stream.
        stream: StreamKey,
        /// What is asked.
        asked: Asked,
    },
}

/// A request that has ended.
#[derive(Debug)]
pub struct Ended<P> {
    /// The request; its variant is that of the module whose variants are chosen.
    pub request: Request,
    /// How.
    pub outcome: Outcome,
    /// When.
    pub at: Timestamp,
    /// For a failure: the message for the client.
    pub cause: Option<String>,
    /// The driver's own.
    pub payload: P,
}

/// What a gateway is built from.
#[derive(Clone, Copy, Debug)]
pub struct GatewayConfig<'a> {
    /// The gateway.
    pub id: GatewayId,
    /// The incarnation of this gateway.
    pub incarnation: Incarnation,
    /// Its pipeline.
    pub pipeline: &'a Arc<Pipeline>,
    /// Batch sizes and execution times.
    pub planned: &'a Arc<Planned>,
    /// The pipeline's first workers. They serve until a controller says that they do not.
    pub places: &'a [Place],
    /// Where it begins with the workers of a module. Gateways have different ones, so that they do not all begin with the same.
    pub turn: usize,
    /// Seed of admission by chance.
    pub seed: u64,
    /// When this incarnation began.
    pub born: Timestamp,
}

/// The gateway of one pipeline.
pub struct Gateway<P, L> {
    id: GatewayId,
    incarnation: Incarnation,
    pipeline: Arc<Pipeline>,
    /// By module.
    routes: Vec<Route>,
    places: Places,
    sessions: Sessions,
    ledger: Ledger<Content<P, L>>,
    /// By module.
    stages: Vec<Stage>,
    /// The modules with a pool.
    pulled: Vec<ModuleId>,
    demands: Demands,
    exchange: Exchange,
    applications: Applications,
    /// By module: the variant that serves where none is chosen.
    served: Arc<[VariantId]>,
    adapting: Option<Adapting>,
    planned: Arc<Planned>,
    grace: Duration,
    /// When the first open request may be over its deadline and grace.
    checks_at: Option<Timestamp>,
    /// When guidance ages by the next step, if none comes.
    ages_at: Timestamp,
    n_ignored: u64,
    /// Requests of the event under way, by device.
    sends: Vec<(DeviceId, Vec<Arrival<L>>)>,
    /// Scratch: what a stage decided.
    effects: Vec<Effect>,
}

impl<P, L: Clone> Gateway<P, L> {
    /// A gateway to which nobody has greeted yet.
    pub fn new(config: &GatewayConfig<'_>) -> Self {
        let &GatewayConfig {
            id,
            incarnation,
            pipeline,
            planned,
            places,
            turn,
            seed,
            born,
        } = config;
        let devices_of = |module: ModuleId| {
            let serving = places.iter().filter(move |p| p.module == module);
            serving.map(|p| p.device.idx()).collect()
        };
        let stages = StageConfig {
            pipeline,
            planned,
            turn,
            seed,
            born,
        };
        let stage = |module: ModuleId| {
            let serving = places.iter().filter(|p| p.module == module);
            let workers: Vec<WorkerId> = serving.map(|p| p.worker).collect();
            Stage::new(&stages, module, &workers)
        };
        let served: Arc<[VariantId]> = (pipeline.modules.iter())
            .map(|m| VariantId(m.served() as u16))
            .collect();
        let ids = pipeline.modules.iter().map(|m| m.id);
        let on_devices: Vec<Vec<usize>> = ids.clone().map(devices_of).collect();
        Gateway {
            id,
            incarnation,
            routes: Route::all(pipeline),
            places: Places::new(places),
            sessions: Sessions::default(),
            ledger: Ledger::new(pipeline, planned, &on_devices),
            stages: ids.clone().map(stage).collect(),
            pulled: ids.filter(|m| pipeline.is_pulled(*m)).collect(),
            demands: Demands::new(pipeline, born),
            exchange: Exchange::new(born),
            applications: Applications::default(),
            adapting: Adapting::new(pipeline, &served, seed),
            served,
            planned: planned.clone(),
            grace: ends::grace(pipeline),
            checks_at: None,
            ages_at: born,
            n_ignored: 0,
            sends: Vec::new(),
            effects: Vec::new(),
            pipeline: pipeline.clone(),
        }
    }

    /// Accepts a request, which then enters by [`Event::Read`] or [`Event::Decode`]. `content` is called once the request is
    /// accepted.
    ///
    /// # Errors
    /// When it is refused: see [`Ledger::admit`].
    pub fn admit(
        &mut self,
        now: Timestamp,
        id: RequestId,
        offer: &Offer,
        content: impl FnOnce() -> (P, L),
    ) -> Result<Request, Refusal> {
        let n_modules = self.pipeline.modules.len();
        self.stream_asked(now, offer);
        let variants = self.variants_of(offer);
        let worker = self.worker_of_stream(offer);
        let admitted = self.ledger.admit(now, id, offer, |request| {
            let (payload, load) = content();
            let (binding, rank) = match worker {
                StreamWorker::Any => (None, request.rank),
                StreamWorker::Bound(binding) => (Some(binding), request.rank),
                StreamWorker::Leftover => (None, 0),
            };
            Content {
                request: Request { rank, ..*request },
                admitted_at: now,
                payload,
                load,
                joins: Joins::new(n_modules),
                members: offer.members.clone(),
                variants,
                binding,
            }
        });
        self.demands.offered(now, self.ledger.offered());
        self.exchange.asked(now, &offer.party);
        if let Err(refusal) = &admitted {
            self.stream_refused(offer, refusal);
        }
        let request = admitted?;
        self.applications.opened(now, request.application);
        let over = request.deadline + self.grace;
        self.checks_at = Some(self.checks_at.map_or(over, |at| at.min(over)));
        Ok(request)
    }

    /// The application of that name. Where it takes the place of another one, workers are told.
    pub fn application(
        &mut self,
        now: Timestamp,
        name: &Arc<str>,
        out: &mut Vec<Command<P, L>>,
    ) -> Application {
        let (application, is_reassigned) = self.applications.of(now, name);
        if is_reassigned {
            self.ledger.reassigned(application);
            let mut devices: Vec<DeviceId> = self.places.iter().map(|p| p.device).collect();
            devices.sort_unstable();
            devices.dedup();
            for device in devices {
                self.tell_device(device, ToDevice::Reassigned(application), out);
            }
        }
        application
    }

    /// Takes in one event.
    pub fn on_event(&mut self, now: Timestamp, event: Event<'_>, out: &mut Vec<Command<P, L>>) {
        self.age(now);
        match event {
            Event::Read(id, read) => self.brought(now, ModuleId::SOURCE, id, read, out),
            Event::Decode(id) => self.decode(now, id, out),
            Event::Joined(places) => self.join(now, places),
            Event::Left(device) => self.forget(now, device, out),
            Event::Greeted(peer, incarnation) => self.greeted(now, peer, incarnation, out),
            Event::Lost(peer, cause) => self.lose(now, peer, cause, out),
            Event::Suspected(peer) => self.suspect(now, peer, out),
            Event::Trusted(peer) => self.each_worker(peer, Stage::trusted),
            Event::Message(from, incarnation, message) => {
                if self.sessions.counts(from, incarnation) && self.may_say(from, &message) {
                    self.hear(now, message, out);
                } else {
                    self.n_ignored += 1;
                }
            }
            Event::Unsent(worker, id) => self.unsent(now, worker, id, out),
            Event::Cancel(id) => self.drop_from_here(now, id, DropReason::Cancelled, out),
            Event::Uplink(stream, uplink) => self.uplink(now, stream, uplink),
            Event::Supersede(id) => self.withdraw(now, id, out),
            Event::Abort => {
                for id in self.ledger.open_requests() {
                    self.drop_from_here(now, id, DropReason::Draining, out);
                }
            }
            Event::Wakeup => self.wake(now, out),
        }
        self.serve_asks(now, out);
        self.send_requests(out);
    }

    /// The next moment at which something happens without an event from outside: a report is due, a waiting request expires, or a
    /// request has passed its deadline and grace.
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        let reports_at = [self.demands.reports_at(), self.exchange.reports_at()];
        let all = reports_at.into_iter().chain([
            self.checks_at,
            self.pool_expires_at(),
            self.adapts_at(),
        ]);
        all.flatten().min()
    }

    /// What the driver keeps for a request; `None` once it has ended.
    pub fn payload_mut(&mut self, id: RequestId) -> Option<&mut P> {
        Some(&mut self.ledger.get_mut(id)?.payload)
    }

    /// Requests a second that the entry gate lets pass; `None` when there is none or it is open.
    pub fn gate_rate(&self) -> Option<f64> {
        self.ledger.gate_rate()
    }

    /// Refuses what comes from now on.
    pub fn drain(&mut self) {
        self.ledger.drain();
    }

    /// The first module that needs a worker and of which none takes requests: the pipeline cannot be served.
    pub fn unserved(&self) -> Option<ModuleId> {
        // Only pictures are decoded.
        let decodes = self.pipeline.source.ty == ValueType::Image;
        let mut modules = self.pipeline.modules.iter().map(|module| module.id);
        modules.find(|module| {
            let is_needed = *module != ModuleId::SOURCE || decodes;
            is_needed && !self.stages[module.idx()].takes_requests()
        })
    }

    /// How long after its deadline the answer of a request is waited for.
    pub fn grace(&self) -> Duration {
        self.grace
    }

    /// Messages that were ignored: of another life, not their sender's to say, or about a request that is elsewhere.
    pub fn n_ignored(&self) -> u64 {
        self.n_ignored
    }

    /// Requests that are at workers, counted once a module.
    pub fn n_at_workers(&self) -> usize {
        self.stages.iter().map(Stage::n_at_workers).sum()
    }

    /// Requests that another worker has now and a suspected one may answer, counted once a module.
    pub fn n_duplicates(&self) -> usize {
        self.stages.iter().map(Stage::n_duplicates).sum()
    }

    /// The workers whose answer for a request counts.
    pub fn workers_with(&self, id: RequestId) -> Vec<WorkerId> {
        let at = self.stages.iter().flat_map(|s| s.workers_with(id));
        at.flatten().collect()
    }

    /// Whether a request was sent to that worker, and waits for its answer alone: it has not ended, and no other worker has it.
    pub fn is_at(&self, worker: WorkerId, id: RequestId) -> bool {
        let stage = (self.module_of(worker)).and_then(|module| self.stages.get(module.idx()));
        stage.is_some_and(|stage| stage.worker_with(id) == Some(worker))
    }

    /// Whether the answer of that worker counts for a request.
    pub fn awaits(&self, worker: WorkerId, id: RequestId) -> bool {
        let stage = (self.module_of(worker)).and_then(|module| self.stages.get(module.idx()));
        stage.is_some_and(|stage| stage.workers_with(id).contains(&Some(worker)))
    }

    /// Requests that have not ended.
    pub fn in_flight(&self) -> usize {
        self.ledger.in_flight()
    }

    /// Of these, requests without an SLO.
    pub fn in_background(&self) -> usize {
        self.ledger.in_background()
    }

    fn wake(&mut self, now: Timestamp, out: &mut Vec<Command<P, L>>) {
        if self.demands.reports_at().is_some_and(|at| at <= now) {
            for (module, demand) in self.demands.reports() {
                let to = Address::Controller(module);
                let message = Message::Controller(ToController::Demand(Box::new(demand)));
                self.send(to, message, out);
            }
        }
        self.report_clients(now, out);
        self.adapt(now, out);
        if self.checks_at.is_some_and(|at| at <= now) {
            let (overdue, next) = self.ledger.overdue(now, self.grace);
            self.checks_at = next;
            for id in overdue {
                self.give_up(now, id, out);
            }
        }
    }

    /// The device of a worker of this pipeline.
    fn device_of(&self, worker: WorkerId) -> DeviceId {
        let place = self.places.get(worker);
        place.expect("dispatchers know no other workers").device
    }

    fn module_of(&self, worker: WorkerId) -> Option<ModuleId> {
        Some(self.places.get(worker)?.module)
    }

    fn stage_of(&mut self, worker: WorkerId) -> Option<&mut Stage> {
        let module = self.module_of(worker)?;
        Some(&mut self.stages[module.idx()])
    }

    fn tell_device(&self, device: DeviceId, message: ToDevice<L>, out: &mut Vec<Command<P, L>>) {
        self.send(Address::Device(device), Message::Device(message), out);
    }

    fn send(&self, to: Address, message: Message<L>, out: &mut Vec<Command<P, L>>) {
        out.push(Command::Send(Envelope {
            from: Address::Gateway(self.id),
            incarnation: self.incarnation,
            to,
            message,
        }));
    }
}

#[cfg(test)]
mod tests;
