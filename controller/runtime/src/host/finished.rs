//! What a batch that ended brings.

use spillgate_backend::job::Failure;
use spillgate_controller_policy::module::Event;
use spillgate_controller_policy::planner::BatchReport;
use spillgate_pipeline::request::{Drop as DropRecord, DropReason, Outcome, Request};

use super::effects::Effects;
use super::{MemberResult, PipelineHost};
use crate::record::BatchRecord;

impl PipelineHost {
    /// A batch of a module ended.
    pub fn finished(&self, batch: &BatchRecord, members: Vec<MemberResult>) {
        let module = batch.module;
        let mut effects = Effects::default();
        {
            let mut control = self.control.lock();
            let mut times = std::mem::take(&mut control.times);
            times.clear();
            times.extend(
                members
                    .iter()
                    .map(|m| (m.times.arrived_at, m.times.batched_at)),
            );
            for MemberResult {
                request,
                job,
                times,
                result,
            } in members
            {
                let returned = Event::Returned(request.id);
                self.drive_module(&mut control, batch.ended_at, module, returned, &mut effects);
                if !control.ledger.ran(request.id, module) {
                    continue;
                }
                if let Some(open) = control.open.get_mut(&request.id) {
                    open.times.push(times);
                }
                let stored =
                    result.and_then(|o| job.set_outputs(module, o).map_err(Failure::Memory));
                match stored {
                    Ok(()) => {
                        self.module_done(
                            &mut control,
                            batch.ended_at,
                            request,
                            module,
                            true,
                            &mut effects,
                        );
                    }
                    Err(failure) => {
                        let (outcome, error) = ended_by(failure, &request, batch);
                        self.end_early(
                            &mut control,
                            batch.ended_at,
                            request.id,
                            outcome,
                            Some(error),
                            &mut effects,
                        );
                    }
                }
            }
            let report = BatchReport {
                started_at: batch.started_at,
                ended_at: batch.ended_at,
                members: &times,
            };
            let worker = batch.worker;
            let ended = Event::Ended { worker, report };
            self.drive_module(&mut control, batch.ended_at, module, ended, &mut effects);
            control.times = times;
        }
        self.observer.batch_ended(&self.pipeline, batch);
        self.perform(effects);
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
