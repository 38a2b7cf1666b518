//! The world around the policies: virtual time, messages that travel, devices that take their time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spillgate_controller_policy::ledger::Ledger;
use spillgate_controller_policy::module::{Command, Event as ModuleEvent, ModuleController};
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::{BatchId, DeviceId, ModuleId, RequestId, WorkerId};
use spillgate_pipeline::invariants::{Checker, Violation};
use spillgate_pipeline::pipeline::DropPolicyName;
use spillgate_pipeline::request::{Drop, Outcome, Request};
use spillgate_pipeline::time::Timestamp;
use spillgate_worker_policy::broker::{BrokerConfig, Member};
use spillgate_worker_policy::device::{
    Arrival, Command as DeviceCommand, Device, Event as DeviceEvent,
};
use spillgate_worker_policy::drop_policy;

use crate::report::{Report, Tally};

/// Events of one run at most: a policy that never comes to rest is stopped.
const EVENTS_MAX: u64 = 2_000_000_000;

/// One emulated run.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// The pipeline. Its modules run on emulated devices whatever devices it names.
    pub pipeline: Arc<Pipeline>,
    /// Overrides the pipeline's drop policy.
    pub drop: DropPolicyName,
    /// Execution time by batch size from 1, for each module; the source's entry is not used.
    pub execution: Vec<Vec<Duration>>,
    /// Ordinal of the device of each worker, for each module (the source has none). Modules that
    /// name the same ordinal share the device.
    pub workers: Vec<Vec<u16>>,
    /// Arrival times, in order.
    pub arrivals: Vec<Timestamp>,
    /// Time that offered load lasts, for rates.
    pub duration: Duration,
    /// Travel of a message between gateway, controllers and workers.
    pub hop: Duration,
    /// Execution times vary by a factor drawn uniformly from 1 - noise to 1 + noise.
    pub noise: f64,
    /// Probability that a `when:` holds.
    pub when_probability: f64,
    /// Part of the requests whose client leaves, half the SLO after sending.
    pub cancelled: f64,
    /// Seed of noise, conditions and cancellations.
    pub seed: u64,
}

type Id = RequestId;

#[derive(Debug)]
enum Event {
    Offer(usize),
    Branches {
        to: ModuleId,
        from: ModuleId,
        request: Request,
        present: bool,
        condition: Option<bool>,
    },
    Returned {
        module: ModuleId,
        request: Id,
    },
    AtDevice {
        device: usize,
        worker: WorkerId,
        requests: Vec<Request>,
    },
    CancelAtDevice {
        device: usize,
        request: Id,
    },
    BatchEnd {
        device: usize,
        batch: BatchId,
    },
    Wakeup {
        device: usize,
    },
    Leave(Id),
}

impl Event {
    /// Kind for the order of events at one time, and for the hash.
    fn kind(&self) -> u8 {
        match self {
            Event::BatchEnd { .. } => 0,
            Event::Returned { .. } => 1,
            Event::Branches { .. } => 2,
            Event::CancelAtDevice { .. } => 3,
            Event::AtDevice { .. } => 4,
            Event::Offer(_) => 5,
            Event::Leave(_) => 6,
            Event::Wakeup { .. } => 7,
        }
    }
}

/// An entry of the event heap. The order is total: time, then kind, then sequence.
struct Entry {
    at: Timestamp,
    kind: u8,
    sequence: u64,
    event: Event,
}

impl Entry {
    fn rank(&self) -> (Timestamp, u8, u64) {
        (self.at, self.kind, self.sequence)
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.rank() == other.rank()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.rank().cmp(&other.rank())
    }
}

struct Running {
    batch: BatchId,
    module: ModuleId,
    started_at: Timestamp,
    members: Vec<Member<()>>,
}

struct EmulatedDevice {
    policy: Device<()>,
    running: Option<Running>,
    /// The wake-up that is in the heap; later ones need none.
    armed: Timestamp,
}

