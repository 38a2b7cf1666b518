//! What a process is, does and expects: `/status` of the admin port as JSON, `spillgate status` for people.

mod peers;
mod revisions;
mod scaling;
mod streams;
mod text;

use std::sync::Arc;
use std::time::Instant;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use spillgate_controller::host::{ClientCount, PipelineHost};
use spillgate_controller_policy::gateway::{GatewayView, ModuleView, WorkerHealth};
use spillgate_controller_policy::rollout::RevisionView;
use spillgate_link::links::PeerLinks;
use spillgate_pipeline::id::WorkerId;
use spillgate_pipeline::pipeline::Module;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::membership::Member;
use spillgate_protocol::message::{ModuleState, Places};

use spillgate_pipeline::policy::{BudgetOrder, Guidance};
use spillgate_telemetry::metrics::{
    DeviceReading, ErrorReading, PeerReading, ValuesReading, WeightsReading,
};

pub use peers::PeerStatus;
pub use revisions::RevisionStatus;
pub use scaling::ScalingStatus;
pub(crate) use streams::streams_of;
pub use streams::{AdaptationStatus, StreamStatus};

use crate::device_name::{DeviceName, DeviceNames};
use crate::devices::Device;
pub use crate::devices::measured::MeasuredStatus;
use crate::process_role::ProcessRole;
use crate::values::Values;
use peers::{AWAY, SUSPECTED};

/// The state of one process, as it sees itself and the others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Its name in its set; empty where it is alone.
    pub process: String,
    /// The version of the program.
    pub version: String,
    /// This life of the process, in hex; empty where there is no topology.
    pub incarnation: String,
    /// Seconds since it began to serve.
    pub up_s: f64,
    /// Why it cannot serve; `null` when it can.
    pub not_ready: Option<String>,
    /// What it serves.
    pub pipelines: Vec<PipelineStatus>,
    /// Its own devices.
    pub devices: Vec<DeviceStatus>,
    /// The values that it exchanges with other processes.
    #[serde(default)]
    pub values: ValuesStatus,
    /// The other processes of the topology.
    pub peers: Vec<PeerStatus>,
    /// What is wrong with peers without a session.
    #[serde(default)]
    pub complaints: Vec<Complaint>,
}

/// Values of other processes' requests, and those that others keep.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ValuesStatus {
    /// Bytes that the process holds on its account.
    pub held: u64,
    /// Bytes that it may hold (`--memory`).
    pub limit: u64,
    /// Those of them that are kept in case that they are needed again.
    pub kept: u64,
    /// Requests of other processes for which it keeps values.
    pub kept_requests: usize,
    /// Requests of this gateway for which other processes keep values.
    pub known_requests: usize,
}

/// What is wrong with a peer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Complaint {
    /// The process that is dialled, or the host of one that dials.
    pub peer: String,
    /// What is wrong, and what would be right where that is known.
    pub why: String,
}

/// A pipeline, as this process sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PipelineStatus {
    /// Its name.
    pub name: String,
    /// Its objective in milliseconds.
    pub slo_ms: f64,
    /// Its drop policy, or `placement NAME` where a placement decides.
    pub drop: String,
    /// Its dispatch policy, and that of the adapted module where it has another one.
    pub dispatch: String,
    /// Requests of this gateway that have not ended; `null` where the process is no gateway.
    pub in_flight: Option<usize>,
    /// Requests a second that the entry gate of this gateway lets pass; `null` while it is open.
    pub gate: Option<f64>,
    /// What comes of the requests of the next seconds if as many come as lately; `null` where no controller has published.
    pub next: Option<Forecast>,
    /// The revisions that live, and the one that was taken back last; of a gateway alone.
    #[serde(default)]
    pub revisions: Vec<RevisionStatus>,
    /// The modules of which the process knows something.
    pub modules: Vec<ModuleStatus>,
    /// What serves its streams, where a module's variants are chosen and the process is a gateway.
    #[serde(default)]
    pub adaptation: Option<AdaptationStatus>,
    /// The streams with names that sent most.
    #[serde(default)]
    pub named: Vec<NamedStreamStatus>,
}

/// A stream with a name (`spillgate stream --name`), over all its connections since the process began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NamedStreamStatus {
    /// Its name.
    pub name: String,
    /// Requests that it sent.
    pub requests: u64,
    /// Completed in time.
    pub good: u64,
    /// Refused.
    pub refused: u64,
}

