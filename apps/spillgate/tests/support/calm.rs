//! Whether the machine was calm while a test compared times.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A machine is calm while a thread that sleeps wakes so much too late at most, on average. Beyond, it is busy elsewhere, and a
/// difference is its own.
const CALM: Duration = Duration::from_micros(200);

/// Watches the machine until it is asked.
pub(crate) struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Duration>,
}

impl Watch {
    pub(crate) fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let until = stop.clone();
        let thread = std::thread::spawn(move || lateness(&until));
        Watch { stop, thread }
    }

    /// Whether the machine was calm meanwhile.
    pub(crate) fn was_calm(self) -> bool {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap() <= CALM
    }
}

/// How much too late a thread wakes that sleeps again and again until `stop` is set, on average.
fn lateness(stop: &AtomicBool) -> Duration {
    const NAP: Duration = Duration::from_millis(4);
    let (mut late, mut n) = (Duration::ZERO, 0);
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        std::thread::sleep(NAP);
        late += start.elapsed().saturating_sub(NAP);
        n += 1;
    }
    late / n.max(1)
}
