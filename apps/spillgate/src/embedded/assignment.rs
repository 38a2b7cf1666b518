//! Which worker runs on which device, and what of it is in this process.

use std::sync::Arc;

use spillgate_controller::host::Roles;
use spillgate_controller_policy::plan::Planned;
use spillgate_controller_policy::scaling::ScalingConfig;
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::{DeviceId, GatewayId, Incarnation};
use spillgate_protocol::membership::{Member, MemberDevice, MemberIds, MemberWorker, OwnIds};
use spillgate_protocol::message::Place;
use spillgate_protocol::topology::Process;
use spillgate_worker::operators::WorkerSpec;

use crate::agreement;
use crate::deployment::Deployment;
use crate::device_assignment::{devices_of, place};
use crate::devices::start::Assigned;
use crate::process_context::ProcessContext;
use crate::process_role::PipelineRole;
use crate::start_error::PlacingError;

/// Devices and workers of all pipelines in this process, and the other processes.
pub(super) struct Assignment {
    /// The devices of this process.
    pub(super) here: Vec<Assigned>,
    /// The gateway of this process.
    pub(super) gateway: Option<GatewayId>,
    /// In the order of the deployments.
    pub(super) pipelines: Vec<AssignedPipeline>,
}

/// A pipeline and where its workers are.
pub(super) struct AssignedPipeline {
    pub(super) pipeline: Arc<Pipeline>,
    /// Its workers in this process.
    pub(super) workers: Vec<Place>,
    /// The other processes of the topology, in its order.
    pub(super) others: Vec<Arc<Member>>,
    /// The devices of this process that have workers of it, as it greets with them.
    pub(super) member_devices: Vec<MemberDevice>,
    /// The ids of what it greets with.
    pub(super) own: OwnIds,
    pub(super) planned: Arc<Planned>,
    pub(super) scaling: Option<ScalingConfig>,
    /// Those of this process.
    pub(super) roles: Roles,
}

impl Assignment {
    /// Assigns the workers of all pipelines.
    ///
    /// # Errors
    /// When a module has no execution times.
    pub(super) fn of(
        context: &ProcessContext,
        deployments: &[Deployment],
    ) -> Result<Self, PlacingError> {
        let role = context.role.as_ref();
        let placed = place(deployments, context.decoders.max(1), role)?;
        let devices = (0..).map(DeviceId).zip(placed.devices);
        let here: Vec<Assigned> = devices
            .map(|(id, (name, workers))| Assigned { id, name, workers })
            .collect();
        let n_workers = here.iter().map(|device| device.workers.len()).sum();
        let all = deployments.iter().map(|d| &d.pipeline).zip(placed.workers);
        let all = all.zip(placed.planned.into_iter().zip(placed.scaling));
        let all = all.enumerate();
        let all = all.map(|(i, ((pipeline, workers), (planned, scaling)))| {
            let of = role.and_then(|role| Some((role, role.of(&pipeline.name)?)));
            let (member_devices, ids) = own(pipeline, &here);
            let roles = match of {
                Some((role, of)) => role.roles(of, ids.devices.clone()),
                None => Roles::all(pipeline, ids.devices.clone()),
            };
            let gateway = roles.gateway;
            AssignedPipeline {
                pipeline: pipeline.clone(),
                workers,
                others: of.map_or_else(Vec::new, |(_, of)| others(of)),
                member_devices,
                own: OwnIds::new(MemberIds { gateway, ..ids }, i, here.len(), n_workers),
                planned,
                scaling,
                roles,
            }
        });
        let pipelines: Vec<AssignedPipeline> = all.collect();
        Ok(Assignment {
            here,
            gateway: pipelines.first().and_then(|of| of.roles.gateway),
            pipelines,
        })
    }

    /// What was planned for a pipeline.
    pub(super) fn planned(&self, pipeline: &Arc<Pipeline>) -> Arc<Planned> {
        let mut own = self.pipelines.iter();
        let own = own.find(|of| Arc::ptr_eq(&of.pipeline, pipeline));
        own.expect("each pipeline is planned").planned.clone()
    }
}

/// The devices of this process that have workers of a pipeline, as it greets with them, and the ids of both.
fn own(pipeline: &Arc<Pipeline>, here: &[Assigned]) -> (Vec<MemberDevice>, MemberIds) {
    let (mut devices, mut ids) = (Vec::new(), MemberIds::default());
    for device in here {
        let of = device.workers.iter().map(|of| &of.spec);
        let of: Vec<&WorkerSpec> = of
            .filter(|of| Arc::ptr_eq(&of.pipeline, pipeline))
            .collect();
        if of.is_empty() {
            continue;
        }
        let worker = |of: &&WorkerSpec| MemberWorker {
            module: of.module,
            profile: agreement::profile(&of.execution),
        };
        devices.push(MemberDevice {
            name: device.name.as_str().into(),
            workers: of.iter().map(worker).collect(),
        });
        ids.devices.push(device.id);
        ids.places.extend(of.iter().map(|of| Place {
            worker: of.worker,
            module: of.module,
            device: device.id,
        }));
    }
    (devices, ids)
}

/// The other processes of a topology, before they have greeted.
fn others(role: &PipelineRole) -> Vec<Arc<Member>> {
    let all = role.topology.processes.iter().enumerate();
    let others = all.filter(|(process, _)| *process != role.process);
    let member = |process: &Process| Member {
        name: process.name.clone(),
        incarnation: Incarnation::default(),
        version: "".into(),
        address: process.address.as_deref().map(Arc::from),
        is_gateway: process.gateway.is_some(),
        controllers: process.controllers.clone(),
        devices: devices_of(process),
    };
    others.map(|(_, of)| Arc::new(member(of))).collect()
}
