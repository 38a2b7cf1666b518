//! The dense ids that a process gives to the roles of all processes that it knows.

use std::cell::Cell;
use std::sync::Arc;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::id::{DeviceId, GatewayId, RequestId, WorkerId};

use super::{MEMBERS_MAX, Member};
use crate::message::{Address, Envelope, Ids, Message, Place, UnknownId};

/// The ids of a process's roles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberIds {
    /// Its gateway.
    pub gateway: Option<GatewayId>,
    /// Its devices, in the order of [`Member::devices`].
    pub devices: Vec<DeviceId>,
    /// Its workers, in the order of [`Member::workers`].
    pub places: Vec<Place>,
}

/// Most pipelines of a process of a set: so many that the ids of the gateways of all of them differ.
pub const PIPELINES_MAX: usize = 32;

/// The ids that a process gives to its own roles of a pipeline, and the first ones for the roles of others.
///
/// Roles of several pipelines share the devices of a process. So no two pipelines have own devices, own workers or gateways of one id in
/// common, but for the gateway of the process, which is that of all its pipelines. Devices and workers of others are known to their
/// pipeline alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnIds {
    /// Those of its own roles.
    pub ids: MemberIds,
    /// The first one for gateways of others.
    pub gateways_from: u16,
    /// The first one for devices of others.
    pub devices_from: u16,
    /// The first one for workers of others.
    pub workers_from: u32,
}

impl OwnIds {
    /// Of the pipeline at that position among those of the process, below [`PIPELINES_MAX`]. The process has so many devices and workers of
    /// all its pipelines, whose ids begin with 0.
    pub fn new(ids: MemberIds, pipeline: usize, n_devices: usize, n_workers: usize) -> Self {
        OwnIds {
            ids,
            // A roster knows fewer others.
            gateways_from: (1 + pipeline * MEMBERS_MAX) as u16,
            devices_from: n_devices as u16,
            workers_from: n_workers as u32,
        }
    }

    /// Of a process that serves one pipeline alone: all ids are dense.
    pub fn alone(me: &Member) -> Self {
        let place = |(worker, (device, module))| Place {
            worker: WorkerId(worker),
            module,
            device: DeviceId(device as u16),
        };
        let ids = MemberIds {
            gateway: me.is_gateway.then_some(GatewayId(0)),
            devices: (0..me.devices.len() as u16).map(DeviceId).collect(),
            places: (0..).zip(me.workers()).map(place).collect(),
        };
        OwnIds {
            gateways_from: u16::from(me.is_gateway),
            devices_from: ids.devices.len() as u16,
            workers_from: ids.places.len() as u32,
            ids,
        }
    }
}

/// Numbers that are given, and given again once they are free: the lowest first.
#[derive(Clone, Debug)]
struct Numbers {
    next: u32,
    free: Vec<u32>,
}

impl Numbers {
    fn from(first: u32) -> Self {
        Numbers {
            next: first,
            free: Vec::new(),
        }
    }

    fn take(&mut self) -> u32 {
        if let Some(at) = (0..self.free.len()).min_by_key(|at| self.free[*at]) {
            return self.free.swap_remove(at);
        }
        self.next += 1;
        self.next - 1
    }

    fn give_back(&mut self, number: u32) {
        self.free.push(number);
    }
}

/// A process with the ids of its roles.
#[derive(Clone, Debug)]
struct Entry {
    member: Arc<Member>,
    ids: MemberIds,
}

/// The ids of all roles that a process knows, its own among them.
///
/// Ids of a process that is forgotten are given to others. So roles are told that it left, before they hear of the others.
#[derive(Clone, Debug)]
pub struct Directory {
    me: Arc<str>,
    entries: IndexMap<Arc<str>, Entry, FxBuildHasher>,
    gateways: Numbers,
    devices: Numbers,
    workers: Numbers,
    /// By worker: its process, and its position there.
    of_worker: Vec<Option<(Arc<str>, u16)>>,
}

impl Directory {
    /// The directory of a process that has these ids: of each of its devices and workers one, in the order in which it greets with them.
    pub fn new(me: &Arc<Member>, own: OwnIds) -> Self {
        let OwnIds {
            ids,
            gateways_from,
            devices_from,
            workers_from,
        } = own;
        let mut directory = Directory {
            me: me.name.clone(),
            entries: IndexMap::default(),
            gateways: Numbers::from(u32::from(gateways_from)),
            devices: Numbers::from(u32::from(devices_from)),
            workers: Numbers::from(workers_from),
            of_worker: Vec::new(),
        };
        for (position, place) in ids.places.iter().enumerate() {
            directory.has_worker(place.worker, &me.name, position);
        }
        let member = me.clone();
        (directory.entries).insert(me.name.clone(), Entry { member, ids });
        directory
    }

