//! Traces, metrics and dashboards as their receivers see them.

mod deploy;
mod otlp;
mod waterfall;
