//! Drives the sessions, and carries messages on their connections.

use rand::Rng;
use spillgate_pipeline::invariants::Violation;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{Address, Envelope, Message, ToController, ToDevice, ToGateway};
use spillgate_protocol::session::{Command, Connection, Event, Frame, News};

use super::revision::Notice;
use super::wire::{Load, UNDER_WAY_BYTES_MAX, UNDER_WAY_MAX};
use super::{Bug, Cluster, Due};
use crate::world::World;
use crate::world::agenda::Occurrence;
use crate::world::traffic;

/// Messages that a node remembers, for a rogue to repeat.
const REMEMBERED: usize = 64;

impl Cluster {
    /// A pair of nodes, and the side of the first one.
    pub(super) fn pair(&self, from: usize, to: usize) -> Option<(usize, usize)> {
        let pair = *self.pair_of.get(&[from.min(to), from.max(to)])?;
        let side = self.pairs[pair].sides.iter();
        let side = side.clone().position(|side| side.node == from)?;
        Some((pair, side))
    }

    /// Whether a message of planners is lost on purpose.
    fn loses(&mut self, message: &Message<()>) -> bool {
        let is_planners = match message {
            Message::Gateway(m) => matches!(m, ToGateway::State(_) | ToGateway::Plan(..)),
            Message::Controller(m) => matches!(m, ToController::Peer(_) | ToController::Demand(_)),
            Message::Device(m) => matches!(m, ToDevice::Guide(..)),
        };
        let is_lost = is_planners && self.loss > 0.0 && self.rng.random::<f64>() < self.loss;
        self.report.lost_on_purpose += u64::from(is_lost);
        is_lost
    }
}

impl World {
    pub(in crate::world) fn cluster(&mut self) -> &mut Cluster {
        let cluster = self.cluster.as_deref_mut();
        cluster.expect("only clusters have sessions")
    }

    /// Sends an envelope: within its process at once, else on the connection of the session.
    pub(in crate::world) fn carry(&mut self, envelope: Envelope<()>) -> Result<(), Violation> {
        self.count_sends(&envelope)?;
        // Under a policy that does not adapt, guidance is given once: it is lost with its connection only.
        let is_repeated = match envelope.from {
            Address::Controller(module) => self.controllers[module.idx()].repeats(),
            _ => true,
        };
        let cluster = self.cluster();
        let (from, to) = (
            cluster.node_of[&envelope.from],
            cluster.node_of[&envelope.to],
        );
        if from == to {
            let due = Due::Local(Box::new(envelope));
            self.agenda.at(self.now, Occurrence::Cluster(due));
            return Ok(());
        }
        let travelled = cluster.report.traffic.of(envelope.from, envelope.to);
        travelled.add(traffic::bytes(&envelope));
        if is_repeated && cluster.loses(&envelope.message) {
            return Ok(());
        }
        // A list of workers stands until its controller says otherwise: nobody can tell that it did not mean to repeat it.
        let is_list = matches!(
            envelope.message,
            Message::Gateway(ToGateway::Serve(_) | ToGateway::Retire(_))
        );
        if cluster.nodes[from].is_rogue && !is_list {
            let sent = &mut cluster.nodes[from].sent;
            if sent.len() == REMEMBERED {
                sent.pop_front();
            }
            sent.push_back(envelope.clone());
        }
        self.transmit(from, to, envelope)
    }

    /// Puts an envelope on the connection between two nodes, if there is one.
    pub(super) fn transmit(
        &mut self,
        from: usize,
        to: usize,
        envelope: Envelope<()>,
    ) -> Result<(), Violation> {
        let cluster = self.cluster();
        let connection = cluster.pair(from, to).and_then(|(pair, side)| {
            let end = &cluster.pairs[pair].sides[side];
            end.told.as_ref()?;
            let connection = end.session.as_ref()?.connection()?;
            Some((pair, side, connection))
        });
        let Some((pair, side, connection)) = connection else {
            cluster.report.unsent += 1;
            return Ok(());
        };
        let way = cluster.pairs[pair].way_of(side, connection);
        let way = way.expect("a session knows which connections stand");
        let of = &cluster.pairs[pair].ways[&way];
        let (n, bytes) = (of.under_way[1 - side], of.bytes[1 - side]);
        if n >= UNDER_WAY_MAX || bytes + traffic::bytes(&envelope) > UNDER_WAY_BYTES_MAX {
            cluster.report.full += 1;
            return self.end_way(pair, way, "its buffer is full");
        }
        if cluster.may_repeat {
            cluster.pairs[pair].remember(1 - side, &envelope);
        }
        self.put(pair, way, 1 - side, Load::Message(Box::new(envelope)));
        self.bring(pair, side, Event::Sent(connection))
    }

