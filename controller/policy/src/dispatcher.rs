//! Chooses the worker that serves a request, and remembers which worker has it.

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::id::{BatchId, RequestId, WorkerId};
use spillgate_pipeline::policy::DispatchPolicyName;
use spillgate_pipeline::request::Request;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{BOUND_MAX, BatchShape, Started};

use affinity::Holders;
use shadow::{Shadow, Sort};
pub use view::{WorkerHealth, WorkerView};

mod affinity;
mod shadow;
mod view;

/// The least part of all requests that a gateway is taken to accept.
const PART_MIN: f64 = 0.001;

/// The dispatcher of one module: a shadow of each of its workers.
pub struct Dispatcher {
    policy: DispatchPolicyName,
    shape: BatchShape,
    workers: Vec<Shadow>,
    /// The worker of each request that was sent and has not come back, and the sort of the request.
    sent: IndexMap<RequestId, (usize, Sort), FxBuildHasher>,
    /// Requests that another worker has now, the suspected worker that may answer all the same, and their sort.
    duplicates: IndexMap<RequestId, (usize, Sort), FxBuildHasher>,
    turn: usize,
    holders: Holders,
    /// Of all requests, as its controller says.
    part: f64,
}

impl Dispatcher {
    /// A dispatcher over these workers. All are to serve; none is there yet.
    pub fn new(policy: DispatchPolicyName, shape: BatchShape, workers: &[WorkerId]) -> Self {
        let workers = workers.iter().copied().map(Shadow::new).collect();
        Dispatcher {
            policy,
            shape,
            workers,
            sent: IndexMap::default(),
            duplicates: IndexMap::default(),
            turn: 0,
            holders: Holders::default(),
            part: 1.0,
        }
    }

    /// Chooses a worker and counts the request as sent to it. `None` when no worker is up.
    pub fn send(&mut self, now: Timestamp, request: &Request) -> Option<WorkerId> {
        if request.background && self.policy != DispatchPolicyName::Affinity {
            return self.send_background(request);
        }
        let n = self.workers.len();
        let turn = self.turn;
        let candidates = (0..n)
            .map(|i| (turn + i) % n)
            .filter(|&i| self.room_of(&self.workers[i]) > 0);
        // Ties go to the next in turn, so that idle workers share the work.
        let chosen = match self.policy {
            DispatchPolicyName::RoundRobin => candidates.into_iter().next(),
            DispatchPolicyName::LeastOutstanding => {
                candidates.min_by_key(|&i| self.workers[i].outstanding)
            }
            DispatchPolicyName::LeastOutstandingFree => candidates.min_by_key(|&i| {
                let shadow = &self.workers[i];
                (shadow.outstanding, shadow.free_first())
            }),
            // Where requests are pulled, the source's workers alone get them from here.
            DispatchPolicyName::Affinity => self.worker_of(now, request),
            DispatchPolicyName::EarliestStart | DispatchPolicyName::Pull => {
                candidates.min_by_key(|&i| self.next_start(now, &self.workers[i], 0))
            }
        }?;
        self.turn = match self.policy {
            // The turn moves on by one with every request, whichever worker gets it.
            DispatchPolicyName::LeastOutstandingFree => (turn + 1) % n,
            _ => (chosen + 1) % n,
        };
        Some(self.send_to(chosen, request))
    }

    fn send_to(&mut self, chosen: usize, request: &Request) -> WorkerId {
        let shadow = &mut self.workers[chosen];
        shadow.takes(Sort::of(request));
        self.sent.insert(request.id, (chosen, Sort::of(request)));
        shadow.worker
    }

    /// The worker with the fewest requests without an SLO: one with more idle time has fewer. No forecast counts them, and they are
    /// nobody's trial.
    fn send_background(&mut self, request: &Request) -> Option<WorkerId> {
        let up = (0..self.workers.len()).filter(|&i| self.takes(&self.workers[i]));
        let chosen = up.min_by_key(|&i| self.workers[i].background)?;
        Some(self.send_to(chosen, request))
    }

