//! The process's clock: monotonic nanoseconds since an hour before it was made, and what that was on the wall.

use std::time::{Duration, Instant, SystemTime};

use spillgate_pipeline::time::Timestamp;

/// What a clock shows when it is made. Other processes send times from before this one began; they are times of its clock, too.
const SHOWN_FIRST: Duration = Duration::from_secs(3600);

/// Monotonic time of this process. Copies agree with each other.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    epoch: Instant,
    epoch_wall: SystemTime,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        let (now, wall) = (Instant::now(), SystemTime::now());
        // A machine that was started just now may have no such instant.
        let epoch = now.checked_sub(SHOWN_FIRST).unwrap_or(now);
        Clock {
            epoch,
            epoch_wall: wall - (now - epoch),
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
