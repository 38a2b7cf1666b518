//! Which worker runs on which device, and what of it is in this process.

use std::sync::Arc;

use spillgate_controller::host::Roles;
use spillgate_controller_policy::plan::Planned;
use spillgate_controller_policy::scaling::ScalingConfig;
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::{DeviceId, GatewayId};
use spillgate_protocol::message::Place;

use crate::deployment::Deployment;
use crate::device_assignment::place;
use crate::device_name::DeviceName;
use crate::devices::start::Assigned;
use crate::process_context::ProcessContext;
use crate::start_error::PlacingError;

/// Devices and workers of all pipelines.
pub(super) struct Assignment {
    /// Of all devices, by id: those of other processes, too.
    pub(super) names: Vec<DeviceName>,
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
    pub(super) workers: Vec<Place>,
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
        let topology = role.map(|role| &*role.topology);
        let placed = place(deployments, context.decoders.max(1), topology)?;
        let names: Vec<DeviceName> = placed.devices.keys().map(|n| DeviceName::of(n)).collect();
        let devices = (0..).map(DeviceId).zip(placed.devices.into_values());
        let here: Vec<Assigned> = devices
            .zip(&names)
            .filter(|(_, name)| role.is_none_or(|role| role.name() == name.process))
            .map(|((id, workers), name)| Assigned {
                id,
                name: name.device.clone(),
                workers,
            })
            .collect();
        let ids: Vec<DeviceId> = here.iter().map(|device| device.id).collect();
        let roles = |pipeline: &Pipeline| match role {
            Some(role) => role.roles(ids.clone()),
            None => Roles::all(pipeline, ids.clone()),
        };
        let pipelines = deployments.iter().map(|d| &d.pipeline);
        let pipelines: Vec<AssignedPipeline> = pipelines
            .zip(placed.workers)
            .zip(placed.planned.into_iter().zip(placed.scaling))
            .map(
                |((pipeline, workers), (planned, scaling))| AssignedPipeline {
                    pipeline: pipeline.clone(),
                    workers,
                    planned,
                    scaling,
                    roles: roles(pipeline),
                },
            )
            .collect();
        Ok(Assignment {
            names,
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
