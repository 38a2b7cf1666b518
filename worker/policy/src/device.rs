//! The device executor: one device, one batch at a time, several workers (modules) that share it.
//!
//! When the device is free, it takes the batch of the worker with the earliest deadline, among the workers that have
//! something to run (ties: lower worker). Brokers are told when the device is expected to be free, so they count the
//! batches of other modules, too.
//!
//! Brokers that bind late are asked for their batch `lead` before the device is expected to be free, so that it
//! need not idle while the batch is made ready; the driver holds that one batch until the running one ends.
//!
//! A device without work runs finished requests again, one at a time, for the distributions of batch schedulers
//! ([`crate::profiler`]).
//!
//! Requests without an SLO run when nothing else waits at any of its workers. Their batch is bound when the device is free, never
//! behind a running one, so that what arrives meanwhile goes before it. Reruns go before them.
//!
//! Where not all weights are there from the start, they are read beside the batches, and requests for them wait apart meanwhile. So are
//! those of workers that come with the load; they are given back once their worker has no request here.
//!
//! Invariants: at most one batch or rerun runs, and at most one batch is bound behind it; the device
//! never idles while a broker has something to run; every arrival leaves in exactly one `Execute` or `Drop`, or is cancelled.

pub(crate) mod asks;
mod events;
mod gateways;
mod idle;
mod leave;
mod loads;
mod models;
mod pull;
mod running;

use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::id::{BatchId, GatewayId, WorkerId};
use spillgate_pipeline::predict::{Action, PredictionErrors};
use spillgate_pipeline::request::DropReason;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{Arrival, Started, ToGateway};

use crate::broker::{Broker, BrokerConfig, Formed, Rejected};
use crate::profiler::{Profiler, RerunCandidate};
use crate::weights::store::WeightStore;
use asks::Asks;
pub use events::{Batch, DeviceCommand, DeviceEvent, Rerun};
use gateways::Gateways;
use loads::Loads;
use running::Running;

/// Where a full batch waits for the device, it is bound this many usual deviations before the expected end of the
/// running batch.
const EARLY: u32 = 2;
/// But at most this many times the lead before: long batches deviate by much more than the lead, and an early batch
/// misses later arrivals.
const EARLY_MAX: u32 = 4;

/// The executor of one device.
pub struct Device<T> {
    workers: IndexMap<WorkerId, Broker<T>, FxBuildHasher>,
    gateways: Gateways,
    running: Option<Running>,
    /// Starts when the running batch ends.
    bound: Option<Running>,
    loads: Loads,
    asks: Asks,
    /// A worker asks gateways for requests.
    pulls: bool,
    lead: Duration,
    /// Its process is about to end: it finishes what it has.
    is_leaving: bool,
    closed: Option<DropReason>,
    next_batch: u64,
    profiler: Profiler<T>,
    /// What is in memory; `None` where workers need nothing.
    memory: Option<WeightStore>,
    errors: PredictionErrors,
    rejected: Vec<Rejected<T>>,
}

impl<T> Device<T> {
    /// A device that serves these workers. `lead` is the time from binding a batch to its start that a driver
    /// needs at most.
    pub fn new(workers: Vec<(WorkerId, BrokerConfig)>, lead: Duration) -> Self {
        let workers = workers
            .into_iter()
            .map(|(id, config)| (id, Broker::new(id, config)));
        let workers: IndexMap<WorkerId, Broker<T>, FxBuildHasher> = workers.collect();
        Device {
            pulls: workers.values().any(Broker::pulls),
            workers,
            gateways: Gateways::default(),
            running: None,
            bound: None,
            loads: Loads::default(),
            asks: Asks::default(),
            lead,
            is_leaving: false,
            closed: None,
            next_batch: 0,
            profiler: Profiler::new(),
            memory: None,
            errors: PredictionErrors::default(),
            rejected: Vec::new(),
        }
    }

