//! Which workers take much longer than their fellows. They are set aside: they get no requests, and now and then one that shows
//! whether they are quick again.
//!
//! A worker that takes three times as long for a batch leaves its requests no time for the modules after it, and the device time
//! spent there is lost. Its fellows would serve them in time, or others in their place.
//!
//! A worker is compared with the median of all that serve, so a module whose input became slower loses no worker. One long batch
//! means nothing: the device may have paused, and is as quick as before. Where the time of a batch depends on what its requests
//! bring, all workers have long batches now and then: a batch is slow only if it is much longer than those, too.

use std::time::Duration;

use spillgate_pipeline::time::Timestamp;

/// A batch is slow that takes this many times as long as those of the fellows.
const SLOW: f64 = 2.0;
/// And this many times as long as the longest batches of the fellows.
const BEYOND: f64 = 1.5;
/// How much of its longest batch a worker remembers from batch to batch: half of it after 34.
const LONGEST_KEPT: f64 = 0.98;
/// A worker is set aside when so many of its last [`REMEMBERED`] batches were slow.
const SLOW_BATCHES: usize = 2;
/// See [`SLOW_BATCHES`].
pub(crate) const REMEMBERED: usize = 3;
/// A worker that is set aside gets a request this often. Long enough to cost little, short enough that a worker that is quick
/// again serves soon.
const TRIAL_PERIOD: Duration = Duration::from_millis(500);

/// A worker, by its last batches.
#[derive(Clone, Debug, Default)]
struct Worker {
    /// Measured over planned execution time of its last batches, the newest last.
    ratios: Vec<f64>,
    /// The same of its longest batch, forgotten slowly.
    longest: f64,
    /// When it is tried next. `None`: it is not set aside.
    tried_at: Option<Timestamp>,
}

impl Worker {
    fn usual(&self) -> Option<f64> {
        median(self.ratios.clone())
    }

    fn ran(&mut self, ratio: f64) {
        if self.ratios.len() == REMEMBERED {
            self.ratios.remove(0);
        }
        self.ratios.push(ratio);
        self.longest = ratio.max(LONGEST_KEPT * self.longest);
    }
}

/// The workers of a module, by ordinal.
#[derive(Debug)]
pub(super) struct SlowWorkers(Vec<Worker>);

impl SlowWorkers {
    /// None of so many workers is set aside.
    pub(super) fn new(n_workers: usize) -> Self {
        SlowWorkers(vec![Worker::default(); n_workers])
    }

    /// Another worker joins, as the last one.
    pub(super) fn join(&mut self) {
        self.0.push(Worker::default());
    }

    /// A worker is one of the module's no more. The last one has its ordinal from now on.
    pub(super) fn swap_remove(&mut self, ordinal: usize) {
        self.0.swap_remove(ordinal);
    }

    /// Whether a worker is set aside.
    pub(super) fn is_aside(&self, ordinal: usize) -> bool {
        self.0[ordinal].tried_at.is_some()
    }

    /// A worker ran a batch that took `ratio` times as long as planned. `serves`: which workers serve. Returns whether it changes
    /// sides: it is set aside, or no more.
    pub(super) fn ran(
        &mut self,
        now: Timestamp,
        ordinal: usize,
        ratio: f64,
        serves: impl Fn(usize) -> bool,
    ) -> bool {
        let others = (0..self.0.len()).filter(|&o| o != ordinal && serves(o) && !self.is_aside(o));
        let fellows = others.filter_map(|o| Some((self.0[o].usual()?, self.0[o].longest)));
        let (usual, longest): (Vec<f64>, Vec<f64>) = fellows.unzip();
        let worker = &mut self.0[ordinal];
        worker.ran(ratio);
        let (Some(usual), Some(longest)) = (median(usual), median(longest)) else {
            return false;
        };
        let is_slow = |ratio: &f64| *ratio > SLOW * usual && *ratio > BEYOND * longest;
        let changes = match worker.tried_at {
            None => worker.ratios.iter().filter(|r| is_slow(r)).count() >= SLOW_BATCHES,
            Some(_) => !is_slow(&ratio),
        };
        if changes {
            worker.ratios.clear();
            worker.tried_at = match worker.tried_at {
                None => Some(now + TRIAL_PERIOD),
                Some(_) => None,
            };
        }
        changes
    }

