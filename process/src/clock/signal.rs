//! What threads of a server wait for: a condition variable that knows the clock.

use parking_lot::{Condvar, MutexGuard};
use spillgate_pipeline::time::Timestamp;

use super::Clock;

/// Wakes threads that wait for something to change. What they wait for is behind one lock, and whoever changes it notifies afterwards.
#[derive(Debug)]
pub struct Signal {
    clock: Clock,
    condvar: Condvar,
    /// Its id among those of a test's clock.
    id: u64,
}

impl Signal {
    /// A signal that nobody waits for.
    pub fn new(clock: &Clock) -> Self {
        Signal {
            clock: clock.clone(),
            condvar: Condvar::new(),
            id: clock.test.as_ref().map_or(0, |time| time.next_signal()),
        }
    }

    /// Lets go of the lock until it is notified.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        match &self.clock.test {
            None => self.condvar.wait(guard),
            Some(time) => time.wait(self.id, Timestamp::MAX, guard),
        }
    }

    /// Lets go of the lock until it is notified, or until that time.
    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, until: Timestamp) {
        match &self.clock.test {
            None => {
                let until = self.clock.instant(until);
                self.condvar.wait_until(guard, until);
            }
            Some(time) => time.wait(self.id, until, guard),
        }
    }

    /// Wakes one thread that waits.
    pub fn notify_one(&self) {
        match &self.clock.test {
            None => {
                self.condvar.notify_one();
            }
            Some(time) => time.notify(self.id),
        }
    }
}
