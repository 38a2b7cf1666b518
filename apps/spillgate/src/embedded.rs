//! What one process holds: pipeline hosts, device threads and decoders, joined by plain calls. A process that is part of a topology
//! holds some of the roles and devices, and has links to the others.
//!
//! Two threads wake policies. One wakes devices, when a deadline passes or a batch is to be bound. The other wakes
//! State Planners.

mod refused;

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use indexmap::IndexMap;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use spillgate_backend::operator::Library;
use spillgate_controller::host::{
    ClientCount, HostConfig, Outgoing, PipelineHost, RequestIds, Roles, Way,
};
use spillgate_controller::record::Observer;
use spillgate_link::links::Links;
use spillgate_pipeline::id::{DeviceId, Incarnation};
use spillgate_pipeline::pipeline::Pipeline;
use spillgate_pipeline::policy::BudgetOrder;
use spillgate_pipeline::profile::ProfileSet;
use spillgate_pipeline::time::Timestamp;
use spillgate_process::account::Account;
use spillgate_process::clock::Clock;
use spillgate_protocol::message::{Envelope, Message, Place};
use spillgate_telemetry::Processes;
use spillgate_telemetry::metrics::{
    ClientReading, PlannerReading, PlannerReadings, QueueLengths, ReadPlanners,
};
use spillgate_worker::device::DeviceThreads;
use spillgate_worker::timer::{Sleeper, TimerThread, TimerWatch};

use crate::cores::Cores;
use crate::device_assignment::{place, process_and_device};
use crate::device_reports::Upstreams;
use crate::devices::Device;
use crate::devices::start::{Assigned, Devices};
use crate::fleets::{Around, Placing};
use crate::model_check::Families;
use crate::part::{Elsewhere, Linked, Part};
use crate::status::streams_of;
use crate::status::{DeviceName, StatusReader};
use crate::values::Values;
pub use refused::StartError;

/// Devices that leave are done when they had nothing to do for so long: gateways have heard of it by then, and what they sent before
/// has come.
const LEAVE_SETTLES: Duration = Duration::from_millis(100);
/// How often they are looked at.
const LEAVE_LOOK: Duration = Duration::from_millis(5);

/// A pipeline to be served.
#[derive(Clone)]
pub struct Deployment {
    /// The pipeline.
    pub pipeline: Arc<Pipeline>,
    /// Folder of its file.
    pub base_dir: PathBuf,
    /// Profiles of its modules, none missing: see [`crate::measure`].
    pub profiles: ProfileSet,
    /// The files of its families: which of them may be loaded. Of a family that is not here all may be.
    pub families: Families,
}

/// Everything that serves, running.
pub struct Embedded {
    /// The pipelines' hosts, in the order of the deployments.
    pub hosts: Vec<Arc<PipelineHost>>,
    /// By pipeline: the links to other processes, where there are others.
    pub links: Vec<Arc<Links>>,
    /// By pipeline: what is kept and held for other processes.
    values: Vec<Arc<Values>>,
    devices: IndexMap<DeviceId, Device, FxBuildHasher>,
    /// Until they are stopped.
    threads: Mutex<Vec<(String, DeviceThreads)>>,
    names: Vec<(DeviceId, String)>,
    /// By id, those of other processes included.
    all_names: Vec<DeviceName>,
    clock: Clock,
    ids: Arc<RequestIds>,
    timers: [TimerThread; 2],
}

/// What is around the devices and hosts of a process.
pub struct Surroundings<'a> {
    /// The clock of all parts.
    pub clock: Clock,
    /// Told of all that ends.
    pub observer: Arc<dyn Observer>,
    /// Threads that decode frames.
    pub n_decoders: usize,
    /// What the process is in a topology; `None`: it holds all roles.
    pub part: Option<&'a Part>,
    /// What this takes the place of: ids of requests go on.
    pub replaces: Option<&'a Embedded>,
    /// Of what other processes send.
    pub account: Arc<Account>,
    /// What decides about the models of its devices; `None`: they keep all that they have read.
    pub placing: Option<&'a Placing>,
    /// Cores on which devices execute their batches.
    pub cores: &'a Cores,
    /// Hears the name of each device before its models are loaded.
    pub loading: &'a dyn Fn(&str),
}

