//! Nodes that register, are listed, leave and join: each has a [`Roster`], as processes have.
//!
//! Ids are the world's, so a node that comes back by another name has the ids that it had. Others hear that the former one left
//! before they hear of it, as they do when ids are given again.

use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_controller_policy::dispatcher::WorkerHealth;
use spillgate_controller_policy::gateway::Event as GatewayEvent;
use spillgate_controller_policy::module::ControllerEvent;
use spillgate_pipeline::id::Incarnation;
use spillgate_pipeline::invariants::Violation;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::membership::{
    Command, Event, FORGET_AFTER, Listed, Member, MemberDevice, MemberList, Roster,
};
use spillgate_protocol::message::{Address, Place};
use spillgate_protocol::session::rights::{Kind, Rights, SET_DEFAULT};
use spillgate_protocol::session::{Connection, Event as SessionEvent, Greeting};
use spillgate_worker_policy::device::DeviceEvent;

use super::faults::Change;
use super::wire::{Load, Registration};
use super::{Cluster, Due};
use crate::world::World;
use crate::world::agenda::Occurrence;

/// A node that leaves is done when it had nothing to do for so long: others have heard of it by then, and what they sent before has
/// come.
const LEAVE_SETTLES: Duration = Duration::from_millis(100);
/// How often it is looked at.
const LEAVE_LOOK: Duration = Duration::from_millis(10);
/// Others know each live node so long after the last fault.
const KNOWN_AFTER: Duration = FORGET_AFTER;

/// As what a node registers.
pub(super) struct Registered {
    /// The name in its file.
    name: String,
    /// The node whose name it took.
    impersonates: Option<usize>,
    /// How often it came back by another name.
    renamed: u32,
    pub(super) member: Arc<Member>,
    /// Its workers.
    pub(super) places: Vec<Place>,
    /// Whom it knows. `None` while it is down, and where processes know each other from the start.
    roster: Option<Roster>,
    /// Earliest wakeup in the agenda; later ones need none.
    armed: Timestamp,
    /// By node: the name by which its roles know it.
    known: IndexMap<usize, Arc<str>, FxBuildHasher>,
    /// It ends what it has, and then goes.
    pub(super) is_leaving: bool,
}

impl Registered {
    pub(super) fn new(name: &str, roles: &[Address], places: &[Place]) -> Self {
        let on = |role: &Address| -> Vec<Place> {
            let on_it = |p: &&Place| *role == Address::Device(p.device);
            places.iter().filter(on_it).copied().collect()
        };
        let device = |role: &Address| match role {
            Address::Device(id) => Some(MemberDevice {
                name: format!("device-{}", id.0).into(),
                workers: on(role).iter().map(|p| p.module.into()).collect(),
            }),
            _ => None,
        };
        let controller = |role: &Address| match role {
            Address::Controller(module) => Some(*module),
            _ => None,
        };
        let member = Member {
            name: name.into(),
            incarnation: Incarnation(0),
            version: "simulated".into(),
            address: Some(format!("{name}:7720").into()),
            is_gateway: roles.iter().any(|r| matches!(r, Address::Gateway(_))),
            controllers: roles.iter().filter_map(controller).collect(),
            devices: roles.iter().filter_map(device).collect(),
        };
        Registered {
            name: name.to_owned(),
            impersonates: None,
            renamed: 0,
            member: Arc::new(member),
            places: roles.iter().flat_map(on).collect(),
            roster: None,
            armed: Timestamp::MAX,
            known: IndexMap::default(),
            is_leaving: false,
        }
    }

    /// What its certificate lets it be: its roles, by the name that is its own.
    fn rights(&self) -> Rights {
        let name = self.own_name();
        let names = Kind::of(&self.member);
        let names: Vec<String> = names
            .iter()
            .map(|kind| format!("{name}.{kind}.{SET_DEFAULT}"))
            .collect();
        Rights::of(SET_DEFAULT, names.iter().map(String::as_str))
    }

    fn own_name(&self) -> String {
        match self.renamed {
            0 => self.name.clone(),
            n => format!("{}.{n}", self.name),
        }
    }

    /// The node is down.
    pub(super) fn ends(&mut self) {
        self.roster = None;
        self.known.clear();
        self.armed = Timestamp::MAX;
        self.is_leaving = false;
    }
}

/// The bytes of a list: its texts, and a word for each other field.
fn bytes_of(list: &MemberList) -> usize {
    let of = |listed: &Listed| {
        let member = &listed.member;
        let address = member.address.as_ref().map_or(0, |address| address.len());
        let devices = member.devices.iter();
        let devices: usize = devices.map(|d| d.name.len() + 4 * d.workers.len()).sum();
        16 + member.name.len() + address + devices
    };
    list.iter().map(of).sum()
}

