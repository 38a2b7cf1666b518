//! The emulated devices: they carry out the decisions of the device policies in virtual time.

use std::collections::VecDeque;
use std::time::Duration;

use spillgate_pipeline::action::BatchItem;
use spillgate_pipeline::id::{
    BatchId, DeviceId, GatewayId, Incarnation, ModuleId, RequestId, VariantId, WorkerId,
};
use spillgate_pipeline::invariants::Violation;
use spillgate_pipeline::policy::recipe::Bind;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{
    Address, BatchReport, Fault, Filled, Finished, Message, ToController, ToGateway,
};
use spillgate_worker_policy::broker::BrokerConfig;
use spillgate_worker_policy::device::{Batch, Device, DeviceCommand, DeviceEvent, Rerun};
use spillgate_worker_policy::weights::fleet::FleetEvent;

use crate::draw::normal;

use super::agenda::Occurrence;
use super::memory::stretched;
use super::noted::Kind;
use super::{Disturbance, World};

pub(super) struct Running {
    batch: BatchId,
    worker: WorkerId,
    module: ModuleId,
    started_at: Timestamp,
    members: Vec<BatchItem<()>>,
    is_sampled: bool,
}

pub(super) struct EmulatedDevice {
    pub(super) policy: Device<()>,
    /// The ordinal of its fleet, where a placement decides for it. It has no brokers then.
    pub(super) fleet: Option<usize>,
    pub(super) brokers: Vec<(WorkerId, BrokerConfig)>,
    pub(super) running: Option<Running>,
    /// Since when a finished request runs again.
    pub(super) rerun_since: Option<Timestamp>,
    /// Bound, not started: it waits for the running batch, or for the hand-off.
    /// In order: behind one that waits for its hand-off there may be another.
    pub(super) bound: VecDeque<Batch<()>>,
    /// Earliest wakeup in the agenda; later ones need none.
    pub(super) armed: Timestamp,
    /// Its clock less the world's, in nanoseconds.
    pub(super) skew: i64,
    /// Rises when it dies, so that events of its earlier life are ignored.
    pub(super) life: u32,
    /// It is dead: nothing reaches it.
    pub(super) is_down: bool,
    /// It has just become free: a batch bound now pays the hand-off.
    pub(super) just_freed: bool,
}

impl World {
    /// A gateway greets a device, and knows all its workers.
    pub(super) fn greet_device(
        &mut self,
        device: usize,
        owner: GatewayId,
    ) -> Result<(), Violation> {
        let workers = self.devices[device].brokers.iter();
        let workers: Vec<WorkerId> = workers.map(|(worker, _)| *worker).collect();
        self.drive_device(device, DeviceEvent::Greeted(owner, &workers))
    }

    pub(super) fn drive_device(
        &mut self,
        device: usize,
        event: DeviceEvent<'_, ()>,
    ) -> Result<(), Violation> {
        if let Some(fleet) = self.devices[device].fleet {
            return self.tell_fleet(fleet, event);
        }
        let mut commands = Vec::new();
        let clock = self.clock(Address::Device(DeviceId(device as u16)));
        let there = clock.read(self.now);
        let d = &mut self.devices[device];
        d.policy.on_event(there, event, &mut commands);
        for command in commands {
            match command {
                DeviceCommand::Execute(batch) => self.bound(device, batch)?,
                DeviceCommand::Rerun(rerun) => self.run_again(device, &rerun)?,
                DeviceCommand::Loaded(worker, result) => {
                    let controller = Address::Controller(self.places[worker.idx()].module);
                    let loaded = ToController::Loaded(worker, result.is_ok());
                    self.say(device, controller, Message::Controller(loaded))?;
                }
                DeviceCommand::Read(weights, _) => self.read(device, weights),
                DeviceCommand::Forget(_) => {}
                DeviceCommand::Tell {
                    gateway, message, ..
                } => {
                    let gateway = Address::Gateway(gateway);
                    self.say(device, gateway, Message::Gateway(message))?;
                }
            }
        }
        let d = &mut self.devices[device];
        if let Some(at) = d.policy.next_wakeup() {
            let at = clock.moment(at).max(self.now);
            if at < d.armed {
                d.armed = at;
                self.agenda.at(at, Occurrence::DeviceWakeup { device });
            }
        }
        self.check_device(device)
    }

