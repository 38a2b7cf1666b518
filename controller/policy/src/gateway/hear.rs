//! What devices and controllers tell a gateway, and which of them may say it.

use spillgate_pipeline::id::{ModuleId, WorkerId};
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{Address, Ask, Fault, Finished, ModulePlan, Returned, ToGateway};

use super::{Command, Gateway};

impl<P, L: Clone> Gateway<P, L> {
    /// Takes in a message of its sender's life that counts.
    pub(super) fn hear(
        &mut self,
        now: Timestamp,
        message: ToGateway,
        out: &mut Vec<Command<P, L>>,
    ) {
        match message {
            ToGateway::Started(started) => {
                if let Some(stage) = self.stage_of(started.worker) {
                    stage.started(&started);
                }
            }
            ToGateway::Finished {
                worker,
                batch,
                took,
                size,
                members,
            } => {
                if let Some(module) = self.module_of(worker) {
                    self.stages[module.idx()].batch_ended(worker, batch);
                    self.charge(module, worker, (took, size), &members);
                    self.finished(now, module, worker, members, out);
                }
            }
            ToGateway::Failed {
                worker,
                request,
                why,
            } => {
                if let Some(module) = self.module_of(worker) {
                    let result = Err(Fault::Module(why));
                    let failed = vec![Finished { request, result }];
                    self.finished(now, module, worker, failed, out);
                }
            }
            ToGateway::Dropped {
                worker,
                request,
                drop,
            } => self.dropped(now, worker, request, *drop, out),
            ToGateway::Forgotten { worker, request } => self.forgotten(now, worker, request),
            ToGateway::Ask(ask) => self.asked(now, &ask, out),
            ToGateway::Withdrawn(worker, serial) => {
                if let Some(stage) = self.stage_of(worker) {
                    stage.withdrawn(worker, serial);
                }
            }
            ToGateway::Returned(returned) => self.returned(now, &returned, out),
            ToGateway::Leaves(worker) => {
                if let Some(stage) = self.stage_of(worker) {
                    stage.leaves(worker);
                }
            }
            ToGateway::Plan(module, plan) => {
                let part = self.hear_part(now, &plan);
                if let Some(stage) = self.stages.get_mut(module.idx()) {
                    stage.follow(now, ModulePlan { part, ..*plan });
                }
            }
            ToGateway::State(state) => {
                self.ledger.learn(now, &state);
                self.tell_gate(now);
                // `may_say` has seen that the module is there.
                self.stages[state.module.idx()].learn(state);
            }
            ToGateway::Clients(portion) => self.hear_portion(now, &portion),
            ToGateway::Holds(worker, models) => {
                if let Some(stage) = self.stage_of(worker) {
                    stage.holds(worker, &models);
                }
            }
            ToGateway::Serve(worker) => self.list(worker, true),
            ToGateway::Retire(worker) => self.list(worker, false),
            ToGateway::Try(worker) => {
                if let Some(stage) = self.stage_of(worker) {
                    stage.try_out(worker);
                }
            }
        }
    }

    fn list(&mut self, worker: WorkerId, serves: bool) {
        if let Some(stage) = self.stage_of(worker) {
            stage.list(worker, serves);
        }
    }

    /// Whether the message is its sender's to say: a device speaks for its own workers, a controller for its module.
    pub(super) fn may_say(&self, from: Address, message: &ToGateway) -> bool {
        let place = |worker: &WorkerId| self.places.get(*worker);
        let device_of = |worker| place(worker).map(|p| Address::Device(p.device));
        let controller_of = |worker| place(worker).map(|p| Address::Controller(p.module));
        let sayer = match message {
            ToGateway::Started(started) => device_of(&started.worker),
            ToGateway::Finished { worker, .. }
            | ToGateway::Failed { worker, .. }
            | ToGateway::Dropped { worker, .. }
            | ToGateway::Forgotten { worker, .. }
            | ToGateway::Ask(Ask { worker, .. })
            | ToGateway::Withdrawn(worker, _)
            | ToGateway::Leaves(worker)
            | ToGateway::Holds(worker, _)
            | ToGateway::Returned(Returned { worker, .. }) => device_of(worker),
            ToGateway::Plan(module, _) => Some(Address::Controller(*module)),
            ToGateway::State(state) => {
                let is_known = state.module.idx() < self.stages.len();
                is_known.then_some(Address::Controller(state.module))
            }
            ToGateway::Clients(_) => Some(Address::Controller(ModuleId::SOURCE)),
            ToGateway::Serve(worker) | ToGateway::Retire(worker) | ToGateway::Try(worker) => {
                controller_of(worker)
            }
        };
        sayer == Some(from)
    }
}
