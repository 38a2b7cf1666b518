//! Drives the worker policies on real devices ([`device`]): one thread executes the batches of a device, others read weights beside them
//! ([`weights`]). The thread that brings a request drives the policy in place, under the device's lock, so a hop inside one process is a plain
//! call. [`timer::TimerThread`] wakes policies when a deadline passes. This crate decides nothing itself.

pub mod bounds;
pub mod confinement;
pub mod cores;
mod decoder;
pub mod device;
pub mod listed;
pub mod members;
pub mod operators;
pub mod timer;
pub mod weights;
