//! The batch sizes in force.

use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::message::{BatchShape, ModuleState};
use spillgate_pipeline::time::Timestamp;

use super::StatePlanner;
use super::sizes::{self, Observed};

impl StatePlanner {
    /// Batch sizes for what is observed: every planner that knows the same states comes to the same sizes.
    pub(super) fn adapt_batch(&mut self, now: Timestamp) {
        let demand = self.demand(now);
        self.batch.clone_from(&self.planned.batch);
        let modules = (1..self.states.len()).map(|m| ModuleId(m as u16));
        let states: Option<Vec<&ModuleState>> = modules.map(|m| self.state_of(m)).collect();
        let Some(states) = states else { return };
        let first = self.successors[ModuleId::SOURCE.idx()].first();
        let Some(first) = first.map(|m| states[m.idx() - 1]) else {
            return;
        };
        let observed: Vec<Observed> = states.iter().map(|s| Observed::new(s)).collect();
        let sizing = sizes::Sizing {
            pipeline: &self.pipeline,
            planned: &self.planned,
            slack: self.recipe.plan.slack(),
            rate: first.offered,
            demand: demand.max(first.offered),
            shares: &first.asked,
            observed: &observed,
        };
        let batch = sizing.batch_sizes();
        self.leaves_time = sizing.leaves_time(&batch);
        self.batch = batch;
    }

    /// Batch size in force at this module, if it is not the planned one.
    pub(super) fn guided_batch(&self) -> Option<u32> {
        let idx = self.module.idx();
        (self.batch[idx] != self.planned.batch[idx]).then_some(self.batch[idx])
    }

    /// The shape of the module's batches as far as it is known now.
    pub(super) fn current_shape(&self) -> BatchShape {
        let size = self.batch[self.module.idx()];
        let execution = self.planned.duration_of(self.module, size);
        let execution = execution.mul_f64(self.stretch());
        BatchShape { size, execution }
    }
}
