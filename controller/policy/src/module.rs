//! The controller of one module: joins branches, dispatches to workers, and plans for its brokers.

use std::sync::Arc;

use spillgate_pipeline::id::{ModuleId, RequestId, WorkerId};
use spillgate_pipeline::pipeline::{Edge, Pipeline};
use spillgate_pipeline::policy::Guidance;
use spillgate_pipeline::request::{DropReason, Estimate, Request};
use spillgate_pipeline::time::Timestamp;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::dispatcher::{BatchShape, Dispatcher};
use crate::joiner::{Branch, Joined, Joiner};
use crate::plan::Planned;
use crate::planner::{BatchReport, Computation, Computed, ModuleState, StatePlanner};

/// What happens at a module.
#[derive(Debug)]
pub enum Event<'a> {
    /// A request enters the pipeline here: there is no branch to wait for.
    Begin(Request),
    /// A predecessor is done with a request.
    Branch {
        /// The request.
        request: Request,
        /// The predecessor.
        from: ModuleId,
        /// It ran (false: it was skipped).
        present: bool,
        /// What this module's `when:` says, if it looks at that predecessor and it ran.
        condition: Option<bool>,
    },
    /// A worker is done with a request.
    Returned(RequestId),
    /// A worker dropped a request.
    Dropped(RequestId),
    /// A worker bound a batch.
    Started {
        /// The worker.
        worker: WorkerId,
        /// Requests in it.
        size: usize,
        /// When it is expected to end.
        expected_end: Timestamp,
    },
    /// A worker's batch ended. Its requests return by events of their own.
    Ended {
        /// The worker.
        worker: WorkerId,
        /// What it reports.
        report: BatchReport<'a>,
    },
    /// The State Planner of another module published its state.
    Peer(Box<ModuleState>),
    /// So many requests a second are offered to the pipeline, those included that the ledger refuses.
    Offered(f64),
    /// The time of [`ModuleController::next_wakeup`] has come.
    Wakeup,
    /// An estimate that a command asked for was made.
    Computed(Box<Computed>),
    /// The request ended elsewhere.
    Forget(RequestId),
    /// A request that had reached the module ended by its client's doing before a device ran it ([`Ledger::forgotten`]).
    ///
    /// [`Ledger::forgotten`]: crate::ledger::Ledger::forgotten
    Unasked,
    /// A worker died.
    WorkerDown(WorkerId),
    /// A worker serves, for the first time or again.
    WorkerUp(WorkerId),
    /// A worker gets no more requests, and finishes what it has.
    WorkerRetired(WorkerId),
}

/// What the driver must do.
#[derive(Debug)]
pub enum Command {
    /// Send the request to this worker.
    Send {
        /// The request.
        request: Request,
        /// The worker.
        worker: WorkerId,
    },
    /// The module does not run for this request: report an absent branch to its successors.
    Skip(Request),
    /// Answer the request: it is dropped here.
    Drop {
        /// The request.
        request: RequestId,
        /// Why.
        reason: DropReason,
        /// The numbers behind it, where there are any.
        estimate: Option<Estimate>,
    },
    /// Answer the request: the worker that had it died.
    Fail(RequestId),
    /// Tell the worker to forget the request.
    CancelAt {
        /// The request.
        request: RequestId,
        /// The worker that has it.
        worker: WorkerId,
    },
    /// Tell the controllers of the other modules, and the ledger.
    Publish(ModuleState),
    /// Make this estimate and bring back the result: thousands of draws, so not under anybody's lock.
    Compute(Box<Computation>),
    /// Tell each worker of this module.
    Guide(Guidance),
}

/// The controller of one module of one pipeline.
pub struct ModuleController {
    /// Edges from each predecessor.
    predecessors: Vec<(ModuleId, Edge)>,
    joiner: Joiner,
    dispatcher: Dispatcher,
    planner: StatePlanner,
    rng: ChaCha8Rng,
}

impl ModuleController {
    /// The controller of `module`, served by `workers`.
    pub fn new(
        pipeline: &Arc<Pipeline>,
        module: ModuleId,
        planned: &Arc<Planned>,
        workers: &[WorkerId],
        seed: u64,
    ) -> Self {
        let predecessors: Vec<(ModuleId, Edge)> = pipeline
            .predecessors(module)
            .into_iter()
            .filter_map(|from| Some((from, pipeline.edge(from, module)?)))
            .collect();
        let shape = BatchShape {
            size: planned.batch[module.idx()],
            execution: planned.duration(module),
        };
        ModuleController {
            joiner: Joiner::new(predecessors.len()),
            predecessors,
            dispatcher: Dispatcher::new(pipeline.policy.dispatch(), shape, workers),
            planner: StatePlanner::new(
                pipeline.clone(),
                module,
                planned.clone(),
                workers.len(),
                seed,
            ),
            rng: ChaCha8Rng::seed_from_u64(seed ^ u64::from(module.0)),
        }
    }