impl Embedded {
    /// Starts devices and hosts. Returns once every model is loaded.
    ///
    /// # Errors
    /// When a device, model or profile is missing.
    pub fn start(
        deployments: &[Deployment],
        library: &Arc<Library>,
        surroundings: Surroundings<'_>,
    ) -> Result<Self, StartError> {
        let Surroundings {
            clock,
            observer,
            n_decoders,
            part,
            replaces,
            account,
            placing,
            cores,
            loading,
        } = surroundings;
        refused::check_pixels(deployments, &account)?;
        let decider = placing.map(|placing| placing.decider);
        for deployment in deployments {
            let policy = &deployment.pipeline.policy;
            assert_eq!(
                policy.decider, decider,
                "it was compiled for what serves it"
            );
        }
        if let Some(placing) = placing {
            let pipelines = deployments.iter().map(|d| d.pipeline.clone());
            placing.tell_unheeded(&pipelines.collect::<Vec<_>>());
        }
        let topology = part.map(|part| &*part.topology);
        let placement = place(deployments, n_decoders.max(1), topology)?;
        let is_here = |name: &str| {
            let (process, _) = process_and_device(name);
            part.is_none_or(|part| part.name() == process)
        };
        let all = (0..).map(DeviceId).zip(placement.devices.keys());
        let here: Vec<DeviceId> = all.filter(|(_, n)| is_here(n)).map(|(id, _)| id).collect();
        let roles = |pipeline: &Pipeline| match part {
            Some(part) => part.roles(here.clone()),
            None => Roles::all(pipeline, here.clone()),
        };
        let of_ids = part.map_or(Incarnation::default(), |part| part.incarnation);
        let home = deployments.first().and_then(|d| roles(&d.pipeline).gateway);
        let ids = match replaces {
            Some(replaced) => replaced.ids.clone(),
            None => Arc::new(RequestIds::new(home.unwrap_or_default(), of_ids)),
        };
        let all_names = placement.devices.keys().map(|name| {
            let (process, device) = process_and_device(name);
            (process.to_owned(), device.to_owned())
        });
        let all_names: Vec<DeviceName> = all_names.collect();
        let elsewhere: Vec<Elsewhere> = deployments
            .iter()
            .zip(&placement.workers)
            .map(|(deployment, workers)| {
                let pipeline = deployment.pipeline.clone();
                Elsewhere::new(pipeline, workers, &all_names, account.clone())
            })
            .collect();
        let hosts: Vec<Arc<PipelineHost>> = deployments
            .iter()
            .zip(placement.workers)
            .zip(placement.planned.iter().zip(placement.scaling))
            .map(|((deployment, workers), (planned, scaling))| {
                Arc::new(PipelineHost::new(HostConfig {
                    pipeline: deployment.pipeline.clone(),
                    planned,
                    roles: roles(&deployment.pipeline),
                    workers,
                    scaling,
                    ids: ids.clone(),
                    clock: clock.clone(),
                    observer: observer.clone(),
                }))
            })
            .collect();
        let life = part.map_or_else(|| Incarnation(rand::random()), |part| part.incarnation);
        let upstream = Arc::new(Upstreams::new(life, &hosts));
        let timers = TimerThread::start(&clock, "timer")?;
        let around = Around {
            clock: &clock,
            timers: &timers,
            library,
            upstream: &upstream,
            cores,
            loading,
        };
        let n_devices = placement.devices.len() as u16;
        let here = (0..).map(DeviceId).zip(placement.devices);
        let here = here.filter(|(_, (name, _))| is_here(name));
        let assigned = here.map(|(id, (name, workers))| Assigned {
            id,
            name: process_and_device(&name).1.to_owned(),
            workers,
        });
        let assigned: Vec<Assigned> = assigned.collect();
        let planned = |of: &Arc<Pipeline>| {
            let all = deployments.iter().zip(&placement.planned);
            let mut own = all.filter(|(deployment, _)| Arc::ptr_eq(&deployment.pipeline, of));
            let (_, planned) = own.next().expect("each pipeline is planned");
            planned.clone()
        };
        let Devices { devices, threads } = Devices::start(&assigned, planned, placing, &around)?;
        let names = assigned.into_iter().map(|device| (device.id, device.name));
        let names = names.collect();
        let planners = TimerThread::start(&clock, "planner")?;
        let mut links = Vec::new();
        for ((host, elsewhere), planned) in hosts.iter().zip(&elsewhere).zip(&placement.planned) {
            let alarm = planners.add(Arc::new(Planners(Arc::downgrade(host))));
            let way = |id: u16| match devices.get(&DeviceId(id)) {
                Some(device) => local_way(device.clone()),
                None => elsewhere.way(),
            };
            host.connect(
                (0..n_devices).map(way).collect(),
                elsewhere.way(),
                elsewhere.on_ended(),
                Box::new({
                    let alarm = alarm.clone();
                    move |at| alarm.arm(at)
                }),
            );
            if let Some(at) = host.wake() {
                alarm.arm(at);
            }
            if let Some(part) = part {
                let linked = Linked {
                    part,
                    roles: &roles(host.pipeline()),
                    host,
                    planned,
                    devices: devices.clone(),
                    device_names: &all_names,
                    elsewhere,
                    clock: clock.clone(),
                };
                links.push(linked.links());
            }
        }
        // Workers may ask their gateway for requests at once, so it must be there.
        for device in devices.values().filter(|_| home.is_some()) {
            device.greet(home.unwrap_or_default());
        }
        Ok(Embedded {
            values: elsewhere.iter().map(Elsewhere::values).collect(),
            hosts,
            links,
            devices,
            threads: Mutex::new(threads),
            names,
            all_names,
            clock,
            ids,
            timers: [timers, planners],
        })
    }

