//! Drives the worker policies on real devices. A [`device::DeviceThread`] is one OS thread that owns one device and
//! runs its batches. The thread that brings a request drives the policy in place, under the device's lock, so a hop
//! inside one process is a plain call. A [`placed::PlacedDevice`] carries out the actions that a placement sends. Both read [`weights`] on a thread of their own.
//! [`timer::TimerThread`] wakes policies when a deadline passes. This crate decides nothing itself.

pub mod bounds;
pub mod confinement;
pub mod cores;
pub mod device;
pub mod executor;
pub mod listed;
pub mod members;
pub mod placed;
pub mod timer;
pub mod weights;
