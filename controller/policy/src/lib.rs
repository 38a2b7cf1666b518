//! Decisions of the controllers: who may ask what ([`access`]), which requests a pipeline admits and how each ends ([`ledger`], behind the
//! [`gate`]), when a module's branches have joined ([`joiner`]), which worker serves a request ([`dispatcher`]),
//! and what the State Planner of a module tells its brokers ([`planner`]); the last three make up a
//! [`module::ModuleController`]. Plain state machines: no I/O, no clock.

pub mod access;
pub mod dispatcher;
pub mod door;
pub mod gate;
pub mod gateway;
pub mod ledger;
pub mod module;
pub mod plan;
pub mod planner;
pub mod scaling;

pub use gateway::Gateway;
pub use ledger::{Ledger, Refusal};
pub use module::ModuleController;
pub use plan::Planned;
pub use planner::{ModuleState, StatePlanner};
