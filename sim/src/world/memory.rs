//! Devices whose weights are not all there from the start. Reading weights occupies a device's link, and none of its time.

use std::time::Duration;

use spillgate_pipeline::id::{WeightsId, WorkerId};
use spillgate_pipeline::invariants::Violation;
use spillgate_worker_policy::broker::BrokerConfig;
use spillgate_worker_policy::device::{Device, DeviceEvent};
use spillgate_worker_policy::weights::store::{
    WeightStore, WeightStoreConfig, WeightsSize, WorkerWeights,
};

use super::agenda::Occurrence;
use super::noted::Kind;
use super::{SimConfig, World};

impl SimConfig {
    /// Where devices have no memory and no placement is there, they read the models of families when these are asked for first, and keep them. The
    /// default of a family is there from the start.
    pub(super) fn remember_families(&mut self, n_devices: usize) {
        let is_decided = !self.memory.is_empty() || !self.fleets.is_empty();
        let Some(families) = self.families.as_ref().filter(|_| !is_decided) else {
            return;
        };
        let mut memory = vec![(Vec::new(), Vec::new(), Vec::new()); n_devices];
        let mut next = 0;
        for (module, devices) in self.pipeline.modules.iter().zip(&self.workers) {
            for device in devices {
                let worker = WorkerId(next);
                next += 1;
                let Some(family) = &module.family else {
                    continue;
                };
                let (sizes, workers, resident) = &mut memory[usize::from(*device)];
                let first = sizes.len() as u32;
                let size = |load: &Duration| WeightsSize {
                    pages: 1,
                    load: *load,
                };
                sizes.extend(families.loads[module.id.idx()].iter().map(size));
                let of = WorkerWeights {
                    weights: (first..sizes.len() as u32).map(WeightsId).collect(),
                    by_variant: false,
                };
                workers.push((worker, of));
                let default = family.default.map(|m| WeightsId(first + u32::from(m.0)));
                resident.extend(default);
            }
        }
        let config = |(sizes, workers, resident): (Vec<WeightsSize>, _, _)| WeightStoreConfig {
            pages: u32::MAX,
            weights: sizes.into(),
            workers,
            resident,
        };
        self.memory = memory.into_iter().map(config).collect();
    }

    /// The policy of a device with these workers.
    pub(super) fn device_policy(
        &self,
        device: usize,
        brokers: &[(WorkerId, BrokerConfig)],
    ) -> Device<()> {
        let policy = Device::new(brokers.to_vec(), self.handoff);
        match self.memory.get(device) {
            Some(memory) => policy.with_weights(WeightStore::new(memory.clone())),
            None => policy,
        }
    }
}

impl World {
    /// A device reads weights.
    pub(super) fn read(&mut self, device: usize, weights: WeightsId) {
        self.note(
            Kind::LoadStart,
            (device as u64) << 40 | u64::from(weights.0),
        );
        let load = self.config.memory[device].weights[weights.idx()].load;
        let factor = self.noise();
        let took = self.slowed(device, stretched(load, factor));
        self.tally.link(took);
        let life = self.devices[device].life;
        let end = Occurrence::ReadEnd { device, life };
        self.agenda.at(self.now + took, end);
    }

    /// What became of the weights of all devices.
    pub(super) fn count_memory(&mut self) {
        for device in &self.devices {
            if let Some(memory) = device.policy.memory() {
                self.tally.memory(&memory.account());
            }
        }
    }

    pub(super) fn read_end(&mut self, device: usize) -> Result<(), Violation> {
        self.drive_device(device, DeviceEvent::ReadEnded(true))
    }
}

/// A time by a factor; exactly itself by 1.
pub(super) fn stretched(time: Duration, factor: f64) -> Duration {
    match factor == 1.0 {
        true => time,
        false => time.mul_f64(factor),
    }
}
