//! The controller of one module: joins branches and dispatches to workers.

use spillgate_pipeline::id::{ModuleId, RequestId, WorkerId};
use spillgate_pipeline::pipeline::{DispatchPolicyName, Edge, Pipeline};
use spillgate_pipeline::request::{DropReason, Request};
use spillgate_pipeline::time::Timestamp;

use crate::dispatcher::Dispatcher;
use crate::joiner::{Branch, Joined, Joiner};

/// What happens at a module.
#[derive(Clone, Copy, Debug)]
pub enum Event {
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
    /// A worker is done with a request, or dropped it.
    Returned(RequestId),
    /// The request ended elsewhere.
    Forget(RequestId),
    /// A worker died.
    WorkerDown(WorkerId),
}

/// What the driver must do.
#[derive(Clone, Copy, Debug, PartialEq)]
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
}

/// The controller of one module of one pipeline.
pub struct ModuleController {
    /// Edges from each predecessor.
    predecessors: Vec<(ModuleId, Edge)>,
    joiner: Joiner,
    dispatcher: Dispatcher,
}

impl ModuleController {
    /// The controller of `module`, served by `workers`.
    pub fn new(
        pipeline: &Pipeline,
        module: ModuleId,
        dispatch: DispatchPolicyName,
        workers: &[WorkerId],
    ) -> Self {
        let predecessors: Vec<(ModuleId, Edge)> = pipeline
            .predecessors(module)
            .into_iter()
            .filter_map(|from| Some((from, pipeline.edge(from, module)?)))
            .collect();
        let joiner = Joiner::new(predecessors.len());
        ModuleController {
            predecessors,
            joiner,
            dispatcher: Dispatcher::new(dispatch, workers),
        }
    }

    /// The worker that has the request now.
    pub fn location(&self, request: RequestId) -> Option<WorkerId> {
        self.dispatcher.location(request)
    }

    /// Takes in one event.
    pub fn on_event(&mut self, _now: Timestamp, event: Event, out: &mut Vec<Command>) {
        match event {
            Event::Begin(request) => out.push(self.dispatch(request)),
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
                    Joined::Skip => out.push(Command::Skip(request)),
                    Joined::Run => out.push(self.dispatch(request)),
                }
            }
            Event::Returned(request) => {
                self.dispatcher.take_back(request);
            }
            Event::Forget(request) => {
                self.joiner.forget(request);
                if let Some(worker) = self.dispatcher.take_back(request) {
                    out.push(Command::CancelAt { request, worker });
                }
            }
            Event::WorkerDown(worker) => {
                out.extend(
                    self.dispatcher
                        .worker_down(worker)
                        .into_iter()
                        .map(Command::Fail),
                );
            }
        }
    }

    fn dispatch(&mut self, request: Request) -> Command {
        match self.dispatcher.send(request.id) {
            Some(worker) => Command::Send { request, worker },
            None => Command::Drop {
                request: request.id,
                reason: DropReason::NoWorker,
            },
        }
    }
}

#[cfg(test)]
mod tests;
