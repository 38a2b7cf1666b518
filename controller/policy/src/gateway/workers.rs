//! Workers that come and go with their devices. The requests of a lost worker go to other workers.

use spillgate_pipeline::id::{ModuleId, RequestId};
use spillgate_pipeline::message::{Address, Incarnation, Place};
use spillgate_pipeline::time::Timestamp;

use super::{Command, Gateway};

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
        for Place { module, worker, .. } in self.workers_of(peer) {
            self.stages[module.idx()].dispatcher.found(worker);
        }
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

    fn workers_of(&self, peer: Address) -> Vec<Place> {
        let on_it = |p: &&Place| peer == Address::Device(p.device);
        self.places.iter().filter(on_it).copied().collect()
    }

    /// Sends a request that a dead worker had to another one, at most once a module and while there is time.
    fn retry(&mut self, now: Timestamp, module: ModuleId, id: RequestId) -> bool {
        let Some(open) = self.ledger.get_mut(id) else {
            return true;
        };
        let request = open.request;
        now < request.deadline
            && open.joins.retry(module)
            && self.place(now, module, &request).is_ok()
    }
}
