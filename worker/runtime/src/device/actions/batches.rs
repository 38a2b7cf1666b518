//! The steps of a batch under a placement, each on a thread of its own: its inputs, its execution, its results.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use spillgate_backend::operator::{Inputs, Operator, Pass};
use spillgate_pipeline::action::{Around, Done, Ended};
use spillgate_pipeline::id::{ActionId, BatchId, WorkerId};
use spillgate_process::job::Job;

use super::{Batch, Event, Executed, Outcome, Placed, Prepared, RanBatch, Report};
use crate::device::Forecasters;
use crate::device::driver::Shared;
use crate::device::models::{all_fail, module_panicked, results};

/// Prepares the inputs of a batch. One that was refused needs none.
pub(super) fn prepare(shared: &Shared<Placed>, id: ActionId) {
    let Some(operators) = shared.serving.operators() else {
        return;
    };
    let waiting = {
        let state = shared.state.lock();
        let batch = state.chooser.batches.get(&id);
        let jobs = |batch: &Batch| {
            let jobs = batch.members.iter();
            jobs.map(|m| (m.worker, m.payload.clone())).collect()
        };
        batch.map(|batch| (batch.model, jobs(batch)))
    };
    let Some((model, jobs)) = waiting else {
        return;
    };
    let jobs: Vec<(WorkerId, Arc<Job>)> = jobs;
    let (weights, variant) = operators.model(model);
    let of = operators.slots.get(weights).ok();
    let inputs = jobs.iter().map(|(of, job)| operators.inputs(*of, job));
    let inputs: Vec<Inputs> = inputs.collect();
    let started_at = shared.clock.now();
    let by = of.and_then(|of| of.preparation.clone());
    let prepared = by.map_or(Prepared::Whole, |by| {
        let pass = catch_unwind(AssertUnwindSafe(|| {
            let mut pass = by.prepare(variant, &inputs);
            if let Some(copier) = operators.copier.get()
                && let Err(error) = pass.copy(&**copier)
            {
                tracing::debug!(device = shared.name, %error, "the batch copies its input itself");
            }
            pass
        }));
        pass.map_or_else(
            |panic| Prepared::Failed(module_panicked(&*panic)),
            Prepared::Pass,
        )
    });
    let took = shared.clock.now().since(started_at);
    shared.drive(Event::Prepared(id, prepared, took));
}

/// Executes a batch.
pub(super) fn execute(shared: &Shared<Placed>, batch: Batch, scratch: &mut Vec<Inputs>) {
    let Some(operators) = shared.serving.operators() else {
        return;
    };
    let Batch {
        id,
        model,
        members,
        expected,
        reported_end,
        prepared,
        prepare,
    } = batch;
    let (weights, variant) = operators.model(model);
    let of = operators.slots.get(weights);
    let n = members.len();
    if let Prepared::Whole = prepared {
        let inputs = members.iter();
        scratch.extend(inputs.map(|m| operators.inputs(m.worker, &m.payload)));
    }
    let started_at = shared.clock.now();
    let outcome = match (of, prepared) {
        (Err(why), _) => Outcome::Results(all_fail(n, why.to_string())),
        (_, Prepared::Failed(why)) => Outcome::Results(all_fail(n, why)),
        (Ok(of), Prepared::Pass(pass)) => forward(&mut **of.operator.lock(), variant, pass, n),
        (Ok(_), Prepared::Whole) => Outcome::Results(operators.run(model, scratch)),
    };
    let ended_at = shared.clock.now();
    shared.drive(Event::Executed(id));
    scratch.clear();
    let ran = RanBatch {
        device: shared.id,
        id: BatchId(id.0),
        members,
        results: Vec::new(),
        started_at,
        expected_end: started_at + expected,
        reported_end,
        ended_at,
        forecasters: Forecasters::new(),
    };
    shared.post(Report::Ran(Box::new(Executed {
        ran,
        outcome,
        prepare,
    })));
}

/// Runs the model of a batch whose input is prepared.
fn forward(operator: &mut dyn Operator, variant: usize, mut pass: Pass, n: usize) -> Outcome {
    let forward = AssertUnwindSafe(|| {
        pass.forward(|input| operator.forward(variant, input));
        pass
    });
    match catch_unwind(forward) {
        Ok(pass) => Outcome::Pass(pass),
        Err(panic) => Outcome::Results(all_fail(n, module_panicked(&*panic))),
    }
}

/// Makes the results of a batch, and brings them and its end.
pub(super) fn finish(shared: &Shared<Placed>, executed: Executed) {
    let Executed {
        mut ran,
        outcome,
        prepare,
    } = executed;
    let n = ran.members.len();
    let mut around = Around::default();
    ran.results = match outcome {
        Outcome::Results(results) => results,
        Outcome::Pass(pass) => {
            let begun = shared.clock.now();
            let results = results(n, || pass.finish());
            let finish = shared.clock.now().since(begun);
            around = Around { prepare, finish };
            results
        }
    };
    let ended = Ended::Ran {
        at: ran.ended_at,
        took: ran.ended_at.since(ran.started_at),
    };
    let id = ActionId(ran.id.0);
    shared.upstream.ran(ran);
    let done = Done { id, ended, around };
    shared.upstream.done(shared.id, done);
}
