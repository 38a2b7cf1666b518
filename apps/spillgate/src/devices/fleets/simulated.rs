//! The fleets of a pipeline for the simulator, put together as those of a server.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use spillgate_backend::operator::Library;
use spillgate_pipeline::family::FamilyModel;
use spillgate_pipeline::id::{DeviceId, WeightsId};
use spillgate_pipeline::pipeline::Module;
use spillgate_pipeline::placement::PlacementPolicy;
use spillgate_sim::SimFleet;
use spillgate_worker_policy::weights::store::WeightStoreConfig;

use super::{DeviceSharing, FleetPlan, guessed_load, plan};
use crate::deployment::Deployment;
use crate::device_assignment::{load, place};
use crate::device_name::resolve_device;
use crate::devices::start::Assigned;
use crate::model_files::weights_bytes;
use crate::start_error::StartError;

/// How large the weights of models are, and how fast they are read.
#[derive(Clone, Debug)]
pub struct Weights {
    /// Bytes of each model of a module, by module; `None`: the size of its files.
    pub bytes: Vec<Option<u64>>,
    /// Bytes a second that the link of a device carries; `None`: the time of the profile or, where it has none, what a server expects of
    /// a link of which it has measured nothing.
    pub link: Option<f64>,
}

impl Weights {
    fn load(&self, bytes: u64, profiled: Option<Duration>) -> Duration {
        match self.link {
            Some(link) => Duration::from_secs_f64(bytes as f64 / link),
            None => profiled.unwrap_or_else(|| guessed_load(bytes)),
        }
    }
}

/// The fleets of a pipeline that a placement serves, of all its workers.
///
/// # Errors
/// When a device that was given memory serves nothing, or a model fits on no device.
pub fn simulated(
    deployment: &Deployment,
    (name, sharing): (PlacementPolicy, &DeviceSharing),
    weights: &Weights,
    library: &Library,
) -> Result<Vec<SimFleet>, StartError> {
    let mut fleets = Vec::new();
    for plan in plans(deployment, sharing, weights, library)? {
        let expected = plan.profiled(|bytes, profiled| weights.load(bytes, profiled));
        fleets.push(SimFleet {
            name,
            config: plan.config(sharing, &expected),
            devices: plan.devices.iter().map(|(id, _)| id.0).collect(),
            workers: plan.workers,
        });
    }
    Ok(fleets)
}

/// By device, the memory of a pipeline whose brokers form the batches.
///
/// # Errors
/// When a device that was given memory serves nothing, or a model fits on no device.
pub fn memory(
    deployment: &Deployment,
    sharing: &DeviceSharing,
    weights: &Weights,
    library: &Library,
) -> Result<Vec<WeightStoreConfig>, StartError> {
    let mut memory = Vec::new();
    for plan in plans(deployment, sharing, weights, library)? {
        let expected = plan.profiled(|bytes, profiled| weights.load(bytes, profiled));
        let of =
            |device: &(DeviceId, String)| (device.0, plan.memory(sharing, device, &expected.loads));
        memory.extend(plan.devices.iter().map(of));
    }
    memory.sort_by_key(|(device, _)| *device);
    Ok(memory.into_iter().map(|(_, memory)| memory).collect())
}

/// The fleets of a pipeline, with weights of these sizes.
fn plans(
    deployment: &Deployment,
    sharing: &DeviceSharing,
    weights: &Weights,
    library: &Library,
) -> Result<Vec<FleetPlan>, StartError> {
    let placement = place(std::slice::from_ref(deployment), 0, None)?;
    let names = placement.devices.keys().map(String::as_str);
    if let Some(error) = sharing.unknown(names) {
        return Err(error);
    }
    let devices = (0..).map(DeviceId).zip(placement.devices);
    let devices = devices.map(|(id, (name, workers))| Assigned { id, name, workers });
    let devices: Vec<Assigned> = devices.collect();
    let planned = Arc::clone(&placement.planned[0]);
    let all: Vec<&Assigned> = devices.iter().collect();
    let mut plans = plan(&all, |_| planned.clone(), library);
    for plan in &mut plans {
        for (spec, bytes) in plan.weights.iter().zip(&mut plan.bytes) {
            *bytes = weights.bytes[spec.first().module().id.idx()].unwrap_or(*bytes);
        }
        let all = (0..plan.weights.len() as u32).map(WeightsId);
        if let Some(error) = plan.too_large(sharing, all) {
            return Err(error);
        }
    }
    Ok(plans)
}

/// By module and member, how long reading the models of a pipeline's families takes.
pub fn loads(deployment: &Deployment, weights: &Weights) -> Vec<Vec<Duration>> {
    let of_module = |module: &Module| {
        let members = module.family.iter().flat_map(|family| &family.members);
        let given = weights.bytes[module.id.idx()];
        let file = |member: &FamilyModel| deployment.base_dir.join(&member.file);
        let bytes = members.map(|member| given.unwrap_or_else(|| size(&file(member))));
        let device = module.devices.first().map(|device| resolve_device(device));
        let profiled = load(module, &device.unwrap_or_default(), &deployment.profiles);
        bytes.map(|bytes| weights.load(bytes, profiled)).collect()
    };
    deployment.pipeline.modules.iter().map(of_module).collect()
}

/// Bytes of a file; 0 where it vanished meanwhile.
fn size(path: &Path) -> u64 {
    weights_bytes(path).unwrap_or(0)
}
