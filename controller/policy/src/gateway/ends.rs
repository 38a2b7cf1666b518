//! How requests end: with the last result that a request waits for, or earlier. If earlier, every worker that has the
//! request is told.

use std::time::Duration;

use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::{ModuleId, RequestId, WorkerId};
use spillgate_pipeline::request::{Drop, DropReason, Outcome, Request};
use spillgate_pipeline::time::{Timestamp, format_duration};
use spillgate_protocol::message::{Fault, ToDevice};

use super::{Command, Ended, Gateway};
use crate::stage::Stage;

/// Least time after its deadline that an answer is waited for.
pub(crate) const GRACE_MIN: Duration = Duration::from_secs(1);
/// The same where workers may serve a request after its deadline.
pub(crate) const GRACE_LATE: Duration = Duration::from_secs(60);

/// How long after its deadline the answer of a request is waited for: the SLO, but no less than a second. No less than a
/// minute where waiting requests are not sorted by deadline, because they are not answered when it passes.
pub(super) fn grace(pipeline: &Pipeline) -> Duration {
    let expires = pipeline.policy.recipe().order.is_by_deadline();
    let least = if expires { GRACE_MIN } else { GRACE_LATE };
    pipeline.slo.max(least)
}

impl<P, L: Clone> Gateway<P, L> {
    /// A result that a request waits for is there, or will not come.
    pub(super) fn result_in(
        &mut self,
        now: Timestamp,
        id: RequestId,
        out: &mut Vec<Command<P, L>>,
    ) {
        if let Some((outcome, open)) = self.ledger.result_in(now, id) {
            self.applications.ended(open.request.application);
            self.stream_answered(&outcome, open.time_given());
            out.push(Command::End(Box::new(Ended {
                request: open.ended(self.pipeline.adapted()),
                outcome,
                at: now,
                cause: None,
                payload: open.payload,
            })));
        }
    }

    /// Ends a request before its last result, if it has not ended: it is cancelled wherever it is.
    pub(super) fn end(
        &mut self,
        now: Timestamp,
        id: RequestId,
        outcome: Outcome,
        cause: Option<String>,
        out: &mut Vec<Command<P, L>>,
    ) {
        let Some((ended, open)) = self.ledger.end(now, id) else {
            return;
        };
        self.applications.ended(open.request.application);
        self.stream_answered(&outcome, open.time_given());
        out.push(Command::End(Box::new(Ended {
            request: open.ended(self.pipeline.adapted()),
            outcome,
            at: now,
            cause,
            payload: open.payload,
        })));
        let mut cancelled_at = Vec::new();
        for module in 0..self.stages.len() {
            let removed = self.stages[module].remove(id);
            if removed.waited && outcome.is_clients_doing() {
                self.demands.unasked(now, ModuleId(module as u16));
            }
            cancelled_at.extend(removed.duplicate_at);
            if let Some(worker) = removed.sent_to
                && self.cancel(worker, id, out)
            {
                cancelled_at.push(worker);
            }
        }
        if outcome.is_clients_doing() {
            self.ledger.gives_back(now, &ended, cancelled_at);
            self.demands.offered(now, self.ledger.offered());
        } else {
            self.ledger.dropped(&ended);
        }
    }

    /// A worker dropped a request that waited there.
    pub(super) fn dropped(
        &mut self,
        now: Timestamp,
        worker: WorkerId,
        id: RequestId,
        drop: Drop,
        out: &mut Vec<Command<P, L>>,
    ) {
        let Some(module) = self.module_of(worker) else {
            return;
        };
        let was_there = self.stages[module.idx()].dropped(worker, id);
        let Some(background) = self.ledger.get(id).map(|open| open.request.background) else {
            // The request ended meanwhile. The worker dropped it, so it had not begun there.
            self.forgotten(now, worker, id);
            return;
        };
        if !was_there {
            // Where the worker was suspected, another one has the request.
            if !self.stages[module.idx()].forget_duplicate(worker, id) {
                self.n_ignored += 1;
            }
            return;
        }
        let has_run = self.ledger.has_run(id) != Some(false);
        if drop.reason.is_clients_doing() && !has_run && !background {
            self.demands.unasked(now, module);
        }
        self.end(now, id, Outcome::Dropped(drop), None, out);
    }

    /// A request found no room on its way to a worker: it is dropped, as by the worker.
    pub(super) fn unsent(
        &mut self,
        now: Timestamp,
        worker: WorkerId,
        id: RequestId,
        out: &mut Vec<Command<P, L>>,
    ) {
        let Some(module) = self.module_of(worker) else {
            return;
        };
        let Some(request) = self.ledger.get(id).map(|open| open.request) else {
            return;
        };
        let drop = Drop {
            module,
            reason: DropReason::Memory,
            at: now,
            budget: request.deadline.budget_at(now),
            estimate: None,
        };
        self.dropped(now, worker, id, drop, out);
    }

