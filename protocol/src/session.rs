//! The session between two processes of a cluster: greeting, signs of life, the offset of the peer's clock, and dialling
//! again when it is lost.
//!
//! A session is a state machine without I/O. A driver performs its commands and brings it events, each with the time on
//! this process's own clock, which agrees with no other. The simulator and the gRPC link drive the same code.
//!
//! ```text
//!       dial, or accept            greeting
//! ready ───────────────▶ pending ───────────▶ greeted ──┐ sign of life, heartbeats,
//!   ▲                       │                   │  ▲    │ suspicion and trust
//!   │                       │ no greeting,      │  └────┘
//!   │ backoff, on the       │ refused           │ reset, silence, breach,
//!   │ side that dials       ▼                   ▼ a newer connection greets
//!   └────────────────────────────────────────  lost
//! ```
//!
//! **Sides.** One side dials, the other accepts; which is configured. Both send their greeting at once. The accepting side may have
//! a greeted connection and a newer one that has not greeted yet. When the newer one greets, the older one is lost and closed.
//! What comes on any other connection counts for nothing.
//!
//! **Loss.** Nothing is sent again. Any message may be lost with its connection, so the role above is told `Lost` for each
//! greeted connection that ends, and `Greeted` for each one that greets, also if the peer's incarnation is the same. `Greeted` is
//! never told twice without `Lost` between, nor `Lost` without `Greeted`.
//!
//! **Clocks.** Both sides send a heartbeat once the peer has greeted. A driver whose roles exchange times tells them of a peer
//! when its first heartbeat is answered, and of its loss only if it told of the peer. Then the clocks are known on both sides before
//! the first message comes: frames keep their order, so the peer has its answer before what this side says after its own.
//!
//! **Silence.** Whatever comes from the peer is a sign of life. A heartbeat is sent when nothing else was sent for a quarter of
//! the time until suspicion, and in any case every half of it. A peer that is silent for 1 s is suspected. So is one that speaks and
//! answers no heartbeat for so long: it may not hear. One that is silent for 3 s is lost ([`Timing`]). Plain timeouts suffice: an
//! accrual detector (Hayashibara et al., "The φ Accrual Failure Detector", 2004) adapts to networks whose delays vary by seconds, and
//! between machines of one cluster they vary by milliseconds.
//!
//! **Backoff.** The side that dials waits before each further dial, exponentially longer, with full jitter (AWS Architecture
//! Blog, 2015). A session that lasted for the longest backoff lets it begin anew, so a peer that greets and dies is
//! not dialled at a growing rate. A refused peer is dialled again with the longest backoff.
//!
//! **Several processes with one name.** In each rolling restart two lives of a process have one name for a while, and the one that
//! greeted last counts. A session knows its own peer only, so [`Roster`](crate::membership::Roster) says which session is to end, and the
//! driver gives it [`Event::End`]. A driver that does not know which peer it accepts gives each accepted connection a session of its
//! own, and drops the session when [`Session::is_idle`].
//!
//! **Rights.** Whether a peer may have the roles that it greets with follows from its certificate ([`rights`]). The driver asks when
//! the greeting comes, and brings [`Event::Refused`] in its place.
//!
//! Not here: encoding, encryption, lists of peers.

mod backoff;
pub(crate) mod clock;
pub mod entrance;
pub(crate) mod greeting;
mod live;
pub mod rights;
pub(crate) mod timing;

use std::sync::Arc;

use spillgate_pipeline::id::Incarnation;
use spillgate_pipeline::time::{Timestamp, format_duration};

use backoff::Backoff;
use live::{Live, Silence};

pub use clock::{Answer, Offset};
pub use greeting::{
    ADDRESS_BYTES_MAX, Greeting, NAME_BYTES_MAX, PipelineHash, ROLES_MAX, VERSION_BYTES_MAX,
    WireVersions, pipeline_of,
};
pub use timing::{Timing, TimingError};

/// The number of a connection in its session. A newer connection has a larger number. The side that dials numbers its dials by
/// itself; on the side that accepts the driver numbers what it accepts, from 1 on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Connection(pub u64);

/// Which process makes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// This one.
    Dials,
    /// The peer.
    Accepts,
}

/// What sessions say to each other. Frames of one connection arrive once and in order, or are lost with it. A decoder should
/// refuse lists over [`ROLES_MAX`] and texts over [`VERSION_BYTES_MAX`] before it makes room for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Who I am: the first frame of each side.
    Greeting(Arc<Greeting>),
    /// I live; answer me.
    Heartbeat {
        /// When it was sent, by the sender's clock.
        sent_at: Timestamp,
    },
    /// The answer to a heartbeat.
    Answer(Answer),
}

