//! The schedule of frames: open loop, whether or not answers came. Frames are due at equal distances, at the times that their source gives
//! them, or when they come.
//!
//! A frame cannot be sent before the source has made it. When the source is behind by more than [`TOLERANCE`], the
//! schedule moves with it, so that a slow source shows as a low rate and not as growing latencies.

use std::time::Duration;

use tokio::time::Instant;

/// The resolution of timers and of two threads taking turns.
const TOLERANCE: Duration = Duration::from_millis(5);

/// When frames are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pacing {
    /// At equal distances.
    Even,
    /// At the times that the source gives them.
    Own,
    /// When they come.
    Live,
}

/// The schedule of one stream.
#[derive(Clone, Debug)]
pub(crate) struct FrameClock {
    pacing: Pacing,
    /// When the next frame is due; of those with times of their own, the one at time zero.
    next: Instant,
    /// Usual distance of two frames.
    interval: Duration,
    slipped: Duration,
}

impl FrameClock {
    pub(crate) fn new(pacing: Pacing, start: Instant, interval: Duration) -> Self {
        FrameClock {
            pacing,
            next: start,
            interval,
            slipped: Duration::ZERO,
        }
    }

    /// When the frame is due that became ready at `ready_at`, and whose time by its source is `at`. Call it once a frame.
    pub(crate) fn due(&mut self, ready_at: Instant, at: Duration) -> Instant {
        let at = match self.pacing {
            Pacing::Live => return ready_at,
            Pacing::Own => at,
            Pacing::Even => Duration::ZERO,
        };
        let behind = ready_at.saturating_duration_since(self.next + at);
        if behind > TOLERANCE {
            self.slipped += behind;
            self.next += behind;
        }
        let due = self.next + at;
        if self.pacing == Pacing::Even {
            self.next += self.interval;
        }
        due
    }

    /// The source was away: its next frame is due when it is ready, and does not count as delayed.
    pub(crate) fn restart(&mut self, ready_at: Instant, at: Duration) {
        let at = match self.pacing {
            Pacing::Own => at,
            Pacing::Even | Pacing::Live => Duration::ZERO,
        };
        self.next += ready_at.saturating_duration_since(self.next + at);
    }

    /// The usual rate of the schedule.
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
        let mut clock = FrameClock::new(Pacing::Even, start, INTERVAL);
        // Ready far ahead, or a little late: the schedule stands.
        for (n, ready_ms) in [(0, 0), (1, 1), (2, 84), (3, 3), (4, 160)] {
            let due = clock.due(start + Duration::from_millis(ready_ms), Duration::ZERO);
            assert_eq!(due - start, INTERVAL * n, "frame {n}");
        }
        assert_eq!(clock.slipped(), Duration::ZERO);
    }

    #[test]
    fn a_slow_source_moves_the_schedule() {
        let start = Instant::now();
        let mut clock = FrameClock::new(Pacing::Even, start, INTERVAL);
        clock.due(start, Duration::ZERO);
        let ready = start + Duration::from_millis(100);
        assert_eq!(clock.due(ready, Duration::ZERO), ready);
        assert_eq!(clock.due(ready, Duration::ZERO), ready + INTERVAL);
        assert_eq!(clock.slipped(), Duration::from_millis(60));
    }

    #[test]
    fn a_source_that_was_away_was_not_slow() {
        let start = Instant::now();
        let mut clock = FrameClock::new(Pacing::Even, start, INTERVAL);
        clock.due(start, Duration::ZERO);
        let back = start + Duration::from_secs(5);
        clock.restart(back, Duration::ZERO);
        assert_eq!(clock.due(back, Duration::ZERO), back);
        assert_eq!(clock.slipped(), Duration::ZERO);
    }

    #[test]
    fn frames_with_times_of_their_own_keep_them_and_a_slow_source_moves_all() {
        let start = Instant::now();
        let mut clock = FrameClock::new(Pacing::Own, start, INTERVAL);
        let ms = Duration::from_millis;
        for (at, ready, due) in [
            (0, 0, 0),
            (10, 0, 10),
            (500, 20, 500),
            (510, 600, 600),
            (600, 610, 690),
        ] {
            assert_eq!(
                clock.due(start + ms(ready), ms(at)) - start,
                ms(due),
                "{at}"
            );
        }
        assert_eq!(clock.slipped(), ms(90));
    }

    #[test]
    fn live_frames_are_due_when_they_come() {
        let start = Instant::now();
        let mut clock = FrameClock::new(Pacing::Live, start, INTERVAL);
        for ready in [3, 5, 900, 901].map(|ready| start + Duration::from_millis(ready)) {
            assert_eq!(clock.due(ready, Duration::ZERO), ready);
        }
        assert_eq!(clock.slipped(), Duration::ZERO);
    }

    #[test]
    fn the_schedule_does_not_drift() {
        let start = Instant::now();
        let mut clock = FrameClock::new(Pacing::Even, start, Duration::from_secs_f64(1.0 / 30.0));
        let last = (0..=30_000)
            .map(|_| clock.due(start, Duration::ZERO))
            .last()
            .unwrap();
        let error = (last - start).as_secs_f64() - 1000.0;
        assert!(error.abs() < 1e-4, "{error}");
    }
}
