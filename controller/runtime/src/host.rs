//! Drives the gateway and the module controllers of one pipeline, as far as this process holds them. Each event is one short
//! critical section; messages to devices and other processes, and answers, follow after the lock is released, and so do the State
//! Planners' estimates, which take a thousand times as long.

mod asks;
pub(crate) mod counts;
mod drive;
mod finished;
mod others;
mod outbox;
mod views;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use spillgate_controller_policy::clients::RightsByKey;
use spillgate_controller_policy::families::Members;
use spillgate_controller_policy::gateway::{self, Gateway, GatewayConfig};
use spillgate_controller_policy::ledger::Offer;
use spillgate_controller_policy::module::{ControllerConfig, ControllerEvent, ModuleController};
use spillgate_controller_policy::plan::Planned;
use spillgate_controller_policy::refusal::Refusal;
use spillgate_controller_policy::rollout::Outcomes;
use spillgate_controller_policy::scaling::ScalingConfig;
use spillgate_controller_policy::shares::Party;
use spillgate_controller_policy::variant_selector::{FrameSize, StreamKey};
use spillgate_picture::Damage;
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::{
    ClientId, DeviceId, GatewayId, Incarnation, ModuleId, RequestId, WorkerId,
};
use spillgate_pipeline::invariants::Checker;
use spillgate_pipeline::pipeline::PortRef;
use spillgate_pipeline::request::{ModuleTimes, Request};
use spillgate_pipeline::time::Timestamp;
use spillgate_process::clock::Clock;
use spillgate_process::job::{Job, Ran};
use spillgate_process::value::Outputs;
use spillgate_protocol::message::{Address, Envelope, Filled, Place, Places};

use asks::Asks;
pub(crate) use asks::{Listening, OnAsk};
pub use counts::{COUNTED_MAX, ClientCount, Counted, STREAMS_COUNTED_MAX};
use counts::{OutcomeCounts, Tally};
use drive::keep;
use others::Others;
use outbox::Outbox;
pub use views::{ControllerView, PlannerView};

use crate::record::{Observer, RequestRecord, Sizes, TraceContext};

/// Seed of the planners' draws and of admission by chance. Fixed: nothing is gained by another.
const SEED: u64 = 1;

/// Hands out the ids of requests whose owner is this process.
pub struct RequestIds {
    owner: GatewayId,
    life: Incarnation,
    next: AtomicU64,
}

impl RequestIds {
    /// Those of that gateway in that life.
    pub fn new(owner: GatewayId, life: Incarnation) -> Self {
        RequestIds {
            owner,
            life,
            next: AtomicU64::new(0),
        }
    }

    fn next(&self) -> RequestId {
        let ordinal = self.next.fetch_add(1, Ordering::Relaxed);
        RequestId::at(self.owner, self.life, ordinal)
    }
}

/// Ended requests that the checker of invariants remembers.
const ENDED_REMEMBERED: usize = 4096;
/// The checker looks at one of so many requests and batches: a breach that lasts shows soon.
const CHECKED_ONE_IN: u64 = 16;

/// The roles of a pipeline that a process holds, beside devices.
#[derive(Clone, Debug)]
pub struct Roles {
    /// This life of the process.
    pub incarnation: Incarnation,
    /// Its gateway. Without one it takes no requests from clients.
    pub gateway: Option<GatewayId>,
    /// The modules whose controllers it holds.
    pub controllers: Vec<ModuleId>,
    /// Its devices.
    pub devices: Vec<DeviceId>,
}

impl Roles {
    /// All roles: there is no other process.
    pub fn all(pipeline: &Pipeline, devices: Vec<DeviceId>) -> Self {
        Roles {
            incarnation: Incarnation::default(),
            gateway: Some(GatewayId(0)),
            controllers: pipeline.modules.iter().map(|m| m.id).collect(),
            devices,
        }
    }

    /// Their addresses.
    pub fn addresses(&self) -> Vec<Address> {
        let controllers = self.controllers.iter().copied().map(Address::Controller);
        let devices = self.devices.iter().copied().map(Address::Device);
        let gateway = self.gateway.map(Address::Gateway);
        controllers.chain(devices).chain(gateway).collect()
    }
}

/// What a member of a batch that ended brings, beside what the gateway's policy hears of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ItemOutputs {
    /// Its way through the module.
    pub times: ModuleTimes,
    /// The outputs of the module; `None` where it failed.
    pub outputs: Option<Outputs>,
    /// What is damaged in the request's picture.
    pub damage: Option<Damage>,
}