    /// The clock of all parts.
    pub fn clock(&self) -> Clock {
        self.clock.clone()
    }

    /// Ids and names of the devices.
    pub fn device_names(&self) -> &[(DeviceId, String)] {
        &self.names
    }

    /// Handles of the devices, for readiness and queue lengths.
    pub fn device_handles(&self) -> Vec<Device> {
        self.devices.values().cloned().collect()
    }

    /// Whether the threads that wake devices and planners live, for readiness.
    pub fn timer_watches(&self) -> [TimerWatch; 2] {
        self.timers.each_ref().map(TimerThread::watch)
    }

    /// Reads the state of the process, which began to serve then; `part`: what it is in its topology.
    pub(crate) fn status(&self, part: Option<Part>, began: Instant) -> StatusReader {
        StatusReader {
            hosts: self.hosts.clone(),
            links: self.links.clone(),
            values: self.values.clone(),
            device_names: self.all_names.clone(),
            devices: self
                .devices
                .iter()
                .map(|(id, d)| (*id, d.clone()))
                .collect(),
            part,
            began,
        }
    }

    /// In which process what runs, for traces.
    pub(crate) fn processes(&self, part: &Part) -> Processes {
        let places = self.hosts.iter().flat_map(|host| host.workers());
        let name = |device: DeviceId| self.all_names[device.idx()].0.clone();
        Processes {
            here: part.name().to_owned(),
            workers: places.map(|p| (p.worker, name(p.device))).collect(),
        }
    }

