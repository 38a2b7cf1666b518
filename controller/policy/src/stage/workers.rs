//! Workers that come and go, are suspected and trusted, and say what they do.

use spillgate_pipeline::id::{BatchId, MemberId, RequestId, WorkerId};
use spillgate_protocol::message::Started;

use super::Stage;

impl Stage {
    /// A worker joins the module. Its device is not there yet.
    pub(crate) fn join(&mut self, worker: WorkerId) {
        self.dispatcher.join(worker);
        self.workers_changed();
    }

    /// A worker that is lost is one of the module's no more.
    pub(crate) fn forget(&mut self, worker: WorkerId) {
        self.dispatcher.forget(worker);
        self.workers_changed();
    }

    fn workers_changed(&mut self) {
        if let Some(pool) = &mut self.pool {
            pool.set_workers(self.dispatcher.n_workers());
        }
    }

    /// The device of a worker is there.
    pub(crate) fn found(&mut self, worker: WorkerId) {
        self.dispatcher.found(worker);
    }

    /// The device of a worker is gone. Returns the requests that the worker had, in order.
    pub(crate) fn lost(&mut self, worker: WorkerId) -> Vec<RequestId> {
        self.withdrawn(worker, u64::MAX);
        self.dispatcher.lost(worker)
    }

    /// The device of a worker is silent: the worker gets nothing until it is trusted. Returns the requests that it has, in order.
    pub(crate) fn suspected(&mut self, worker: WorkerId) -> Vec<RequestId> {
        self.dispatcher.suspect(worker)
    }

    /// The device of a suspected worker spoke again.
    pub(crate) fn trusted(&mut self, worker: WorkerId) {
        self.dispatcher.trust(worker);
    }

    /// Another worker is to have a request of a suspected one, which may answer all the same.
    pub(crate) fn let_duplicate(&mut self, id: RequestId) {
        self.dispatcher.let_duplicate(id);
    }

    /// No other worker can have the request: the suspected one keeps it.
    pub(crate) fn keep(&mut self, id: RequestId) {
        self.dispatcher.keep(id);
    }

    /// The suspected worker does not serve the request after all. False when it was not there.
    pub(crate) fn forget_duplicate(&mut self, worker: WorkerId, id: RequestId) -> bool {
        let was_there = self.dispatcher.duplicate_at(id) == Some(worker);
        if was_there {
            self.dispatcher.forget_duplicate(id);
        }
        was_there
    }

    /// The process of a worker is about to end. What the worker has it finishes.
    pub(crate) fn leaves(&mut self, worker: WorkerId) {
        self.withdrawn(worker, u64::MAX);
        self.dispatcher.leave(worker);
    }

    /// The controller wants a worker to serve, or to get no more requests.
    pub(crate) fn list(&mut self, worker: WorkerId, serves: bool) {
        self.dispatcher.list(worker, serves);
    }

    /// The controller wants a worker that does not serve to serve one request.
    pub(crate) fn try_out(&mut self, worker: WorkerId) {
        self.dispatcher.try_out(worker);
    }

    /// A worker bound a batch.
    pub(crate) fn started(&mut self, started: &Started) {
        self.dispatcher.started(started);
    }

    /// A batch of a worker ended.
    pub(crate) fn batch_ended(&mut self, worker: WorkerId, batch: BatchId) {
        self.dispatcher.ended(worker, batch);
    }

    /// A worker has these models in memory, or no longer.
    pub(crate) fn holds(&mut self, worker: WorkerId, models: &[(MemberId, bool)]) {
        self.dispatcher.holds(worker, models);
    }

    /// Whether a worker takes requests.
    pub(crate) fn is_up(&self, worker: WorkerId) -> bool {
        self.dispatcher.is_up(worker)
    }

    /// Workers that take requests.
    pub(crate) fn n_up(&self) -> usize {
        self.dispatcher.n_up()
    }

    /// Whether a worker takes requests.
    pub(crate) fn takes_requests(&self) -> bool {
        self.dispatcher.takes_requests()
    }
}
