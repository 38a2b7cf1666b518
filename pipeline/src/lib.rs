//! What a pipeline *is*: YAML text to a checked [`Pipeline`] on a petgraph DAG, ids, time, requests and
//! their outcomes, latency profiles. No I/O, no clock, no threads, no randomness of its own: this crate
//! knows nobody, and everybody knows it.

pub mod catalog;
pub mod id;
pub mod pipeline;
pub mod profile;
pub mod request;
pub mod testing;
pub mod time;

pub use catalog::Catalog;
pub use pipeline::Pipeline;