    /// A batch was bound: it starts now, after the hand-off, or when the running one ends.
    fn bound(&mut self, device: usize, batch: Batch<()>) -> Result<(), Violation> {
        let ids: Vec<RequestId> = batch.members.iter().map(|m| m.request.id).collect();
        let ids = self.counted(&ids);
        self.checker
            .batch_bound(DeviceId(device as u16), batch.id, self.now, &ids)?;
        let binds_late = self.config.pipeline.policy.recipe().bind == Bind::Late;
        let d = &mut self.devices[device];
        d.bound.push_back(batch);
        if d.running.is_none() && d.rerun_since.is_none() && d.bound.len() == 1 {
            let pays = d.just_freed && binds_late;
            let at = if pays {
                self.now + self.config.handoff
            } else {
                self.now
            };
            let life = self.devices[device].life;
            self.agenda.at(at, Occurrence::BatchStart { device, life });
        }
        Ok(())
    }

    /// Starts the bound batch.
    pub(super) fn execute(&mut self, device: usize) -> Result<(), Violation> {
        let Some(batch) = self.devices[device].bound.pop_front() else {
            return Ok(());
        };
        let ids: Vec<RequestId> = batch.members.iter().map(|m| m.request.id).collect();
        self.note(Kind::BatchStart, (device as u64) << 40 | batch.id.0);
        let max = self.config.planned.execution[batch.module.idx()].len() as u32;
        self.checker
            .batch_started(DeviceId(device as u16), batch.id, max, self.now, &ids)?;
        self.tally.batch(ids.len());
        let started_at = self.now;
        let variant = batch.members.first().map(|m| m.request.variant);
        let took = self.execution((batch.module, variant.unwrap_or_default()), &ids);
        let took = self.slowed(device, took);
        let d = &mut self.devices[device];
        self.agenda.at(
            started_at + took,
            Occurrence::BatchEnd {
                device,
                batch: batch.id,
                life: d.life,
            },
        );
        d.running = Some(Running {
            batch: batch.id,
            worker: batch.worker,
            module: batch.module,
            started_at,
            is_sampled: batch.sampled.is_some(),
            members: batch.members,
        });
        Ok(())
    }

    /// Runs a finished request once more, for its time alone.
    fn run_again(&mut self, device: usize, rerun: &Rerun<()>) -> Result<(), Violation> {
        self.note(Kind::RerunStart, (device as u64) << 40 | rerun.id.0);
        let module = self.places[rerun.worker.idx()].module;
        let requests = [rerun.request];
        self.checker
            .batch_started(DeviceId(device as u16), rerun.id, 1, self.now, &requests)?;
        let took = self.execution((module, rerun.model.variant), &requests);
        let took = self.slowed(device, took);
        self.tally.reran(took);
        let d = &mut self.devices[device];
        let end = Occurrence::RerunEnd {
            device,
            batch: rerun.id,
            life: d.life,
        };
        d.rerun_since = Some(self.now);
        self.agenda.at(self.now + took, end);
        Ok(())
    }

    /// Whether finished requests are handed back to be run again.
    fn reruns(&self) -> bool {
        self.config.work.as_ref().is_some_and(|work| work.reruns)
    }

    pub(super) fn rerun_end(&mut self, device: usize, batch: BatchId) -> Result<(), Violation> {
        let started_at = self.devices[device].rerun_since.take();
        let started_at = started_at.expect("a rerun that ends has started");
        self.checker
            .batch_ended(DeviceId(device as u16), batch, self.now)?;
        let took = Some(self.now.since(started_at));
        if !self.devices[device].bound.is_empty() {
            self.execute(device)?;
        }
        self.drive_device(device, DeviceEvent::Reran { batch, took })
    }

