//! What a batch that ended brings.

use std::sync::Arc;

use smallvec::SmallVec;
use spillgate_pipeline::id::{GatewayId, ModuleId, RequestId, WorkerId};
use spillgate_pipeline::pipeline::PortRef;
use spillgate_pipeline::time::Timestamp;
use spillgate_process::job::{Failure, Job, Ran, are_outputs_of};
use spillgate_process::value::{Outputs, Value};
use spillgate_protocol::message::{
    Address, BatchReport, Envelope, Fault, Filled, Finished, Message, Place, ToController,
    ToGateway,
};

use super::drive::{Effects, keep};
use super::{
    CHECKED_ONE_IN, Control, ItemOutputs, ItemResult, OpenRequest, Outgoing, PipelineHost,
};
use crate::record::BatchRecord;

impl Control {
    /// The open request, if the gateway awaits it from that worker.
    fn awaited(&mut self, worker: WorkerId, request: RequestId) -> Option<&mut OpenRequest> {
        let gateway = self.gateway.as_mut()?;
        gateway.awaits(worker, request).then_some(())?;
        gateway.payload_mut(request)
    }
}

impl PipelineHost {
    /// A batch of a module ended on a device of this process. Each gateway with requests in it hears of its own, and
    /// `forecasters` hear of it in any case.
    pub fn finished(
        &self,
        batch: &BatchRecord,
        forecasters: &[GatewayId],
        members: impl ExactSizeIterator<Item = ItemResult>,
    ) {
        let say = |to, message| Envelope {
            from: Address::Device(batch.device),
            incarnation: self.roles.incarnation,
            to,
            message,
        };
        let n_members = members.len();
        let mut report = BatchReport {
            worker: batch.worker,
            variant: batch.variant,
            started_at: batch.started_at,
            ended_at: batch.ended_at,
            size: batch.ran_together,
            members: Vec::with_capacity(n_members),
        };
        // What is brought for requests that have ended, and may be the last to hold them: freed without the host's lock.
        let mut unwanted = Vec::new();
        self.act(|control, now, effects| {
            let of = |id: &GatewayId| ForGateway::new(*id, n_members);
            let mut gateways: SmallVec<[ForGateway; 1]> = forecasters.iter().map(of).collect();
            for member in members {
                let times = &member.times;
                if !member.request.background {
                    report.members.push((times.arrived_at, times.batched_at));
                }
                let id = member.request.id.owner();
                let at = gateways.iter().position(|gateway| gateway.id == id);
                let at = at.unwrap_or_else(|| {
                    gateways.push(of(&id));
                    gateways.len() - 1
                });
                let gateway = &mut gateways[at];
                if self.roles.gateway == Some(id) {
                    let stored = self.store(control, batch.module, member, &mut unwanted);
                    gateway.members.push(stored);
                } else {
                    let (finished, brought) = self.bring(batch.module, member);
                    gateway.members.push(finished);
                    gateway.brought.push(brought);
                }
            }
            if batch.batch.0.is_multiple_of(CHECKED_ONE_IN) {
                let ids = gateways.iter().flat_map(|gateway| &gateway.members);
                let ids: Vec<RequestId> = ids.map(|m| m.request).collect();
                self.check(control, now, batch, &ids, effects);
            }
            for gateway in gateways {
                let finished = ToGateway::Finished {
                    worker: batch.worker,
                    batch: batch.batch,
                    took: batch.ended_at.since(batch.started_at),
                    size: batch.ran_together,
                    members: gateway.members,
                };
                let envelope = say(Address::Gateway(gateway.id), Message::Gateway(finished));
                let brought = gateway.brought;
                self.carry(control, now, Outgoing { envelope, brought }, effects);
            }
            // Requests without an SLO are no measure for the others: a batch of them is not reported.
            if !report.members.is_empty() {
                let report = Message::Controller(ToController::Report(report));
                let report = say(Address::Controller(batch.module), report);
                self.carry(control, now, report.into(), effects);
            }
        });
        self.observer.batch_ended(&self.pipeline, batch);
    }

