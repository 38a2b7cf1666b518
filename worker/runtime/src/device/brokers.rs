//! A device whose brokers form its batches ([`Device`]).

use std::sync::Arc;
use std::time::Duration;

use spillgate_backend::operator::{Inputs, OperatorError};
use spillgate_pipeline::id::{ActionId, DeviceId, GatewayId, WeightsId, WorkerId};
use spillgate_pipeline::predict::PredictionErrors;
use spillgate_pipeline::request::DropReason;
use spillgate_pipeline::time::Timestamp;
use spillgate_process::clock::Clock;
use spillgate_process::job::Job;
use spillgate_protocol::message::{Address, ToDevice, ToGateway};
use spillgate_worker_policy::device::{Batch, Device, DeviceCommand, DeviceEvent, Rerun};
use spillgate_worker_policy::weights::store::WeightStoreAccount;

use super::driver::{Chooser, LoadTask, Shared, Work};
use super::models::Serving;
use super::{DeviceConfig, DeviceThreads, RanBatch, threads};
use crate::timer::TimerThread;

/// Who is told what happened to requests. Called without any lock of the device held, so that it may call
/// back into this or another device.
pub trait Upstream: Send + Sync {
    /// The device's policy says this to that gateway of the pipeline that the worker serves.
    fn tell(&self, worker: WorkerId, gateway: GatewayId, message: ToGateway);

    /// A batch ran.
    fn ran(&self, batch: RanBatch);

    /// A finished request ran again, for its time alone; nothing else comes of it.
    fn reran(&self, worker: WorkerId, took: Duration);

    /// A worker that was asked for is ready, or cannot be, for this reason.
    fn loaded(&self, worker: WorkerId, result: Result<(), String>);

    /// The device died; its workers serve no more.
    fn down(&self, device: DeviceId, cause: &str);
}

/// What the brokers of a device decide, and what they commanded last.
struct Brokers {
    policy: Device<Arc<Job>>,
    /// Empty between events.
    commands: Vec<DeviceCommand<Arc<Job>>>,
}

/// What the executing thread runs.
enum Run {
    Batch(Batch<Arc<Job>>),
    Rerun(Rerun<Arc<Job>>),
}

/// Something for others to hear.
enum Notice {
    Tell(WorkerId, GatewayId, ToGateway),
    Loaded(WorkerId, Result<(), WeightsId>),
}

/// What others are to hear. Mostly it is one thing, which needs no allocation.
#[derive(Default)]
struct Outgoing {
    first: Option<Notice>,
    more: Vec<Notice>,
}

impl Outgoing {
    fn push(&mut self, notice: Notice) {
        match self.first {
            None => self.first = Some(notice),
            Some(_) => self.more.push(notice),
        }
    }
}

/// Starts a device, and waits until what is there from the start is read.
///
/// # Errors
/// When the device, a model or another file is missing or does not fit.
pub fn start(
    config: DeviceConfig,
    policy: Device<Arc<Job>>,
    clock: &Clock,
    timers: &TimerThread,
    upstream: Arc<dyn Upstream>,
) -> Result<(DeviceHandle, DeviceThreads), OperatorError> {
    let brokers = Brokers {
        policy,
        commands: Vec::new(),
    };
    let (shared, threads) = threads::start(config, brokers, clock, timers, upstream)?;
    Ok((DeviceHandle { shared }, threads))
}

impl Chooser for Brokers {
    type Event<'e> = DeviceEvent<'e, Arc<Job>>;
    type Run = Run;
    type Read = ();
    type Report = std::convert::Infallible;
    type Outgoing = Outgoing;
    type Upstream = Arc<dyn Upstream>;

    const HAS_STEPS: bool = false;

