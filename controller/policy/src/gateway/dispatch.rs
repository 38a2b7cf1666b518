//! Passes requests from module to module.

use rand::Rng;
use spillgate_pipeline::id::{ModuleId, RequestId, WorkerId};
use spillgate_pipeline::request::{Drop, DropReason, Estimate, Outcome, Request};
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{Arrival, Filled};

use super::joins::Joined;
use super::{Command, Gateway, Stage};

impl<P, L: Clone> Gateway<P, L> {
    /// A request is to be read by a worker of the source.
    pub(super) fn decode(&mut self, now: Timestamp, id: RequestId, out: &mut Vec<Command<P, L>>) {
        if let Some(request) = self.ledger.get(id).map(|open| open.request) {
            self.dispatch(now, ModuleId::SOURCE, &request, out);
        }
    }

    /// A module ran for a request, or was skipped (`None`). Its successors are entered or skipped. A request ends with the
    /// last result that it waits for. A repeated report changes nothing.
    pub(super) fn complete(
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
        if self.awaited[module.idx()] {
            self.result_in(now, id, out);
        }
        for i in 0..self.successors[module.idx()].len() {
            let to = self.successors[module.idx()][i];
            // The request may have been dropped at the module before this one.
            let Some(open) = self.ledger.get_mut(id) else {
                return;
            };
            let request = open.request;
            let joiner = &self.stages[to.idx()].joiner;
            match joiner.branch(&mut open.joins, module, brought) {
                Joined::Waiting => {}
                Joined::Skip => {
                    self.demands.came(now, to, &request, false);
                    self.complete(now, to, id, None, out);
                }
                Joined::Run => self.dispatch(now, to, &request, out),
            }
        }
    }

    /// Sends a request to a worker of the module, or drops it.
    fn dispatch(
        &mut self,
        now: Timestamp,
        module: ModuleId,
        request: &Request,
        out: &mut Vec<Command<P, L>>,
    ) {
        self.demands.came(now, module, request, true);
        if let Some(adapting) = &mut self.adapting
            && let Some(open) = self.ledger.get(request.id)
        {
            adapting.came(now, module, open.admitted_at);
        }
        let stage = &mut self.stages[module.idx()];
        let refused = stage.refuses(now, request);
        let (reason, estimate) = match refused {
            Some(refused) => refused,
            None => match self.place(now, module, request) {
                Ok(()) => return,
                Err(reason) => (reason, None),
            },
        };
        let drop = Drop {
            module,
            reason,
            at: now,
            budget: request.deadline.budget_at(now),
            estimate,
        };
        self.end(now, request.id, Outcome::Dropped(drop), None, out);
    }

    /// Chooses a worker for a request, or lets the request wait for one. One without an SLO is sent at once where others are pulled: no
    /// worker asks for it, and it waits there for idle time.
    ///
    /// # Errors
    /// Why it cannot: no worker serves, or too many requests wait.
    pub(super) fn place(
        &mut self,
        now: Timestamp,
        module: ModuleId,
        request: &Request,
    ) -> Result<(), DropReason> {
        let seat = self.seat_at(module, request.id);
        let Some(open) = self.ledger.get(request.id) else {
            return Ok(());
        };
        let Stage {
            dispatcher, pool, ..
        } = &mut self.stages[module.idx()];
        if let Some(pool) = pool
            && !request.background
        {
            if dispatcher.n_up() == 0 {
                return Err(DropReason::NoWorker);
            }
            let has_room = pool.push(&open.request_at(module), now);
            return has_room.then_some(()).ok_or(DropReason::QueueFull);
        }
        let mut request = open.request_at(module);
        let worker = match seat {
            Some(seat) => {
                request.batch_most = u16::try_from(seat.batch).unwrap_or(u16::MAX);
                let is_known = dispatcher.give(seat.worker, &request);
                is_known.then_some(seat.worker)
            }
            None => dispatcher.send(now, &request),
        };
        let worker = worker.ok_or(DropReason::NoWorker)?;
        let arrival = Arrival {
            worker,
            request,
            payload: open.load.clone(),
        };
        let device = self.device_of(worker);
        match self.sends.iter_mut().find(|(to, _)| *to == device) {
            Some((_, together)) => together.push(arrival),
            None => self.sends.push((device, vec![arrival])),
        }
        Ok(())
    }

    /// The request is no longer at that worker. False when it was not there: another worker may have it.
    pub(super) fn take_back(&mut self, module: ModuleId, worker: WorkerId, id: RequestId) -> bool {
        let dispatcher = &mut self.stages[module.idx()].dispatcher;
        let was_there = dispatcher.location(id) == Some(worker);
        if was_there {
            dispatcher.take_back(id);
            dispatcher.forget_stray(id);
        }
        was_there
    }
}

impl Stage {
    /// Whether a request that is about to be dispatched is dropped instead, and why. One without an SLO may wait. The module sheds load, or even the batch
    /// that starts earliest would finish the request with less than the margin to spare. The newest request is dropped because
    /// the backlog before it still fits the SLO. Where workers serve higher ranks first, waiting requests of lower ranks do not
    /// count: workers drop these instead.
    fn refuses(
        &mut self,
        now: Timestamp,
        request: &Request,
    ) -> Option<(DropReason, Option<Estimate>)> {
        if request.background {
            return None;
        }
        let admits = self.plan.admits;
        if admits < 1.0 && self.rng.random::<f64>() >= admits {
            return Some((DropReason::Overload, None));
        }
        let door = self.plan.door?;
        let rank = if self.ranks { request.rank } else { 0 };
        let starts_at = match &self.pool {
            None => self.dispatcher.earliest_start(now, rank)?,
            Some(pool) => {
                let is_up = |worker| self.dispatcher.is_up(worker);
                pool.earliest_start(now, self.view(), rank, is_up)
            }
        };
        let ends_at = starts_at + door.execution + door.downstream;
        // A part of the time that is left: a request that came over a slow link has used some of its own without any backlog.
        let left = request.deadline.since(now);
        let is_late = ends_at + left.mul_f64(door.margin) > request.deadline;
        is_late.then_some((
            DropReason::Predicted,
            Some(Estimate {
                wait: starts_at.since(now),
                execution: door.execution,
                downstream: door.downstream,
            }),
        ))
    }
}
