//! The measurements of a load run: outcomes, latencies, punctuality of sending, a series by seconds.

use std::fmt::Write;
use std::time::Duration;

use indexmap::IndexMap;
use serde_json::{Value as Json, json};
use spillgate_proto::pb;
use spillgate_proto::pb::Outcome;

use crate::report::{write_causes, write_modules, write_notes, write_outcomes};
use crate::tally::{Latencies, Outcomes, Tally};

use super::wire::{CLIENT, CONNECTION_LOST, NO_ANSWER};

/// A generator that gets enough CPU time sends within a tenth of this.
const BUSY_US: f64 = 1000.0;

/// Reasons of the client itself which mean that the server is not there.
const UNANSWERED: [&str; 2] = [CONNECTION_LOST, NO_ANSWER];
/// A server that does not answer for this long counts as lost, unless it comes back before the end.
const LOST_AFTER: Duration = Duration::from_secs(1);

/// A request that ended. Times count from the start of the run.
pub(crate) struct Ended {
    pub(crate) due: Duration,
    /// When it was written to the connection; `None` when it never was.
    pub(crate) sent: Option<Duration>,
    pub(crate) at: Duration,
    /// Its payload.
    pub(crate) payload: usize,
    pub(crate) result: pb::Result,
}

/// Requests that were due in one second.
#[derive(Clone, Debug, Default)]
struct Second {
    outcomes: Outcomes,
    /// Latencies of the served requests, microseconds.
    latencies_us: Vec<u32>,
}

impl Second {
    fn quantile_ms(&self, quantile: f64) -> Option<f64> {
        let mut sorted = self.latencies_us.clone();
        sorted.sort_unstable();
        let idx = (sorted.len() as f64 * quantile) as usize;
        sorted
            .get(idx.min(sorted.len().saturating_sub(1)))
            .map(|us| f64::from(*us) / 1e3)
    }
}

/// The measurements while a run lasts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measure {
    /// Requests due before this are not counted.
    warmup: Duration,
    tally: Tally,
    send_delay: Latencies,
    seconds: Vec<Second>,
    elapsed: Duration,
    /// When the server last answered.
    heard: Duration,
    /// The error of the first unanswered request since then.
    lost: Option<String>,
    /// By application, in the order of their first payloads.
    applications: IndexMap<String, Outcomes>,
    /// The application of each payload.
    application_of: Vec<usize>,
    /// For the line of each second.
    shown: Outcomes,
}