impl Cluster {
    /// The node of this name, which it may have left for another one's.
    fn named(&self, name: &str) -> Option<usize> {
        let mut nodes = self.nodes.iter().map(|node| &node.registered);
        nodes.position(|of| of.own_name() == name)
    }
}

impl World {
    /// A node that begins knows nobody.
    pub(super) fn register(&mut self, node: usize) -> Result<(), Violation> {
        let now = self.now;
        self.name(node);
        let cluster = self.cluster();
        if !cluster.registers {
            return Ok(());
        }
        let here = cluster.nodes[node].clock.read(now);
        let of = &mut cluster.nodes[node].registered;
        of.roster = Some(Roster::new(of.member.clone(), &[], here, &mut Vec::new()));
        Ok(())
    }

    /// A node has the name and the life that it has now.
    pub(super) fn name(&mut self, node: usize) {
        let cluster = self.cluster();
        let life = cluster.nodes[node].life;
        let of = &cluster.nodes[node].registered;
        let name = match of.impersonates {
            Some(other) => cluster.nodes[other].registered.member.name.to_string(),
            None => of.own_name(),
        };
        let of = &mut cluster.nodes[node].registered;
        of.member = Arc::new(Member {
            name: name.into(),
            incarnation: life,
            ..(*of.member).clone()
        });
    }

    /// Whether a node has no session of a pair before it hears from a controller where the other one is.
    pub(super) fn waits_for_list(&mut self, pair: usize, node: usize) -> bool {
        let cluster = self.cluster();
        let sides = &cluster.pairs[pair].sides;
        let is_controller = |side: usize| {
            !cluster.nodes[sides[side].node]
                .registered
                .member
                .controllers
                .is_empty()
        };
        cluster.registers && sides[0].node == node && !is_controller(0) && !is_controller(1)
    }

    /// Whether the node of a side is still the process that greeted.
    pub(super) fn is_still(&mut self, pair: usize, side: usize, greeting: &Greeting) -> bool {
        let cluster = self.cluster();
        let node = &cluster.nodes[cluster.pairs[pair].sides[side].node];
        !cluster.registers || node.life == greeting.member.incarnation
    }

    /// Why a node may not be what it greets as.
    pub(super) fn forbids(&self, node: usize, greeting: &Greeting) -> Option<String> {
        let cluster = self.cluster.as_ref()?;
        let of = &cluster.nodes[node].registered;
        of.rights().refuse_peer(&greeting.member)
    }

    /// A node that is down takes the name of another one, or its own again.
    pub(in crate::world) fn take_name(&mut self, node: usize, of: Option<usize>) {
        self.cluster().nodes[node].registered.impersonates = of;
    }

    /// A node that is down may take another name of its own.
    pub(in crate::world) fn rename(&mut self, node: usize, renamed: bool) {
        self.cluster().nodes[node].registered.renamed += u32::from(renamed);
    }

    /// A node begins anew with the name of another one, or with its own again.
    pub(super) fn impersonate(&mut self, node: usize, of: Option<usize>) -> Result<(), Violation> {
        if !self.cluster().nodes[node].is_down {
            self.crash(node, false)?;
        }
        self.take_name(node, of);
        self.begin(node)
    }

    /// A peer of a node greeted.
    pub(super) fn meets(
        &mut self,
        node: usize,
        peer: usize,
        greeting: &Greeting,
    ) -> Result<(), Violation> {
        self.checker.met(self.forbids(peer, greeting))?;
        self.register_event(node, Event::Greeted(greeting.member.clone()))
    }

    /// The session of a node with a peer ended.
    pub(super) fn parts(&mut self, node: usize, greeting: &Greeting) -> Result<(), Violation> {
        let Member {
            name, incarnation, ..
        } = &*greeting.member;
        self.register_event(node, Event::Lost(name.clone(), *incarnation))
    }

    /// The peer of a side is suspected, or trusted again.
    pub(super) fn doubts(
        &mut self,
        pair: usize,
        side: usize,
        is_suspected: bool,
    ) -> Result<(), Violation> {
        let end = &self.cluster().pairs[pair].sides[side];
        let node = end.node;
        let Some(name) = end.told.as_ref().map(|told| told.member.name.clone()) else {
            return Ok(());
        };
        let event = match is_suspected {
            true => Event::Suspected(name),
            false => Event::Trusted(name),
        };
        self.register_event(node, event)
    }

    /// What a process says of others came on a connection.
    pub(super) fn hear_member(
        &mut self,
        pair: usize,
        to: usize,
        connection: Connection,
        said: Registration,
    ) -> Result<(), Violation> {
        self.bring(pair, to, SessionEvent::Traffic(connection))?;
        let end = &self.cluster().pairs[pair].sides[to];
        let node = end.node;
        let is_live = (end.session.as_ref()).is_some_and(|s| s.connection() == Some(connection));
        let Some(told) = end.told.as_ref().filter(|_| is_live) else {
            self.cluster().report.ignored += 1;
            return Ok(());
        };
        let name = told.member.name.clone();
        let event = match said {
            Registration::List(list) => Event::List(name, list),
            Registration::Leaves => Event::Leaves(name),
        };
        self.register_event(node, event)
    }

