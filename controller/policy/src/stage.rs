//! One module as a gateway sees it: which worker runs a request there, whether the request waits, or is dropped before a worker
//! has it.
//!
//! A stage knows nothing of other modules, branches and clients. Each of its methods is an event of its module: a request comes or
//! is withdrawn, a worker answers, asks, comes or goes, the controller sends a plan. It sends nothing itself: what it decides are
//! [`Effect`]s, which its gateway carries out.

mod guidance;
pub(crate) mod pool;
mod pull;
mod workers;

use std::sync::Arc;
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::{ModuleId, RequestId, WorkerId};
use spillgate_pipeline::policy::Guidance;
use spillgate_pipeline::request::{DropReason, Estimate, Request};
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{BatchShape, ModulePlan, ModuleState};

use crate::dispatcher::{Dispatcher, WorkerView};
use crate::plan::Planned;
use crate::variant_selector::StreamBinding;
use pool::{Given, Pool, PoolDrop};

/// What the gateway does for a stage.
#[derive(Debug)]
pub(crate) enum Effect {
    /// The request goes to this worker.
    Send(WorkerId, Request),
    /// The ask of a worker is answered.
    Answer(Given),
    /// The request is dropped here.
    Drop(PoolDrop),
}

/// Whether the answer of a worker for a request counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The worker does not have the request.
    Void,
    /// It counts. If another worker has the request, too, that one is to forget it.
    Counts(Option<WorkerId>),
}

/// Where a request was that is nowhere at the module any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Removed {
    /// It waited for a worker to ask for it.
    pub(crate) waited: bool,
    /// The worker that has it, and is to forget it.
    pub(crate) sent_to: Option<WorkerId>,
    /// The suspected worker that has it, too, and was told to forget it before.
    pub(crate) duplicate_at: Option<WorkerId>,
}

/// A module as a gateway sees it, for people.
#[derive(Clone, Debug, PartialEq)]
pub struct ModuleView {
    /// The module.
    pub module: ModuleId,
    /// Requests that wait here until a worker asks for them.
    pub waiting: usize,
    /// What dispatch goes by.
    pub plan: ModulePlan,
    /// What its controller published last, if its planner publishes.
    pub state: Option<Arc<ModuleState>>,
    /// Its workers.
    pub workers: Vec<WorkerView>,
}

impl ModuleView {
    /// The time that requests should leave for the modules after this one.
    pub fn downstream(&self) -> Duration {
        self.plan.guidance.downstream
    }
}

/// What a stage is built from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StageConfig<'a> {
    /// The pipeline.
    pub(crate) pipeline: &'a Pipeline,
    /// Batch sizes and execution times.
    pub(crate) planned: &'a Arc<Planned>,
    /// Where several workers are idle, gateways begin with another one each: the gateway's number.
    pub(crate) turn: usize,
    /// Seed of admission by chance.
    pub(crate) seed: u64,
    /// When this incarnation of the gateway began.
    pub(crate) born: Timestamp,
}

/// A module as its gateway sees it.
pub(crate) struct Stage {
    module: ModuleId,
    dispatcher: Dispatcher,
    /// Requests that wait for a worker to ask for them, where dispatch is `pull`.
    pool: Option<Pool>,
    plan: ModulePlan,
    /// What its controller published last.
    state: Option<Arc<ModuleState>>,
    /// Workers serve higher ranks first under overload.
    ranks: bool,
    /// The guidance as the controller gave it with the plan, and when.
    last_guidance: (Guidance, Timestamp),
    /// Admission by chance.
    rng: ChaCha8Rng,
}

impl Stage {
    /// A module with these workers, none of which is there yet.
    pub(crate) fn new(config: &StageConfig<'_>, module: ModuleId, workers: &[WorkerId]) -> Self {
        let &StageConfig {
            pipeline,
            planned,
            turn,
            seed,
            born,
        } = config;
        let shape = BatchShape {
            size: planned.batch[module.idx()],
            execution: planned.duration(module),
        };
        let is_pulled = pipeline.is_pulled(module);
        Stage {
            module,
            pool: is_pulled.then(|| Pool::new(pipeline, module, planned, workers.len(), turn)),
            dispatcher: Dispatcher::new(pipeline.dispatch_to(module), shape, workers),
            plan: ModulePlan {
                shape,
                admits: 1.0,
                backlog_check: None,
                part: 1.0,
                knows_gateways: false,
                guidance: Guidance::NONE,
            },
            state: None,
            ranks: pipeline.policy.recipe().ranks,
            last_guidance: (Guidance::NONE, born),
            rng: ChaCha8Rng::seed_from_u64(seed ^ u64::from(module.0)),
        }
    }

    /// A request comes to the module. `bound`: the worker of its stream, if it has one. Without an effect the request waits.
    pub(crate) fn enter(
        &mut self,
        now: Timestamp,
        request: Request,
        bound: Option<StreamBinding>,
    ) -> Option<Effect> {
        let hopeless = match self.hopeless(now, &request) {
            Some(hopeless) => hopeless,
            None => match self.place(now, request, bound) {
                Ok(effect) => return effect,
                Err(reason) => (reason, None),
            },
        };
        let (reason, estimate) = hopeless;
        Some(Effect::Drop(PoolDrop {
            id: request.id,
            reason,
            estimate,
        }))
    }

