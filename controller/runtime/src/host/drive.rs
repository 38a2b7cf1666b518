//! Drives the roles of this process. A message between roles is a call under the host's lock. Messages to devices and answers
//! to clients are effects, performed after the lock is released.

use std::sync::Arc;

use smallvec::SmallVec;
use spillgate_backend::job::Job;
use spillgate_controller_policy::gateway::{Ended, Event};
use spillgate_controller_policy::module::{ControllerCommand, ControllerEvent};
use spillgate_controller_policy::planner::Computation;
use spillgate_pipeline::id::{DeviceId, ModuleId, WorkerId};
use spillgate_pipeline::invariants::Violation;
use spillgate_pipeline::message::{
    Address, Envelope, Incarnation, Link, Message, ToController, ToDevice, ToGateway,
};
use spillgate_pipeline::request::Outcome;
use spillgate_pipeline::schedule::Application;
use spillgate_pipeline::time::Timestamp;

use super::outbox::Outbox;
use super::{CHECKED_ONE_IN, Command, Control, GATEWAY, Kept, PipelineHost};
use crate::record::RequestRecord;

/// What is to be done without the lock, in this order. Mostly it is one thing or two, which need no allocation.
pub(super) type Effects = SmallVec<[Effect; 2]>;

pub(super) enum Effect {
    /// The outbox of a device is to be sent.
    Send(DeviceId),
    /// A request has ended.
    End(Box<Ended<Kept>>),
    /// Thousands of draws. It comes from wakeups only, so no request waits for it.
    Compute(ModuleId, Box<Computation>),
    /// What must hold did not.
    Breach(Box<Violation>),
}

/// Keeps a breach for those who look after the server: it goes on.
pub(super) fn keep(held: Result<(), Violation>, effects: &mut Effects) {
    if let Err(violation) = held {
        effects.push(Effect::Breach(Box::new(violation)));
    }
}

/// The local link to the roles of this process: a call under the host's lock.
impl Link<Arc<Job>> for PipelineHost {
    fn send(&self, envelope: Envelope<Arc<Job>>) {
        self.act(|control, now, effects| self.carry(control, now, envelope, effects));
    }
}

impl PipelineHost {
    /// A device died, for this reason.
    pub fn lost(&self, device: DeviceId, cause: &str) {
        let peer = Address::Device(device);
        self.act(|control, now, effects| {
            self.drive_gateway(control, now, Event::Lost(peer, cause), effects);
            for module in self.pipeline.modules.iter().map(|m| m.id) {
                let lost = ControllerEvent::Lost(peer);
                self.drive_controller(control, now, module, lost, effects);
            }
        });
    }

    /// A device's policy says something to the gateway.
    pub fn device_says(&self, worker: WorkerId, message: ToGateway) {
        if let Some(place) = self.workers.get(worker) {
            self.send(Envelope {
                from: Address::Device(place.device),
                incarnation: Incarnation::default(),
                to: Address::Gateway(GATEWAY),
                message: Message::Gateway(message),
            });
        }
    }

    /// One critical section, and what follows from it.
    pub(super) fn act<R>(&self, act: impl FnOnce(&mut Control, Timestamp, &mut Effects) -> R) -> R {
        let mut effects = Effects::new();
        let mut control = self.control.lock();
        // Read under the lock, so that it never goes back for the roles.
        let now = (self.now)();
        let result = act(&mut control, now, &mut effects);
        let wakes_at = control.gateway.next_wakeup();
        drop(control);
        if let (Some(at), Some(alarm)) = (wakes_at, self.alarm.get()) {
            alarm(at);
        }
        self.perform(effects);
        result
    }

    /// Tells the gateway of one event.
    pub(super) fn tell(&self, event: Event<'_>) {
        self.act(|control, now, effects| self.drive_gateway(control, now, event, effects));
    }

    /// All roles begin, and hear of each other.
    pub(super) fn greet(&self, control: &mut Control, now: Timestamp, effects: &mut Effects) {
        let life = Incarnation::default();
        let mut devices: Vec<DeviceId> = self.workers.iter().map(|w| w.device).collect();
        devices.sort_unstable();
        devices.dedup();
        let modules: Vec<ModuleId> = self.pipeline.modules.iter().map(|m| m.id).collect();
        let controllers = modules.iter().map(|m| Address::Controller(*m));
        let devices = devices.into_iter().map(Address::Device);
        let peers: Vec<Address> = controllers.chain(devices).collect();
        for peer in peers.iter().copied() {
            self.drive_gateway(control, now, Event::Greeted(peer, life), effects);
        }
        for module in modules {
            let gateway = Address::Gateway(GATEWAY);
            let own = Address::Controller(module);
            for peer in peers.iter().copied().chain([gateway]).filter(|p| *p != own) {
                let greeted = ControllerEvent::Greeted(peer, life);
                self.drive_controller(control, now, module, greeted, effects);
            }
        }
    }

    /// The application of that name.
    pub(super) fn application(
        &self,
        control: &mut Control,
        now: Timestamp,
        name: &Arc<str>,
        effects: &mut Effects,
    ) -> Application {
        let mut commands = std::mem::take(&mut control.commands);
        let application = control.gateway.application(now, name, &mut commands);
        self.follow_gateway(control, now, &mut commands, effects);
        control.commands = commands;
        application
    }

