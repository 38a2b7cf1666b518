//! Decisions of a worker: which waiting requests are kept, in which order they form a batch, and which module's batch
//! runs next on a shared device. They are plain state machines: time and events go in, commands come out. Every driver,
//! the simulator included, runs the same code.
//!
//! ```text
//! arrival ─▶ Broker (one a worker: waiting requests ─▶ forming batch) ─▶ Device (one batch at a time) ─▶ Execute
//!                └─────────────── Drop, with reason ───────────────┘
//! idle device ─▶ Profiler ─▶ Rerun of a finished request, alone: what batch schedulers learn from
//! ```

pub mod actions;
pub mod bounds;
pub mod broker;
pub mod device;
pub mod profiler;
pub mod schedule;
pub mod weights;

pub use broker::{Broker, BrokerConfig};
pub use device::{Batch, Device, DeviceCommand, DeviceEvent};
