//! x
mod anneal;
mod assignment;
mod instance;
mod jellyfish;
mod mapping;
mod pair;
mod partition;
mod reach;
mod search;
mod simple;
mod table;

pub use assignment::{Assignment, Broken, Setting, Worth};
pub use instance::{BadInstance, ClientDemand, Instance, Variant};
pub use search::{Method, Search};
