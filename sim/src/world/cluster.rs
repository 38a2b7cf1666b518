//! Gateways, controllers and devices as processes that exchange only messages: over connections that break, between clocks that
//! differ. Each pair of nodes that talks has a session on each side, the state machine of
//! [`spillgate_protocol::session`]; roles hear of their peers from it alone.

mod bounds;
mod clock;
mod draw;
mod faults;
mod members;
mod nodes;
mod revision;
mod rogue;
mod sessions;
mod traffic;
mod wire;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::cluster::{Cluster as Config, Scripted, Travel};
use indexmap::IndexMap;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rustc_hash::FxBuildHasher;
use serde::Serialize;
use spillgate_pipeline::id::{BatchId, DeviceId, GatewayId, Incarnation, RequestId, WorkerId};
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::membership::Member;
use spillgate_protocol::message::{Address, Envelope, Place};
use spillgate_protocol::publication::Publication;
use spillgate_protocol::session::{Greeting, PipelineHash, Timing, WireVersions};

use super::World;
use super::agenda::Occurrence;
pub(super) use clock::Clock;
pub(super) use faults::{Change, drawn};
use members::Registered;
use revision::OfRevision;
pub(super) use revision::{Notice, Said};
pub use traffic::{Traffic, Travelled};
pub(super) use wire::Load;
use wire::Pair;

/// What the clocks of a cluster show at the start. No clock goes below zero, however far behind it is.
const EPOCH: Duration = Duration::from_secs(3600);

/// A bug on purpose, for tests: the invariants have to find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A gateway that begins anew counts its requests from 0 again, in ids that do not name its life.
    IdsRepeat,
    /// Gateways have no timer: a request whose answer is lost never ends.
    NoTimer,
    /// A process hears what an ended connection brings, and does not look at lives.
    LivesUnchecked,
    /// A process does not look at the certificates of others.
    NamesUnchecked,
    /// A worker has sessions with gateways of other revisions than its own.
    HashesUnchecked,
    /// A gateway does not go back with the others when one of them takes a revision back.
    StaysBehind,
}

/// What happened on the network of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClusterReport {
    /// Peers that roles heard of.
    pub greeted: u64,
    /// Peers that they lost.
    pub lost: u64,
    /// Messages to a peer with which there was no session.
    pub unsent: u64,
    /// Messages of planners that were lost on purpose.
    pub lost_on_purpose: u64,
    /// Messages that were ignored: of an ended connection, of another life, or not their sender's to say.
    pub ignored: u64,
    /// Messages that came twice, since their connection broke.
    pub repeated: u64,
    /// Messages of rogue nodes.
    pub rogue: u64,
    /// Connections that were closed because their peer took nothing.
    pub full: u64,
    /// Messages, by who said them to whom.
    pub traffic: Traffic,
}

/// What is to come in a cluster.
#[derive(Debug)]
pub(super) enum Due {
    /// A session is woken.
    Session { pair: usize, side: usize },
    /// The roster of a node is woken.
    Roster { node: usize },
    /// A connection brings something to a side.
    Arrives {
        pair: usize,
        way: u64,
        to: usize,
        load: Load,
    },
    /// A message between two roles of one process.
    Local(Box<Envelope<()>>),
    /// A request reaches a gateway that did nothing meanwhile.
    Offer { ordinal: usize, owner: GatewayId },
    /// A fault begins or ends.
    Change(Change),
}

/// A process.
struct Node {
    roles: Vec<Address>,
    clock: Clock,
    life: Incarnation,
    is_down: bool,
    /// Its machine is gone, too: nobody hears that connections end.
    is_dark: bool,
    /// Its devices take so many times as long.
    slow: f64,
    /// It does nothing until then.
    stalled_until: Timestamp,
    /// What it sent last, for a rogue to repeat.
    sent: VecDeque<Envelope<()>>,
    is_rogue: bool,
    /// As what it registers, where processes do.
    registered: Registered,
    /// The node is down, and its process accepts connections for another revision.
    serves_other: bool,
    /// What its process says is published.
    published: Option<Arc<Publication>>,
}

