//! The revisions of a process without a gateway: workers and controllers follow what gateways admit to.
//!
//! A process starts each revision that is published beside those that it has. Gateways decide where requests go. A revision that is
//! not the published one ends once no gateway has greeted for it for a while, and one has for the published one: so what gateways
//! keep to go back to is kept here, and what they took back goes. While no gateway is there nothing ends.
//!
//! It admits to the published revision in name alone: gateways know where requests go, and `/status` shows that one.
//!
//! Where there is no room for two ([`Strategy::Recreate`](super::Strategy)), the former one ends first, as soon as no gateway greets
//! for it. It starts again where the new one cannot: a process without any revision would have no sessions, and hear of no other one.

use std::time::Duration;

use spillgate_pipeline::time::Timestamp;

use super::RevisionId;
use super::view::{RevisionState, RevisionView};
use super::{Admission, Command, Share};

/// For so long no gateway has greeted for a revision that ends: sessions that break are there again within two seconds.
pub const UNUSED: Duration = Duration::from_secs(3);
/// Most revisions that live: the one that is published, the one before, and one that ends.
pub const REVISIONS_MAX: usize = 3;

/// What happens to the revisions of a process without a gateway.
#[derive(Clone, Debug, PartialEq)]
pub enum Followed<'a> {
    /// This revision is published. `alone`: it starts once no other one lives.
    Offered {
        /// The revision.
        id: RevisionId,
        /// Whether there is no room for two.
        alone: bool,
    },
    /// A revision that was to start can serve.
    Ready(RevisionId),
    /// It could not start, for this reason.
    NotStarted(RevisionId, &'a str),
    /// So many gateways have greeted for a revision, and are there.
    Gateways(RevisionId, usize),
    /// The time of [`Following::next_wakeup`] has come.
    Wakeup,
}

/// A revision that lives, or starts.
#[derive(Clone, Debug)]
struct Follower {
    id: RevisionId,
    is_ready: bool,
    gateways: usize,
    /// Since when no gateway is there.
    unused_since: Timestamp,
    since: Timestamp,
}

/// The revisions of a process without a gateway, as a state machine.
#[derive(Clone, Debug)]
pub struct Following {
    live: Vec<Follower>,
    published: RevisionId,
    /// The published one is to start once there is room.
    waits: bool,
    alone: bool,
    /// What ended last.
    former: Option<RevisionId>,
    /// What could not be started last, why, and when.
    failed: Option<(RevisionId, String, Timestamp)>,
}

impl Following {
    /// This revision lives since then.
    pub fn new(now: Timestamp, serves: RevisionId) -> Self {
        Following {
            live: vec![Follower {
                is_ready: true,
                ..Follower::new(now, serves)
            }],
            published: serves,
            waits: false,
            alone: false,
            former: None,
            failed: None,
        }
    }

    /// Tells what happened.
    pub fn on_event(&mut self, now: Timestamp, event: Followed<'_>, out: &mut Vec<Command>) {
        match event {
            Followed::Offered { id, alone } => {
                self.published = id;
                self.alone = alone;
                self.failed = None;
                let live = self.live.iter().find(|of| of.id == id);
                self.waits = live.is_none();
                if live.is_some_and(|of| of.is_ready) {
                    out.push(Command::Admit(Admission::One(id)));
                }
            }
            Followed::Ready(id) => match self.live.iter_mut().find(|of| of.id == id) {
                Some(of) => {
                    of.is_ready = true;
                    if id == self.published {
                        out.push(Command::Admit(Admission::One(id)));
                    }
                }
                None => out.push(Command::End(id)),
            },
            Followed::NotStarted(id, why) => self.not_started(now, id, why, out),
            Followed::Gateways(id, n) => {
                if let Some(of) = self.live.iter_mut().find(|of| of.id == id) {
                    if of.gateways > 0 && n == 0 {
                        of.unused_since = now;
                    }
                    of.gateways = n;
                }
            }
            Followed::Wakeup => {}
        }
        self.end_unused(now, out);
        self.start_what_waits(now, out);
    }

    /// When it wants to be woken.
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        let unused = self.live.iter().filter(|of| self.may_end(of));
        unused.map(|of| of.unused_since + UNUSED).min()
    }

    /// Whether the revision lives, or starts, or is to start, or may be started again.
    pub fn knows(&self, id: RevisionId) -> bool {
        let lives = self.live.iter().any(|of| of.id == id);
        lives || self.published == id || self.former == Some(id)
    }

    /// Its revisions as they are.
    pub fn view(&self) -> Vec<RevisionView> {
        let live = self.live.iter().map(|of| RevisionView {
            id: of.id,
            // Gateways know where requests go.
            share: Share::NONE,
            state: match (of.is_ready, of.id == self.published) {
                (false, _) => RevisionState::Starting,
                (true, true) if self.live.len() == 1 => RevisionState::Stable,
                (true, true) => RevisionState::Watching,
                (true, false) => RevisionState::Old,
            },
            since: Some(of.since),
            why: None,
        });
        let failed = self.failed.iter().map(|(id, why, at)| RevisionView {
            id: *id,
            share: Share::NONE,
            state: RevisionState::TakenBack,
            since: Some(*at),
            why: Some(why.clone()),
        });
        live.chain(failed).collect()
    }

    /// Whether a revision without gateways may end: another one is published, and used or waiting for its place.
    fn may_end(&self, of: &Follower) -> bool {
        let is_used = |other: &Follower| other.id == self.published && other.gateways > 0;
        let gives_way = self.waits && (self.alone || self.live.len() >= REVISIONS_MAX);
        of.id != self.published && of.gateways == 0 && (gives_way || self.live.iter().any(is_used))
    }

    fn end_unused(&mut self, now: Timestamp, out: &mut Vec<Command>) {
        let ends = |of: &Follower| self.may_end(of) && now >= of.unused_since + UNUSED;
        let ended: Vec<RevisionId> = self
            .live
            .iter()
            .filter(|of| ends(of))
            .map(|of| of.id)
            .collect();
        self.live.retain(|of| !ended.contains(&of.id));
        self.former = ended.last().copied().or(self.former);
        out.extend(ended.into_iter().map(Command::End));
    }

    fn start_what_waits(&mut self, now: Timestamp, out: &mut Vec<Command>) {
        let most = match self.alone {
            true => 0,
            false => REVISIONS_MAX - 1,
        };
        if self.waits && self.live.len() <= most {
            self.waits = false;
            self.live.push(Follower::new(now, self.published));
            out.push(Command::Start(self.published));
        }
    }

    fn not_started(&mut self, now: Timestamp, id: RevisionId, why: &str, out: &mut Vec<Command>) {
        let starts = self.live.iter().position(|of| of.id == id && !of.is_ready);
        match starts {
            Some(at) => drop(self.live.remove(at)),
            None if self.waits && self.published == id => self.waits = false,
            None => return,
        }
        self.failed = Some((id, why.to_owned(), now));
        out.push(Command::TakenBack(id, why.to_owned()));
        if self.live.is_empty()
            && let Some(former) = self.former.take().filter(|former| *former != id)
        {
            // It may be published again meanwhile: then it waits for nothing any more.
            self.waits &= former != self.published;
            self.live.push(Follower::new(now, former));
            out.push(Command::Start(former));
        }
    }
}

impl Follower {
    fn new(now: Timestamp, id: RevisionId) -> Self {
        Follower {
            id,
            is_ready: false,
            gateways: 0,
            unused_since: now,
            since: now,
        }
    }
}

#[cfg(test)]
mod tests;