/// An envelope that leaves the host.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// The envelope.
    pub envelope: Envelope<Arc<Job>>,
    /// Where it tells a gateway of another process that a batch ended: what that brought, one entry a member.
    pub brought: Vec<ItemOutputs>,
}

impl From<Envelope<Arc<Job>>> for Outgoing {
    fn from(envelope: Envelope<Arc<Job>>) -> Self {
        Outgoing {
            envelope,
            brought: Vec::new(),
        }
    }
}

/// The way to a device of this process, or to other processes. Called without locks held; may call back.
pub type OutgoingSender = Arc<dyn Fn(Outgoing) + Send + Sync>;

/// Told of each request that has ended. Called without locks held; may call back.
pub type OnEnded = Box<dyn Fn(RequestId) + Send + Sync>;

/// Wakes the host at a time or earlier.
pub type Alarm = Box<dyn Fn(Timestamp) + Send + Sync>;

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
    /// The same for fair shares of what the pipeline can serve.
    pub party: Party,
    /// The name by which its client is counted.
    pub counted: Counted,
    /// Whose work it is: requests of one application have one distribution of execution times.
    pub application: Arc<str>,
    /// Which model of each family it is for.
    pub members: Members,
    /// Its stream, where variants are chosen for each.
    pub stream: StreamKey,
    /// How large its picture is.
    pub frame: FrameSize,
    /// Of its picture, and of the client's.
    pub sizes: Sizes,
    /// When it was sent, if that is known; not in the future.
    pub sent_at: Option<Timestamp>,
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
pub struct ItemResult {
    /// The request.
    pub request: Request,
    /// Its values.
    pub job: Arc<Job>,
    /// Its way through the module.
    pub times: ModuleTimes,
    /// What the module computed, or why not.
    pub result: Ran,
}

/// What the host knows of an open request.
struct OpenRequest {
    admitted_at: Timestamp,
    number: u64,
    client: Arc<str>,
    sizes: Sizes,
    counted: Counted,
    trace: TraceContext,
    job: Arc<Job>,
    times: Vec<ModuleTimes>,
    on_end: OnEnd,
}

type Command = gateway::Command<OpenRequest, Arc<Job>>;

struct Control {
    gateway: Option<Gateway<OpenRequest, Arc<Job>>>,
    /// By module.
    controllers: Vec<Option<ModuleController>>,
    commands: Vec<Command>,
    checker: Checker,
    others: Others,
}

impl Control {
    fn gateway_wakeup(&self) -> Option<Timestamp> {
        self.gateway.as_ref().and_then(Gateway::next_wakeup)
    }
}

/// The ways out of a host.
struct Outboxes {
    /// By id: to the devices of this process. Those of others have theirs in [`Others`].
    devices: Vec<Option<Outbox>>,
    /// To gateways and controllers of other processes.
    elsewhere: Outbox,
    /// What other processes keep for a request they may forget.
    ended: OnEnded,
}

impl Outboxes {
    /// To a device of this process.
    fn device(&self, device: DeviceId) -> Option<&Outbox> {
        self.devices.get(device.idx())?.as_ref()
    }
}

/// What a host is built from.
pub struct HostConfig<'a> {
    /// The pipeline.
    pub pipeline: Arc<Pipeline>,
    /// Batch sizes and execution times.
    pub planned: &'a Arc<Planned>,
    /// The workers of this process. Those of others [join](PipelineHost::join) later.
    pub workers: Vec<Place>,
    /// How their number follows the load; `None`: it is fixed, and all serve all the time.
    pub scaling: Option<ScalingConfig>,
    /// The roles of this process.
    pub roles: Roles,
    /// Ids of requests.
    pub ids: Arc<RequestIds>,
    /// The clock.
    pub clock: Clock,
    /// Told of all that ends.
    pub observer: Arc<dyn Observer>,
}

/// One pipeline in this process.
pub struct PipelineHost {
    pipeline: Arc<Pipeline>,
    roles: Roles,
    ids: Arc<RequestIds>,
    clock: Clock,
    observer: Arc<dyn Observer>,
    /// Of this process.
    workers: Places,
    /// Of clients.
    rights: RightsByKey,
    counts: Mutex<Tally>,
    outcomes: OutcomeCounts,
    asks: Asks,
    /// By module: the outputs that a `when:` looks at.
    watched: Vec<Vec<PortRef>>,
    outboxes: OnceLock<Outboxes>,
    alarm: OnceLock<Alarm>,
    control: Mutex<Control>,
}

