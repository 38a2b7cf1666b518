//! Drives the gateway and the module controllers of one pipeline, in this process. Each event is one short critical
//! section; messages to devices and answers follow after the lock is released, and so do the State Planners' estimates,
//! which take a thousand times as long.

mod drive;
mod finished;
mod scaling;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use indexmap::{IndexMap, IndexSet};
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use spillgate_backend::job::{Job, Ran};
use spillgate_controller_policy::gateway::{self, Gateway};
use spillgate_controller_policy::ledger::{Offer, Refusal};
use spillgate_controller_policy::message::Place;
use spillgate_controller_policy::module::{Event as ControllerEvent, ModuleController};
use spillgate_controller_policy::planner::{ModuleState, Planned};
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::{ClientId, RequestId, WorkerId};
use spillgate_pipeline::message::ToDevice;
use spillgate_pipeline::policy::Guidance;
use spillgate_pipeline::request::{Drop as DropRecord, ModuleTimes, Request};
use spillgate_pipeline::schedule::{APPLICATIONS_MAX, Application};
use spillgate_pipeline::time::Timestamp;

use crate::record::{Observer, RequestRecord, TraceContext};
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

/// The way to a device. Called without locks held; may call back.
pub trait DeviceLink: Send + Sync {
    /// Carries a message. Messages arrive in the order in which they were sent.
    fn send(&self, message: ToDevice<Arc<Job>>);
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

/// What is kept for an open request.
struct Open {
    admitted_at: Timestamp,
    number: u64,
    client: Arc<str>,
    trace: TraceContext,
    job: Arc<Job>,
    times: Vec<ModuleTimes>,
    on_end: OnEnd,
}

type Command = gateway::Command<Box<Open>, Arc<Job>>;

struct Control {
    gateway: Gateway<Box<Open>, Arc<Job>>,
    controllers: Vec<ModuleController>,
    commands: Vec<Command>,
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

/// One pipeline in this process.
pub struct PipelineHost {
    pipeline: Arc<Pipeline>,
    ids: Arc<RequestIds>,
    now: Now,
    observer: Arc<dyn Observer>,
    workers: IndexMap<WorkerId, Place, FxBuildHasher>,
    links: OnceLock<Vec<Arc<dyn DeviceLink>>>,
    control: Mutex<Control>,
}

impl PipelineHost {
    /// A host of `pipeline`, served by `workers`. Serves nothing until it is connected.
    pub fn new(
        pipeline: Arc<Pipeline>,
        planned: &Arc<Planned>,
        workers: Vec<Place>,
        ids: Arc<RequestIds>,
        now: Now,
        observer: Arc<dyn Observer>,
    ) -> Self {
        let modules = pipeline.modules.iter();
        let controller = |module| ModuleController::new(&pipeline, module, planned, &workers, SEED);
        let control = Control {
            controllers: modules.map(|m| controller(m.id)).collect(),
            gateway: Gateway::new(&pipeline, planned, &workers, SEED),
            commands: Vec::new(),
            scaling: None,
            applications: Applications::default(),
        };
        PipelineHost {
            pipeline,
            ids,
            now,
            observer,
            workers: workers.into_iter().map(|w| (w.worker, w)).collect(),
            links: OnceLock::new(),
            control: Mutex::new(control),
        }
    }

