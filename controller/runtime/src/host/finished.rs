//! What a batch that ended brings.

use spillgate_backend::job::Failure;
use spillgate_backend::value::Value;
use spillgate_controller_policy::gateway::{Event, Member};
use spillgate_pipeline::id::RequestId;
use spillgate_pipeline::message::BatchReport;
use spillgate_pipeline::request::{Drop as DropRecord, DropReason, Outcome, Request};

use super::{Control, MemberResult, PipelineHost};
use crate::record::BatchRecord;

impl PipelineHost {
    /// A batch of a module ended.
    pub fn finished(&self, batch: &BatchRecord, members: Vec<MemberResult>) {
        let ids: Vec<RequestId> = members.iter().map(|m| m.request.id).collect();
        let report = BatchReport {
            worker: batch.worker,
            started_at: batch.started_at,
            ended_at: batch.ended_at,
            members: members
                .iter()
                .map(|m| (m.times.arrived_at, m.times.batched_at))
                .collect(),
        };
        let jobs: Vec<_> = members.iter().map(|m| m.job.clone()).collect();
        self.act(|control, _, effects| {
            let now = batch.ended_at;
            let ran: Vec<Member> = members
                .into_iter()
                .map(|member| store(control, batch, member))
                .collect();
            let done = Event::Done {
                module: batch.module,
                members: &ran,
                holds: &mut |request, to| {
                    let port = self.pipeline.modules[to.idx()].when;
                    let job = ids.iter().position(|id| *id == request).map(|i| &jobs[i]);
                    let value: Option<&Value> = job.zip(port).and_then(|(j, port)| j.output(port));
                    value.is_some_and(|v| !v.is_empty())
                },
            };
            self.drive_gateway(control, now, done, effects);
            let members = &ids;
            self.drive_gateway(control, now, Event::Ended { members, report }, effects);
        });
        self.observer.batch_ended(&self.pipeline, batch);
    }
}

/// Keeps what a module brought for a request, unless the request has ended.
fn store(control: &mut Control, batch: &BatchRecord, member: MemberResult) -> Member {
    let MemberResult {
        request,
        job,
        times,
        result,
    } = member;
    let brought = match control.gateway.payload_mut(request.id) {
        Some(open) => {
            open.times.push(times);
            result.and_then(|o| job.set_outputs(batch.module, o).map_err(Failure::Memory))
        }
        None => Ok(()),
    };
    Member {
        request: request.id,
        result: brought.map_err(|failure| ended_by(failure, &request, batch)),
    }
}

/// How a request ends for which a module has no outputs, and what is said of it.
fn ended_by(failure: Failure, request: &Request, batch: &BatchRecord) -> (Outcome, String) {
    let module = batch.module;
    match failure {
        Failure::Module(text) => (Outcome::Failed { module }, text),
        Failure::Memory(full) => {
            let drop = DropRecord {
                module,
                reason: DropReason::Memory,
                at: batch.ended_at,
                budget: request.deadline.budget_at(batch.ended_at),
                estimate: None,
            };
            (Outcome::Dropped(drop), full.to_string())
        }
    }
}
