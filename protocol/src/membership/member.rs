//! What a process says that it is.

use std::sync::Arc;

use spillgate_pipeline::id::{Incarnation, ModuleId};

/// A device of a process, with its workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberDevice {
    /// Its name on its machine: `cuda:0`.
    pub name: Arc<str>,
    /// The module of each of its workers.
    pub workers: Vec<ModuleId>,
}

/// A process, as it greets and as controllers list it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name, which no other process has.
    pub name: Arc<str>,
    /// Its life.
    pub incarnation: Incarnation,
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
        devices.flat_map(|(device, of)| of.workers.iter().map(move |module| (device, *module)))
    }

    /// Whether this process dials the other one, of two that have something to say to each other. Gateways dial workers, and both
    /// dial controllers. One without an address dials all. Of two alike the one with the lower name dials.
    pub fn dials(&self, other: &Member) -> bool {
        let rank = |member: &Member| match member {
            Member { address: None, .. } => 0,
            member if !member.controllers.is_empty() => 4,
            // Lists name processes with workers alone.
            member if member.is_gateway && member.devices.is_empty() => 1,
            member if member.is_gateway => 2,
            _ => 3,
        };
        (rank(self), &self.name) < (rank(other), &other.name)
    }

    /// Whether it has the same roles as another life of that process, on devices of the same names.
    pub fn has_roles_of(&self, other: &Member) -> bool {
        (self.is_gateway, &self.controllers, &self.devices)
            == (other.is_gateway, &other.controllers, &other.devices)
    }
}