    /// Gives ids to the roles of a process. One that has the same roles as before keeps its ids; of one that has others, the former
    /// ids are to be forgotten first.
    pub fn admit(&mut self, member: &Arc<Member>) -> &MemberIds {
        if !self.entries.contains_key(&member.name) {
            let entry = self.numbered(member);
            self.entries.insert(member.name.clone(), entry);
        }
        let entry = &mut self.entries[&member.name];
        debug_assert!(entry.member.has_roles_of(member), "forget it first");
        entry.member = member.clone();
        &entry.ids
    }

    fn numbered(&mut self, member: &Arc<Member>) -> Entry {
        let devices = member.devices.iter();
        let devices: Vec<DeviceId> = devices
            .map(|_| DeviceId(self.devices.take() as u16))
            .collect();
        let mut places = Vec::new();
        for (position, (device, module)) in member.workers().enumerate() {
            let worker = WorkerId(self.workers.take());
            self.has_worker(worker, &member.name, position);
            places.push(Place {
                worker,
                module,
                device: devices[device],
            });
        }
        Entry {
            member: member.clone(),
            ids: MemberIds {
                gateway: (member.is_gateway).then(|| GatewayId(self.gateways.take() as u16)),
                devices,
                places,
            },
        }
    }

    /// A process has a worker at that position.
    fn has_worker(&mut self, worker: WorkerId, name: &Arc<str>, position: usize) {
        if self.of_worker.len() <= worker.idx() {
            self.of_worker.resize(worker.idx() + 1, None);
        }
        self.of_worker[worker.idx()] = Some((name.clone(), position as u16));
    }

    /// Forgets a process. Its ids may be given to others from now on.
    pub fn forget(&mut self, name: &str) -> Option<MemberIds> {
        let entry = self.entries.swap_remove(name)?;
        if let Some(gateway) = entry.ids.gateway {
            self.gateways.give_back(u32::from(gateway.0));
        }
        for device in &entry.ids.devices {
            self.devices.give_back(u32::from(device.0));
        }
        for place in &entry.ids.places {
            self.workers.give_back(place.worker.0);
            self.of_worker[place.worker.idx()] = None;
        }
        Some(entry.ids)
    }

    /// The ids of a process.
    pub fn ids(&self, name: &str) -> Option<&MemberIds> {
        Some(&self.entries.get(name)?.ids)
    }

    /// Replaces the ids of a message to a process by those that travel. Returns the process of the worker of which the message speaks,
    /// where a controller speaks of one.
    ///
    /// # Errors
    /// When the message speaks of what is not known here any more.
    pub fn outward<L>(
        &self,
        to: &str,
        envelope: &mut Envelope<L>,
    ) -> Result<Option<Arc<str>>, UnknownId> {
        let [me, peer] = self.both(to)?;
        envelope.from = relative(&me.ids, envelope.from)?;
        envelope.to = relative(&peer.ids, envelope.to)?;
        let ids = Outward {
            directory: self,
            listed: Cell::default(),
        };
        envelope.message.rename(&ids)?;
        Ok(ids.listed.into_inner())
    }

    /// Replaces the ids of a message of a process by those given here. `listed` is the process of the worker of which it speaks.
    ///
    /// # Errors
    /// When there is no such role, worker or request.
    pub fn inward<L>(
        &self,
        from: &str,
        listed: Option<&str>,
        envelope: &mut Envelope<L>,
    ) -> Result<(), UnknownId> {
        let [me, peer] = self.both(from)?;
        envelope.from = absolute(peer, envelope.from)?;
        envelope.to = absolute(me, envelope.to)?;
        // A gateway owns its requests, and devices have workers, whoever speaks.
        let (with_gateway, with_workers) = match envelope.message {
            Message::Device(_) => (peer, me),
            Message::Gateway(_) | Message::Controller(_) => (me, peer),
        };
        let ids = Inward {
            gateway: with_gateway.ids.gateway,
            places: &with_workers.ids.places,
            listed: listed.and_then(|name| self.ids(name)),
        };
        envelope.message.rename(&ids)
    }

