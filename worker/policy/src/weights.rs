//! The weights of models in the memory of devices: what is there, what is read next, and what gives way.
//!
//! Brokers ask the [`store`] of their device, which goes by the requests that wait there: where memory has no limit none gives way, and a model of a
//! family is read when it is asked for first. A [`placement`] decides for several devices at once, and forms the batches, too; a [`fleet`] stands
//! between it and gateways. Both count in [`pages`].

pub mod fleet;
pub mod pages;
pub mod placement;
pub mod store;