/// What a driver brings. It brings what has come before it wakes the session for a time that has passed.
#[derive(Clone, Debug)]
pub enum Event {
    /// The connection that was dialled stands, or one was accepted.
    Connected(Connection),
    /// The connection could not be made, was reset, or was closed by the peer.
    Ended {
        /// Which one.
        connection: Connection,
        /// Why, as a sentence.
        cause: String,
    },
    /// A frame of the session came.
    Received(Connection, Frame),
    /// There can be no session: one side may not be what it says it is. The peer is dialled again with the longest backoff.
    Refused {
        /// On which connection this was found.
        connection: Connection,
        /// What is wrong and what would be right.
        reason: String,
    },
    /// Something else came: a sign of life. It counts for the role above if this is [`Session::connection`].
    Traffic(Connection),
    /// Something else was sent: no heartbeat is needed for a while. A driver that does not say so has more heartbeats.
    Sent(Connection),
    /// The time of `next_wakeup` has come.
    Wakeup,
    /// The holder ends the session: another process has the peer's address now, the peer is to be reached no more, or this
    /// process ends. All later connections are closed.
    End {
        /// Why, as a sentence.
        cause: String,
    },
}

/// What a driver does, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Make a connection with the peer, by this number.
    Dial(Connection),
    /// Send a frame.
    Send(Connection, Frame),
    /// Close a connection, or give up making it. Nothing happens if it has ended.
    Close {
        /// Which one.
        connection: Connection,
        /// Why, as a sentence: for the log, and for the peer where the transport can carry it.
        cause: String,
    },
    /// Tell the role above.
    Tell(News),
}

/// What the role above hears about a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The peer greeted: messages of this incarnation count now.
    Greeted(Arc<Greeting>),
    /// The peer has been silent for a while, or answered no heartbeat. It may be slow, dead, or unable to hear.
    Suspected,
    /// A suspected peer gave a sign of life, and answers.
    Trusted,
    /// The connection with the peer ended. What was under way may be lost.
    Lost {
        /// The peer as it greeted.
        peer: Arc<Greeting>,
        /// Why, as a sentence.
        cause: String,
    },
    /// There can be no session with a peer that greeted, for this process or for the peer.
    Refused {
        /// What is wrong and what would be right, with the values of both sides.
        reason: String,
    },
}

/// A connection that has not greeted.
#[derive(Clone, Copy, Debug)]
struct Pending {
    connection: Connection,
    /// It stands; before, it is being made.
    is_made: bool,
    /// When it is given up.
    until: Timestamp,
}

/// A session with one peer. Its memory does not grow, and heartbeats allocate nothing.
#[derive(Debug)]
pub struct Session {
    timing: Timing,
    me: Arc<Greeting>,
    side: Side,
    backoff: Backoff,
    /// The largest number of a connection so far.
    newest: Connection,
    /// The connection on which the peer greeted.
    live: Option<Live>,
    /// The connection on which it may greet. The side that dials has a live connection, a pending one, or a time of
    /// the next dial.
    pending: Option<Pending>,
    dial_at: Option<Timestamp>,
    has_ended: bool,
}

impl Session {
    /// A session that begins now. The side that dials does so at its first wakeup. Waits are drawn from the seed: processes
    /// should have different ones.
    pub fn new(timing: Timing, me: Arc<Greeting>, side: Side, seed: u64, now: Timestamp) -> Self {
        Session {
            timing,
            me,
            side,
            backoff: Backoff::new(timing.backoff_first(), timing.backoff_longest(), seed),
            newest: Connection::default(),
            live: None,
            pending: None,
            dial_at: (side == Side::Dials).then_some(now),
            has_ended: false,
        }
    }

    /// The peer, while it is greeted.
    pub fn peer(&self) -> Option<&Arc<Greeting>> {
        self.live.as_ref().map(|live| &live.peer)
    }

    /// The connection on which the peer greeted: the one for messages to it, and the only one whose messages count.
    pub fn connection(&self) -> Option<Connection> {
        self.live.as_ref().map(|live| live.connection)
    }

    /// Whether a message counts that came on this connection: it is the one on which the peer greeted, and the message is of the
    /// peer's life. The driver ignores other messages, and those of which the sender is no role of the peer.
    pub fn admits(&self, connection: Connection, incarnation: Incarnation) -> bool {
        self.live.as_ref().is_some_and(|live| {
            live.connection == connection && live.peer.member.incarnation == incarnation
        })
    }

    /// Whether the peer is greeted and suspected.
    pub fn is_suspected(&self) -> bool {
        self.live.as_ref().is_some_and(|live| live.is_suspected)
    }

