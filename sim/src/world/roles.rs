//! Drives gateway, controllers and devices, and carries the messages between them.
//!
//! Every envelope travels a hop, but for requests from the gateway to a device: the hop between two modules is counted
//! once, on the way back to the gateway.

use rand::Rng;
use spillgate_controller_policy::gateway::Event as GatewayEvent;
use spillgate_controller_policy::module::{ControllerCommand, ControllerEvent};
use spillgate_pipeline::id::{DeviceId, Incarnation, ModuleId};
use spillgate_pipeline::invariants::Violation;
use spillgate_protocol::message::{
    Address, Envelope, EnvelopeSender, Message, ToController, ToDevice, ToGateway,
};
use spillgate_worker_policy::device::DeviceEvent;

use super::noted::Kind;
use super::{FIRST, World, traffic};

impl World {
    /// All processes begin, and hear of each other.
    pub(super) fn greet(&mut self) -> Result<(), Violation> {
        let modules: Vec<ModuleId> = self.config.pipeline.modules.iter().map(|m| m.id).collect();
        for device in 0..self.devices.len() {
            self.greeted(DeviceId(device as u16), FIRST)?;
        }
        for &module in &modules {
            let controller = Address::Controller(module);
            for owner in self.gateways() {
                self.drive_gateway(owner, GatewayEvent::Greeted(controller, FIRST))?;
                let gateway = Address::Gateway(owner);
                self.drive_controller(module, ControllerEvent::Greeted(gateway, FIRST))?;
            }
            for &other in modules.iter().filter(|m| **m != module) {
                let other = Address::Controller(other);
                self.drive_controller(module, ControllerEvent::Greeted(other, FIRST))?;
            }
            self.arm_controller(module, FIRST);
        }
        Ok(())
    }

    /// A device greets, for the first time or in a new incarnation.
    pub(super) fn greeted(
        &mut self,
        device: DeviceId,
        incarnation: Incarnation,
    ) -> Result<(), Violation> {
        let idx = device.idx();
        let device = Address::Device(device);
        for owner in self.gateways() {
            self.drive_gateway(owner, GatewayEvent::Greeted(device, incarnation))?;
            self.greet_device(idx, owner)?;
        }
        for module in self.living_controllers() {
            let greeted = ControllerEvent::Greeted(device, incarnation);
            self.drive_controller(module, greeted)?;
        }
        Ok(())
    }

    /// A device is gone.
    pub(super) fn lost(&mut self, device: DeviceId) -> Result<(), Violation> {
        let device = Address::Device(device);
        for owner in self.gateways() {
            self.drive_gateway(owner, GatewayEvent::Lost(device, "the device died"))?;
        }
        for module in self.living_controllers() {
            self.drive_controller(module, ControllerEvent::Lost(device))?;
        }
        Ok(())
    }

    /// An envelope arrives.
    pub(super) fn deliver(&mut self, envelope: Envelope<()>) -> Result<(), Violation> {
        if !self.counts_on_arrival(&envelope) {
            return Ok(());
        }
        self.hand_over(envelope)
    }

    /// A role hears an envelope.
    pub(super) fn hand_over(&mut self, envelope: Envelope<()>) -> Result<(), Violation> {
        if self.cluster.is_some() {
            if self.is_refused(&envelope) {
                return Ok(());
            }
            self.heed(&envelope)?;
        }
        let Envelope {
            from,
            incarnation,
            to,
            message,
        } = envelope;
        match (to, message) {
            (Address::Gateway(owner), Message::Gateway(message)) => {
                self.note_to_gateway(&message);
                self.drive_gateway(owner, GatewayEvent::Message(from, incarnation, message))
            }
            (Address::Controller(module), Message::Controller(message)) => {
                if let ToController::Peer(state) = &message {
                    self.note(Kind::State, u64::from(module.0) << 32 | state.version);
                }
                let event = ControllerEvent::Message(from, incarnation, message);
                self.drive_controller(module, event)
            }
            (Address::Device(device), Message::Device(message)) => {
                self.tell_device(from, device, message)
            }
            (to, message) => unreachable!("{message:?} is not for {to:?}"),
        }
    }