    /// Reads the queue length of each worker: pipeline, module, worker, requests.
    pub fn queue_lengths(&self) -> QueueLengths {
        let hosts = self.hosts.clone();
        let handles = self.devices.clone();
        Box::new(move || {
            let worker = |host: &Arc<PipelineHost>, w: &Place| {
                let pipeline = host.pipeline();
                let module = pipeline.modules[w.module.idx()].name.clone();
                let waiting = handles.get(&w.device)?.waiting(w.worker);
                Some((pipeline.name.clone(), module, w.worker.0, waiting))
            };
            let all = hosts.iter();
            all.flat_map(|h| h.workers().filter_map(|w| worker(h, w)))
                .collect()
        })
    }

    /// Reads what the State Planners know.
    pub fn planners(&self) -> ReadPlanners {
        let hosts = self.hosts.clone();
        Box::new(move || {
            let mut all = PlannerReadings::default();
            for host in &hosts {
                let pipeline = host.pipeline();
                let view = host.planner_view();
                all.gates
                    .extend(view.gate.map(|rate| (pipeline.name.clone(), rate)));
                let reading = |(name, count): (Arc<str>, ClientCount)| {
                    let reading = ClientReading {
                        name: name.to_string(),
                        requests: count.requests,
                        good: count.good,
                        refused: count.refused,
                    };
                    (pipeline.name.clone(), reading)
                };
                all.clients
                    .extend(host.client_counts().into_iter().map(reading));
                all.named
                    .extend(host.stream_counts().into_iter().map(reading));
                let adaptation = host.gateway_view().and_then(|view| view.adaptation);
                if let Some(view) = &adaptation {
                    all.streams.extend(streams_of(pipeline, view));
                }
                let modules = pipeline.modules.iter().zip(view.modules);
                for (module, (state, guidance)) in modules.filter_map(|(m, v)| Some((m, v?))) {
                    all.modules.extend(state.map(|state| PlannerReading {
                        pipeline: pipeline.name.clone(),
                        module: module.name.clone(),
                        offered: state.offered,
                        executed: state.executed,
                        capacity: state.capacity,
                        workers: state.workers,
                        pace: state.pace,
                        queueing: state.queueing.as_secs_f64(),
                        downstream: guidance.downstream.as_secs_f64(),
                        highest_first: guidance.order == BudgetOrder::HighestFirst,
                    }));
                }
            }
            all
        })
    }

    /// Tells the gateways of other processes that the devices take no more requests. Returns when what they have and what is on its way
    /// is served, at the latest after `limit`; says whether it is.
    pub async fn leave(&self, limit: Duration) -> bool {
        let devices = self.device_handles();
        devices.iter().for_each(Device::leave);
        let give_up = Instant::now() + limit;
        let mut idle_since = Instant::now();
        while idle_since.elapsed() < LEAVE_SETTLES {
            if !devices.iter().all(Device::has_no_work) {
                idle_since = Instant::now();
            }
            if Instant::now() >= give_up {
                return false;
            }
            tokio::time::sleep(LEAVE_LOOK).await;
        }
        true
    }

    /// Ends the device threads, each within `limit`. Names those that were still busy.
    pub fn stop(&self, limit: Duration) -> Vec<String> {
        self.devices.values().for_each(Device::close);
        let threads = std::mem::take(&mut *self.threads.lock());
        let busy = threads.into_iter();
        busy.filter_map(|(name, thread)| (!thread.stop(limit)).then_some(name))
            .collect()
    }
}

/// Gateway and controllers of a pipeline, woken at their time. The host holds the alarm, so this holds no host.
struct Planners(Weak<PipelineHost>);

impl Sleeper for Planners {
    fn wake(&self, _now: Timestamp) -> Option<Timestamp> {
        self.0.upgrade()?.wake()
    }
}

/// The way to a device of this process: a plain call.
fn local_way(device: Device) -> Way {
    Arc::new(move |outgoing: Outgoing| {
        let Envelope { from, message, .. } = outgoing.envelope;
        match message {
            Message::Device(message) => device.tell(from, message),
            _ => unreachable!("a message that is not for a device"),
        }
    })
}
