//! What a run showed.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::request::{Outcome, Request};
use spillgate_pipeline::time::Timestamp;

/// Totals of one run. The measures are those of DESIGN §7.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// Requests that were offered.
    pub requests: u64,
    /// Completed in time.
    pub good: u64,
    /// Completed late.
    pub late: u64,
    /// Dropped, refused ones included.
    pub dropped: u64,
    /// Requests completed in time, a second of offered load.
    pub goodput: f64,
    /// (dropped + late) / requests.
    pub drop_rate: f64,
    /// Device time spent on requests that did not complete in time / all device time.
    pub invalid_rate: f64,
    /// Drops by `module/reason`.
    pub drops: BTreeMap<String, u64>,
    /// Latency of completed requests in milliseconds: p50.
    pub latency_ms_p50: f64,
    /// p99.
    pub latency_ms_p99: f64,
    /// Mean.
    pub latency_ms_mean: f64,
    /// Mean batch size over all batches.
    pub batch_size_mean: f64,
    /// Events of the run.
    pub events: u64,
    /// Hash over every event: equal runs have equal hashes.
    pub trace_hash: String,
}

/// Gathers a report.
#[derive(Default)]
pub(crate) struct Tally {
    report: Report,
    latencies: Vec<Duration>,
    busy_ns: u128,
    invalid_ns: u128,
    batches: u64,
    batch_members: u64,
}

impl Tally {
    pub(crate) fn offered(&mut self) {
        self.report.requests += 1;
    }

    pub(crate) fn refused(&mut self, reason: &str) {
        self.report.dropped += 1;
        *self
            .report
            .drops
            .entry(format!("source/{reason}"))
            .or_default() += 1;
    }

    /// A request ended after it used that much device time.
    pub(crate) fn ended(
        &mut self,
        pipeline: &Pipeline,
        request: &Request,
        at: Timestamp,
        outcome: Outcome,
        device_ns: u128,
    ) {
        self.busy_ns += device_ns;
        match outcome {
            Outcome::Completed => {
                self.report.good += 1;
                self.latencies.push(at.since(request.sent_at));
                return;
            }
            Outcome::Late => {
                self.report.late += 1;
                self.latencies.push(at.since(request.sent_at));
            }
            Outcome::Dropped(drop) => {
                self.report.dropped += 1;
                let module = &pipeline.modules[drop.module.idx()].name;
                *self
                    .report
                    .drops
                    .entry(format!("{module}/{}", drop.reason))
                    .or_default() += 1;
            }
            Outcome::Failed { module } => {
                let module = &pipeline.modules[module.idx()].name;
                *self
                    .report
                    .drops
                    .entry(format!("{module}/failed"))
                    .or_default() += 1;
            }
        }
        self.invalid_ns += device_ns;
    }

    /// Device time that a request used after it had ended.
    pub(crate) fn wasted(&mut self, device_ns: u128) {
        self.busy_ns += device_ns;
        self.invalid_ns += device_ns;
    }

    pub(crate) fn batch(&mut self, size: usize) {
        self.batches += 1;
        self.batch_members += size as u64;
    }

    pub(crate) fn finish(mut self, duration: Duration, events: u64, hash: u64) -> Report {
        let mut report = self.report;
        let ratio = |a: f64, b: f64| if b > 0.0 { a / b } else { 0.0 };
        self.latencies.sort_unstable();
        let quantile = |q: f64| match self.latencies.len() {
            0 => 0.0,
            n => self.latencies[((n - 1) as f64 * q).round() as usize].as_secs_f64() * 1e3,
        };
        report.goodput = ratio(report.good as f64, duration.as_secs_f64());
        let failed = report.requests - report.good - report.late - report.dropped;
        let bad = report.dropped + report.late + failed;
        report.drop_rate = ratio(bad as f64, report.requests as f64);
        report.invalid_rate = ratio(self.invalid_ns as f64, self.busy_ns as f64);
        report.latency_ms_p50 = quantile(0.5);
        report.latency_ms_p99 = quantile(0.99);
        let total: Duration = self.latencies.iter().sum();
        report.latency_ms_mean = ratio(total.as_secs_f64() * 1e3, self.latencies.len() as f64);
        report.batch_size_mean = ratio(self.batch_members as f64, self.batches as f64);
        report.events = events;
        report.trace_hash = format!("{hash:016x}");
        report
    }
}
