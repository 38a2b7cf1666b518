//! The hosts of a process, and what joins them to devices and to other processes.

use std::sync::{Arc, Weak};

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_controller::host::{HostConfig, Outgoing, OutgoingSender, PipelineHost, RequestIds};
use spillgate_link::links::PeerLinks;
use spillgate_pipeline::id::{DeviceId, Incarnation};
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{Envelope, Message};
use spillgate_worker::timer::{Sleeper, TimerThread};

use super::assignment::Assignment;
use crate::device_name::{DeviceName, DeviceNames};
use crate::device_reports::DeviceReports;
use crate::devices::Device;
use crate::process_context::ProcessContext;
use crate::process_links::{LinkSetup, RemoteRouter};

/// The hosts of the pipelines, in the order of the deployments.
pub(super) struct Hosts {
    pub(super) hosts: Vec<Arc<PipelineHost>>,
    /// By pipeline: the way to other processes.
    pub(super) routers: Vec<RemoteRouter>,
    pub(super) ids: Arc<RequestIds>,
    /// By pipeline: of the devices of all processes that are known.
    pub(super) device_names: Vec<DeviceNames>,
    /// Hears what devices report.
    pub(super) upstreams: Arc<DeviceReports>,
}

impl Hosts {
    /// Hosts that are connected to nothing yet. Where they take the place of others, the `ids` of requests go on.
    pub(super) fn new(
        context: &ProcessContext,
        assignment: &Assignment,
        ids: Option<Arc<RequestIds>>,
    ) -> Self {
        let incarnation = context.role.as_ref().map(|role| role.incarnation);
        let ids = ids.unwrap_or_else(|| {
            let gateway = assignment.gateway.unwrap_or_default();
            Arc::new(RequestIds::new(gateway, incarnation.unwrap_or_default()))
        });
        let host = |of: &super::assignment::AssignedPipeline| {
            Arc::new(PipelineHost::new(HostConfig {
                pipeline: of.pipeline.clone(),
                planned: &of.planned,
                roles: of.roles.clone(),
                workers: of.workers.clone(),
                scaling: of.scaling.clone(),
                ids: ids.clone(),
                clock: context.clock.clone(),
                observer: context.observer.clone(),
            }))
        };
        let hosts: Vec<Arc<PipelineHost>> = assignment.pipelines.iter().map(host).collect();
        let routers = assignment.pipelines.iter().map(|of| {
            let (pipeline, account) = (of.pipeline.clone(), context.account.clone());
            RemoteRouter::new(pipeline, &of.workers, account)
        });
        let process = context.role.as_ref().map_or("", |role| &*role.name);
        let names = |_: &_| {
            let own = assignment.here.iter().map(|device| {
                let name = DeviceName {
                    process: process.to_owned(),
                    device: device.name.clone(),
                };
                (device.id, name)
            });
            DeviceNames::new(own)
        };
        let numbered_in = incarnation.unwrap_or_else(|| Incarnation(rand::random()));
        Hosts {
            routers: routers.collect(),
            upstreams: Arc::new(DeviceReports::new(numbered_in, &hosts)),
            device_names: assignment.pipelines.iter().map(names).collect(),
            hosts,
            ids,
        }
    }

    /// Connects the hosts with devices, with the timer that wakes them, and with other processes, where there are some.
    pub(super) fn connect(
        &self,
        context: &ProcessContext,
        assignment: &Assignment,
        devices: &IndexMap<DeviceId, Device, FxBuildHasher>,
        planners: &TimerThread,
    ) -> Vec<Arc<PeerLinks>> {
        let mut links = Vec::new();
        let all = self.hosts.iter().zip(&self.routers).zip(&self.device_names);
        for (((host, router), device_names), assigned) in all.zip(&assignment.pipelines) {
            let own = &assigned.own.ids.devices;
            let devices = own
                .iter()
                .filter_map(|id| Some((*id, devices.get(id)?.clone())));
            let devices: IndexMap<_, _, FxBuildHasher> = devices.collect();
            let alarm = planners.add(Arc::new(Planners(Arc::downgrade(host))));
            host.connect(
                devices.iter().map(|(id, of)| (*id, local_way(of.clone()))),
                router.way(),
                router.on_ended(),
                Box::new({
                    let alarm = alarm.clone();
                    move |at| alarm.arm(at)
                }),
            );
            let role = context.role.as_ref();
            let role = role.and_then(|role| Some((role, role.of(&assigned.pipeline.name)?)));
            if let (Some((role, of)), Some(set)) = (role, &context.set) {
                let linked = LinkSetup {
                    role,
                    host,
                    member: role.member(of, assigned.member_devices.clone()),
                    own: assigned.own.clone(),
                    others: &assigned.others,
                    devices,
                    device_names: device_names.clone(),
                    set,
                    router,
                    clock: context.clock.clone(),
                };
                links.push(linked.links());
            }
            // Roles know the workers of all processes when they are woken for the first time.
            if let Some(at) = host.wake() {
                alarm.arm(at);
            }
        }
        links
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
fn local_way(device: Device) -> OutgoingSender {
    Arc::new(move |outgoing: Outgoing| {
        let Envelope { from, message, .. } = outgoing.envelope;
        match message {
            Message::Device(message) => device.tell(from, message),
            _ => unreachable!("a message that is not for a device"),
        }
    })
}
