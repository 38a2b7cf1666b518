//! The virtual-time driver. It runs the same policies as the server (gateway, controllers, brokers, device executors)
//! on an emulated pipeline, deterministically. It simulates only the world around the policies: the execution time of a
//! batch, the travel time of a message, the result of a condition.
//!
//! Equal configurations give equal runs, shown by a hash over every event. The invariants of
//! [`spillgate_pipeline::invariants`] are checked at each step.

mod accuracies;
pub mod agenda;
pub mod bound;
pub mod bounds;
pub mod clients;
pub mod cluster;
pub mod cluster_file;
pub mod draw;
pub mod dynamic;
pub mod families;
pub mod network;
pub mod placement;
pub mod report;
pub mod setup;
pub mod swarm;
pub mod trace;
pub mod workload;
pub mod world;

pub use report::Report;
pub use setup::{Bounds, Contender, DEVICES_MAX, Load, Run, Setup};
pub use world::{
    Bug, CameraFigures, ClusterReport, Disturbance, FrameBits, FramesReport, Hostile, HostileKind,
    Served, SimCamera, SimConfig, SimFleet, SimScaling, Traffic, Travelled, run,
};