    /// Sends a load to a side of a pair.
    pub(super) fn put(&mut self, pair: usize, way: u64, to: usize, load: Load) {
        let now = self.now;
        let cluster = self.cluster();
        let at = cluster.pairs[pair].arrival(now, way, to, &mut cluster.rng);
        // A load that never arrives is under way for ever.
        if let Some(at) = at {
            if let Load::Message(envelope) = &load {
                let way = cluster.pairs[pair].ways.get_mut(&way);
                way.expect("what arrives has a way").bytes[to] += traffic::bytes(envelope);
            }
            let due = Due::Arrives {
                pair,
                way,
                to,
                load,
            };
            self.agenda.at(at, Occurrence::Cluster(due));
        }
    }

    /// Brings an event to a session and performs its commands.
    pub(super) fn bring(
        &mut self,
        pair: usize,
        side: usize,
        event: Event,
    ) -> Result<(), Violation> {
        let now = self.now;
        let cluster = self.cluster();
        let end = &mut cluster.pairs[pair].sides[side];
        let here = cluster.nodes[end.node].clock.read(now);
        let Some(session) = &mut end.session else {
            return Ok(());
        };
        let mut out = Vec::new();
        session.on_event(here, event, &mut out);
        for command in out {
            self.perform(pair, side, command)?;
        }
        self.tell_if_known(pair, side)?;
        self.arm_session(pair, side);
        Ok(())
    }

    pub(super) fn arm_session(&mut self, pair: usize, side: usize) {
        let now = self.now;
        let cluster = self.cluster();
        let end = &mut cluster.pairs[pair].sides[side];
        let clock = cluster.nodes[end.node].clock;
        let at = end.session.as_ref().and_then(|s| s.next_wakeup());
        if let Some(at) = at.map(|at| clock.moment(at).max(now))
            && at < end.armed
        {
            end.armed = at;
            let due = Due::Session { pair, side };
            self.agenda.at(at, Occurrence::Cluster(due));
        }
    }

    /// The roles of a side hear of its peer once the peer's clock is known.
    fn tell_if_known(&mut self, pair: usize, side: usize) -> Result<(), Violation> {
        let now = self.now;
        let cluster = self.cluster();
        let end = &mut cluster.pairs[pair].sides[side];
        let here = cluster.nodes[end.node].clock.read(now);
        let Some(session) = &end.session else {
            return Ok(());
        };
        if end.told.is_some() || session.offset(here).is_none() {
            return Ok(());
        }
        let Some(peer) = session.peer().cloned() else {
            return Ok(());
        };
        let node = end.node;
        if !self.is_still(pair, 1 - side, &peer) {
            // It began anew meanwhile, perhaps as another process.
            return Ok(());
        }
        let end = &mut self.cluster().pairs[pair].sides[side];
        end.told = Some(peer.clone());
        self.cluster().report.greeted += 1;
        let other = self.cluster().pairs[pair].sides[1 - side].node;
        self.meets(node, other, &peer)?;
        if self.cluster().pairs[pair].sides[side].told.is_none() {
            // The roster refused it.
            return Ok(());
        }
        self.cluster().notice(node, Notice::Met(other));
        self.repeat(pair, 1 - side)?;
        self.roles_meet(node, other, peer.member.incarnation)
    }

    /// What was sent to a side before the connection broke is sent once more. A device may run it once more, too.
    fn repeat(&mut self, pair: usize, to: usize) -> Result<(), Violation> {
        let cluster = self.cluster();
        let nodes = [1 - to, to].map(|side| cluster.pairs[pair].sides[side].node);
        for envelope in cluster.pairs[pair].take_again(to) {
            let cluster = self.cluster();
            if let Message::Device(message) = &envelope.message {
                let ids = message.requests().into_iter().map(|(_, id)| (id, ()));
                cluster.repeated.extend(ids);
            }
            cluster.report.repeated += 1;
            self.transmit(nodes[0], nodes[1], envelope)?;
        }
        Ok(())
    }

