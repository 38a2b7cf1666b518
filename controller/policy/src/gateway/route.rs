//! Passes requests from module to module.

use std::time::Duration;

use spillgate_pipeline::id::{ModuleId, RequestId, WorkerId};
use spillgate_pipeline::request::Request;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{Fault, Filled, Finished};

use super::joins::Joined;
use super::{Command, Gateway};
use crate::stage::Answer;

impl<P, L: Clone> Gateway<P, L> {
    /// A request is to be read by a worker of the source.
    pub(super) fn decode(&mut self, now: Timestamp, id: RequestId, out: &mut Vec<Command<P, L>>) {
        let source = ModuleId::SOURCE;
        if let Some(request) = self.ledger.get(id).map(|open| open.request_at(source)) {
            self.enter(now, source, request, out);
        }
    }

    /// A batch of that time and size ended. The requests of it that the worker has are charged for it.
    pub(super) fn charge(
        &mut self,
        module: ModuleId,
        worker: WorkerId,
        batch: (Duration, u32),
        members: &[Finished],
    ) {
        let stage = &self.stages[module.idx()];
        let ids = members.iter().map(|m| m.request);
        let ids = ids.filter(|id| stage.worker_with(*id) == Some(worker));
        self.ledger.charge(module, batch, ids);
    }

    /// A module ran for requests: the results count and are passed on where the worker has the request and it has not ended.
    pub(super) fn finished(
        &mut self,
        now: Timestamp,
        module: ModuleId,
        worker: WorkerId,
        members: Vec<Finished>,
        out: &mut Vec<Command<P, L>>,
    ) {
        for Finished { request, result } in members {
            match self.stages[module.idx()].answered(worker, request) {
                Answer::Counts(other) => {
                    if let Some(other) = other {
                        self.cancel(other, request, out);
                    }
                }
                Answer::Void if self.ledger.get(request).is_some() => {
                    self.n_ignored += 1;
                    continue;
                }
                Answer::Void => {}
            }
            if !self.ledger.ran(request, module) {
                continue;
            }
            self.brought(now, module, request, result, out);
        }
    }

    /// A module has outputs for a request, or brings nothing.
    pub(super) fn brought(
        &mut self,
        now: Timestamp,
        module: ModuleId,
        id: RequestId,
        result: Result<Filled, Fault>,
        out: &mut Vec<Command<P, L>>,
    ) {
        match result {
            Ok(filled) => self.complete(now, module, id, Some(filled), out),
            Err(fault) => self.faulted(now, module, id, fault, out),
        }
    }

    /// A module ran for a request, or was skipped (`None`). Its successors are entered or skipped. A request ends with the
    /// last result that it waits for. A repeated report changes nothing.
    fn complete(
        &mut self,
        now: Timestamp,
        module: ModuleId,
        id: RequestId,
        brought: Option<Filled>,
        out: &mut Vec<Command<P, L>>,
    ) {
        let is_new = |gateway: &mut Self| {
            let open = gateway.ledger.get_mut(id);
            open.is_some_and(|open| open.joins.finish(module))
        };
        if !is_new(self) {
            return;
        }
        if self.routes[module.idx()].is_awaited {
            self.result_in(now, id, out);
        }
        for i in 0..self.routes[module.idx()].successors.len() {
            let to = self.routes[module.idx()].successors[i];
            // The request may have been dropped at the module before this one.
            let Some(open) = self.ledger.get_mut(id) else {
                return;
            };
            let joiner = &self.routes[to.idx()].joiner;
            match joiner.branch(&mut open.joins, module, brought) {
                Joined::Waiting => {}
                Joined::Skip => {
                    self.demands.came(now, to, &open.request, false);
                    self.complete(now, to, id, None, out);
                }
                Joined::Run => {
                    let request = open.request_at(to);
                    self.enter(now, to, request, out);
                }
            }
        }
    }

    /// A request comes to a module that runs.
    fn enter(
        &mut self,
        now: Timestamp,
        module: ModuleId,
        request: Request,
        out: &mut Vec<Command<P, L>>,
    ) {
        self.demands.came(now, module, &request, true);
        if let Some(adapting) = &mut self.adapting
            && let Some(open) = self.ledger.get(request.id)
        {
            adapting.came(now, module, open.admitted_at);
        }
        let bound = self.bound_at(module, request.id);
        if let Some(effect) = self.stages[module.idx()].enter(now, request, bound) {
            self.carry_out(now, module, effect, out);
        }
    }
}
