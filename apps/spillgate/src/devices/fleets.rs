//! Devices and their models: which devices form a fleet, which models they serve, and how they are started, under a placement or with brokers.
//!
//! Devices of one kind whose workers serve the same modules form a fleet: any of them can run any of its models.

pub(crate) mod contents;
pub(crate) mod expected;
mod host;
mod plan;
mod shared;
mod simulated;

use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_backend::Backend;
use spillgate_backend::operator::OperatorError;
use spillgate_backend::torch::TorchBackend;
use spillgate_pipeline::action::PAGE_BYTES;
use spillgate_pipeline::id::{DeviceId, ModelId, WeightsId, WorkerId};
use spillgate_pipeline::placement::PlacementPolicy;
use spillgate_pipeline::profile::batch_sizes;
use spillgate_worker::device::{DeviceConfig, Models, ModelsConfig, WorkerModels, actions};
use spillgate_worker::weights::loader::{EmulatedLoader, OperatorLoader, WeightsSpec};
use spillgate_worker::weights::{Loader, LoaderFactory};
use spillgate_worker_policy::actions::Actions;
use spillgate_worker_policy::weights::fleet::{Fleet, FleetWorker};
use spillgate_worker_policy::weights::placement::{
    self, DeviceSpec, Model, Placement, PlacementConfig,
};

use super::Device;
use super::measured::MeasuredStatus;
use super::start::{Devices, Starting, loading};
use crate::device_sharing::DeviceSharing;
use crate::process_context::ProcessContext;
use crate::start_error::StartError;
use expected::guessed_load;
use expected::{Expected, ExpectedRun};
pub use host::FleetHost;
use plan::PlannedModel;
pub(crate) use plan::{FleetPlan, plan};
pub use simulated::{Weights, loads, memory, simulated};

impl FleetPlan {
    /// Pages of weights.
    fn pages(&self, weights: WeightsId) -> u32 {
        let pages = self.bytes[weights.idx()].div_ceil(PAGE_BYTES);
        u32::try_from(pages).unwrap_or(u32::MAX)
    }

    /// What is loaded from the start: as much as fits.
    fn resident(&self, cache: u32) -> Vec<WeightsId> {
        let mut free = cache;
        let fits = self.resident.iter().copied().filter(|&weights| {
            let pages = self.pages(weights);
            let fits = pages <= free;
            free -= if fits { pages } else { 0 };
            fits
        });
        fits.collect()
    }

    /// Says that not all weights that are to be there from the start fit on a device, and what would hold them.
    fn tell_left_out(&self, device: &str, fit: usize) {
        let (all, mib) = (self.resident.len(), PAGE_BYTES >> 20);
        if fit < all {
            let pages = self.resident.iter().map(|w| u64::from(self.pages(*w)));
            let needs = pages.sum::<u64>() * mib;
            tracing::warn!(
                device,
                "of {all} files of models and variants that serve by default {fit} fit into its memory; the others are loaded before they run, \
                 and give way to each other; --device {device},memory={needs}MiB holds all"
            );
        }
    }

    /// Bytes that weights may take on a device.
    fn weights_max(&self, sharing: &DeviceSharing, device: &str) -> u64 {
        let weights = (0..self.weights.len() as u32).map(WeightsId);
        let all = weights.map(|w| u64::from(self.pages(w)) * PAGE_BYTES).sum();
        sharing.memory_of(device).map_or(all, |of| of.min(all))
    }

    /// Says that a device has too little memory for its weights and for a batch beside them, and what would fit. Of an emulated device, and
    /// where nothing was measured, that is not known.
    fn tell_shortage(&self, sharing: &DeviceSharing, device: &str, workspace: Option<u64>) {
        let Some(workspace) = workspace else { return };
        let Some(has) = TorchBackend::new(device).ok().and_then(|of| of.memory()) else {
            return;
        };
        if let Some(told) = shortage(device, self.weights_max(sharing, device), workspace, has) {
            tracing::warn!(device, "{told}");
        }
    }

    /// The weights without which a module cannot serve: others of a family serve without one that does not.
    fn needed(&self) -> impl Iterator<Item = WeightsId> {
        let is_needed = |of: &WeightsId| self.weights[of.idx()].needed_by().is_some();
        self.resident.iter().copied().filter(is_needed)
    }