    fn perform(&mut self, pair: usize, side: usize, command: Command) -> Result<(), Violation> {
        match command {
            Command::Dial(connection) => self.dial(pair, connection),
            Command::Send(connection, frame) => {
                let node = self.cluster().pairs[pair].sides[side].node;
                let frame = self.cluster().with_published(node, frame);
                if let Some(way) = self.cluster().pairs[pair].way_of(side, connection) {
                    self.put(pair, way, 1 - side, Load::Frame(frame));
                }
            }
            Command::Close { connection, .. } => {
                let pairs = &mut self.cluster().pairs[pair];
                if let Some(way) = pairs.way_of(side, connection) {
                    pairs.ways[&way].is_open[side] = false;
                    self.put(pair, way, 1 - side, Load::Fin);
                }
            }
            Command::Tell(News::Lost { .. }) => {
                let cluster = self.cluster();
                let end = &mut cluster.pairs[pair].sides[side];
                if let Some(greeting) = end.told.take() {
                    cluster.report.lost += 1;
                    let sides = &cluster.pairs[pair].sides;
                    let [node, peer] = [side, 1 - side].map(|side| sides[side].node);
                    self.roles_part(node, peer)?;
                    self.parts(node, &greeting)?;
                }
            }
            Command::Tell(News::Suspected) => {
                self.roles_doubt(pair, side, true)?;
                self.doubts(pair, side, true)?;
            }
            Command::Tell(News::Trusted) => {
                self.roles_doubt(pair, side, false)?;
                self.doubts(pair, side, false)?;
            }
            // Roles hear of a peer when its clock is known.
            Command::Tell(News::Greeted(_)) => {}
            // Impostors, and those of other revisions.
            Command::Tell(News::Refused { .. }) => {}
        }
        Ok(())
    }

    /// The first side of a pair makes a connection.
    fn dial(&mut self, pair: usize, connection: Connection) {
        let now = self.now;
        let of = &mut self.cluster().pairs[pair];
        let is_broken = of.broken > now;
        let is_lost = of.blocked.iter().any(|until| *until > now);
        let way = of.dial(connection);
        if is_broken {
            self.put(pair, way, 0, Load::Fin);
        } else if !is_lost {
            self.put(pair, way, 1, Load::Standing);
        }
    }

    /// A connection ends for both sides, at once.
    pub(super) fn end_way(&mut self, pair: usize, way: u64, cause: &str) -> Result<(), Violation> {
        for side in [0, 1] {
            let of = &mut self.cluster().pairs[pair].ways[&way];
            if let (true, Some(connection)) = (of.is_open[side], of.numbers[side]) {
                of.is_open[side] = false;
                let cause = cause.to_owned();
                self.bring(pair, side, Event::Ended { connection, cause })?;
            }
        }
        Ok(())
    }

    /// What is due in the cluster.
    pub(in crate::world) fn fall_due(&mut self, due: Due) -> Result<(), Violation> {
        match due {
            Due::Session { pair, side } => {
                let now = self.now;
                let end = &mut self.cluster().pairs[pair].sides[side];
                if end.armed <= now {
                    end.armed = Timestamp::MAX;
                }
                self.bring(pair, side, Event::Wakeup)
            }
            Due::Roster { node } => self.wake_roster(node),
            Due::Arrives {
                pair,
                way,
                to,
                load,
            } => self.arrive(pair, way, to, load),
            Due::Local(envelope) => {
                let cluster = self.cluster();
                let node = &cluster.nodes[cluster.node_of[&envelope.to]];
                if node.is_down || node.life != envelope.incarnation {
                    return Ok(());
                }
                self.hand_over(*envelope)
            }
            Due::Offer { ordinal, owner } => self.offer_to(owner, ordinal),
            Due::Change(change) => self.change(change),
        }
    }

