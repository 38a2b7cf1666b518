//! Decisions of the controllers: which requests a pipeline admits and how each ends ([`ledger`]), when a
//! module's branches have joined ([`joiner`]), and which worker serves a request ([`dispatcher`]); a module's
//! joiner and dispatcher make up its [`module::ModuleController`]. Plain state machines: no I/O, no clock.

pub mod dispatcher;
pub mod joiner;
pub mod ledger;
pub mod module;
pub mod plan;

pub use ledger::{Ledger, Refusal};
pub use module::{Command, Event, ModuleController};
