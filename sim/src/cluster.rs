//! A cluster for the simulator: its nodes, the network between them, and what goes wrong. [`crate::cluster_file`] reads it from YAML.

use std::sync::Arc;
use std::time::Duration;

use spillgate_controller_policy::rollout::RolloutConfig;

use spillgate_protocol::message::Address;

/// A cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cluster {
    /// The processes. Each role is on one of them.
    pub nodes: Vec<Node>,
    /// The travel of messages between nodes, unless a link says otherwise.
    pub travel: Travel,
    /// Links of their own travel.
    pub links: Vec<NodeLink>,
    /// Processes know each other by registration and lists alone, rather than from the start.
    pub registers: bool,
    /// Faults that are scripted.
    pub faults: Vec<Scripted>,
    /// Faults that are drawn from the seed.
    pub draws: Option<Draws>,
    /// What operators publish; `None`: all processes serve one revision.
    pub rollouts: Option<Arc<Rollouts>>,
}

/// The revisions of a run, and what operators do with them. Processes begin with revision 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Rollouts {
    /// How gateways move admission.
    pub config: RolloutConfig,
    /// The longest time that a process takes to start a revision.
    pub start: Duration,
    /// When operators do something, in order.
    pub operations: Vec<(Duration, Operation)>,
    /// By revision, from 1 on: what is wrong with it.
    pub flaws: Vec<Flaw>,
}

/// What an operator does at a node with a controller. Nothing happens where it is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The node.
    pub node: usize,
    /// The revision that is to be served; `None`: the last publication is undone.
    pub publishes: Option<u64>,
}

/// What is wrong with a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Nothing.
    None,
    /// It does not start on this node.
    NotStarted(usize),
    /// Its modules fail all requests.
    Fails,
}

/// A process with its roles.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its roles, at least one.
    pub roles: Vec<Address>,
    /// What part of the requests its gateway accepts, relative to those of the other gateways.
    pub share: f64,
    /// Its clock minus that of the world at the start, in nanoseconds.
    pub ahead_ns: i64,
    /// How much faster its clock runs, in parts per million.
    pub drift_ppm: i64,
}

/// The travel of messages: a fixed time, and an exponential one. A connection keeps their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Travel {
    /// The fixed time.
    pub delay: Duration,
    /// The mean of the exponential time.
    pub jitter: Duration,
}

/// The link between two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeLink {
    /// The nodes, by position.
    pub between: [usize; 2],
    /// The travel of messages in both directions.
    pub travel: Travel,
}

/// A fault at its time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scripted {
    /// When it begins, from the start of the run.
    pub at: Duration,
    /// How long it lasts.
    pub lasts: Duration,
    /// What it is.
    pub fault: Fault,
}

/// What goes wrong. Nodes are named by position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// The connections between two nodes end at once, and none can be made.
    Break {
        /// The nodes.
        between: [usize; 2],
        /// What was under way still comes, late: behind what a newer connection brings first.
        late: bool,
        /// What was sent last comes once more, as the first on the next connection.
        twice: bool,
    },
    /// Nothing arrives in this direction, and nobody hears why. What is sent comes when it is over.
    Partition {
        /// The sending node.
        from: usize,
        /// The receiving node.
        to: usize,
        /// The other direction, too.
        both: bool,
    },
    /// A node crashes and begins anew, empty and in another incarnation.
    Crash {
        /// The node.
        node: usize,
        /// Its machine goes, too: connections end without a word.
        silent: bool,
    },
    /// A node is not there for a while, and joins anew.
    Away {
        /// The node.
        node: usize,
        /// It says that it leaves, and ends what it has first. Else it crashes.
        leaves: bool,
        /// It comes back as another process, by another name.
        renamed: bool,
    },
    /// A node begins anew with the name of another one. Its certificate is for the name that it had.
    Impostor {
        /// The node.
        node: usize,
        /// The other one.
        of: usize,
    },
    /// The devices of a node take so many times as long.
    Slow {
        /// The node.
        node: usize,
        /// How many times.
        factor: f64,
    },
    /// A node does nothing for a while, now and then.
    Stall {
        /// The node.
        node: usize,
        /// For how long.
        pause: Duration,
        /// From one beginning to the next.
        every: Duration,
    },
    /// Messages that planners live on are lost: demand, states, plans and guidance.
    Loss {
        /// What part.
        part: f64,
    },
    /// A node repeats old messages, speaks in the name of others and invents requests.
    Rogue {
        /// The node.
        node: usize,
        /// So many messages a second.
        rate: f64,
    },
}

impl Scripted {
    /// Whether messages come twice.
    pub fn repeats(&self) -> bool {
        matches!(self.fault, Fault::Break { twice: true, .. })
    }
}

/// Faults drawn from the seed of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draws {
    /// How many.
    pub n: u32,
    /// When the first may begin.
    pub from: Duration,
    /// When all are over.
    pub until: Duration,
}

impl Node {
    /// A node with these roles, equal to all others.
    pub fn new(name: String, roles: Vec<Address>) -> Self {
        Node {
            name,
            roles,
            share: 1.0,
            ahead_ns: 0,
            drift_ppm: 0,
        }
    }

    /// Whether the roles of two nodes have anything to say to each other.
    pub fn talks_to(&self, other: &Node) -> bool {
        let mut roles = self.roles.iter();
        roles.any(|a| other.roles.iter().any(|b| a.speaks_to(*b)))
    }
}

impl Cluster {
    /// The node of a role.
    pub fn node_of(&self, role: Address) -> Option<usize> {
        self.nodes
            .iter()
            .position(|node| node.roles.contains(&role))
    }

    /// The share of each gateway, by its id.
    pub fn shares(&self) -> Vec<f64> {
        let mut shares: Vec<(u16, f64)> = Vec::new();
        for node in &self.nodes {
            for role in &node.roles {
                if let Address::Gateway(id) = role {
                    shares.push((id.0, node.share));
                }
            }
        }
        shares.sort_unstable_by_key(|(id, _)| *id);
        shares.into_iter().map(|(_, share)| share).collect()
    }

    /// When the last scripted or drawn fault is over.
    pub fn heals_at(&self) -> Duration {
        let scripted = self.faults.iter().map(|f| f.at + f.lasts).max();
        let drawn = self.draws.map(|draws| draws.until);
        scripted.max(drawn).unwrap_or_default()
    }

    /// The same without faults.
    #[must_use]
    pub fn undisturbed(&self) -> Cluster {
        Cluster {
            faults: Vec::new(),
            draws: None,
            rollouts: None,
            ..self.clone()
        }
    }
}
