//! What one process holds: pipeline hosts, device threads and decoders, joined by plain calls. A process that is part of a topology
//! holds some of the roles and devices, and has links to the others.
//!
//! Two threads wake policies. One wakes devices, when a deadline passes or a batch is to be bound. The other wakes
//! State Planners.

mod assignment;
mod hosts;
mod readings;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use indexmap::IndexMap;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use spillgate_controller::host::{PipelineHost, RequestIds};
use spillgate_link::links::PeerLinks;
use spillgate_link::serve;
use spillgate_picture::bytes_of_pixels;
use spillgate_pipeline::catalog::ValueType;
use spillgate_pipeline::id::DeviceId;
use spillgate_process::clock::Clock;
use spillgate_telemetry::Processes;
use spillgate_worker::device::DeviceThreads;
use spillgate_worker::timer::{TimerThread, TimerWatch};
use tokio_util::sync::CancellationToken;

use crate::deployment::Deployment;
use crate::device_name::DeviceName;
use crate::devices::Device;
use crate::devices::start::{Devices, Starting};
use crate::ports::bind;
use crate::process_context::ProcessContext;
use crate::process_links::RemoteRouter;
use crate::process_role::ProcessRole;
use crate::serve_error::ServeError;
use crate::start_error::StartError;
use crate::status::StatusReader;
use crate::values::Values;
use assignment::Assignment;
use hosts::Hosts;

/// How long device threads and telemetry may take to end once no request is left.
pub(crate) const STOP_LIMIT: Duration = Duration::from_secs(5);
/// Devices that leave are done when they had nothing to do for so long: gateways have heard of it by then, and what they sent before
/// has come.
const LEAVE_SETTLES: Duration = Duration::from_millis(100);
/// How often they are looked at.
const LEAVE_LOOK: Duration = Duration::from_millis(5);

/// Everything that serves, running.
pub struct Embedded {
    /// The pipelines' hosts, in the order of the deployments.
    pub hosts: Vec<Arc<PipelineHost>>,
    /// By pipeline: the links to other processes, where there are others.
    pub links: Vec<Arc<PeerLinks>>,
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

impl Embedded {
    /// Starts devices, hosts and links. Returns once every model is loaded. Where it takes the place of
    /// another, the `ids` of requests go on.
    ///
    /// # Errors
    /// When a device, model or profile is missing.
    pub fn start(
        context: &ProcessContext,
        deployments: &[Deployment],
        ids: Option<Arc<RequestIds>>,
    ) -> Result<Self, StartError> {
        check(context, deployments)?;
        let assignment = Assignment::of(context, deployments)?;
        let hosts = Hosts::new(context, &assignment, ids);
        let [timers, planners] =
            ["timer", "planner"].map(|of| TimerThread::start(&context.clock, of));
        let (timers, planners) = (timers?, planners?);
        let starting = Starting {
            context,
            timers: &timers,
            upstream: &hosts.upstreams,
        };
        let devices = Devices::start(&assignment.here, |of| assignment.planned(of), &starting)?;
        let links = hosts.connect(context, &assignment, &devices.devices, &planners);
        // Workers may ask their gateway for requests at once, so it must be there.
        for device in devices.devices.values() {
            assignment.gateway.iter().for_each(|id| device.greet(*id));
        }
        let here = assignment.here.into_iter();
        Ok(Embedded {
            values: hosts.routers.iter().map(RemoteRouter::values).collect(),
            hosts: hosts.hosts,
            links,
            devices: devices.devices,
            threads: Mutex::new(devices.threads),
            names: here.map(|device| (device.id, device.name)).collect(),
            all_names: assignment.names,
            clock: context.clock.clone(),
            ids: hosts.ids,
            timers: [timers, planners],
        })
    }

    /// Dials the processes that this one dials, and listens for those that dial it. Returns where.
    ///
    /// # Errors
    /// When the port cannot be had.
    pub(crate) async fn join(
        &self,
        role: &ProcessRole,
        stop: &CancellationToken,
    ) -> Result<Option<SocketAddr>, ServeError> {
        let mut address = None;
        for links in &self.links {
            if let Some(listen) = role.listen {
                let listener = bind(listen, "--link-listen").await?;
                address = listener.local_addr().ok();
                let (links, stop) = (links.clone(), stop.clone());
                tokio::spawn(serve::serve(links, listener, stop.cancelled_owned()));
            }
            for peer in role.topology.dialled_by(role.process) {
                links.dial(peer.address.clone().unwrap_or_default(), peer.into());
            }
        }
        Ok(address)
    }

    /// Hands out the ids of its requests.
    pub(crate) fn ids(&self) -> Arc<RequestIds> {
        self.ids.clone()
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

    /// Reads the state of a process, which began to serve then; `role`: what it is in its topology.
    pub(crate) fn status(
        served: Option<&Self>,
        role: Option<ProcessRole>,
        began: Instant,
    ) -> StatusReader {
        let mut reader = StatusReader::empty(role, began);
        if let Some(served) = served {
            reader.hosts = served.hosts.clone();
            reader.links = served.links.clone();
            reader.values = served.values.clone();
            reader.device_names = served.all_names.clone();
            let devices = served.devices.iter();
            reader.devices = devices.map(|(id, d)| (*id, d.clone())).collect();
        }
        reader
    }

    /// In which process what runs, for traces.
    pub(crate) fn processes(&self, role: &ProcessRole) -> Processes {
        let places = self.hosts.iter().flat_map(|host| host.workers());
        let name = |device: DeviceId| self.all_names[device.idx()].process.clone();
        Processes {
            here: role.name().to_owned(),
            workers: places.map(|p| (p.worker, name(p.device))).collect(),
        }
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

/// Refuses pipelines that take pictures which no client could ever hold, and says which settings count nothing.
fn check(context: &ProcessContext, deployments: &[Deployment]) -> Result<(), StartError> {
    let sharing = context.sharing.as_ref();
    for deployment in deployments {
        assert_eq!(
            deployment.pipeline.policy.decider,
            sharing.map(|sharing| sharing.decider),
            "it was compiled for what serves it"
        );
    }
    if let Some(sharing) = sharing {
        let pipelines = deployments.iter().map(|d| d.pipeline.clone());
        sharing.tell_unheeded(&pipelines.collect::<Vec<_>>());
    }
    // No client may hold more than is left to the others.
    let most = context.account.budget() / 2;
    for pipeline in deployments.iter().map(|d| &d.pipeline) {
        let pixels = pipeline.limits.pixels;
        if pipeline.source.ty == ValueType::Image && bytes_of_pixels(pixels) > most {
            return Err(StartError::Pixels {
                pipeline: pipeline.name.clone(),
                pixels,
                most,
            });
        }
    }
    Ok(())
}
