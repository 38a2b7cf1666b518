//! How requests end: at the last module, or before it, and then whoever has them is told.

use spillgate_pipeline::id::{ModuleId, RequestId};
use spillgate_pipeline::message::ToDevice;
use spillgate_pipeline::request::{Drop, DropReason, Outcome};
use spillgate_pipeline::time::Timestamp;

use super::{Command, Ended, Gateway};

impl<P, L: Clone> Gateway<P, L> {
    /// The last module on a path is done with a request, or was skipped.
    pub(super) fn sink_done(
        &mut self,
        now: Timestamp,
        id: RequestId,
        out: &mut Vec<Command<P, L>>,
    ) {
        if let Some((outcome, open)) = self.ledger.sink_done(now, id) {
            out.push(Command::End(Box::new(Ended {
                request: open.request,
                outcome,
                at: now,
                cause: None,
                payload: open.payload,
            })));
        }
    }

    /// Ends a request before its last module, if it has not ended: its siblings are cancelled everywhere.
    pub(super) fn end(
        &mut self,
        now: Timestamp,
        id: RequestId,
        outcome: Outcome,
        cause: Option<String>,
        out: &mut Vec<Command<P, L>>,
    ) {
        let Some((ended, open)) = self.ledger.end(id) else {
            return;
        };
        out.push(Command::End(Box::new(Ended {
            request: open.request,
            outcome,
            at: now,
            cause,
            payload: open.payload,
        })));
        let mut told = 0;
        for stage in &mut self.stages {
            if let Some(worker) = stage.dispatcher.take_back(id) {
                let device = self.places[&worker].device;
                out.push(Command::ToDevice(device, ToDevice::Cancel(id)));
                told += 1;
            }
        }
        if outcome.is_clients_doing() {
            self.ledger.gives_back(now, &ended, told);
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
        let Some(request) = self.request(id) else {
            return;
        };
        let budget = request.deadline.budget_at(now);
        let ids = self.pipeline.modules.iter().map(|m| m.id);
        let waits_at = |m: &ModuleId| self.stages[m.idx()].dispatcher.location(id).is_some();
        let drop = Drop {
            module: { ids }.find(waits_at).unwrap_or(ModuleId::SOURCE),
            reason,
            at: now,
            budget,
            estimate: None,
        };
        self.end(now, id, Outcome::Dropped(drop), None, out);
    }

    /// Drops a request wherever it waits; where it executes, it goes on.
    pub(super) fn withdraw(&self, id: RequestId, out: &mut Vec<Command<P, L>>) {
        for stage in &self.stages {
            if let Some(worker) = stage.dispatcher.location(id) {
                let withdraw = ToDevice::Withdraw(id, DropReason::Superseded);
                out.push(Command::ToDevice(self.places[&worker].device, withdraw));
            }
        }
    }
}
