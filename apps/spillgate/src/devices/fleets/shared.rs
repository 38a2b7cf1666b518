//! Devices whose brokers form the batches. They have the same weights as under a placement: those of equal files are one. What is there from
//! the start is all that their workers need, or as much of it as fits into their memory; families read the other members when these are asked
//! for.

use std::sync::Arc;
use std::time::Duration;

use spillgate_pipeline::action::PAGE_BYTES;
use spillgate_pipeline::id::{DeviceId, WeightsId};
use spillgate_worker::device::{DeviceConfig, Models, ModelsConfig, brokers};
use spillgate_worker::weights::loader::WeightsSpec;
use spillgate_worker_policy::device;
use spillgate_worker_policy::weights::fleet::FleetWorker;
use spillgate_worker_policy::weights::store::{
    ScaledWorker, WeightStore, WeightStoreConfig, WeightsSize, WorkerWeights,
};

use super::{FleetPlan, loader};
use crate::device_sharing::DeviceSharing;
use crate::devices::Device;
use crate::devices::measured::MeasuredStatus;
use crate::devices::start::{Assigned, BIND_LEAD, Devices, Starting, loading};
use crate::start_error::StartError;

impl FleetPlan {
    /// The memory of a device, where reading weights takes so long.
    pub(super) fn memory(
        &self,
        sharing: &DeviceSharing,
        (id, name): &(DeviceId, String),
        loads: &[Duration],
    ) -> WeightStoreConfig {
        let pages = sharing
            .memory_of(name)
            .map_or(u32::MAX, |_| sharing.pages(name));
        let size = |(i, load): (u32, &Duration)| WeightsSize {
            pages: self.pages(WeightsId(i)),
            load: *load,
        };
        let weights_of = |of: &FleetWorker| -> Vec<WeightsId> {
            let models = of.models.iter();
            models.map(|m| self.models[m.idx()].weights).collect()
        };
        let worker = |of: &FleetWorker| {
            let weights = WorkerWeights {
                weights: weights_of(of),
                by_variant: of.by_variant,
            };
            (of.worker, weights)
        };
        let needs = |of: &FleetWorker| {
            let mut needs = weights_of(of);
            needs.retain(|weights| self.resident.contains(weights));
            needs
        };
        let mut all = WeightStoreConfig {
            pages,
            weights: (0..).zip(loads).map(size).collect(),
            workers: self.workers_of(*id).map(worker).collect(),
            resident: self.resident(pages),
            scaled: Vec::new(),
        };
        // Where weights give way to each other, they come with the requests.
        if pages == u32::MAX {
            let scaled = self.workers_of(*id).filter_map(|of| {
                let from_start = *self.scaled.get(&of.worker)?;
                Some(ScaledWorker {
                    worker: of.worker,
                    needs: needs(of),
                    from_start,
                })
            });
            all.scaled = scaled.collect();
            let serving = self.workers_of(*id);
            let serving = serving.filter(|of| self.scaled.get(&of.worker) != Some(&false));
            let first: Vec<WeightsId> = serving.flat_map(needs).collect();
            // Types without a model are always ready.
            all.resident
                .retain(|weights| self.pages(*weights) == 0 || first.contains(weights));
        }
        all
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

    /// Starts its devices.
    ///
    /// # Errors
    /// When a device is missing, or weights without which a module cannot serve cannot be loaded or fit nowhere.
    pub(crate) fn serve(
        mut self,
        assigned: &[&Assigned],
        sharing: &DeviceSharing,
        starting: &Starting<'_>,
        all: &mut Devices,
    ) -> Result<(), StartError> {
        if let Some(error) = self.too_large(sharing, self.needed()) {
            return Err(error);
        }
        let context = starting.context;
        let failed = |device: &str| {
            let device = device.to_owned();
            move |cause| StartError::Device { device, cause }
        };
        // Where none gives way, how long they take decides little: it is learnt while they serve.
        let (expected, measured) = match sharing.memory.is_empty() {
            true => (self.unmeasured(), Vec::new()),
            false => self.measured(starting)?,
        };
        let measured: Arc<[MeasuredStatus]> = measured.into();
        let weights: Arc<[WeightsSpec]> = self.weights.clone().into();
        let models: Arc<[(WeightsId, usize)]> = self.models_with_weights();
        let workers = self.worker_models();
        for device in &self.devices {
            let (id, name) = device;
            (context.progress)(&loading(name));
            let memory = self.memory(sharing, device, &expected.loads);
            self.tell_left_out(name, self.resident(memory.pages).len());
            self.tell_shortage(sharing, name, expected.workspace);
            let loads = &expected.loads;
            let config = DeviceConfig {
                id: *id,
                name: name.clone(),
                models: Models::Of(ModelsConfig {
                    loader: loader((&self.kind, name.clone()), context, &weights, loads),
                    too_large: self.larger_than(memory.pages),
                    resident: memory.resident.clone(),
                    needed: self.needed().collect(),
                    models: models.clone(),
                    workers: workers.clone(),
                }),
                core: context.cores.of(name),
            };
            let brokers = assigned.iter().find(|device| device.id == *id);
            let brokers = brokers.map_or_else(Vec::new, |device| device.brokers());
            let policy = device::Device::new(brokers, BIND_LEAD);
            let policy = policy.with_weights(WeightStore::new(memory));
            let upstream = starting.upstream.clone();
            let started = brokers::start(config, policy, &context.clock, starting.timers, upstream);
            let (handle, threads) = started.map_err(failed(name))?;
            let handle = Device::Own(handle, measured.clone());
            all.add((*id, name), handle, threads);
        }
        Ok(())
    }
}