    pub(super) fn slowed(&self, device: usize, took: Duration) -> Duration {
        match &self.cluster {
            Some(cluster) => took.mul_f64(cluster.slow(DeviceId(device as u16))),
            None => took,
        }
    }

    fn execution(
        &mut self,
        (module, variant): (ModuleId, VariantId),
        requests: &[RequestId],
    ) -> Duration {
        let work = self.config.work.as_ref();
        let planned = work
            .and_then(|work| {
                let ordinals = requests.iter().map(|id| self.ordinal(*id) as usize);
                work.execution(module, ordinals)
            })
            .unwrap_or_else(|| {
                let of = self.config.planned.execution.of_module(module);
                of.of_variant(variant)[requests.len() - 1]
            });
        stretched(planned, self.factor(module, requests))
    }

    /// How many times as long as profiled a batch of these requests takes.
    pub(super) fn factor(&mut self, module: ModuleId, requests: &[RequestId]) -> f64 {
        self.pace[module.idx()] * self.takes(requests) * self.noise()
    }

    /// A draw of how many times as long as expected something takes.
    pub(super) fn noise(&mut self) -> f64 {
        match self.config.noise > 0.0 {
            true => (1.0 + self.config.noise * normal(&mut self.rng)).max(0.1),
            false => 1.0,
        }
    }

    /// How many times as long as planned a batch of these requests takes, by the clients that sent them.
    fn takes(&self, requests: &[RequestId]) -> f64 {
        let Some(clients) = &self.config.clients else {
            return 1.0;
        };
        let of = |id: &RequestId| clients.sender(self.ordinal(*id) as usize);
        let takes = requests.iter().map(|id| of(id).map_or(1.0, |s| s.takes));
        takes.sum::<f64>() / requests.len() as f64
    }

    pub(super) fn batch_end(&mut self, device: usize) -> Result<(), Violation> {
        let ended = self.devices[device].running.take();
        let Running {
            batch,
            worker,
            module,
            started_at,
            members,
            is_sampled,
        } = ended.expect("a batch that ends has started");
        self.checker
            .batch_ended(DeviceId(device as u16), batch, self.now)?;
        let took = self.now.since(started_at);
        let share = took.as_nanos() as u64 / members.len() as u64;
        // Results are delivered before the device hears of the end: so requests that go on to modules here compete for
        // the next batch.
        for member in &members {
            self.charge(member.request.id, share);
        }
        let ran: Vec<RequestId> = members.iter().map(|m| m.request.id).collect();
        self.note_ran(DeviceId(device as u16), (worker, batch), &ran);
        let clock = self.clock(Address::Device(DeviceId(device as u16)));
        let report = BatchReport {
            worker,
            variant: members
                .first()
                .map(|m| m.request.variant)
                .unwrap_or_default(),
            started_at: clock.read(started_at),
            ended_at: clock.read(self.now),
            size: members.len() as u32,
            members: members
                .iter()
                .filter(|m| !m.request.background)
                .map(|m| (m.arrived_at, m.batched_at))
                .collect(),
        };
        let members = members.iter().map(|member| Finished {
            request: member.request.id,
            result: self.result_of(module),
        });
        let members: Vec<Finished> = members.collect();
        let size = members.len() as u32;
        for owner in self.devices[device].policy.gateways().collect::<Vec<_>>() {
            let own = members.iter().filter(|m| m.request.owner() == owner);
            let own: Vec<Finished> = own.cloned().collect();
            let policy = &self.devices[device].policy;
            if own.is_empty() && policy.forecasters(worker).all(|of| of != owner) {
                continue;
            }
            let finished = ToGateway::Finished {
                worker,
                batch,
                took,
                size,
                members: own,
            };
            self.say(device, Address::Gateway(owner), Message::Gateway(finished))?;
        }
        // Requests without an SLO are no measure for the others: a batch of them is not reported.
        if !report.members.is_empty() {
            let report = Message::Controller(ToController::Report(report));
            self.say(device, Address::Controller(module), report)?;
        }
        if !self.devices[device].bound.is_empty() {
            self.execute(device)?;
        } else {
            self.devices[device].just_freed = true;
        }
        let event = DeviceEvent::BatchEnded {
            batch,
            took,
            sampled: (is_sampled && self.reruns()).then_some(()),
        };
        self.drive_device(device, event)?;
        self.devices[device].just_freed = false;
        Ok(())
    }

