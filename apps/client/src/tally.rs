//! Counts of requests: outcomes, causes, latencies, and where the time went.
//!
//! A latency counts from the moment a request was *due*, so a request that was sent late because the client was busy
//! does not look faster than it was (coordinated omission). Only served requests have a latency.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use indexmap::IndexMap;
use spillgate_pipeline::printable::printable_line;
use spillgate_proto::pb;
use spillgate_proto::pb::Outcome;

/// Longest latency that is measured: ten minutes, in microseconds.
const LATENCY_US_MAX: u64 = 600_000_000;

/// Durations with three digits.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_US_MAX, 3);
        Latencies(histogram.expect("the bounds are constants that hdrhistogram accepts"))
    }
}

impl Latencies {
    /// Adds one duration; more than ten minutes counts as ten minutes.
    pub fn add(&mut self, latency: Duration) {
        self.0
            .saturating_record(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX));
    }

    /// Adds all durations of another.
    pub fn add_all(&mut self, other: &Latencies) {
        // Equal bounds, so it cannot fail.
        let _ = self.0.add(&other.0);
    }

    /// Their number.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// In milliseconds; `None` when there are none.
    pub fn quantile_ms(&self, quantile: f64) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.value_at_quantile(quantile) as f64 / 1e3)
    }

    /// In milliseconds; `None` when there are none.
    pub fn mean_ms(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.mean() / 1e3)
    }

    /// In milliseconds; `None` when there are none.
    pub fn max_ms(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.max() as f64 / 1e3)
    }
}

/// Requests by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// In time.
    pub completed: u64,
    /// Completed after their deadline.
    pub late: u64,
    /// Dropped.
    pub dropped: u64,
    /// Refused: never accepted.
    pub refused: u64,
    /// Any other end.
    pub failed: u64,
}

impl Outcomes {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.completed + self.late + self.dropped + self.refused + self.failed
    }

    /// Completed, in time or late.
    pub fn served(&self) -> u64 {
        self.completed + self.late
    }

    /// Counts one.
    pub fn count(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Completed => self.completed += 1,
            Outcome::Late => self.late += 1,
            Outcome::Dropped => self.dropped += 1,
            Outcome::Refused => self.refused += 1,
            Outcome::Failed | Outcome::Unspecified => self.failed += 1,
        }
    }
}

/// Why requests were not served: the place, the reason, and the kind of end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cause {
    /// `dropped`, `refused` or `failed`.
    pub outcome: &'static str,
    /// A module, `source`, or `client` when the request never reached the server.
    pub module: String,
    /// The reason, in a word.
    pub reason: String,
    /// The gRPC status code.
    pub code: i32,
}

/// The requests of one cause.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unserved {
    /// How many.
    pub requests: u64,
    /// The detail of the first of them; empty when there was none.
    pub detail: String,
}

/// Where the time went at one module.
#[derive(Clone, Debug, Default)]
pub struct ModuleTally {
    /// Waiting for a batch.
    pub queueing: Latencies,
    /// Waiting for the batch to start.
    pub batch_wait: Latencies,
    /// Execution of the batches, counted for every request.
    pub execution: Latencies,
    /// Sum of 1 / batch size over the requests: the number of batches.
    batches: f64,
}

impl ModuleTally {
    fn add(&mut self, timing: &pb::ModuleTiming) {
        self.queueing.add(from_ms(timing.queueing_ms));
        self.batch_wait.add(from_ms(timing.batch_wait_ms));
        self.execution.add(from_ms(timing.execution_ms));
        self.batches += 1.0 / f64::from(timing.batch_size.max(1));
    }

    fn add_all(&mut self, other: &ModuleTally) {
        self.queueing.add_all(&other.queueing);
        self.batch_wait.add_all(&other.batch_wait);
        self.execution.add_all(&other.execution);
        self.batches += other.batches;
    }

    /// Requests that ran there.
    pub fn requests(&self) -> u64 {
        self.queueing.count()
    }

    /// Mean size of the batches.
    pub fn mean_batch(&self) -> f64 {
        if self.batches == 0.0 {
            0.0
        } else {
            self.requests() as f64 / self.batches
        }
    }
}

/// Device time; that of a batch is shared equally by its members.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceTime {
    /// Of all requests whose timings are known, seconds.
    pub all_seconds: f64,
    /// Of requests that did not complete in time, seconds.
    pub invalid_seconds: f64,
}

/// The count of a run.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// By outcome.
    pub outcomes: Outcomes,
    /// By cause, of the requests that were not served.
    pub causes: BTreeMap<Cause, Unserved>,
    /// From due to answered, of served requests.
    pub latency: Latencies,
    /// As the server measured it, of served requests.
    pub server_latency: Latencies,
    /// By module, in the order of first arrival.
    pub modules: IndexMap<String, ModuleTally>,
    /// Device time by outcome.
    pub device_time: DeviceTime,
    /// Results from emulated devices.
    pub emulated: u64,
    /// Results of frames whose picture is damaged.
    pub damaged: u64,
    /// The fair share in requests a second when a request was last refused for it.
    pub share: Option<f64>,
}

