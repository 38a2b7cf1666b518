//! Pauses between attempts to reach something that was lost. The number of attempts has no bound, since a camera may
//! be away for a night; their rate has.

use std::time::Duration;

/// First pause. A server or camera that only restarts is back within a few of these.
const PAUSE_MIN: Duration = Duration::from_millis(250);
/// Longest pause: who is back is noticed within it, and an attempt in it costs little.
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Pauses that double.
#[derive(Clone, Debug)]
pub(super) struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff { next: PAUSE_MIN }
    }
}

impl Backoff {
    /// The pause before the next attempt.
    pub(super) fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(PAUSE_MAX);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u128> = (0..8).map(|_| backoff.pause().as_millis()).collect();
        assert_eq!(pauses, [250, 500, 1000, 2000, 2000, 2000, 2000, 2000]);
    }
}