    /// A role of another process says something to a gateway or controller of this one. `brought` comes with the end of a batch,
    /// one entry a member.
    pub fn heard(&self, mut envelope: Envelope<Arc<Job>>, brought: Vec<ItemOutputs>) {
        // Freed without the host's lock, and so is what a worker brings that has left.
        let mut unwanted = Vec::new();
        let mut brought = brought.into_iter();
        self.act(|control, now, effects| {
            if let Message::Gateway(ToGateway::Finished {
                worker, members, ..
            }) = &mut envelope.message
                && let Some(Place { module, device, .. }) = control.others.place(*worker)
                && envelope.from == Address::Device(device)
            {
                for (member, brought) in members.iter_mut().zip(brought.by_ref()) {
                    let Some(open) = control.awaited(*worker, member.request) else {
                        unwanted.push(brought);
                        continue;
                    };
                    open.times.push(brought.times);
                    if let Some(damage) = brought.damage {
                        open.job.note_damage(damage);
                    }
                    if member.result.is_ok()
                        && let Err(fault) = self.take_in(open, module, brought.outputs)
                    {
                        member.result = Err(fault);
                    }
                }
            }
            self.carry(control, now, envelope.into(), effects);
        });
    }

    /// Keeps what a module of another process brought.
    fn take_in(
        &self,
        open: &OpenRequest,
        module: ModuleId,
        outputs: Option<Outputs>,
    ) -> Result<(), Fault> {
        let of = &self.pipeline.modules[module.idx()];
        let fitting = outputs.filter(|outputs| are_outputs_of(of, outputs));
        let outputs = fitting.ok_or_else(|| {
            let name = &of.name;
            Fault::Module(format!("the worker sent values that {name} does not bring"))
        })?;
        let taken = open.job.set_brought(module, outputs);
        taken.map_err(|full| Fault::Memory(full.to_string()))
    }

    /// Checks a batch.
    fn check(
        &self,
        control: &mut Control,
        now: Timestamp,
        batch: &BatchRecord,
        members: &[RequestId],
        effects: &mut Effects,
    ) {
        let most = self.pipeline.modules[batch.module.idx()].batch.max;
        let (device, id) = (batch.device, batch.batch);
        let checker = &mut control.checker;
        let started = checker.batch_started(device, id, most, now, members);
        let ended = checker.batch_ended(device, id, now);
        keep(started.and(ended), effects);
    }

    /// Keeps what a module brought for a request, unless the request has ended.
    fn store(
        &self,
        control: &mut Control,
        module: ModuleId,
        member: ItemResult,
        unwanted: &mut Vec<(Arc<Job>, Ran)>,
    ) -> Finished {
        let ItemResult {
            request,
            job,
            times,
            result,
        } = member;
        let gateway = control.gateway.as_mut();
        let result = match gateway.and_then(|g| g.payload_mut(request.id)) {
            Some(open) => {
                open.times.push(times);
                let stored =
                    result.and_then(|o| job.set_outputs(module, o).map_err(Failure::Memory));
                match stored {
                    Ok(()) => Ok(self.filled(module, |port| job.output(port))),
                    Err(failure) => Err(fault(failure)),
                }
            }
            None => {
                unwanted.push((job, result));
                Ok(Filled::default())
            }
        };
        Finished {
            request: request.id,
            result,
        }
    }

    /// What a module brought for a request whose gateway is in another process.
    fn bring(&self, module: ModuleId, member: ItemResult) -> (Finished, ItemOutputs) {
        let (result, outputs) = match member.result {
            Ok(outputs) => {
                let output = |port: PortRef| outputs.get(usize::from(port.port));
                (Ok(self.filled(module, output)), Some(outputs))
            }
            Err(failure) => (Err(fault(failure)), None),
        };
        let finished = Finished {
            request: member.request.id,
            result,
        };
        let brought = ItemOutputs {
            times: member.times,
            outputs,
            damage: member.job.damage(),
        };
        (finished, brought)
    }

    /// Which outputs are not empty, of those that a `when:` looks at.
    fn filled<'a>(
        &self,
        module: ModuleId,
        output: impl Fn(PortRef) -> Option<&'a Value>,
    ) -> Filled {
        let ports = self.watched[module.idx()].iter();
        ports.fold(Filled::default(), |filled, port| {
            match output(*port).is_some_and(|value| !value.is_empty()) {
                true => filled.with(port.port),
                false => filled,
            }
        })
    }
}

/// What a batch that ended brings to one gateway.
struct ForGateway {
    id: GatewayId,
    members: Vec<Finished>,
    /// Where the gateway is in another process.
    brought: Vec<ItemOutputs>,
}

impl ForGateway {
    fn new(id: GatewayId, n_members: usize) -> Self {
        ForGateway {
            id,
            members: Vec::with_capacity(n_members),
            brought: Vec::new(),
        }
    }
}

fn fault(failure: Failure) -> Fault {
    match failure {
        Failure::Module(cause) => Fault::Module(cause),
        Failure::Memory(full) => Fault::Memory(full.to_string()),
    }
}
