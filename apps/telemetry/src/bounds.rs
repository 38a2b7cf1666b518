//! The bounds of this crate, for `docs/bounds.md`.

use spillgate_pipeline::bound;
use spillgate_pipeline::bounds::Bound;

/// The bounds.
pub const BOUNDS: &[Bound] = &[
    bound!(
        Operation,
        "bytes of the log that wait to be written",
        bytes(crate::logging::queue::WAITING_BYTES_MAX),
        "lines are lost and counted"
    ),
    bound!(
        Operation,
        "a line of the log",
        bytes(crate::logging::queue::LINE_BYTES_MAX),
        "the rest is cut off"
    ),
    bound!(
        Operation,
        "lines of one place in the code that are shown before they are counted",
        count(crate::logging::repeats::BURST),
        "counted"
    ),
    bound!(
        Operation,
        "time between such counts; after as much silence lines are shown again",
        time(crate::logging::repeats::WINDOW),
        "counted"
    ),
    bound!(
        Operation,
        "requests and batches that wait for the exporter of spans",
        count(crate::telemetry::QUEUE_CAPACITY),
        "lost and counted"
    ),
    bound!(
        Operation,
        "time of one export of spans",
        time(crate::telemetry::EXPORT_TIMEOUT),
        "its spans are lost and counted"
    ),
    bound!(
        Operation,
        "time between readings of the wall clock for spans",
        time(crate::wall::READ_EVERY),
        "spans are wrong for no longer"
    ),
    bound!(
        Operation,
        "pipelines whose metrics are at hand",
        count(crate::metrics::PIPELINES_MAX),
        "the oldest is removed; its series stay"
    ),
    bound!(
        Operation,
        "time for Jaeger's answer to `trace`",
        time(crate::waterfall::FETCH_TIMEOUT),
        "an error"
    ),
    bound!(
        Operation,
        "Jaeger's answer to `trace`",
        bytes(crate::waterfall::ANSWER_BYTES_MAX),
        "an error"
    ),
];