    /// Takes in one event.
    pub fn on_event(
        &mut self,
        now: Timestamp,
        event: DeviceEvent<'_, T>,
        out: &mut Vec<DeviceCommand<T>>,
    ) {
        for broker in self.workers.values_mut() {
            broker.age(now);
        }
        match event {
            DeviceEvent::Greeted(gateway, workers) => {
                if self.gateways.greet(gateway, workers) {
                    self.ask_newcomer(now, gateway, out);
                    self.tell_all_held(gateway, out);
                    if self.is_leaving {
                        self.say_leave(gateway, out);
                    }
                }
            }
            DeviceEvent::Lost(gateway) => {
                self.gateways.lose(gateway);
                self.asks.forget(gateway);
                for broker in self.workers.values_mut() {
                    broker.forget_gateway(gateway);
                }
            }
            DeviceEvent::Suspected(gateway) => self.asks.suspect(gateway),
            DeviceEvent::Arrivals(arrivals) => self.on_arrivals(now, arrivals, out),
            DeviceEvent::Answer(gateway, answer) => self.on_answer(now, gateway, answer, out),
            DeviceEvent::Cancel(worker, request) => {
                let broker = self.workers.get_mut(&worker);
                if broker.is_some_and(|b| b.cancel(request)) {
                    out.push(DeviceCommand::Tell {
                        worker,
                        gateway: request.owner(),
                        message: ToGateway::Forgotten { worker, request },
                    });
                }
            }
            DeviceEvent::Withdraw(worker, request, reason) => {
                if let Some(broker) = self.workers.get_mut(&worker) {
                    broker.withdraw(now, request, reason, &mut self.rejected);
                    drain_rejected(worker, &mut self.rejected, out);
                }
            }
            DeviceEvent::BatchEnded {
                batch,
                took,
                sampled,
            } => self.ended(now, batch, took, sampled),
            DeviceEvent::ReadEnded(is_there) => self.read_ended(now, is_there, out),
            DeviceEvent::Reran { batch, took } => self.reran(now, batch, took),
            // Nothing new is served any more.
            DeviceEvent::Load(_) | DeviceEvent::Unload(_) if !self.takes_requests() => {}
            DeviceEvent::Load(worker) => self.loads.load(worker),
            DeviceEvent::Unload(worker) => self.loads.unload(worker),
            DeviceEvent::Reassigned(application) => {
                for broker in self.workers.values_mut() {
                    broker.forget(application);
                }
            }
            DeviceEvent::Guide(worker, guidance) => {
                if let Some(broker) = self.workers.get_mut(&worker) {
                    broker.guide(now, guidance);
                }
            }
            DeviceEvent::Ran {
                worker,
                application,
                took,
            } => {
                if let Some(broker) = self.workers.get_mut(&worker) {
                    broker.learn(now, application, took);
                }
            }
            DeviceEvent::Wakeup => {}
            DeviceEvent::Leave => self.depart(out),
            DeviceEvent::Close(reason) => self.close(now, reason, out),
        }
        self.expire_cold(now, out);
        self.collect(now, out);
        self.start(now, out);
        // Mostly there is none, and this is asked with each event.
        if self.loads.has_retired() {
            self.unload(out);
        }
        self.rerun(now, out);
        self.start_background(now, out);
        // What a batch was just bound of stays.
        self.read_next(now, out);
        if self.pulls {
            self.ask(now, out);
        }
    }

