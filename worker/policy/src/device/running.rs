//! A batch or rerun that the device runs, or that is bound behind the running one.

use std::time::Duration;

use spillgate_pipeline::id::{BatchId, WorkerId};
use spillgate_pipeline::predict::{Action, ActionKind, ActionRecord};
use spillgate_pipeline::request::{ModelChoice, Request};
use spillgate_pipeline::schedule::Application;
use spillgate_pipeline::time::Timestamp;

use crate::schedule::Lengths;

pub(super) struct Running {
    pub(super) id: BatchId,
    pub(super) worker: WorkerId,
    pub(super) action: Action,
    /// Its requests have no SLO.
    pub(super) background: bool,
    /// Whose request it is, where there is but one.
    pub(super) alone: Option<Application>,
    /// That request; `None` for a rerun.
    pub(super) request: Option<Request>,
    /// The member to be kept for a rerun.
    pub(super) sampled: Option<Request>,
    /// The model that it is of.
    pub(super) model: ModelChoice,
    /// How long it is expected to take.
    pub(super) execution: Duration,
    pub(super) lengths: Lengths,
    /// When it was expected to end as it was bound, which gateways were told.
    pub(super) reported_end: Timestamp,
    /// The same, counted from its start.
    pub(super) expected_end: Timestamp,
}

impl Running {
    pub(super) fn is_rerun(&self) -> bool {
        self.action.kind == ActionKind::Rerun
    }

    /// Requests for which its time is expected.
    pub(super) fn size(&self) -> usize {
        self.action.size as usize
    }

    /// It ended.
    pub(super) fn record(&self, ended_at: Timestamp, took: Duration) -> ActionRecord {
        ActionRecord {
            action: self.action,
            expected: self.execution,
            took,
            expected_end: self.reported_end,
            ended_at,
        }
    }
}
