//! The pipeline: YAML text to a checked [`Pipeline`] on a petgraph DAG, ids, time, requests and their outcomes,
//! latency profiles. No I/O, clock, threads or randomness of its own. This crate depends on no other crate of the
//! workspace; every other may depend on it.

pub mod action;
pub mod address;
pub mod bounds;
pub mod catalog;
pub mod clients;
pub mod compile;
pub mod diagnostic;
pub mod distribution;
pub mod document;
pub mod execution;
pub mod family;
pub mod grant;
pub mod graph;
pub mod id;
pub mod invariants;
pub mod near;
pub mod pipeline;
pub mod placement;
pub mod policy;
pub mod predict;
pub mod printable;
pub mod problem;
pub mod profile;
pub mod profile_file;
pub mod queue;
pub mod reader;
pub mod request;
pub mod schedule;
pub mod schema;
pub mod spec;
pub mod testing;
pub mod time;
pub mod variables;
pub mod window;

pub use catalog::Catalog;
pub use compile::{Compiled, compile};
pub use diagnostic::Diagnostics;
pub use pipeline::Pipeline;