struct World {
    config: SimConfig,
    now: Timestamp,
    heap: BinaryHeap<Reverse<Entry>>,
    sequence: u64,
    hash: u64,
    events: u64,
    ledger: Ledger,
    modules: Vec<ModuleController>,
    device_of: BTreeMap<WorkerId, usize>,
    devices: Vec<EmulatedDevice>,
    open: BTreeMap<Id, (Request, u128)>,
    checker: Checker,
    rng: ChaCha8Rng,
    tally: Tally,
}

/// Runs a configuration to its end.
///
/// # Errors
/// The first invariant that did not hold.
pub fn run(config: SimConfig) -> Result<Report, Violation> {
    let mut world = World::new(config);
    for i in 0..world.config.arrivals.len() {
        let at = world.config.arrivals[i];
        world.post(at, Event::Offer(i));
    }
    while let Some(Reverse(entry)) = world.heap.pop() {
        world.checker.time(entry.at)?;
        world.now = entry.at;
        world.events += 1;
        assert!(world.events < EVENTS_MAX, "the run does not come to rest");
        world.digest(&entry);
        world.step(entry.event)?;
    }
    world.checker.finished()?;
    let duration = world.config.duration;
    Ok(world.tally.finish(duration, world.events, world.hash))
}

impl World {
    fn new(config: SimConfig) -> Self {
        let pipeline = config.pipeline.clone();
        let mut brokers: BTreeMap<usize, Vec<(WorkerId, BrokerConfig)>> = BTreeMap::new();
        let mut device_of = BTreeMap::new();
        let mut modules = Vec::new();
        let mut next_worker = 0;
        for module in &pipeline.modules {
            let mut serving = Vec::new();
            for &device in &config.workers[module.id.idx()] {
                let worker = WorkerId(next_worker);
                next_worker += 1;
                serving.push(worker);
                device_of.insert(worker, usize::from(device));
                let broker = BrokerConfig {
                    module: module.id,
                    capacity: module.queue,
                    batch_max: module.batch.max,
                    execution: config.execution[module.id.idx()].clone(),
                    policy: drop_policy::by_name(config.drop),
                };
                brokers
                    .entry(usize::from(device))
                    .or_default()
                    .push((worker, broker));
            }
            let dispatch = pipeline.policy.dispatch;
            modules.push(ModuleController::new(
                &pipeline, module.id, dispatch, &serving,
            ));
        }
        let n_devices = brokers.keys().max().map_or(0, |d| d + 1);
        let devices = (0..n_devices)
            .map(|d| EmulatedDevice {
                policy: Device::new(brokers.remove(&d).unwrap_or_default()),
                running: None,
                armed: Timestamp::MAX,
            })
            .collect();
        // A cancellation needs a hop to reach its device.
        let checker = Checker::default().cancel_delay(config.hop);
        World {
            now: Timestamp::ZERO,
            heap: BinaryHeap::new(),
            sequence: 0,
            hash: 0xcbf2_9ce4_8422_2325,
            events: 0,
            ledger: Ledger::new(&pipeline),
            modules,
            device_of,
            devices,
            open: BTreeMap::new(),
            checker,
            rng: ChaCha8Rng::seed_from_u64(config.seed),
            tally: Tally::default(),
            config,
        }
    }

    fn post(&mut self, at: Timestamp, event: Event) {
        let kind = event.kind();
        let sequence = self.sequence;
        self.sequence += 1;
        self.heap.push(Reverse(Entry {
            at,
            kind,
            sequence,
            event,
        }));
    }

    fn post_hop(&mut self, event: Event) {
        self.post(self.now + self.config.hop, event);
    }

