//! Dispatch `pull`: requests wait in pools until workers ask for them.

use spillgate_pipeline::id::{ModuleId, WorkerId};
use spillgate_pipeline::request::{Drop, DropReason, Outcome};
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{Answer, Ask, Lent, Returned, ToDevice};

use super::{Command, Gateway, Stage};
use crate::pool::{Given, Refused, View};

impl Stage {
    /// What decides on the requests of the pool.
    pub(super) fn view(&self) -> View<'_> {
        View {
            plan: &self.plan,
            n_workers: self.dispatcher.n_up(),
        }
    }
}

impl<P, L: Clone> Gateway<P, L> {
    /// A worker asks for requests. One that is to serve no more gets none.
    pub(super) fn asked(&mut self, now: Timestamp, ask: &Ask, out: &mut Vec<Command<P, L>>) {
        let Some(module) = self.module_of(ask.worker) else {
            return;
        };
        let Stage {
            dispatcher,
            pool,
            plan,
            ..
        } = &mut self.stages[module.idx()];
        let Some(pool) = pool else { return };
        // The ask of an idle worker stands until it is to serve again.
        let room = u32::try_from(dispatcher.room(ask.worker)).unwrap_or(u32::MAX);
        let most = match ask.until {
            Some(_) => ask.most.min(room),
            None => ask.most,
        };
        let view = View {
            plan,
            n_workers: dispatcher.n_up(),
        };
        let mut refused = Vec::new();
        let given = pool.ask(now, &Ask { most, ..*ask }, view, &mut refused);
        self.refuse(now, module, refused, out);
        if let Some(given) = given {
            self.give(module, given, out);
        }
    }

    /// A worker wants nothing more from that ask.
    pub(super) fn withdrawn(&mut self, worker: WorkerId, serial: u64) {
        if let Some(stage) = self.stage_of(worker)
            && let Some(pool) = &mut stage.pool
        {
            pool.withdraw(worker, serial);
        }
    }

    /// A worker hands requests back. They wait again as if they had never left.
    pub(super) fn returned(
        &mut self,
        now: Timestamp,
        returned: Returned,
        out: &mut Vec<Command<P, L>>,
    ) {
        let Returned {
            worker,
            serial,
            elsewhere,
            requests,
        } = returned;
        let Some(module) = self.module_of(worker) else {
            return;
        };
        if let Some(pool) = &mut self.stages[module.idx()].pool {
            pool.withdraw(worker, serial);
            pool.set_elsewhere(elsewhere);
        }
        for (id, since) in requests {
            let Stage {
                dispatcher, pool, ..
            } = &mut self.stages[module.idx()];
            let Some(pool) = pool else { return };
            if dispatcher.location(id) != Some(worker) {
                // The request ended while it was there.
                self.forgotten(now, worker, id);
                continue;
            }
            dispatcher.take_back(id);
            let Some(open) = self.ledger.get(id) else {
                continue;
            };
            if !pool.push(&open.request_at(module), since) {
                self.drop_from_here(now, id, DropReason::QueueFull, out);
            }
        }
    }

    /// Serves the asks that stand with what has come, after an event.
    pub(super) fn serve_asks(&mut self, now: Timestamp, out: &mut Vec<Command<P, L>>) {
        // What has just come may be over its deadline.
        self.expire_pools(now, out);
        for module in 0..self.stages.len() {
            let Stage {
                dispatcher,
                pool,
                plan,
                ..
            } = &mut self.stages[module];
            let Some(pool) = pool else { continue };
            if !pool.can_serve() {
                continue;
            }
            let view = View {
                plan,
                n_workers: dispatcher.n_up(),
            };
            let mut refused = Vec::new();
            let given = pool.serve(now, view, |w| dispatcher.room(w), &mut refused);
            let module = ModuleId(module as u16);
            self.refuse(now, module, refused, out);
            for given in given {
                self.give(module, given, out);
            }
        }
    }

    /// Drops the waiting requests whose deadline has passed.
    pub(super) fn expire_pools(&mut self, now: Timestamp, out: &mut Vec<Command<P, L>>) {
        for module in 0..self.stages.len() {
            let Some(pool) = &mut self.stages[module].pool else {
                continue;
            };
            let mut refused = Vec::new();
            pool.expire(now, &mut refused);
            self.refuse(now, ModuleId(module as u16), refused, out);
        }
    }

    /// When the first deadline of a request in a pool passes.
    pub(super) fn pool_expires_at(&self) -> Option<Timestamp> {
        let pools = self.stages.iter().filter_map(|stage| stage.pool.as_ref());
        pools.filter_map(|pool| pool.next_expiry()).min()
    }

    fn refuse(
        &mut self,
        now: Timestamp,
        module: ModuleId,
        refused: Vec<Refused>,
        out: &mut Vec<Command<P, L>>,
    ) {
        for Refused {
            id,
            reason,
            estimate,
        } in refused
        {
            let Some(open) = self.ledger.get(id) else {
                continue;
            };
            let drop = Drop {
                module,
                reason,
                at: now,
                budget: open.request.deadline.budget_at(now),
                estimate,
            };
            self.end(now, id, Outcome::Dropped(drop), None, out);
        }
    }

    fn give(&mut self, module: ModuleId, given: Given, out: &mut Vec<Command<P, L>>) {
        let Given {
            worker,
            serial,
            order,
            waiting,
            requests,
        } = given;
        let mut offered = Vec::with_capacity(requests.len());
        for pooled in requests {
            let Some(open) = self.ledger.get(pooled.request.id) else {
                continue;
            };
            offered.push(Lent {
                request: pooled.request,
                since: pooled.since,
                payload: open.load.clone(),
            });
            let dispatcher = &mut self.stages[module.idx()].dispatcher;
            dispatcher.give(worker, &pooled.request);
        }
        let answer = ToDevice::Answer(Answer {
            worker,
            serial,
            order,
            waiting,
            requests: offered,
        });
        self.tell_device(self.device_of(worker), answer, out);
    }
}
