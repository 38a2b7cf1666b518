//! Nodes that begin, crash and begin anew, and what their roles hear of each other.

use rand::Rng;
use spillgate_controller_policy::gateway::Event as GatewayEvent;
use spillgate_controller_policy::module::ControllerEvent;
use spillgate_pipeline::id::{GatewayId, Incarnation};
use spillgate_pipeline::invariants::Violation;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{Address, Place};
use spillgate_protocol::session::{Session, Side};
use spillgate_worker_policy::device::DeviceEvent;

use super::wire::Load;
use super::{ClusterReport, greeting};
use crate::world::World;
use crate::world::crashes;

impl World {
    /// All nodes begin; faults are on the agenda.
    pub(in crate::world) fn start_cluster(&mut self) -> Result<(), Violation> {
        self.schedule_faults();
        for node in 0..self.cluster().nodes.len() {
            self.begin(node)?;
        }
        Ok(())
    }

    /// A node begins: its roles are empty and know each other; its sessions know nobody.
    pub(in crate::world) fn begin(&mut self, node: usize) -> Result<(), Violation> {
        let cluster = self.cluster();
        let of = &mut cluster.nodes[node];
        of.is_down = false;
        of.serves_other = false;
        of.is_dark = false;
        let (roles, life) = (of.roles.clone(), of.life);
        for role in &roles {
            self.begin_role(*role, life)?;
        }
        self.register(node)?;
        self.roles_meet(node, node, life)?;
        for pair in 0..self.cluster().pairs.len() {
            if !self.waits_for_list(pair, node) {
                self.begin_session(pair, node);
            }
        }
        Ok(())
    }

    /// The workers that a role knows from the start.
    fn first_places(&mut self, role: Address) -> Vec<Place> {
        let cluster = self.cluster();
        let node = &cluster.nodes[cluster.node_of[&role]];
        match cluster.registers {
            true => node.registered.places.clone(),
            false => self.places.clone(),
        }
    }

    fn begin_role(&mut self, role: Address, life: Incarnation) -> Result<(), Violation> {
        let born = self.clock(role).read(self.now);
        self.cluster().report.ignored += self.ignored_by(role);
        let places = self.first_places(role);
        match role {
            Address::Gateway(id) => {
                let owner = &mut self.gateways[id.idx()];
                owner.life.begins();
                owner.armed = Timestamp::MAX;
                owner.policy = crashes::gateway(&self.config, &places, id, life, born);
                self.cluster().n_accepted[id.idx()] = 0;
            }
            Address::Controller(module) => {
                self.controller_lives[module.idx()].begins();
                self.controllers[module.idx()] =
                    crashes::controller(&self.config, &places, module, life, born);
                self.arm_controller(module, life);
            }
            Address::Device(id) => self.devices[id.idx()].is_down = false,
        }
        Ok(())
    }

    /// Messages that a role ignored in its life.
    fn ignored_by(&self, role: Address) -> u64 {
        match role {
            Address::Gateway(id) => self.gateways[id.idx()].policy.n_ignored(),
            Address::Controller(module) => self.controllers[module.idx()].n_ignored(),
            // Its driver ignores them for it.
            Address::Device(_) => 0,
        }
    }

    /// What happened, if roles are processes.
    pub(in crate::world) fn cluster_report(&self) -> Option<ClusterReport> {
        let cluster = self.cluster.as_ref()?;
        let by_role = cluster.node_of.keys().map(|role| self.ignored_by(*role));
        Some(ClusterReport {
            ignored: cluster.report.ignored + by_role.sum::<u64>(),
            ..cluster.report
        })
    }

    pub(super) fn begin_session(&mut self, pair: usize, node: usize) {
        let now = self.now;
        let cluster = self.cluster();
        let mut sides = cluster.pairs[pair].sides.iter();
        let Some(side) = sides.position(|end| end.node == node) else {
            return;
        };
        let dials = [Side::Dials, Side::Accepts][side];
        let of = &cluster.nodes[node];
        let me = greeting(&of.registered.member, cluster.hash_of(of));
        let here = of.clock.read(now);
        let seed = cluster.rng.random();
        let end = &mut cluster.pairs[pair].sides[side];
        end.session = Some(Session::new(cluster.timing, me, dials, seed, here));
        end.armed = Timestamp::MAX;
        end.n_accepted = 0;
        self.arm_session(pair, side);
    }

