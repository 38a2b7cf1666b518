//! Workers that come and go with their devices. The requests of a lost or suspected worker go to other workers. A suspected
//! worker may answer all the same: the first answer counts.

use spillgate_pipeline::id::{DeviceId, Incarnation, ModuleId, RequestId, WorkerId};
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{Address, Place, ToDevice};

use super::{Command, Gateway};
use crate::stage::Stage;

impl<P, L: Clone> Gateway<P, L> {
    /// Workers join.
    pub(super) fn join(&mut self, now: Timestamp, places: &[Place]) {
        for &place in places {
            let is_known = self.places.get(place.worker) == Some(place);
            let Some(stage) = self.stages.get_mut(place.module.idx()) else {
                continue;
            };
            if !is_known {
                self.places.join(place);
                stage.join(place.worker);
                self.ledger.join(now, place.module, place.device);
            }
        }
    }

    /// A device is none of the pipeline's any more.
    pub(super) fn forget(
        &mut self,
        now: Timestamp,
        device: DeviceId,
        out: &mut Vec<Command<P, L>>,
    ) {
        let peer = Address::Device(device);
        self.lose(now, peer, "its worker left", out);
        for Place { module, worker, .. } in self.workers_of(peer) {
            self.stages[module.idx()].forget(worker);
            self.places.leave(worker);
        }
        self.ledger.forget(now, device);
    }

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
        self.each_worker(peer, Stage::found);
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
            let had = self.stages[module.idx()].lost(worker);
            lost.extend(had.into_iter().map(|id| (module, id)));
        }
        for (module, id) in lost {
            if !self.retry(now, module, id, out) {
                self.fail(now, id, module, cause.to_owned(), out);
            }
        }
    }

    /// A device is silent. Its workers get nothing new, and what they had goes to other workers. Where that is not possible, they
    /// keep it.
    pub(super) fn suspect(&mut self, now: Timestamp, peer: Address, out: &mut Vec<Command<P, L>>) {
        let mut had: Vec<(Place, RequestId)> = Vec::new();
        for place in self.workers_of(peer) {
            let ids = self.stages[place.module.idx()].suspected(place.worker);
            had.extend(ids.into_iter().map(|id| (place, id)));
        }
        for (Place { module, worker, .. }, id) in had {
            self.stages[module.idx()].let_duplicate(id);
            if self.retry(now, module, id, out) {
                // What it has not begun by the time that it hears this, it need not run.
                self.tell_device(self.device_of(worker), ToDevice::Cancel(worker, id), out);
            } else {
                self.stages[module.idx()].keep(id);
            }
        }
    }

    /// Tells the stages of a device's workers.
    pub(super) fn each_worker(&mut self, peer: Address, tell: fn(&mut Stage, WorkerId)) {
        for Place { module, worker, .. } in self.workers_of(peer) {
            tell(&mut self.stages[module.idx()], worker);
        }
    }

    fn workers_of(&self, peer: Address) -> Vec<Place> {
        let on_it = |p: &&Place| peer == Address::Device(p.device);
        self.places.iter().filter(on_it).copied().collect()
    }

    /// Sends a request that a dead or suspected worker had to another one, at most once a module and while there is time.
    fn retry(
        &mut self,
        now: Timestamp,
        module: ModuleId,
        id: RequestId,
        out: &mut Vec<Command<P, L>>,
    ) -> bool {
        let bound = self.bound_at(module, id);
        let Some(open) = self.ledger.get_mut(id) else {
            return true;
        };
        let stage = &mut self.stages[module.idx()];
        if now >= open.request.deadline || stage.n_up() == 0 || !open.joins.retry(module) {
            return false;
        }
        let Ok(effect) = stage.place(now, open.request_at(module), bound) else {
            return false;
        };
        if let Some(effect) = effect {
            self.carry_out(now, module, effect, out);
        }
        true
    }
}
