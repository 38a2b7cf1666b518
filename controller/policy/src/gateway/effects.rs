//! Carries out what stages decide: it adds what workers need of a request, and ends requests that are dropped.

use spillgate_pipeline::id::{ModuleId, RequestId, WorkerId};
use spillgate_pipeline::request::{Drop, DropReason, Outcome, Request};
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{Answer, Arrival, Ask, Lent, Returned, ToDevice};

use super::ends::dropped_outcome;
use super::{Command, Gateway};
use crate::stage::pool::{Given, PoolDrop};
use crate::stage::{Effect, Stage};

impl<P, L: Clone> Gateway<P, L> {
    /// A worker asks for requests.
    pub(super) fn asked(&mut self, now: Timestamp, ask: &Ask, out: &mut Vec<Command<P, L>>) {
        if let Some(module) = self.module_of(ask.worker) {
            self.at_stage(now, module, out, |stage, effects| {
                stage.asked(now, ask, effects);
            });
        }
    }

    /// A worker hands requests back. They wait again as if they had never left.
    pub(super) fn returned(
        &mut self,
        now: Timestamp,
        returned: &Returned,
        out: &mut Vec<Command<P, L>>,
    ) {
        let worker = returned.worker;
        let Some(module) = self.module_of(worker) else {
            return;
        };
        if !self.stages[module.idx()].is_pulled() {
            return;
        }
        self.stages[module.idx()].returned(returned);
        for &(id, since) in &returned.requests {
            let stage = &mut self.stages[module.idx()];
            if !stage.take_back(worker, id) {
                // The request ended while it was there.
                self.forgotten(now, worker, id);
                continue;
            }
            let Some(open) = self.ledger.get(id) else {
                continue;
            };
            if !stage.wait_again(&open.request_at(module), since) {
                let drop = dropped_outcome(now, &open.request, module, DropReason::QueueFull);
                self.end(now, id, drop, None, out);
            }
        }
    }

    /// Serves the asks that stand with what has come, after an event.
    pub(super) fn serve_asks(&mut self, now: Timestamp, out: &mut Vec<Command<P, L>>) {
        // What has just come may be over its deadline.
        for i in 0..self.pulled.len() {
            let module = self.pulled[i];
            let expires_at = self.stages[module.idx()].next_wakeup();
            if expires_at.is_some_and(|at| at <= now) {
                self.at_stage(now, module, out, |stage, effects| {
                    stage.expire(now, effects);
                });
            }
        }
        for i in 0..self.pulled.len() {
            let module = self.pulled[i];
            if self.stages[module.idx()].can_serve() {
                self.at_stage(now, module, out, |stage, effects| stage.serve(now, effects));
            }
        }
    }

    /// When the first deadline of a request in a pool passes.
    pub(super) fn pool_expires_at(&self) -> Option<Timestamp> {
        let stages = self.pulled.iter().map(|module| &self.stages[module.idx()]);
        stages.filter_map(Stage::next_wakeup).min()
    }

    /// Passes an event on to a module, and carries out what follows.
    fn at_stage(
        &mut self,
        now: Timestamp,
        module: ModuleId,
        out: &mut Vec<Command<P, L>>,
        event: impl FnOnce(&mut Stage, &mut Vec<Effect>),
    ) {
        let mut effects = std::mem::take(&mut self.effects);
        event(&mut self.stages[module.idx()], &mut effects);
        for effect in effects.drain(..) {
            self.carry_out(now, module, effect, out);
        }
        self.effects = effects;
    }

    /// Does what a stage wants.
    pub(super) fn carry_out(
        &mut self,
        now: Timestamp,
        module: ModuleId,
        effect: Effect,
        out: &mut Vec<Command<P, L>>,
    ) {
        match effect {
            Effect::Send(worker, request) => self.send_request(worker, request),
            Effect::Answer(given) => self.answer(given, out),
            Effect::Drop(refused) => self.refuse(now, module, refused, out),
        }
    }

    /// Sends a request to a worker, at the end of this event.
    fn send_request(&mut self, worker: WorkerId, request: Request) {
        let device = self.device_of(worker);
        let Some(open) = self.ledger.get(request.id) else {
            return;
        };
        let arrival = Arrival {
            worker,
            request,
            payload: open.load.clone(),
        };
        match self.sends.iter_mut().find(|(to, _)| *to == device) {
            Some((_, together)) => together.push(arrival),
            None => self.sends.push((device, vec![arrival])),
        }
    }

    /// A worker that asked gets requests.
    fn answer(&self, given: Given, out: &mut Vec<Command<P, L>>) {
        let Given {
            worker,
            serial,
            order,
            waiting,
            requests,
        } = given;
        let mut offered = Vec::with_capacity(requests.len());
        for pooled in requests {
            if let Some(open) = self.ledger.get(pooled.request.id) {
                offered.push(Lent {
                    request: pooled.request,
                    since: pooled.since,
                    payload: open.load.clone(),
                });
            }
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

    /// A request is dropped at a module.
    fn refuse(
        &mut self,
        now: Timestamp,
        module: ModuleId,
        refused: PoolDrop,
        out: &mut Vec<Command<P, L>>,
    ) {
        let PoolDrop {
            id,
            reason,
            estimate,
        } = refused;
        let Some(open) = self.ledger.get(id) else {
            return;
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

    /// A worker is to forget a request. False when the request has not been sent to it yet: the worker never hears of it.
    pub(super) fn cancel(
        &mut self,
        worker: WorkerId,
        id: RequestId,
        out: &mut Vec<Command<P, L>>,
    ) -> bool {
        let was_sent = !self.unsend(id, worker);
        if was_sent {
            self.tell_device(self.device_of(worker), ToDevice::Cancel(worker, id), out);
        }
        was_sent
    }

    /// Takes back what would be sent at the end of this event. False when it has been sent.
    fn unsend(&mut self, id: RequestId, worker: WorkerId) -> bool {
        let mut taken = false;
        for (_, requests) in &mut self.sends {
            let before = requests.len();
            requests.retain(|a| a.request.id != id || a.worker != worker);
            taken |= requests.len() < before;
        }
        self.sends.retain(|(_, requests)| !requests.is_empty());
        taken
    }

    /// Sends the requests of the event, together by device.
    pub(super) fn send_requests(&mut self, out: &mut Vec<Command<P, L>>) {
        if self.sends.is_empty() {
            return;
        }
        let mut sends = std::mem::take(&mut self.sends);
        for (device, requests) in sends.drain(..) {
            self.tell_device(device, ToDevice::Requests(requests), out);
        }
        self.sends = sends;
    }
}
