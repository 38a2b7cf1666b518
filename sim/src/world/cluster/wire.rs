//! Connections between two nodes, and what travels on them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::revision::Said;
use crate::cluster::Travel;
use indexmap::IndexMap;
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::membership::MemberList;
use spillgate_protocol::message::Envelope;
use spillgate_protocol::session::{Connection, Frame, Greeting, Session};

/// Longest jitter, in means.
const JITTER_MAX: f64 = 20.0;

/// Messages under way in one direction of a connection. A link whose buffer is full is closed: its peer takes nothing.
pub(super) const UNDER_WAY_MAX: usize = 4096;

/// Bytes under way in one direction of a connection, without payloads.
pub(super) const UNDER_WAY_BYTES_MAX: usize = 1 << 20;

/// Messages that may come twice when a connection breaks.
const RECENT: usize = 32;

/// What a connection brings.
#[derive(Debug)]
pub(in crate::world) enum Load {
    /// The connection itself.
    Standing,
    Frame(Frame),
    Message(Box<Envelope<()>>),
    /// What processes say of each other.
    Register(Registration),
    /// What processes say of revisions.
    Revisions(Said),
    /// Its end.
    Fin,
}

/// What processes say of each other.
#[derive(Debug)]
pub(in crate::world) enum Registration {
    /// A controller's list.
    List(MemberList),
    /// The sender ends what it has, and then goes.
    Leaves,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Route {
    /// The number that each side gave it.
    pub(super) numbers: [Option<Connection>; 2],
    /// Whether each side has it still.
    pub(super) is_open: [bool; 2],
    /// When the last thing sent to each side arrives.
    last: [Timestamp; 2],
    /// Loads under way to each side.
    pub(super) under_way: [usize; 2],
    /// Their bytes.
    pub(super) bytes: [usize; 2],
}

/// One side of a pair.
pub(super) struct Side {
    pub(super) node: usize,
    /// `None` while the node is down.
    pub(super) session: Option<Session>,
    /// Earliest wakeup in the agenda; later ones need none.
    pub(super) armed: Timestamp,
    /// Connections that it accepted.
    pub(super) n_accepted: u64,
    /// The peer as the roles of this side know it: it greeted, and its clock is known.
    pub(super) told: Option<Arc<Greeting>>,
}

/// Two nodes that talk. The first one dials.
pub(super) struct Pair {
    pub(super) sides: [Side; 2],
    travel: Travel,
    pub(super) ways: IndexMap<u64, Route, FxBuildHasher>,
    next_way: u64,
    /// Nothing arrives at each side before that.
    pub(super) blocked: [Timestamp; 2],
    /// No connection is made before that.
    pub(super) broken: Timestamp,
    /// What was sent to each side last.
    recent: [VecDeque<Envelope<()>>; 2],
    /// What comes to each side once more, first on the next connection.
    again: [VecDeque<Envelope<()>>; 2],
}

impl Pair {
    pub(super) fn new(nodes: [usize; 2], travel: Travel) -> Self {
        Pair {
            sides: nodes.map(|node| Side {
                node,
                session: None,
                armed: Timestamp::MAX,
                n_accepted: 0,
                told: None,
            }),
            travel,
            ways: IndexMap::default(),
            next_way: 0,
            blocked: [Timestamp::ZERO; 2],
            broken: Timestamp::ZERO,
            recent: Default::default(),
            again: Default::default(),
        }
    }

    /// An envelope is sent to a side.
    pub(super) fn remember(&mut self, to: usize, envelope: &Envelope<()>) {
        let recent = &mut self.recent[to];
        if recent.len() == RECENT {
            recent.pop_front();
        }
        recent.push_back(envelope.clone());
    }

    /// What was sent last comes once more on the next connection.
    pub(super) fn keep_for_next(&mut self) {
        self.again = std::mem::take(&mut self.recent);
    }

    /// What comes to a side once more.
    pub(super) fn take_again(&mut self, to: usize) -> VecDeque<Envelope<()>> {
        std::mem::take(&mut self.again[to])
    }

    /// The first side makes a connection.
    pub(super) fn dial(&mut self, connection: Connection) -> u64 {
        let id = self.next_way;
        self.next_way += 1;
        let way = Route {
            numbers: [Some(connection), None],
            is_open: [true, false],
            last: [Timestamp::ZERO; 2],
            under_way: [0; 2],
            bytes: [0; 2],
        };
        self.ways.insert(id, way);
        id
    }

    /// The connection that a side has by that number.
    pub(super) fn way_of(&self, side: usize, connection: Connection) -> Option<u64> {
        let mut ways = self.ways.iter().rev();
        let has_it = |way: &Route| way.is_open[side] && way.numbers[side] == Some(connection);
        ways.find(|(_, way)| has_it(way)).map(|(id, _)| *id)
    }

    /// When a load that is sent now arrives at a side: after all that was sent on the connection before.
    pub(super) fn arrival(
        &mut self,
        now: Timestamp,
        way: u64,
        to: usize,
        rng: &mut ChaCha8Rng,
    ) -> Option<Timestamp> {
        let Travel { delay, jitter } = self.travel;
        let extra = match jitter {
            Duration::ZERO => Duration::ZERO,
            mean => mean.mul_f64((-(1.0 - rng.random::<f64>()).ln()).min(JITTER_MAX)),
        };
        let leaves = now.max(self.blocked[to]);
        let way = self.ways.get_mut(&way)?;
        let at = (leaves + delay + extra).max(way.last[to]);
        way.last[to] = at;
        way.under_way[to] += 1;
        Some(at)
    }

    /// Forgets connections that neither side has and on which nothing is under way.
    pub(super) fn forget(&mut self) {
        self.ways
            .retain(|_, way| way.is_open != [false; 2] || way.under_way != [0; 2]);
    }
}