/// What is to be expected.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// Requests offered per second.
    pub offered: f64,
    /// Requests that the bottleneck can serve per second.
    pub capacity: f64,
    /// The bottleneck.
    pub bottleneck: String,
    /// Load factor of the bottleneck. JSON has no infinity: where it has no workers now, this is `null`.
    pub load: Option<f64>,
    /// Part of the requests that will be dropped, at the least.
    pub dropped: f64,
}

/// A module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModuleStatus {
    /// Its name.
    pub name: String,
    /// What its State Planner published last; `null` where nothing was.
    pub planner: Option<PlannerStatus>,
    /// What its workers leave for the modules after it, in milliseconds.
    pub downstream_ms: f64,
    /// Which requests go first: `lowest` or `highest` budget.
    pub order: String,
    /// Requests that wait at this gateway until a worker asks for them.
    pub waiting: usize,
    /// How many workers it has and should have; `null` where its controller is in another process, and of the source.
    #[serde(default)]
    pub scaling: Option<ScalingStatus>,
    /// Its workers, as this gateway sees them.
    pub workers: Vec<WorkerStatus>,
}

/// What a State Planner measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlannerStatus {
    /// Requests that came per second.
    pub offered: f64,
    /// Requests that ran per second.
    pub executed: f64,
    /// Requests that its workers can serve per second. JSON has no infinity: a module without work of its own has `null`.
    pub capacity: Option<f64>,
    /// Mean batch size.
    pub batch_size: f64,
    /// Measured over planned execution time.
    pub pace: f64,
    /// Mean queueing delay in milliseconds.
    pub queueing_ms: f64,
}

/// A worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// Its id.
    pub worker: u32,
    /// Its process; empty where there is no topology.
    pub process: String,
    /// Its device.
    pub device: String,
    /// Requests of this gateway that it has.
    pub has: usize,
    /// `serves`, or why it gets no requests: `set_aside` (it is slow, or not needed now), `leaves`, `suspected`, `away`.
    pub state: String,
}

/// A device of this process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceStatus {
    /// Its name.
    pub name: String,
    /// Its thread lives.
    pub is_alive: bool,
    /// Requests that wait at its workers.
    pub waiting: usize,
    /// Where its memory holds some of the models, or a module has a family: the weights that are there, and what became of them.
    #[serde(default)]
    pub weights: Option<WeightsReading>,
    /// By how much predictions were wrong since it began.
    #[serde(default)]
    pub errors: Vec<ErrorStatus>,
    /// There, too: what models take, as measured when it started, one of each architecture.
    #[serde(default)]
    pub measured: Vec<MeasuredStatus>,
}

/// Errors of one kind of prediction: measured minus expected.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ErrorStatus {
    /// What was predicted: `execute`, `rerun`, `load`.
    pub action: String,
    /// Of its `duration` or its `completion`.
    pub of: String,
    /// The first percentile in milliseconds: it took less.
    pub p1_ms: f64,
    /// The median in milliseconds.
    pub p50_ms: f64,
    /// The 99th percentile in milliseconds: it took longer.
    pub p99_ms: f64,
}

fn named((name, count): (Arc<str>, ClientCount)) -> NamedStreamStatus {
    NamedStreamStatus {
        name: name.to_string(),
        requests: count.requests,
        good: count.good,
        refused: count.refused,
    }
}

impl Status {
    /// For people.
    pub fn to_text(&self) -> String {
        text::text(self)
    }
}

/// Reads the state of this process.
pub(crate) struct StatusReader {
    pub(crate) hosts: Vec<Arc<PipelineHost>>,
    pub(crate) links: Vec<Arc<PeerLinks>>,
    pub(crate) values: Vec<Arc<Values>>,
    /// What is wrong with other processes: of whom, and what.
    pub(crate) complaints: Vec<(String, String)>,
    /// By pipeline: of the devices of all processes that are known.
    pub(crate) device_names: Vec<DeviceNames>,
    /// Its own, each with its workers.
    pub(crate) devices: Vec<(Device, Vec<WorkerId>)>,
    pub(crate) role: Option<ProcessRole>,
    pub(crate) began: Instant,
    /// By pipeline: as its rollout shows them.
    pub(crate) revisions: Vec<Vec<RevisionView>>,
    pub(crate) now: Timestamp,
}

