//! The process's clock: monotonic nanoseconds since it was made, and what that was on the wall.

use std::time::{Duration, Instant, SystemTime};

use spillgate_pipeline::time::Timestamp;

/// Monotonic time of this process. Copies agree with each other.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    epoch: Instant,
    epoch_wall: SystemTime,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Clock {
            epoch: Instant::now(),
            epoch_wall: SystemTime::now(),
        }
    }

    /// Now.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_ns(self.epoch.elapsed().as_nanos() as u64)
    }

    /// The instant of a timestamp.
    pub fn instant(&self, at: Timestamp) -> Instant {
        self.epoch + Duration::from_nanos(at.as_ns())
    }

    /// What the wall clock showed at `Timestamp::ZERO`.
    pub fn epoch_wall(&self) -> SystemTime {
        self.epoch_wall
    }
}
