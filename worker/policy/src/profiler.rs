//! The profiler of a device (ORLOJ §4.1): a sample of the finished requests runs again, alone, while the device has
//! nothing else to do, and tells how long such requests are.
//!
//! A batch shows the time of its members together. The time of a request alone shows only when it runs alone. So one
//! member of each batch of several is kept, and runs again once the device has been without work for [`QUIET`]. A rerun
//! is not interrupted: a request that arrives meanwhile waits for its end. Therefore reruns take at most [`SHARE_MAX`]
//! of the time in which the device has no work. At most that part of the requests waits for a rerun; on a busy device
//! hardly any request does. The paper samples 1 % of the requests and gives no bound in time. A request that ran alone
//! anyway is a sample at no cost and is never kept.
//!
//! Invariants: at most [`KEPT_MAX`] requests of a worker are kept; each runs again once at most; before a rerun, the
//! device was without work for `took / SHARE_MAX` of the one before.

use std::collections::VecDeque;
use std::time::Duration;

use spillgate_pipeline::id::{RequestId, WorkerId};
use spillgate_pipeline::request::ModelChoice;
use spillgate_pipeline::schedule::Application;
use spillgate_pipeline::time::Timestamp;

/// Reruns may take this part of the time in which a device has no work.
pub const SHARE_MAX: f64 = 0.02;
/// Most requests of a worker that are kept to run again. The oldest make room.
pub const KEPT_MAX: usize = 4;
/// How long a device must have been without work: longer than requests take from one module to the next.
pub const QUIET: Duration = Duration::from_millis(5);

const _: () = assert!(0.0 < SHARE_MAX && SHARE_MAX < 1.0);
const _: () = assert!(KEPT_MAX > 0);

/// A finished request that may run again.
#[derive(Debug)]
pub(crate) struct RerunCandidate<T> {
    pub(crate) worker: WorkerId,
    pub(crate) request: RequestId,
    pub(crate) application: Application,
    pub(crate) model: ModelChoice,
    pub(crate) payload: T,
}

/// What to run again, and when.
#[derive(Debug)]
pub(crate) struct Profiler<T> {
    /// In order of their end.
    candidates: VecDeque<RerunCandidate<T>>,
    /// Since when the device has had no work, if it has none.
    idle_since: Option<Timestamp>,
    /// Time without work, from `idle_since`, that must pass before the next rerun, so that the last one stays within
    /// its share.
    owed: Duration,
    /// Counts the batches. The position of the member that is kept rotates, so that no position is preferred.
    turn: usize,
}

impl<T> Profiler<T> {
    pub(crate) fn new() -> Self {
        Profiler {
            candidates: VecDeque::new(),
            idle_since: None,
            owed: Duration::ZERO,
            turn: 0,
        }
    }

    /// Which member of a batch of this many to keep. A batch of one is a sample itself, so none of it is kept.
    pub(crate) fn pick(&mut self, members: usize) -> Option<usize> {
        if members < 2 {
            return None;
        }
        self.turn = self.turn.wrapping_add(1);
        Some(self.turn % members)
    }

    /// A picked request finished.
    pub(crate) fn keep(&mut self, candidate: RerunCandidate<T>) {
        let of_worker = |k: &RerunCandidate<T>| k.worker == candidate.worker;
        if self.candidates.iter().filter(|k| of_worker(k)).count() == KEPT_MAX
            && let Some(oldest) = self.candidates.iter().position(of_worker)
        {
            self.candidates.remove(oldest);
        }
        self.candidates.push_back(candidate);
    }

    /// Forgets the requests of that worker.
    pub(crate) fn forget(&mut self, worker: WorkerId) {
        self.candidates.retain(|k| k.worker != worker);
    }

    /// Forgets all requests.
    pub(crate) fn clear(&mut self) {
        self.candidates.clear();
    }

    /// Something runs on the device or waits for it.
    pub(crate) fn busy(&mut self, now: Timestamp) {
        if let Some(since) = self.idle_since.take() {
            self.owed = self.owed.saturating_sub(now.since(since));
        }
    }

    /// The device has no work.
    pub(crate) fn idle(&mut self, now: Timestamp) {
        self.idle_since.get_or_insert(now);
    }

    /// When the next rerun may start if no work arrives before; `None` when nothing is kept or there is work.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        let since = self.idle_since.filter(|_| !self.candidates.is_empty())?;
        Some(since + QUIET.max(self.owed))
    }

    /// The request to run again now: the device is busy with it until [`Profiler::reran`].
    pub(crate) fn next(&mut self, now: Timestamp) -> Option<RerunCandidate<T>> {
        if self.due()? > now {
            return None;
        }
        self.busy(now);
        self.candidates.pop_front()
    }

    /// A rerun ended.
    pub(crate) fn reran(&mut self, took: Duration) {
        self.owed = took.mul_f64(1.0 / SHARE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u32) -> Timestamp {
        Timestamp::ZERO + MS * ms
    }

    fn candidate(worker: u32, request: u64) -> RerunCandidate<()> {
        RerunCandidate {
            worker: WorkerId(worker),
            request: RequestId(request),
            application: Application::default(),
            model: Default::default(),
            payload: (),
        }
    }

    #[test]
    fn of_each_worker_the_latest_are_kept_and_run_again_once() {
        let mut profiler = Profiler::new();
        profiler.keep(candidate(1, 100));
        for request in 0..10 {
            profiler.keep(candidate(0, request));
        }
        let mut ran = Vec::new();
        profiler.idle(at(0));
        while let Some(next) = profiler.next(at(1000)) {
            ran.push(next.request.0);
            profiler.idle(at(0));
        }
        assert_eq!(ran, [100, 6, 7, 8, 9]);
        assert_eq!(profiler.due(), None);
    }

    #[test]
    fn a_device_must_be_quiet_and_reruns_keep_to_their_share() {
        let mut profiler = Profiler::new();
        profiler.keep(candidate(0, 1));
        profiler.keep(candidate(0, 2));
        profiler.busy(at(0));
        assert_eq!(profiler.due(), None);
        profiler.idle(at(10));
        profiler.idle(at(12));
        assert_eq!(profiler.due(), Some(at(15)));
        assert!(profiler.next(at(14)).is_none());
        assert!(profiler.next(at(15)).is_some());
        profiler.reran(2 * MS);
        // A rerun of 2 ms needs 100 ms without work: here 60 ms, and then the other 40 ms.
        profiler.idle(at(17));
        profiler.busy(at(77));
        profiler.idle(at(500));
        assert_eq!(profiler.due(), Some(at(540)));
    }

    #[test]
    fn every_place_in_a_batch_has_its_turn_and_a_batch_of_one_none() {
        let mut profiler: Profiler<()> = Profiler::new();
        assert_eq!(profiler.pick(1), None);
        let mut picked: Vec<_> = (0..4).filter_map(|_| profiler.pick(4)).collect();
        picked.sort_unstable();
        assert_eq!(picked, [0, 1, 2, 3]);
    }

    #[test]
    fn what_is_forgotten_does_not_run_again() {
        let mut profiler = Profiler::new();
        profiler.keep(candidate(0, 1));
        profiler.keep(candidate(1, 2));
        profiler.forget(WorkerId(0));
        profiler.idle(at(0));
        assert_eq!(profiler.next(at(9)).map(|k| k.request.0), Some(2));
    }
}
