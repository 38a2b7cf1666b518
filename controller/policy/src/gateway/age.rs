//! What the gateway goes by while controllers are away.

use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::policy::{AGE_STEP, AGES_AFTER};
use spillgate_pipeline::time::Timestamp;

use super::Gateway;

impl<P, L: Clone> Gateway<P, L> {
    /// Guidance ages while none comes, and the gate follows the workers that this gateway knows: a worker that dies meanwhile is
    /// missed at the gate, too.
    pub(super) fn age(&mut self, now: Timestamp) {
        if now < self.ages_at {
            return;
        }
        self.ages_at = now + AGE_STEP;
        for (idx, stage) in self.stages.iter_mut().enumerate() {
            let (told, at) = stage.told;
            let silence = now.since(at);
            stage.plan.guidance = told.aged(silence);
            if silence >= AGES_AFTER {
                let module = ModuleId(idx as u16);
                self.ledger
                    .set_workers(now, module, stage.dispatcher.n_up());
            }
        }
    }
}