    /// What a module brings for a request.
    fn result_of(&mut self, module: ModuleId) -> Result<Filled, Fault> {
        let fails = self.cluster.as_ref().is_some_and(|c| c.fails());
        match fails {
            true => Err(Fault::Module("the revision is broken".to_owned())),
            false => Ok(self.filled(module)),
        }
    }

    /// A request used that much device time, in nanoseconds.
    pub(super) fn charge(&mut self, request: RequestId, time: u64) {
        let owner = &mut self.gateways[request.owner().idx()];
        match owner.policy.payload_mut(request) {
            Some(used) => *used += time,
            None => self.tally.wasted(time),
        }
    }

    /// What devices hear, as the fleet of one hears it. Nothing is asked of a gateway there, and no worker has to be loaded.
    fn tell_fleet(&mut self, fleet: usize, event: DeviceEvent<'_, ()>) -> Result<(), Violation> {
        let event = match event {
            DeviceEvent::Arrivals(arrivals) => FleetEvent::Arrivals(arrivals),
            DeviceEvent::Cancel(worker, request) => FleetEvent::Cancel(worker, request),
            DeviceEvent::Withdraw(worker, request, reason) => {
                FleetEvent::Withdraw(worker, request, reason)
            }
            DeviceEvent::Guide(worker, guidance) => FleetEvent::Guide(worker, guidance),
            DeviceEvent::Lost(owner) => FleetEvent::Lost(owner),
            _ => return Ok(()),
        };
        self.drive_fleet(fleet, event)
    }

    pub(super) fn disturb(&mut self, disturbance: Disturbance) -> Result<(), Violation> {
        self.note(Kind::Disturbance, 0);
        match disturbance {
            Disturbance::Pace(module, pace) => self.pace[module.idx()] = pace,
            Disturbance::When(probability) => self.when = probability,
            Disturbance::GatewayDown(id) => self.crash_gateway(id)?,
            Disturbance::GatewayUp(id) => self.restart_gateway(id)?,
            Disturbance::ControllerDown(module) => self.crash_controller(module)?,
            Disturbance::ControllerUp(module) => self.restart_controller(module)?,
            Disturbance::Down(module, ordinal) => {
                let worker = self.workers[module.idx()][ordinal];
                let id = self.places[worker.idx()].device;
                self.end_device(id);
                self.lost(id)?;
            }
            Disturbance::Up(module, ordinal) => {
                let worker = self.workers[module.idx()][ordinal];
                let id = self.places[worker.idx()].device;
                let d = &mut self.devices[id.idx()];
                d.is_down = false;
                let life = Incarnation(u64::from(d.life));
                self.greeted(id, life)?;
            }
        }
        Ok(())
    }

    /// A device ends with all that it has. Nobody is told.
    pub(super) fn end_device(&mut self, id: DeviceId) {
        let d = &mut self.devices[id.idx()];
        d.life += 1;
        d.is_down = true;
        d.policy = self.config.device_policy(id.idx(), &d.brokers);
        d.bound.clear();
        d.rerun_since = None;
        d.armed = Timestamp::MAX;
        if let Some(lost) = d.running.take() {
            let used = self.now.since(lost.started_at).as_nanos() as u64;
            self.tally.wasted(used);
        }
        self.checker.device_lost(id);
    }
}
