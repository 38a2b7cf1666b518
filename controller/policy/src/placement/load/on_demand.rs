//! LOADs on demand: the first deadline first, among models that no device holds and whose request a LOAD still helps.

use spillgate_pipeline::id::ModelId;
use spillgate_pipeline::time::Timestamp;

use crate::placement::Placement;

impl Placement {
    pub(super) fn first_asked_for(
        &self,
        free: Timestamp,
        only: Option<ModelId>,
        fits: impl Fn(&ModelId) -> bool,
    ) -> Option<ModelId> {
        let all = only.is_none().then(|| self.demands.unheld());
        let asked_for = only.into_iter().chain(all.into_iter().flatten());
        let unheld = asked_for.filter(|m| self.demands.holders(*m).is_empty());
        let helped = unheld.filter(fits).filter_map(|model| {
            let in_time = free + self.loads[model.idx()].estimate() + self.estimate(model, 0);
            let (_, deadline) = self.queues.first_from(model, in_time)?;
            Some((deadline, model))
        });
        helped.min().map(|(_, model)| model)
    }
}