/// When a batch ended, and its members with the life of the gateway that sent each.
type Ran = (Timestamp, Vec<(RequestId, Incarnation)>);

/// The cluster of a run.
pub(super) struct Cluster {
    bug: Option<Bug>,
    timing: Timing,
    /// Processes know each other by registration and lists alone.
    registers: bool,
    nodes: Vec<Node>,
    node_of: IndexMap<Address, usize, FxBuildHasher>,
    pairs: Vec<Pair>,
    /// By two nodes, the lower one first.
    pair_of: IndexMap<[usize; 2], usize, FxBuildHasher>,
    /// Part of the planners' messages that is lost.
    loss: f64,
    /// Some fault lets messages come twice.
    may_repeat: bool,
    /// Requests that each gateway accepted in its life.
    n_accepted: Vec<u64>,
    /// The ordinal of each request in the workload.
    ordinals: IndexMap<RequestId, u64, FxBuildHasher>,
    /// The life of the gateway that sent a request to a worker.
    asked: IndexMap<(WorkerId, RequestId), Incarnation, FxBuildHasher>,
    /// Batches that ended and whose results may be under way.
    ran: IndexMap<(DeviceId, BatchId), Ran, FxBuildHasher>,
    /// The same batches in the order in which they ended.
    ended: VecDeque<(Timestamp, (DeviceId, BatchId))>,
    /// Requests that came to a device twice: a rogue node sent them once more, or a connection broke.
    repeated: IndexMap<RequestId, (), FxBuildHasher>,
    /// Requests of which a rogue device says that it finished them. Nobody can tell its lies about those that it has.
    lies: IndexMap<(DeviceId, RequestId), (), FxBuildHasher>,
    report: ClusterReport,
    rng: ChaCha8Rng,
    revision: OfRevision,
}

impl Cluster {
    /// All nodes are down.
    pub(super) fn new(config: &Config, places: &[Place], bug: Option<Bug>, seed: u64) -> Self {
        let node = |node: &crate::cluster::Node| Node {
            roles: node.roles.clone(),
            clock: Clock {
                ahead: EPOCH.as_nanos() as i64 + node.ahead_ns,
                ppm: node.drift_ppm,
            },
            life: Incarnation(0),
            is_down: true,
            is_dark: false,
            slow: 1.0,
            stalled_until: Timestamp::ZERO,
            sent: VecDeque::new(),
            is_rogue: false,
            registered: Registered::new(&node.name, &node.roles, places),
            serves_other: false,
            published: None,
        };
        let nodes: Vec<Node> = config.nodes.iter().map(node).collect();
        let mut node_of = IndexMap::default();
        for (i, node) in nodes.iter().enumerate() {
            node_of.extend(node.roles.iter().map(|role| (*role, i)));
        }
        let (mut pairs, mut pair_of) = (Vec::new(), IndexMap::default());
        for a in 0..nodes.len() {
            for b in a + 1..nodes.len() {
                if !config.nodes[a].talks_to(&config.nodes[b]) {
                    continue;
                }
                let mut links = config.links.iter();
                let link = links.find(|l| l.between == [a, b] || l.between == [b, a]);
                let travel: Travel = link.map_or(config.travel, |l| l.travel);
                pair_of.insert([a, b], pairs.len());
                let of = |i: usize| &*nodes[i].registered.member;
                let turns = config.registers && Member::dials(of(b), of(a));
                pairs.push(Pair::new(if turns { [b, a] } else { [a, b] }, travel));
            }
        }
        Cluster {
            bug,
            timing: Timing::default(),
            registers: config.registers,
            nodes,
            node_of,
            pairs,
            pair_of,
            loss: 0.0,
            may_repeat: config.draws.is_some() || config.faults.iter().any(Scripted::repeats),
            n_accepted: vec![0; config.shares().len()],
            ordinals: IndexMap::default(),
            asked: IndexMap::default(),
            ran: IndexMap::default(),
            ended: VecDeque::new(),
            repeated: IndexMap::default(),
            lies: IndexMap::default(),
            report: ClusterReport::default(),
            rng: ChaCha8Rng::seed_from_u64(seed ^ 0x5eed_c105),
            revision: OfRevision::default(),
        }
    }

