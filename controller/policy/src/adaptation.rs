//! Adaptation: which variant of a model each client uses, and which worker serves it (Jellyfish). A client sends frames of its
//! variant's size, so accuracy, link and workers are traded together.
//!
//! The question ([`Instance`], §4.1): a worker runs one variant in batches of up to one size. A client is mapped to one worker or to none.
//! Twice the execution time of the worker's batch is at most each of its clients' budget for that variant ([`ClientReport::budget`],
//! §3.3), and its clients' rates together are at most its throughput. As many clients as possible are served; of those answers the
//! most accurate one counts, weighted by rate. A client that is not served counts 0, even where accuracies are
//! negative: so accuracy alone would rather drop clients, and the count comes first.
//!
//! A [`Search`] answers one question, by one of several [`Method`]s, and reads no clock: its driver says how far the time is. [`Adaptation`] is
//! the scheduler around it that follows clients as they come, change and go, and [`Explanation`] says why a client has its variant.
//!
//! Invariants: every answer passes [`Assignment::check`]; equal questions, seeds and steps give equal answers.
//!
//! Not here: frames that are on their way when a variant changes (the worker resizes them), and loading itself.

mod align;
mod anneal;
mod assignment;
mod explain;
pub(crate) mod instance;
mod jellyfish;
mod mapping;
mod pair;
mod partition;
mod reach;
pub(crate) mod report;
pub(crate) mod scheduler;
mod search;
mod simple;
pub(crate) mod small;
mod stretch;
mod table;
#[cfg(test)]
mod tests;

pub use assignment::{Assignment, Broken, Setting, Worth};
pub use explain::{Explanation, Obstacle};
pub use instance::{
    BATCH_MAX, BadInstance, CLIENTS_MAX, ClientDemand, Instance, Positive, VARIANTS_MAX, Variant,
    WORKERS_MAX, rate_unit,
};
pub use report::{ClientReport, RATE_BOUNDS, SLO_BOUNDS};
pub use scheduler::{
    Adaptation, AdaptationCommand, AdaptationConfig, AdaptationEvent, AdaptiveVariant, LINK_JUMP,
    PERIOD, PREFETCHED_DEFAULT, QUICK_GAP, ROUND_TRIP_JUMP, STEPS_DEFAULT, SWITCH_TIME_DEFAULT,
};
pub use search::{Method, Search};
