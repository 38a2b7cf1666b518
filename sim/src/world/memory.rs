//! Devices whose weights are not all there from the start. Reading weights occupies a device's link, and none of its time.

use std::time::Duration;

use spillgate_pipeline::id::{MemberId, WeightsId, WorkerId};
use spillgate_pipeline::invariants::Violation;
use spillgate_pipeline::pipeline::Module;
use spillgate_worker_policy::broker::BrokerConfig;
use spillgate_worker_policy::device::{Device, DeviceEvent};
use spillgate_worker_policy::weights::store::{
    ScaledWorker, WeightStore, WeightStoreConfig, WeightsSize, WorkerWeights,
};

use super::agenda::Occurrence;
use super::noted::Kind;
use super::{SimConfig, World};

/// A worker that reads models.
#[derive(Clone)]
struct SimWorker {
    worker: WorkerId,
    /// By model: how long reading it takes.
    loads: Vec<Duration>,
    /// The model that is there while the worker serves.
    default: Option<MemberId>,
    /// If it comes and goes with the load: whether it serves from the start.
    scaled: Option<bool>,
}

impl SimConfig {
    /// Where devices have no memory and no placement is there, they read the models of families when these are asked for first, and those of
    /// workers that come with the load when these come. The default of a family is there from the start.
    pub(super) fn remember_models(&mut self, n_devices: usize) {
        let is_decided = !self.memory.is_empty() || !self.fleets.is_empty();
        if is_decided || self.families.is_none() && self.scaling.is_none() {
            return;
        }
        let mut memory = vec![Vec::new(); n_devices];
        let mut next = (0..).map(WorkerId);
        for (module, devices) in self.pipeline.modules.iter().zip(&self.workers) {
            for (i, device) in devices.iter().enumerate() {
                let worker = next.next().expect("there are as many as are asked for");
                memory[usize::from(*device)].extend(self.models_of(worker, module, i as u32));
            }
        }
        let of_device = |workers: Vec<SimWorker>| {
            let mut all = WeightStoreConfig {
                pages: u32::MAX,
                weights: Vec::new().into(),
                workers: Vec::new(),
                resident: Vec::new(),
                scaled: Vec::new(),
            };
            let mut sizes = Vec::new();
            for SimWorker {
                worker,
                loads,
                default,
                scaled,
            } in workers
            {
                let first = sizes.len() as u32;
                let size = |load| WeightsSize { pages: 1, load };
                sizes.extend(loads.into_iter().map(size));
                let of = WorkerWeights {
                    weights: (first..sizes.len() as u32).map(WeightsId).collect(),
                    by_variant: false,
                };
                all.workers.push((worker, of));
                let default = default.map(|m| WeightsId(first + u32::from(m.0)));
                if scaled != Some(false) {
                    all.resident.extend(default);
                }
                all.scaled.extend(scaled.map(|from_start| ScaledWorker {
                    worker,
                    needs: default.into_iter().collect(),
                    from_start,
                }));
            }
            all.weights = sizes.into();
            all
        };
        self.memory = memory.into_iter().map(of_device).collect();
    }

    /// What the worker of a module of that ordinal reads, if it reads anything.
    fn models_of(&self, worker: WorkerId, module: &Module, ordinal: u32) -> Option<SimWorker> {
        let idx = module.id.idx();
        let scaling = self.scaling.as_ref();
        let scaled = scaling.and_then(|s| Some((s.config.of(module.id)?, s.cold_start)));
        let family = self.families.as_ref().filter(|_| module.family.is_some());
        let (loads, default) = match (family, scaled) {
            (Some(families), _) => {
                let default = module.family.as_ref().and_then(|family| family.default);
                (families.loads[idx].clone(), default)
            }
            (None, Some((_, cold_start))) => (vec![cold_start], Some(MemberId::default())),
            (None, None) => return None,
        };
        Some(SimWorker {
            worker,
            loads,
            default,
            scaled: scaled.map(|(of, _)| ordinal < of.least),
        })
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