    /// A node crashes. The requests of its gateway end with their connections.
    pub(in crate::world) fn crash(&mut self, node: usize, silent: bool) -> Result<(), Violation> {
        let cluster = self.cluster();
        let of = &mut cluster.nodes[node];
        if of.is_down {
            return Ok(());
        }
        of.is_down = true;
        of.is_dark = silent;
        of.life.0 += 1;
        of.sent.clear();
        of.registered.ends();
        for role in of.roles.clone() {
            match role {
                Address::Gateway(id) => self.end_gateway(id)?,
                Address::Controller(module) => self.controller_lives[module.idx()].ends(),
                Address::Device(id) => self.end_device(id),
            }
        }
        for pair in 0..self.cluster().pairs.len() {
            self.end_session(pair, node, silent);
        }
        Ok(())
    }

    pub(super) fn end_session(&mut self, pair: usize, node: usize, silent: bool) {
        let of = &mut self.cluster().pairs[pair];
        let Some(side) = of.sides.iter().position(|end| end.node == node) else {
            return;
        };
        of.sides[side].session = None;
        of.sides[side].told = None;
        of.sides[side].armed = Timestamp::MAX;
        let mut ended = Vec::new();
        for (id, way) in &mut of.ways {
            if std::mem::take(&mut way.is_open[side]) {
                ended.push(*id);
            }
        }
        if !silent {
            for way in ended {
                self.put(pair, way, 1 - side, Load::Fin);
            }
        }
    }

    /// The roles of a node hear of a peer, in its life.
    pub(super) fn roles_meet(
        &mut self,
        node: usize,
        peer: usize,
        life: Incarnation,
    ) -> Result<(), Violation> {
        self.each_two(node, peer, |world, me, other| match me {
            Address::Gateway(id) => world.drive_gateway(id, GatewayEvent::Greeted(other, life)),
            Address::Controller(module) => {
                world.drive_controller(module, ControllerEvent::Greeted(other, life))
            }
            Address::Device(id) => match other {
                Address::Gateway(owner) => world.greet_device(id.idx(), owner),
                _ => Ok(()),
            },
        })
    }

    /// The roles of a node hear that a peer is gone.
    pub(super) fn roles_part(&mut self, node: usize, peer: usize) -> Result<(), Violation> {
        self.each_two(node, peer, |world, me, other| match me {
            Address::Gateway(id) => {
                world.drive_gateway(id, GatewayEvent::Lost(other, "its connection was lost"))
            }
            Address::Controller(module) => {
                world.drive_controller(module, ControllerEvent::Lost(other))
            }
            Address::Device(id) => match other {
                Address::Gateway(owner) => world.drive_device(id.idx(), DeviceEvent::Lost(owner)),
                _ => Ok(()),
            },
        })
    }

    /// The roles of a side hear that its peer is suspected, or trusted again, if they heard of the peer.
    pub(super) fn roles_doubt(
        &mut self,
        pair: usize,
        side: usize,
        is_suspected: bool,
    ) -> Result<(), Violation> {
        let sides = &self.cluster().pairs[pair].sides;
        if sides[side].told.is_none() {
            return Ok(());
        }
        let [node, peer] = [side, 1 - side].map(|side| sides[side].node);
        self.each_two(node, peer, |world, me, other| match (me, other) {
            (Address::Gateway(id), _) => {
                let event = match is_suspected {
                    true => GatewayEvent::Suspected(other),
                    false => GatewayEvent::Trusted(other),
                };
                world.drive_gateway(id, event)
            }
            (Address::Controller(module), _) => {
                let event = match is_suspected {
                    true => ControllerEvent::Suspected(other),
                    false => ControllerEvent::Trusted(other),
                };
                world.drive_controller(module, event)
            }
            (Address::Device(id), Address::Gateway(owner)) if is_suspected => {
                world.drive_device(id.idx(), DeviceEvent::Suspected(owner))
            }
            _ => Ok(()),
        })
    }

    fn each_two(
        &mut self,
        node: usize,
        peer: usize,
        tell: impl Fn(&mut World, Address, Address) -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        let [mine, theirs] = [node, peer].map(|node| self.cluster().nodes[node].roles.clone());
        for me in mine {
            for &other in &theirs {
                if me.speaks_to(other) {
                    tell(self, me, other)?;
                }
            }
        }
        Ok(())
    }

    /// Whether clients reach a gateway: it lives and, in a cluster, has a worker of each module.
    pub(in crate::world) fn is_ready(&self, id: GatewayId) -> bool {
        let owner = &self.gateways[id.idx()];
        let Some(cluster) = &self.cluster else {
            return !owner.life.is_down;
        };
        let node = &cluster.nodes[cluster.node_of[&Address::Gateway(id)]];
        !owner.life.is_down && !node.registered.is_leaving && owner.policy.unserved().is_none()
    }
}