    /// Counts a request as sent to a worker that asked for it. False when the worker is not one of the module.
    pub fn give(&mut self, worker: WorkerId, request: &Request) -> bool {
        let Some(idx) = self.workers.iter().position(|s| s.worker == worker) else {
            return false;
        };
        self.workers[idx].takes(Sort::of(request));
        self.sent.insert(request.id, (idx, Sort::of(request)));
        true
    }

    /// The most requests that a worker may be sent at once.
    pub fn room(&self, worker: WorkerId) -> usize {
        let shadow = self.workers.iter().find(|s| s.worker == worker);
        shadow.map_or(0, |shadow| self.room_of(shadow))
    }

    /// Whether a worker takes requests.
    pub fn is_up(&self, worker: WorkerId) -> bool {
        let shadow = self.workers.iter().find(|s| s.worker == worker);
        shadow.is_some_and(|shadow| self.takes(shadow))
    }

    /// Workers that take requests.
    pub fn n_up(&self) -> usize {
        self.workers.iter().filter(|s| self.takes(s)).count()
    }

    /// Whether a worker takes requests. One that is set aside does where no other one is up: it is better than none, and the
    /// controller may reach workers that this gateway does not.
    fn takes(&self, shadow: &Shadow) -> bool {
        shadow.is_up() || (shadow.answers() && !self.workers.iter().any(Shadow::is_up))
    }

    /// The most requests that a worker may be sent at once. One that joined a while ago has a limit as long as others serve without
    /// one.
    fn room_of(&self, shadow: &Shadow) -> usize {
        match (self.takes(shadow), shadow.slow_start) {
            (true, Some(batches)) if self.workers.iter().any(Shadow::is_proven) => {
                (batches * self.shape.size as usize).saturating_sub(shadow.outstanding)
            }
            (true, _) => usize::MAX,
            (false, _) => shadow.room(),
        }
    }

    /// The earliest start of a batch with room for one more request of that rank, over all workers that are up. Requests of
    /// a lower rank are taken to go after it; rank 0: none. `None` when no worker is up.
    pub fn earliest_start(&self, now: Timestamp, rank: u8) -> Option<Timestamp> {
        let takes = |s: &&Shadow| self.takes(s) && self.room_of(s) > 0;
        let up = self.workers.iter().filter(takes);
        up.map(|s| self.next_start(now, s, rank)).min()
    }

    /// When the worker's first batch with room for one more request of that rank starts. The requests that go before it fill
    /// whole batches.
    fn next_start(&self, now: Timestamp, shadow: &Shadow, rank: u8) -> Timestamp {
        let before = shadow.before(rank) as u32 / self.shape.size.max(1);
        shadow.free_at.max(now) + self.shape.execution * before
    }

    /// The module's batches have another shape from now on.
    /// `part`: that of all requests which this gateway accepts.
    pub fn reshape(&mut self, shape: BatchShape, part: f64) {
        self.shape = shape;
        self.part = part.clamp(PART_MIN, 1.0);
    }

    /// A worker bound a batch. If the end of the batch was reported before, nothing changes.
    pub fn started(&mut self, started: &Started) {
        if let Some(shadow) = self.shadow(started.worker) {
            if shadow.ended.is_some_and(|ended| started.batch <= ended) {
                return;
            }
            if shadow.batches.is_empty() {
                shadow.runs_until = started.expected_end;
            }
            if shadow.batches.len() == BOUND_MAX {
                // The report of its end was lost.
                shadow.batches.remove(0);
            }
            shadow.batches.push((started.batch, started.size));
            shadow.free_at = started.expected_end;
        }
    }