    /// Chooses a worker for a request, or lets the request wait for one. One without an SLO is sent at once where others are pulled: no
    /// worker asks for it, and it waits there for idle time.
    ///
    /// # Errors
    /// Why it cannot: no worker serves, or too many requests wait.
    pub(crate) fn place(
        &mut self,
        now: Timestamp,
        request: Request,
        bound: Option<StreamBinding>,
    ) -> Result<Option<Effect>, DropReason> {
        let Stage {
            dispatcher, pool, ..
        } = self;
        if let Some(pool) = pool
            && !request.background
        {
            if dispatcher.n_up() == 0 {
                return Err(DropReason::NoWorker);
            }
            let has_room = pool.push(&request, now);
            return has_room.then_some(None).ok_or(DropReason::QueueFull);
        }
        let mut request = request;
        let worker = match bound.filter(|binding| dispatcher.is_up(binding.worker)) {
            Some(binding) => {
                request.batch_most = u16::try_from(binding.batch).unwrap_or(u16::MAX);
                let is_known = dispatcher.give(binding.worker, &request);
                is_known.then_some(binding.worker)
            }
            None => dispatcher.send(now, &request),
        };
        let worker = worker.ok_or(DropReason::NoWorker)?;
        Ok(Some(Effect::Send(worker, request)))
    }

    /// Whether a request that comes is dropped at once, and why. One without an SLO may wait. The module sheds load, or even the batch
    /// that starts earliest would finish the request with less than the margin to spare. The newest request is dropped because
    /// the backlog before it still fits the SLO. Where workers serve higher ranks first, waiting requests of lower ranks do not
    /// count: workers drop these instead.
    fn hopeless(
        &mut self,
        now: Timestamp,
        request: &Request,
    ) -> Option<(DropReason, Option<Estimate>)> {
        if request.background {
            return None;
        }
        let admits = self.plan.admits;
        if admits < 1.0 && self.rng.random::<f64>() >= admits {
            return Some((DropReason::Overload, None));
        }
        let check = self.plan.backlog_check?;
        let rank = if self.ranks { request.rank } else { 0 };
        let starts_at = match &self.pool {
            None => self.dispatcher.earliest_start(now, rank)?,
            Some(pool) => {
                let is_up = |worker| self.dispatcher.is_up(worker);
                pool.earliest_start(now, self.pool_view(), rank, is_up)
            }
        };
        let ends_at = starts_at + check.execution + check.downstream;
        // A part of the time that is left: a request that came over a slow link has used some of its own without any backlog.
        let left = request.deadline.since(now);
        let is_late = ends_at + left.mul_f64(check.margin) > request.deadline;
        is_late.then_some((
            DropReason::Predicted,
            Some(Estimate {
                wait: starts_at.since(now),
                execution: check.execution,
                downstream: check.downstream,
            }),
        ))
    }

    /// A worker answers for a request. A suspected one may answer first, although what it had went on to another one: nobody else is
    /// to serve the request then.
    pub(crate) fn answered(&mut self, worker: WorkerId, id: RequestId) -> Answer {
        if self.dispatcher.duplicate_at(id) == Some(worker) {
            return Answer::Counts(self.remove(id).sent_to);
        }
        match self.dropped(worker, id) {
            true => Answer::Counts(None),
            false => Answer::Void,
        }
    }

    /// A worker dropped a request. False when the request was not there: another worker may have it.
    pub(crate) fn dropped(&mut self, worker: WorkerId, id: RequestId) -> bool {
        let was_there = self.dispatcher.location(id) == Some(worker);
        if was_there {
            self.dispatcher.take_back(id);
            self.dispatcher.forget_duplicate(id);
        }
        was_there
    }

    /// The request is nowhere at the module any more.
    pub(crate) fn remove(&mut self, id: RequestId) -> Removed {
        let pool = self.pool.as_mut();
        Removed {
            waited: pool.is_some_and(|pool| pool.remove(id)),
            sent_to: self.dispatcher.take_back(id),
            duplicate_at: self.dispatcher.forget_duplicate(id),
        }
    }

    /// Whether a request waits here for a worker to ask for it.
    pub(crate) fn waits(&self, id: RequestId) -> bool {
        self.pool.as_ref().is_some_and(|pool| pool.contains(id))
    }

    /// The worker that has the request now.
    pub(crate) fn worker_with(&self, id: RequestId) -> Option<WorkerId> {
        self.dispatcher.location(id)
    }

    /// The worker that has the request now, and the suspected one that may answer first.
    pub(crate) fn workers_with(&self, id: RequestId) -> [Option<WorkerId>; 2] {
        [
            self.dispatcher.location(id),
            self.dispatcher.duplicate_at(id),
        ]
    }

    /// Requests that are at workers.
    pub(crate) fn n_at_workers(&self) -> usize {
        self.dispatcher.n_sent()
    }

    /// Requests that another worker has now and a suspected one may answer.
    pub(crate) fn n_duplicates(&self) -> usize {
        self.dispatcher.n_duplicates()
    }

    /// What is known of the module, for people.
    pub(crate) fn view(&self) -> ModuleView {
        ModuleView {
            module: self.module,
            waiting: self.pool.as_ref().map_or(0, Pool::waiting),
            plan: self.plan,
            state: self.state.clone(),
            workers: self.dispatcher.views(),
        }
    }
}
