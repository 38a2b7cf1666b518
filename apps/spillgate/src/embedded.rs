//! All of Spillgate in one process: pipeline hosts, device threads and decoders, joined by plain calls.
//!
//! Two threads wake policies. One wakes devices, when a deadline passes or a batch is to be bound. The other wakes
//! State Planners.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_backend::Backend;
use spillgate_backend::job::Job;
use spillgate_backend::operator::{Library, OperatorError};
use spillgate_backend::torch::TorchBackend;
use spillgate_controller::host::{
    DeviceLink, GATEWAY, HostConfig, MemberResult, Now, PipelineHost, RequestIds,
};
use spillgate_controller::record::{BatchRecord, Observer};
use spillgate_pipeline::id::{DeviceId, WorkerId};
use spillgate_pipeline::message::{Envelope, Link, Message, Place, ToGateway};
use spillgate_pipeline::pipeline::Pipeline;
use spillgate_pipeline::policy::BudgetOrder;
use spillgate_pipeline::profile::{ProfileSet, device_kind};
use spillgate_pipeline::request::ModuleTimes;
use spillgate_pipeline::time::Timestamp;
use spillgate_telemetry::metrics::{
    ClientReading, PlannerReading, PlannerReadings, QueueLengths, ReadPlanners,
};
use spillgate_worker::clock::Clock;
use spillgate_worker::device::{
    DeviceConfig, DeviceHandle, DeviceThread, ExecutorFactory, Finished, Upstream,
};
use spillgate_worker::executor::{
    DecodeExecutor, EmulatedExecutor, Executor, OperatorExecutor, WorkerSpec,
};
use spillgate_worker::timer::{Sleeper, TimerThread, TimerWatch};
use spillgate_worker_policy::broker::BrokerConfig;
use spillgate_worker_policy::device::Device;

use crate::placement::{Placed, PlacingError, place};

/// How long before a device is expected to be free its next batch is bound. The device's thread takes a bound batch
/// without a switch, so this covers only how late the timer thread may be.
const BIND_LEAD: Duration = Duration::from_micros(200);

/// A pipeline to be served.
pub struct Deployment {
    /// The pipeline.
    pub pipeline: Arc<Pipeline>,
    /// Folder of its file.
    pub base_dir: PathBuf,
    /// Profiles of its modules, none missing: see [`crate::measure`].
    pub profiles: ProfileSet,
}

/// Why a deployment could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A device, model or file is missing or does not fit.
    #[error("{device}: {cause}")]
    Device {
        /// The device.
        device: String,
        /// Why.
        cause: OperatorError,
    },
    /// Workers cannot be placed.
    #[error(transparent)]
    Placing(#[from] PlacingError),
    /// The system gives no thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
}

/// Everything that serves, running.
pub struct Embedded {
    /// The pipelines' hosts, in the order of the deployments.
    pub hosts: Vec<Arc<PipelineHost>>,
    devices: Vec<DeviceThread>,
    names: Vec<(DeviceId, String)>,
    now: Now,
    timers: [TimerThread; 2],
}