    fn on_event(
        &mut self,
        now: Timestamp,
        event: Self::Event<'_>,
        _: &Serving,
        work: &mut Work<Self>,
        outgoing: &mut Outgoing,
    ) {
        let Brokers { policy, commands } = self;
        policy.on_event(now, event, commands);
        for command in commands.drain(..) {
            match command {
                DeviceCommand::Execute(batch) => work.runs.push_back(Run::Batch(batch)),
                DeviceCommand::Rerun(rerun) => work.runs.push_back(Run::Rerun(rerun)),
                DeviceCommand::Read(weights, gone) => {
                    work.loads.push_back(LoadTask::Read((), weights, gone));
                }
                DeviceCommand::Forget(gone) => work.loads.push_back(LoadTask::Forget(gone)),
                DeviceCommand::Loaded(worker, result) => {
                    outgoing.push(Notice::Loaded(worker, result))
                }
                DeviceCommand::Tell {
                    worker,
                    gateway,
                    message,
                } => outgoing.push(Notice::Tell(worker, gateway, message)),
            }
        }
    }

    fn next_wakeup(&self) -> Option<Timestamp> {
        self.policy.next_wakeup()
    }

    fn wakeup() -> Self::Event<'static> {
        DeviceEvent::Wakeup
    }

    fn send(shared: &Shared<Self>, outgoing: Outgoing) {
        let Some(first) = outgoing.first else {
            return;
        };
        for notice in std::iter::once(first).chain(outgoing.more) {
            match notice {
                Notice::Tell(worker, gateway, message) => {
                    shared.upstream.tell(worker, gateway, message)
                }
                Notice::Loaded(worker, result) => {
                    let operators = shared.serving.operators();
                    let why = |weights| match operators.map(|of| of.slots.get(weights)) {
                        Some(Err(why)) => why.to_string(),
                        _ => "its weights were given back meanwhile".to_owned(),
                    };
                    shared.upstream.loaded(worker, result.map_err(why));
                }
            }
        }
    }

    fn prepare(_: &Shared<Self>, _: ActionId) {}

    fn execute(shared: &Shared<Self>, run: Run, inputs: &mut Vec<Inputs>) {
        match run {
            Run::Batch(batch) => run_batch(shared, batch, inputs),
            Run::Rerun(rerun) => run_again(shared, rerun, inputs),
        }
    }

    fn read(shared: &Shared<Self>, (): (), _: Timestamp, result: Result<(), OperatorError>) {
        if shared.is_alive() {
            shared.drive(DeviceEvent::ReadEnded(result.is_ok()));
        }
    }

    fn report(_: &Shared<Self>, report: Self::Report) {
        match report {}
    }

    fn lack(&mut self, weights: WeightsId) {
        self.policy.lack(weights);
    }

    fn died(shared: &Shared<Self>, cause: &str) {
        shared.upstream.down(shared.id, cause);
        shared.drive(DeviceEvent::Close(DropReason::NoWorker));
        // What was bound behind it went down with its workers.
        shared.state.lock().work.runs.clear();
    }
}

/// Executes a batch and tells who is to know.
fn run_batch(shared: &Shared<Brokers>, batch: Batch<Arc<Job>>, inputs: &mut Vec<Inputs>) {
    let Batch {
        id,
        worker,
        started_at: bound_for,
        expected_end: reported_end,
        members,
        sampled,
        ..
    } = batch;
    let started_at = shared.clock.now();
    // A batch holds requests of one model.
    let model = members.first().map(|m| m.request.model());
    let jobs = members.iter().map(|m| &*m.payload);
    let results = (shared.serving).run(worker, model.unwrap_or_default(), jobs, inputs);
    let ended_at = shared.clock.now();
    let sampled = sampled.filter(|&i| results[i].is_ok());
    let sampled = sampled.map(|i| members[i].payload.clone());
    let forecasters = (shared.state.lock().chooser.policy)
        .forecasters(worker)
        .collect();
    shared.upstream.ran(RanBatch {
        device: shared.id,
        id,
        members,
        results,
        started_at,
        // The policy says how long it takes; when it starts is seen here.
        expected_end: started_at + reported_end.since(bound_for),
        reported_end,
        ended_at,
        forecasters,
    });
    shared.drive(DeviceEvent::BatchEnded {
        batch: id,
        took: ended_at.since(started_at),
        sampled,
    });
}

