//! The cluster of one revision, where processes serve several: what its sessions say of the others.
//!
//! The roles of a process exist once for each revision, in clusters of their own. A process that does not serve this revision accepts
//! connections for another one: its peer hears from its greeting what is published, and each refuses the other.

use std::sync::Arc;

use spillgate_pipeline::id::GatewayId;
use spillgate_pipeline::invariants::Violation;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::membership::Member;
use spillgate_protocol::message::{Envelope, Message};
use spillgate_protocol::publication::Publication;
use spillgate_protocol::session::{Connection, Frame, Greeting, PipelineHash};

use super::wire::Load;
use super::{Bug, Cluster, Node};
use crate::world::World;

/// What stands for another revision, whichever it is.
const OTHER: u64 = u64::MAX;

/// What is heard of other processes of the set.
#[derive(Debug)]
pub(in crate::world) enum Notice {
    /// A node was met.
    Met(usize),
    /// A process said something.
    Heard(Said),
}

/// What processes say of revisions.
#[derive(Clone, Debug)]
pub(in crate::world) enum Said {
    /// This is published.
    Published(Arc<Publication>),
    /// This revision could not be started there.
    NotStarted(u64),
}

/// Which revision a cluster is of.
#[derive(Debug, Default)]
pub(super) struct OfRevision {
    number: u64,
    /// Its modules fail all requests.
    fails: bool,
    /// Whether anybody reads the notices.
    is_one_of_many: bool,
    /// By node, in order.
    notices: Vec<(usize, Notice)>,
}

/// Whether a process may say what is published.
pub(in crate::world) fn publishes(member: &Member) -> bool {
    member.is_gateway || !member.controllers.is_empty()
}

fn hash(revision: u64) -> PipelineHash {
    let mut hash = PipelineHash::default();
    hash.0[..8].copy_from_slice(&revision.to_be_bytes());
    hash
}

impl Cluster {
    /// Whether modules fail all requests.
    pub(in crate::world) fn fails(&self) -> bool {
        self.revision.fails
    }

    /// What a node greets with.
    pub(super) fn hash_of(&self, node: &Node) -> PipelineHash {
        let is_worker = !publishes(&node.registered.member);
        let unchecked = self.bug == Some(Bug::HashesUnchecked) && is_worker;
        match node.serves_other && !unchecked {
            true => hash(OTHER),
            false => hash(self.revision.number),
        }
    }

    /// The frame as a node sends it: greetings say what is published.
    pub(super) fn with_published(&self, node: usize, frame: Frame) -> Frame {
        match (frame, &self.nodes[node].published) {
            (Frame::Greeting(me), Some(published)) => Frame::Greeting(Arc::new(Greeting {
                published: Some(published.clone()),
                ..(*me).clone()
            })),
            (frame, _) => frame,
        }
    }

    pub(super) fn notice(&mut self, node: usize, notice: Notice) {
        if self.revision.is_one_of_many {
            self.revision.notices.push((node, notice));
        }
    }
}

impl World {
    /// Makes this the world of a revision: no node serves it yet.
    pub(in crate::world) fn of_revision(&mut self, number: u64, fails: bool) {
        self.cluster().revision = OfRevision {
            number,
            fails,
            is_one_of_many: true,
            notices: Vec::new(),
        };
        for owner in &mut self.gateways {
            owner.life.is_down = true;
        }
        for life in &mut self.controller_lives {
            life.is_down = true;
        }
        for device in &mut self.devices {
            device.is_down = true;
        }
    }

    /// A message that counts came to a node.
    pub(super) fn check_revision(
        &mut self,
        node: usize,
        envelope: &Envelope<()>,
    ) -> Result<(), Violation> {
        let Message::Device(message) = &envelope.message else {
            return Ok(());
        };
        let of = self.cluster().revision.number;
        let is_own = !self.cluster().nodes[node].serves_other;
        let checker = &self.checker;
        let mut requests = message.requests().into_iter();
        requests.try_for_each(|(_, request)| checker.at_revision(request, of, is_own))
    }

    /// What nodes heard since it was asked last.
    pub(in crate::world) fn notices(&mut self) -> Vec<(usize, Notice)> {
        std::mem::take(&mut self.cluster().revision.notices)
    }

    /// Whether the process of a node serves this revision.
    pub(in crate::world) fn is_up(&self, node: usize) -> bool {
        let cluster = self.cluster.as_ref();
        cluster.is_some_and(|cluster| !cluster.nodes[node].is_down)
    }

    /// The process of a node serves another revision than this one, or not.
    pub(in crate::world) fn serve_other(&mut self, node: usize, does: bool) {
        let of = &mut self.cluster().nodes[node];
        if !of.is_down || of.serves_other == does {
            return;
        }
        of.serves_other = does;
        of.is_dark &= !does;
        self.name(node);
        for pair in 0..self.cluster().pairs.len() {
            match does {
                // It accepts connections, and makes none.
                true if self.cluster().pairs[pair].sides[1].node == node => {
                    self.begin_session(pair, node);
                }
                true => {}
                false => self.end_session(pair, node, false),
            }
        }
    }

    /// What a node says is published, in its greetings.
    pub(in crate::world) fn greet_with(&mut self, node: usize, said: Option<Arc<Publication>>) {
        self.cluster().nodes[node].published = said;
    }

    /// The nodes that a node has met.
    pub(in crate::world) fn met(&self, node: usize) -> Vec<usize> {
        let pairs = self.cluster.iter().flat_map(|cluster| &cluster.pairs);
        let sides = pairs.filter_map(|pair| {
            let side = pair.sides.iter().position(|end| end.node == node)?;
            let is_met = pair.sides[side].told.is_some();
            is_met.then_some(pair.sides[1 - side].node)
        });
        sides.collect()
    }

    /// Says something of revisions to a node that a node has met.
    pub(in crate::world) fn say_of_revisions(&mut self, node: usize, to: usize, said: Said) {
        let cluster = self.cluster();
        let Some((pair, side)) = cluster.pair(node, to) else {
            return;
        };
        let session = cluster.pairs[pair].sides[side].session.as_ref();
        let connection = session.and_then(|session| session.connection());
        let way = connection.and_then(|c| cluster.pairs[pair].way_of(side, c));
        if let Some(way) = way {
            self.put(pair, way, 1 - side, Load::Revisions(said));
        }
    }

    pub(super) fn hear_greeting(&mut self, node: usize, greeting: &Greeting) {
        if let Some(published) = greeting.published.clone() {
            let said = Said::Published(published);
            self.cluster().notice(node, Notice::Heard(said));
        }
    }

    pub(super) fn hear_of_revisions(
        &mut self,
        pair: usize,
        to: usize,
        connection: Connection,
        said: Said,
    ) {
        let end = &self.cluster().pairs[pair].sides[to];
        let node = end.node;
        let session = end.session.as_ref();
        if session.is_some_and(|session| session.connection() == Some(connection)) {
            self.cluster().notice(node, Notice::Heard(said));
        }
    }

    /// Whether a gateway takes requests of this revision.
    pub(in crate::world) fn has_workers(&self, id: GatewayId) -> bool {
        let owner = &self.gateways[id.idx()];
        !owner.life.is_down && owner.policy.unserved().is_none()
    }

    /// Until when the process of a node does nothing, if it does nothing now.
    pub(in crate::world) fn node_stalls(&self, node: usize) -> Option<Timestamp> {
        let cluster = self.cluster.as_ref()?;
        cluster.stalled(self.now, cluster.nodes[node].roles[0])
    }
}
