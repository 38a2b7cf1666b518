//! Time that a test moves.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use spillgate_pipeline::time::Timestamp;

use super::{Clock, SHOWN_FIRST};

/// Threads that find no rest for so long have lost their way, and their test fails. It is real time, and no test comes near it.
const PATIENCE: Duration = Duration::from_secs(120);
/// The id of no signal: a thread sleeps.
const NO_SIGNAL: u64 = 0;

thread_local! {
    /// Whether this thread has a [`TestHold`] of its own, which it gives back while it waits.
    static MAY_WAIT: Cell<bool> = const { Cell::new(false) };
}

/// This thread waits by a test's clock, and holds it otherwise.
pub(super) fn may_wait() {
    MAY_WAIT.set(true);
}

/// What the clones of a test's clock share.
#[derive(Debug, Default)]
pub(super) struct Time {
    now: AtomicU64,
    signals: AtomicU64,
    state: Mutex<State>,
    /// Nothing holds the clock any more.
    rested: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// What happens now, and must be over before the clock moves.
    held: usize,
    /// Threads that wait, in the order in which they began to.
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    signal: u64,
    until: Timestamp,
    thread: Arc<Sleeper>,
}

#[derive(Debug)]
struct Sleeper {
    thread: Thread,
    is_woken: AtomicBool,
}

impl State {
    /// Lets one of those that wait go on.
    fn wake(&mut self, index: usize) {
        let Waiting { thread, .. } = self.waiting.remove(index);
        self.held += 1;
        thread.is_woken.store(true, Ordering::Release);
        thread.thread.unpark();
    }

    /// The one that wakes first, with its place; of equal ones that which has waited longest.
    fn first(&self) -> Option<(usize, Timestamp)> {
        let all = self.waiting.iter().map(|w| w.until).enumerate();
        all.filter(|(_, until)| *until < Timestamp::MAX)
            .min_by_key(|(index, until)| (*until, *index))
    }
}

impl Time {
    pub(super) fn now(&self) -> Timestamp {
        Timestamp::from_ns(self.now.load(Ordering::Acquire))
    }

    pub(super) fn next_signal(&self) -> u64 {
        self.signals.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn sleep_until(&self, until: Timestamp) {
        if until <= self.now() {
            return;
        }
        let sleeper = self.begin_wait(NO_SIGNAL, until);
        sleeper.wait();
    }

    /// Who notifies has changed what is behind the lock before, so nothing is missed.
    pub(super) fn wait<T>(&self, signal: u64, until: Timestamp, guard: &mut MutexGuard<'_, T>) {
        if until <= self.now() {
            return;
        }
        let sleeper = self.begin_wait(signal, until);
        MutexGuard::unlocked(guard, || sleeper.wait());
    }

    fn begin_wait(&self, signal: u64, until: Timestamp) -> Arc<Sleeper> {
        assert!(
            MAY_WAIT.get(),
            "a thread that waits by a test's clock is started by Clock::spawn"
        );
        let thread = Arc::new(Sleeper {
            thread: std::thread::current(),
            is_woken: AtomicBool::new(false),
        });
        let mut state = self.state.lock();
        state.waiting.push(Waiting {
            signal,
            until,
            thread: thread.clone(),
        });
        self.let_go(&mut state);
        thread
    }

    pub(super) fn notify(&self, signal: u64) {
        let mut state = self.state.lock();
        if let Some(index) = state.waiting.iter().position(|w| w.signal == signal) {
            state.wake(index);
        }
    }

    fn let_go(&self, state: &mut State) {
        state.held -= 1;
        if state.held == 0 {
            self.rested.notify_all();
        }
    }

    /// Waits until nothing happens any more.
    fn rest(&self) -> MutexGuard<'_, State> {
        let give_up = Instant::now() + PATIENCE;
        let mut state = self.state.lock();
        while state.held > 0 {
            let waited = self.rested.wait_until(&mut state, give_up);
            assert!(
                !waited.timed_out() || state.held == 0,
                "{} of a server's threads do not wait",
                state.held
            );
        }
        state
    }
}

impl Sleeper {
    fn wait(&self) {
        while !self.is_woken.load(Ordering::Acquire) {
            std::thread::park();
        }
    }
}

/// Something that happens at a moment of a test's clock.
pub(super) struct TestHold {
    time: Arc<Time>,
}

impl TestHold {
    pub(super) fn new(time: Arc<Time>) -> Self {
        time.state.lock().held += 1;
        TestHold { time }
    }
}

impl Drop for TestHold {
    fn drop(&mut self) {
        let mut state = self.time.state.lock();
        self.time.let_go(&mut state);
    }
}

/// A clock that stands still until its test moves it.
///
/// It waits until all threads that [`Clock::spawn`] started wait, and all that holds it is over; then it wakes those whose time has come, one
/// after the other. So what happens at one moment is over before the next one begins.
#[derive(Debug)]
pub struct TestClock {
    clock: Clock,
    time: Arc<Time>,
}

impl Default for TestClock {
    fn default() -> Self {
        let time = Arc::new(Time::default());
        time.now
            .store(SHOWN_FIRST.as_nanos() as u64, Ordering::Release);
        let clock = Clock {
            epoch: Instant::now(),
            test: Some(time.clone()),
        };
        TestClock { clock, time }
    }
}

impl TestClock {
    /// What servers are given.
    pub fn clock(&self) -> Clock {
        self.clock.clone()
    }

