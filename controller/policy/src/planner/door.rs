//! The door: the first module refuses whom its backlog would make late.

use std::time::Duration;

use spillgate_pipeline::request::{Estimate, Request};
use spillgate_pipeline::time::Timestamp;

use super::StatePlanner;

impl StatePlanner {
    /// Whether a request that is about to be dispatched is refused at the door: this is its first module and not its
    /// last, and a batch that starts at `starts_at` would bring it to its end with less than the margin to spare. It
    /// is the newest that is refused: the backlog before it is as long as the SLO bears.
    ///
    /// Where batches take so much of the SLO that not all can be in time there is no door: whom a full batch would make
    /// late is in time with fewer, which is known when the batch is formed.
    pub fn refuses(&self, request: &Request, starts_at: Timestamp) -> Option<Estimate> {
        let is_last = self.successors[self.module.idx()].is_empty();
        if !self.recipe.door || !self.is_first || is_last || !self.leaves_time {
            return None;
        }
        let mine = self.states[self.module.idx()].as_ref();
        let execution = mine.map_or(self.planned.duration(self.module), |s| s.execution);
        // Executions only: queueing downstream is what was measured over the last seconds. To count it here would
        // shut the door for as long after each jam, and starve the modules behind it.
        let after = self.paths.iter().map(|p| p.execution).fold(0.0, f64::max);
        let downstream = Duration::from_secs_f64(after);
        let ends_at = starts_at + execution + downstream;
        let slo = request.deadline.since(request.sent_at);
        (ends_at + slo.mul_f64(self.door_margin) > request.deadline).then_some(Estimate {
            wait: Duration::ZERO,
            execution,
            downstream,
        })
    }
}
