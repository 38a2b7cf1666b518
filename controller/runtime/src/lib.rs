//! Drives the controllers' policies: [`host::PipelineHost`] owns the ledger and the module controllers of one pipeline
//! and passes requests on; [`api`] is its gRPC face. This crate decides nothing itself.

pub mod api;
pub mod bounds;
pub mod convert;
pub mod edge;
pub mod host;
pub mod listener;
pub mod objects;
pub mod record;
