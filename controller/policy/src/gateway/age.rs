//! What the gateway goes by while controllers are away.

use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::policy::AGE_STEP;
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
        for (module, stage) in self.stages.iter_mut().enumerate() {
            if let Some(workers) = stage.age(now) {
                let module = ModuleId(module as u16);
                self.ledger.set_workers(now, module, workers);
            }
        }
    }
}
