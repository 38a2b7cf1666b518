//! Clockwork's LOADs (Appendix B): the model with the most demand that the devices which hold it do not fulfil.

use spillgate_pipeline::id::ModelId;
use spillgate_pipeline::time::Timestamp;

use crate::placement::Placement;

impl Placement {
    pub(super) fn most_unfulfilled(
        &self,
        free: Timestamp,
        also_too_late: bool,
        only: Option<ModelId>,
        fits: impl Fn(&ModelId) -> bool,
    ) -> Option<ModelId> {
        if let Some(model) = only {
            let demand = self.demands.demand(model);
            let priority = self.priority(model, demand, free, also_too_late);
            return priority.map(|_| model);
        }
        let mut best: Option<(f64, ModelId)> = None;
        for (demand, model) in self.demands.descending() {
            // A priority never exceeds the demand.
            if best.is_some_and(|(priority, _)| demand < priority) {
                break;
            }
            if !fits(&model) {
                continue;
            }
            if let Some(priority) = self.priority(model, demand, free, also_too_late) {
                let beats = |(p, m): (f64, ModelId)| priority > p || priority >= p && model < m;
                if best.is_none_or(beats) {
                    best = Some((priority, model));
                }
            }
        }
        best.map(|(_, model)| model)
    }

    /// The priority of a model's LOAD that begins at `free`, if it has any.
    fn priority(
        &self,
        model: ModelId,
        demand: f64,
        free: Timestamp,
        also_too_late: bool,
    ) -> Option<f64> {
        let demand = match also_too_late {
            true => demand,
            false => {
                let alone = self.estimate(model, 0);
                let ready = free + self.loads[model.idx()].estimate();
                self.pressure_from(model, ready + alone) * alone.as_secs_f64()
            }
        };
        let priority = self.demands.priority(model, demand);
        (demand > 0.0 && priority > 0.0).then_some(priority)
    }

    /// The sum of 1 / SLO over the open requests of a model with at least that deadline, in 1/s.
    fn pressure_from(&self, model: ModelId, deadline: Timestamp) -> f64 {
        let holders = self.demands.holders(model).iter();
        let under_way = holders.map(|h| self.devices[h.idx()].pressure_from(model, deadline));
        self.queues.pressure_from(model, deadline) + under_way.sum::<f64>()
    }
}
