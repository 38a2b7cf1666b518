//! Adaptation: which variant of a model each client uses, and which worker serves it (Jellyfish). A client sends frames of its
//! variant's size, so accuracy, link and workers are traded together.
//!
//! The question is the product's ([`spillgate_controller_policy::adaptation`]), with budgets from what clients say of their links
//! ([`ClientReport::budget`], §3.3). A [`Search`] answers one question, by one of several [`Method`]s, and reads no clock: its driver
//! says how far the time is. [`Adaptation`] is the scheduler around it that follows clients as they come, change and go, and
//! [`Explanation`] says why a client has its variant.
//!
//! Invariants: every answer passes `Assignment::check`; equal questions, seeds and steps give equal answers.
//!
//! Not here: frames that are on their way when a variant changes (the worker resizes them), and loading itself.

mod anneal;
mod cost;
mod explain;
mod pair;
mod partition;
mod report;
mod scheduler;
mod search;
mod simple;
mod small;
mod stretch;
mod table;
#[cfg(test)]
mod tests;

pub use explain::{Explanation, Obstacle, serves};
pub use report::{ClientReport, RATE_BOUNDS, SLO_BOUNDS};
pub use scheduler::{
    Adaptation, AdaptationCommand, AdaptationConfig, AdaptationEvent, AdaptiveVariant, BadConfig,
    LINK_JUMP, PERIOD, PREFETCHED_DEFAULT, QUICK_GAP, ROUND_TRIP_JUMP, SWITCH_TIME_DEFAULT,
};
pub use search::{Method, Search};
