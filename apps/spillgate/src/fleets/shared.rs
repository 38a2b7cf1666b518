//! Devices whose weights are not all there from the start while their brokers form the batches: those with families of models, and those whose
//! weights give way to each other (`placement: brokers`). They have the same weights as under a placement: those of equal files are one.

use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::action::PAGE_BYTES;
use spillgate_pipeline::id::{DeviceId, WeightsId, WorkerId};
use spillgate_worker::device::{WeightsConfig, WeightsWorker};
use spillgate_worker::weights::loader::WeightsSpec;
use spillgate_worker_policy::weights::fleet::FleetWorker;
use spillgate_worker_policy::weights::store::{WeightStoreConfig, WeightsSize, WorkerWeights};

use super::{Around, FleetPlan, Placing, loader};
use crate::embedded::StartError;
use crate::status::MeasuredStatus;

/// A device of that kind, to be started.
pub(crate) struct SharedDevice {
    /// Of its policy.
    pub(crate) memory: WeightStoreConfig,
    /// Of its threads.
    pub(crate) weights: WeightsConfig,
    /// What its models take, as measured.
    pub(crate) measured: Arc<[MeasuredStatus]>,
}

impl FleetPlan {
    /// The memory of a device, where reading weights takes so long.
    pub(super) fn memory(
        &self,
        placing: &Placing,
        (id, name): &(DeviceId, String),
        loads: &[Duration],
    ) -> WeightStoreConfig {
        let pages = placing
            .memory_of(name)
            .map_or(u32::MAX, |_| placing.pages(name));
        let size = |(i, load): (u32, &Duration)| WeightsSize {
            pages: self.pages(WeightsId(i)),
            load: *load,
        };
        let worker = |of: &FleetWorker| {
            let weights = of.models.iter();
            let weights = weights.map(|m| self.models[m.idx()].weights);
            let weights = WorkerWeights {
                weights: weights.collect(),
                by_variant: of.by_variant,
            };
            (of.worker, weights)
        };
        WeightStoreConfig {
            pages,
            weights: (0..).zip(loads).map(size).collect(),
            workers: self.workers_of(*id).map(worker).collect(),
            resident: self.resident(pages),
        }
    }

    /// What is larger than so many pages, and what its requests hear.
    fn larger_than(&self, most: u32) -> Vec<(WeightsId, String)> {
        let all = (0..).map(WeightsId).zip(&self.weights);
        let larger = all.filter(|(weights, _)| self.pages(*weights) > most);
        let why = |(weights, spec): (WeightsId, &WeightsSpec)| {
            let source = spec.first();
            let why = format!(
                "module {}: model {} needs more memory than its device has: {} pages of {} MiB, of {most}",
                source.module().name,
                source.name(),
                self.pages(weights),
                PAGE_BYTES >> 20
            );
            (weights, why)
        };
        larger.map(why).collect()
    }

    /// Makes its devices ready to be started, by id.
    ///
    /// # Errors
    /// When a device is missing, or weights without which a module cannot serve cannot be loaded or fit nowhere.
    pub(crate) fn share(
        mut self,
        placing: &Placing,
        around: &Around<'_>,
    ) -> Result<Vec<(DeviceId, SharedDevice)>, StartError> {
        if let Some(error) = self.too_large(placing, self.needed()) {
            return Err(error);
        }
        let Around {
            clock,
            library,
            modules,
            loading,
            ..
        } = around;
        let first = self.devices.first().map(|(_, name)| name.clone());
        loading(first.as_deref().unwrap_or_default());
        // Where none gives way, how long they take decides little: it is learnt while they serve.
        let expected = match placing.memory.is_empty() {
            true => Ok((self.unmeasured(), Vec::new())),
            false => self.expected(library),
        };
        let (expected, measured) = expected.map_err(|cause| StartError::Device {
            device: first.unwrap_or_default(),
            cause,
        })?;
        let measured: Arc<[MeasuredStatus]> = measured.into();
        let weights: Arc<[WeightsSpec]> = self.weights.clone().into();
        let models = self.models.iter().map(|m| (m.weights, m.variant));
        let models: Arc<[(WeightsId, usize)]> = models.collect();
        let mut shared = Vec::new();
        for device in &self.devices {
            let (id, name) = device;
            let memory = self.memory(placing, device, &expected.loads);
            self.tell_left_out(name, memory.resident.len());
            self.tell_shortage(placing, name, expected.workspace);
            let worker = |of: &FleetWorker| {
                let (pipeline, module) = &modules[&of.worker];
                let worker = WeightsWorker {
                    pipeline: pipeline.clone(),
                    module: *module,
                    models: of.models.clone(),
                    by_variant: of.by_variant,
                };
                (of.worker, worker)
            };
            let workers: IndexMap<WorkerId, WeightsWorker, FxBuildHasher> =
                self.workers_of(*id).map(worker).collect();
            let loads = &expected.loads;
            let weights = WeightsConfig {
                too_large: self.larger_than(memory.pages),
                loader: loader((&self.kind, name.clone()), clock, library, &weights, loads),
                resident: memory.resident.clone(),
                needed: self.needed().collect(),
                models: models.clone(),
                workers,
            };
            let measured = measured.clone();
            let device = SharedDevice {
                memory,
                weights,
                measured,
            };
            shared.push((*id, device));
        }
        Ok(shared)
    }
}
