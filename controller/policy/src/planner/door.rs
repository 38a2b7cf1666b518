//! The door: the first module drops requests that its backlog would make late.

use std::time::Duration;

use spillgate_pipeline::request::{Estimate, Request};
use spillgate_pipeline::time::Timestamp;

use super::StatePlanner;

impl StatePlanner {
    /// Whether the door drops a request that is about to be dispatched. The door is at a first module that is not the
    /// last one. It drops the request when a batch that starts at `starts_at` would leave less than the margin at the
    /// end of the pipeline. The newest request is dropped: the backlog before it is as long as the SLO bears.
    ///
    /// There is no door where batches take so much of the SLO that not all requests can be in time. A request that a
    /// full batch would make late may be in time in a smaller one, which is known when the batch is formed.
    pub fn refuses(&self, request: &Request, starts_at: Timestamp) -> Option<Estimate> {
        let is_last = self.successors[self.module.idx()].is_empty();
        if !self.policy.door || !self.is_first || is_last || !self.leaves_time {
            return None;
        }
        let mine = self.states[self.module.idx()].as_ref();
        let execution = mine.map_or(self.planned.duration(self.module), |s| s.execution);
        // Executions only. Queueing downstream is measured over the last seconds; with it the door would stay closed
        // for seconds after each jam and starve the modules downstream.
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
