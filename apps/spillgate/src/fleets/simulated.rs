//! The fleets of a pipeline for the simulator, put together as those of a server.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use spillgate_backend::operator::Library;
use spillgate_pipeline::family::FamilyMember;
use spillgate_pipeline::id::{DeviceId, WeightsId};
use spillgate_pipeline::pipeline::Module;
use spillgate_sim::SimFleet;

use super::{Placing, guessed_load, plan};
use crate::embedded::{Deployment, StartError};
use crate::placement::{load, place, resolve_device};

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
    placing: &Placing,
    weights: &Weights,
    library: &Library,
) -> Result<Vec<SimFleet>, StartError> {
    let placement = place(&[deployment.under_placement(false)], 0, None)?;
    let names = placement.devices.keys().map(String::as_str);
    if let Some(error) = placing.unknown(names) {
        return Err(error);
    }
    let devices = (0..).map(DeviceId).zip(&placement.devices);
    let devices = devices.map(|(id, (name, places))| (id, name.as_str(), places));
    let planned = Arc::clone(&placement.planned[0]);
    let mut fleets = Vec::new();
    for mut plan in plan(devices, |_| planned.clone(), library) {
        for (spec, bytes) in plan.weights.iter().zip(&mut plan.bytes) {
            *bytes = weights.bytes[spec.first().module().id.idx()].unwrap_or(*bytes);
        }
        let all = (0..plan.weights.len() as u32).map(WeightsId);
        if let Some(error) = plan.too_large(placing, all) {
            return Err(error);
        }
        let expected = plan.profiled(|bytes, profiled| weights.load(bytes, profiled));
        fleets.push(SimFleet {
            name: placing.name,
            config: plan.config(placing, &expected),
            devices: plan.devices.iter().map(|(id, _)| id.0).collect(),
            workers: plan.workers,
        });
    }
    Ok(fleets)
}

/// By module and member, how long reading the models of a pipeline's families takes.
pub fn loads(deployment: &Deployment, weights: &Weights) -> Vec<Vec<Duration>> {
    let of_module = |module: &Module| {
        let members = module.family.iter().flat_map(|family| &family.members);
        let given = weights.bytes[module.id.idx()];
        let file = |member: &FamilyMember| deployment.base_dir.join(&member.file);
        let bytes = members.map(|member| given.unwrap_or_else(|| size(&file(member))));
        let device = module.devices.first().map(|device| resolve_device(device));
        let profiled = load(module, &device.unwrap_or_default(), &deployment.profiles);
        bytes.map(|bytes| weights.load(bytes, profiled)).collect()
    };
    deployment.pipeline.modules.iter().map(of_module).collect()
}

/// Bytes of a file; 0 where it vanished meanwhile.
fn size(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |of| of.len())
}
