//! The handles of one pipeline: all labels are resolved, all handles reached by index.

use std::sync::OnceLock;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use spillgate_controller::objects::left_out;
use spillgate_controller::record::{BatchRecord, RequestRecord};
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::request::{DropReason, Outcome};
use spillgate_process::value::LeftOut;

use super::buckets::{BATCH_SIZES, ERRORS, LATENCIES, PARTS};
use super::family::Family;
use super::histogram::{Histogram, Seconds};
use super::labels::{
    ErrorLabels, LeftOutLabels, ModuleLabels, OutcomeLabels, PipelineLabels, RefusedLabels,
    RequestLabels,
};
use super::{Families, reason_idx};

/// Most reasons of refusal that are counted separately; the gateway has fewer. Further ones are counted as [`OTHER`].
const REFUSED_REASONS_MAX: usize = 16;
const OTHER: &str = "other";

/// Labels of `Outcome::label`, in the order of [`outcome_idx`].
const OUTCOMES: [&str; 4] = ["completed", "late", "dropped", "failed"];

/// Why objects were not looked at, in the order of [`left_out`]'s counts. Rows of tensors do not say why.
fn left_out_reasons() -> [&'static str; LeftOut::ALL.len() + 1] {
    let [no_area, over_limit, no_number] = LeftOut::ALL.map(LeftOut::label);
    [no_area, over_limit, no_number, "not_told"]
}

/// Handles of one pipeline.
pub(super) struct PipelineMetrics {
    completed: Counter,
    late: Counter,
    good: Counter,
    damaged: Counter,
    /// Requests without an SLO that ended, in the order of [`OUTCOMES`].
    background: [Counter; 4],
    by_outcome: [OutcomeMetrics; 4],
    /// By `ModuleId`.
    modules: Box<[ModuleMetrics]>,
    pub(super) refused: Refused,
}

struct OutcomeMetrics {
    latency: Histogram,
    device_time: Seconds,
}

struct ModuleMetrics {
    queueing: Histogram,
    batch_wait: Histogram,
    execution: Histogram,
    batch_size: Histogram,
    /// Reruns.
    alone: Histogram,
    /// Batches that took longer than expected.
    over: Histogram,
    /// Batches that took less.
    under: Histogram,
    /// In the order of [`left_out_reasons`].
    left_out: [Counter; LeftOut::ALL.len() + 1],
    failed: Counter,
    /// In the order of `DropReason::ALL`.
    dropped: [Counter; DropReason::ALL.len()],
}

impl PipelineMetrics {
    pub(super) fn new(pipeline: &Pipeline, families: &Families) -> Self {
        let name = || pipeline.name.clone();
        let ended = |outcome, module: &str, reason| {
            let module = module.to_owned();
            families.requests.handle(RequestLabels {
                pipeline: name(),
                outcome,
                module,
                reason,
            })
        };
        let modules = pipeline.modules.iter().map(|module| {
            let part = |family: &Family<ModuleLabels, Histogram>, buckets| {
                let labels = ModuleLabels {
                    pipeline: name(),
                    module: module.name.clone(),
                };
                family.handle_or(labels, || Histogram::new(buckets))
            };
            let error = |direction| {
                let module = module.name.clone();
                let labels = ErrorLabels {
                    pipeline: name(),
                    module,
                    direction,
                };
                families
                    .prediction_error
                    .handle_or(labels, || Histogram::new(&ERRORS))
            };
            ModuleMetrics {
                queueing: part(&families.queueing, &PARTS),
                batch_wait: part(&families.batch_wait, &PARTS),
                execution: part(&families.execution, &PARTS),
                batch_size: part(&families.batch_size, &BATCH_SIZES),
                alone: part(&families.alone, &PARTS),
                over: error("over"),
                under: error("under"),
                left_out: left_out_reasons().map(|reason| {
                    let module = module.name.clone();
                    families.left_out.handle(LeftOutLabels {
                        pipeline: name(),
                        module,
                        reason,
                    })
                }),
                failed: ended("failed", &module.name, ""),
                dropped: DropReason::ALL
                    .map(|reason| ended("dropped", &module.name, reason.label())),
            }
        });
        let by_outcome = OUTCOMES.map(|outcome| {
            let labels = OutcomeLabels {
                pipeline: name(),
                outcome,
            };
            OutcomeMetrics {
                latency: families
                    .latency
                    .handle_or(labels.clone(), || Histogram::new(&LATENCIES)),
                device_time: families.device_request_time.handle(labels),
            }
        });
        PipelineMetrics {
            completed: ended("completed", "", ""),
            late: ended("late", "", ""),
            good: families.good.handle(PipelineLabels { pipeline: name() }),
            damaged: families.damaged.handle(PipelineLabels { pipeline: name() }),
            background: OUTCOMES.map(|outcome| {
                let pipeline = name();
                families
                    .background
                    .handle(OutcomeLabels { pipeline, outcome })
            }),
            by_outcome,
            modules: modules.collect(),
            refused: Refused::new(name(), families.refused.clone()),
        }
    }

