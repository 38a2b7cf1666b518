//! The one rule of everything that is learnt here and can refuse work. What is refused does not run, and so does not show that what was
//! learnt is wrong. Therefore:
//!
//! - what was learnt above its prior fades towards the prior once nothing confirms it, so that sooner or later the refused work is tried;
//! - the first measurement after that decides: if it is nearer to what was learnt, that counts again as before, so a device that really is
//!   slow runs a single action in vain; if it is nearer to what had faded, learning goes on from there;
//! - one measurement counts as at most [`LEAP_MAX`] times what was expected.
//!
//! What was learnt below its prior does not fade: it refuses nothing.

use std::time::Duration;

use crate::time::Timestamp;

/// So long nothing fades: a device that works measures more often.
const KEPT: Duration = Duration::from_secs(2);
/// Then half of what is above the prior fades in this time.
const HALF: Duration = Duration::from_secs(1);
/// One measurement counts as at most so many times what was expected: a device that paused is not slow.
pub(super) const LEAP_MAX: f64 = 3.0;

/// When a learnt value was last confirmed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fading {
    confirmed_at: Timestamp,
}

impl Fading {
    /// Something was measured.
    pub(super) fn confirm(&mut self, now: Timestamp) {
        self.confirmed_at = now;
    }

    /// What is expected now, where that was learnt.
    pub(super) fn of(&self, now: Timestamp, prior: f64, learnt: f64) -> f64 {
        let silent = now.since(self.confirmed_at);
        if learnt <= prior || silent <= KEPT {
            return learnt;
        }
        let halves = (silent - KEPT).as_secs_f64() / HALF.as_secs_f64();
        prior + (learnt - prior) * (-halves).exp2()
    }
}

/// Which of two expectations a measurement is nearer to, as a ratio: what was learnt, or what is left of it.
pub(super) fn nearer(measured: f64, learnt: f64, faded: f64) -> f64 {
    // In the middle between both, on the scale of ratios.
    match measured * measured >= learnt * faded {
        true => learnt,
        false => faded,
    }
}
