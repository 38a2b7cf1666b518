//! What operators see of a running Spillgate: traces over OTLP, Prometheus metrics, logs.
//!
//! Place in the flow: the runtime tells a [`Telemetry`] (an `Observer`) of every request, refusal and
//! batch that has ended. Metrics are atomic counters, updated on the spot; a request that is sampled is
//! copied into a bounded queue, and one thread turns what it finds there into spans and sends them.
//! [`waterfall`] is the other end: it fetches a trace back from Jaeger and draws it.
//!
//! Invariants: nothing here blocks the caller; what does not fit or cannot be sent is counted, never
//! waited for; the values of a request (its frame above all) are never kept alive by telemetry.
//!
//! Not here: HTTP. [`Telemetry::render`] gives the text, the admin server serves it. Nothing is decided
//! from what is measured here; policies have their own estimates.

mod batches;
mod entry;
mod exporter;
pub mod ids;
pub mod logging;
pub mod metrics;
pub mod sampler;
mod spans;
mod telemetry;

pub mod testing;
pub mod waterfall;

pub use logging::init_logging;
pub use sampler::Sampler;
pub use telemetry::{Telemetry, TelemetryConfig, TelemetryError};
