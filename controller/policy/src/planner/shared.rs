//! Modules that share a device.

use spillgate_pipeline::id::ModuleId;

use super::StatePlanner;

impl StatePlanner {
    /// Device time of a request over the part of it that this module takes. Where modules share a device, a batch of
    /// one module waits while batches of the others run.
    pub(super) fn stretch(&self) -> f64 {
        if self.planned.alone || !self.recipe.learns_pace {
            return 1.0;
        }
        let of = |m: usize| {
            let size = self.batch[m].max(1);
            let module = ModuleId(m as u16);
            let probability = self.state_of(module).map_or(1.0, |s| s.probability);
            let batch = self.planned.duration_of(module, size).as_secs_f64();
            let time = batch * self.published_mix(module) / f64::from(size);
            (time, probability)
        };
        let (own, _) = of(self.module.idx());
        let others = (1..self.batch.len()).filter(|&m| m != self.module.idx());
        let beside: f64 = others
            .map(of)
            .map(|(time, probability)| time * probability)
            .sum();
        if own > 0.0 { 1.0 + beside / own } else { 1.0 }
    }
}
