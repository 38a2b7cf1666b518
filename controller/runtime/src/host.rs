//! Owns the ledger and the module controllers of one pipeline and passes requests between them and the workers.
//! Each event is one short critical section; sends, cancellations and answers follow after the lock is released.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use indexmap::IndexMap;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use spillgate_backend::job::Job;
use spillgate_backend::operator::Outputs;
use spillgate_backend::value::Value;
use spillgate_controller_policy::ledger::{Ledger, Refusal};
use spillgate_controller_policy::module::{Command, Event, ModuleController};
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::{ModuleId, RequestId, WorkerId};
use spillgate_pipeline::request::{Drop as DropRecord, DropReason, ModuleTimes, Outcome, Request};
use spillgate_pipeline::time::Timestamp;

use crate::record::{BatchRecord, Observer, RequestRecord, TraceContext};

/// The process's clock.
pub type Now = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Hands out request ids, unique in this process.
#[derive(Default)]
pub struct RequestIds(AtomicU64);

impl RequestIds {
    fn next(&self) -> RequestId {
        RequestId(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

/// A request on its way to a worker.
pub struct Dispatched {
    /// The worker.
    pub worker: WorkerId,
    /// The request.
    pub request: Request,
    /// Its values.
    pub job: Arc<Job>,
}

/// The way to the workers of one device. Called without locks held; may call back.
pub trait WorkerLink: Send + Sync {
    /// Brings requests that belong together.
    fn send(&self, requests: Vec<Dispatched>);

    /// Forgets a request that ended elsewhere.
    fn cancel(&self, request: RequestId);

    /// Drops a request if it still waits.
    fn withdraw(&self, request: RequestId, reason: DropReason);
}

/// A worker of this pipeline and the way to it.
#[derive(Clone)]
pub struct Worker {
    /// Its id.
    pub id: WorkerId,
    /// Its module.
    pub module: ModuleId,
    /// Ordinal of its device's link in the list given to [`PipelineHost::connect`].
    pub link: usize,
}

/// Called once, with the record of an accepted request.
pub type OnEnd = Box<dyn FnOnce(Arc<RequestRecord>) + Send>;

/// A request to be submitted.
pub struct Submission {
    /// Its values: the frame. Sources over bytes have their output set already.
    pub job: Arc<Job>,
    /// The source needs no work (bytes).
    pub source_done: bool,
    /// Number of the frame, as the client counts.
    pub number: u64,
    /// Name that the client gave its stream.
    pub client: Arc<str>,
    /// Less time than the pipeline's SLO, if the client asks for that.
    pub timeout: Option<Duration>,
    /// Trace context.
    pub trace: TraceContext,
    /// Told how it ended.
    pub on_end: OnEnd,
}

/// One member of a finished batch.
pub struct MemberResult {
    /// The request.
    pub request: Request,
    /// Its values.
    pub job: Arc<Job>,
    /// Its way through the module.
    pub times: ModuleTimes,
    /// What the module computed, or a sentence that says why not.
    pub result: Result<Outputs, String>,
}

struct Open {
    request: Request,
    admitted_at: Timestamp,
    number: u64,
    client: Arc<str>,
    trace: TraceContext,
    job: Arc<Job>,
    times: Vec<ModuleTimes>,
    on_end: OnEnd,
}

struct Control {
    ledger: Ledger,
    modules: Vec<ModuleController>,
    open: IndexMap<RequestId, Open, FxBuildHasher>,
    commands: Vec<Command>,
}

/// What follows from an event once the lock is released.
#[derive(Default)]
struct Effects {
    sends: Vec<Dispatched>,
    cancels: Vec<(WorkerId, RequestId)>,
    ended: Vec<(Open, Outcome, Timestamp, Option<String>)>,
}

/// One pipeline at its gateway.
pub struct PipelineHost {
    pipeline: Arc<Pipeline>,
    successors: Vec<Vec<ModuleId>>,
    ids: Arc<RequestIds>,
    now: Now,
    observer: Arc<dyn Observer>,
    workers: IndexMap<WorkerId, Worker, FxBuildHasher>,
    links: OnceLock<Vec<Arc<dyn WorkerLink>>>,
    control: Mutex<Control>,
}

impl PipelineHost {
    /// A host of `pipeline`, served by `workers`. Serves nothing until it is connected.
    pub fn new(
        pipeline: Arc<Pipeline>,
        workers: Vec<Worker>,
        ids: Arc<RequestIds>,
        now: Now,
        observer: Arc<dyn Observer>,
    ) -> Self {
        let modules = pipeline
            .modules
            .iter()
            .map(|module| {
                let serving: Vec<WorkerId> = workers
                    .iter()
                    .filter(|w| w.module == module.id)
                    .map(|w| w.id)
                    .collect();
                ModuleController::new(&pipeline, module.id, pipeline.policy.dispatch, &serving)
            })
            .collect();
        let control = Control {
            ledger: Ledger::new(&pipeline),
            modules,
            open: IndexMap::default(),
            commands: Vec::new(),
        };
        PipelineHost {
            successors: pipeline
                .modules
                .iter()
                .map(|m| pipeline.successors(m.id))
                .collect(),
            pipeline,
            ids,
            now,
            observer,
            workers: workers.into_iter().map(|w| (w.id, w)).collect(),
            links: OnceLock::new(),
            control: Mutex::new(control),
        }
    }

    /// Gives the ways to the devices, once.
    pub fn connect(&self, links: Vec<Arc<dyn WorkerLink>>) {
        let first = self.links.set(links).is_ok();
        assert!(first, "a host is connected once");
    }

    /// The pipeline.
    pub fn pipeline(&self) -> &Arc<Pipeline> {
        &self.pipeline
    }

    /// The workers, in order of id.
    pub fn workers(&self) -> impl Iterator<Item = &Worker> {
        self.workers.values()
    }

    /// Accepts a request and sends it on its way. From here on `on_end` is called exactly once.
    ///
    /// # Errors
    /// When it is refused; `on_end` is not called then.
    pub fn submit(&self, submission: Submission) -> Result<RequestId, Refusal> {
        let Submission {
            job,
            source_done,
            number,
            client,
            timeout,
            trace,
            on_end,
        } = submission;
        let now = (self.now)();
        let id = self.ids.next();
        let mut effects = Effects::default();
        {
            let mut control = self.control.lock();
            // A client without a clock exchange is taken to have sent when its frame arrived (DESIGN §5).
            let request = control
                .ledger
                .admit(now, id, now, timeout)
                .inspect_err(|refusal| self.note_refused(refusal.reason().label()))?;
            let open = Open {
                request,
                admitted_at: now,
                number,
                client,
                trace,
                job,
                times: Vec::with_capacity(self.pipeline.modules.len()),
                on_end,
            };
            control.open.insert(id, open);
            if source_done {
                self.module_done(
                    &mut control,
                    now,
                    request,
                    ModuleId::SOURCE,
                    true,
                    &mut effects,
                );
            } else {
                let begin = Event::Begin(request);
                self.drive_module(&mut control, now, ModuleId::SOURCE, begin, &mut effects);
            }
        }
        self.perform(effects);
        Ok(id)
    }

    /// A frame was refused before it was submitted.
    pub fn note_refused(&self, reason: &'static str) {
        self.observer.request_refused(&self.pipeline, reason);
    }

    /// A batch of a module ended.
    pub fn finished(&self, batch: &BatchRecord, members: Vec<MemberResult>) {
        let ids: Vec<RequestId> = members.iter().map(|m| m.request.id).collect();
        let module = batch.module;
        let mut effects = Effects::default();
        {
            let mut control = self.control.lock();
            for MemberResult {
                request,
                job,
                times,
                result,
            } in members
            {
                let returned = Event::Returned(request.id);
                self.drive_module(&mut control, batch.ended_at, module, returned, &mut effects);
                if !control.ledger.is_open(request.id) {
                    continue;
                }
                if let Some(open) = control.open.get_mut(&request.id) {
                    open.times.push(times);
                }
                match result {
                    Ok(outputs) => {
                        job.set_outputs(module, outputs);
                        self.module_done(
                            &mut control,
                            batch.ended_at,
                            request,
                            module,
                            true,
                            &mut effects,
                        );
                    }
                    Err(error) => self.end_early(
                        &mut control,
                        batch.ended_at,
                        request.id,
                        Outcome::Failed { module },
                        Some(error),
                        &mut effects,
                    ),
                }
            }
        }
        self.observer.batch_ended(&self.pipeline, batch, &ids);
        self.perform(effects);
    }

    /// A worker dropped a request that waited there.
    pub fn dropped(&self, request: Request, drop: DropRecord) {
        let mut effects = Effects::default();
        {
            let mut control = self.control.lock();
            let returned = Event::Returned(request.id);
            self.drive_module(&mut control, drop.at, drop.module, returned, &mut effects);
            let outcome = Outcome::Dropped(drop);
            self.end_early(
                &mut control,
                drop.at,
                request.id,
                outcome,
                None,
                &mut effects,
            );
        }
        self.perform(effects);
    }

    /// The client left: whatever the request still waits for is freed.
    pub fn cancel(&self, id: RequestId) {
        let now = (self.now)();
        let mut effects = Effects::default();
        self.drop_from_here(
            &mut self.control.lock(),
            now,
            id,
            DropReason::Cancelled,
            &mut effects,
        );
        self.perform(effects);
    }

    /// A newer frame takes this one's place, if it still waits.
    pub fn supersede(&self, id: RequestId) {
        let waits_at: Vec<WorkerId> = {
            let control = self.control.lock();
            control
                .modules
                .iter()
                .filter_map(|m| m.location(id))
                .collect()
        };
        for worker in waits_at {
            self.link(worker).withdraw(id, DropReason::Superseded);
        }
    }

    /// Workers died.
    pub fn workers_down(&self, workers: &[WorkerId], cause: &str) {
        let now = (self.now)();
        let mut effects = Effects::default();
        {
            let mut control = self.control.lock();
            for worker in workers.iter().filter_map(|id| self.workers.get(id)) {
                let down = Event::WorkerDown(worker.id);
                let mut commands = std::mem::take(&mut control.commands);
                control.modules[worker.module.idx()].on_event(now, down, &mut commands);
                for command in commands.drain(..) {
                    if let Command::Fail(id) = command {
                        let outcome = Outcome::Failed {
                            module: worker.module,
                        };
                        let cause = Some(cause.to_owned());
                        self.end_early(&mut control, now, id, outcome, cause, &mut effects);
                    }
                }
                control.commands = commands;
            }
        }
        self.perform(effects);
    }

    /// Refuses what comes from now on.
    pub fn drain(&self) {
        self.control.lock().ledger.drain();
    }

    /// Requests that have not ended.
    pub fn in_flight(&self) -> usize {
        self.control.lock().ledger.in_flight()
    }

    /// Drops all that has not ended.
    pub fn abort(&self) {
        let now = (self.now)();
        let mut effects = Effects::default();
        {
            let mut control = self.control.lock();
            for id in control.ledger.open_requests() {
                self.drop_from_here(&mut control, now, id, DropReason::Draining, &mut effects);
            }
        }
        self.perform(effects);
    }

    fn link(&self, worker: WorkerId) -> &Arc<dyn WorkerLink> {
        let links = self
            .links
            .get()
            .expect("a host is connected before it serves");
        &links[self.workers[&worker].link]
    }

    /// Ends a request at the gateway, wherever it is.
    fn drop_from_here(
        &self,
        control: &mut Control,
        now: Timestamp,
        id: RequestId,
        reason: DropReason,
        effects: &mut Effects,
    ) {
        let Some(open) = control.open.get(&id) else {
            return;
        };
        let budget = open.request.deadline.budget_at(now);
        let module = self
            .pipeline
            .modules
            .iter()
            .map(|m| m.id)
            .find(|m| control.modules[m.idx()].location(id).is_some())
            .unwrap_or(ModuleId::SOURCE);
        let drop = DropRecord {
            module,
            reason,
            at: now,
            budget,
            estimate: None,
        };
        self.end_early(control, now, id, Outcome::Dropped(drop), None, effects);
    }

    /// A module ran for a request, or was skipped: tells its successors, or the ledger.
    fn module_done(
        &self,
        control: &mut Control,
        now: Timestamp,
        request: Request,
        module: ModuleId,
        present: bool,
        effects: &mut Effects,
    ) {
        let successors = &self.successors[module.idx()];
        if successors.is_empty() {
            if let Some(outcome) = control.ledger.sink_done(now, request.id)
                && let Some(open) = control.open.swap_remove(&request.id)
            {
                effects.ended.push((open, outcome, now, None));
            }
            return;
        }
        for &to in successors {
            let condition = self.pipeline.modules[to.idx()]
                .when
                .filter(|port| present && port.module == module)
                .map(|port| {
                    let job = control.open.get(&request.id).map(|open| &open.job);
                    let value: Option<&Value> = job.and_then(|job| job.output(port));
                    value.is_some_and(|v| !v.is_empty())
                });
            let branch = Event::Branch {
                request,
                from: module,
                present,
                condition,
            };
            self.drive_module(control, now, to, branch, effects);
        }
    }

    /// Drives one module controller and follows its commands.
    fn drive_module(
        &self,
        control: &mut Control,
        now: Timestamp,
        module: ModuleId,
        event: Event,
        effects: &mut Effects,
    ) {
        let mut commands = std::mem::take(&mut control.commands);
        control.modules[module.idx()].on_event(now, event, &mut commands);
        // Following a command may drive further modules, which then use a vector of their own.
        for command in commands.drain(..) {
            match command {
                Command::Send { request, worker } => {
                    if let Some(open) = control.open.get(&request.id) {
                        let job = open.job.clone();
                        effects.sends.push(Dispatched {
                            worker,
                            request,
                            job,
                        });
                    }
                }
                Command::Skip(request) => {
                    self.module_done(control, now, request, module, false, effects);
                }
                Command::Drop { request, reason } => {
                    let Some(open) = control.open.get(&request) else {
                        continue;
                    };
                    let budget = open.request.deadline.budget_at(now);
                    let drop = DropRecord {
                        module,
                        reason,
                        at: now,
                        budget,
                        estimate: None,
                    };
                    let outcome = Outcome::Dropped(drop);
                    self.end_early(control, now, request, outcome, None, effects);
                }
                Command::Fail(request) => {
                    let outcome = Outcome::Failed { module };
                    self.end_early(control, now, request, outcome, None, effects);
                }
                Command::CancelAt { request, worker } => effects.cancels.push((worker, request)),
            }
        }
        control.commands = commands;
    }

    /// Ends a request before its last module, if it has not ended: siblings are cancelled everywhere.
    fn end_early(
        &self,
        control: &mut Control,
        now: Timestamp,
        id: RequestId,
        outcome: Outcome,
        error: Option<String>,
        effects: &mut Effects,
    ) {
        if !control.ledger.end(id) {
            return;
        }
        if let Some(open) = control.open.swap_remove(&id) {
            effects.ended.push((open, outcome, now, error));
        }
        let mut commands = std::mem::take(&mut control.commands);
        for module in &mut control.modules {
            module.on_event(now, Event::Forget(id), &mut commands);
        }
        effects
            .cancels
            .extend(commands.drain(..).filter_map(|c| match c {
                Command::CancelAt { request, worker } => Some((worker, request)),
                _ => None,
            }));
        control.commands = commands;
    }

    fn perform(&self, effects: Effects) {
        let Effects {
            mut sends,
            cancels,
            ended,
        } = effects;
        for (worker, request) in cancels {
            self.link(worker).cancel(request);
        }
        for (open, outcome, ended_at, error) in ended {
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
            let (here, rest) = sends
                .into_iter()
                .partition(|d| self.workers[&d.worker].link == link);
            sends = rest;
            let links = self
                .links
                .get()
                .expect("a host is connected before it serves");
            links[link].send(here);
        }
    }
}
