//! What follows from an event once the host's lock is released.

use std::sync::Arc;

use spillgate_controller_policy::module::Event;
use spillgate_controller_policy::planner::Computation;
use spillgate_pipeline::id::{ModuleId, RequestId, WorkerId};
use spillgate_pipeline::policy::Guidance;
use spillgate_pipeline::request::Outcome;
use spillgate_pipeline::time::Timestamp;

use super::{Dispatched, Open, PipelineHost};
use crate::record::RequestRecord;

/// What is to be done for others.
#[derive(Default)]
pub(super) struct Effects {
    pub(super) sends: Vec<Dispatched>,
    pub(super) cancels: Vec<(WorkerId, RequestId)>,
    pub(super) ended: Vec<(Open, Outcome, Timestamp, Option<String>)>,
    pub(super) guides: Vec<(ModuleId, Guidance)>,
    pub(super) loads: Vec<WorkerId>,
    pub(super) unloads: Vec<WorkerId>,
    /// Thousands of draws each; they come from wakeups only, so no request waits for them.
    pub(super) computations: Vec<(ModuleId, Box<Computation>)>,
}

impl Effects {
    /// A request has ended.
    pub(super) fn end(
        &mut self,
        open: Open,
        outcome: Outcome,
        at: Timestamp,
        error: Option<String>,
    ) {
        if self.ended.is_empty() {
            // Mostly it stays the only one, and takes much room.
            self.ended.reserve_exact(1);
        }
        self.ended.push((open, outcome, at, error));
    }
}

impl PipelineHost {
    /// Does it. Called without locks held.
    pub(super) fn perform(&self, effects: Effects) {
        let Effects {
            mut sends,
            cancels,
            ended,
            guides,
            loads,
            unloads,
            computations,
        } = effects;
        for (worker, request) in cancels {
            self.link(worker).cancel(request);
        }
        for (open, outcome, ended_at, error) in ended {
            open.job.end();
            let record = Arc::new(RequestRecord {
                pipeline: self.pipeline.clone(),
                request: open.request,
                number: open.number,
                client: open.client,
                admitted_at: open.admitted_at,
                ended_at,
                outcome,
                error,
                times: open.times,
                trace: open.trace,
                job: open.job,
            });
            self.observer.request_ended(&record);
            (open.on_end)(record);
        }
        // Requests for one device travel together, so that they may start as one batch.
        while let Some(first) = sends.first() {
            let link = self.workers[&first.worker].link;
            let goes_here = |d: &Dispatched| self.workers[&d.worker].link == link;
            let here = if sends.iter().all(goes_here) {
                std::mem::take(&mut sends)
            } else {
                sends.extract_if(.., |d| goes_here(d)).collect()
            };
            let links = self
                .links
                .get()
                .expect("a host is connected before it serves");
            links[link].send(here);
        }
        for (module, guidance) in guides {
            for worker in self.workers.values().filter(|w| w.module == module) {
                self.link(worker.id).guide(worker.id, guidance);
            }
        }
        for worker in loads {
            self.link(worker).load(worker);
        }
        for worker in unloads {
            self.link(worker).unload(worker);
        }
        for (module, computation) in computations {
            let computed = Event::Computed(Box::new(computation.run()));
            let mut effects = Effects::default();
            let now = (self.now)();
            self.drive_module(
                &mut self.control.lock(),
                now,
                module,
                computed,
                &mut effects,
            );
            self.perform(effects);
        }
    }
}