impl Embedded {
    /// Starts devices and hosts. Returns once every model is loaded; `loading` hears the name of each device before.
    ///
    /// # Errors
    /// When a device, model or profile is missing.
    pub fn start(
        deployments: &[Deployment],
        library: &Arc<Library>,
        clock: Clock,
        observer: Arc<dyn Observer>,
        n_decoders: usize,
        loading: &dyn Fn(&str),
    ) -> Result<Self, StartError> {
        let placement = place(deployments, n_decoders.max(1))?;
        let ids = Arc::new(RequestIds::default());
        let now: Now = Arc::new(move || clock.now());
        let hosts: Vec<Arc<PipelineHost>> = deployments
            .iter()
            .zip(placement.workers)
            .zip(placement.planned.iter().zip(placement.scaling))
            .map(|((deployment, workers), (planned, scaling))| {
                Arc::new(PipelineHost::new(HostConfig {
                    pipeline: deployment.pipeline.clone(),
                    planned,
                    workers,
                    scaling,
                    ids: ids.clone(),
                    now: now.clone(),
                    observer: observer.clone(),
                }))
            })
            .collect();
        let upstream = Arc::new(Upstreams::default());
        let routes: IndexMap<WorkerId, Arc<PipelineHost>, FxBuildHasher> = hosts
            .iter()
            .flat_map(|host| host.workers().map(|w| (w.worker, host.clone())))
            .collect();
        let _ = upstream.routes.set(routes);
        let _ = upstream.hosts.set(hosts.clone());
        let timers = TimerThread::start(clock, "timer")?;
        let mut devices = Vec::new();
        let mut names = Vec::new();
        for (i, (name, places)) in placement.devices.into_iter().enumerate() {
            loading(&name);
            let id = DeviceId(i as u16);
            names.push((id, name.clone()));
            let broker = |Placed {
                              spec,
                              batch,
                              schedule,
                          }: &Placed| {
                let (execution, schedule) = (spec.execution.clone(), schedule.clone());
                let config =
                    BrokerConfig::of(&spec.pipeline, spec.module, *batch, execution, schedule);
                (spec.worker, config)
            };
            let brokers = places.iter().map(broker).collect();
            let specs: Vec<WorkerSpec> = places.into_iter().map(|p| p.spec).collect();
            let policy = Device::new(brokers, BIND_LEAD);
            let config = DeviceConfig {
                id,
                name: name.clone(),
                policy,
            };
            let executor = executor_factory(name.clone(), specs, library.clone());
            let thread = DeviceThread::start(config, clock, &timers, upstream.clone(), executor)
                .map_err(|cause| StartError::Device {
                    device: name,
                    cause,
                })?;
            devices.push(thread);
        }
        let links: Vec<DeviceLink> = devices
            .iter()
            .map(|d| Arc::new(LocalLink(d.handle())) as DeviceLink)
            .collect();
        let planners = TimerThread::start(clock, "planner")?;
        for host in &hosts {
            let alarm = planners.add(Arc::new(Roles(Arc::downgrade(host))));
            host.connect(
                links.clone(),
                Box::new({
                    let alarm = alarm.clone();
                    move |at| alarm.arm(at)
                }),
            );
            if let Some(at) = host.wake() {
                alarm.arm(at);
            }
        }
        // Workers may ask their gateway for requests at once, so it must be there.
        for device in &devices {
            device.handle().greet(GATEWAY);
        }
        Ok(Embedded {
            hosts,
            devices,
            names,
            now,
            timers: [timers, planners],
        })
    }

    /// The clock of all parts.
    pub fn now(&self) -> Now {
        self.now.clone()
    }

    /// Ids and names of the devices.
    pub fn device_names(&self) -> &[(DeviceId, String)] {
        &self.names
    }

    /// Handles of the devices, for readiness and queue lengths.
    pub fn device_handles(&self) -> Vec<DeviceHandle> {
        self.devices.iter().map(DeviceThread::handle).collect()
    }

    /// Whether the threads that wake devices and planners live, for readiness.
    pub fn timer_watches(&self) -> [TimerWatch; 2] {
        self.timers.each_ref().map(TimerThread::watch)
    }

