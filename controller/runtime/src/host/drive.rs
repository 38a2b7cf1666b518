//! Drives the roles of this process: what one says to another is a call under the host's lock, what concerns devices and
//! clients is an effect, done once the lock is released.

use std::sync::Arc;

use spillgate_backend::job::Job;
use spillgate_controller_policy::gateway::{Ended, Event, Member};
use spillgate_controller_policy::module::{Command as ControllerCommand, Event as ControllerEvent};
use spillgate_controller_policy::planner::Computation;
use spillgate_pipeline::id::{DeviceId, ModuleId, RequestId};
use spillgate_pipeline::message::ToDevice;
use spillgate_pipeline::time::Timestamp;

use super::{Command, Control, Open, PipelineHost};
use crate::record::RequestRecord;

/// What is to be done without the lock, in this order.
pub(super) type Effects = Vec<Effect>;

pub(super) enum Effect {
    /// A message to a device.
    Tell(DeviceId, ToDevice<Arc<Job>>),
    /// A request has ended.
    End(Box<Ended<Box<Open>>>),
    /// Thousands of draws. It comes from wakeups only, so no request waits for it.
    Compute(ModuleId, Box<Computation>),
}

impl PipelineHost {
    /// One critical section, and what follows from it.
    pub(super) fn act<R>(&self, act: impl FnOnce(&mut Control, Timestamp, &mut Effects) -> R) -> R {
        let now = (self.now)();
        let mut effects = Effects::new();
        let result = act(&mut self.control.lock(), now, &mut effects);
        self.perform(effects);
        result
    }

    /// Tells the gateway of one event.
    pub(super) fn tell(&self, event: Event<'_>) {
        self.act(|control, now, effects| self.drive_gateway(control, now, event, effects));
    }

    /// The source hands on a request that needs no decoding.
    pub(super) fn source_done(
        &self,
        control: &mut Control,
        now: Timestamp,
        request: RequestId,
        effects: &mut Effects,
    ) {
        let member = Member {
            request,
            result: Ok(()),
        };
        let done = Event::Done {
            module: ModuleId::SOURCE,
            members: &[member],
            // A frame of bytes is looked at by no `when:`.
            holds: &mut |_, _| true,
        };
        self.drive_gateway(control, now, done, effects);
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

    pub(super) fn follow_gateway(
        &self,
        control: &mut Control,
        now: Timestamp,
        commands: &mut Vec<Command>,
        effects: &mut Effects,
    ) {
        for command in commands.drain(..) {
            match command {
                Command::ToDevice(device, message) => effects.push(Effect::Tell(device, message)),
                Command::ToController(module, message) => {
                    let message = ControllerEvent::Message(message);
                    self.drive_controller(control, now, module, message, effects);
                }
                Command::Branches(branches) => {
                    self.drive_gateway(control, now, Event::Branches(branches), effects);
                }
                Command::End(ended) => effects.push(Effect::End(ended)),
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
        self.follow_controller(control, now, module, commands, effects);
    }

    pub(super) fn follow_controller(
        &self,
        control: &mut Control,
        now: Timestamp,
        from: ModuleId,
        commands: Vec<ControllerCommand<Arc<Job>>>,
        effects: &mut Effects,
    ) {
        for command in commands {
            match command {
                ControllerCommand::ToGateway(message) => {
                    self.drive_gateway(control, now, Event::Controller(message), effects);
                }
                ControllerCommand::ToController(to, message) => {
                    let message = ControllerEvent::Message(message);
                    self.drive_controller(control, now, to, message, effects);
                }
                ControllerCommand::ToDevice(device, message) => {
                    effects.push(Effect::Tell(device, message));
                }
                ControllerCommand::Compute(computation) => {
                    effects.push(Effect::Compute(from, computation));
                }
            }
        }
    }

    /// Does it. Called without locks held.
    fn perform(&self, effects: Effects) {
        for effect in effects {
            match effect {
                Effect::Tell(device, message) => {
                    let links = self.links.get();
                    let links = links.expect("a host is connected before it serves");
                    links[device.idx()].send(message);
                }
                Effect::End(ended) => self.answer(*ended),
                Effect::Compute(module, computation) => {
                    let computed = ControllerEvent::Computed(Box::new(computation.run()));
                    self.act(|control, now, effects| {
                        self.drive_controller(control, now, module, computed, effects);
                    });
                }
            }
        }
    }

    fn answer(&self, ended: Ended<Box<Open>>) {
        let Ended {
            request,
            outcome,
            at,
            cause,
            payload,
        } = ended;
        let Open {
            admitted_at,
            number,
            client,
            trace,
            job,
            times,
            on_end,
        } = *payload;
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