    /// Part of the requests of the pipeline that run the module.
    pub fn probability(&mut self, now: Timestamp) -> f64 {
        self.planner.probability(now)
    }

    /// What the module's brokers are to go by from the start.
    pub fn guidance(&self) -> Guidance {
        self.planner.guidance()
    }

    /// The next moment at which something happens without an event from outside.
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        self.planner.next_wakeup()
    }

    /// The worker that has the request now.
    pub fn location(&self, request: RequestId) -> Option<WorkerId> {
        self.dispatcher.location(request)
    }

    /// Takes in one event.
    pub fn on_event(&mut self, now: Timestamp, event: Event<'_>, out: &mut Vec<Command>) {
        match event {
            Event::Begin(request) => out.push(self.dispatch(now, request)),
            Event::Branch {
                request,
                from,
                present,
                condition,
            } => {
                let edge = self
                    .predecessors
                    .iter()
                    .find(|(id, _)| *id == from)
                    .map(|(_, e)| *e);
                let Edge {
                    condition: conditional,
                    required,
                } = edge.expect("branches come from predecessors only");
                // A condition on a module that was skipped does not hold.
                let condition = conditional.then_some(present && condition.unwrap_or(true));
                match self
                    .joiner
                    .branch(request.id, Branch::new(present, required, condition))
                {
                    Joined::Waiting => {}
                    Joined::Skip => {
                        self.planner.reached(now, &request, false);
                        out.push(Command::Skip(request));
                    }
                    Joined::Run => out.push(self.dispatch(now, request)),
                }
            }
            Event::Returned(request) => {
                self.dispatcher.take_back(request);
            }
            Event::Dropped(request) => {
                self.dispatcher.take_back(request);
                self.planner.dropped(now);
            }
            Event::Started {
                worker,
                size,
                expected_end,
            } => self.dispatcher.started(worker, size, expected_end),
            Event::Ended { worker, report } => {
                self.dispatcher.ended(worker, report.members.len());
                self.planner.batch(now, &report);
            }
            Event::Peer(state) => self.planner.peer(*state),
            Event::Offered(rate) => self.planner.offered(rate),
            Event::Wakeup => {
                let woken = self.planner.wake(now);
                out.extend(woken.publish.map(Command::Publish));
                out.extend(woken.compute.map(|c| Command::Compute(Box::new(c))));
                out.extend(woken.guidance.map(Command::Guide));
            }
            Event::Computed(computed) => {
                out.push(Command::Guide(self.planner.computed(*computed)));
                self.dispatcher.reshape(self.planner.shape());
            }
            Event::WorkerRetired(worker) => {
                self.dispatcher.retire(worker);
                self.planner.set_workers(self.dispatcher.workers_up());
            }
            Event::WorkerUp(worker) => {
                self.dispatcher.worker_up(worker);
                self.planner.set_workers(self.dispatcher.workers_up());
            }
            Event::Forget(request) => {
                self.joiner.forget(request);
                if let Some(worker) = self.dispatcher.take_back(request) {
                    out.push(Command::CancelAt { request, worker });
                }
            }
            Event::Unasked => self.planner.unasked(),
            Event::WorkerDown(worker) => {
                out.extend(
                    self.dispatcher
                        .worker_down(worker)
                        .into_iter()
                        .map(Command::Fail),
                );
                self.planner.set_workers(self.dispatcher.workers_up());
            }
        }
    }

    fn dispatch(&mut self, now: Timestamp, request: Request) -> Command {
        self.planner.reached(now, &request, true);
        let drop = |reason, estimate| Command::Drop {
            request: request.id,
            reason,
            estimate,
        };
        let admits = self.planner.admits();
        if admits < 1.0 && self.rng.random::<f64>() >= admits {
            self.planner.dropped(now);
            return drop(DropReason::Overload, None);
        }
        if let Some(starts_at) = self.dispatcher.earliest_start(now)
            && let Some(estimate) = self.planner.refuses(&request, starts_at)
        {
            self.planner.dropped(now);
            let wait = starts_at.since(now);
            return drop(DropReason::Predicted, Some(Estimate { wait, ..estimate }));
        }
        match self.dispatcher.send(now, request.id) {
            Some(worker) => Command::Send { request, worker },
            None => drop(DropReason::NoWorker, None),
        }
    }
}

#[cfg(test)]
mod tests;
