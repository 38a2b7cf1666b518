//! The product, composed: pipeline files become hosts and device threads ([`embedded`]), served over gRPC
//! ([`server`]) and an admin port ([`admin`]), with the command line around all of it ([`main`]).

pub mod accuracy;
pub mod admin;
#[cfg(test)]
mod bounds;
mod certificates;
mod command_line;
mod commands;
pub mod cores;
pub mod device_assignment;
mod device_reports;
pub mod devices;
pub mod embedded;
pub mod files;
pub mod fleets;
mod freed_memory;
mod health;
pub mod measure;
pub mod member;
pub mod memory_limit;
pub mod model_check;
mod model_files;
pub mod part;
#[cfg(test)]
mod reference;
pub mod reload;
pub mod security;
pub mod server;
mod serving;
mod signals;
pub mod status;
mod values;

pub use command_line::main;