    /// FNV-1a over time, kind and subject of each event.
    fn digest(&mut self, entry: &Entry) {
        let subject = match &entry.event {
            Event::Offer(i) => *i as u64,
            Event::Branches {
                to,
                request,
                present,
                ..
            } => request.id.0 << 8 | u64::from(to.0) << 1 | u64::from(*present),
            Event::Returned { request, .. } | Event::Leave(request) => request.0,
            Event::AtDevice {
                worker, requests, ..
            } => requests
                .iter()
                .fold(u64::from(worker.0), |h, r| h.wrapping_mul(31) ^ r.id.0),
            Event::CancelAtDevice { request, .. } => request.0,
            Event::BatchEnd { device, batch } => batch.0 << 16 | *device as u64,
            Event::Wakeup { device } => *device as u64,
        };
        for word in [entry.at.as_ns(), u64::from(entry.kind), subject] {
            for byte in word.to_le_bytes() {
                self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
        }
    }

    fn step(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::Offer(i) => self.offer(i)?,
            Event::Branches {
                to,
                from,
                request,
                present,
                condition,
            } => {
                if self.ledger.is_open(request.id) {
                    let branch = ModuleEvent::Branch {
                        request,
                        from,
                        present,
                        condition,
                    };
                    self.drive_module(to, branch)?;
                }
            }
            Event::Returned { module, request } => {
                self.drive_module(module, ModuleEvent::Returned(request))?;
            }
            Event::AtDevice {
                device,
                worker,
                requests,
            } => {
                let mut arrivals = requests
                    .into_iter()
                    .map(|request| Arrival {
                        worker,
                        request,
                        payload: (),
                    })
                    .collect();
                self.drive_device(device, DeviceEvent::Arrivals(&mut arrivals))?;
            }
            Event::CancelAtDevice { device, request } => {
                self.drive_device(device, DeviceEvent::Cancel(request))?;
            }
            Event::BatchEnd { device, batch } => self.batch_end(device, batch)?,
            Event::Wakeup { device } => {
                if self.devices[device].armed <= self.now {
                    self.devices[device].armed = Timestamp::MAX;
                }
                self.drive_device(device, DeviceEvent::Wakeup)?;
            }
            Event::Leave(request) => {
                if let Some((open, _)) = self.open.get(&request) {
                    let drop = Drop {
                        module: ModuleId::SOURCE,
                        reason: spillgate_pipeline::request::DropReason::Cancelled,
                        at: self.now,
                        budget: open.deadline.budget_at(self.now),
                        estimate: None,
                    };
                    self.end_early(request, Outcome::Dropped(drop))?;
                }
            }
        }
        Ok(())
    }

    fn offer(&mut self, i: usize) -> Result<(), Violation> {
        self.tally.offered();
        let id = RequestId(i as u64);
        let request = match self.ledger.admit(self.now, id, self.now, None) {
            Ok(request) => request,
            Err(refusal) => {
                self.tally.refused(refusal.reason().label());
                return Ok(());
            }
        };
        self.checker.accepted(id)?;
        self.open.insert(id, (request, 0));
        if self.config.cancelled > 0.0 && self.rng.random::<f64>() < self.config.cancelled {
            self.post(self.now + self.config.pipeline.slo / 2, Event::Leave(id));
        }
        self.module_done(request, ModuleId::SOURCE, true)
    }

    /// A module ran for a request, or was skipped: its successors hear of it a hop later.
    fn module_done(
        &mut self,
        request: Request,
        module: ModuleId,
        present: bool,
    ) -> Result<(), Violation> {
        let successors = self.config.pipeline.successors(module);
        if successors.is_empty() {
            if let Some(outcome) = self.ledger.sink_done(self.now, request.id) {
                self.ended(request.id, outcome)?;
            }
            return Ok(());
        }
        for to in successors {
            let when = self.config.pipeline.modules[to.idx()].when;
            let condition = when
                .filter(|port| present && port.module == module)
                .map(|_| self.rng.random::<f64>() < self.config.when_probability);
            self.post_hop(Event::Branches {
                to,
                from: module,
                request,
                present,
                condition,
            });
        }
        Ok(())
    }

    fn drive_module(&mut self, module: ModuleId, event: ModuleEvent) -> Result<(), Violation> {
        let mut commands = Vec::new();
        self.modules[module.idx()].on_event(self.now, event, &mut commands);
        for command in commands {
            match command {
                Command::Send { request, worker } => {
                    let device = self.device_of[&worker];
                    self.post_hop(Event::AtDevice {
                        device,
                        worker,
                        requests: vec![request],
                    });
                }
                Command::Skip(request) => self.module_done(request, module, false)?,
                Command::Drop { request, reason } => {
                    let Some((open, _)) = self.open.get(&request) else {
                        continue;
                    };
                    let budget = open.deadline.budget_at(self.now);
                    let drop = Drop {
                        module,
                        reason,
                        at: self.now,
                        budget,
                        estimate: None,
                    };
                    self.end_early(request, Outcome::Dropped(drop))?;
                }
                Command::Fail(request) => {
                    self.end_early(request, Outcome::Failed { module })?;
                }
                Command::CancelAt { request, worker } => {
                    let device = self.device_of[&worker];
                    self.post_hop(Event::CancelAtDevice { device, request });
                }
            }
        }
        Ok(())
    }