/// Executes a finished request once more.
fn run_again(shared: &Shared<Brokers>, rerun: Rerun<Arc<Job>>, inputs: &mut Vec<Inputs>) {
    let Rerun {
        id,
        worker,
        model,
        payload,
        ..
    } = rerun;
    let started_at = shared.clock.now();
    let job = std::iter::once(&*payload);
    let results = shared.serving.run(worker, model, job, inputs);
    let took = shared.clock.now().since(started_at);
    shared.upstream.reran(worker, took);
    let succeeded = results.iter().all(Result::is_ok);
    shared.drive(DeviceEvent::Reran {
        batch: id,
        took: succeeded.then_some(took),
    });
}

/// Reaches a device. Cheap to clone.
#[derive(Clone)]
pub struct DeviceHandle {
    shared: Arc<Shared<Brokers>>,
}

impl DeviceHandle {
    /// Takes in a message.
    pub fn tell(&self, from: Address, mut message: ToDevice<Arc<Job>>) {
        self.shared.drive(match message {
            ToDevice::Requests(ref mut requests) => DeviceEvent::Arrivals(requests),
            ToDevice::Answer(answer) => match from {
                Address::Gateway(gateway) => DeviceEvent::Answer(gateway, answer),
                _ => return,
            },
            ToDevice::Cancel(worker, request) => DeviceEvent::Cancel(worker, request),
            ToDevice::Withdraw(worker, request, reason) => {
                DeviceEvent::Withdraw(worker, request, reason)
            }
            ToDevice::Guide(worker, guidance) => DeviceEvent::Guide(worker, guidance),
            ToDevice::Load(worker) => DeviceEvent::Load(worker),
            ToDevice::Unload(worker) => DeviceEvent::Unload(worker),
            ToDevice::Reassigned(application) => DeviceEvent::Reassigned(application),
        });
    }

    /// A gateway greets: it hears what the device says of these workers from now on.
    pub fn greet(&self, gateway: GatewayId, workers: &[WorkerId]) {
        self.shared.drive(DeviceEvent::Greeted(gateway, workers));
    }

    /// A gateway is gone: its requests are forgotten.
    pub fn lose(&self, gateway: GatewayId) {
        self.shared.drive(DeviceEvent::Lost(gateway));
    }

    /// A gateway is silent: it is not waited for until it answers again.
    pub fn suspect(&self, gateway: GatewayId) {
        self.shared.drive(DeviceEvent::Suspected(gateway));
    }

    /// Takes no more requests, and finishes what it has and what is on its way.
    pub fn leave(&self) {
        self.shared.drive(DeviceEvent::Leave);
    }

    /// Whether nothing runs and nothing waits.
    pub fn has_no_work(&self) -> bool {
        self.shared.state.lock().chooser.policy.has_no_work()
    }

    /// Rejects what waits and what still comes.
    pub fn close(&self, reason: DropReason) {
        self.shared.drive(DeviceEvent::Close(reason));
    }

    /// By how much its predictions were wrong since it began.
    pub fn prediction_errors(&self) -> PredictionErrors {
        let state = self.shared.state.lock();
        state.chooser.policy.prediction_errors().clone()
    }

    /// What became of weights, where they are not all there from the start; and the pages that they have, of all, where they give way.
    pub fn weights(&self) -> Option<(WeightStoreAccount, Option<(u32, u32)>)> {
        let state = self.shared.state.lock();
        let memory = state.chooser.policy.memory()?;
        memory.changes().then(|| (memory.account(), memory.pages()))
    }

    /// Whether its threads live.
    pub fn is_alive(&self) -> bool {
        self.shared.is_alive()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Requests that wait at a worker.
    pub fn waiting(&self, worker: WorkerId) -> usize {
        self.shared.state.lock().chooser.policy.waiting(worker)
    }
}
