//! Threads that wake policies at the time they ask for: one for the devices, one for the planners, whose estimates must
//! not hold up a deadline. The thread of a device that runs a batch cannot watch the deadlines of waiting requests, and
//! the resolution of an async timer, 1 ms, would be too coarse.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use spillgate_pipeline::time::Timestamp;
use spillgate_process::clock::{Clock, Signal, use_exact_timers};

/// A policy, or a group of policies, to be woken.
pub trait Sleeper: Send + Sync {
    /// The armed time has come. Returns the next one, if any.
    fn wake(&self, now: Timestamp) -> Option<Timestamp>;
}

struct Slot {
    sleeper: Arc<dyn Sleeper>,
    armed: Arc<AtomicU64>,
}

#[derive(Default)]
struct State {
    slots: Vec<Slot>,
    stopped: bool,
}

struct Shared {
    clock: Clock,
    state: Mutex<State>,
    changed: Signal,
}

/// A timer thread; stops when dropped.
pub struct TimerThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    watch: TimerWatch,
}

/// Tells whether a timer thread still wakes its sleepers. If one of them has panicked, none is woken any more.
#[derive(Clone)]
pub struct TimerWatch {
    name: Arc<str>,
    alive: Arc<AtomicBool>,
}

impl TimerWatch {
    /// Name of the thread.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// False once it panicked.
    pub fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }
}

/// Notes the end of a thread that panics.
struct Mourner(TimerWatch);

impl Drop for Mourner {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(
                thread = self.0.name(),
                "died; nothing is woken by it any more"
            );
            self.0.alive.store(false, Ordering::Release);
        }
    }
}

/// Arms one sleeper.
#[derive(Clone)]
pub struct Alarm {
    shared: Arc<Shared>,
    armed: Arc<AtomicU64>,
}

impl TimerThread {
    /// Starts it, with that name for the thread.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(clock: &Clock, name: &str) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            changed: Signal::new(clock),
            clock: clock.clone(),
            state: Mutex::default(),
        });
        let watch = TimerWatch {
            name: name.into(),
            alive: Arc::new(AtomicBool::new(true)),
        };
        let thread = clock.spawn(name, {
            let shared = shared.clone();
            let mourner = Mourner(watch.clone());
            move || {
                let _mourner = mourner;
                run(&shared);
            }
        })?;
        Ok(TimerThread {
            shared,
            thread: Some(thread),
            watch,
        })
    }

    /// Tells whether it lives.
    pub fn watch(&self) -> TimerWatch {
        self.watch.clone()
    }

    /// Adds a sleeper, not armed yet.
    pub fn add(&self, sleeper: Arc<dyn Sleeper>) -> Alarm {
        let armed = Arc::new(AtomicU64::new(u64::MAX));
        self.shared.state.lock().slots.push(Slot {
            sleeper,
            armed: armed.clone(),
        });
        Alarm {
            shared: self.shared.clone(),
            armed,
        }
    }
}

impl Alarm {
    /// Wakes the sleeper at `at` or earlier: one that is armed for an earlier time already stays so, and
    /// re-arms itself then. That keeps the common case, a later deadline, to one atomic read.
    pub fn arm(&self, at: Timestamp) {
        if self.armed.fetch_min(at.as_ns(), Ordering::AcqRel) > at.as_ns() {
            // The lock orders this against the thread's look at all slots before it sleeps.
            drop(self.shared.state.lock());
            self.shared.changed.notify_one();
        }
    }
}

impl Drop for TimerThread {
    fn drop(&mut self) {
        self.shared.state.lock().stopped = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // Sleepers hold alarms, which hold this.
        let slots = std::mem::take(&mut self.shared.state.lock().slots);
        drop(slots);
    }
}

fn run(shared: &Shared) {
    // The kernel's usual slack of 50 microseconds is a quarter of the lead by which batches are bound.
    use_exact_timers();
    let mut due: Vec<(Arc<dyn Sleeper>, Arc<AtomicU64>)> = Vec::new();
    let mut state = shared.state.lock();
    while !state.stopped {
        let now = shared.clock.now();
        let mut next = u64::MAX;
        for slot in &state.slots {
            let at = slot.armed.load(Ordering::Acquire);
            if at <= now.as_ns() {
                slot.armed.store(u64::MAX, Ordering::Release);
                due.push((slot.sleeper.clone(), slot.armed.clone()));
            } else {
                next = next.min(at);
            }
        }
        if due.is_empty() {
            if next == u64::MAX {
                shared.changed.wait(&mut state);
            } else {
                let until = Timestamp::from_ns(next);
                shared.changed.wait_until(&mut state, until);
            }
            continue;
        }
        // Woken without the lock: a sleeper may arm others.
        parking_lot::MutexGuard::unlocked(&mut state, || {
            for (sleeper, armed) in due.drain(..) {
                if let Some(at) = sleeper.wake(now) {
                    armed.fetch_min(at.as_ns(), Ordering::AcqRel);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use spillgate_process::clock::TestClock;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    struct Probe {
        woken: Mutex<mpsc::Sender<Timestamp>>,
        again: Mutex<Option<Timestamp>>,
    }

    impl Sleeper for Probe {
        fn wake(&self, now: Timestamp) -> Option<Timestamp> {
            self.woken.lock().send(now).unwrap();
            self.again.lock().take()
        }
    }

    #[test]
    fn wakes_on_time_and_again_when_asked() {
        let test = TestClock::default();
        let timers = TimerThread::start(&test.clock(), "timer").unwrap();
        let (woken, heard) = mpsc::channel();
        let (first, again) = (test.now() + 30 * MS, test.now() + 60 * MS);
        let probe = Probe {
            woken: Mutex::new(woken),
            again: Mutex::new(Some(again)),
        };
        let alarm = timers.add(Arc::new(probe));
        alarm.arm(first + Duration::from_secs(3600));
        alarm.arm(first);
        test.advance(Duration::from_secs(1));
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), [first, again]);
    }

    struct Panics;

    impl Sleeper for Panics {
        fn wake(&self, _: Timestamp) -> Option<Timestamp> {
            panic!("told to")
        }
    }

    #[test]
    fn a_thread_that_panics_is_known_to_be_dead() {
        let test = TestClock::default();
        let timers = TimerThread::start(&test.clock(), "mortal").unwrap();
        let watch = timers.watch();
        test.settle();
        assert!(watch.is_alive());
        timers.add(Arc::new(Panics)).arm(test.now());
        test.settle();
        assert!(!watch.is_alive(), "{} lives", watch.name());
    }
}
