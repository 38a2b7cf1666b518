//! Workers that come and go with their devices. The requests of a lost or suspected worker go to other workers. A suspected
//! worker may answer all the same: the first answer counts.

use spillgate_pipeline::id::{Incarnation, ModuleId, RequestId, WorkerId};
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{Address, Place, ToDevice};

use super::{Command, Gateway};
use crate::dispatcher::Dispatcher;

impl<P, L: Clone> Gateway<P, L> {
    /// A peer begins, or begins anew. The workers of a device take requests as long as their controller wants them to.
    pub(super) fn greeted(
        &mut self,
        now: Timestamp,
        peer: Address,
        incarnation: Incarnation,
        out: &mut Vec<Command<P, L>>,
    ) {
        if self.sessions.knows_other(peer, incarnation) {
            self.lose(now, peer, "its process began anew", out);
        }
        self.sessions.greet(peer, incarnation);
        if let Address::Controller(module) = peer
            && module.idx() < self.stages.len()
        {
            self.demands.greeted(module, incarnation);
        }
        self.each_worker(peer, Dispatcher::found);
    }

    /// A peer is gone. Of a device, the workers take no more requests.
    pub(super) fn lose(
        &mut self,
        now: Timestamp,
        peer: Address,
        cause: &str,
        out: &mut Vec<Command<P, L>>,
    ) {
        self.sessions.lose(peer);
        let mut lost: Vec<(ModuleId, RequestId)> = Vec::new();
        for Place { module, worker, .. } in self.workers_of(peer) {
            let stage = &mut self.stages[module.idx()];
            if let Some(pool) = &mut stage.pool {
                pool.withdraw(worker, u64::MAX);
            }
            let had = stage.dispatcher.lost(worker);
            lost.extend(had.into_iter().map(|id| (module, id)));
        }
        for (module, id) in lost {
            if !self.retry(now, module, id) {
                self.fail(now, id, module, cause.to_owned(), out);
            }
        }
    }

    /// A device is silent. Its workers get nothing new, and what they had goes to other workers. Where that is not possible, they
    /// keep it.
    pub(super) fn suspect(&mut self, now: Timestamp, peer: Address, out: &mut Vec<Command<P, L>>) {
        let mut had: Vec<(Place, RequestId)> = Vec::new();
        for place in self.workers_of(peer) {
            let dispatcher = &mut self.stages[place.module.idx()].dispatcher;
            let ids = dispatcher.suspect(place.worker);
            had.extend(ids.into_iter().map(|id| (place, id)));
        }
        for (Place { module, worker, .. }, id) in had {
            self.stages[module.idx()].dispatcher.let_stray(id);
            if self.retry(now, module, id) {
                // What it has not begun by the time that it hears this, it need not run.
                self.tell_device(self.device_of(worker), ToDevice::Cancel(worker, id), out);
            } else {
                self.stages[module.idx()].dispatcher.keep(id);
            }
        }
    }

    /// The process of a worker is about to end. What the worker has it finishes.
    pub(super) fn leaves(&mut self, worker: WorkerId) {
        if let Some(stage) = self.stage_of(worker) {
            if let Some(pool) = &mut stage.pool {
                pool.withdraw(worker, u64::MAX);
            }
            stage.dispatcher.leave(worker);
        }
    }

    /// Tells the dispatchers of a device's workers.
    pub(super) fn each_worker(&mut self, peer: Address, tell: fn(&mut Dispatcher, WorkerId)) {
        for Place { module, worker, .. } in self.workers_of(peer) {
            tell(&mut self.stages[module.idx()].dispatcher, worker);
        }
    }

    /// The worker was suspected, and what it had went to another one; but it answers first. Nobody else is to serve the request.
    pub(super) fn answers_first(
        &mut self,
        module: ModuleId,
        worker: WorkerId,
        id: RequestId,
        out: &mut Vec<Command<P, L>>,
    ) -> bool {
        if self.stages[module.idx()].dispatcher.stray_at(id) != Some(worker) {
            return false;
        }
        self.leave(module, id, out);
        true
    }

    /// The suspected worker does not serve the request after all. False when it did not stray there.
    pub(super) fn forget_stray(
        &mut self,
        module: ModuleId,
        worker: WorkerId,
        id: RequestId,
    ) -> bool {
        let dispatcher = &mut self.stages[module.idx()].dispatcher;
        let strayed = dispatcher.stray_at(id) == Some(worker);
        if strayed {
            dispatcher.forget_stray(id);
        }
        strayed
    }

    /// The request is at no place of the module any more: it waits nowhere, and its worker is told to forget it. Returns the
    /// workers that will say whether they had begun it.
    pub(super) fn leave(
        &mut self,
        module: ModuleId,
        id: RequestId,
        out: &mut Vec<Command<P, L>>,
    ) -> Vec<WorkerId> {
        let stage = &mut self.stages[module.idx()];
        // A suspected worker was told before.
        let mut told: Vec<WorkerId> = stage.dispatcher.forget_stray(id).into_iter().collect();
        if let Some(pool) = &mut stage.pool {
            pool.remove(id);
        }
        if let Some(worker) = stage.dispatcher.take_back(id)
            && !self.unsend(id, worker)
        {
            self.tell_device(self.device_of(worker), ToDevice::Cancel(worker, id), out);
            told.push(worker);
        }
        told
    }

    fn workers_of(&self, peer: Address) -> Vec<Place> {
        let on_it = |p: &&Place| peer == Address::Device(p.device);
        self.places.iter().filter(on_it).copied().collect()
    }

    /// Sends a request that a dead or suspected worker had to another one, at most once a module and while there is time.
    fn retry(&mut self, now: Timestamp, module: ModuleId, id: RequestId) -> bool {
        let Some(open) = self.ledger.get_mut(id) else {
            return true;
        };
        let request = open.request;
        now < request.deadline
            && self.stages[module.idx()].dispatcher.n_up() > 0
            && open.joins.retry(module)
            && self.place(now, module, &request).is_ok()
    }
}
