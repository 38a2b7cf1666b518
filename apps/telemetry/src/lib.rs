//! Telemetry of a running Spillgate: traces over OTLP, Prometheus metrics, logs.
//!
//! Place in the flow: the runtime tells a [`Telemetry`] (an `Observer`) of every request, refusal and batch that has
//! ended. Metrics are atomic counters, updated at once. A sampled request is copied into a bounded queue; one thread
//! turns the queue into spans and sends them. [`waterfall`] is the other end: it fetches a trace from Jaeger and
//! draws it.
//!
//! Invariants: nothing here blocks the caller; entries that do not fit or cannot be sent are counted, never waited
//! for; telemetry never keeps the values of a request (its frame above all) alive.
//!
//! Not here: HTTP. [`Telemetry::render`] gives the text and the admin server serves it. No decision depends on these
//! measurements; policies have their own estimates.

pub mod bounds;
mod collector;
mod entry;
mod exporter;
pub mod ids;
pub mod logging;
pub mod metrics;
mod processes;
mod request_log;
pub mod sampler;
mod spans;
mod telemetry;
mod wall;

pub mod testing;
pub mod waterfall;

pub use logging::init_logging;
pub use processes::Processes;
pub use sampler::Sampler;
pub use telemetry::{Telemetry, TelemetryConfig, TelemetryError};