    /// The roster of a node is woken.
    pub(super) fn wake_roster(&mut self, node: usize) -> Result<(), Violation> {
        let now = self.now;
        let of = &mut self.cluster().nodes[node].registered;
        if of.armed <= now {
            of.armed = Timestamp::MAX;
        }
        self.register_event(node, Event::Wakeup)
    }

    fn register_event(&mut self, node: usize, event: Event) -> Result<(), Violation> {
        let now = self.now;
        let cluster = self.cluster();
        let clock = cluster.nodes[node].clock;
        let Some(roster) = &mut cluster.nodes[node].registered.roster else {
            return Ok(());
        };
        let mut commands = Vec::new();
        roster.on_event(clock.read(now), event, &mut commands);
        for command in commands {
            self.heed_roster(node, command)?;
        }
        let of = &mut self.cluster().nodes[node].registered;
        let wakes = of.roster.as_ref().and_then(Roster::next_wakeup);
        if let Some(at) = wakes.map(|at| clock.moment(at).max(now))
            && at < of.armed
        {
            of.armed = at;
            let due = Due::Roster { node };
            self.agenda.at(at, Occurrence::Cluster(due));
        }
        Ok(())
    }

    fn heed_roster(&mut self, node: usize, command: Command) -> Result<(), Violation> {
        match command {
            Command::Joined(member) => {
                let Some(other) = self.cluster().named(&member.name) else {
                    // It is gone, and its name with it.
                    return Ok(());
                };
                self.forget_node(node, other)?;
                let cluster = self.cluster();
                let places = cluster.nodes[other].registered.places.clone();
                let known = &mut cluster.nodes[node].registered.known;
                known.insert(other, member.name.clone());
                self.each_role(node, |world, me| match me {
                    Address::Gateway(id) => world.drive_gateway(id, GatewayEvent::Joined(&places)),
                    Address::Controller(module) => {
                        world.drive_controller(module, ControllerEvent::Joined(places.clone()))
                    }
                    Address::Device(_) => Ok(()),
                })
            }
            Command::Left(member) => {
                let known = &self.cluster().nodes[node].registered.known;
                let other = known.iter().find(|(_, name)| **name == member.name);
                match other.map(|(other, _)| *other) {
                    Some(other) => self.forget_node(node, other),
                    None => Ok(()),
                }
            }
            Command::Dial(member) => {
                let pair = (self.cluster().named(&member.name))
                    .and_then(|other| self.cluster().pair(node, other));
                if let Some((pair, 0)) = pair
                    && self.cluster().pairs[pair].sides[0].session.is_none()
                {
                    self.begin_session(pair, node);
                }
                Ok(())
            }
            Command::HangUp(name) => {
                let pair = (self.cluster().named(&name))
                    .and_then(|other| self.cluster().pair(node, other));
                if let Some((pair, 0)) = pair {
                    self.end_session(pair, node, false);
                }
                Ok(())
            }
            Command::Publish(name, list) => {
                self.say_member(node, &name, Registration::List(list));
                Ok(())
            }
            // Each node has one session with each other.
            Command::Replaced(name, ..) => unreachable!("one node has a name: {name}"),
            // A node that was let in by another one's name meets that one.
            Command::Refuse(name, life, _) => {
                self.end_sessions_with(node, &name, life);
                Ok(())
            }
        }
    }

    /// The sessions of a node with one that has greeted as this end.
    fn end_sessions_with(&mut self, node: usize, name: &str, life: Incarnation) {
        let greeted = |end: &Option<Arc<Greeting>>| {
            let member = end.as_ref().map(|greeting| &greeting.member);
            member.is_some_and(|of| &*of.name == name && of.incarnation == life)
        };
        let pairs = self.cluster().pairs.iter().enumerate();
        let refused = pairs.filter(|(_, pair)| {
            let mut sides = pair.sides.iter();
            sides.any(|end| end.node == node && greeted(&end.told))
        });
        let refused: Vec<usize> = refused.map(|(pair, _)| pair).collect();
        for pair in refused {
            self.end_session(pair, node, false);
        }
    }

    /// The roles of a node hear that the devices of another one are gone for good.
    fn forget_node(&mut self, node: usize, other: usize) -> Result<(), Violation> {
        let cluster = self.cluster();
        let known = &mut cluster.nodes[node].registered.known;
        if known.swap_remove(&other).is_none() {
            return Ok(());
        }
        for role in cluster.nodes[other].roles.clone() {
            let Address::Device(device) = role else {
                continue;
            };
            self.each_role(node, |world, me| match me {
                Address::Gateway(id) => world.drive_gateway(id, GatewayEvent::Left(device)),
                Address::Controller(module) => {
                    world.drive_controller(module, ControllerEvent::Left(device))
                }
                Address::Device(_) => Ok(()),
            })?;
        }
        Ok(())
    }