    /// One of these weights that fit on no device.
    fn too_large(
        &self,
        sharing: &DeviceSharing,
        mut weights: impl Iterator<Item = WeightsId>,
    ) -> Option<StartError> {
        let (_, largest) = self
            .devices
            .iter()
            .map(|(_, name)| (sharing.pages(name), name))
            .max()?;
        let most = sharing.pages(largest);
        let weights = weights.find(|weights| self.pages(*weights) > most)?;
        let spec = &self.weights[weights.idx()];
        let module = &spec.needed_by().unwrap_or(spec.first()).module().name;
        let (needs, mib) = (self.pages(weights), PAGE_BYTES >> 20);
        Some(StartError::Device {
            device: largest.clone(),
            cause: OperatorError::Other(format!(
                "the model of module {module} takes {needs} pages of {mib} MiB, and the device has {most} for weights; \
                 give it at least {} MiB: --device {largest},memory={}MiB",
                u64::from(needs) * mib,
                u64::from(needs) * mib,
            )),
        })
    }

    /// Of each model those that are the next smaller and the next larger variant.
    fn neighbours(&self) -> Vec<Vec<ModelId>> {
        let mut neighbours: Vec<Vec<ModelId>> = vec![Vec::new(); self.models.len()];
        for worker in self.workers.iter().filter(|worker| worker.by_variant) {
            for pair in worker.models.windows(2) {
                for (of, other) in [(pair[0], pair[1]), (pair[1], pair[0])] {
                    if !neighbours[of.idx()].contains(&other) {
                        neighbours[of.idx()].push(other);
                    }
                }
            }
        }
        neighbours
    }

    /// What a placement on its devices serves, where models take so long.
    fn config(&self, sharing: &DeviceSharing, expected: &Expected) -> PlacementConfig {
        let largest = self
            .weights
            .iter()
            .map(|m| m.first().module().batch.max)
            .max();
        let sizes = batch_sizes(largest.unwrap_or(1));
        let weights = |(i, load): (u32, &Duration)| placement::Weights {
            pages: self.pages(WeightsId(i)),
            load: *load,
        };
        let neighbours = self.neighbours();
        let model = |((of, neighbours), run): ((&PlannedModel, Vec<ModelId>), &ExpectedRun)| {
            let ExpectedRun { execution, prepare } = run;
            let spec = &self.weights[of.weights.idx()];
            let most = spec.first().module().batch.max as usize;
            let sizes = sizes
                .iter()
                .take_while(|s| **s as usize <= most.min(execution.len()));
            Model {
                weights: of.weights,
                neighbours,
                execution: sizes.map(|s| execution[*s as usize - 1]).collect(),
                input: *prepare,
            }
        };
        let device = |(_, name): &(DeviceId, String)| {
            let pages = sharing.pages(name);
            let resident = self.resident(pages);
            DeviceSpec { pages, resident }
        };
        let pipelines = self.weights.iter().flat_map(|w| &w.sources);
        let models = self.models.iter().zip(neighbours);
        let background_time = pipelines.map(|s| s.worker.pipeline.background_time()).min();
        PlacementConfig {
            weights: (0..).zip(&expected.loads).map(weights).collect(),
            models: models.zip(&expected.runs).map(model).collect(),
            sizes,
            devices: self.devices.iter().map(device).collect(),
            travel: Duration::ZERO,
            is_fair: sharing.is_fair,
            background_time: background_time.unwrap_or(Duration::MAX),
        }
    }
}

/// What is to be said where a device has less memory than its weights and a batch take.
fn shortage(device: &str, weights: u64, workspace: u64, has: u64) -> Option<String> {
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let fits = has.saturating_sub(workspace) / PAGE_BYTES * PAGE_BYTES;
    let less = match mib(fits) {
        0 => String::new(),
        fits => format!("--device {device},memory={fits}MiB fits, and "),
    };
    (weights > fits).then(|| {
        format!(
            "weights may take {} MiB of its memory, and a batch {} MiB beside them, but it has {} MiB: LOADs and batches may fail; {less}a smaller \
             batch: max needs less",
            mib(weights),
            mib(workspace),
            mib(has)
        )
    })
}

impl FleetPlan {
    /// What models take, measured on the first device.
    fn measured(
        &mut self,
        starting: &Starting<'_>,
    ) -> Result<(Expected, Vec<MeasuredStatus>), StartError> {
        let first = self.devices.first().map(|(_, name)| name.clone());
        let device = first.unwrap_or_default();
        (starting.context.progress)(&loading(&device));
        let measured = self.expected(&starting.context.library);
        measured.map_err(|cause| StartError::Device { device, cause })
    }

    /// What each model runs with, and which variant of its operator it is.
    fn models_with_weights(&self) -> Arc<[(WeightsId, usize)]> {
        self.models.iter().map(|m| (m.weights, m.variant)).collect()
    }