    /// Reads the queue length of each worker: pipeline, module, worker, requests.
    pub fn queue_lengths(&self) -> QueueLengths {
        let hosts = self.hosts.clone();
        let handles = self.device_handles();
        Box::new(move || {
            let worker = |host: &Arc<PipelineHost>, w: &Place| {
                let pipeline = host.pipeline();
                let module = pipeline.modules[w.module.idx()].name.clone();
                (
                    pipeline.name.clone(),
                    module,
                    w.worker.0,
                    handles[w.device.idx()].waiting(w.worker),
                )
            };
            hosts
                .iter()
                .flat_map(|h| h.workers().map(|w| worker(h, w)))
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
                let counts = host.client_counts().into_iter();
                all.clients.extend(counts.map(|(name, count)| {
                    let reading = ClientReading {
                        name: name.to_string(),
                        requests: count.requests,
                        good: count.good,
                        refused: count.refused,
                    };
                    (pipeline.name.clone(), reading)
                }));
                for (module, (state, guidance)) in pipeline.modules.iter().zip(view.modules) {
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

    /// Ends the device threads, each within `limit`. Names those that were still busy.
    pub fn stop(self, limit: Duration) -> Vec<String> {
        let names = self.names;
        self.devices
            .into_iter()
            .zip(names)
            .filter_map(|(device, (_, name))| (!device.stop(limit)).then_some(name))
            .collect()
    }
}

/// Gateway and controllers of a pipeline, woken at their time. The host holds the alarm, so this holds no host.
struct Roles(Weak<PipelineHost>);

impl Sleeper for Roles {
    fn wake(&self, _now: Timestamp) -> Option<Timestamp> {
        self.0.upgrade()?.wake()
    }
}

fn executor_factory(
    name: String,
    specs: Vec<WorkerSpec>,
    library: Arc<Library>,
) -> ExecutorFactory<OperatorError> {
    Box::new(move || {
        Ok(match device_kind(&name) {
            "decode" => Box::new(DecodeExecutor::new(&specs)) as Box<dyn Executor>,
            "emulated" => Box::new(EmulatedExecutor::build(&library, &specs)?),
            _ => {
                let backend = Box::new(move || {
                    TorchBackend::new(&name).map(|b| Box::new(b) as Box<dyn Backend>)
                });
                Box::new(OperatorExecutor::build(backend, library, &specs)?)
            }
        })
    })
}

/// Passes the reports of devices to hosts. A worker belongs to one host.
#[derive(Default)]
struct Upstreams {
    routes: OnceLock<IndexMap<WorkerId, Arc<PipelineHost>, FxBuildHasher>>,
    hosts: OnceLock<Vec<Arc<PipelineHost>>>,
}

impl Upstreams {
    fn host(&self, worker: WorkerId) -> &Arc<PipelineHost> {
        let routes = self
            .routes
            .get()
            .expect("routes are set before devices start");
        &routes[&worker]
    }
}

impl Upstream for Upstreams {
    fn tell(&self, worker: WorkerId, message: ToGateway) {
        self.host(worker).device_says(worker, message);
    }

    fn finished(&self, finished: Finished) {
        let Finished {
            device,
            batch,
            results,
            ended_at,
        } = finished;
        let size = batch.members.len() as u32;
        let record = BatchRecord {
            device,
            batch: batch.id,
            module: batch.module,
            worker: batch.worker,
            size,
            started_at: batch.started_at,
            expected_end: batch.expected_end,
            ended_at,
        };
        let members = batch
            .members
            .into_iter()
            .zip(results)
            .map(|(member, result)| MemberResult {
                request: member.request,
                job: member.payload,
                times: ModuleTimes {
                    module: batch.module,
                    worker: batch.worker,
                    arrived_at: member.arrived_at,
                    batched_at: member.batched_at,
                    started_at: batch.started_at,
                    ended_at,
                    batch: batch.id,
                    batch_size: size,
                },
                result,
            });
        self.host(batch.worker).finished(&record, members);
    }

    fn reran(&self, worker: WorkerId, took: Duration) {
        self.host(worker).reran(worker, took);
    }

    fn loaded(&self, worker: WorkerId, result: Result<(), OperatorError>) {
        let result = result.map_err(|error| error.to_string());
        self.host(worker).worker_loaded(worker, result);
    }

    fn down(&self, device: DeviceId, cause: &str) {
        for host in self.hosts.get().into_iter().flatten() {
            host.lost(device, cause);
        }
    }
}

/// The local link to a device: a plain call.
struct LocalLink(DeviceHandle);

impl Link<Arc<Job>> for LocalLink {
    fn send(&self, envelope: Envelope<Arc<Job>>) {
        match envelope.message {
            Message::Device(message) => self.0.tell(envelope.from, message),
            _ => unreachable!("a message that is not for a device"),
        }
    }
}
