//! Devices with memory for some of their weights. Reading weights occupies a device's link, and none of its time.

use spillgate_pipeline::id::{WeightsId, WorkerId};
use spillgate_pipeline::invariants::Violation;
use spillgate_worker_policy::broker::BrokerConfig;
use spillgate_worker_policy::device::{Device, DeviceEvent};
use spillgate_worker_policy::weights::store::Memory;

use super::agenda::Occurrence;
use super::models::stretched;
use super::noted::Kind;
use super::{SimConfig, World};

impl SimConfig {
    /// The policy of a device with these workers.
    pub(super) fn device_policy(
        &self,
        device: usize,
        brokers: &[(WorkerId, BrokerConfig)],
    ) -> Device<()> {
        let policy = Device::new(brokers.to_vec(), self.handoff);
        match self.memory.get(device) {
            Some(memory) => policy.with_memory(Memory::new(memory.clone())),
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
