//! The virtual-time driver: runs the very policies that the server runs (ledger, joiners, dispatchers,
//! brokers, device executors) on an emulated pipeline, deterministically. It simulates the world, never the
//! logic: what a request costs, how long a message travels, which way a condition goes.
//!
//! Equal configurations give equal runs, proven by a hash over every event; the invariants of
//! [`spillgate_pipeline::invariants`] are checked at each step.

pub mod bound;
mod draw;
pub mod dynamic;
pub mod report;
pub mod setup;
pub mod trace;
pub mod workload;
pub mod world;

pub use report::Report;
pub use setup::{Bounds, Contender, DEVICES_MAX, Load, Run, Setup};
pub use world::{Disturbance, Hostile, HostileKind, Served, SimConfig, SimScaling, run};