    /// What is known of a worker counts no more. Returns whether it was set aside.
    pub(super) fn forget(&mut self, ordinal: usize) -> bool {
        let was = std::mem::take(&mut self.0[ordinal]);
        was.tried_at.is_some()
    }

    /// When the next worker is to be tried.
    pub(super) fn next_trial(&self) -> Option<Timestamp> {
        self.0.iter().filter_map(|w| w.tried_at).min()
    }

    /// The workers that are to be tried now.
    pub(super) fn trials(&mut self, now: Timestamp) -> Vec<usize> {
        let mut due = Vec::new();
        for (ordinal, worker) in self.0.iter_mut().enumerate() {
            if worker.tried_at.is_some_and(|at| at <= now) {
                worker.tried_at = Some(now + TRIAL_PERIOD);
                due.push(ordinal);
            }
        }
        due
    }
}

/// The lower median.
fn median(mut of: Vec<f64>) -> Option<f64> {
    of.sort_unstable_by(f64::total_cmp);
    of.get(of.len().saturating_sub(1) / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_ns(ms * 1_000_000)
    }

    /// Each of three workers ran three batches as planned.
    fn three() -> SlowWorkers {
        let mut workers = SlowWorkers::new(3);
        for ordinal in [0, 1, 2].repeat(3) {
            assert!(!workers.ran(at(0), ordinal, 1.0, |_| true));
        }
        workers
    }

    #[test]
    fn a_slow_worker_is_set_aside_and_tried_until_it_is_quick() {
        let mut workers = three();
        assert!(
            !workers.ran(at(100), 1, 3.0, |_| true),
            "it may have paused"
        );
        assert!(workers.ran(at(200), 1, 3.0, |_| true));
        assert!(workers.is_aside(1));
        assert_eq!(workers.next_trial(), Some(at(700)));
        assert!(workers.trials(at(600)).is_empty());
        assert_eq!(workers.trials(at(700)), [1]);
        assert!(!workers.ran(at(900), 1, 3.0, |_| true));
        assert_eq!(workers.trials(at(1200)), [1]);
        assert!(workers.ran(at(1300), 1, 1.0, |_| true));
        assert!(!workers.is_aside(1));
    }

    #[test]
    fn a_worker_that_pauses_now_and_then_serves() {
        let mut workers = three();
        for i in 0..30 {
            let ratio = if i % 3 == 0 { 4.0 } else { 1.0 };
            assert!(!workers.ran(at(100 * i), 1, ratio, |_| true));
        }
    }

    /// Seed 2865 of the swarm: a client whose requests take twice as long had healthy workers set aside, and the entry gate refused
    /// what they would have served.
    #[test]
    fn workers_whose_requests_differ_serve_and_a_slow_one_of_them_does_not() {
        let mut workers = SlowWorkers::new(3);
        let ratio = |i: usize| [1.0, 1.0, 2.3, 2.2, 1.1][i * 7 % 5];
        for i in 0..300 {
            assert!(!workers.ran(at(0), i % 3, ratio(i / 3), |_| true), "{i}");
        }
        let mut slow = (0..10).filter(|i| workers.ran(at(0), 1, 3.0 * ratio(*i), |_| true));
        assert!(slow.next().is_some_and(|i| i <= 6));
    }

    #[test]
    fn where_all_are_slow_nobody_is() {
        let mut workers = three();
        let slow = |workers: &mut SlowWorkers, o| workers.ran(at(100), o, 3.0, |_| true);
        let changes = [0, 1, 2]
            .repeat(4)
            .into_iter()
            .map(|o| slow(&mut workers, o));
        // Whoever was quicker to slow down is back with its next batch.
        let n = changes.filter(|changes| *changes).count();
        assert!(n % 2 == 0, "{n}");
        assert!((0..3).all(|o| !workers.is_aside(o)));
    }

    #[test]
    fn a_worker_without_fellows_serves() {
        let mut workers = three();
        for _ in 0..9 {
            assert!(!workers.ran(at(0), 1, 9.0, |o| o == 1));
        }
    }
}
