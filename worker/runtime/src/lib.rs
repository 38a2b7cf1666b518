//! Drives the worker policies on real devices. A [`device::DeviceThread`] is one OS thread that owns one device and
//! runs its batches; whoever brings a request drives the policy in place, under the device's lock, so that
//! inside one process a hop is a plain call. [`timer::TimerThread`] wakes policies when a deadline passes.
//! Decides nothing itself.

pub mod clock;
pub mod decode;
pub mod device;
pub mod executor;
pub mod timer;