impl PipelineHost {
    /// A host. Serves nothing until it is connected.
    pub fn new(config: HostConfig<'_>) -> Self {
        let HostConfig {
            pipeline,
            planned,
            workers,
            scaling,
            roles,
            ids,
            clock,
            observer,
        } = config;
        let born = clock.now();
        let incarnation = roles.incarnation;
        let controller = |module: ModuleId| {
            let is_here = roles.controllers.contains(&module);
            is_here.then(|| {
                ModuleController::new(&ControllerConfig {
                    module,
                    incarnation,
                    pipeline: &pipeline,
                    planned,
                    places: &workers,
                    scaling: scaling.as_ref().and_then(|s| s.of(module)),
                    seed: SEED,
                    born,
                })
            })
        };
        let gateway = |id| {
            Gateway::new(&GatewayConfig {
                id,
                incarnation,
                pipeline: &pipeline,
                planned,
                places: &workers,
                // Each process calls its own gateway the first one, and its life is random.
                turn: incarnation.0 as u32 as usize,
                seed: SEED,
                born,
            })
        };
        let control = Control {
            controllers: pipeline.modules.iter().map(|m| controller(m.id)).collect(),
            gateway: roles.gateway.map(gateway),
            commands: Vec::new(),
            checker: Checker::new(ENDED_REMEMBERED),
            others: Others::default(),
        };
        PipelineHost {
            rights: RightsByKey::new(&pipeline.clients),
            counts: Mutex::default(),
            outcomes: OutcomeCounts::default(),
            asks: Asks::default(),
            watched: pipeline.watched(),
            pipeline,
            roles,
            ids,
            clock,
            observer,
            workers: Places::new(&workers),
            outboxes: OnceLock::new(),
            alarm: OnceLock::new(),
            control: Mutex::new(control),
        }
    }

    /// Gives the ways to the devices of this process, the way to other processes, who is told of requests that have ended, and the
    /// alarm that leads to [`PipelineHost::wake`]; once. The roles of this process greet each other.
    pub fn connect(
        &self,
        devices: impl IntoIterator<Item = (DeviceId, OutgoingSender)>,
        elsewhere: OutgoingSender,
        ended: OnEnded,
        alarm: Alarm,
    ) {
        let mut by_id: Vec<Option<Outbox>> = Vec::new();
        for (device, way) in devices {
            if by_id.len() <= device.idx() {
                by_id.resize_with(device.idx() + 1, || None);
            }
            by_id[device.idx()] = Some(Outbox::new(way));
        }
        let outboxes = Outboxes {
            devices: by_id,
            elsewhere: Outbox::new(elsewhere),
            ended,
        };
        let first = self.outboxes.set(outboxes).is_ok() && self.alarm.set(alarm).is_ok();
        assert!(first, "a host is connected once");
        self.met(&self.roles.addresses(), self.roles.incarnation);
    }

    /// The pipeline.
    pub fn pipeline(&self) -> &Arc<Pipeline> {
        &self.pipeline
    }

    /// Whether this process holds controllers of it.
    pub fn has_controllers(&self) -> bool {
        !self.roles.controllers.is_empty()
    }