impl Measure {
    /// `applications` has the name for each payload.
    pub(crate) fn new(warmup: Duration, applications: Vec<String>) -> Self {
        let mut outcomes = IndexMap::new();
        let application_of = applications
            .into_iter()
            .map(|name| {
                let entry = outcomes.entry(name);
                let idx = entry.index();
                entry.or_default();
                idx
            })
            .collect();
        Measure {
            warmup,
            applications: outcomes,
            application_of,
            ..Measure::default()
        }
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    pub(crate) fn add(&mut self, ended: &Ended) {
        self.hear(ended.at, &ended.result);
        let Some(due) = ended.due.checked_sub(self.warmup) else {
            return;
        };
        let latency = ended.at.saturating_sub(ended.due);
        self.tally.count(&ended.result, latency);
        let application = self.application_of[ended.payload];
        self.applications[application].count(ended.result.outcome());
        if let Some(sent) = ended.sent {
            self.send_delay.add(sent.saturating_sub(ended.due));
        }
        let idx = due.as_secs() as usize;
        if self.seconds.len() <= idx {
            self.seconds.resize(idx + 1, Second::default());
        }
        let second = &mut self.seconds[idx];
        let outcome = ended.result.outcome();
        second.outcomes.count(outcome);
        if matches!(outcome, Outcome::Completed | Outcome::Late) {
            second
                .latencies_us
                .push(u32::try_from(latency.as_micros()).unwrap_or(u32::MAX));
        }
    }

    /// Notes whether the server is there. A request that the client gave up says nothing about it.
    fn hear(&mut self, at: Duration, result: &pb::Result) {
        if result.module != CLIENT {
            (self.heard, self.lost) = (at, None);
        } else if UNANSWERED.contains(&result.reason.as_str()) && self.lost.is_none() {
            self.lost = Some(result.detail.clone());
        }
    }

    /// Why the run was cut short: the server answered nothing for the last second or more. The wait for the last
    /// answers does not count.
    pub(crate) fn lost_server(&self, planned: Duration) -> Option<String> {
        let detail = self.lost.as_ref()?;
        let until = (self.elapsed + self.warmup).min(planned);
        (until.saturating_sub(self.heard) >= LOST_AFTER).then(|| {
            let since = self.heard.as_secs_f64();
            format!("the server has not answered since second {since:.1}: {detail}")
        })
    }

    /// Requests that the generator had no time to send at all.
    pub(crate) fn overrun(&mut self, n: u64) {
        let result = super::wire::client_failure("overrun", "the generator was out of CPU time");
        for _ in 0..n {
            self.tally.count(&result, Duration::ZERO);
        }
    }

    pub(crate) fn finish(&mut self, elapsed: Duration) {
        self.elapsed = elapsed.saturating_sub(self.warmup);
    }

    /// Counts since the last line.
    pub(crate) fn line(&mut self, now: Duration, in_flight: usize) -> String {
        let all = self.tally.outcomes;
        let before = std::mem::replace(&mut self.shown, all);
        format!(
            "{:6.0}s  completed {}/s  late {}  dropped {}  refused {}  failed {}  in flight {in_flight}",
            now.as_secs_f64(),
            all.completed - before.completed,
            all.late - before.late,
            all.dropped - before.dropped,
            all.refused - before.refused,
            all.failed - before.failed,
        )
    }

    /// The span over which goodput is counted: the one in which requests were due, without the wait for the last
    /// answers.
    fn span(&self, planned: Option<Duration>) -> Duration {
        planned.map_or(self.elapsed, |planned| {
            self.elapsed.min(planned.saturating_sub(self.warmup))
        })
    }

    /// The closing summary.
    pub(crate) fn render(&self, heading: &str, planned: Option<Duration>, cpu: Duration) -> String {
        let mut text = format!("\n{heading}\n\n");
        // Writing to a string cannot fail.
        let _ = writeln!(text, "requests   {:>8}", self.tally.outcomes.total());
        let _ = write_outcomes(&mut text, &self.tally, self.span(planned));
        let us = |q| self.send_delay.quantile_ms(q).map_or(0.0, |ms| ms * 1e3);
        let _ = writeln!(
            text,
            "sent late  p50 {:.0}us  p99 {:.0}us  max {:.0}us  (generator: {:.1}% of a core)",
            us(0.5),
            us(0.99),
            us(1.0),
            100.0 * self.cpu_share(cpu),
        );
        if us(0.99) > BUSY_US {
            let _ = writeln!(
                text,
                "           this machine is busy: on Linux `chrt -r 10 spillgate bench ...` lets requests leave on time"
            );
        }
        if let Some(rate) = self.invalid_rate() {
            let _ = writeln!(text, "invalid    {:.1}% of the device time", rate * 100.0);
        }
        let _ = self.write_applications(&mut text);
        let _ = write_causes(&mut text, &self.tally);
        let _ = write_modules(&mut text, &self.tally);
        let _ = write_notes(&mut text, &self.tally);
        text
    }

    /// Counts by application, where there are several.
    fn write_applications(&self, text: &mut String) -> std::fmt::Result {
        if self.applications.len() < 2 {
            return Ok(());
        }
        writeln!(
            text,
            "\n{:<14} {:>8}  {:>9}",
            "application", "requests", "completed"
        )?;
        for (name, outcomes) in &self.applications {
            let total = outcomes.total();
            let share = outcomes.completed as f64 / total.max(1) as f64;
            writeln!(text, "{name:<14} {total:>8}  {:8.1}%", 100.0 * share)?;
        }
        Ok(())
    }

    fn cpu_share(&self, cpu: Duration) -> f64 {
        cpu.as_secs_f64() / (self.elapsed + self.warmup).as_secs_f64().max(1e-3)
    }

    /// Device time of requests that did not complete in time, of all device time in the answers.
    fn invalid_rate(&self) -> Option<f64> {
        let time = &self.tally.device_time;
        (time.all_seconds > 0.0).then(|| time.invalid_seconds / time.all_seconds)
    }

    /// All numbers, for other programs. Field names are added, never changed.
    pub(crate) fn to_json(&self, run: Json, planned: Option<Duration>, cpu: Duration) -> Json {
        let outcomes = &self.tally.outcomes;
        let total = outcomes.total().max(1) as f64;
        let span = self.span(planned).as_secs_f64().max(1e-3);
        let causes: Vec<Json> = self
            .tally
            .causes
            .iter()
            .map(|(cause, unserved)| {
                json!({
                    "outcome": cause.outcome, "module": cause.module, "reason": cause.reason,
                    "code": cause.code, "requests": unserved.requests, "detail": unserved.detail,
                })
            })
            .collect();
        let modules: Vec<Json> = self
            .tally
            .modules
            .iter()
            .map(|(name, module)| {
                json!({
                    "module": name, "requests": module.requests(), "mean_batch": module.mean_batch(),
                    "queueing_ms": quantiles(&module.queueing),
                    "batch_wait_ms": quantiles(&module.batch_wait),
                    "execution_ms": quantiles(&module.execution),
                })
            })
            .collect();
        let series: Vec<Json> = self
            .seconds
            .iter()
            .enumerate()
            .map(|(idx, second)| {
                let o = &second.outcomes;
                json!({
                    "second": idx, "due": o.total(), "completed": o.completed, "late": o.late,
                    "dropped": o.dropped, "refused": o.refused, "failed": o.failed,
                    "p50_ms": second.quantile_ms(0.5), "p99_ms": second.quantile_ms(0.99),
                })
            })
            .collect();
        let applications: Vec<Json> = self
            .applications
            .iter()
            .map(|(name, outcomes)| {
                json!({
                    "application": name, "requests": outcomes.total(), "completed": outcomes.completed,
                })
            })
            .collect();
        json!({
            "run": run,
            "seconds": span,
            "requests": outcomes.total(),
            "outcomes": {
                "completed": outcomes.completed, "late": outcomes.late, "dropped": outcomes.dropped,
                "refused": outcomes.refused, "failed": outcomes.failed,
            },
            "goodput_per_s": outcomes.completed as f64 / span,
            "finish_rate": outcomes.completed as f64 / total,
            "drop_rate": (outcomes.dropped + outcomes.late) as f64 / total,
            "invalid_rate": self.invalid_rate(),
            "latency_ms": quantiles(&self.tally.latency),
            "server_latency_ms": quantiles(&self.tally.server_latency),
            "send_delay_ms": quantiles(&self.send_delay),
            "generator_cpu": self.cpu_share(cpu),
            "emulated": self.tally.emulated,
            "damaged": self.tally.damaged,
            "causes": causes,
            "modules": modules,
            "applications": applications,
            "series": series,
        })
    }
}

fn quantiles(latencies: &Latencies) -> Json {
    json!({
        "count": latencies.count(), "mean": latencies.mean_ms(), "max": latencies.max_ms(),
        "p50": latencies.quantile_ms(0.5), "p90": latencies.quantile_ms(0.9),
        "p95": latencies.quantile_ms(0.95), "p99": latencies.quantile_ms(0.99),
        "p999": latencies.quantile_ms(0.999),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(due_ms: u64, at_ms: u64, outcome: Outcome) -> Ended {
        Ended {
            due: Duration::from_millis(due_ms),
            sent: Some(Duration::from_millis(due_ms + 5)),
            at: Duration::from_millis(at_ms),
            payload: 0,
            result: pb::Result {
                outcome: outcome.into(),
                ..Default::default()
            },
        }
    }

    #[test]
    fn latency_counts_from_the_due_time_and_not_from_sending() {
        let mut measure = Measure::new(Duration::ZERO, vec![String::new()]);
        measure.add(&ended(1000, 1030, Outcome::Completed));
        let p50 = measure.tally.latency.quantile_ms(0.5).unwrap();
        assert!((29.9..30.1).contains(&p50), "{p50}");
    }

    #[test]
    fn seconds_are_by_due_time_and_warm_up_is_left_out() {
        let mut measure = Measure::new(Duration::from_secs(1), vec![String::new()]);
        measure.add(&ended(500, 510, Outcome::Completed));
        measure.add(&ended(1900, 3500, Outcome::Late));
        measure.add(&ended(2100, 2110, Outcome::Dropped));
        measure.finish(Duration::from_secs(3));
        let json = measure.to_json(Json::Null, Some(Duration::from_secs(3)), Duration::ZERO);
        assert_eq!(json["requests"], 2);
        assert_eq!(json["seconds"], 2.0);
        assert_eq!(json["series"][0]["late"], 1);
        assert_eq!(json["series"][1]["dropped"], 1);
        assert_eq!(json["drop_rate"], 1.0);
        assert_eq!(json["goodput_per_s"], 0.0);
    }

    #[test]
    fn a_server_is_lost_that_did_not_answer_before_the_end() {
        let at = |ms: u64, reason: Option<&str>| Ended {
            result: match reason {
                Some(reason) => super::super::wire::client_failure(reason, "refused"),
                None => ended(0, 0, Outcome::Dropped).result,
            },
            ..ended(ms, ms, Outcome::Failed)
        };
        let lost = |ends: &[(u64, Option<&str>)]| {
            let mut measure = Measure::new(Duration::ZERO, vec![String::new()]);
            for (ms, reason) in ends {
                measure.add(&at(*ms, *reason));
            }
            measure.finish(Duration::from_secs(14));
            measure.lost_server(Duration::from_secs(4))
        };
        let gone = Some(CONNECTION_LOST);
        assert_eq!(
            lost(&[(1250, None), (1500, gone), (3900, gone)]).as_deref(),
            Some("the server has not answered since second 1.2: refused")
        );
        // It hangs: all that it owes fails when the wait for the last answers is over.
        assert_eq!(
            lost(&[(1000, None), (14_000, Some(NO_ANSWER))]).as_deref(),
            Some("the server has not answered since second 1.0: refused")
        );
        assert_eq!(lost(&[(1250, gone), (3900, None)]), None, "it came back");
        assert_eq!(
            lost(&[(3100, None), (3900, gone)]),
            None,
            "too short to tell"
        );
        assert_eq!(lost(&[(1000, Some("gave_up"))]), None, "slow is not lost");
    }

    #[test]
    fn applications_are_counted_apart() {
        let names = ["quiet", "busy", "quiet"].map(str::to_owned).to_vec();
        let mut measure = Measure::new(Duration::ZERO, names);
        let outcomes = [Outcome::Completed, Outcome::Dropped, Outcome::Late];
        for (payload, outcome) in outcomes.into_iter().enumerate() {
            measure.add(&Ended {
                payload,
                ..ended(1, 2, outcome)
            });
        }
        let json = measure.to_json(Json::Null, None, Duration::ZERO);
        let quiet = json!({"application": "quiet", "requests": 2, "completed": 1});
        assert_eq!(json["applications"][0], quiet);
        assert_eq!(json["applications"][1]["completed"], 0);
        let text = measure.render("", None, Duration::ZERO);
        assert!(
            text.contains("quiet                 2      50.0%"),
            "{text}"
        );
    }
}
