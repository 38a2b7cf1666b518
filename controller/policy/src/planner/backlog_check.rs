//! The plan for dispatch to the module, and its backlog check.

use std::time::Duration;

use spillgate_protocol::message::{BacklogCheck, ModulePlan};

use super::StatePlanner;

impl StatePlanner {
    /// The plan that a gateway follows which accepts that part of all requests, as far as it is known.
    pub fn plan(&self, part: f64, knows_gateways: bool) -> ModulePlan {
        ModulePlan {
            shape: self.shape,
            admits: self.admits,
            backlog_check: self.backlog_check(),
            part,
            knows_gateways,
            guidance: self.guidance,
        }
    }

    /// The backlog check. Where the backlog makes requests late, they are dropped at their first module, if it is not their
    /// last.
    ///
    /// There is none where batches take so much of the SLO that not all requests can be in time. There a request
    /// that would be late in a full batch may be in time in a smaller one, and this is known only when the batch is
    /// formed.
    fn backlog_check(&self) -> Option<BacklogCheck> {
        let is_last = self.successors[self.module.idx()].is_empty();
        if !self.recipe.backlog_check || !self.is_first || is_last || !self.leaves_time {
            return None;
        }
        let mine = self.state_of(self.module);
        let after = self.paths.iter().map(|p| p.execution).fold(0.0, f64::max);
        Some(BacklogCheck {
            execution: mine.map_or(self.planned.duration(self.module), |s| s.execution),
            downstream: Duration::from_secs_f64(after),
            margin: self.backlog_margin,
        })
    }
}