    /// The clock of a role.
    pub(super) fn clock(&self, role: Address) -> Clock {
        self.nodes[self.node_of[&role]].clock
    }

    /// The id of the next request that a gateway accepts.
    pub(super) fn next_id(&mut self, owner: GatewayId, ordinal: u64) -> RequestId {
        let n = &mut self.n_accepted[owner.idx()];
        let life = match self.bug {
            Some(Bug::IdsRepeat) => Incarnation(0),
            _ => self.nodes[self.node_of[&Address::Gateway(owner)]].life,
        };
        let id = RequestId::at(owner, life, *n);
        *n += 1;
        self.ordinals.insert(id, ordinal);
        id
    }

    /// The ordinal of a request in the workload.
    pub(super) fn ordinal(&self, id: RequestId) -> u64 {
        self.ordinals.get(&id).copied().unwrap_or(u64::MAX)
    }

    /// How many times as long the device takes.
    pub(super) fn slow(&self, device: DeviceId) -> f64 {
        self.nodes[self.node_of[&Address::Device(device)]].slow
    }

    /// Until when the process of a role does nothing, if it does nothing now.
    pub(super) fn stalled(&self, now: Timestamp, role: Address) -> Option<Timestamp> {
        let until = self.nodes[self.node_of[&role]].stalled_until;
        (until > now).then_some(until)
    }

    /// How long after its end a request may still be bound: until the device has heard of it, or has lost its owner.
    pub(super) fn cancel_delay(&self) -> Duration {
        self.timing.death() + self.timing.suspicion()
    }
}

fn greeting(member: &Arc<Member>, hash: PipelineHash) -> Arc<Greeting> {
    Arc::new(Greeting {
        member: member.clone(),
        set: "simulated".into(),
        pipeline: "simulated".into(),
        hash,
        wire: WireVersions::OWN,
        published: None,
    })
}

impl World {
    /// Until when the process does nothing to which this happens.
    pub(super) fn stalled_until(&self, occurrence: &Occurrence) -> Option<Timestamp> {
        let cluster = self.cluster.as_ref()?;
        let of_device = |device: usize| Address::Device(DeviceId(device as u16));
        let role = match occurrence {
            Occurrence::BatchStart { device, .. }
            | Occurrence::BatchEnd { device, .. }
            | Occurrence::RerunEnd { device, .. }
            | Occurrence::ReadEnd { device, .. }
            | Occurrence::DeviceWakeup { device } => of_device(*device),
            Occurrence::GatewayWakeup { owner } => Address::Gateway(GatewayId(*owner as u16)),
            Occurrence::ControllerWakeup { module, .. } => Address::Controller(*module),
            Occurrence::Leave(request) => Address::Gateway(request.owner()),
            Occurrence::Cluster(Due::Session { pair, side }) => {
                let node = cluster.pairs[*pair].sides[*side].node;
                cluster.nodes[node].roles[0]
            }
            Occurrence::Cluster(Due::Arrives { pair, to, .. }) => {
                let node = cluster.pairs[*pair].sides[*to].node;
                cluster.nodes[node].roles[0]
            }
            Occurrence::Cluster(Due::Roster { node }) => cluster.nodes[*node].roles[0],
            Occurrence::Cluster(Due::Local(envelope)) => envelope.to,
            Occurrence::Cluster(Due::Offer { owner, .. }) => Address::Gateway(*owner),
            Occurrence::Cluster(Due::Change(_))
            | Occurrence::Hostile(_)
            | Occurrence::Camera { .. }
            | Occurrence::Disturbance(_)
            | Occurrence::Placed { .. }
            | Occurrence::FleetWakeup { .. } => return None,
        };
        cluster.stalled(self.now, role)
    }
}
