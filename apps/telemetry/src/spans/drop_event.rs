//! The reason of a drop, as an event: numbers for programs and a sentence for people.

use std::time::SystemTime;

use opentelemetry::KeyValue;
use opentelemetry::trace::Event;
use spillgate_pipeline::request::Drop;

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
    attributes.push(KeyValue::new("message", drop.explain()));
    Event::new("drop", at, attributes, 0)
}
