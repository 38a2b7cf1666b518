//! The process's clock: monotonic nanoseconds since an hour before it was made. Threads that wait for a time,
//! or for each other, wait by it.
//!
//! A [`TestClock`] stands still until its test moves it on, and moves only while all threads of the server wait: whatever they do takes no
//! time but that which they sleep by it, so what a server does in a test is exact.

mod signal;
mod test;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use spillgate_pipeline::time::Timestamp;

pub use signal::Signal;
pub use test::TestClock;
use test::TestHold;

/// What a clock shows when it is made. Other processes send times from before this one began; they are times of its clock, too.
const SHOWN_FIRST: Duration = Duration::from_secs(3600);
/// Shorter spans are not waited for: waiting would cost more than they last.
const NO_WAIT: Duration = Duration::from_micros(5);

/// Monotonic time of this process. Clones agree with each other.
#[derive(Clone, Debug)]
pub struct Clock {
    epoch: Instant,
    /// Moved by a test.
    test: Option<Arc<test::Time>>,
}

impl Clock {
    /// The machine's clock, from now on.
    pub fn start() -> Self {
        let now = Instant::now();
        // A machine that was started just now may have no such instant.
        let epoch = now.checked_sub(SHOWN_FIRST).unwrap_or(now);
        Clock { epoch, test: None }
    }

    /// Now.
    pub fn now(&self) -> Timestamp {
        match &self.test {
            None => Timestamp::from_ns(self.epoch.elapsed().as_nanos() as u64),
            Some(time) => time.now(),
        }
    }

    /// `Timestamp::ZERO` on the wall clock, as that goes at this moment: another time after somebody has set it. A test's clock
    /// began with Unix time.
    pub fn epoch_wall(&self) -> SystemTime {
        match &self.test {
            None => SystemTime::now() - self.epoch.elapsed(),
            Some(_) => SystemTime::UNIX_EPOCH,
        }
    }

    /// Waits until `span` after `start`. On a thread with [exact timers](use_exact_timers) and an idle core this is within 0.1 ms.
    pub fn occupy(&self, start: Timestamp, span: Duration) {
        if span < NO_WAIT {
            return;
        }
        match &self.test {
            None => {
                let left = span.checked_sub(self.now().since(start));
                left.into_iter().for_each(std::thread::sleep);
            }
            Some(time) => time.sleep_until(start + span),
        }
    }

    /// Starts a thread that may wait by this clock.
    ///
    /// # Errors
    /// When the system gives none.
    pub fn spawn<T: Send + 'static>(
        &self,
        name: impl Into<String>,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> std::io::Result<JoinHandle<T>> {
        let hold = self.hold();
        let thread = std::thread::Builder::new().name(name.into());
        thread.spawn(move || {
            let _hold = hold.on_this_thread();
            run()
        })
    }

    /// Keeps a test's clock still until this is dropped: something happens now. The machine's clock cannot be kept.
    pub fn hold(&self) -> Hold {
        Hold(self.test.clone().map(TestHold::new))
    }

    fn instant(&self, at: Timestamp) -> Instant {
        self.epoch + Duration::from_nanos(at.as_ns())
    }
}

/// Makes this thread wake from sleep as exactly as the kernel can, instead of within its usual 50 microseconds of
/// slack. Call it once on a device thread. Where the kernel refuses, sleeps stay coarser.
pub fn use_exact_timers() {
    if let Err(error) = nix::sys::prctl::set_timerslack(1) {
        tracing::warn!(%error, "emulated devices will be less exact: no control over timer slack");
    }
}

/// See [`Clock::hold`].
#[must_use = "it holds the clock until it is dropped"]
pub struct Hold(Option<TestHold>);

impl Hold {
    /// The thread gives it back while it waits.
    fn on_this_thread(self) -> Self {
        if self.0.is_some() {
            test::may_wait();
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_wakes_early() {
        use_exact_timers();
        let clock = Clock::start();
        for us in [0, 3, 200, 3_300] {
            let (start, span) = (clock.now(), Duration::from_micros(us));
            clock.occupy(start, span);
            let took = clock.now().since(start);
            assert!(took >= span || span < NO_WAIT, "{took:?} of {span:?}");
        }
    }
}