    fn drive_device(&mut self, device: usize, event: DeviceEvent<'_, ()>) -> Result<(), Violation> {
        let mut commands = Vec::new();
        self.devices[device]
            .policy
            .on_event(self.now, event, &mut commands);
        for command in commands {
            match command {
                DeviceCommand::Execute(batch) => {
                    let ids: Vec<Id> = batch.members.iter().map(|m| m.request.id).collect();
                    let max = self.config.pipeline.modules[batch.module.idx()].batch.max;
                    let id = DeviceId(device as u16);
                    self.checker
                        .batch_started(id, batch.id, max, self.now, &ids)?;
                    self.tally.batch(ids.len());
                    let took = self.execution(batch.module, ids.len());
                    self.post(
                        self.now + took,
                        Event::BatchEnd {
                            device,
                            batch: batch.id,
                        },
                    );
                    self.devices[device].running = Some(Running {
                        batch: batch.id,
                        module: batch.module,
                        started_at: self.now,
                        members: batch.members,
                    });
                }
                DeviceCommand::Drop { rejected, .. } => {
                    let module = rejected.drop.module;
                    let request = rejected.request.id;
                    self.post_hop(Event::Returned { module, request });
                    self.end_early(request, Outcome::Dropped(rejected.drop))?;
                }
            }
        }
        if let Some(at) = self.devices[device].policy.next_wakeup()
            && at < self.devices[device].armed
        {
            self.devices[device].armed = at;
            self.post(at, Event::Wakeup { device });
        }
        Ok(())
    }

    fn execution(&mut self, module: ModuleId, size: usize) -> Duration {
        let planned = self.config.execution[module.idx()][size - 1];
        if self.config.noise == 0.0 {
            return planned;
        }
        let factor = 1.0 + self.config.noise * (2.0 * self.rng.random::<f64>() - 1.0);
        planned.mul_f64(factor.max(0.0))
    }

    fn batch_end(&mut self, device: usize, batch: BatchId) -> Result<(), Violation> {
        let running = self.devices[device]
            .running
            .take()
            .expect("a batch that ends has started");
        assert_eq!(
            running.batch, batch,
            "batches end in the order in which they started"
        );
        self.checker
            .batch_ended(DeviceId(device as u16), batch, self.now)?;
        let share = self.now.since(running.started_at).as_nanos() / running.members.len() as u128;
        // Results first, then the device: what they bring to modules here competes for the next batch.
        for member in &running.members {
            let id = member.request.id;
            self.post_hop(Event::Returned {
                module: running.module,
                request: id,
            });
            match self.open.get_mut(&id) {
                Some((request, used)) => {
                    *used += share;
                    let request = *request;
                    self.module_done(request, running.module, true)?;
                }
                None => self.tally.wasted(share),
            }
        }
        self.drive_device(device, DeviceEvent::BatchEnded(batch))
    }

    fn ended(&mut self, id: Id, outcome: Outcome) -> Result<(), Violation> {
        self.checker.ended(id, outcome)?;
        let (request, used) = self.open.remove(&id).expect("what ends was open");
        self.tally
            .ended(&self.config.pipeline, &request, self.now, outcome, used);
        Ok(())
    }

    fn end_early(&mut self, id: Id, outcome: Outcome) -> Result<(), Violation> {
        if !self.ledger.end(id) {
            return Ok(());
        }
        self.ended(id, outcome)?;
        for module in 0..self.modules.len() as u16 {
            self.drive_module(ModuleId(module), ModuleEvent::Forget(id))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
