//! What a run came to.

use std::time::Duration;

use serde::Serialize;
use spillgate_pipeline::action::Window;
use spillgate_pipeline::id::ModelId;
use spillgate_pipeline::time::Timestamp;

/// An action as it was sent or began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logged {
    /// When.
    pub at: Timestamp,
    /// Its device.
    pub device: usize,
    /// `send_infer`, `send_load`, `exec` or `load`.
    pub event: &'static str,
    /// Its model.
    pub model: ModelId,
    /// Members of the batch; 0 for a LOAD.
    pub size: usize,
    /// When it may start.
    pub window: Window,
    /// When it was expected to end.
    pub expected_end: Timestamp,
}

/// Figures of a run, over the requests that arrived after the warm-up. Times are in ms.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// The placement.
    pub placement: &'static str,
    /// Requests that arrived.
    pub requests: usize,
    /// Of them answered in time.
    pub in_time: usize,
    /// `in_time / requests`.
    pub share: f64,
    /// In time, each second.
    pub goodput: f64,
    /// Answered late.
    pub late: usize,
    /// Ended since they could not be in time.
    pub cancelled: usize,
    /// Ended by a refused action.
    pub refused: usize,
    /// INFER actions that a device refused.
    pub refused_actions: usize,
    /// LOADs sent.
    pub loads: usize,
    /// Requests a batch.
    pub mean_batch: f64,
    /// Part of the time in which devices executed.
    pub exec_utilisation: f64,
    /// Part of the time in which links carried weights.
    pub link_utilisation: f64,
    /// Latency of those in time.
    pub p50_ms: Option<f64>,
    /// The same.
    pub p99_ms: Option<f64>,
    /// The same.
    pub p9999_ms: Option<f64>,
    /// Actual less expected duration of INFER actions, 1st percentile.
    pub error_p01_ms: Option<f64>,
    /// The same, 99th.
    pub error_p99_ms: Option<f64>,
    /// Actual less expected completion of INFER actions, 99th percentile.
    pub completion_p99_ms: Option<f64>,
}

/// The value at a quantile of sorted ones, by nearest rank.
pub(super) fn quantile(sorted: &[i64], q: f64) -> Option<f64> {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    let ns = sorted.get(rank.clamp(1, sorted.len().max(1)) - 1)?;
    Some(*ns as f64 * 1e-6)
}

/// Signed nanoseconds from `expected` to `actual`.
pub(super) fn error(actual: Duration, expected: Duration) -> i64 {
    actual.as_nanos() as i64 - expected.as_nanos() as i64
}