    /// A batch ended, and so did all batches that were bound before it.
    pub fn ended(&mut self, worker: WorkerId, batch: BatchId) {
        if let Some(shadow) = self.shadow(worker) {
            shadow.served();
            shadow.ended = shadow.ended.max(Some(batch));
            shadow.batches.retain(|(id, _)| *id > batch);
            // At most one batch is bound behind the one that ran.
            shadow.runs_until = shadow.free_at;
        }
    }

    /// The request is no longer at its worker. Returns the worker; `None` when the request was at none.
    pub fn take_back(&mut self, request: RequestId) -> Option<WorkerId> {
        let (idx, sort) = self.sent.swap_remove(&request)?;
        let shadow = &mut self.workers[idx];
        shadow.gives_back(sort);
        Some(shadow.worker)
    }

    /// Whether a worker takes requests.
    pub fn takes_requests(&self) -> bool {
        self.n_up() > 0
    }

    /// Workers of the module, whether they take requests or not.
    pub fn n_workers(&self) -> usize {
        self.workers.len()
    }

    /// The workers, for people.
    pub fn views(&self) -> Vec<WorkerView> {
        let view = |shadow: &Shadow| WorkerView {
            worker: shadow.worker,
            health: shadow.health(),
            has: shadow.outstanding + shadow.background,
        };
        self.workers.iter().map(view).collect()
    }

    /// Requests that were sent and have not come back.
    pub fn n_sent(&self) -> usize {
        self.sent.len()
    }

    /// The worker that has the request now.
    pub fn location(&self, request: RequestId) -> Option<WorkerId> {
        self.sent
            .get(&request)
            .map(|&(idx, _)| self.workers[idx].worker)
    }

    /// A worker joins the module. It is to serve, and is not there yet.
    pub fn join(&mut self, worker: WorkerId) {
        if self.shadow(worker).is_none() {
            self.workers.push(Shadow::joining(worker));
        }
    }

    /// A worker is one of the module's no more; [`Dispatcher::lost`] has taken what it had. Its id may be given to another one.
    pub fn forget(&mut self, worker: WorkerId) {
        let Some(idx) = self.workers.iter().position(|s| s.worker == worker) else {
            return;
        };
        self.workers.swap_remove(idx);
        // The last one has its place.
        let moved = self.workers.len();
        let entries = self.sent.values_mut().chain(self.duplicates.values_mut());
        for (at, _) in entries.filter(|(at, _)| *at == moved) {
            *at = idx;
        }
    }

    /// The device of a worker is there.
    pub fn found(&mut self, worker: WorkerId) {
        if let Some(shadow) = self.shadow(worker) {
            shadow.is_reachable = true;
        }
    }

    /// The process of a worker is about to end: the worker gets no more requests until its device begins anew.
    pub fn leave(&mut self, worker: WorkerId) {
        if let Some(shadow) = self.shadow(worker) {
            shadow.is_leaving = true;
        }
    }

    /// The device of a worker is gone. Returns the requests that the worker had, in order.
    pub fn lost(&mut self, worker: WorkerId) -> Vec<RequestId> {
        let Some(idx) = self.workers.iter().position(|s| s.worker == worker) else {
            return Vec::new();
        };
        self.forget_models(worker);
        // Its next incarnation counts batches anew.
        self.workers[idx] = Shadow {
            is_listed: self.workers[idx].is_listed,
            ..Shadow::new(worker)
        };
        let mut lost: Vec<RequestId> = self
            .sent
            .iter()
            .filter(|&(_, &(i, _))| i == idx)
            .map(|(&id, _)| id)
            .collect();
        self.sent.retain(|_, (i, _)| *i != idx);
        self.duplicates.retain(|_, (i, _)| *i != idx);
        lost.sort_unstable();
        lost
    }