impl StatusReader {
    /// Of a process that serves nothing.
    pub(crate) fn empty(role: Option<ProcessRole>, began: Instant) -> Self {
        StatusReader {
            hosts: Vec::new(),
            links: Vec::new(),
            values: Vec::new(),
            complaints: Vec::new(),
            device_names: Vec::new(),
            devices: Vec::new(),
            role,
            began,
            revisions: Vec::new(),
            now: Timestamp::ZERO,
        }
    }

    /// The state now.
    pub(crate) fn read(&self, not_ready: Option<String>) -> Status {
        let role = self.role.as_ref();
        Status {
            process: role.map_or_else(String::new, |p| p.name.to_string()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            incarnation: role.map_or_else(String::new, |p| hex(p.incarnation.0)),
            up_s: self.began.elapsed().as_secs_f64(),
            not_ready,
            pipelines: (self
                .hosts
                .iter()
                .zip(&self.device_names)
                .zip(&self.revisions))
            .map(|((host, names), revisions)| self.pipeline(host, names, revisions))
            .collect(),
            devices: self.devices.iter().map(Self::device).collect(),
            values: self.values(),
            peers: self.peers(),
            complaints: self.complaints(),
        }
    }

    /// The other processes, for metrics.
    pub(crate) fn peer_readings(&self) -> Vec<PeerReading> {
        let reading = |peer: PeerStatus| PeerReading {
            is_met: peer.state != AWAY,
            is_suspected: peer.state == SUSPECTED,
            peer: peer.process,
            clock_error: peer.clock_error_ms / 1e3,
            waiting: peer.waiting,
            sent: peer.sent,
            received: peer.received,
        };
        self.peers().into_iter().map(reading).collect()
    }

    /// The values that processes exchange, for metrics.
    pub(crate) fn values_reading(&self) -> ValuesReading {
        let readings = self.values.iter().map(|values| values.reading());
        readings.fold(ValuesReading::default(), ValuesReading::and)
    }

    fn values(&self) -> ValuesStatus {
        let reading = self.values_reading();
        ValuesStatus {
            held: reading.held,
            limit: reading.budget,
            kept: reading.kept_bytes,
            kept_requests: reading.kept_requests,
            known_requests: reading.known_requests,
        }
    }

    fn pipeline(
        &self,
        host: &PipelineHost,
        names: &DeviceNames,
        revisions: &[RevisionView],
    ) -> PipelineStatus {
        let pipeline = host.pipeline();
        let gateway = host.gateway_view();
        let planners = host.planner_view().modules;
        let now = host.now();
        let module = |module: &Module| {
            let seen = gateway.as_ref().map(|g| &g.modules[module.id.idx()]);
            let known = planners[module.id.idx()].as_ref();
            let mut status = match (seen, known) {
                (Some(seen), _) => seen_by(host, names, module, seen),
                (None, Some(of)) => planned(module, of.published.as_ref(), &of.guidance),
                (None, None) => return None,
            };
            let workers = known.and_then(|of| of.workers.as_ref());
            status.scaling = workers.map(|of| ScalingStatus::of(of, now));
            Some(status)
        };
        PipelineStatus {
            name: pipeline.name.clone(),
            slo_ms: pipeline.slo.as_secs_f64() * 1e3,
            drop: pipeline.policy.dropper(),
            dispatch: pipeline.dispatch_names(),
            in_flight: gateway.as_ref().map(|g| g.in_flight),
            gate: gateway.as_ref().and_then(|g| g.gate),
            next: gateway
                .as_ref()
                .and_then(GatewayView::forecast)
                .map(|f| Forecast {
                    offered: f.offered,
                    capacity: f.capacity,
                    bottleneck: pipeline.modules[f.bottleneck.idx()].name.clone(),
                    load: Some(f.load()).filter(|load| load.is_finite()),
                    dropped: f.dropped(),
                }),
            revisions: revisions
                .iter()
                .map(|of| RevisionStatus::of(of, self.now))
                .collect(),
            modules: pipeline.modules.iter().filter_map(module).collect(),
            adaptation: (gateway.as_ref())
                .and_then(|g| g.adaptation.as_ref())
                .map(|view| AdaptationStatus::of(pipeline, view)),
            named: host.stream_counts().into_iter().map(named).collect(),
        }
    }

    fn device((handle, workers): &(Device, Vec<WorkerId>)) -> DeviceStatus {
        let DeviceReading {
            weights, errors, ..
        } = handle.reading();
        DeviceStatus {
            name: handle.name().to_owned(),
            is_alive: handle.is_alive(),
            waiting: workers.iter().map(|worker| handle.waiting(*worker)).sum(),
            weights,
            errors: errors.iter().map(error_status).collect(),
            measured: handle.measured().to_vec(),
        }
    }

    /// The devices of this process, for metrics.
    pub(crate) fn device_readings(&self) -> Vec<DeviceReading> {
        let devices = self.devices.iter();
        devices.map(|(device, _)| device.reading()).collect()
    }

    /// All other processes of the set that this one knows and talks with, for all pipelines.
    fn peers(&self) -> Vec<PeerStatus> {
        let mut all: IndexMap<String, PeerStatus> = IndexMap::new();
        for (links, host) in self.links.iter().zip(&self.hosts) {
            for peer in peers::of_pipeline(links, host, self.links.len() > 1) {
                match all.get_mut(&peer.process) {
                    Some(known) => known.and(peer),
                    None => drop(all.insert(peer.process.clone(), peer)),
                }
            }
        }
        let mut peers: Vec<PeerStatus> = all.into_values().collect();
        peers.sort_by(|a, b| a.process.cmp(&b.process));
        peers
    }

    fn complaints(&self) -> Vec<Complaint> {
        let members: Vec<_> = (self.links.iter())
            .flat_map(|links| links.members())
            .collect();
        let named = self.complaints.iter().map(|(address, why)| {
            let is_there = |member: &Member| member.address.as_deref() == Some(&**address);
            let named = members.iter().find(|(member, _)| is_there(member));
            Complaint {
                peer: named.map_or(address.clone(), |(member, _)| member.name.to_string()),
                why: why.clone(),
            }
        });
        named.collect()
    }
}

fn seen_by(
    host: &PipelineHost,
    names: &DeviceNames,
    module: &Module,
    seen: &ModuleView,
) -> ModuleStatus {
    let places = Places::new(&host.all_workers());
    let workers = seen.workers.iter().map(|worker| {
        let place = places.get(worker.worker);
        let name = place.map(|place| names.of(place.device));
        let DeviceName { process, device } = name.unwrap_or_default();
        WorkerStatus {
            worker: worker.worker.0,
            process,
            device,
            has: worker.has,
            state: name_of(worker.health).to_owned(),
        }
    });
    let mut status = planned(module, seen.state.as_deref(), &seen.plan.guidance);
    status.waiting = seen.waiting;
    status.workers = workers.collect();
    (status.workers).sort_by(|a, b| (&a.process, a.worker).cmp(&(&b.process, b.worker)));
    status
}

fn planned(module: &Module, state: Option<&ModuleState>, guidance: &Guidance) -> ModuleStatus {
    let order = match guidance.order {
        BudgetOrder::LowestFirst => "lowest",
        BudgetOrder::HighestFirst => "highest",
    };
    ModuleStatus {
        name: module.name.clone(),
        planner: state.map(|state| PlannerStatus {
            offered: state.offered,
            executed: state.executed,
            capacity: state.capacity.is_finite().then_some(state.capacity),
            batch_size: state.batch_size,
            pace: state.pace,
            queueing_ms: state.queueing.as_secs_f64() * 1e3,
        }),
        downstream_ms: guidance.downstream.as_secs_f64() * 1e3,
        order: order.to_owned(),
        ..ModuleStatus::default()
    }
}

fn error_status(of: &ErrorReading) -> ErrorStatus {
    let [p1_ms, p50_ms, p99_ms] = of.quantiles.map(|(_, seconds)| seconds * 1e3);
    ErrorStatus {
        action: of.action.to_owned(),
        of: of.of.to_owned(),
        p1_ms,
        p50_ms,
        p99_ms,
    }
}

fn name_of(health: WorkerHealth) -> &'static str {
    match health {
        WorkerHealth::Serves => "serves",
        WorkerHealth::SetAside => "set_aside",
        WorkerHealth::Leaves => "leaves",
        WorkerHealth::Suspected => SUSPECTED,
        WorkerHealth::Away => AWAY,
    }
}

fn hex(life: u64) -> String {
    format!("{life:016x}")
}