    pub(super) fn request_ended(&self, record: &RequestRecord) {
        if record.job.damage().is_some() {
            self.damaged.inc();
        }
        for (module, metrics) in record.pipeline.modules.iter().zip(&self.modules) {
            let counts = left_out(record, module.id);
            for (counter, n) in metrics.left_out.iter().zip(counts) {
                counter.inc_by(n);
            }
        }
        if record.request.background {
            self.background[outcome_idx(&record.outcome)].inc();
            return;
        }
        match record.outcome {
            Outcome::Completed => {
                self.completed.inc();
                self.good.inc();
            }
            Outcome::Late => {
                self.late.inc();
            }
            Outcome::Dropped(drop) => {
                if let Some(module) = self.modules.get(drop.module.idx()) {
                    module.dropped[reason_idx(drop.reason)].inc();
                }
            }
            Outcome::Failed { module } => {
                if let Some(module) = self.modules.get(module.idx()) {
                    module.failed.inc();
                }
            }
        }
        let by_outcome = &self.by_outcome[outcome_idx(&record.outcome)];
        by_outcome.latency.observe_duration(record.latency());
        for times in &record.times {
            let Some(module) = self.modules.get(times.module.idx()) else {
                continue;
            };
            module.queueing.observe_duration(times.queueing());
            module.batch_wait.observe_duration(times.batch_wait());
            module.execution.observe_duration(times.execution());
            // Frames are decoded on the CPU, beside the devices that run models.
            if times.module != ModuleId::SOURCE {
                let share = times.execution() / times.batch_size.max(1);
                by_outcome.device_time.add(share);
            }
        }
    }

    pub(super) fn reran(&self, module: ModuleId, took: Duration) {
        if let Some(module) = self.modules.get(module.idx()) {
            module.alone.observe_duration(took);
        }
    }

    pub(super) fn batch_ended(&self, record: &BatchRecord) {
        let Some(module) = self.modules.get(record.module.idx()) else {
            return;
        };
        module.batch_size.observe(u64::from(record.size));
        if record.ended_at >= record.expected_end {
            module
                .over
                .observe_duration(record.ended_at.since(record.expected_end));
        } else {
            module
                .under
                .observe_duration(record.expected_end.since(record.ended_at));
        }
    }
}

fn outcome_idx(outcome: &Outcome) -> usize {
    match outcome {
        Outcome::Completed => 0,
        Outcome::Late => 1,
        Outcome::Dropped(_) => 2,
        Outcome::Failed { .. } => 3,
    }
}

/// Counters by reason of refusal: slots are filled in order of appearance and read without a lock.
pub(super) struct Refused {
    pipeline: String,
    family: Family<RefusedLabels, Counter>,
    slots: [OnceLock<(&'static str, Counter)>; REFUSED_REASONS_MAX],
}

impl Refused {
    fn new(pipeline: String, family: Family<RefusedLabels, Counter>) -> Self {
        Refused {
            pipeline,
            family,
            slots: [const { OnceLock::new() }; REFUSED_REASONS_MAX],
        }
    }

    pub(super) fn count(&self, reason: &'static str) {
        for slot in &self.slots {
            let (known, counter) = slot.get_or_init(|| (reason, self.counter(reason)));
            if *known == reason {
                counter.inc();
                return;
            }
        }
        self.counter(OTHER).inc();
    }

    fn counter(&self, reason: &'static str) -> Counter {
        self.family.handle(RefusedLabels {
            pipeline: self.pipeline.clone(),
            reason,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_beyond_the_bound_are_counted_together() {
        let family = Family::default();
        let refused = Refused::new("p".to_owned(), family.clone());
        let reasons = [
            "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q",
            "r",
        ];
        for reason in reasons {
            refused.count(reason);
        }
        refused.count("a");
        let read = |reason| {
            family
                .handle(RefusedLabels {
                    pipeline: "p".to_owned(),
                    reason,
                })
                .get()
        };
        assert_eq!((read("a"), read("p"), read(OTHER)), (2, 1, 2));
    }

    #[test]
    fn outcomes_are_labelled_alike_everywhere() {
        let outcomes = [
            Outcome::Completed,
            Outcome::Late,
            Outcome::Failed {
                module: ModuleId::SOURCE,
            },
        ];
        for outcome in outcomes {
            assert_eq!(OUTCOMES[outcome_idx(&outcome)], outcome.label());
        }
    }
}
