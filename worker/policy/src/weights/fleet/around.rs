//! Learning how long the steps around the execution of a batch take: its inputs, and its outputs.

use std::time::Duration;

use spillgate_pipeline::action::Around;
use spillgate_pipeline::id::ModelId;
use spillgate_pipeline::predict::{Cap, Estimator, EstimatorName};
use spillgate_pipeline::time::Timestamp;

use super::Fleet;

/// The median: a single step that was disturbed does not count, so no model is given up for it.
pub(crate) const AROUND: EstimatorName = EstimatorName::LastMedian;

impl<T: Clone> Fleet<T> {
    /// A batch of a model ran.
    pub(super) fn learn(&mut self, now: Timestamp, model: ModelId, size: usize, around: Around) {
        if around == Around::default() {
            return;
        }
        let each = around.prepare / size.max(1) as u32;
        self.placement.input_took(now, model, each);
        let finish = self.finishes.entry(model);
        let first = || Estimator::new(AROUND, Cap::None, Duration::ZERO);
        finish.or_insert_with(first).observe(now, around.finish);
    }
}
