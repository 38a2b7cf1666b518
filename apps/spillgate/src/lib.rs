//! The product, composed: pipeline files become hosts and device threads ([`embedded`]), served over gRPC
//! ([`server`]) and an admin port ([`admin`]). The binary adds the command line.

pub mod accuracy;
pub mod admin;
mod beside;
mod certificates;
pub mod cores;
pub mod devices;
pub mod embedded;
pub mod files;
pub mod fleets;
mod health;
mod heap;
pub mod measure;
pub mod member;
pub mod memory_limit;
pub mod model_check;
pub mod part;
pub mod placement;
pub mod reload;
pub mod security;
pub mod server;
mod serving;
pub mod status;
mod upstreams;
mod values;
