//! Models in the memory of devices that keep what they have read. A model of a family is read when a batch needs it first, by the device and
//! before that batch, and stays. The default of a family is there from the start.

use std::time::Duration;

use spillgate_pipeline::id::WorkerId;
use spillgate_worker_policy::device::Batch;

use super::World;

impl World {
    /// How long a batch waits for its model, if that is not in memory. It is from now on.
    pub(super) fn read_model(&mut self, device: usize, batch: &Batch<()>) -> Option<Duration> {
        let families = self.config.families.as_ref()?;
        if self.devices[device].policy.memory().is_some() {
            return None;
        }
        let module = &self.config.pipeline.modules[batch.module.idx()];
        let member = batch.members.first()?.request.member;
        let load = families.load(batch.module, member);
        let model = (batch.worker, member);
        if module.family.is_none() || !self.devices[device].models.insert(model) {
            return None;
        }
        let factor = self.noise();
        let load = self.slowed(device, stretched(load, factor));
        self.tally.read(load, batch.members.len());
        Some(load)
    }

    /// The workers of a device begin with the default of their family.
    pub(super) fn load_defaults(&mut self, device: usize) {
        let workers = self.devices[device].brokers.iter();
        let workers: Vec<WorkerId> = workers.map(|(worker, _)| *worker).collect();
        for worker in workers {
            self.forget_models(device, worker);
        }
    }

    /// A worker has no model but the default of its family, with which it is loaded.
    pub(super) fn forget_models(&mut self, device: usize, worker: WorkerId) {
        let module = &self.config.pipeline.modules[self.places[worker.idx()].module.idx()];
        let default = module.family.as_ref().and_then(|family| family.default);
        let models = &mut self.devices[device].models;
        models.retain(|(of, _)| *of != worker);
        models.extend(default.map(|default| (worker, default)));
    }
}

/// A time by a factor; exactly itself by 1.
pub(super) fn stretched(time: Duration, factor: f64) -> Duration {
    match factor == 1.0 {
        true => time,
        false => time.mul_f64(factor),
    }
}
