//! What a batch that ended brings.

use std::sync::Arc;

use spillgate_backend::job::{Failure, Job};
use spillgate_pipeline::id::RequestId;
use spillgate_pipeline::message::{
    Address, BatchReport, Ending, Envelope, Filled, Finished, Incarnation, Message, ToController,
    ToGateway,
};
use spillgate_pipeline::request::{Drop as DropRecord, DropReason, Outcome, Request};

use super::drive::keep;
use super::{Control, GATEWAY, MemberResult, PipelineHost};
use crate::record::BatchRecord;

impl PipelineHost {
    /// A batch of a module ended.
    pub fn finished(&self, batch: &BatchRecord, members: Vec<MemberResult>) {
        let Some(device) = self.workers.get(&batch.worker).map(|w| w.device) else {
            return;
        };
        let say = |to, message| Envelope {
            from: Address::Device(device),
            incarnation: Incarnation::default(),
            to,
            message,
        };
        let times = members.iter().map(|m| &m.times);
        let report = ToController::Report(BatchReport {
            worker: batch.worker,
            started_at: batch.started_at,
            ended_at: batch.ended_at,
            members: times.map(|t| (t.arrived_at, t.batched_at)).collect(),
        });
        let ids: Vec<RequestId> = members.iter().map(|m| m.request.id).collect();
        let most = self.pipeline.modules[batch.module.idx()].batch.max;
        self.act(|control, now, effects| {
            let checker = &mut control.checker;
            let started = checker.batch_started(device, batch.batch, most, now, &ids);
            let ended = checker.batch_ended(device, batch.batch, now);
            keep(started.and(ended), effects);
            let members = members.into_iter();
            let finished = ToGateway::Finished {
                worker: batch.worker,
                batch: batch.batch,
                members: members.map(|m| self.store(control, batch, m)).collect(),
            };
            let gateway = Address::Gateway(GATEWAY);
            let finished = say(gateway, Message::Gateway(finished));
            self.carry(control, now, finished, effects);
            let controller = Address::Controller(batch.module);
            let report = say(controller, Message::Controller(report));
            self.carry(control, now, report, effects);
        });
        self.observer.batch_ended(&self.pipeline, batch);
    }

    /// Keeps what a module brought for a request, unless the request has ended.
    fn store(&self, control: &mut Control, batch: &BatchRecord, member: MemberResult) -> Finished {
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
                    Err(failure) => Err(ended_by(failure, &request, batch)),
                }
            }
            None => Ok(Filled::default()),
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

/// How a request ends for which a module has no outputs, and what is said of it.
fn ended_by(failure: Failure, request: &Request, batch: &BatchRecord) -> Ending {
    let module = batch.module;
    match failure {
        Failure::Module(cause) => Ending {
            outcome: Outcome::Failed { module },
            cause,
        },
        Failure::Memory(full) => Ending {
            outcome: Outcome::Dropped(DropRecord {
                module,
                reason: DropReason::Memory,
                at: batch.ended_at,
                budget: request.deadline.budget_at(batch.ended_at),
                estimate: None,
            }),
            cause: full.to_string(),
        },
    }
}
