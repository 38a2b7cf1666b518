//! Drives the roles of this process. A message between roles is a call under the host's lock. Messages to devices and answers
//! to clients are effects, performed after the lock is released.

use std::sync::Arc;

use smallvec::SmallVec;
use spillgate_controller_policy::gateway::{Ended, Event};
use spillgate_controller_policy::module::{ControllerCommand, ControllerEvent};
use spillgate_controller_policy::planner::Computation;
use spillgate_controller_policy::variant_selector::{Asked, StreamKey};
use spillgate_pipeline::id::{DeviceId, GatewayId, Incarnation, ModuleId, RequestId, WorkerId};
use spillgate_pipeline::invariants::Violation;
use spillgate_pipeline::request::Outcome;
use spillgate_pipeline::schedule::Application;
use spillgate_pipeline::time::Timestamp;
use spillgate_process::job::Job;
use spillgate_protocol::message::{
    Address, Envelope, EnvelopeSender, Message, ToController, ToDevice, ToGateway,
};

use super::outbox::Outbox;
use super::{CHECKED_ONE_IN, Command, Control, OpenRequest, Outboxes, Outgoing, PipelineHost};
use crate::record::RequestRecord;

/// What is to be done without the lock, in this order. Mostly it is one thing or two, which need no allocation.
pub(super) type Effects = SmallVec<[Effect; 2]>;

pub(super) enum Effect {
    /// The outbox to a device of this process is to be sent.
    Send(DeviceId),
    /// The outbox to a device of another process is to be sent.
    SendTo(Arc<Outbox>),
    /// The outbox to other processes is to be sent.
    SendElsewhere,
    /// A client is told what its frames should be like.
    Ask(StreamKey, Asked),
    /// A request has ended.
    End(Box<Ended<OpenRequest>>),
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
impl EnvelopeSender<Arc<Job>> for PipelineHost {
    fn send(&self, envelope: Envelope<Arc<Job>>) {
        self.act(|control, now, effects| self.carry(control, now, envelope.into(), effects));
    }
}

impl PipelineHost {
    /// These peers greet, in this life: roles of this process, or of another one that was connected.
    pub fn met(&self, peers: &[Address], life: Incarnation) {
        self.tell_of(
            peers,
            |peer| Event::Greeted(peer, life),
            |peer| ControllerEvent::Greeted(peer, life),
        );
    }

    /// These peers are gone, for this reason.
    pub fn parted(&self, peers: &[Address], cause: &str) {
        self.tell_of(
            peers,
            |peer| Event::Lost(peer, cause),
            ControllerEvent::Lost,
        );
    }

    /// These peers are silent, or spoke again.
    pub fn doubted(&self, peers: &[Address], is_suspected: bool) {
        match is_suspected {
            true => self.tell_of(peers, Event::Suspected, ControllerEvent::Suspected),
            false => self.tell_of(peers, Event::Trusted, ControllerEvent::Trusted),
        }
    }

    /// Tells each role of this host about each peer with which it speaks.
    fn tell_of<'a>(
        &self,
        peers: &[Address],
        to_gateway: impl Fn(Address) -> Event<'a>,
        to_controller: impl Fn(Address) -> ControllerEvent,
    ) {
        let of = |me: Address| {
            peers
                .iter()
                .copied()
                .filter(move |peer| me.speaks_to(*peer))
        };
        self.act(|control, now, effects| {
            for peer in self
                .roles
                .gateway
                .into_iter()
                .flat_map(|id| of(Address::Gateway(id)))
            {
                self.drive_gateway(control, now, to_gateway(peer), effects);
            }
            for &module in &self.roles.controllers {
                for peer in of(Address::Controller(module)) {
                    self.drive_controller(control, now, module, to_controller(peer), effects);
                }
            }
        });
    }

    /// A device's policy says something to a gateway.
    pub fn device_says(&self, worker: WorkerId, gateway: GatewayId, message: ToGateway) {
        if let Some(place) = self.workers.get(worker) {
            self.send(Envelope {
                from: Address::Device(place.device),
                incarnation: self.roles.incarnation,
                to: Address::Gateway(gateway),
                message: Message::Gateway(message),
            });
        }
    }

    /// Requests found no room on their way to workers of another process.
    pub fn unsent(&self, requests: impl Iterator<Item = (WorkerId, RequestId)>) {
        self.act(|control, now, effects| {
            for (worker, request) in requests {
                self.drive_gateway(control, now, Event::Unsent(worker, request), effects);
            }
        });
    }

    /// Requests came back from a device of another process, in this life of it: it lacks values that they refer to. Those that are
    /// still at their workers are sent again. The others had not begun there, and are forgotten.
    pub fn lacking<L>(&self, envelope: Envelope<L>, life: Incarnation) {
        let from = envelope.to;
        self.act(|control, now, effects| {
            let mut forgotten = Vec::new();
            let envelope = envelope.filter_map(|worker, request, _| {
                let gateway = control.gateway.as_mut()?;
                if !gateway.is_at(worker, request.id) {
                    forgotten.push(ToGateway::Forgotten {
                        worker,
                        request: request.id,
                    });
                    return None;
                }
                Some(gateway.payload_mut(request.id)?.job.clone())
            });
            for message in forgotten {
                let event = Event::Message(from, life, message);
                self.drive_gateway(control, now, event, effects);
            }
            match &envelope.message {
                Message::Device(ToDevice::Requests(none)) if none.is_empty() => {}
                // A worker that asked hears how much it gets, even if that is nothing.
                _ => self.carry(control, now, envelope.into(), effects),
            }
        });
    }