    /// What each worker runs.
    fn worker_models(&self) -> Arc<IndexMap<WorkerId, WorkerModels, FxBuildHasher>> {
        let of = |worker: &FleetWorker| {
            let models = WorkerModels {
                pipeline: self.pipelines[&worker.worker].clone(),
                module: worker.module,
                models: worker.models.clone(),
                by_variant: worker.by_variant,
            };
            (worker.worker, models)
        };
        Arc::new(self.workers.iter().map(of).collect())
    }

    /// Starts its devices under a placement.
    ///
    /// # Errors
    /// When a device is missing, or a model that is to be there from the start cannot be loaded or fits nowhere.
    pub(crate) fn place(
        mut self,
        name: PlacementPolicy,
        sharing: &DeviceSharing,
        starting: &Starting<'_>,
        all: &mut Devices,
    ) -> Result<(), StartError> {
        if let Some(error) = self.too_large(sharing, self.needed()) {
            return Err(error);
        }
        let Starting {
            context,
            timers,
            upstream,
        } = *starting;
        let clock = &context.clock;
        let (expected, measured) = self.measured(starting)?;
        let weights: Arc<[WeightsSpec]> = self.weights.clone().into();
        let models = self.models_with_weights();
        let workers = self.worker_models();
        let config = self.config(sharing, &expected);
        let fleet = Fleet::new(Placement::new(name, config), self.workers.clone());
        let host = FleetHost::new(fleet, measured, Arc::clone(upstream), clock, timers);
        let pages: Vec<u32> = (0..weights.len() as u32)
            .map(|i| self.pages(WeightsId(i)))
            .collect();
        let mut handles = Vec::new();
        for (i, (id, name)) in self.devices.iter().enumerate() {
            (context.progress)(&loading(name));
            let cache = sharing.pages(name);
            let resident = self.resident(cache);
            self.tell_left_out(name, resident.len());
            self.tell_shortage(sharing, name, expected.workspace);
            let actions = Actions::new(cache, pages.clone(), &resident);
            let config = DeviceConfig {
                id: DeviceId(i as u16),
                name: name.clone(),
                models: Models::Of(ModelsConfig {
                    loader: loader(
                        (&self.kind, name.clone()),
                        context,
                        &weights,
                        &expected.loads,
                    ),
                    too_large: Vec::new(),
                    needed: resident.clone(),
                    resident,
                    models: models.clone(),
                    workers: workers.clone(),
                }),
                core: context.cores.of(name),
            };
            let started = actions::start(config, actions, clock, timers, host.clone());
            let (handle, threads) = started.map_err(|cause| StartError::Device {
                device: name.clone(),
                cause,
            })?;
            handles.push(handle.clone());
            let device = Device::Placed(handle, host.clone());
            all.add((*id, name), device, threads);
        }
        host.connect(handles);
        Ok(())
    }
}

fn loader(
    (kind, name): (&str, String),
    context: &ProcessContext,
    weights: &Arc<[WeightsSpec]>,
    loads: &[Duration],
) -> LoaderFactory {
    let (library, weights) = (context.library.clone(), weights.clone());
    if kind == "emulated" {
        let loads: Arc<[Duration]> = loads.into();
        let clock = context.clock.clone();
        return Box::new(move || {
            let loader = EmulatedLoader::new(&clock, library, weights, loads);
            Ok(Box::new(loader) as Box<dyn Loader>)
        });
    }
    let backend =
        Box::new(move || TorchBackend::new(&name).map(|b| Box::new(b) as Box<dyn Backend>));
    Box::new(move || {
        let loader = OperatorLoader::new(backend, library, weights)?;
        Ok(Box::new(loader) as Box<dyn Loader>)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_memory_for_weights_and_a_batch_is_told_of() {
        let gib = 1 << 30;
        let shortage = |weights, workspace, has| shortage("cuda:0", weights, workspace, has);
        assert_eq!(shortage(10 * gib, gib, 12 * gib), None);
        assert_eq!(shortage(11 * gib, gib, 12 * gib), None);
        let told = shortage(12 * gib, gib + 1, 12 * gib).expect("too little");
        assert_eq!(
            told,
            "weights may take 12288 MiB of its memory, and a batch 1025 MiB beside them, but it has 12288 MiB: LOADs and batches may fail; \
             --device cuda:0,memory=11248MiB fits, and a smaller batch: max needs less"
        );
        let nothing_fits = shortage(gib, 2 * gib, gib).expect("too little");
        assert!(
            nothing_fits.ends_with("may fail; a smaller batch: max needs less"),
            "{nothing_fits}"
        );
    }
}