    pub(super) fn drive_gateway(
        &self,
        control: &mut Control,
        now: Timestamp,
        event: Event<'_>,
        effects: &mut Effects,
    ) {
        let mut commands = std::mem::take(&mut control.commands);
        control.gateway.on_event(now, event, &mut commands);
        self.follow_gateway(control, now, &mut commands, effects);
        control.commands = commands;
    }

    fn follow_gateway(
        &self,
        control: &mut Control,
        now: Timestamp,
        commands: &mut Vec<Command>,
        effects: &mut Effects,
    ) {
        for command in commands.drain(..) {
            match command {
                Command::Send(envelope) => self.carry(control, now, envelope, effects),
                Command::End(ended) => {
                    let id = ended.request.id;
                    if id.0.is_multiple_of(CHECKED_ONE_IN) {
                        keep(control.checker.ended(id, ended.outcome), effects);
                    }
                    effects.push(Effect::End(ended));
                }
            }
        }
    }

    pub(super) fn drive_controller(
        &self,
        control: &mut Control,
        now: Timestamp,
        module: ModuleId,
        event: ControllerEvent,
        effects: &mut Effects,
    ) {
        let mut commands = Vec::new();
        control.controllers[module.idx()].on_event(now, event, &mut commands);
        for command in commands {
            match command {
                ControllerCommand::Send(envelope) => self.carry(control, now, envelope, effects),
                ControllerCommand::Compute(computation) => {
                    effects.push(Effect::Compute(module, computation));
                }
            }
        }
    }

    /// Carries an envelope to a role of this process, or on its way to a device.
    pub(super) fn carry(
        &self,
        control: &mut Control,
        now: Timestamp,
        envelope: Envelope<Arc<Job>>,
        effects: &mut Effects,
    ) {
        let (from, life) = (envelope.from, envelope.incarnation);
        if let Address::Device(device) = envelope.to {
            self.log_scaling(&envelope.message);
            self.outbox(device).put(envelope);
            effects.push(Effect::Send(device));
            return;
        }
        match (envelope.to, envelope.message) {
            (Address::Gateway(_), Message::Gateway(message)) => {
                let event = Event::Message(from, life, message);
                self.drive_gateway(control, now, event, effects);
            }
            (Address::Controller(module), Message::Controller(message)) => {
                let event = ControllerEvent::Message(from, life, message);
                self.drive_controller(control, now, module, event, effects);
            }
            (to, _) => unreachable!("a message that is not for {to:?}"),
        }
    }

    fn outbox(&self, device: DeviceId) -> &Outbox {
        let outboxes = self.outboxes.get();
        &outboxes.expect("a host is connected before it serves")[device.idx()]
    }

    /// Does it. Called without locks held.
    fn perform(&self, effects: Effects) {
        for effect in effects {
            match effect {
                Effect::Send(device) => self.outbox(device).send(),
                Effect::End(ended) => self.answer(*ended),
                Effect::Breach(violation) => {
                    tracing::error!(pipeline = self.pipeline.name, %violation, "this is a bug");
                    self.observer.breached(&self.pipeline, violation.invariant);
                }
                Effect::Compute(module, computation) => {
                    let computed = ControllerEvent::Computed(Box::new(computation.run()));
                    self.act(|control, now, effects| {
                        self.drive_controller(control, now, module, computed, effects);
                    });
                }
            }
        }
    }

    /// A worker that was asked for is ready, or cannot be.
    pub fn worker_loaded(&self, worker: WorkerId, result: Result<(), String>) {
        let Some(place) = self.workers.get(worker) else {
            return;
        };
        let pipeline = &self.pipeline.name;
        let module = &self.pipeline.modules[place.module.idx()].name;
        match &result {
            Ok(()) => tracing::info!(pipeline, module, %worker, "worker started"),
            Err(error) => tracing::error!(pipeline, module, %worker, error, "worker cannot start"),
        }
        let loaded = ToController::Loaded(worker, result.is_ok());
        self.send(Envelope {
            from: Address::Device(place.device),
            incarnation: Incarnation::default(),
            to: Address::Controller(place.module),
            message: Message::Controller(loaded),
        });
    }

    fn log_scaling(&self, message: &Message<Arc<Job>>) {
        if let Message::Device(ToDevice::Unload(worker)) = message
            && let Some(place) = self.workers.get(*worker)
        {
            let pipeline = &self.pipeline.name;
            let module = &self.pipeline.modules[place.module.idx()].name;
            tracing::info!(pipeline, module, %worker, "worker retired");
        }
    }

    fn answer(&self, ended: Ended<Kept>) {
        let Ended {
            request,
            outcome,
            at,
            cause,
            payload,
        } = ended;
        let Kept {
            admitted_at,
            number,
            client,
            counted,
            trace,
            job,
            times,
            on_end,
        } = payload;
        if outcome == Outcome::Completed {
            self.counts.lock().completed(&counted);
        }
        job.end();
        let record = Arc::new(RequestRecord {
            pipeline: self.pipeline.clone(),
            request,
            number,
            client,
            admitted_at,
            ended_at: at,
            outcome,
            error: cause,
            times,
            trace,
            job,
        });
        self.observer.request_ended(&record);
        on_end(record);
    }
}
