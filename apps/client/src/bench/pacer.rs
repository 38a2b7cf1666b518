//! Determines when requests are due, on a thread of its own.
//!
//! Timers of async runtimes tick in milliseconds. This thread sleeps until the exact time instead (`clock_nanosleep`;
//! on Linux with a timer slack of a nanosecond, where 50 µs are usual) and never spins. It wakes at most every
//! [`WAKE_EVERY`]: at high rates it hands over all requests that became due in between, late by at most that span.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

/// Ten thousand wakes a second cost a few percent of a core.
const WAKE_EVERY: Duration = Duration::from_micros(100);
/// Due requests that the sender has not taken. More means that the sender lacks seconds of CPU time.
const DUE_MAX: usize = 65_536;
/// A sleep is cut into pieces of this length, so that the thread notices when to stop.
const SLEEP_MAX: Duration = Duration::from_millis(50);

/// A running pacer.
pub(crate) struct Pacer {
    pub(crate) due: mpsc::Receiver<Duration>,
    stop: Arc<AtomicBool>,
    /// Due requests for which there was no room.
    overrun: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Pacer {
    /// `start` is the origin of the due times.
    pub(crate) fn start(
        arrivals: impl Iterator<Item = Duration> + Send + 'static,
        start: Instant,
    ) -> Result<Self> {
        let (sender, due) = mpsc::channel(DUE_MAX);
        let stop = Arc::new(AtomicBool::new(false));
        let overrun = Arc::new(AtomicU64::new(0));
        let (stopped, lost) = (stop.clone(), overrun.clone());
        let thread = thread::Builder::new()
            .name("pacer".to_owned())
            .spawn(move || {
                sharpen_sleep();
                pace(arrivals, start, &sender, &stopped, &lost);
            })
            .context("cannot start a thread for the schedule")?;
        Ok(Pacer {
            due,
            stop,
            overrun,
            thread: Some(thread),
        })
    }

    /// From now on no request becomes due.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Requests that became due while [`DUE_MAX`] others waited; they were never sent.
    pub(crate) fn overrun(&self) -> u64 {
        self.overrun.load(Ordering::Relaxed)
    }
}

impl Drop for Pacer {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            // It wakes within SLEEP_MAX; a panic of it has been reported by then.
            let _ = thread.join();
        }
    }
}

fn pace(
    arrivals: impl Iterator<Item = Duration>,
    start: Instant,
    sender: &mpsc::Sender<Duration>,
    stop: &AtomicBool,
    overrun: &AtomicU64,
) {
    let mut awake = start;
    for due in arrivals {
        let at = start + due;
        if at > awake {
            let wake_at = at.max(awake + WAKE_EVERY);
            loop {
                let left = wake_at.saturating_duration_since(Instant::now());
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                if left.is_zero() {
                    break;
                }
                thread::sleep(left.min(SLEEP_MAX));
            }
            awake = Instant::now();
        }
        match sender.try_send(due) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                overrun.fetch_add(1, Ordering::Relaxed);
            }
            Err(TrySendError::Closed(_)) => return,
        }
    }
}

/// The kernel may delay a sleeper to wake several at once; this thread opts out.
fn sharpen_sleep() {
    #[cfg(target_os = "linux")]
    {
        // Where this is not allowed, requests are sent some 50 µs later, which the report shows.
        let _ = nix::sys::prctl::set_timerslack(1);
    }
}

#[cfg(test)]
mod tests {
    use super::super::arrivals::{Arrivals, Segment};
    use super::*;

    #[tokio::test]
    async fn all_arrivals_come_in_order_and_none_early() {
        let arrivals = Arrivals::even(vec![Segment {
            seconds: 0.2,
            rate: 5000.0,
        }]);
        let start = Instant::now() + Duration::from_millis(5);
        let mut pacer = Pacer::start(arrivals, start).unwrap();
        let mut last = None;
        let mut n = 0;
        while let Some(due) = pacer.due.recv().await {
            assert!(start.elapsed() >= due, "request {n} is early");
            assert!(last < Some(due));
            last = Some(due);
            n += 1;
        }
        assert_eq!((n, pacer.overrun()), (1000, 0));
    }

    #[test]
    fn a_stopped_pacer_ends_soon() {
        let arrivals = Arrivals::even(vec![Segment {
            seconds: 1e6,
            rate: 1e-3,
        }]);
        let pacer = Pacer::start(arrivals, Instant::now()).unwrap();
        let begun = Instant::now();
        drop(pacer);
        assert!(begun.elapsed() < Duration::from_secs(2));
    }
}
