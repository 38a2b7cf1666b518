//! The dense ids that a process gives to the roles of all processes that it knows.

use std::sync::Arc;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::id::{DeviceId, GatewayId, RequestId, WorkerId};

use super::Member;
use crate::message::{Address, Envelope, Ids, Message, Place, UnknownId};

/// Bits of an id between processes that say which worker of its process it is.
const OF_WORKER: u32 = 16;

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

/// Numbers that are given, and given again once they are free: the lowest first.
#[derive(Clone, Debug, Default)]
struct Numbers {
    next: u32,
    free: Vec<u32>,
}

impl Numbers {
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
    /// By it others call the process in what they say of third ones.
    number: u16,
    ids: MemberIds,
    /// The names by which it calls others: the process of each of its numbers.
    calls: IndexMap<u16, Arc<str>, FxBuildHasher>,
}

/// The ids of all roles that a process knows, its own among them.
///
/// Ids of a process that is forgotten are given to others. So roles are told that it left, before they hear of the others.
#[derive(Clone, Debug)]
pub struct Directory {
    me: Arc<str>,
    entries: IndexMap<Arc<str>, Entry, FxBuildHasher>,
    numbers: Numbers,
    gateways: Numbers,
    devices: Numbers,
    workers: Numbers,
    /// By worker: its process, and its position there.
    of_worker: Vec<Option<(Arc<str>, u16)>>,
}

impl Directory {
    /// The directory of a process, whose own ids are the first ones.
    pub fn new(me: &Arc<Member>) -> Self {
        let mut directory = Directory {
            me: me.name.clone(),
            entries: IndexMap::default(),
            numbers: Numbers::default(),
            gateways: Numbers::default(),
            devices: Numbers::default(),
            workers: Numbers::default(),
            of_worker: Vec::new(),
        };
        directory.admit(me);
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
            if self.of_worker.len() <= worker.idx() {
                self.of_worker.resize(worker.idx() + 1, None);
            }
            self.of_worker[worker.idx()] = Some((member.name.clone(), position as u16));
            places.push(Place {
                worker,
                module,
                device: devices[device],
            });
        }
        Entry {
            member: member.clone(),
            number: self.numbers.take() as u16,
            ids: MemberIds {
                gateway: (member.is_gateway).then(|| GatewayId(self.gateways.take() as u16)),
                devices,
                places,
            },
            calls: IndexMap::default(),
        }
    }

    /// Forgets a process. Its ids may be given to others from now on.
    pub fn forget(&mut self, name: &str) -> Option<MemberIds> {
        let entry = self.entries.swap_remove(name)?;
        self.numbers.give_back(u32::from(entry.number));
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

    /// The number by which this process calls another one in what it says to third ones.
    pub fn number(&self, name: &str) -> Option<u16> {
        Some(self.entries.get(name)?.number)
    }

    /// A process calls others by these numbers from now on.
    pub fn hears_calls(&mut self, from: &str, calls: impl Iterator<Item = (u16, Arc<str>)>) {
        if let Some(entry) = self.entries.get_mut(from) {
            entry.calls = calls.collect();
        }
    }

    /// The name of the process that holds a role of others.
    pub fn holder(&self, role: Address) -> Option<&Arc<str>> {
        let holds = |entry: &&Entry| match role {
            Address::Gateway(id) => entry.ids.gateway == Some(id),
            Address::Controller(module) => entry.member.controllers.contains(&module),
            Address::Device(id) => entry.ids.devices.contains(&id),
        };
        let mut others = self.entries.values().filter(|e| e.member.name != self.me);
        Some(&others.find(holds)?.member.name)
    }

    /// Replaces the ids of a message to a process by those that travel.
    ///
    /// # Errors
    /// When the message speaks of what is not known here any more.
    pub fn outward<L>(&self, to: &str, envelope: &mut Envelope<L>) -> Result<(), UnknownId> {
        let [me, peer] = self.both(to)?;
        envelope.from = relative(&me.ids, envelope.from)?;
        envelope.to = relative(&peer.ids, envelope.to)?;
        envelope.message.rename(&Outward(self))
    }

    /// Replaces the ids of a message of a process by those given here.
    ///
    /// # Errors
    /// When there is no such role, worker or request.
    pub fn inward<L>(&self, from: &str, envelope: &mut Envelope<L>) -> Result<(), UnknownId> {
        let [me, peer] = self.both(from)?;
        envelope.from = absolute(&peer.ids, &peer.member, envelope.from)?;
        envelope.to = absolute(&me.ids, &me.member, envelope.to)?;
        // A gateway owns its requests, and devices have workers, whoever speaks.
        let (with_gateway, with_workers) = match envelope.message {
            Message::Device(_) => (peer, me),
            Message::Gateway(_) | Message::Controller(_) => (me, peer),
        };
        let ids = Inward {
            directory: self,
            peer,
            gateway: with_gateway.ids.gateway,
            places: &with_workers.ids.places,
        };
        envelope.message.rename(&ids)
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
fn absolute(ids: &MemberIds, member: &Member, role: Address) -> Result<Address, UnknownId> {
    let role = match role {
        Address::Gateway(GatewayId(0)) => ids.gateway.map(Address::Gateway),
        Address::Gateway(_) => None,
        Address::Controller(module) => {
            let holds = member.controllers.contains(&module);
            holds.then_some(role)
        }
        Address::Device(position) => {
            let device = ids.devices.get(position.idx());
            device.map(|device| Address::Device(*device))
        }
    };
    role.ok_or(UnknownId)
}

struct Outward<'a>(&'a Directory);

impl Outward<'_> {
    fn of(&self, worker: WorkerId) -> Option<&(Arc<str>, u16)> {
        self.0.of_worker.get(worker.idx())?.as_ref()
    }
}

impl Ids for Outward<'_> {
    fn worker(&self, worker: WorkerId) -> Option<WorkerId> {
        let (_, position) = self.of(worker)?;
        Some(WorkerId(u32::from(*position)))
    }

    fn listed(&self, worker: WorkerId) -> Option<WorkerId> {
        let (process, position) = self.of(worker)?;
        let number = self.0.number(process)?;
        Some(WorkerId(
            u32::from(number) << OF_WORKER | u32::from(*position),
        ))
    }

    fn request(&self, request: RequestId) -> Option<RequestId> {
        Some(request.with_owner(GatewayId(0)))
    }
}

struct Inward<'a> {
    directory: &'a Directory,
    peer: &'a Entry,
    /// The owner of the requests.
    gateway: Option<GatewayId>,
    /// The workers that are meant.
    places: &'a [Place],
}

impl Ids for Inward<'_> {
    fn worker(&self, worker: WorkerId) -> Option<WorkerId> {
        Some(self.places.get(worker.idx())?.worker)
    }

    fn listed(&self, worker: WorkerId) -> Option<WorkerId> {
        let process = self.peer.calls.get(&((worker.0 >> OF_WORKER) as u16))?;
        let position = worker.0 & ((1 << OF_WORKER) - 1);
        let places = &self.directory.entries.get(process)?.ids.places;
        Some(places.get(position as usize)?.worker)
    }

    fn request(&self, request: RequestId) -> Option<RequestId> {
        Some(request.with_owner(self.gateway?))
    }
}

#[cfg(test)]
mod tests;
