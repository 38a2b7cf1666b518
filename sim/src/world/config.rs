//! The configuration of a run.

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::Cluster;
use spillgate_controller_policy::plan::Planned;
use spillgate_controller_policy::scaling::ScalingConfig;
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::{GatewayId, ModuleId};
use spillgate_pipeline::time::Timestamp;

use super::cameras::SimCamera;
use super::cluster::Bug;
use super::fleets::SimFleet;
use super::work::DynamicWork;
use spillgate_worker_policy::weights::store::WeightStoreConfig;

use crate::clients::ClientLoad;
use crate::families::SimFamilies;

/// Time from a device becoming free to the start of a batch that was bound only then, unless said otherwise.
pub const HANDOFF_DEFAULT: Duration = Duration::from_micros(500);
/// Travel time of a message from part to part by default: that of the reference workload.
pub const HOP_DEFAULT: Duration = Duration::from_micros(500);

/// One emulated run.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// The pipeline. Its modules run on emulated devices whatever devices it names; its policy decides.
    pub pipeline: Arc<Pipeline>,
    /// Batch sizes and execution times.
    pub planned: Arc<Planned>,
    /// Ordinal of the device of each worker, for each module (the source has none). Modules that
    /// name the same ordinal share the device.
    pub workers: Vec<Vec<u16>>,
    /// Arrival times, in order.
    pub arrivals: Arc<[Timestamp]>,
    /// Time that offered load lasts, for rates.
    pub duration: Duration,
    /// Requests that arrive within this time from the start are served, but the report has them in the times of devices only.
    pub warm_up: Duration,
    /// Travel of a message between gateways, controllers and workers.
    pub hop: Duration,
    /// Added to the travel of each message: exponential, with this mean. Messages from one process to another still arrive
    /// in the order in which they were sent.
    pub jitter: Duration,
    /// Part of the requests that each gateway accepts; one gateway for all by default.
    pub gateways: Vec<f64>,
    /// Requests travel to their worker as any other message does. If not, the travel between two modules is counted once, on
    /// the way back to the gateway.
    pub apart: bool,
    /// Time from a device becoming free to the start of a batch that was bound only then.
    pub handoff: Duration,
    /// Execution times vary by a factor: normal with mean 1 and this standard deviation, at least 0.1.
    pub noise: f64,
    /// Probability that a `when:` holds, until a disturbance changes it.
    pub when_probability: f64,
    /// Part of the requests whose client leaves, half the SLO after sending.
    pub cancelled: f64,
    /// Part of the requests that ask for less time, and the share of the SLO that they ask for.
    pub hurried: Option<(f64, f64)>,
    /// The time that each request asks for, in order of arrival; `None`: that of the pipeline.
    pub timeouts: Option<Arc<[Duration]>>,
    /// Hostile clients beside those of the workload: their requests never complete. The report does not count them.
    pub hostile: Vec<Hostile>,
    /// The clients that send the requests, where the entry tells them apart; `None`: one client with one stream.
    pub clients: Option<ClientLoad>,
    /// Cameras beside the workload, with links of their own. Each stays at one gateway, and they come in turn. Not in a cluster.
    pub cameras: Vec<SimCamera>,
    /// Part of the state messages between planners that is lost.
    pub exchange_loss: f64,
    /// Each device's clock is off by a constant, uniform from minus to plus this.
    pub clock_skew: Duration,
    /// Changes during the run.
    pub disturbances: Vec<(Timestamp, Disturbance)>,
    /// Requests whose execution time depends on their content; `None`: all execution times are those of the profiles.
    pub work: Option<DynamicWork>,
    /// The models of families that requests name; `None`: all name the first, and no model has to be read.
    pub families: Option<Arc<SimFamilies>>,
    /// By device: its memory for weights. Empty where devices read the models of families when they are asked for first, and keep them.
    pub memory: Vec<WeightStoreConfig>,
    /// Devices for which a placement decides. They are in the process of the only gateway, and none of them dies.
    pub fleets: Vec<SimFleet>,
    /// Workers come and go with the load; without it, all serve all the time.
    pub scaling: Option<SimScaling>,
    /// The processes that hold the roles, and what goes wrong between them. [`SimConfig::gateways`] has the shares of its
    /// gateways; its own travel takes the place of `hop` and `jitter`. `None`: roles hear of each other at once.
    pub cluster: Option<Arc<Cluster>>,
    /// A bug on purpose in a cluster, for tests.
    pub bug: Option<Bug>,
    /// Seed of all random draws.
    pub seed: u64,
}

/// The parts that every world has: the pipeline, its workers and the arrivals.
#[derive(Clone, Debug)]
pub struct Served {
    /// See [`SimConfig::pipeline`].
    pub pipeline: Arc<Pipeline>,
    /// See [`SimConfig::planned`].
    pub planned: Arc<Planned>,
    /// See [`SimConfig::workers`].
    pub workers: Vec<Vec<u16>>,
    /// See [`SimConfig::arrivals`].
    pub arrivals: Arc<[Timestamp]>,
    /// See [`SimConfig::duration`].
    pub duration: Duration,
}

impl SimConfig {
    /// A world in which nothing varies and nothing goes wrong, with the hop and the hand-off of the reference.
    pub fn undisturbed(served: Served, seed: u64) -> Self {
        let Served {
            pipeline,
            planned,
            workers,
            arrivals,
            duration,
        } = served;
        SimConfig {
            pipeline,
            planned,
            workers,
            arrivals,
            duration,
            warm_up: Duration::ZERO,
            hop: HOP_DEFAULT,
            jitter: Duration::ZERO,
            gateways: vec![1.0],
            apart: false,
            handoff: HANDOFF_DEFAULT,
            noise: 0.0,
            when_probability: 1.0,
            cancelled: 0.0,
            hurried: None,
            timeouts: None,
            hostile: Vec::new(),
            clients: None,
            cameras: Vec::new(),
            exchange_loss: 0.0,
            clock_skew: Duration::ZERO,
            disturbances: Vec::new(),
            work: None,
            families: None,
            memory: Vec::new(),
            fleets: Vec::new(),
            scaling: None,
            cluster: None,
            bug: None,
            seed,
        }
    }
}

/// Hostile clients, whose requests never complete. They send at equal distances.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hostile {
    /// What they do.
    pub kind: HostileKind,
    /// Requests a second.
    pub rate: f64,
}

/// What hostile clients do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HostileKind {
    /// They ask for an answer within this time.
    Hurry(Duration),
    /// They send what the source cannot read.
    Unreadable,
    /// They leave this long after sending.
    Leave(Duration),
}

/// Scaled workers: those of [`SimConfig::workers`] beyond the least are off at first.
#[derive(Clone, Debug, PartialEq)]
pub struct SimScaling {
    /// The scaler's.
    pub config: ScalingConfig,
    /// Time that a device takes to read the model of a worker, beside its batches.
    pub cold_start: Duration,
}

/// A change in the emulated world.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Disturbance {
    /// A module's workers take this many times as long.
    Pace(ModuleId, f64),
    /// A module's worker of that ordinal dies with all its requests.
    Down(ModuleId, usize),
    /// It is back, empty.
    Up(ModuleId, usize),
    /// The probability that a `when:` holds.
    When(f64),
    /// A gateway crashes. Its clients go to the others.
    GatewayDown(GatewayId),
    /// It begins anew.
    GatewayUp(GatewayId),
    /// The controller of a module crashes.
    ControllerDown(ModuleId),
    /// It begins anew.
    ControllerUp(ModuleId),
}