    /// What it shows.
    pub fn now(&self) -> Timestamp {
        self.time.now()
    }

    /// Waits until nothing more happens at this moment.
    ///
    /// # Panics
    /// When threads do not come to rest for two minutes, as the others do.
    pub fn settle(&self) {
        drop(self.time.rest());
    }

    /// Moves on by that much.
    pub fn advance(&self, span: Duration) {
        self.advance_to(self.now() + span);
    }

    /// Moves on to that time, which is no earlier than now, and over all that happens until then.
    pub fn advance_to(&self, at: Timestamp) {
        while self.step_until(at) {}
        self.time.now.store(at.as_ns(), Ordering::Release);
    }

    /// Moves on to the next moment at which something happens. False when nothing will.
    pub fn step(&self) -> bool {
        let something = self.step_until(Timestamp::MAX);
        self.settle();
        something
    }

    /// Wakes the first thread that waits for a time until `at`. False when none does.
    fn step_until(&self, at: Timestamp) -> bool {
        let mut state = self.time.rest();
        let Some((index, until)) = state.first().filter(|(_, until)| *until <= at) else {
            return false;
        };
        let now = self.now().max(until);
        self.time.now.store(now.as_ns(), Ordering::Release);
        state.wake(index);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::super::Signal;
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// What threads said, and when.
    fn said(said: &Receiver<(&'static str, Timestamp)>, since: Timestamp) -> Vec<(String, u128)> {
        let all = said.try_iter();
        all.map(|(who, at)| (who.to_owned(), at.since(since).as_millis()))
            .collect()
    }

    #[test]
    fn threads_that_sleep_wake_at_their_time_in_order() {
        let test = TestClock::default();
        let (say, heard) = channel();
        let begin = test.now();
        for (who, each) in [("slow", 3), ("quick", 1), ("equal", 3)] {
            let (clock, say) = (test.clock(), say.clone());
            // One after the other, so that equal ones began to wait in this order.
            let thread = test.clock().spawn(who, move || {
                for _ in 0..2 {
                    clock.occupy(clock.now(), MS * each);
                    say.send((who, clock.now())).unwrap();
                }
            });
            thread.unwrap();
            test.settle();
        }
        assert!(said(&heard, begin).is_empty(), "the clock stands still");
        test.advance(MS * 5);
        let expected = [("quick", 1), ("quick", 2), ("slow", 3), ("equal", 3)];
        let expected = expected.map(|(who, at)| (who.to_owned(), at));
        assert_eq!(said(&heard, begin), expected);
        assert_eq!(test.now(), begin + MS * 5);
        test.step();
        assert_eq!(said(&heard, begin), [("slow".to_owned(), 6)]);
    }

    #[test]
    fn the_clock_waits_for_what_a_signal_sets_off() {
        let test = TestClock::default();
        let (say, heard) = channel();
        let shared = Arc::new((Mutex::new(0), Signal::new(&test.clock())));
        let begin = test.now();
        let worker = test.clock().spawn("worker", {
            let (shared, clock) = (shared.clone(), test.clock());
            move || {
                let (work, signal) = &*shared;
                for _ in 0..3 {
                    let mut left = work.lock();
                    while *left == 0 {
                        signal.wait(&mut left);
                    }
                    *left -= 1;
                    drop(left);
                    // Work takes a while of real time, and none of the clock's.
                    (0..1000).for_each(|_| std::thread::yield_now());
                    say.send(("worked", clock.now())).unwrap();
                }
            }
        });
        let source = test.clock().spawn("source", {
            let (shared, clock) = (shared.clone(), test.clock());
            move || {
                for _ in 0..3 {
                    clock.occupy(clock.now(), MS * 10);
                    *shared.0.lock() += 1;
                    shared.1.notify_one();
                }
            }
        });
        for round in 1..=3 {
            test.advance(MS * 10);
            let expected = [("worked".to_owned(), 10 * round)];
            assert_eq!(said(&heard, begin), expected);
        }
        source.unwrap().join().unwrap();
        worker.unwrap().join().unwrap();
    }

    #[test]
    fn a_wait_ends_at_its_time_or_with_a_signal() {
        let test = TestClock::default();
        let (say, heard) = channel();
        let shared = Arc::new((Mutex::new(()), Signal::new(&test.clock())));
        let begin = test.now();
        let waits = test.clock().spawn("waits", {
            let (shared, clock) = (shared.clone(), test.clock());
            move || {
                for _ in 0..2 {
                    let mut guard = shared.0.lock();
                    shared.1.wait_until(&mut guard, clock.now() + MS * 10);
                    say.send(("woke", clock.now())).unwrap();
                }
            }
        });
        test.advance(MS * 4);
        shared.1.notify_one();
        test.advance(MS * 100);
        let expected = [4, 14].map(|at| ("woke".to_owned(), at));
        assert_eq!(said(&heard, begin), expected);
        waits.unwrap().join().unwrap();
    }

    #[test]
    fn what_holds_the_clock_is_over_before_it_moves() {
        let test = TestClock::default();
        let hold = test.clock().hold();
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = std::thread::spawn({
            let is_over = is_over.clone();
            move || {
                (0..1000).for_each(|_| std::thread::yield_now());
                is_over.store(true, Ordering::Release);
                drop(hold);
            }
        });
        test.advance(MS);
        assert!(is_over.load(Ordering::Acquire));
        ends.join().unwrap();
    }
}