    /// The next moment at which something happens without an event from outside: a deadline passes, or the
    /// next batch is to be bound, or a finished request to run again.
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        let expiry = self.workers.values().filter_map(Broker::next_expiry).min();
        let rerun = self.profiler.due();
        let [asks, heard] = [self.asks_at(), self.is_heard_at()];
        let all = [expiry, self.binds_at(), rerun, asks, heard];
        all.into_iter().flatten().min()
    }

    /// Nothing runs and nothing waits.
    pub fn has_no_work(&self) -> bool {
        self.running.is_none() && self.workers.values().all(|b| b.waiting() == 0)
    }

    /// It is neither closed nor about to end.
    fn takes_requests(&self) -> bool {
        self.closed.is_none() && !self.is_leaving
    }

    /// When the batch behind the running one is to be bound, if a broker that binds late has something to run.
    fn binds_at(&self) -> Option<Timestamp> {
        let running = self.running.as_ref()?;
        if self.bound.is_some() {
            return None;
        }
        let (mut waits, mut fills) = (false, false);
        for broker in self.workers.values().filter(|b| b.binds_late()) {
            waits |= broker.urgency().is_some();
            fills |= broker.fills_batch();
        }
        let early = if fills {
            self.early(running)
        } else {
            Duration::ZERO
        };
        let at = running.expected_end - (self.lead + early);
        let heard_at = self.asks.waits_until().unwrap_or(at);
        waits.then(|| at.max(heard_at))
    }

    /// How much earlier than expected the running batch may end.
    fn early(&self, running: &Running) -> Duration {
        let broker = self.workers.get(&running.worker);
        let deviation = broker.map_or(Duration::ZERO, |b| {
            b.duration_deviation(running.model.variant, running.size())
        });
        (deviation * EARLY).min(self.lead * EARLY_MAX)
    }

    /// When the device is expected to be free: the expected end of the running batch and of the one bound
    /// behind it, but not earlier than `now`.
    pub fn free_at(&self, now: Timestamp) -> Timestamp {
        let last = self.bound.as_ref().or(self.running.as_ref());
        last.map_or(now, |r| r.expected_end.max(now))
    }

    /// The gateways that are there, in the order in which they greeted.
    pub fn gateways(&self) -> impl ExactSizeIterator<Item = GatewayId> {
        self.gateways.ids()
    }

    /// The gateways that hear of each batch of a worker, whether they have requests in it or not: those that forecast when the
    /// worker is free. Other gateways hear of their own requests.
    pub fn forecasters(&self, worker: WorkerId) -> impl Iterator<Item = GatewayId> {
        let pulls = self.workers.get(&worker).is_none_or(Broker::pulls);
        self.gateways.of(worker).filter(move |_| !pulls)
    }

    /// By how much batches and reruns took longer and ended later than expected, or less long and earlier, since the device
    /// began. A batch is expected to end when gateways were told, as it was bound.
    pub fn prediction_errors(&self) -> &PredictionErrors {
        &self.errors
    }

    /// Requests without an SLO that wait at a worker.
    pub fn waiting_in_background(&self, worker: WorkerId) -> usize {
        let broker = self.workers.get(&worker);
        broker.map_or(0, |b| b.waiting() - b.in_time())
    }

    /// Requests that wait at a worker.
    pub fn waiting(&self, worker: WorkerId) -> usize {
        self.workers.get(&worker).map_or(0, Broker::waiting)
    }

    fn on_arrivals(
        &mut self,
        now: Timestamp,
        arrivals: &mut Vec<Arrival<T>>,
        out: &mut Vec<DeviceCommand<T>>,
    ) {
        let mut rejected = std::mem::take(&mut self.rejected);
        for arrival in arrivals.drain(..) {
            let Arrival {
                worker,
                request,
                payload,
            } = arrival;
            let cold = self.cold(now, worker, &request);
            // A gateway that takes another device for this one hears nothing, and ends its request by its own timer.
            let Some(broker) = self.workers.get_mut(&worker) else {
                continue;
            };
            match cold {
                None => broker.arrive(now, request, payload, &mut rejected),
                Some(weights) => {
                    broker.arrive_cold(now, weights, request, payload, &mut rejected);
                }
            }
            if let Some(reason) = self.closed {
                broker.reject_all(now, reason, &mut rejected);
            }
            drain_rejected(worker, &mut rejected, out);
        }
        self.rejected = rejected;
    }

    fn collect(&mut self, now: Timestamp, out: &mut Vec<DeviceCommand<T>>) {
        let free_at = self.free_at(now);
        for (&worker, broker) in &mut self.workers {
            broker.expire(now, &mut self.rejected);
            broker.collect(now, free_at, &mut self.rejected);
            drain_rejected(worker, &mut self.rejected, out);
        }
    }

    /// Takes the ended batch off the device and puts the batch that is bound behind it there.
    fn leave(&mut self, now: Timestamp, batch: BatchId) -> Running {
        let ended = self.running.take();
        let ended = ended.filter(|r| r.id == batch);
        if let Some(mut next) = self.bound.take() {
            next.expected_end = now + next.execution;
            self.running = Some(next);
        }
        ended.expect("only what runs can end")
    }

    fn ended(&mut self, now: Timestamp, batch: BatchId, took: Duration, sampled: Option<T>) {
        let ended = self.leave(now, batch);
        debug_assert!(!ended.is_rerun(), "a rerun ends as one");
        self.errors.record(&ended.record(now, took));
        if let Some(broker) = self.workers.get_mut(&ended.worker) {
            let expected = (ended.execution, ended.lengths);
            let of = (ended.model.variant, ended.size());
            broker.executed(now, of, expected, ended.request.as_ref(), took);
            if let Some(application) = ended.alone {
                broker.learn(now, application, took);
            }
        }
        if self.takes_requests()
            && let (Some(request), Some(payload)) = (ended.sampled, sampled)
        {
            self.profiler.keep(RerunCandidate {
                worker: ended.worker,
                request: request.id,
                application: request.application,
                model: request.model(),
                payload,
            });
        }
    }

    fn reran(&mut self, now: Timestamp, batch: BatchId, took: Option<Duration>) {
        let ended = self.leave(now, batch);
        debug_assert!(ended.is_rerun(), "a batch ends as one");
        self.profiler.reran(took.unwrap_or(ended.execution));
        if let Some(took) = took {
            self.errors.record(&ended.record(now, took));
        }
        let broker = self.workers.get_mut(&ended.worker);
        if let (Some(broker), Some(took), Some(application)) = (broker, took, ended.alone) {
            broker.learn(now, application, took);
        }
    }

    fn next_id(&mut self) -> BatchId {
        let id = BatchId(self.next_batch);
        self.next_batch += 1;
        id
    }

    /// Starts the most urgent batch if the device is free, and begins to form the next batch; binds the
    /// next batch if the device is about to be free.
    fn start(&mut self, now: Timestamp, out: &mut Vec<DeviceCommand<T>>) {
        if self.running.is_none() {
            if self.asks.waits_until().is_none_or(|until| until <= now) {
                self.bind(now, now, false, out);
            }
            self.collect(now, out);
        }
        if let Some(at) = self.binds_at()
            && at <= now
        {
            let starts_at = self.free_at(now);
            self.bind(now, starts_at, true, out);
        }
    }

    /// Takes the next batch from the most urgent broker that has one.
    fn bind(
        &mut self,
        now: Timestamp,
        starts_at: Timestamp,
        late_only: bool,
        out: &mut Vec<DeviceCommand<T>>,
    ) {
        loop {
            let urgent = self
                .workers
                .values()
                .enumerate()
                .filter(|(_, broker)| broker.binds_late() || !late_only)
                .filter_map(|(idx, broker)| Some((broker.urgency()?, idx)))
                .min();
            let Some((_, idx)) = urgent else { return };
            let (&worker, broker) = self
                .workers
                .get_index_mut(idx)
                .expect("the index was just found");
            let formed = broker.take_batch(now, starts_at, &mut self.rejected);
            drain_rejected(worker, &mut self.rejected, out);
            if formed.members.is_empty() {
                // All its requests were dropped, or its scheduler waits: it is no longer urgent.
                continue;
            }
            self.put(worker, formed, starts_at, out);
            return;
        }
    }

    /// Puts a batch on the device, or behind the running one.
    fn put(
        &mut self,
        worker: WorkerId,
        formed: Formed<T>,
        starts_at: Timestamp,
        out: &mut Vec<DeviceCommand<T>>,
    ) {
        let Formed {
            mut members,
            size,
            execution,
            lengths,
        } = formed;
        let id = self.next_id();
        self.note_load(worker, &mut members);
        let broker = &self.workers[&worker];
        let module = broker.module();
        let background = members.iter().any(|m| m.request.background);
        let sampled = (broker.is_scheduled() && !background)
            .then(|| self.profiler.pick(members.len()))
            .flatten();
        let one = match members.as_slice() {
            [one] => Some(one.request),
            _ => None,
        };
        let bound = Running {
            id,
            worker,
            action: Action::execute(module, size),
            background,
            sampled: sampled.map(|i| members[i].request),
            alone: one.map(|request| request.application),
            request: one,
            model: members
                .first()
                .map(|m| m.request.model())
                .unwrap_or_default(),
            execution,
            lengths,
            reported_end: starts_at + execution,
            expected_end: starts_at + execution,
        };
        // Gateways of which a worker asks for requests make no forecast of it, and no forecast counts requests without an SLO.
        let pulls = broker.pulls();
        for gateway in self.gateways.of(worker).filter(|_| !pulls) {
            let counted = members.iter().filter(|m| !m.request.background);
            let own = counted.filter(|m| m.request.id.owner() == gateway);
            out.push(DeviceCommand::Tell {
                worker,
                gateway,
                message: ToGateway::Started(Started {
                    worker,
                    batch: id,
                    size: own.count(),
                    expected_end: bound.expected_end,
                }),
            });
        }
        out.push(DeviceCommand::Execute(Batch {
            id,
            worker,
            module,
            started_at: starts_at,
            expected_end: bound.expected_end,
            members,
            sampled,
        }));
        let slot = if self.running.is_none() {
            &mut self.running
        } else {
            &mut self.bound
        };
        *slot = Some(bound);
        self.close_asks(out);
    }
}

fn drain_rejected<T>(
    worker: WorkerId,
    rejected: &mut Vec<Rejected<T>>,
    out: &mut Vec<DeviceCommand<T>>,
) {
    // This runs with each event, and mostly there is none.
    if rejected.is_empty() {
        return;
    }
    out.extend(rejected.drain(..).map(|Rejected { request, drop, .. }| {
        let request = request.id;
        DeviceCommand::Tell {
            worker,
            gateway: request.owner(),
            message: ToGateway::Dropped {
                worker,
                request,
                drop: Box::new(drop),
            },
        }
    }));
}

#[cfg(test)]
mod tests;
