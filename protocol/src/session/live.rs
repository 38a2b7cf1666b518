//! A connection on which the peer greeted: its signs of life and its clock.

use std::sync::Arc;
use std::time::Duration;

use super::clock::Clock;
use super::{Command, Connection, Frame, Greeting, News, Timing};
use spillgate_pipeline::time::Timestamp;

#[derive(Debug)]
pub(super) struct Live {
    pub(super) connection: Connection,
    pub(super) peer: Arc<Greeting>,
    pub(super) greeted_at: Timestamp,
    pub(super) is_suspected: bool,
    pub(super) clock: Clock,
    /// When the peer gave the last sign of life.
    heard_at: Timestamp,
    /// When it was last sent something that is no answer. Answers do not count: else the heartbeats of the peer would make
    /// those of this side rare.
    sent_at: Timestamp,
    /// When it was last sent a heartbeat.
    beat_at: Timestamp,
}

/// How long a peer has been silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Silence {
    /// Not long, or it is suspected already.
    Bearable,
    /// So long, or without an answer for so long, that it is suspected from now on.
    Suspicion,
    /// So long that it is lost.
    Death,
}

impl Live {
    pub(super) fn new(now: Timestamp, connection: Connection, peer: Arc<Greeting>) -> Self {
        Live {
            connection,
            peer,
            greeted_at: now,
            is_suspected: false,
            clock: Clock::default(),
            heard_at: now,
            sent_at: now,
            beat_at: now,
        }
    }

    /// The peer gives a sign of life.
    pub(super) fn hear(&mut self, now: Timestamp, timing: &Timing, out: &mut Vec<Command>) {
        self.heard_at = now;
        if self.is_suspected && self.unanswered(now) < timing.suspicion() {
            self.is_suspected = false;
            out.push(Command::Tell(News::Trusted));
        }
    }

    /// For how long a heartbeat has waited for its answer. A peer that speaks and answers none may not hear.
    fn unanswered(&self, now: Timestamp) -> Duration {
        let since = self.clock.unanswered_since();
        since.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// The peer was sent something that is no answer.
    pub(super) fn sent(&mut self, now: Timestamp) {
        self.sent_at = now;
    }

    /// Sends a heartbeat.
    pub(super) fn heartbeat(&mut self, now: Timestamp, out: &mut Vec<Command>) {
        self.sent_at = now;
        self.beat_at = now;
        self.clock.heartbeat(now);
        let frame = Frame::Heartbeat { sent_at: now };
        out.push(Command::Send(self.connection, frame));
    }

    /// When the next heartbeat is due.
    pub(super) fn heartbeat_at(&self, timing: &Timing) -> Timestamp {
        (self.sent_at + timing.period()).min(self.beat_at + timing.clock_period())
    }

    /// How long the peer has been silent. `Suspicion` is said once.
    pub(super) fn silence(&mut self, now: Timestamp, timing: &Timing) -> Silence {
        let silent = now.since(self.heard_at);
        let doubtful = silent.max(self.unanswered(now));
        if silent >= timing.death() {
            Silence::Death
        } else if doubtful >= timing.suspicion() && !self.is_suspected {
            self.is_suspected = true;
            Silence::Suspicion
        } else {
            Silence::Bearable
        }
    }

    pub(super) fn next_wakeup(&self, timing: &Timing) -> Timestamp {
        let heartbeat_at = self.heartbeat_at(timing);
        if self.is_suspected {
            return heartbeat_at.min(self.heard_at + timing.death());
        }
        let unanswered_since = self.clock.unanswered_since().unwrap_or(self.heard_at);
        let doubtful_since = self.heard_at.min(unanswered_since);
        heartbeat_at.min(doubtful_since + timing.suspicion())
    }
}
