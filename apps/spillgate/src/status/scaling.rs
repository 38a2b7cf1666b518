//! How many workers a module has and should have.

use serde::{Deserialize, Serialize};
use spillgate_controller_policy::module::WorkersView;
use spillgate_controller_policy::scaling::Reason;
use spillgate_pipeline::time::Timestamp;

/// How many workers a module has and should have, as its controller sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScalingStatus {
    /// How many it should have.
    pub wanted: u32,
    /// Seconds since it wants that many.
    pub wanted_s: f64,
    /// How many take requests.
    pub serving: u32,
    /// The wanted number does not follow the load.
    pub is_fixed: bool,
    /// Why that many are wanted, in words.
    pub reason: String,
}

impl ScalingStatus {
    pub(super) fn of(view: &WorkersView, now: Timestamp) -> Self {
        ScalingStatus {
            wanted: view.wanted.workers,
            wanted_s: now.since(view.wanted.since).as_secs_f64(),
            serving: view.serving,
            is_fixed: view.wanted.reason == Reason::Fixed,
            reason: view.wanted.text(now),
        }
    }
}
