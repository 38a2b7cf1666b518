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
    /// The least that a model got of what an equal split of device time would give it, as far as it asked for that; over the models
    /// with at least [`REQUESTS_MIN`] requests.
    pub least_share: Option<f64>,
    /// Answers to clients without an SLO, whose requests count nowhere else.
    pub background: usize,
}

/// Fewer requests than this say little about a model.
pub const REQUESTS_MIN: usize = 30;

/// What a model asked for and got.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Got {
    /// Requests.
    pub(super) asked: usize,
    /// Of them executed.
    pub(super) served: usize,
    /// Device time of its batches.
    pub(super) time: Duration,
}

/// The least part of its due that a model got. What is due is the smaller of what it asks for, at the time that its requests took, and an
/// equal part of `capacity` among those that ask for more than that.
pub(super) fn least_share(capacity: Duration, models: &[Got]) -> Option<f64> {
    let got = models.iter().filter(|m| m.asked > 0);
    let asked = got.map(|m| {
        let each = m.time.as_secs_f64() / m.served.max(1) as f64;
        (each * m.asked as f64, m)
    });
    let mut asked: Vec<(f64, &Got)> = asked.collect();
    asked.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut left, n) = (capacity.as_secs_f64(), asked.len());
    let shares = asked.into_iter().enumerate().map(|(i, (asked, got))| {
        let due = asked.min(left / (n - i) as f64);
        left -= due;
        let share = match due > 0.0 {
            true => got.time.as_secs_f64() / due,
            false => 0.0,
        };
        (got.asked, share)
    });
    let shares = shares.filter(|(asked, _)| *asked >= REQUESTS_MIN);
    shares.map(|(_, share)| share).min_by(f64::total_cmp)
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