    /// A worker that was told to forget a request had not begun it.
    pub(super) fn forgotten(&mut self, now: Timestamp, worker: WorkerId, id: RequestId) {
        let Some(module) = self.module_of(worker) else {
            return;
        };
        self.stages[module.idx()].forget_duplicate(worker, id);
        if self.ledger.forgotten(worker, id) {
            self.demands.offered(now, self.ledger.offered());
            self.demands.unasked(now, module);
        }
    }

    /// Ends a request for a reason of this gateway, wherever it is.
    pub(super) fn drop_from_here(
        &mut self,
        now: Timestamp,
        id: RequestId,
        reason: DropReason,
        out: &mut Vec<Command<P, L>>,
    ) {
        let Some(open) = self.ledger.get(id) else {
            return;
        };
        let module = self.whereabouts(id).unwrap_or(ModuleId::SOURCE);
        let drop = dropped_outcome(now, &open.request, module, reason);
        self.end(now, id, drop, None, out);
    }

    /// Ends a request whose answer is over its grace.
    pub(super) fn give_up(&mut self, now: Timestamp, id: RequestId, out: &mut Vec<Command<P, L>>) {
        let (module, at) = match self.location(id) {
            Some((module, worker)) => (module, format!("worker {worker}")),
            None => (ModuleId::SOURCE, "its gateway".to_owned()),
        };
        let cause = format!(
            "no answer came within {} after the deadline; the request was last at {at}",
            format_duration(self.grace)
        );
        self.fail(now, id, module, cause, out);
    }

    /// Ends a request for which a module brought nothing.
    pub(super) fn faulted(
        &mut self,
        now: Timestamp,
        module: ModuleId,
        id: RequestId,
        fault: Fault,
        out: &mut Vec<Command<P, L>>,
    ) {
        let Some(open) = self.ledger.get(id) else {
            return;
        };
        let (outcome, cause) = match fault {
            Fault::Module(cause) => (Outcome::Failed { module }, cause),
            Fault::Memory(cause) => {
                let reason = DropReason::Memory;
                (dropped_outcome(now, &open.request, module, reason), cause)
            }
        };
        self.end(now, id, outcome, Some(cause), out);
    }

    /// Ends a request because of a fault of the server at that module. At the source the request is dropped: *failed* there
    /// means a frame that cannot be decoded.
    pub(super) fn fail(
        &mut self,
        now: Timestamp,
        id: RequestId,
        module: ModuleId,
        cause: String,
        out: &mut Vec<Command<P, L>>,
    ) {
        let Some(open) = self.ledger.get(id) else {
            return;
        };
        let outcome = match module {
            ModuleId::SOURCE => dropped_outcome(now, &open.request, module, DropReason::NoWorker),
            _ => Outcome::Failed { module },
        };
        self.end(now, id, outcome, Some(cause), out);
    }

    /// The first module whose worker has the request.
    fn location(&self, id: RequestId) -> Option<(ModuleId, WorkerId)> {
        let mut stages = (0..).zip(&self.stages);
        stages.find_map(|(module, stage)| Some((ModuleId(module), stage.worker_with(id)?)))
    }

    /// The first module that has the request, at a worker or in a pool.
    fn whereabouts(&self, id: RequestId) -> Option<ModuleId> {
        let has = |stage: &Stage| stage.worker_with(id).is_some() || stage.waits(id);
        let module = self.stages.iter().position(has)?;
        Some(ModuleId(module as u16))
    }

    /// Drops a request wherever it waits; where it executes, it goes on.
    pub(super) fn withdraw(&mut self, now: Timestamp, id: RequestId, out: &mut Vec<Command<P, L>>) {
        if self.stages.iter().any(|stage| stage.waits(id)) {
            self.drop_from_here(now, id, DropReason::Superseded, out);
            return;
        }
        for stage in &self.stages {
            if let Some(worker) = stage.worker_with(id) {
                let withdraw = ToDevice::Withdraw(worker, id, DropReason::Superseded);
                self.tell_device(self.device_of(worker), withdraw, out);
            }
        }
    }
}

/// The end of a request that is dropped without an estimate.
pub(super) fn dropped_outcome(
    now: Timestamp,
    request: &Request,
    module: ModuleId,
    reason: DropReason,
) -> Outcome {
    Outcome::Dropped(Drop {
        module,
        reason,
        at: now,
        budget: request.deadline.budget_at(now),
        estimate: None,
    })
}