    fn each_role(
        &mut self,
        node: usize,
        tell: impl Fn(&mut World, Address) -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        let roles = self.cluster().nodes[node].roles.clone();
        roles.into_iter().try_for_each(|role| tell(self, role))
    }

    /// Sends what a node says of others, if there is a session.
    fn say_member(&mut self, node: usize, to: &str, said: Registration) {
        let cluster = self.cluster();
        let pair = (cluster.named(to)).and_then(|other| cluster.pair(node, other));
        let Some((pair, side)) = pair else { return };
        let end = &cluster.pairs[pair].sides[side];
        let connection = end.session.as_ref().and_then(|s| s.connection());
        let way = connection.and_then(|c| cluster.pairs[pair].way_of(side, c));
        if let Some(way) = way {
            if let Registration::List(list) = &said {
                cluster.report.traffic.lists.add(bytes_of(list));
            }
            self.put(pair, way, 1 - side, Load::Register(said));
        }
    }

    /// A node says that it leaves, and ends what it has.
    pub(in crate::world) fn leave(&mut self, node: usize) -> Result<(), Violation> {
        let now = self.now;
        let cluster = self.cluster();
        let of = &mut cluster.nodes[node];
        if of.is_down || of.registered.is_leaving {
            return Ok(());
        }
        of.registered.is_leaving = true;
        let life = of.life;
        let others = cluster
            .nodes
            .iter()
            .map(|n| n.registered.member.name.clone());
        for other in others.collect::<Vec<_>>() {
            self.say_member(node, &other, Registration::Leaves);
        }
        self.each_role(node, |world, me| match me {
            Address::Gateway(id) => {
                world.gateways[id.idx()].policy.drain();
                Ok(())
            }
            Address::Controller(_) => Ok(()),
            Address::Device(id) => world.drive_device(id.idx(), DeviceEvent::Leave),
        })?;
        self.end_leaving(node, life, now)
    }

    /// A node that leaves goes once it has had nothing to do for a while.
    pub(super) fn end_leaving(
        &mut self,
        node: usize,
        life: Incarnation,
        idle_since: Timestamp,
    ) -> Result<(), Violation> {
        let now = self.now;
        let cluster = self.cluster();
        let of = &cluster.nodes[node];
        if of.is_down || of.life != life {
            return Ok(());
        }
        let roles = of.roles.clone();
        let is_idle = roles.iter().all(|role| match role {
            Address::Gateway(id) => self.gateways[id.idx()].policy.in_flight() == 0,
            Address::Controller(_) => true,
            Address::Device(id) => self.devices[id.idx()].policy.has_no_work(),
        });
        let idle_since = if is_idle { idle_since } else { now };
        if now.since(idle_since) >= LEAVE_SETTLES {
            return self.crash(node, false);
        }
        let change = Change::Leaves {
            node,
            life,
            idle_since,
        };
        self.change_at(now + LEAVE_LOOK, change);
        Ok(())
    }

    /// A node that was away begins anew, perhaps by another name.
    pub(super) fn come_back(&mut self, node: usize, renamed: bool) -> Result<(), Violation> {
        if self.cluster().nodes[node].registered.is_leaving {
            self.crash(node, false)?;
        }
        if !self.cluster().nodes[node].is_down {
            return Ok(());
        }
        self.rename(node, renamed);
        self.begin(node)
    }

    /// Each gateway that is there uses each worker that is there, and no other.
    pub(in crate::world) fn check_members(&self) -> Result<(), Violation> {
        let (Some(cluster), Some(config)) = (&self.cluster, &self.config.cluster) else {
            return Ok(());
        };
        let is_known = self.now >= Timestamp::ZERO + config.heals_at() + KNOWN_AFTER;
        if !cluster.registers || !is_known {
            return Ok(());
        }
        let is_there = |role: Address| !cluster.nodes[cluster.node_of[&role]].is_down;
        for id in self.gateways().filter(|id| is_there(Address::Gateway(*id))) {
            let view = self.gateways[id.idx()].policy.view();
            for place in &self.places {
                let workers = &view.modules[place.module.idx()].workers;
                let of = workers.iter().find(|w| w.worker == place.worker);
                let is_used = of.is_some_and(|w| {
                    matches!(w.health, WorkerHealth::Serves | WorkerHealth::SetAside)
                });
                let is_live = is_there(Address::Device(place.device));
                self.checker.member(id, place.worker, (is_used, is_live))?;
            }
        }
        Ok(())
    }
}
