//! Emulated execution: it takes the time of the profile and computes nothing. Its outputs are marked as emulated.

use std::time::{Duration, Instant};

/// Shorter spans are not waited for: waiting would cost more than they last.
const NO_WAIT: Duration = Duration::from_micros(5);

/// Makes this thread wake from sleep as exactly as the kernel can, instead of within its usual 50 microseconds of
/// slack. Call it once on a device thread. Where the kernel refuses, sleeps stay coarser.
pub fn use_exact_timers() {
    if let Err(error) = nix::sys::prctl::set_timerslack(1) {
        tracing::warn!(%error, "emulated devices will be less exact: no control over timer slack");
    }
}

/// Waits until `span` after `start`. With [`use_exact_timers`] within 0.1 ms on an idle core.
pub fn occupy(start: Instant, span: Duration) {
    if span < NO_WAIT {
        return;
    }
    if let Some(left) = span.checked_sub(start.elapsed()) {
        std::thread::sleep(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emulated_time_is_exact_to_a_tenth_of_a_millisecond() {
        std::thread::spawn(|| {
            use_exact_timers();
            let span = Duration::from_micros(3_300);
            let median_error = || {
                let mut errors: Vec<Duration> = (0..40)
                    .map(|_| {
                        let start = Instant::now();
                        occupy(start, span);
                        start.elapsed().checked_sub(span).expect("never early")
                    })
                    .collect();
                errors.sort_unstable();
                errors[20]
            };
            // The best of a few medians: other work on the machine delays sleeps, too.
            let best = (0..5).map(|_| median_error()).min().unwrap();
            assert!(best < Duration::from_micros(100), "median error {best:?}");
        })
        .join()
        .unwrap();
    }
}