    fn note_to_gateway(&mut self, message: &ToGateway) {
        match message {
            ToGateway::Started(started) => self.note(Kind::Started, u64::from(started.worker.0)),
            ToGateway::Finished { members, .. } => {
                for member in members {
                    self.note(Kind::Finished, member.request.0);
                }
            }
            ToGateway::Failed { request, .. } => self.note(Kind::Finished, request.0),
            ToGateway::Dropped { request, .. } => self.note(Kind::Dropped, request.0),
            ToGateway::Forgotten { request, .. } => self.note(Kind::Forgotten, request.0),
            ToGateway::State(state) => self.note(Kind::State, state.version),
            ToGateway::Serve(worker) => self.note(Kind::Serving, u64::from(worker.0) << 1 | 1),
            ToGateway::Retire(worker) | ToGateway::Leaves(worker) => {
                self.note(Kind::Serving, u64::from(worker.0) << 1)
            }
            ToGateway::Try(worker) => self.note(Kind::Trial, u64::from(worker.0)),
            ToGateway::Ask(ask) => self.note(Kind::Ask, u64::from(ask.worker.0) << 40 | ask.serial),
            ToGateway::Withdrawn(worker, serial) => {
                self.note(Kind::Ask, u64::from(worker.0) << 40 | serial);
            }
            ToGateway::Returned(returned) => {
                for (request, _) in &returned.requests {
                    self.note(Kind::Returned, request.0);
                }
            }
            ToGateway::Clients(portion) => {
                self.note(Kind::Portion, (portion.rate * 1e6) as u64);
            }
            ToGateway::Plan(..) | ToGateway::Holds(..) => {}
        }
    }

    /// Sends an envelope on its way.
    pub(super) fn send(&mut self, envelope: Envelope<()>) -> Result<(), Violation> {
        self.tally.sent(traffic::bytes(&envelope));
        if self.cluster.is_some() {
            return self.carry(envelope);
        }
        let is_state = matches!(
            envelope.message,
            Message::Controller(ToController::Peer(_)) | Message::Gateway(ToGateway::State(_))
        );
        let loss = self.config.exchange_loss;
        if is_state && loss > 0.0 && self.rng.random::<f64>() < loss {
            return Ok(());
        }
        let is_request = matches!(envelope.message, Message::Device(ToDevice::Requests(_)));
        if is_request && !self.config.apart {
            return self.deliver(envelope);
        }
        self.agenda.send(envelope);
        Ok(())
    }

    pub(super) fn drive_controller(
        &mut self,
        module: ModuleId,
        event: ControllerEvent,
    ) -> Result<(), Violation> {
        let mut commands = Vec::new();
        let here = self.clock(Address::Controller(module)).read(self.now);
        self.controllers[module.idx()].on_event(here, event, &mut commands);
        for command in commands {
            match command {
                ControllerCommand::Send(envelope) => self.send(envelope)?,
                ControllerCommand::Compute(computation) => {
                    let computed = ControllerEvent::Computed(Box::new(computation.run()));
                    self.drive_controller(module, computed)?;
                }
            }
        }
        Ok(())
    }

    fn tell_device(
        &mut self,
        from: Address,
        id: DeviceId,
        message: ToDevice<()>,
    ) -> Result<(), Violation> {
        let device = id.idx();
        if self.devices[device].is_down {
            return Ok(());
        }
        match message {
            ToDevice::Requests(mut requests) => {
                for arrival in &requests {
                    self.note(
                        Kind::Arrival,
                        arrival.request.id.0 << 8 | u64::from(arrival.worker.0),
                    );
                }
                self.drive_device(device, DeviceEvent::Arrivals(&mut requests))
            }
            ToDevice::Answer(answer) => {
                for offered in &answer.requests {
                    let arrival = offered.request.id.0 << 8 | u64::from(answer.worker.0);
                    self.note(Kind::Arrival, arrival);
                }
                let Address::Gateway(owner) = from else {
                    return Ok(());
                };
                self.drive_device(device, DeviceEvent::Answer(owner, answer))
            }
            ToDevice::Cancel(worker, request) => {
                self.note(Kind::Cancel, request.0);
                self.drive_device(device, DeviceEvent::Cancel(worker, request))
            }
            ToDevice::Withdraw(worker, request, reason) => {
                self.drive_device(device, DeviceEvent::Withdraw(worker, request, reason))
            }
            ToDevice::Reassigned(application) => {
                self.drive_device(device, DeviceEvent::Reassigned(application))
            }
            ToDevice::Guide(worker, guidance) => {
                self.note(Kind::Guide, guidance.downstream.as_nanos() as u64);
                self.drive_device(device, DeviceEvent::Guide(worker, guidance))
            }
            ToDevice::Load(worker) => self.drive_device(device, DeviceEvent::Load(worker)),
            ToDevice::Unload(worker) => self.drive_device(device, DeviceEvent::Unload(worker)),
        }
    }

    /// A device sends a message.
    pub(super) fn say(
        &mut self,
        device: usize,
        to: Address,
        message: Message<()>,
    ) -> Result<(), Violation> {
        let envelope = self.said_by(device, to, message);
        self.send(envelope)
    }

    /// A device says something that has travelled already.
    pub(super) fn say_now(
        &mut self,
        device: usize,
        to: Address,
        message: Message<()>,
    ) -> Result<(), Violation> {
        let envelope = self.said_by(device, to, message);
        self.tally.sent(traffic::bytes(&envelope));
        self.deliver(envelope)
    }

    fn said_by(&self, device: usize, to: Address, message: Message<()>) -> Envelope<()> {
        Envelope {
            from: Address::Device(DeviceId(device as u16)),
            incarnation: Incarnation(u64::from(self.devices[device].life)),
            to,
            message,
        }
    }
}