    /// Replaces the ids of a message of a process, which is given back to it, by those that travel.
    ///
    /// # Errors
    /// When the message speaks of what is not known here any more.
    pub fn outward_again<L>(&self, to: &str, envelope: &mut Envelope<L>) -> Result<(), UnknownId> {
        let [me, peer] = self.both(to)?;
        envelope.from = relative(&peer.ids, envelope.from)?;
        envelope.to = relative(&me.ids, envelope.to)?;
        let ids = Outward {
            directory: self,
            listed: Cell::default(),
        };
        envelope.message.rename(&ids)
    }

    /// Replaces the ids of a message of this process, which a process gives back, by those given here.
    ///
    /// # Errors
    /// When there is no such role, worker or request.
    pub fn inward_again<L>(&self, from: &str, envelope: &mut Envelope<L>) -> Result<(), UnknownId> {
        let [me, peer] = self.both(from)?;
        envelope.from = absolute(me, envelope.from)?;
        envelope.to = absolute(peer, envelope.to)?;
        let ids = Inward {
            gateway: me.ids.gateway,
            places: &peer.ids.places,
            listed: None,
        };
        envelope.message.rename(&ids)
    }

    /// A worker of this process, as it is named in what travels.
    pub fn worker_outward(&self, worker: WorkerId) -> Option<WorkerId> {
        let (_, position) = self.of_worker.get(worker.idx())?.as_ref()?;
        Some(WorkerId(u32::from(*position)))
    }

    /// The worker that a process names so.
    pub fn worker_inward(&self, from: &str, worker: WorkerId) -> Option<WorkerId> {
        Some(self.ids(from)?.places.get(worker.idx())?.worker)
    }

    /// The roles of a process.
    pub fn roles(&self, name: &str) -> Vec<Address> {
        let Some(entry) = self.entries.get(name) else {
            return Vec::new();
        };
        let roles = entry.member.roles();
        roles
            .filter_map(|role| absolute(entry, role).ok())
            .collect()
    }

    fn both(&self, peer: &str) -> Result<[&Entry; 2], UnknownId> {
        let me = &self.entries[&self.me];
        let peer = self.entries.get(peer).ok_or(UnknownId)?;
        Ok([me, peer])
    }
}

/// A role by its position in its process.
fn relative(ids: &MemberIds, role: Address) -> Result<Address, UnknownId> {
    match role {
        Address::Gateway(id) if ids.gateway == Some(id) => Ok(Address::Gateway(GatewayId(0))),
        Address::Controller(_) => Ok(role),
        Address::Device(id) => {
            let position = ids.devices.iter().position(|of| *of == id);
            let position = position.ok_or(UnknownId)?;
            Ok(Address::Device(DeviceId(position as u16)))
        }
        Address::Gateway(_) => Err(UnknownId),
    }
}

/// The role at that position of its process.
fn absolute(entry: &Entry, role: Address) -> Result<Address, UnknownId> {
    let role = match role {
        Address::Gateway(GatewayId(0)) => entry.ids.gateway.map(Address::Gateway),
        Address::Gateway(_) => None,
        Address::Controller(module) => {
            let holds = entry.member.controllers.contains(&module);
            holds.then_some(role)
        }
        Address::Device(position) => {
            let device = entry.ids.devices.get(position.idx());
            device.map(|device| Address::Device(*device))
        }
    };
    role.ok_or(UnknownId)
}

struct Outward<'a> {
    directory: &'a Directory,
    /// The process of the worker of which a controller speaks.
    listed: Cell<Option<Arc<str>>>,
}

impl Ids for Outward<'_> {
    fn worker(&self, worker: WorkerId) -> Option<WorkerId> {
        self.directory.worker_outward(worker)
    }

    fn listed(&self, worker: WorkerId) -> Option<WorkerId> {
        let (process, _) = self.directory.of_worker.get(worker.idx())?.as_ref()?;
        self.listed.set(Some(process.clone()));
        self.worker(worker)
    }

    fn request(&self, request: RequestId) -> Option<RequestId> {
        Some(request.with_owner(GatewayId(0)))
    }
}

struct Inward<'a> {
    /// The owner of the requests.
    gateway: Option<GatewayId>,
    /// The workers that are meant.
    places: &'a [Place],
    /// Of the process of which a controller speaks.
    listed: Option<&'a MemberIds>,
}

impl Ids for Inward<'_> {
    fn worker(&self, worker: WorkerId) -> Option<WorkerId> {
        Some(self.places.get(worker.idx())?.worker)
    }

    fn listed(&self, worker: WorkerId) -> Option<WorkerId> {
        Some(self.listed?.places.get(worker.idx())?.worker)
    }

    fn request(&self, request: RequestId) -> Option<RequestId> {
        Some(request.with_owner(self.gateway?))
    }
}

#[cfg(test)]
mod tests;