    /// The device of a worker is silent: the worker gets no requests until it is trusted. Returns the requests that it has, in
    /// order.
    pub fn suspect(&mut self, worker: WorkerId) -> Vec<RequestId> {
        let Some(idx) = self.workers.iter().position(|s| s.worker == worker) else {
            return Vec::new();
        };
        self.workers[idx].is_suspected = true;
        let has = self.sent.iter().filter(|&(_, &(i, _))| i == idx);
        let mut has: Vec<RequestId> = has.map(|(&id, _)| id).collect();
        has.sort_unstable();
        has
    }

    /// The device of a suspected worker spoke again.
    pub fn trust(&mut self, worker: WorkerId) {
        if let Some(shadow) = self.shadow(worker) {
            shadow.is_suspected = false;
        }
    }

    /// Another worker is to have a request of a suspected one, which may answer all the same.
    pub fn let_duplicate(&mut self, request: RequestId) {
        if let Some((idx, sort)) = self.sent.swap_remove(&request) {
            self.workers[idx].gives_back(sort);
            self.duplicates.insert(request, (idx, sort));
        }
    }

    /// No other worker has the request: the suspected one keeps it.
    pub fn keep(&mut self, request: RequestId) {
        if let Some((idx, sort)) = self.duplicates.swap_remove(&request) {
            self.workers[idx].takes(sort);
            self.sent.insert(request, (idx, sort));
        }
    }

    /// Requests that another worker has now and a suspected one may answer.
    pub fn n_duplicates(&self) -> usize {
        self.duplicates.len()
    }

    /// The suspected worker that may answer for a request that another one has.
    pub fn duplicate_at(&self, request: RequestId) -> Option<WorkerId> {
        let (idx, _) = *self.duplicates.get(&request)?;
        Some(self.workers[idx].worker)
    }

    /// What the suspected worker says of the request counts no more. Returns that worker, if there is one.
    pub fn forget_duplicate(&mut self, request: RequestId) -> Option<WorkerId> {
        let (idx, _) = self.duplicates.swap_remove(&request)?;
        Some(self.workers[idx].worker)
    }

    /// The controller wants a worker to serve. False: the worker gets no more requests, and finishes the requests that it has.
    pub fn list(&mut self, worker: WorkerId, serves: bool) {
        if let Some(shadow) = self.shadow(worker) {
            shadow.is_listed = serves;
            shadow.is_on_trial = false;
        }
    }

    /// The controller wants a worker that does not serve to serve one request.
    pub fn try_out(&mut self, worker: WorkerId) {
        if let Some(shadow) = self.shadow(worker) {
            shadow.is_on_trial = !shadow.is_listed;
        }
    }

