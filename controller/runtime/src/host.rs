//! Owns the ledger and the module controllers of one pipeline and passes requests between them and the workers.
//! Each event is one short critical section; sends, cancellations, guidance and answers follow after the lock is
//! released, and so do the State Planners' estimates, which take a thousand times as long.

mod effects;
mod finished;
mod flow;
mod scaling;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use indexmap::{IndexMap, IndexSet};
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use spillgate_backend::job::{Job, Ran};
use spillgate_controller_policy::ledger::{Ledger, Offer, Refusal};
use spillgate_controller_policy::module::{Command, Event, ModuleController};
use spillgate_controller_policy::plan::Planned;
use spillgate_controller_policy::planner::ModuleState;
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::{ClientId, ModuleId, RequestId, WorkerId};
use spillgate_pipeline::policy::Guidance;
use spillgate_pipeline::request::{Drop as DropRecord, DropReason, ModuleTimes, Outcome, Request};
use spillgate_pipeline::schedule::{APPLICATIONS_MAX, Application};
use spillgate_pipeline::time::Timestamp;

use crate::record::{Observer, RequestRecord, TraceContext};
use effects::Effects;
use scaling::Scaling;

/// The process's clock.
pub type Now = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Seed of the planners' draws and of admission by chance. Fixed: nothing is gained by another.
const SEED: u64 = 1;

/// Hands out request ids, unique in this process.
#[derive(Default)]
pub struct RequestIds(AtomicU64);