    /// One critical section, and what follows from it.
    pub(super) fn act<R>(&self, act: impl FnOnce(&mut Control, Timestamp, &mut Effects) -> R) -> R {
        let _hold = self.clock.hold();
        let mut effects = Effects::new();
        let mut control = self.control.lock();
        // Read under the lock, so that it never goes back for the roles.
        let now = self.clock.now();
        let result = act(&mut control, now, &mut effects);
        let wakes_at = control.gateway_wakeup();
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

    /// The application of that name.
    pub(super) fn application(
        &self,
        control: &mut Control,
        now: Timestamp,
        name: &Arc<str>,
        effects: &mut Effects,
    ) -> Application {
        let Some(gateway) = &mut control.gateway else {
            return Application::default();
        };
        let mut commands = std::mem::take(&mut control.commands);
        let application = gateway.application(now, name, &mut commands);
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
        let Some(gateway) = &mut control.gateway else {
            return;
        };
        let mut commands = std::mem::take(&mut control.commands);
        gateway.on_event(now, event, &mut commands);
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
                Command::Send(envelope) => {
                    self.carry(control, now, envelope.into(), effects);
                }
                Command::Ask { stream, asked } => effects.push(Effect::Ask(stream, asked)),
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
        let Some(controller) = &mut control.controllers[module.idx()] else {
            return;
        };
        let mut commands = Vec::new();
        controller.on_event(now, event, &mut commands);
        for command in commands {
            match command {
                ControllerCommand::Send(envelope) => {
                    self.carry(control, now, envelope.into(), effects);
                }
                ControllerCommand::Compute(computation) => {
                    effects.push(Effect::Compute(module, computation));
                }
            }
        }
    }

    /// Carries an envelope to a role of this host, or on its way to a device or to another process.
    pub(super) fn carry(
        &self,
        control: &mut Control,
        now: Timestamp,
        outgoing: Outgoing,
        effects: &mut Effects,
    ) {
        let to = outgoing.envelope.to;
        if let Address::Device(device) = to {
            if let Some(outbox) = self.outboxes().device(device) {
                self.log_scaling(&outgoing.envelope.message);
                outbox.put(outgoing);
                effects.push(Effect::Send(device));
            } else if let Some(outbox) = control.others.outbox(device) {
                outbox.put(outgoing);
                effects.push(Effect::SendTo(outbox.clone()));
            }
            // One that has left hears nothing more, and the roles know that it left.
            return;
        }
        if !self.holds(to) {
            self.outboxes().elsewhere.put(outgoing);
            effects.push(Effect::SendElsewhere);
            return;
        }
        let Envelope {
            from,
            incarnation,
            message,
            ..
        } = outgoing.envelope;
        match (to, message) {
            (Address::Gateway(_), Message::Gateway(message)) => {
                let event = Event::Message(from, incarnation, message);
                self.drive_gateway(control, now, event, effects);
            }
            (Address::Controller(module), Message::Controller(message)) => {
                let event = ControllerEvent::Message(from, incarnation, message);
                self.drive_controller(control, now, module, event, effects);
            }
            (to, _) => unreachable!("a message that is not for {to:?}"),
        }
    }

    /// Whether a gateway or controller is in this process.
    fn holds(&self, role: Address) -> bool {
        match role {
            Address::Gateway(id) => self.roles.gateway == Some(id),
            Address::Controller(module) => self.roles.controllers.contains(&module),
            Address::Device(_) => false,
        }
    }

    pub(super) fn outboxes(&self) -> &Outboxes {
        let outboxes = self.outboxes.get();
        outboxes.expect("a host is connected before it serves")
    }

    /// Does it. Called without locks held.
    fn perform(&self, effects: Effects) {
        for effect in effects {
            match effect {
                Effect::Send(device) => {
                    if let Some(outbox) = self.outboxes().device(device) {
                        outbox.send();
                    }
                }
                Effect::SendTo(outbox) => outbox.send(),
                Effect::SendElsewhere => self.outboxes().elsewhere.send(),
                Effect::Ask(stream, asked) => self.asks.tell(stream, asked),
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
            incarnation: self.roles.incarnation,
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

    fn answer(&self, ended: Ended<OpenRequest>) {
        let Ended {
            request,
            outcome,
            at,
            cause,
            payload,
        } = ended;
        let OpenRequest {
            admitted_at,
            number,
            client,
            sizes,
            counted,
            trace,
            job,
            times,
            on_end,
        } = payload;
        if outcome == Outcome::Completed {
            self.counts.lock().completed(&counted, &client);
        }
        if !request.background {
            self.outcomes.ended(&outcome);
        }
        job.end();
        (self.outboxes().ended)(request.id);
        let record = Arc::new(RequestRecord {
            pipeline: self.pipeline.clone(),
            request,
            number,
            client,
            sizes,
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
