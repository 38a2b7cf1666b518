//! The wall clock beside the monotonic one by which the server measures. A wall clock may be wrong when a machine starts, and be set
//! later: spans of later requests then have the right time, and those of one request keep their distances.

use std::time::{Duration, Instant, SystemTime};

/// How often the wall clock is read again: a span is wrong for no longer.
pub(crate) const READ_EVERY: Duration = Duration::from_secs(1);
/// Two readings of clocks that agree differ by less, when the thread loses its core between them.
const READING_ERROR: Duration = Duration::from_millis(1);
/// A clock that was set by more is logged; smaller steps are those of a clock that is kept in step.
const TOLD: Duration = Duration::from_secs(1);

/// Gives `Timestamp::ZERO` on the wall clock, as that goes now.
pub(crate) type ReadEpoch = Box<dyn Fn() -> SystemTime + Send>;

/// What spans are told of the wall clock.
pub(crate) struct Wall {
    read: ReadEpoch,
    epoch: SystemTime,
    read_at: Instant,
}

impl Wall {
    pub(crate) fn new(read: ReadEpoch, now: Instant) -> Self {
        Wall {
            epoch: read(),
            read,
            read_at: now,
        }
    }

    /// `Timestamp::ZERO` on the wall clock.
    pub(crate) fn epoch(&mut self, now: Instant) -> SystemTime {
        if now.saturating_duration_since(self.read_at) < READ_EVERY {
            return self.epoch;
        }
        self.read_at = now;
        let found = (self.read)();
        let (later, by) = match found.duration_since(self.epoch) {
            Ok(by) => (true, by),
            Err(earlier) => (false, earlier.duration()),
        };
        if by > READING_ERROR {
            self.epoch = found;
        }
        if by > TOLD {
            let sign = if later { '+' } else { '-' };
            tracing::info!(
                "the wall clock was set by {sign}{} s; spans follow it",
                by.as_secs()
            );
        }
        self.epoch
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn the_epoch_follows_a_wall_clock_that_is_set_and_stands_still_otherwise() {
        let first = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let shown = Arc::new(Mutex::new(first));
        let reads = shown.clone();
        let start = Instant::now();
        let mut wall = Wall::new(Box::new(move || *reads.lock()), start);
        let hour = Duration::from_secs(3600);
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        *shown.lock() = first - hour;
        assert_eq!(wall.epoch(at(0.9)), first, "it is not read all the time");
        assert_eq!(wall.epoch(at(1.0)), first - hour);
        *shown.lock() = first - hour + READING_ERROR;
        assert_eq!(wall.epoch(at(2.0)), first - hour, "no clock was set");
        *shown.lock() = first - hour + 2 * READING_ERROR;
        assert_eq!(wall.epoch(at(3.0)), first - hour + 2 * READING_ERROR);
        *shown.lock() = first;
        assert_eq!(wall.epoch(at(9.0)), first);
    }
}
