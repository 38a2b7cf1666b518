//! Why a request was dropped, as an event: the numbers for machines and a sentence for people.

use std::time::SystemTime;

use opentelemetry::KeyValue;
use opentelemetry::trace::Event;
use spillgate_pipeline::request::{Drop, DropReason};
use spillgate_pipeline::time::{Budget, format_duration};

use super::milliseconds;

/// The event `drop`.
pub(super) fn event(drop: &Drop, at: SystemTime) -> Event {
    let mut attributes = vec![
        KeyValue::new("spillgate.drop.reason", drop.reason.label()),
        KeyValue::new("spillgate.drop.budget_ms", drop.budget.as_ms_f64()),
    ];
    if let Some(estimate) = drop.estimate {
        attributes.extend([
            KeyValue::new("spillgate.estimate.wait_ms", milliseconds(estimate.wait)),
            KeyValue::new(
                "spillgate.estimate.execution_ms",
                milliseconds(estimate.execution),
            ),
            KeyValue::new(
                "spillgate.estimate.downstream_ms",
                milliseconds(estimate.downstream),
            ),
            KeyValue::new(
                "spillgate.estimate.total_ms",
                milliseconds(estimate.total()),
            ),
        ]);
    }
    attributes.push(KeyValue::new("message", sentence(drop)));
    Event::new("drop", at, attributes, 0)
}

/// What happened, in words.
fn sentence(drop: &Drop) -> String {
    let what = match drop.reason {
        DropReason::Expired => "its deadline passed while it waited",
        DropReason::Predicted => "expected to miss its deadline",
        DropReason::QueueFull => "the queue was full",
        DropReason::Cancelled => "its client cancelled it or went away",
        DropReason::Superseded => "a newer frame of its stream took its place",
        DropReason::Draining => "the server was shutting down",
        DropReason::NoWorker => "no worker of the module was alive",
    };
    let mut text = format!("{what}; {}", left(drop.budget));
    if let Some(estimate) = drop.estimate {
        text.push_str(&format!(
            ", {} still needed ({} wait, {} execution, {} downstream)",
            format_duration(estimate.total()),
            format_duration(estimate.wait),
            format_duration(estimate.execution),
            format_duration(estimate.downstream),
        ));
    }
    text
}

fn left(budget: Budget) -> String {
    let span = format_duration(std::time::Duration::from_nanos(
        budget.as_ns().unsigned_abs(),
    ));
    if budget.as_ns() < 0 {
        format!("{span} too late")
    } else {
        format!("{span} left")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use expect_test::expect;
    use spillgate_pipeline::id::ModuleId;
    use spillgate_pipeline::request::Estimate;
    use spillgate_pipeline::time::Timestamp;

    use super::*;

    #[test]
    fn a_drop_explains_itself() {
        let ms = Duration::from_millis;
        let at = Timestamp::from_ns(90_000_000);
        let drop = |reason, deadline_ms: u64, estimate| Drop {
            module: ModuleId(2),
            reason,
            at,
            budget: Timestamp::from_ns(deadline_ms * 1_000_000).budget_at(at),
            estimate,
        };
        let estimate = Estimate {
            wait: ms(60),
            execution: ms(40),
            downstream: ms(80),
        };
        expect!["expected to miss its deadline; 95ms left, 180ms still needed (60ms wait, 40ms execution, 80ms downstream)"]
            .assert_eq(&sentence(&drop(DropReason::Predicted, 185, Some(estimate))));
        expect!["its deadline passed while it waited; 2ms too late"].assert_eq(&sentence(&drop(
            DropReason::Expired,
            88,
            None,
        )));
    }
}
