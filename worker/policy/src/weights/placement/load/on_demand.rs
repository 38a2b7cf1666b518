//! LOADs on demand: the first deadline first, among weights that no device holds and of whose requests a LOAD still helps one.

use spillgate_pipeline::id::WeightsId;
use spillgate_pipeline::time::Timestamp;

use crate::weights::placement::Placement;

impl Placement {
    pub(super) fn first_asked_for(
        &self,
        free: Timestamp,
        only: Option<WeightsId>,
        fits: impl Fn(&WeightsId) -> bool,
    ) -> Option<WeightsId> {
        let all = only.is_none().then(|| self.demands.unheld());
        let asked_for = only.into_iter().chain(all.into_iter().flatten());
        let unheld = asked_for.filter(|w| self.demands.holders(*w).is_empty());
        let helped = unheld.filter(fits).filter_map(|weights| {
            let ready = free + self.load_time(weights);
            let models = self.models(weights).iter();
            let firsts = models.filter_map(|&model| {
                let in_time = ready + self.estimate(model, 0);
                Some(self.queues.first_from(model, in_time)?.1)
            });
            Some((firsts.min()?, weights))
        });
        helped.min().map(|(_, weights)| weights)
    }
}