    /// Gives the ways to the devices, by id, once, and tells the workers what to go by at first.
    pub fn connect(&self, links: Vec<Arc<dyn DeviceLink>>) {
        let first = self.links.set(links).is_ok();
        assert!(first, "a host is connected once");
        self.act(|control, now, effects| {
            for module in self.pipeline.modules.iter().map(|m| m.id) {
                let mut commands = Vec::new();
                control.controllers[module.idx()].start(&mut commands);
                self.follow_controller(control, now, module, commands, effects);
            }
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
    pub fn workers(&self) -> impl Iterator<Item = &Place> {
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
        let id = self.ids.next();
        self.act(|control, now, effects| {
            // A client without a clock exchange is taken to have sent when its frame arrived.
            let offer = Offer {
                sent_at: now,
                timeout,
                decoding,
                application: control.applications.of(&application),
                client: client_id,
            };
            let open = Box::new(Open {
                admitted_at: now,
                number,
                client,
                trace,
                job: job.clone(),
                times: Vec::with_capacity(self.pipeline.modules.len()),
                on_end,
            });
            control
                .gateway
                .admit(now, id, &offer, open, job)
                .inspect_err(|refusal| self.note_refused(refusal.reason().label()))?;
            if source_done {
                self.source_done(control, now, id, effects);
            } else {
                let decode = gateway::Event::Decode(id);
                self.drive_gateway(control, now, decode, effects);
            }
            Ok(id)
        })
    }

    /// A frame was refused before it was submitted.
    pub fn note_refused(&self, reason: &'static str) {
        self.observer.request_refused(&self.pipeline, reason);
    }

    /// A worker begins a batch of that many.
    pub fn started(&self, worker: WorkerId, size: usize, expected_end: Timestamp) {
        self.tell(gateway::Event::Started {
            worker,
            size,
            expected_end,
        });
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
            // One module at a time, so that requests get in between.
            self.act(|control, now, effects| {
                let due = control.controllers[module.idx()].next_wakeup();
                if due.is_some_and(|at| at <= now) {
                    let wakeup = ControllerEvent::Wakeup;
                    self.drive_controller(control, now, module, wakeup, effects);
                }
            });
        }
        self.scale();
        self.next_wakeup()
    }

    /// When [`PipelineHost::wake`] has something to do; never under a policy that does not plan, with fixed workers.
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        let control = self.control.lock();
        let wakeups = control.controllers.iter().filter_map(|m| m.next_wakeup());
        wakeups.chain(Self::scales_at(&control)).min()
    }

    /// What the State Planners know.
    pub fn planner_view(&self) -> PlannerView {
        let control = self.control.lock();
        let known = |m: &ModuleController| (m.published().cloned(), m.guidance());
        PlannerView {
            gate: control.gateway.gate_rate(),
            modules: control.controllers.iter().map(known).collect(),
        }
    }

    /// A worker that was told to forget a request had not begun it.
    pub fn forgotten(&self, worker: WorkerId, request: RequestId) {
        self.tell(gateway::Event::Forgotten(worker, request));
    }

    /// A worker dropped a request that waited there.
    pub fn dropped(&self, worker: WorkerId, request: RequestId, drop: DropRecord) {
        self.act(|control, _, effects| {
            let returned = gateway::Event::Returned(worker, request);
            self.drive_gateway(control, drop.at, returned, effects);
            let dropped = gateway::Event::Dropped(request, drop);
            self.drive_gateway(control, drop.at, dropped, effects);
        });
    }

    /// The client left: whatever the request still waits for is freed.
    pub fn cancel(&self, id: RequestId) {
        self.tell(gateway::Event::Cancel(id));
    }

    /// A newer frame takes this one's place, if it still waits.
    pub fn supersede(&self, id: RequestId) {
        self.tell(gateway::Event::Supersede(id));
    }

    /// Workers died.
    pub fn workers_down(&self, workers: &[WorkerId], cause: &str) {
        self.act(|control, now, effects| {
            for &worker in workers {
                let down = gateway::Event::WorkerDown(worker, cause);
                self.drive_gateway(control, now, down, effects);
                self.worker_died(control, now, worker, effects);
            }
        });
    }

    /// Refuses what comes from now on.
    pub fn drain(&self) {
        self.control.lock().gateway.drain();
    }

    /// Requests that have not ended.
    pub fn in_flight(&self) -> usize {
        self.control.lock().gateway.in_flight()
    }

    /// Drops all that has not ended.
    pub fn abort(&self) {
        self.tell(gateway::Event::Abort);
    }
}
