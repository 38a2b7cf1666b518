//! What a batch that ended brings.

use std::sync::Arc;

use spillgate_backend::job::{Failure, Job, Ran};
use spillgate_pipeline::id::RequestId;
use spillgate_pipeline::message::{
    Address, BatchReport, Envelope, Fault, Filled, Finished, Incarnation, Message, ToController,
    ToGateway,
};
use spillgate_pipeline::time::Timestamp;

use super::drive::{Effects, keep};
use super::{CHECKED_ONE_IN, Control, GATEWAY, MemberResult, PipelineHost};
use crate::record::BatchRecord;

impl PipelineHost {
    /// A batch of a module ended.
    pub fn finished(
        &self,
        batch: &BatchRecord,
        members: impl ExactSizeIterator<Item = MemberResult>,
    ) {
        let Some(device) = self.workers.get(batch.worker).map(|w| w.device) else {
            return;
        };
        let say = |to, message| Envelope {
            from: Address::Device(device),
            incarnation: Incarnation::default(),
            to,
            message,
        };
        let mut report = BatchReport {
            worker: batch.worker,
            started_at: batch.started_at,
            ended_at: batch.ended_at,
            members: Vec::with_capacity(members.len()),
        };
        // What is brought for requests that have ended, and may be the last to hold them: freed without the host's lock.
        let mut unwanted = Vec::new();
        self.act(|control, now, effects| {
            let mut finished = Vec::with_capacity(members.len());
            for member in members {
                let times = &member.times;
                report.members.push((times.arrived_at, times.batched_at));
                finished.push(self.store(control, batch, member, &mut unwanted));
            }
            if batch.batch.0.is_multiple_of(CHECKED_ONE_IN) {
                self.check(control, now, batch, &finished, effects);
            }
            let finished = ToGateway::Finished {
                worker: batch.worker,
                batch: batch.batch,
                members: finished,
            };
            let gateway = Address::Gateway(GATEWAY);
            let finished = say(gateway, Message::Gateway(finished));
            self.carry(control, now, finished, effects);
            let controller = Address::Controller(batch.module);
            let report = ToController::Report(report);
            let report = say(controller, Message::Controller(report));
            self.carry(control, now, report, effects);
        });
        self.observer.batch_ended(&self.pipeline, batch);
    }

    /// Checks a batch.
    fn check(
        &self,
        control: &mut Control,
        now: Timestamp,
        batch: &BatchRecord,
        members: &[Finished],
        effects: &mut Effects,
    ) {
        let ids: Vec<RequestId> = members.iter().map(|m| m.request).collect();
        let most = self.pipeline.modules[batch.module.idx()].batch.max;
        let (device, id) = (batch.device, batch.batch);
        let checker = &mut control.checker;
        let started = checker.batch_started(device, id, most, now, &ids);
        let ended = checker.batch_ended(device, id, now);
        keep(started.and(ended), effects);
    }

    /// Keeps what a module brought for a request, unless the request has ended.
    fn store(
        &self,
        control: &mut Control,
        batch: &BatchRecord,
        member: MemberResult,
        unwanted: &mut Vec<(Arc<Job>, Ran)>,
    ) -> Finished {
        let MemberResult {
            request,
            job,
            times,
            result,
        } = member;
        let result = match control.gateway.payload_mut(request.id) {
            Some(open) => {
                open.times.push(times);
                let stored =
                    result.and_then(|o| job.set_outputs(batch.module, o).map_err(Failure::Memory));
                match stored {
                    Ok(()) => Ok(self.filled(batch, &job)),
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

    /// Which outputs are not empty, of those that a `when:` looks at.
    fn filled(&self, batch: &BatchRecord, job: &Arc<Job>) -> Filled {
        let ports = self.watched[batch.module.idx()].iter();
        ports.fold(Filled::default(), |filled, port| {
            match job.output(*port).is_some_and(|value| !value.is_empty()) {
                true => filled.with(port.port),
                false => filled,
            }
        })
    }
}

fn fault(failure: Failure) -> Fault {
    match failure {
        Failure::Module(cause) => Fault::Module(cause),
        Failure::Memory(full) => Fault::Memory(full.to_string()),
    }
}
