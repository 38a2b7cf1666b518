//! Gateways and controllers that crash and begin anew, empty and in another incarnation. Their peers know of it at once.

use spillgate_controller_policy::gateway::{
    Command, Event as GatewayEvent, Gateway, GatewayConfig,
};
use spillgate_controller_policy::module::{ControllerConfig, ControllerEvent, ModuleController};
use spillgate_pipeline::id::{DeviceId, GatewayId, Incarnation, ModuleId};
use spillgate_pipeline::invariants::Violation;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{Address, Envelope, Place};
use spillgate_worker_policy::device::DeviceEvent;

use super::agenda::Occurrence;
use super::{SimConfig, World};

/// The life of a process: it rises with each crash.
#[derive(Clone, Copy, Default)]
pub(super) struct Life {
    pub(super) incarnation: Incarnation,
    pub(super) is_down: bool,
}

impl Life {
    /// Whether the process lives, in that life.
    pub(super) fn is(&self, incarnation: Incarnation) -> bool {
        !self.is_down && self.incarnation == incarnation
    }

    /// It begins, in the life that follows its crash.
    pub(super) fn begins(&mut self) {
        self.is_down = false;
    }

    /// It crashes.
    pub(super) fn ends(&mut self) {
        self.incarnation.0 += 1;
        self.is_down = true;
    }
}

/// A gateway that begins.
pub(super) fn gateway(
    config: &SimConfig,
    places: &[Place],
    id: GatewayId,
    incarnation: Incarnation,
    born: Timestamp,
) -> Gateway<u64, ()> {
    Gateway::new(&GatewayConfig {
        id,
        incarnation,
        pipeline: &config.pipeline,
        planned: &config.planned,
        places,
        turn: usize::from(id.0),
        seed: config.seed ^ u64::from(id.0) << 32,
        born,
    })
}

/// A controller that begins.
pub(super) fn controller(
    config: &SimConfig,
    places: &[Place],
    module: ModuleId,
    incarnation: Incarnation,
    born: Timestamp,
) -> ModuleController {
    let scaling = config.scaling.as_ref();
    ModuleController::new(&ControllerConfig {
        module,
        incarnation,
        pipeline: &config.pipeline,
        planned: &config.planned,
        places,
        scaling: scaling.and_then(|s| s.config.of(module)),
        seed: config.seed,
        born,
    })
}

impl World {
    /// Whether an envelope still counts when it arrives: its sender and its receiver live, the sender in the life in which it
    /// sent. Policies know the lives of their peers; devices leave that to their driver.
    pub(super) fn counts_on_arrival(&self, envelope: &Envelope<()>) -> bool {
        let (is_there, _) = self.life_of(envelope.to);
        let (lives, life) = self.life_of(envelope.from);
        is_there && lives && life == envelope.incarnation
    }

    fn life_of(&self, role: Address) -> (bool, Incarnation) {
        let life = match role {
            Address::Gateway(id) => self.gateways[id.idx()].life,
            Address::Controller(module) => self.controller_lives[module.idx()],
            Address::Device(id) => {
                let device = &self.devices[id.idx()];
                let life = Incarnation(u64::from(device.life));
                return (!device.is_down, life);
            }
        };
        (!life.is_down, life.incarnation)
    }

    /// A gateway crashes. Its requests end at their clients with the connection; its workers forget them.
    pub(super) fn crash_gateway(&mut self, id: GatewayId) -> Result<(), Violation> {
        self.end_gateway(id)?;
        for device in 0..self.devices.len() {
            self.drive_device(device, DeviceEvent::Lost(id))?;
        }
        self.lose_at_controllers(Address::Gateway(id))
    }

    /// A gateway ends, and with it its requests. Nobody is told.
    pub(super) fn end_gateway(&mut self, id: GatewayId) -> Result<(), Violation> {
        let here = self.clock(Address::Gateway(id)).read(self.now);
        let mut commands = Vec::new();
        let owner = &mut self.gateways[id.idx()];
        owner
            .policy
            .on_event(here, GatewayEvent::Abort, &mut commands);
        owner.life.ends();
        owner.armed = Timestamp::MAX;
        for command in commands {
            // A crashed process tells nobody.
            if let Command::End(ended) = command {
                self.ended(&ended)?;
            }
        }
        Ok(())
    }

