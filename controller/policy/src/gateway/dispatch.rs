//! The way of requests from module to module.

use rand::Rng;
use spillgate_pipeline::id::{ModuleId, RequestId};
use spillgate_pipeline::message::Arrival;
use spillgate_pipeline::request::{Drop, DropReason, Estimate, Outcome, Request};
use spillgate_pipeline::time::Timestamp;

use super::joins::Joined;
use super::{Branch, Branches, Command, Gateway};
use crate::message::ToController;

impl<P, L: Clone> Gateway<P, L> {
    /// A request enters at the source, where a worker decodes it.
    pub(super) fn enter(&mut self, now: Timestamp, id: RequestId, out: &mut Vec<Command<P, L>>) {
        let Some(request) = self.request(id).copied() else {
            return;
        };
        if let Err(drop) = self.dispatch(now, ModuleId::SOURCE, &request, out) {
            self.end(now, id, Outcome::Dropped(drop), None, out);
        }
    }

    /// A module ran for requests (`holds`), or was skipped: the modules after it hear of it. After the last one a
    /// request ends.
    pub(super) fn pass(
        &mut self,
        now: Timestamp,
        from: ModuleId,
        requests: &[RequestId],
        mut holds: Option<&mut dyn FnMut(RequestId, ModuleId) -> bool>,
        out: &mut Vec<Command<P, L>>,
    ) {
        if requests.is_empty() {
            return;
        }
        if self.successors[from.idx()].is_empty() {
            for &id in requests {
                self.sink_done(now, id, out);
            }
            return;
        }
        for &to in &self.successors[from.idx()] {
            let when = self.pipeline.modules[to.idx()].when;
            let conditional = when.is_some_and(|port| port.module == from);
            let branch = |&request: &RequestId| Branch {
                request,
                present: holds.is_some(),
                condition: match &mut holds {
                    Some(holds) if conditional => Some(holds(request, to)),
                    _ => None,
                },
            };
            let members = requests.iter().map(branch).collect();
            out.push(Command::Branches(Branches { from, to, members }));
        }
    }

    /// Branches reach a module: where all are in, the request goes to a worker, is dropped, or skips the module.
    pub(super) fn join(
        &mut self,
        now: Timestamp,
        branches: &Branches,
        out: &mut Vec<Command<P, L>>,
    ) {
        let Branches { from, to, members } = branches;
        let (mut skipped, mut dropped) = (Vec::new(), Vec::new());
        for branch in members {
            let Some(open) = self.ledger.get_mut(branch.request) else {
                continue;
            };
            let request = open.request;
            match self.stages[to.idx()]
                .joiner
                .branch(&mut open.joins, *from, branch)
            {
                Joined::Waiting => {}
                Joined::Skip => {
                    let reached = ToController::Reached(request, false);
                    out.push(Command::ToController(*to, reached));
                    skipped.push(request.id);
                }
                Joined::Run => {
                    if let Err(drop) = self.dispatch(now, *to, &request, out) {
                        dropped.push((request.id, drop));
                    }
                }
            }
        }
        for (id, drop) in dropped {
            self.end(now, id, Outcome::Dropped(drop), None, out);
        }
        self.pass(now, *to, &skipped, None, out);
    }

    /// Sends a request to a worker of the module, or says why it is dropped.
    fn dispatch(
        &mut self,
        now: Timestamp,
        module: ModuleId,
        request: &Request,
        out: &mut Vec<Command<P, L>>,
    ) -> Result<(), Drop> {
        let tell = |message| Command::ToController(module, message);
        out.push(tell(ToController::Reached(*request, true)));
        let drop = |reason, estimate| Drop {
            module,
            reason,
            at: now,
            budget: request.deadline.budget_at(now),
            estimate,
        };
        let stage = &mut self.stages[module.idx()];
        let admits = stage.plan.admits;
        if admits < 1.0 && stage.rng.random::<f64>() >= admits {
            out.push(tell(ToController::Dropped));
            return Err(drop(DropReason::Overload, None));
        }
        if let Some(estimate) = stage.refuses(now, request) {
            out.push(tell(ToController::Dropped));
            return Err(drop(DropReason::Predicted, Some(estimate)));
        }
        let Some(worker) = stage.dispatcher.send(now, request.id) else {
            return Err(drop(DropReason::NoWorker, None));
        };
        let Some(open) = self.ledger.get(request.id) else {
            return Ok(());
        };
        let arrival = Arrival {
            worker,
            request: *request,
            payload: open.load.clone(),
        };
        let device = self.places[&worker].device;
        match self.sends.iter_mut().find(|(to, _)| *to == device) {
            Some((_, together)) => together.push(arrival),
            None => self.sends.push((device, vec![arrival])),
        }
        Ok(())
    }
}

impl super::Stage {
    /// Whether a request that is about to be dispatched is refused at its first module: a batch that starts as early as
    /// any would bring it to its end with less than the margin to spare. It is the newest request that is refused: the
    /// backlog before it is as long as the SLO bears.
    fn refuses(&self, now: Timestamp, request: &Request) -> Option<Estimate> {
        let door = self.plan.door?;
        let starts_at = self.dispatcher.earliest_start(now)?;
        let ends_at = starts_at + door.execution + door.downstream;
        let slo = request.deadline.since(request.sent_at);
        (ends_at + slo.mul_f64(door.margin) > request.deadline).then_some(Estimate {
            wait: starts_at.since(now),
            execution: door.execution,
            downstream: door.downstream,
        })
    }
}