impl RequestIds {
    fn next(&self) -> RequestId {
        RequestId(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

/// A request on its way to a worker.
pub struct Dispatched {
    /// The worker.
    pub worker: WorkerId,
    /// The request.
    pub request: Request,
    /// Its values.
    pub job: Arc<Job>,
}

/// The way to the workers of one device. Called without locks held; may call back.
pub trait WorkerLink: Send + Sync {
    /// Brings requests that belong together.
    fn send(&self, requests: Vec<Dispatched>);

    /// Forgets a request that ended elsewhere.
    fn cancel(&self, request: RequestId);

    /// Drops a request if it still waits.
    fn withdraw(&self, request: RequestId, reason: DropReason);

    /// Tells a worker what its brokers are to go by from now on.
    fn guide(&self, worker: WorkerId, guidance: Guidance);

    /// Makes a worker ready; [`PipelineHost::worker_loaded`] is told when it is.
    fn load(&self, worker: WorkerId);

    /// Gives back what a worker holds once it has no more requests.
    fn unload(&self, worker: WorkerId);
}

/// A worker of this pipeline and the way to it.
#[derive(Clone)]
pub struct Worker {
    /// Its id.
    pub id: WorkerId,
    /// Its module.
    pub module: ModuleId,
    /// Ordinal of its device's link in the list given to [`PipelineHost::connect`].
    pub link: usize,
}

/// What the State Planners of a pipeline know, for metrics.
#[derive(Clone, Debug)]
pub struct PlannerView {
    /// Requests a second that the entry gate lets pass; `None` while it is open.
    pub gate: Option<f64>,
    /// By module: what it last published, if its planner publishes, and what its brokers go by.
    pub modules: Vec<(Option<ModuleState>, Guidance)>,
}

/// Called once, with the record of an accepted request.
pub type OnEnd = Box<dyn FnOnce(Arc<RequestRecord>) + Send>;

/// A request to be submitted.
pub struct Submission {
    /// Its values: the frame. Sources over bytes have their output set already.
    pub job: Arc<Job>,
    /// The source needs no work (bytes).
    pub source_done: bool,
    /// Number of the frame, as the client counts.
    pub number: u64,
    /// Name that the client gave its stream.
    pub client: Arc<str>,
    /// Who sent it: what is shared is shared between clients.
    pub client_id: ClientId,
    /// Whose work it is: requests of one application have one distribution of execution times.
    pub application: Arc<str>,
    /// Less time than the pipeline's SLO, if the client asks for that.
    pub timeout: Option<Duration>,
    /// Expected time to decode its picture; zero where there is none.
    pub decoding: Duration,
    /// Trace context.
    pub trace: TraceContext,
    /// Told how it ended.
    pub on_end: OnEnd,
}

/// One member of a finished batch.
pub struct MemberResult {
    /// The request.
    pub request: Request,
    /// Its values.
    pub job: Arc<Job>,
    /// Its way through the module.
    pub times: ModuleTimes,
    /// What the module computed, or why not.
    pub result: Ran,
}

struct Open {
    request: Request,
    admitted_at: Timestamp,
    number: u64,
    client: Arc<str>,
    trace: TraceContext,
    job: Arc<Job>,
    times: Vec<ModuleTimes>,
    on_end: OnEnd,
}

struct Control {
    ledger: Ledger,
    modules: Vec<ModuleController>,
    open: IndexMap<RequestId, Open, FxBuildHasher>,
    commands: Vec<Command>,
    /// When the members of the batch that ended last arrived and were batched.
    times: Vec<(Timestamp, Timestamp)>,
    /// The last state that each module published.
    published: Vec<Option<ModuleState>>,
    /// Where workers follow the load.
    scaling: Option<Scaling>,
    applications: Applications,
}

/// Applications by name, as many as schedulers tell apart; the rest share the last.
#[derive(Default)]
struct Applications(IndexSet<Arc<str>, FxBuildHasher>);

impl Applications {
    fn of(&mut self, name: &Arc<str>) -> Application {
        let known = self.0.get_index_of(name);
        let idx = known.unwrap_or_else(|| {
            if self.0.len() < APPLICATIONS_MAX {
                self.0.insert(name.clone());
            }
            self.0.len() - 1
        });
        Application(idx as u16)
    }
}

/// One pipeline at its gateway.
pub struct PipelineHost {
    pipeline: Arc<Pipeline>,
    successors: Vec<Vec<ModuleId>>,
    ids: Arc<RequestIds>,
    now: Now,
    observer: Arc<dyn Observer>,
    workers: IndexMap<WorkerId, Worker, FxBuildHasher>,
    links: OnceLock<Vec<Arc<dyn WorkerLink>>>,
    control: Mutex<Control>,
}

impl PipelineHost {
    /// A host of `pipeline`, served by `workers`. Serves nothing until it is connected.
    pub fn new(
        pipeline: Arc<Pipeline>,
        planned: &Arc<Planned>,
        workers: Vec<Worker>,
        ids: Arc<RequestIds>,
        now: Now,
        observer: Arc<dyn Observer>,
    ) -> Self {
        let modules = pipeline
            .modules
            .iter()
            .map(|module| {
                let serving: Vec<WorkerId> = workers
                    .iter()
                    .filter(|w| w.module == module.id)
                    .map(|w| w.id)
                    .collect();
                ModuleController::new(&pipeline, module.id, planned, &serving, SEED)
            })
            .collect();
        let devices: Vec<Vec<usize>> = pipeline
            .modules
            .iter()
            .map(|module| {
                let serving = workers.iter().filter(|w| w.module == module.id);
                serving.map(|w| w.link).collect()
            })
            .collect();
        let control = Control {
            ledger: Ledger::new(&pipeline, planned, &devices),
            modules,
            open: IndexMap::default(),
            commands: Vec::new(),
            times: Vec::new(),
            published: vec![None; pipeline.modules.len()],
            scaling: None,
            applications: Applications::default(),
        };
        PipelineHost {
            successors: pipeline
                .modules
                .iter()
                .map(|m| pipeline.successors(m.id))
                .collect(),
            pipeline,
            ids,
            now,
            observer,
            workers: workers.into_iter().map(|w| (w.id, w)).collect(),
            links: OnceLock::new(),
            control: Mutex::new(control),
        }
    }

    /// Gives the ways to the devices, once, and tells the workers what to go by at first.
    pub fn connect(&self, links: Vec<Arc<dyn WorkerLink>>) {
        let first = self.links.set(links).is_ok();
        assert!(first, "a host is connected once");
        let guides = {
            let control = self.control.lock();
            let of = |m: &ModuleController| m.guidance();
            (0..)
                .map(ModuleId)
                .zip(control.modules.iter().map(of))
                .collect()
        };
        self.perform(Effects {
            guides,
            ..Effects::default()
        });
    }

    /// The pipeline.
    pub fn pipeline(&self) -> &Arc<Pipeline> {
        &self.pipeline
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        (self.now)()
    }

    /// The workers, in order of id.
    pub fn workers(&self) -> impl Iterator<Item = &Worker> {
        self.workers.values()
    }

    /// Accepts a request and sends it on its way. From here on `on_end` is called exactly once.
    ///
    /// # Errors
    /// When it is refused; `on_end` is not called then.
    pub fn submit(&self, submission: Submission) -> Result<RequestId, Refusal> {
        let Submission {
            job,
            source_done,
            number,
            client,
            client_id,
            application,
            timeout,
            decoding,
            trace,
            on_end,
        } = submission;
        let now = (self.now)();
        let id = self.ids.next();
        let mut effects = Effects::default();
        {
            let mut control = self.control.lock();
            // A client without a clock exchange is taken to have sent when its frame arrived (DESIGN §5).
            let offer = Offer {
                sent_at: now,
                timeout,
                decoding,
            };
            let request = control
                .ledger
                .admit(now, id, &offer)
                .inspect_err(|refusal| self.note_refused(refusal.reason().label()))?;
            let request = Request {
                application: control.applications.of(&application),
                client: client_id,
                ..request
            };
            let open = Open {
                request,
                admitted_at: now,
                number,
                client,
                trace,
                job,
                times: Vec::with_capacity(self.pipeline.modules.len()),
                on_end,
            };
            control.open.insert(id, open);
            if source_done {
                self.module_done(
                    &mut control,
                    now,
                    request,
                    ModuleId::SOURCE,
                    true,
                    &mut effects,
                );
            } else {
                let begin = Event::Begin(request);
                self.drive_module(&mut control, now, ModuleId::SOURCE, begin, &mut effects);
            }
        }
        self.perform(effects);
        Ok(id)
    }

    /// A frame was refused before it was submitted.
    pub fn note_refused(&self, reason: &'static str) {
        self.observer.request_refused(&self.pipeline, reason);
    }

    /// A worker begins a batch of that many.
    pub fn started(&self, worker: WorkerId, size: usize, expected_end: Timestamp) {
        let Some(module) = self.workers.get(&worker).map(|w| w.module) else {
            return;
        };
        let started = Event::Started {
            worker,
            size,
            expected_end,
        };
        let now = (self.now)();
        let mut effects = Effects::default();
        self.drive_module(&mut self.control.lock(), now, module, started, &mut effects);
        self.perform(effects);
    }

    /// A finished request ran again at a worker, for its time alone.
    pub fn reran(&self, worker: WorkerId, took: Duration) {
        if let Some(worker) = self.workers.get(&worker) {
            self.observer.reran(&self.pipeline, worker.module, took);
        }
    }

    /// Wakes the planners whose time has come, makes their estimates, and scales. Returns the next time at which one
    /// wants to be woken. To be called from a thread that no request waits for.
    pub fn wake(&self) -> Option<Timestamp> {
        for module in self.pipeline.modules.iter().map(|m| m.id) {
            let now = (self.now)();
            let mut effects = Effects::default();
            {
                // One module at a time, so that requests get in between.
                let mut control = self.control.lock();
                let due = control.modules[module.idx()].next_wakeup();
                if due.is_none_or(|at| at > now) {
                    continue;
                }
                self.drive_module(&mut control, now, module, Event::Wakeup, &mut effects);
            }
            self.perform(effects);
        }
        self.scale();
        self.next_wakeup()
    }

    /// When [`PipelineHost::wake`] has something to do; never under a policy that does not plan, with fixed workers.
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        let control = self.control.lock();
        let wakeups = control.modules.iter().filter_map(|m| m.next_wakeup());
        wakeups.chain(Self::scales_at(&control)).min()
    }

    /// What the State Planners know.
    pub fn planner_view(&self) -> PlannerView {
        let control = self.control.lock();
        let published = control.published.iter().cloned();
        let guidance = control.modules.iter().map(ModuleController::guidance);
        PlannerView {
            gate: control.ledger.gate_rate(),
            modules: published.zip(guidance).collect(),
        }
    }

    /// A worker that was told to forget a request had not begun it.
    pub fn forgotten(&self, worker: WorkerId, request: RequestId) {
        let Some(module) = self.workers.get(&worker).map(|w| w.module) else {
            return;
        };
        let now = (self.now)();
        let mut effects = Effects::default();
        let mut control = self.control.lock();
        if control.ledger.forgotten(request) {
            self.drive_module(&mut control, now, module, Event::Unasked, &mut effects);
        }
    }

    /// A worker dropped a request that waited there.
    pub fn dropped(&self, request: Request, drop: DropRecord) {
        let mut effects = Effects::default();
        {
            let mut control = self.control.lock();
            let dropped = Event::Dropped(request.id);
            self.drive_module(&mut control, drop.at, drop.module, dropped, &mut effects);
            let outcome = Outcome::Dropped(drop);
            self.end_early(
                &mut control,
                drop.at,
                request.id,
                outcome,
                None,
                &mut effects,
            );
        }
        self.perform(effects);
    }

    /// The client left: whatever the request still waits for is freed.
    pub fn cancel(&self, id: RequestId) {
        let now = (self.now)();
        let mut effects = Effects::default();
        self.drop_from_here(
            &mut self.control.lock(),
            now,
            id,
            DropReason::Cancelled,
            &mut effects,
        );
        self.perform(effects);
    }

    /// A newer frame takes this one's place, if it still waits.
    pub fn supersede(&self, id: RequestId) {
        let waits_at: Vec<WorkerId> = {
            let control = self.control.lock();
            control
                .modules
                .iter()
                .filter_map(|m| m.location(id))
                .collect()
        };
        for worker in waits_at {
            self.link(worker).withdraw(id, DropReason::Superseded);
        }
    }

    /// Workers died.
    pub fn workers_down(&self, workers: &[WorkerId], cause: &str) {
        let now = (self.now)();
        let mut effects = Effects::default();
        {
            let mut control = self.control.lock();
            for worker in workers.iter().filter_map(|id| self.workers.get(id)) {
                let down = Event::WorkerDown(worker.id);
                let mut commands = std::mem::take(&mut control.commands);
                control.modules[worker.module.idx()].on_event(now, down, &mut commands);
                for command in commands.drain(..) {
                    if let Command::Fail(id) = command {
                        let outcome = Outcome::Failed {
                            module: worker.module,
                        };
                        let cause = Some(cause.to_owned());
                        self.end_early(&mut control, now, id, outcome, cause, &mut effects);
                    }
                }
                control.commands = commands;
                self.worker_died(&mut control, now, worker.id, &mut effects);
            }
        }
        self.perform(effects);
    }

    /// Refuses what comes from now on.
    pub fn drain(&self) {
        self.control.lock().ledger.drain();
    }

    /// Requests that have not ended.
    pub fn in_flight(&self) -> usize {
        self.control.lock().ledger.in_flight()
    }

    /// Drops all that has not ended.
    pub fn abort(&self) {
        let now = (self.now)();
        let mut effects = Effects::default();
        {
            let mut control = self.control.lock();
            for id in control.ledger.open_requests() {
                self.drop_from_here(&mut control, now, id, DropReason::Draining, &mut effects);
            }
        }
        self.perform(effects);
    }

    fn link(&self, worker: WorkerId) -> &Arc<dyn WorkerLink> {
        let links = self
            .links
            .get()
            .expect("a host is connected before it serves");
        &links[self.workers[&worker].link]
    }
}