    fn arrive(&mut self, pair: usize, id: u64, to: usize, load: Load) -> Result<(), Violation> {
        let cluster = self.cluster();
        let of = &mut cluster.pairs[pair];
        let node = &cluster.nodes[of.sides[to].node];
        let Some(way) = of.ways.get_mut(&id) else {
            return Ok(());
        };
        way.under_way[to] -= 1;
        if let Load::Message(envelope) = &load {
            way.bytes[to] -= traffic::bytes(envelope);
        }
        if node.is_down && !node.serves_other {
            if !node.is_dark && !matches!(load, Load::Fin) {
                self.put(pair, id, 1 - to, Load::Fin);
            }
            return Ok(());
        }
        if matches!(load, Load::Standing) && to == 1 {
            let side = &mut of.sides[1];
            side.n_accepted += 1;
            way.numbers[1] = Some(Connection(side.n_accepted));
            way.is_open[1] = true;
            self.put(pair, id, 0, Load::Standing);
        }
        let way = &self.cluster().pairs[pair].ways[&id];
        let (connection, is_open) = (way.numbers[to], way.is_open[to]);
        let Some(connection) = connection else {
            return Ok(());
        };
        let event = match load {
            Load::Message(envelope) => return self.receive(pair, to, connection, *envelope),
            Load::Register(said) => return self.hear_member(pair, to, connection, said),
            Load::Revisions(said) => {
                self.hear_of_revisions(pair, to, connection, said);
                return Ok(());
            }
            // This side does not have the connection any more: the other one hears it.
            Load::Standing | Load::Frame(_) if !is_open => {
                self.put(pair, id, 1 - to, Load::Fin);
                return Ok(());
            }
            Load::Standing => Event::Connected(connection),
            Load::Frame(frame) => self.received(pair, to, connection, frame),
            Load::Fin => {
                let of = &mut self.cluster().pairs[pair];
                of.ways[&id].is_open[to] = false;
                of.forget();
                if !is_open {
                    return Ok(());
                }
                let cause = "it was reset".to_owned();
                Event::Ended { connection, cause }
            }
        };
        self.bring(pair, to, event)
    }

    /// A frame came. A greeting counts if the certificate of its sender allows it.
    fn received(&mut self, pair: usize, to: usize, connection: Connection, frame: Frame) -> Event {
        let peer = self.cluster().pairs[pair].sides[1 - to].node;
        let is_checked = self.cluster().bug != Some(Bug::NamesUnchecked);
        let refused = match &frame {
            Frame::Greeting(greeting) if is_checked => self.forbids(peer, greeting),
            _ => None,
        };
        if let (Frame::Greeting(greeting), None) = (&frame, &refused) {
            let node = self.cluster().pairs[pair].sides[to].node;
            self.hear_greeting(node, greeting);
        }
        match refused {
            Some(reason) => Event::Refused { connection, reason },
            None => Event::Received(connection, frame),
        }
    }

    /// A message came on a connection.
    fn receive(
        &mut self,
        pair: usize,
        to: usize,
        connection: Connection,
        mut envelope: Envelope<()>,
    ) -> Result<(), Violation> {
        self.bring(pair, to, Event::Traffic(connection))?;
        let cluster = self.cluster();
        let end = &cluster.pairs[pair].sides[to];
        let Some(session) = &end.session else {
            return Ok(());
        };
        let unchecked = cluster.bug == Some(Bug::LivesUnchecked);
        let peer = cluster.pairs[pair].sides[1 - to].node;
        let admits = session.admits(connection, envelope.incarnation)
            && cluster.nodes[peer].roles.contains(&envelope.from);
        let node = end.node;
        let is_here = cluster.nodes[node].roles.contains(&envelope.to);
        if !is_here || end.told.is_none() || !(admits || unchecked) {
            cluster.report.ignored += 1;
            return Ok(());
        }
        if unchecked && let Some(peer) = &end.told {
            envelope.incarnation = peer.member.incarnation;
        }
        let to_mine = |theirs| session.to_mine(theirs);
        envelope
            .message
            .translate(|theirs| to_mine(theirs).expect("roles are told when clocks are known"));
        self.check_revision(node, &envelope)?;
        self.hand_over(envelope)
    }

    /// The device of a message may refuse it: gateways and controllers look themselves.
    pub(in crate::world) fn is_refused(&mut self, envelope: &Envelope<()>) -> bool {
        let Message::Device(message) = &envelope.message else {
            return false;
        };
        let is_for = message.is_for(envelope.from, &self.all_places);
        let fits = matches!(envelope.to, Address::Device(_)) && is_for;
        self.cluster().report.ignored += u64::from(!fits);
        !fits
    }
}
