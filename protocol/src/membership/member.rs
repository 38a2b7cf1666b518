//! What a process says that it is.

use std::sync::Arc;

use spillgate_pipeline::id::{DeviceId, GatewayId, Incarnation, ModuleId};

use crate::message::Address;

/// A worker of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberWorker {
    /// Its module.
    pub module: ModuleId,
    /// A hash of the execution times that it is planned with: workers of one module on one kind of device should have equal ones.
    pub profile: u64,
}

impl From<ModuleId> for MemberWorker {
    /// One that was planned with nothing.
    fn from(module: ModuleId) -> Self {
        MemberWorker { module, profile: 0 }
    }
}

/// A device of a process, with its workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberDevice {
    /// Its name on its machine: `cuda:0`.
    pub name: Arc<str>,
    /// Its workers.
    pub workers: Vec<MemberWorker>,
}

/// A process, as it greets and as controllers list it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name, which no other process has.
    pub name: Arc<str>,
    /// Its life.
    pub incarnation: Incarnation,
    /// The version of its program.
    pub version: Arc<str>,
    /// Where others reach it: host and port. `None`: it dials all that it talks with.
    pub address: Option<Arc<str>>,
    /// It is a gateway.
    pub is_gateway: bool,
    /// The modules whose controllers it holds.
    pub controllers: Vec<ModuleId>,
    /// Its devices.
    pub devices: Vec<MemberDevice>,
}

impl Member {
    /// Its workers in order: the position of the device of each, and its module.
    pub fn workers(&self) -> impl Iterator<Item = (usize, ModuleId)> {
        let devices = self.devices.iter().enumerate();
        devices.flat_map(|(device, of)| of.workers.iter().map(move |w| (device, w.module)))
    }

    /// Its roles, each by its position in the process.
    pub fn roles(&self) -> impl Iterator<Item = Address> {
        let controllers = self.controllers.iter().copied().map(Address::Controller);
        let devices = (0..self.devices.len() as u16).map(|id| Address::Device(DeviceId(id)));
        let gateway = (self.is_gateway).then_some(Address::Gateway(GatewayId(0)));
        controllers.chain(devices).chain(gateway)
    }

    /// How many roles and workers it has.
    pub fn n_roles(&self) -> usize {
        self.roles().count() + self.workers().count()
    }

    /// Whether it is a worker process. One that has nothing of a pipeline is one without workers: another revision has none of its
    /// modules, and it hears what is published next.
    pub fn is_worker(&self) -> bool {
        !self.devices.is_empty() || (!self.is_gateway && self.controllers.is_empty())
    }

    /// Whether the two have anything to say to each other. Gateways say nothing to gateways, and workers nothing to workers.
    pub fn speaks_to(&self, other: &Member) -> bool {
        let [mine, theirs] = [self, other].map(Member::kinds);
        let speak = |i: usize, j: usize| i != j || i == 1;
        (0..3).any(|i| mine[i] && (0..3).any(|j| theirs[j] && speak(i, j)))
    }

    /// Whether it is a gateway, has controllers, and is a worker process.
    fn kinds(&self) -> [bool; 3] {
        let controls = !self.controllers.is_empty();
        [self.is_gateway, controls, self.is_worker()]
    }

    /// Whether this process dials the other one, of two that have something to say to each other. Gateways dial workers, and both
    /// dial controllers. One without an address dials all. Of two alike the one with the lower name dials.
    pub fn dials(&self, other: &Member) -> bool {
        let rank = |member: &Member| match member {
            Member { address: None, .. } => 0,
            member if !member.controllers.is_empty() => 4,
            // Lists name processes with workers alone.
            member if member.is_gateway && !member.is_worker() => 1,
            member if member.is_gateway => 2,
            _ => 3,
        };
        (rank(self), &self.name) < (rank(other), &other.name)
    }

    /// Whether it has the same roles as another life of that process, on devices of the same names.
    pub fn has_roles_of(&self, other: &Member) -> bool {
        let devices = |member: &Member| member.devices.iter().map(|d| d.name.clone()).collect();
        let [mine, theirs]: [Vec<Arc<str>>; 2] = [self, other].map(devices);
        (self.is_gateway, &self.controllers, mine) == (other.is_gateway, &other.controllers, theirs)
            && self.workers().eq(other.workers())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, is_gateway: bool, controls: bool, works: bool) -> Member {
        let device = MemberDevice {
            name: "cpu:0".into(),
            workers: vec![ModuleId(1).into()],
        };
        Member {
            name: name.into(),
            incarnation: Incarnation(1),
            version: "0.1.0".into(),
            address: Some(format!("{name}:7720").into()),
            is_gateway,
            controllers: controls.then_some(ModuleId(1)).into_iter().collect(),
            devices: works.then_some(device).into_iter().collect(),
        }
    }

    #[test]
    fn of_two_that_talk_one_dials() {
        let mut alone = member("gateway-0", true, false, false);
        alone.address = None;
        let all = [
            alone,
            member("gateway-1", true, false, false),
            member("gateway-2", true, false, true),
            member("worker", false, false, true),
            member("control-0", false, true, false),
            member("control-1", false, true, true),
            member("nothing", false, false, false),
        ];
        let dialled = |of: &Member| {
            let others = all.iter().filter(|other| other.name != of.name);
            let dialled = others.filter(|other| of.speaks_to(other) && of.dials(other));
            dialled
                .map(|other| &*other.name)
                .collect::<Vec<_>>()
                .join(" ")
        };
        let said = all.iter().map(|of| format!("{}: {}", of.name, dialled(of)));
        let expected = "\
            gateway-0: gateway-2 worker control-0 control-1 nothing\n\
            gateway-1: gateway-2 worker control-0 control-1 nothing\n\
            gateway-2: worker control-0 control-1 nothing\n\
            worker: control-0 control-1\n\
            control-0: control-1\n\
            control-1: \n\
            nothing: control-0 control-1";
        assert_eq!(said.collect::<Vec<_>>().join("\n"), expected);
    }
}
