//! The product, composed: pipeline files become hosts and device threads ([`embedded`]), served over gRPC
//! ([`server`]) and an admin port ([`admin`]), with the command line around all of it ([`main`]).

pub mod accuracy;
pub mod admin;
mod agreement;
#[cfg(test)]
mod bounds;
mod certificates;
mod command_line;
mod commands;
pub mod cores;
pub mod deployment;
pub mod device_assignment;
pub mod device_name;
mod device_reports;
pub mod device_sharing;
pub mod devices;
pub mod embedded;
pub mod external_scaler;
pub mod files;
mod freed_memory;
mod health;
pub mod inner_process;
pub mod measure;
pub mod memory_limit;
pub mod model_check;
mod model_files;
mod places;
mod ports;
pub mod process_context;
mod process_links;
pub mod process_role;
mod profile_agreement;
mod publishing;
mod readiness;
#[cfg(test)]
mod reference;
pub mod reload;
pub mod renewer;
mod rollout_flag;
pub mod security;
pub mod serve_error;
mod served;
pub mod server;
mod serving;
mod set_links;
mod signals;
pub mod start_error;
pub mod status;
mod values;

pub use command_line::main;
