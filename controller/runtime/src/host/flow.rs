//! The way of requests and states between module controllers, under the host's lock. What concerns others (workers,
//! clients) is noted as an effect.

use spillgate_backend::value::Value;
use spillgate_controller_policy::module::{Command, Event};
use spillgate_pipeline::id::{ModuleId, RequestId};
use spillgate_pipeline::request::{Drop as DropRecord, DropReason, Outcome, Request};
use spillgate_pipeline::time::Timestamp;

use super::effects::Effects;
use super::{Control, Dispatched, PipelineHost};

impl PipelineHost {
    /// Ends a request at the gateway, wherever it is.
    pub(super) fn drop_from_here(
        &self,
        control: &mut Control,
        now: Timestamp,
        id: RequestId,
        reason: DropReason,
        effects: &mut Effects,
    ) {
        let Some(open) = control.open.get(&id) else {
            return;
        };
        let budget = open.request.deadline.budget_at(now);
        let module = self
            .pipeline
            .modules
            .iter()
            .map(|m| m.id)
            .find(|m| control.modules[m.idx()].location(id).is_some())
            .unwrap_or(ModuleId::SOURCE);
        let drop = DropRecord {
            module,
            reason,
            at: now,
            budget,
            estimate: None,
        };
        self.end_early(control, now, id, Outcome::Dropped(drop), None, effects);
    }

    /// A module ran for a request, or was skipped: tells its successors, or the ledger.
    pub(super) fn module_done(
        &self,
        control: &mut Control,
        now: Timestamp,
        request: Request,
        module: ModuleId,
        present: bool,
        effects: &mut Effects,
    ) {
        let successors = &self.successors[module.idx()];
        if successors.is_empty() {
            if let Some(outcome) = control.ledger.sink_done(now, request.id)
                && let Some(open) = control.open.swap_remove(&request.id)
            {
                effects.end(open, outcome, now, None);
            }
            return;
        }
        for &to in successors {
            let condition = self.pipeline.modules[to.idx()]
                .when
                .filter(|port| present && port.module == module)
                .map(|port| {
                    let job = control.open.get(&request.id).map(|open| &open.job);
                    let value: Option<&Value> = job.and_then(|job| job.output(port));
                    value.is_some_and(|v| !v.is_empty())
                });
            let branch = Event::Branch {
                request,
                from: module,
                present,
                condition,
            };
            self.drive_module(control, now, to, branch, effects);
        }
    }

    /// Drives one module controller and follows its commands.
    pub(super) fn drive_module(
        &self,
        control: &mut Control,
        now: Timestamp,
        module: ModuleId,
        event: Event<'_>,
        effects: &mut Effects,
    ) {
        let mut commands = std::mem::take(&mut control.commands);
        control.modules[module.idx()].on_event(now, event, &mut commands);
        // Following a command may drive further modules, which then use a vector of their own.
        for command in commands.drain(..) {
            match command {
                Command::Send { request, worker } => {
                    if let Some(open) = control.open.get(&request.id) {
                        let job = open.job.clone();
                        effects.sends.push(Dispatched {
                            worker,
                            request,
                            job,
                        });
                    }
                }
                Command::Skip(request) => {
                    self.module_done(control, now, request, module, false, effects);
                }
                Command::Drop {
                    request,
                    reason,
                    estimate,
                } => {
                    let Some(open) = control.open.get(&request) else {
                        continue;
                    };
                    let budget = open.request.deadline.budget_at(now);
                    let drop = DropRecord {
                        module,
                        reason,
                        at: now,
                        budget,
                        estimate,
                    };
                    let outcome = Outcome::Dropped(drop);
                    self.end_early(control, now, request, outcome, None, effects);
                }
                Command::Fail(request) => {
                    let outcome = Outcome::Failed { module };
                    self.end_early(control, now, request, outcome, None, effects);
                }
                Command::CancelAt { request, worker } => effects.cancels.push((worker, request)),
                Command::Publish(state) => {
                    let offered = Event::Offered(control.ledger.learn(now, &state));
                    self.drive_module(control, now, module, offered, effects);
                    for other in (0..control.modules.len()).filter(|m| *m != module.idx()) {
                        let peer = Event::Peer(Box::new(state.clone()));
                        let to = ModuleId(other as u16);
                        self.drive_module(control, now, to, peer, effects);
                    }
                    control.published[module.idx()] = Some(state);
                }
                Command::Compute(computation) => effects.computations.push((module, computation)),
                Command::Guide(guidance) => effects.guides.push((module, guidance)),
            }
        }
        control.commands = commands;
    }

    /// Ends a request before its last module, if it has not ended: siblings are cancelled everywhere.
    pub(super) fn end_early(
        &self,
        control: &mut Control,
        now: Timestamp,
        id: RequestId,
        outcome: Outcome,
        error: Option<String>,
        effects: &mut Effects,
    ) {
        let Some(ended) = control.ledger.end(id) else {
            return;
        };
        if let Some(open) = control.open.swap_remove(&id) {
            effects.end(open, outcome, now, error);
        }
        let mut commands = std::mem::take(&mut control.commands);
        for module in &mut control.modules {
            module.on_event(now, Event::Forget(id), &mut commands);
        }
        let before = effects.cancels.len();
        effects
            .cancels
            .extend(commands.drain(..).filter_map(|c| match c {
                Command::CancelAt { request, worker } => Some((worker, request)),
                _ => None,
            }));
        control.commands = commands;
        if outcome.is_clients_doing() {
            let told = effects.cancels.len() - before;
            control.ledger.gives_back(now, &ended, told);
        }
    }
}
