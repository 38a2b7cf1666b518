//! The durations of the steps of a scenario's device: those of its profile, with noise.

use std::time::Duration;

use spillgate_pipeline::id::{ModelId, RequestId, WeightsId};

use super::device::Hardware;
use super::noise::Noise;
use super::scenario::Scenario;

/// The model that runs with weights: in a scenario each model has weights of its own.
pub(super) fn only_model(weights: WeightsId) -> ModelId {
    ModelId(weights.0)
}

/// The noise of one device.
#[derive(Debug)]
pub(super) struct Noises {
    executions: Noise,
    transfers: Noise,
}

impl Noises {
    pub(super) fn new(scenario: &Scenario, device: usize) -> Self {
        let stream = device as u64 * 2;
        Noises {
            executions: Noise::new(&scenario.system, stream),
            transfers: Noise::new(&scenario.system, stream + 1),
        }
    }
}

/// One device of a scenario.
pub(super) struct Profiled<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) noises: &'a mut Noises,
}

/// Time to copy kilobytes over a link.
pub(super) fn copy(kb: f64, link_mb_per_ms: f64) -> Duration {
    Duration::from_nanos((kb / 1000.0 / link_mb_per_ms * 1e6) as u64)
}

impl Profiled<'_> {
    /// Time to copy that many kilobytes of each member.
    fn copies(&self, kb: f64, members: &[RequestId]) -> Duration {
        copy(
            kb * members.len() as f64,
            self.scenario.system.link_mb_per_ms,
        )
    }
}

impl Hardware<RequestId> for Profiled<'_> {
    fn input(&mut self, model: ModelId, members: &[RequestId]) -> Duration {
        self.copies(self.scenario.models[model.idx()].input_kb, members)
    }

    fn execution(&mut self, model: ModelId, members: &[RequestId]) -> Duration {
        let size = members.len() as u32;
        let at = self.scenario.sizes.iter().position(|s| *s == size);
        let at = at.expect("batches are never padded");
        let profiled = self.scenario.models[model.idx()].execution[at];
        self.noises.executions.takes(profiled)
    }

    fn output(&mut self, model: ModelId, members: &[RequestId]) -> Duration {
        self.copies(self.scenario.models[model.idx()].output_kb, members)
    }

    fn load(&mut self, weights: WeightsId) -> Duration {
        let profiled = self.scenario.models[only_model(weights).idx()].load;
        self.noises.transfers.takes(profiled)
    }
}
