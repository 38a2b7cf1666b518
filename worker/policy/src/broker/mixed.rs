//! A backlog of several models, of which each batch holds one.

use std::time::Duration;

use spillgate_pipeline::request::ModelChoice;
use spillgate_pipeline::time::Timestamp;

use super::core::Core;

/// Whether all waiting requests make their module deadlines in batches of the planned size, each of one model, in order of
/// the first deadline of each batch, even if a batch takes one deviation longer than expected.
pub(super) fn backlog_is_feasible<T>(core: &Core<T>, starts_at: Timestamp) -> bool {
    let waiting = core.queue.iter().map(|w| &w.request);
    let mut requests: Vec<(ModelChoice, Timestamp)> = waiting
        .map(|r| (r.model(), core.module_deadline(r)))
        .collect();
    requests.sort_unstable();
    let of_models = requests.chunk_by(|a, b| a.0 == b.0);
    let batch = core.batch();
    let mut batches: Vec<(Timestamp, Duration)> = of_models
        .flat_map(|of| {
            let ModelChoice { variant, .. } = of[0].0;
            let batches = of.chunks(batch);
            batches.map(move |members| (members[0].1, core.execution(variant, members.len())))
        })
        .collect();
    batches.sort_unstable();
    let mut ends_by = starts_at + core.duration_deviation(core.next_variant(), batch);
    batches.into_iter().all(|(deadline, execution)| {
        ends_by = ends_by + execution;
        ends_by <= deadline
    })
}
