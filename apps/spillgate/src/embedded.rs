//! What one process holds: pipeline hosts, device threads and decoders, joined by plain calls. A process of a set holds some of the
//! roles and devices, and has links to the others, for each pipeline its own.
//!
//! Two threads wake policies. One wakes devices, when a deadline passes or a batch is to be bound. The other wakes
//! State Planners.

mod assignment;
mod hosts;
mod readings;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indexmap::IndexMap;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use spillgate_controller::host::{PipelineHost, RequestIds};
use spillgate_link::links::PeerLinks;
use spillgate_picture::bytes_of_pixels;
use spillgate_pipeline::catalog::ValueType;
use spillgate_pipeline::id::{DeviceId, WorkerId};
use spillgate_process::clock::Clock;
use spillgate_worker::device::DeviceThreads;
use spillgate_worker::timer::TimerThread;

use crate::deployment::Deployment;
use crate::device_name::DeviceNames;
use crate::devices::Device;
use crate::devices::start::{Devices, Starting};
use crate::process_context::ProcessContext;
use crate::process_links::RemoteRouter;
use crate::process_role::{KnownBy, ProcessRole};
use crate::set_links::SetLinks;
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
    /// What they have in common with those of other revisions.
    set: Option<Arc<SetLinks>>,
    /// By pipeline: whether it has not ended.
    live: Mutex<Vec<bool>>,
    /// By pipeline: what is kept and held for other processes.
    values: Vec<Arc<Values>>,
    devices: IndexMap<DeviceId, Device, FxBuildHasher>,
    is_stopped: AtomicBool,
    /// Until they are stopped.
    threads: Mutex<Vec<(String, DeviceThreads)>>,
    names: Vec<(DeviceId, String)>,
    /// By pipeline: of the devices of all processes that are known.
    all_names: Vec<DeviceNames>,
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
        // Workers may ask their gateway for requests at once, so it must be there. It has all pipelines.
        for of in &assignment.here {
            let workers: Vec<WorkerId> = of.workers.iter().map(|of| of.spec.worker).collect();
            if let (Some(device), Some(gateway)) = (devices.devices.get(&of.id), assignment.gateway)
            {
                device.greet(gateway, &workers);
            }
        }
        let here = assignment.here.into_iter();
        Ok(Embedded {
            values: hosts.routers.iter().map(RemoteRouter::values).collect(),
            hosts: hosts.hosts,
            links,
            set: context.set.clone(),
            live: Mutex::new(vec![true; assignment.pipelines.len()]),
            devices: devices.devices,
            is_stopped: AtomicBool::new(false),
            threads: Mutex::new(devices.threads),
            names: here.map(|device| (device.id, device.name)).collect(),
            all_names: hosts.device_names,
            clock: context.clock.clone(),
            ids: hosts.ids,
            timers: [timers, planners],
        })
    }

    /// Others reach its links from now on, and it dials those that this process dials.
    pub(crate) fn join(&self, role: &ProcessRole) {
        for links in &self.links {
            if let Some(set) = &self.set {
                set.port.add(links.clone());
            }
            links.begin();
            if let KnownBy::Controllers(addresses) = &role.known_by {
                for address in addresses {
                    links.register(address.clone());
                }
            }
        }
    }

    /// Ends the links of the pipeline at that position, and waits until others can know.
    pub(crate) async fn part(&self, pipeline: usize) {
        let Some(links) = self.links.get(pipeline) else {
            return;
        };
        if let Some(set) = &self.set {
            set.port.remove(links);
        }
        links.end().await;
    }

    /// These pipelines end. Whether all have ended.
    pub(crate) fn ends(&self, pipelines: &[usize]) -> bool {
        let mut live = self.live.lock();
        for pipeline in pipelines {
            live[*pipeline] = false;
        }
        !live.contains(&true)
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

    /// Adds what runs these pipelines to what is read of the process.
    pub(crate) fn add_to(&self, reader: &mut StatusReader, pipelines: &[usize]) {
        for i in pipelines {
            reader.hosts.push(self.hosts[*i].clone());
            reader.links.extend(self.links.get(*i).cloned());
            reader.values.push(self.values[*i].clone());
            reader.device_names.push(self.all_names[*i].clone());
        }
    }

    /// Its devices, each with its workers; none once they are stopped.
    pub(crate) fn devices(&self) -> Vec<(Device, Vec<WorkerId>)> {
        if self.is_stopped.load(Ordering::Acquire) {
            return Vec::new();
        }
        let of = |(id, device): (&DeviceId, &Device)| {
            let here = self.hosts.iter().flat_map(|h| h.workers().iter());
            let here = here.filter(|place| place.device == *id);
            (device.clone(), here.map(|place| place.worker).collect())
        };
        self.devices.iter().map(of).collect()
    }

    /// Tells the gateways of other processes that the devices take no more requests. Returns when what they have and what is on its way
    /// is served, at the latest after `limit`; says whether it is.
    pub async fn leave(&self, limit: Duration) -> bool {
        self.links.iter().for_each(|links| links.leave());
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

    /// The thread that has died without which it cannot serve. Those that [`Embedded::stop`] ends have not died: a revision that gives way to
    /// another one may be the only one then.
    pub fn dead(&self) -> Option<String> {
        let dead = self.dead_thread()?;
        // It is looked at after the threads: they end after it is set.
        (!self.is_stopped.load(Ordering::Acquire)).then_some(dead)
    }

    fn dead_thread(&self) -> Option<String> {
        let devices = self.devices.values().filter(|d| !d.is_alive());
        let devices: Vec<&str> = devices.map(Device::name).collect();
        if !devices.is_empty() {
            return Some(format!("dead devices: {}", devices.join(", ")));
        }
        let mut timers = self.timers.iter().map(TimerThread::watch);
        let dead = timers.find(|timer| !timer.is_alive())?;
        Some(format!("dead thread: {}", dead.name()))
    }

    /// Ends the device threads, each within `limit`. Names those that were still busy.
    pub fn stop(&self, limit: Duration) -> Vec<String> {
        self.is_stopped.store(true, Ordering::Release);
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