    /// Whether there is no connection, and none will be dialled.
    pub fn is_idle(&self) -> bool {
        self.live.is_none() && self.pending.is_none() && self.dial_at.is_none()
    }

    /// The peer's clock minus mine, with its error. `None` until the first heartbeat of the connection is answered.
    pub fn offset(&self, now: Timestamp) -> Option<Offset> {
        self.live.as_ref()?.clock.offset(now)
    }

    /// A timestamp of the peer's clock as one of mine. A peer may send any timestamp: one beyond the ends of my clock
    /// becomes the end. `None` until the first heartbeat of the connection is answered.
    pub fn to_mine(&self, theirs: Timestamp) -> Option<Timestamp> {
        self.live.as_ref()?.clock.to_mine(theirs)
    }

    /// When the session has something to do, if nothing comes before.
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        let pending = self.pending.map(|p| p.until);
        let live = self
            .live
            .as_ref()
            .map(|live| live.next_wakeup(&self.timing));
        [self.dial_at, pending, live].into_iter().flatten().min()
    }

    /// Something happened at a time on this process's clock.
    pub fn on_event(&mut self, now: Timestamp, event: Event, out: &mut Vec<Command>) {
        match event {
            Event::Connected(connection) => self.connected(now, connection, out),
            Event::Ended { connection, cause } => self.ended(now, connection, cause, out),
            Event::Received(connection, frame) => self.received(now, connection, frame, out),
            Event::Refused { connection, reason } => self.refuse(now, connection, reason, out),
            Event::Traffic(connection) if self.is_pending(connection) => {
                let cause = "the peer sent a message before its greeting";
                self.give_up(now, cause.to_owned(), out);
            }
            Event::Traffic(connection) => {
                let timing = self.timing;
                if let Some(live) = self.live_on(connection) {
                    live.hear(now, &timing, out);
                }
            }
            Event::Sent(connection) => {
                if let Some(live) = self.live_on(connection) {
                    live.sent(now);
                }
            }
            Event::Wakeup => self.wake(now, out),
            Event::End { cause } => self.end(now, cause, out),
        }
    }

    fn connected(&mut self, now: Timestamp, connection: Connection, out: &mut Vec<Command>) {
        let is_expected = match self.side {
            Side::Dials => (self.pending).is_some_and(|p| p.connection == connection && !p.is_made),
            Side::Accepts => connection > self.newest && !self.has_ended,
        };
        if !is_expected {
            let is_known = self.connection() == Some(connection) || self.is_pending(connection);
            if !is_known {
                let cause = "the connection is not wanted any more".to_owned();
                out.push(Command::Close { connection, cause });
            }
            return;
        }
        self.newest = connection;
        if self.side == Side::Accepts
            && let Some(older) = self.pending
        {
            out.push(Command::Close {
                connection: older.connection,
                cause: "a newer connection came before the peer greeted".to_owned(),
            });
        }
        self.pending = Some(Pending {
            connection,
            is_made: true,
            until: now + self.timing.death(),
        });
        out.push(Command::Send(connection, Frame::Greeting(self.me.clone())));
    }

    fn received(
        &mut self,
        now: Timestamp,
        connection: Connection,
        frame: Frame,
        out: &mut Vec<Command>,
    ) {
        if self.is_pending(connection) {
            match frame {
                Frame::Greeting(peer) => self.greet(now, connection, peer, out),
                Frame::Heartbeat { .. } | Frame::Answer(_) => {
                    let cause = "the peer sent a heartbeat before its greeting";
                    self.give_up(now, cause.to_owned(), out);
                }
            }
            return;
        }
        let timing = self.timing;
        let Some(live) = self.live_on(connection) else {
            return;
        };
        match frame {
            Frame::Greeting(_) => {
                let cause = "the peer greeted twice on one connection".to_owned();
                self.close(now, cause, out);
            }
            Frame::Heartbeat { sent_at } => {
                live.hear(now, &timing, out);
                let answer = Answer {
                    heartbeat_sent_at: sent_at,
                    received_at: now,
                    sent_at: now,
                };
                out.push(Command::Send(connection, Frame::Answer(answer)));
            }
            Frame::Answer(answer) => {
                live.clock.answered(now, answer);
                live.hear(now, &timing, out);
            }
        }
    }

    /// The peer greeted on the pending connection.
    fn greet(
        &mut self,
        now: Timestamp,
        connection: Connection,
        peer: Arc<Greeting>,
        out: &mut Vec<Command>,
    ) {
        if let Some(reason) = self.me.refuses(&peer) {
            return self.refuse(now, connection, reason, out);
        }
        let cause = match self.peer() {
            Some(old) if old.member.incarnation != peer.member.incarnation => "the peer began anew",
            _ => "the peer made a newer connection",
        };
        self.close(now, cause.to_owned(), out);
        self.pending = None;
        out.push(Command::Tell(News::Greeted(peer.clone())));
        let mut live = Live::new(now, connection, peer);
        live.heartbeat(now, out);
        self.live = Some(live);
    }

    /// There can be no session with the peer of a connection.
    fn refuse(
        &mut self,
        now: Timestamp,
        connection: Connection,
        reason: String,
        out: &mut Vec<Command>,
    ) {
        let is_live = self.connection() == Some(connection);
        if !is_live && !self.is_pending(connection) {
            return;
        }
        self.backoff.lengthen();
        match is_live {
            true => self.close(now, reason.clone(), out),
            false => self.give_up(now, reason.clone(), out),
        }
        out.push(Command::Tell(News::Refused { reason }));
    }

    /// The transport ended a connection.
    fn ended(
        &mut self,
        now: Timestamp,
        connection: Connection,
        cause: String,
        out: &mut Vec<Command>,
    ) {
        if self.pending.is_some_and(|p| p.connection == connection) {
            self.pending = None;
            self.dial_later(now);
        } else if self.live_on(connection).is_some() {
            self.lose(now, cause, out);
        }
    }

    fn wake(&mut self, now: Timestamp, out: &mut Vec<Command>) {
        if self.dial_at.is_some_and(|at| at <= now) {
            self.dial(now, out);
        }
        if let Some(pending) = self.pending.filter(|p| p.until <= now) {
            let what = if pending.is_made {
                "the peer did not greet"
            } else {
                "no connection was made"
            };
            let limit = format_duration(self.timing.death());
            self.give_up(now, format!("{what} within {limit}"), out);
        }
        match self.live.as_mut().map(|l| l.silence(now, &self.timing)) {
            Some(Silence::Death) => {
                let limit = format_duration(self.timing.death());
                self.close(now, format!("the peer was silent for {limit}"), out);
            }
            Some(Silence::Suspicion) => out.push(Command::Tell(News::Suspected)),
            Some(Silence::Bearable) | None => {}
        }
        if let Some(live) = &mut self.live
            && live.heartbeat_at(&self.timing) <= now
        {
            live.heartbeat(now, out);
        }
    }

    fn dial(&mut self, now: Timestamp, out: &mut Vec<Command>) {
        self.dial_at = None;
        self.newest = Connection(self.newest.0 + 1);
        self.pending = Some(Pending {
            connection: self.newest,
            is_made: false,
            until: now + self.timing.death(),
        });
        out.push(Command::Dial(self.newest));
    }

    fn end(&mut self, now: Timestamp, cause: String, out: &mut Vec<Command>) {
        self.has_ended = true;
        self.give_up(now, cause.clone(), out);
        self.close(now, cause, out);
        self.dial_at = None;
    }

    /// Closes the pending connection.
    fn give_up(&mut self, now: Timestamp, cause: String, out: &mut Vec<Command>) {
        if let Some(Pending { connection, .. }) = self.pending.take() {
            out.push(Command::Close { connection, cause });
            self.dial_later(now);
        }
    }

    /// Closes the connection on which the peer greeted.
    fn close(&mut self, now: Timestamp, cause: String, out: &mut Vec<Command>) {
        if let Some(connection) = self.connection() {
            out.push(Command::Close {
                connection,
                cause: cause.clone(),
            });
            self.lose(now, cause, out);
        }
    }

    /// The connection on which the peer greeted is no more.
    fn lose(&mut self, now: Timestamp, cause: String, out: &mut Vec<Command>) {
        if let Some(live) = self.live.take() {
            if now.since(live.greeted_at) >= self.timing.backoff_longest() {
                self.backoff.reset();
            }
            out.push(Command::Tell(News::Lost {
                peer: live.peer,
                cause,
            }));
            self.dial_later(now);
        }
    }

    fn dial_later(&mut self, now: Timestamp) {
        if self.side == Side::Dials {
            self.dial_at = Some(now + self.backoff.next());
        }
    }

    /// Whether a connection stands and has not greeted.
    fn is_pending(&self, connection: Connection) -> bool {
        self.pending
            .is_some_and(|p| p.is_made && p.connection == connection)
    }

    fn live_on(&mut self, connection: Connection) -> Option<&mut Live> {
        self.live
            .as_mut()
            .filter(|live| live.connection == connection)
    }
}

#[cfg(test)]
mod tests;
