//! The batch sizes in force.

use spillgate_pipeline::execution::ExecutionTimes;
use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{BatchShape, ModuleState};

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
        let constants = &self.recipe.constants;
        let observed: Vec<Observed> = states.iter().map(|s| Observed::new(s, constants)).collect();
        let mixed = self.mixed_execution(&states);
        let sizing = sizes::Sizing {
            pipeline: &self.pipeline,
            planned: &self.planned,
            execution: mixed.as_ref().unwrap_or(&self.planned.execution),
            is_mixed: mixed.is_some(),
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

    /// Planned execution times of the variants that run; `None` where those serve that serve by default.
    fn mixed_execution(&self, states: &[&ModuleState]) -> Option<ExecutionTimes> {
        let planned = &self.planned.execution;
        let mut mixed = None;
        for state in states.iter().filter(|s| !s.variants.is_empty()) {
            let of = planned.of_module(state.module);
            if state.variants.get(of.served_variant().idx()) != Some(&1.0) {
                let times = of.mixed(&state.variants);
                let mixed = mixed.get_or_insert_with(|| planned.clone());
                mixed.set(state.module, times);
            }
        }
        mixed
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
        let mixed = self.published_mix(self.module);
        let execution = execution.mul_f64(mixed * self.stretch());
        BatchShape { size, execution }
    }
}
