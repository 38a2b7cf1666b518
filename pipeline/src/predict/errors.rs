//! By how much predictions were wrong, by kind of action: in bounded memory, at little cost an action.

pub(crate) mod histogram;

use super::{ActionKind, ActionRecord};
use histogram::Histogram;

/// Errors of predictions: measured minus expected, ns. Positive errors are overruns. Quantiles are those of the counted
/// errors within 1/32 of their value, and exact below 32 ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorSummary {
    /// Actions that ended.
    pub count: u64,
    /// The mean, exact.
    pub mean_ns: i64,
    /// The `ceil(0.01 n)`-th smallest.
    pub p1_ns: i64,
    /// The `ceil(0.5 n)`-th smallest.
    pub p50_ns: i64,
    /// The `ceil(0.99 n)`-th smallest.
    pub p99_ns: i64,
    /// The largest, exact.
    pub max_ns: i64,
}

/// What is counted of a kind of actions.
#[derive(Clone, Debug, Default)]
struct Of {
    durations: Histogram,
    completions: Histogram,
}

/// Counts the errors of all actions since it began.
#[derive(Clone, Debug, Default)]
pub struct PredictionErrors([Of; ActionKind::ALL.len()]);

impl PredictionErrors {
    /// An action ended.
    pub fn record(&mut self, record: &ActionRecord) {
        let of = &mut self.0[record.action.kind as usize];
        let ns = |duration: std::time::Duration| u64::try_from(duration.as_nanos());
        let [took, expected] = [record.took, record.expected].map(|d| ns(d).unwrap_or(u64::MAX));
        of.durations.add(difference(took, expected));
        let (ended_at, expected_end) = (record.ended_at.as_ns(), record.expected_end.as_ns());
        of.completions.add(difference(ended_at, expected_end));
    }

    /// Errors of the durations of such actions; `None` before the first.
    pub fn durations(&self, kind: ActionKind) -> Option<ErrorSummary> {
        self.0[kind as usize].durations.summary()
    }

    /// Errors of the moments at which such actions ended; `None` before the first.
    pub fn completions(&self, kind: ActionKind) -> Option<ErrorSummary> {
        self.0[kind as usize].completions.summary()
    }
}

/// Measured minus expected, within what an i64 holds.
fn difference(measured: u64, expected: u64) -> i64 {
    if measured >= expected {
        i64::try_from(measured - expected).unwrap_or(i64::MAX)
    } else {
        i64::try_from(expected - measured).map_or(-i64::MAX, |less| -less)
    }
}

#[cfg(test)]
mod tests;
