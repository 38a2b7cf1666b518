//! Chooses the worker that serves a request, and remembers which worker has it.

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::id::{RequestId, WorkerId};
use spillgate_pipeline::pipeline::DispatchPolicyName;

struct Shadow {
    worker: WorkerId,
    up: bool,
    outstanding: usize,
}

/// The dispatcher of one module: a shadow of each of its workers.
pub struct Dispatcher {
    policy: DispatchPolicyName,
    workers: Vec<Shadow>,
    /// Where each request is that was sent and has not come back.
    sent: IndexMap<RequestId, usize, FxBuildHasher>,
    turn: usize,
}

impl Dispatcher {
    /// A dispatcher over these workers, all up.
    pub fn new(policy: DispatchPolicyName, workers: &[WorkerId]) -> Self {
        let workers = workers
            .iter()
            .map(|&worker| Shadow {
                worker,
                up: true,
                outstanding: 0,
            })
            .collect();
        Dispatcher {
            policy,
            workers,
            sent: IndexMap::default(),
            turn: 0,
        }
    }

    /// Chooses a worker and counts the request as sent to it. `None` when no worker is up.
    pub fn send(&mut self, request: RequestId) -> Option<WorkerId> {
        let n = self.workers.len();
        let turn = self.turn;
        let candidates = (0..n)
            .map(|i| (turn + i) % n)
            .filter(|&i| self.workers[i].up);
        let chosen = match self.policy {
            DispatchPolicyName::RoundRobin => candidates.into_iter().next(),
            // Ties go to the next in turn, so that idle workers share the work.
            DispatchPolicyName::LeastOutstanding => {
                candidates.min_by_key(|&i| self.workers[i].outstanding)
            }
        }?;
        self.turn = (chosen + 1) % n;
        let shadow = &mut self.workers[chosen];
        shadow.outstanding += 1;
        self.sent.insert(request, chosen);
        Some(shadow.worker)
    }

    /// The request is no longer at its worker. Says where it was; `None` when it was not out.
    pub fn take_back(&mut self, request: RequestId) -> Option<WorkerId> {
        let idx = self.sent.swap_remove(&request)?;
        let shadow = &mut self.workers[idx];
        shadow.outstanding -= 1;
        Some(shadow.worker)
    }

    /// The worker that has the request now.
    pub fn location(&self, request: RequestId) -> Option<WorkerId> {
        self.sent.get(&request).map(|&idx| self.workers[idx].worker)
    }

    /// The worker is gone; returns what it had, in order of request.
    pub fn worker_down(&mut self, worker: WorkerId) -> Vec<RequestId> {
        let Some(idx) = self.workers.iter().position(|s| s.worker == worker) else {
            return Vec::new();
        };
        self.workers[idx].up = false;
        self.workers[idx].outstanding = 0;
        let mut lost: Vec<RequestId> = self
            .sent
            .iter()
            .filter(|&(_, &i)| i == idx)
            .map(|(&id, _)| id)
            .collect();
        self.sent.retain(|_, i| *i != idx);
        lost.sort_unstable();
        lost
    }

    /// Requests sent to a worker and not back yet.
    pub fn outstanding(&self, worker: WorkerId) -> usize {
        self.workers
            .iter()
            .find(|s| s.worker == worker)
            .map_or(0, |s| s.outstanding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dispatcher(policy: DispatchPolicyName) -> Dispatcher {
        Dispatcher::new(policy, &[WorkerId(0), WorkerId(1), WorkerId(2)])
    }

    fn send_all(d: &mut Dispatcher, ids: std::ops::Range<u64>) -> Vec<u32> {
        ids.map(|id| d.send(RequestId(id)).unwrap().0).collect()
    }

    #[test]
    fn round_robin_takes_turns_past_dead_workers() {
        let mut d = dispatcher(DispatchPolicyName::RoundRobin);
        assert_eq!(send_all(&mut d, 0..4), [0, 1, 2, 0]);
        assert_eq!(d.worker_down(WorkerId(1)), [RequestId(1)]);
        assert_eq!(send_all(&mut d, 4..7), [2, 0, 2]);
    }

    #[test]
    fn least_outstanding_prefers_who_has_least() {
        let mut d = dispatcher(DispatchPolicyName::LeastOutstanding);
        assert_eq!(send_all(&mut d, 0..3), [0, 1, 2]);
        assert_eq!(d.take_back(RequestId(1)), Some(WorkerId(1)));
        assert_eq!(d.take_back(RequestId(1)), None, "it comes back once");
        assert_eq!(send_all(&mut d, 3..4), [1]);
        assert_eq!(d.outstanding(WorkerId(1)), 1);
    }

    #[test]
    fn without_workers_there_is_nowhere_to_send() {
        let mut d = Dispatcher::new(DispatchPolicyName::LeastOutstanding, &[WorkerId(0)]);
        d.worker_down(WorkerId(0));
        assert_eq!(d.send(RequestId(1)), None);
        let mut none = Dispatcher::new(DispatchPolicyName::RoundRobin, &[]);
        assert_eq!(none.send(RequestId(1)), None);
    }
}