impl Tally {
    /// Counts one ended request. `latency` is from the moment it was due.
    pub fn count(&mut self, result: &pb::Result, latency: Duration) {
        let outcome = result.outcome();
        self.outcomes.count(outcome);
        if result.share > 0.0 {
            self.share = Some(result.share);
        }
        if matches!(outcome, Outcome::Completed | Outcome::Late) {
            self.latency.add(latency);
            self.server_latency.add(from_ms(result.latency_ms));
        } else {
            let cause = Cause {
                outcome: outcome_word(outcome),
                module: printable_line(&result.module).into_owned(),
                reason: printable_line(&result.reason).into_owned(),
                code: result.code,
            };
            self.add_unserved(cause, 1, &printable_line(&result.detail));
        }
        for timing in &result.timings {
            let module = printable_line(&timing.module);
            if !self.modules.contains_key(&*module) {
                self.modules
                    .insert(module.to_string(), ModuleTally::default());
            }
            self.modules[&*module].add(timing);
            let seconds = timing.execution_ms / 1e3 / f64::from(timing.batch_size.max(1));
            self.device_time.all_seconds += seconds;
            if outcome != Outcome::Completed {
                self.device_time.invalid_seconds += seconds;
            }
        }
        self.emulated += u64::from(result.emulated);
        self.damaged += u64::from(!result.damage.is_empty());
    }

    fn add_unserved(&mut self, cause: Cause, requests: u64, detail: &str) {
        let unserved = self.causes.entry(cause).or_insert_with(|| Unserved {
            requests: 0,
            detail: detail.to_owned(),
        });
        unserved.requests += requests;
    }

    /// Adds all of another.
    pub fn add_all(&mut self, other: &Tally) {
        let (sum, more) = (&mut self.outcomes, &other.outcomes);
        sum.completed += more.completed;
        sum.late += more.late;
        sum.dropped += more.dropped;
        sum.refused += more.refused;
        sum.failed += more.failed;
        for (cause, more) in &other.causes {
            self.add_unserved(cause.clone(), more.requests, &more.detail);
        }
        self.latency.add_all(&other.latency);
        self.server_latency.add_all(&other.server_latency);
        for (name, module) in &other.modules {
            self.modules
                .entry(name.clone())
                .or_default()
                .add_all(module);
        }
        self.device_time.all_seconds += other.device_time.all_seconds;
        self.device_time.invalid_seconds += other.device_time.invalid_seconds;
        self.emulated += other.emulated;
        self.damaged += other.damaged;
        self.share = other.share.or(self.share);
    }
}

/// The outcome as a word for people and files.
pub fn outcome_word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Completed => "completed",
        Outcome::Late => "late",
        Outcome::Dropped => "dropped",
        Outcome::Refused => "refused",
        Outcome::Failed | Outcome::Unspecified => "failed",
    }
}

fn from_ms(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(outcome: Outcome, batch_size: u32) -> pb::Result {
        pb::Result {
            outcome: outcome.into(),
            module: "plates".into(),
            reason: "deadline".into(),
            latency_ms: 30.0,
            timings: vec![pb::ModuleTiming {
                module: "detect".into(),
                queueing_ms: 1.0,
                batch_wait_ms: 2.0,
                execution_ms: 8.0,
                batch_size,
                ..Default::default()
            }],
            ..Default::default()
        }
    }

    #[test]
    fn every_request_is_counted_once() {
        let mut tally = Tally::default();
        let outcomes = [
            Outcome::Completed,
            Outcome::Late,
            Outcome::Dropped,
            Outcome::Refused,
            Outcome::Failed,
        ];
        for outcome in outcomes {
            tally.count(&result(outcome, 4), Duration::from_millis(40));
        }
        assert_eq!(tally.outcomes.total(), 5);
        assert_eq!(
            tally.latency.count(),
            2,
            "only served requests have a latency"
        );
        assert_eq!(tally.causes.values().map(|c| c.requests).sum::<u64>(), 3);
        assert!((tally.device_time.all_seconds - 5.0 * 0.002).abs() < 1e-9);
        assert!((tally.device_time.invalid_seconds - 4.0 * 0.002).abs() < 1e-9);
    }

    #[test]
    fn the_mean_batch_is_of_batches_and_not_of_requests() {
        let mut tally = Tally::default();
        // One batch of four and two of one.
        for size in [4, 4, 4, 4, 1, 1] {
            tally.count(&result(Outcome::Completed, size), Duration::ZERO);
        }
        assert!((tally.modules["detect"].mean_batch() - 2.0).abs() < 1e-9);
    }

    #[test]
    fn sums_equal_counting_together() {
        let (mut a, mut b, mut both) = (Tally::default(), Tally::default(), Tally::default());
        for (i, outcome) in [Outcome::Completed, Outcome::Dropped, Outcome::Late]
            .iter()
            .enumerate()
        {
            let latency = Duration::from_millis(10 * i as u64);
            [&mut a, &mut b][i % 2].count(&result(*outcome, 2), latency);
            both.count(&result(*outcome, 2), latency);
        }
        a.add_all(&b);
        assert_eq!(a.outcomes, both.outcomes);
        assert_eq!(a.causes, both.causes);
        assert_eq!(a.latency.quantile_ms(0.5), both.latency.quantile_ms(0.5));
    }
}