    /// The rights of its clients.
    pub(crate) fn rights(&self) -> &RightsByKey {
        &self.rights
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The workers of this process.
    pub fn workers(&self) -> &Places {
        &self.workers
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
            party,
            counted,
            application,
            members,
            stream,
            frame,
            sizes,
            sent_at,
            timeout,
            decoding,
            trace,
            on_end,
        } = submission;
        let id = self.ids.next();
        let name = client.clone();
        let is_background = party.background;
        // Of a request that is refused all this is freed without the host's lock.
        let mut opened = Some(OpenRequest {
            admitted_at: Timestamp::ZERO,
            number,
            client,
            sizes,
            counted: counted.clone(),
            trace,
            job,
            times: Vec::new(),
            on_end,
        });
        let submitted = self.act(|control, now, effects| {
            // A client without a clock exchange is taken to have sent when its frame arrived.
            let offer = Offer {
                sent_at: sent_at.unwrap_or(now),
                timeout,
                decoding,
                application: self.application(control, now, &application, effects),
                client: client_id,
                party,
                members,
                stream,
                frame,
            };
            let content = || {
                let mut open = opened.take().expect("a request is accepted once");
                open.admitted_at = now;
                open.times.reserve_exact(self.pipeline.modules.len());
                let job = open.job.clone();
                (open, job)
            };
            let gateway = control.gateway.as_mut();
            let gateway = gateway.expect("a process that serves clients holds a gateway");
            gateway.admit(now, id, &offer, content)?;
            if id.0.is_multiple_of(CHECKED_ONE_IN) {
                keep(control.checker.accepted(id), effects);
            }
            let event = match source_done {
                // A frame of bytes is its own output.
                true => gateway::Event::Read(id, Ok(Filled::ALL)),
                false => gateway::Event::Decode(id),
            };
            self.drive_gateway(control, now, event, effects);
            Ok(id)
        });
        self.counts.lock().sent(&counted, &name, submitted.is_err());
        submitted.inspect_err(|refusal: &Refusal| {
            if refusal.is_for_want_of_capacity() && !is_background {
                self.outcomes.refused();
            }
            self.note_refused(refusal.label());
        })
    }

    /// A frame was refused before it was submitted.
    pub fn note_refused(&self, reason: &'static str) {
        self.observer.request_refused(&self.pipeline, reason);
    }

    /// A finished request ran again at a worker, for its time alone.
    pub fn reran(&self, worker: WorkerId, took: Duration) {
        if let Some(worker) = self.workers.get(worker) {
            self.observer.reran(&self.pipeline, worker.module, took);
        }
    }

    /// Wakes the roles whose time has come, and makes the planners' estimates. Returns the next time at which one wants to be
    /// woken. To be called from a thread that no request waits for.
    pub fn wake(&self) -> Option<Timestamp> {
        self.act(|control, now, effects| {
            if control.gateway_wakeup().is_some_and(|at| at <= now) {
                self.drive_gateway(control, now, gateway::Event::Wakeup, effects);
            }
        });
        for &module in &self.roles.controllers {
            // One module at a time, so that requests get in between.
            self.act(|control, now, effects| {
                let due = control.controllers[module.idx()].as_ref();
                if due
                    .and_then(ModuleController::next_wakeup)
                    .is_some_and(|at| at <= now)
                {
                    let wakeup = ControllerEvent::Wakeup;
                    self.drive_controller(control, now, module, wakeup, effects);
                }
            });
        }
        let control = self.control.lock();
        let controllers = control.controllers.iter().flatten();
        let wakeups = controllers.filter_map(ModuleController::next_wakeup);
        wakeups.chain(control.gateway_wakeup()).min()
    }

    /// What each token and the heaviest other clients sent and got.
    pub fn client_counts(&self) -> Vec<(Arc<str>, ClientCount)> {
        self.counts.lock().clients.all()
    }

    /// What the streams with names sent and got, of those that send most.
    pub fn stream_counts(&self) -> Vec<(Arc<str>, ClientCount)> {
        self.counts.lock().streams.all()
    }

    /// What its requests came to, as a rollout judges them.
    pub fn outcomes(&self) -> Outcomes {
        self.outcomes.read()
    }

    /// The client left: whatever the request still waits for is freed.
    pub fn cancel(&self, id: RequestId) {
        self.tell(gateway::Event::Cancel(id));
    }

    /// A newer frame takes this one's place, if it still waits.
    pub fn supersede(&self, id: RequestId) {
        self.tell(gateway::Event::Supersede(id));
    }

    /// Refuses what comes from now on.
    pub fn drain(&self) {
        if let Some(gateway) = &mut self.control.lock().gateway {
            gateway.drain();
        }
    }

    /// The name of a module of which no worker takes requests of this gateway.
    pub fn unserved(&self) -> Option<&str> {
        let module = self.control.lock().gateway.as_ref()?.unserved()?;
        Some(&self.pipeline.modules[module.idx()].name)
    }

    /// Requests that have not ended.
    pub fn in_flight(&self) -> usize {
        self.control
            .lock()
            .gateway
            .as_ref()
            .map_or(0, Gateway::in_flight)
    }

    /// Drops all that has not ended.
    pub fn abort(&self) {
        self.tell(gateway::Event::Abort);
    }
}