    fn shadow(&mut self, worker: WorkerId) -> Option<&mut Shadow> {
        self.workers.iter_mut().find(|s| s.worker == worker)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SHAPE: BatchShape = BatchShape {
        size: 2,
        execution: Duration::from_nanos(10),
    };

    fn at(ns: u64) -> Timestamp {
        Timestamp::from_ns(ns)
    }

    fn bound(worker: u32, batch: u64, size: usize, end: u64) -> Started {
        Started {
            worker: WorkerId(worker),
            batch: BatchId(batch),
            size,
            expected_end: at(end),
        }
    }

    #[test]
    fn a_batch_whose_end_is_reported_before_its_start_has_ended() {
        let mut d = dispatcher(DispatchPolicyName::EarliestStart);
        assert_eq!(send_all(&mut d, 0..2), [0, 1]);
        d.ended(WorkerId(0), BatchId(7));
        d.take_back(RequestId(0));
        d.started(&bound(0, 7, 1, 50));
        assert_eq!(d.next_start(at(6), &d.workers[0], 0), at(6));
        d.started(&bound(0, 8, 1, 60));
        assert_eq!(d.next_start(at(6), &d.workers[0], 0), at(60));
    }

    #[test]
    fn a_batch_whose_end_is_never_reported_counts_until_two_more_are_bound() {
        let mut d = dispatcher(DispatchPolicyName::EarliestStart);
        for batch in 0..1000 {
            d.started(&bound(0, batch, 2, batch));
        }
        assert_eq!(d.workers[0].batches, [(BatchId(998), 2), (BatchId(999), 2)]);
    }

    #[test]
    fn earliest_start_counts_what_runs_and_what_waits() {
        let mut d = dispatcher(DispatchPolicyName::EarliestStart);
        // All workers are idle, so they are chosen in turn. Worker 0 runs until 8, worker 1 until 5, worker 2 until 9.
        assert_eq!(send_all(&mut d, 0..3), [0, 1, 2]);
        for (worker, end) in [(0, 8), (1, 5), (2, 9)] {
            d.started(&bound(worker, 0, 1, end));
        }
        // Worker 1 has room for two in its next batch; then 0 at 8, 0 again, then 2, 2, then 1 at 15.
        assert_eq!(send_all(&mut d, 3..10), [1, 1, 0, 0, 2, 2, 1]);
        d.take_back(RequestId(1));
        d.ended(WorkerId(1), BatchId(0));
        assert_eq!(d.workers[1].outstanding, 3);
        assert_eq!(d.next_start(at(6), &d.workers[1], 0), at(16));
        assert_eq!(d.earliest_start(at(6), 0), Some(at(16)));
        d.lost(WorkerId(1));
        assert_eq!(d.earliest_start(at(6), 0), Some(at(18)));
    }

    #[test]
    fn requests_of_lower_ranks_are_taken_to_go_after_one_of_a_higher_rank() {
        let mut d = Dispatcher::new(DispatchPolicyName::EarliestStart, SHAPE, &[WorkerId(0)]);
        d.found(WorkerId(0));
        for (id, rank) in [1, 1, 1, 1, 3, 3].into_iter().enumerate() {
            d.send(Timestamp::ZERO, &request(id as u64, rank));
        }
        let start = |d: &Dispatcher, rank| d.earliest_start(at(0), rank);
        assert_eq!(
            [0, 1, 2, 3, 4].map(|r| start(&d, r)),
            [30, 30, 10, 10, 0].map(|t| Some(at(t)))
        );
        d.started(&bound(0, 0, 2, 10));
        assert_eq!([1, 3].map(|r| start(&d, r)), [30, 20].map(|t| Some(at(t))));
        d.take_back(RequestId(5));
        assert_eq!(start(&d, 3), Some(at(10)));
    }

    fn request(id: u64, rank: u8) -> Request {
        Request {
            rank,
            ..Request::new(RequestId(id), Timestamp::ZERO, at(1000))
        }
    }

    fn dispatcher(policy: DispatchPolicyName) -> Dispatcher {
        let workers = [0, 1, 2].map(WorkerId);
        let mut dispatcher = Dispatcher::new(policy, SHAPE, &workers);
        for worker in workers {
            dispatcher.found(worker);
        }
        dispatcher
    }

    fn send_all(d: &mut Dispatcher, ids: std::ops::Range<u64>) -> Vec<u32> {
        ids.map(|id| d.send(Timestamp::ZERO, &request(id, 1)).unwrap().0)
            .collect()
    }

    #[test]
    fn another_life_of_a_worker_begins_with_nothing() {
        let mut d = dispatcher(DispatchPolicyName::EarliestStart);
        d.started(&bound(1, 0, 2, 50));
        d.lost(WorkerId(1));
        d.found(WorkerId(1));
        assert_eq!(d.next_start(at(6), &d.workers[1], 0), at(6));
        assert_eq!(send_all(&mut d, 0..3), [0, 1, 2]);
    }

    /// The device and the controller may say it in either order.
    #[test]
    fn a_worker_serves_while_it_is_there_and_listed() {
        let mut d = dispatcher(DispatchPolicyName::RoundRobin);
        d.list(WorkerId(1), false);
        assert_eq!(send_all(&mut d, 0..3), [0, 2, 0]);
        d.lost(WorkerId(1));
        d.list(WorkerId(1), true);
        assert_eq!(send_all(&mut d, 3..5), [2, 0], "its device is gone");
        d.found(WorkerId(1));
        assert_eq!(send_all(&mut d, 5..7), [1, 2]);
        d.list(WorkerId(1), false);
        d.found(WorkerId(1));
        assert_eq!(send_all(&mut d, 7..9), [0, 2], "it is not to serve");
    }

    #[test]
    fn a_worker_that_is_set_aside_serves_where_no_other_one_is_up() {
        let mut d = dispatcher(DispatchPolicyName::RoundRobin);
        d.list(WorkerId(1), false);
        d.lost(WorkerId(0));
        assert_eq!(send_all(&mut d, 0..2), [2, 2]);
        d.suspect(WorkerId(2));
        assert_eq!((d.n_up(), d.takes_requests()), (1, true));
        assert_eq!(send_all(&mut d, 2..4), [1, 1]);
        d.found(WorkerId(0));
        assert_eq!(send_all(&mut d, 4..6), [0, 0]);
        d.lost(WorkerId(0));
        d.lost(WorkerId(1));
        assert_eq!((d.n_up(), d.takes_requests()), (0, false));
    }

    #[test]
    fn round_robin_takes_turns_past_dead_workers() {
        let mut d = dispatcher(DispatchPolicyName::RoundRobin);
        assert_eq!(send_all(&mut d, 0..4), [0, 1, 2, 0]);
        assert_eq!(d.lost(WorkerId(1)), [RequestId(1)]);
        assert_eq!(send_all(&mut d, 4..7), [2, 0, 2]);
    }

    #[test]
    fn least_outstanding_prefers_who_has_least() {
        let mut d = dispatcher(DispatchPolicyName::LeastOutstanding);
        assert_eq!(send_all(&mut d, 0..3), [0, 1, 2]);
        assert_eq!(d.take_back(RequestId(1)), Some(WorkerId(1)));
        assert_eq!(d.take_back(RequestId(1)), None, "it comes back once");
        assert_eq!(send_all(&mut d, 3..4), [1]);
        assert_eq!(d.workers[1].outstanding, 1);
    }

    #[test]
    fn a_tie_goes_to_who_is_free_first_and_turns_go_by_requests() {
        let mut d = dispatcher(DispatchPolicyName::LeastOutstandingFree);
        // All workers are idle, so they are chosen in turn. Then worker 1 is free first, although another batch is
        // bound behind its running one.
        assert_eq!(send_all(&mut d, 0..3), [0, 1, 2]);
        for (worker, batch, end) in [(0, 0, 8), (1, 0, 5), (1, 1, 50), (2, 0, 9)] {
            d.started(&bound(worker, batch, 1, end));
        }
        assert_eq!(send_all(&mut d, 3..6), [1, 0, 2]);
        // The batch at worker 1 has ended; the next one runs until 50.
        d.ended(WorkerId(1), BatchId(0));
        assert_eq!(send_all(&mut d, 6..9), [0, 2, 1]);
        // Workers 0 and 2 have one request less, and nothing runs there. After nine requests it is the turn of worker
        // 0.
        for (worker, request) in [(0, 0), (2, 2)] {
            d.ended(WorkerId(worker), BatchId(0));
            d.take_back(RequestId(request));
        }
        assert_eq!(send_all(&mut d, 9..10), [0]);
    }

    #[test]
    fn without_workers_there_is_nowhere_to_send() {
        let mut d = Dispatcher::new(DispatchPolicyName::LeastOutstanding, SHAPE, &[WorkerId(0)]);
        d.lost(WorkerId(0));
        assert_eq!(d.send(Timestamp::ZERO, &request(1, 1)), None);
        let mut none = Dispatcher::new(DispatchPolicyName::RoundRobin, SHAPE, &[]);
        assert_eq!(none.send(Timestamp::ZERO, &request(1, 1)), None);
    }
}
