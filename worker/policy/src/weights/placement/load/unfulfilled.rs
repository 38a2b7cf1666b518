//! Clockwork's LOADs (Appendix B): the weights with the most demand that the devices which hold them do not fulfil.

use spillgate_pipeline::id::{ModelId, WeightsId};
use spillgate_pipeline::time::Timestamp;

use crate::weights::placement::Placement;

impl Placement {
    pub(super) fn most_unfulfilled(
        &self,
        free: Timestamp,
        also_too_late: bool,
        only: Option<WeightsId>,
        fits: impl Fn(&WeightsId) -> bool,
    ) -> Option<WeightsId> {
        if let Some(weights) = only {
            let demand = self.demands.demand(weights);
            let priority = self.priority(weights, demand, free, also_too_late);
            return priority.map(|_| weights);
        }
        let mut best: Option<(f64, WeightsId)> = None;
        for (demand, weights) in self.demands.descending() {
            // A priority never exceeds the demand.
            if best.is_some_and(|(priority, _)| demand < priority) {
                break;
            }
            if !fits(&weights) {
                continue;
            }
            if let Some(priority) = self.priority(weights, demand, free, also_too_late) {
                let beats = |(p, w): (f64, WeightsId)| priority > p || priority >= p && weights < w;
                if best.is_none_or(beats) {
                    best = Some((priority, weights));
                }
            }
        }
        best.map(|(_, weights)| weights)
    }

    /// The priority of a LOAD of weights that begins at `free`, if it has any.
    fn priority(
        &self,
        weights: WeightsId,
        demand: f64,
        free: Timestamp,
        also_too_late: bool,
    ) -> Option<f64> {
        let demand = match also_too_late {
            true => demand,
            false => {
                let ready = free + self.load_time(weights);
                let of = |&model: &ModelId| {
                    let alone = self.estimate(model, 0);
                    self.pressure_from(model, ready + alone) * alone.as_secs_f64()
                };
                self.models(weights).iter().map(of).sum()
            }
        };
        let priority = self.demands.priority(weights, demand);
        (demand > 0.0 && priority > 0.0).then_some(priority)
    }

    /// The sum of 1 / SLO over the open requests of a model with at least that deadline, in 1/s.
    fn pressure_from(&self, model: ModelId, deadline: Timestamp) -> f64 {
        let holders = self.demands.holders(self.weights_of(model)).iter();
        let under_way = holders.map(|h| self.devices[h.idx()].pressure_from(model, deadline));
        self.queues.pressure_from(model, deadline) + under_way.sum::<f64>()
    }
}
