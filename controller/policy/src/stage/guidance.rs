//! What a module's controller says, and what the stage goes by while the controller is away.

use std::sync::Arc;

use spillgate_pipeline::policy::{AGES_AFTER, Guidance};
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{ModulePlan, ModuleState};

use super::Stage;

impl Stage {
    /// The controller's plan.
    pub(crate) fn follow(&mut self, now: Timestamp, plan: ModulePlan) {
        self.dispatcher.reshape(plan.shape, plan.part);
        self.last_guidance = (plan.guidance, now);
        self.plan = plan;
    }

    /// The controller published its state.
    pub(crate) fn learn(&mut self, state: Arc<ModuleState>) {
        self.state = Some(state);
    }

    /// Guidance ages while none comes. Returns how many workers take requests, if the controller has been silent for so long that
    /// this counts more than what it said.
    pub(crate) fn age(&mut self, now: Timestamp) -> Option<usize> {
        let (last, at) = self.last_guidance;
        let silence = now.since(at);
        self.plan.guidance = last.aged(silence);
        (silence >= AGES_AFTER).then(|| self.n_up())
    }

    /// The plan in force.
    pub(crate) fn plan(&self) -> &ModulePlan {
        &self.plan
    }

    /// What the controller published last.
    pub(crate) fn state(&self) -> Option<&ModuleState> {
        self.state.as_deref()
    }

    /// The guidance as the controller gave it.
    pub(crate) fn guidance(&self) -> Guidance {
        self.last_guidance.0
    }
}
