//! The schedule of frames: open loop, at a fixed rate, whether or not answers came.
//!
//! A frame cannot be sent before the source has made it. When the source is behind by more than [`TOLERANCE`], the
//! schedule moves with it, so that a slow source shows as a low rate and not as growing latencies.

use std::time::Duration;

use tokio::time::Instant;

/// The resolution of timers and of two threads taking turns.
const TOLERANCE: Duration = Duration::from_millis(5);

/// The schedule of one stream.
#[derive(Clone, Debug)]
pub(crate) struct FrameClock {
    next: Instant,
    interval: Duration,
    slipped: Duration,
}

impl FrameClock {
    pub(crate) fn new(start: Instant, interval: Duration) -> Self {
        FrameClock {
            next: start,
            interval,
            slipped: Duration::ZERO,
        }
    }

    /// When the frame is due that became ready at `ready_at`. Call it once a frame.
    pub(crate) fn due(&mut self, ready_at: Instant) -> Instant {
        let behind = ready_at.saturating_duration_since(self.next);
        if behind > TOLERANCE {
            self.slipped += behind;
            self.next = ready_at;
        }
        let due = self.next;
        self.next += self.interval;
        due
    }

    /// The source was away: its next frame is due when it is ready, and does not count as delayed.
    pub(crate) fn restart(&mut self, ready_at: Instant) {
        self.next = self.next.max(ready_at);
    }

    /// The rate of the schedule.
    pub(crate) fn frames_per_second(&self) -> f64 {
        1.0 / self.interval.as_secs_f64()
    }

    /// Total delay of the schedule by the source.
    pub(crate) fn slipped(&self) -> Duration {
        self.slipped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(40);

    #[test]
    fn frames_are_due_at_equal_distances_whatever_happens_between() {
        let start = Instant::now();
        let mut clock = FrameClock::new(start, INTERVAL);
        // Ready far ahead, or a little late: the schedule stands.
        for (n, ready_ms) in [(0, 0), (1, 1), (2, 84), (3, 3), (4, 160)] {
            let due = clock.due(start + Duration::from_millis(ready_ms));
            assert_eq!(due - start, INTERVAL * n, "frame {n}");
        }
        assert_eq!(clock.slipped(), Duration::ZERO);
    }

    #[test]
    fn a_slow_source_moves_the_schedule() {
        let start = Instant::now();
        let mut clock = FrameClock::new(start, INTERVAL);
        clock.due(start);
        let ready = start + Duration::from_millis(100);
        assert_eq!(clock.due(ready), ready);
        assert_eq!(clock.due(ready), ready + INTERVAL);
        assert_eq!(clock.slipped(), Duration::from_millis(60));
    }

    #[test]
    fn a_source_that_was_away_was_not_slow() {
        let start = Instant::now();
        let mut clock = FrameClock::new(start, INTERVAL);
        clock.due(start);
        let back = start + Duration::from_secs(5);
        clock.restart(back);
        assert_eq!(clock.due(back), back);
        assert_eq!(clock.slipped(), Duration::ZERO);
    }

    #[test]
    fn the_schedule_does_not_drift() {
        let start = Instant::now();
        let mut clock = FrameClock::new(start, Duration::from_secs_f64(1.0 / 30.0));
        let last = (0..=30_000).map(|_| clock.due(start)).last().unwrap();
        let error = (last - start).as_secs_f64() - 1000.0;
        assert!(error.abs() < 1e-4, "{error}");
    }
}