    /// A gateway begins anew.
    pub(super) fn restart_gateway(&mut self, id: GatewayId) -> Result<(), Violation> {
        let owner = &mut self.gateways[id.idx()];
        owner.life.is_down = false;
        let life = owner.life.incarnation;
        owner.policy = gateway(&self.config, &self.places, id, life, self.now);
        for module in self.living_controllers() {
            let controller = Address::Controller(module);
            let incarnation = self.controller_lives[module.idx()].incarnation;
            self.drive_gateway(id, GatewayEvent::Greeted(controller, incarnation))?;
            let greeted = ControllerEvent::Greeted(Address::Gateway(id), life);
            self.drive_controller(module, greeted)?;
        }
        for device in 0..self.devices.len() {
            if self.devices[device].is_down {
                continue;
            }
            let incarnation = Incarnation(u64::from(self.devices[device].life));
            let address = Address::Device(DeviceId(device as u16));
            self.drive_gateway(id, GatewayEvent::Greeted(address, incarnation))?;
            self.greet_device(device, id)?;
        }
        Ok(())
    }

    /// A controller crashes. Gateways and workers go on with what it said last.
    pub(super) fn crash_controller(&mut self, module: ModuleId) -> Result<(), Violation> {
        self.controller_lives[module.idx()].ends();
        let controller = Address::Controller(module);
        for owner in self.gateways() {
            self.drive_gateway(owner, GatewayEvent::Lost(controller, "it crashed"))?;
        }
        self.lose_at_controllers(controller)
    }

    /// A controller begins anew.
    pub(super) fn restart_controller(&mut self, module: ModuleId) -> Result<(), Violation> {
        let life = &mut self.controller_lives[module.idx()];
        life.is_down = false;
        let incarnation = life.incarnation;
        self.controllers[module.idx()] =
            controller(&self.config, &self.places, module, incarnation, self.now);
        let me = Address::Controller(module);
        for owner in self.gateways() {
            self.drive_gateway(owner, GatewayEvent::Greeted(me, incarnation))?;
            let life = self.gateways[owner.idx()].life.incarnation;
            let greeted = ControllerEvent::Greeted(Address::Gateway(owner), life);
            self.drive_controller(module, greeted)?;
        }
        for other in self.living_controllers().filter(|m| *m != module) {
            self.drive_controller(other, ControllerEvent::Greeted(me, incarnation))?;
            let life = self.controller_lives[other.idx()].incarnation;
            let greeted = ControllerEvent::Greeted(Address::Controller(other), life);
            self.drive_controller(module, greeted)?;
        }
        for device in 0..self.devices.len() {
            if !self.devices[device].is_down {
                let life = Incarnation(u64::from(self.devices[device].life));
                let address = Address::Device(DeviceId(device as u16));
                self.drive_controller(module, ControllerEvent::Greeted(address, life))?;
            }
        }
        self.arm_controller(module, incarnation);
        Ok(())
    }

    /// Puts the next wakeup of a controller on the agenda.
    pub(super) fn arm_controller(&mut self, module: ModuleId, life: Incarnation) {
        let clock = self.clock(Address::Controller(module));
        if let Some(at) = self.controllers[module.idx()].next_wakeup() {
            let wakeup = Occurrence::ControllerWakeup { module, life };
            self.agenda.at(clock.moment(at).max(self.now), wakeup);
        }
    }

    fn lose_at_controllers(&mut self, peer: Address) -> Result<(), Violation> {
        for module in self.living_controllers() {
            self.drive_controller(module, ControllerEvent::Lost(peer))?;
        }
        Ok(())
    }

    pub(super) fn living_controllers(&self) -> impl Iterator<Item = ModuleId> + use<> {
        let lives = self.controller_lives.iter().enumerate();
        let living = lives.filter(|(_, life)| !life.is_down);
        let modules: Vec<ModuleId> = living.map(|(m, _)| ModuleId(m as u16)).collect();
        modules.into_iter()
    }
}
