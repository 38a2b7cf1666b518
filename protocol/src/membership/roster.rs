//! Which processes there are, as one process sees it: a state machine without I/O, which the simulator and the links drive.
//!
//! ```text
//!  worker, gateway                    controllers                        gateways
//!        │ dials, greets                   │                                 │
//!        ├────────────────────────────────▶│ joined                          │
//!        │                                 ├── list: its members, with ─────▶│ joined
//!        │                                 │   where they are reached        │
//!        │◀────────────────────────────────┼───────────── dials, greets ─────┤
//!        │ leaves, or is lost              │                                 │
//!        ├────────────────────────────────▶├── list without it ─────────────▶│ left
//! ```
//!
//! A process is known from its greeting, or from the list of a controller. It is forgotten when it has no session here and no
//! list has it: at once if it said that it leaves, else after [`FORGET_AFTER`]. So workers stay known while a controller begins anew and its
//! first lists lack them, and while they begin anew themselves. What a controller published last holds while it is away; where it
//! stays away and another controller has come, the other one's list holds.
//!
//! A static topology names processes that are known from the start and never forgotten.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::id::Incarnation;
use spillgate_pipeline::time::Timestamp;

use super::Member;

/// Most processes that one knows: registrations beyond are refused.
pub const MEMBERS_MAX: usize = 1024;

/// Most roles and workers of all processes that one knows: their ids are numbers of 16 bits.
pub const ROLES_KNOWN_MAX: usize = 1 << 15;

/// So long a process stays known that is gone without a word. Longer than a process of which the connections broke needs to be back,
/// and than a controller that begins anew needs until all have registered again.
pub const FORGET_AFTER: Duration = Duration::from_secs(10);

/// Lives of processes of which another one has taken the name. They may dial until they end.
pub const REPLACED_MAX: usize = 256;

/// Changes of this time go into one list: processes come in dozens when a machine begins.
pub const PUBLISH_DELAY: Duration = Duration::from_millis(50);

/// What a process does, as a controller sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// It is known, and has no session with the controller.
    Joining,
    /// It is there.
    Serving,
    /// It ends what it has, and then goes.
    Leaving,
    /// It is silent.
    Suspected,
}

/// A process in the list of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The process.
    pub member: Arc<Member>,
    /// What it does.
    pub state: MemberState,
}

/// What a controller publishes: all worker processes that registered.
pub type MemberList = Vec<Listed>;

/// What happens.
#[derive(Clone, Debug)]
pub enum Event {
    /// A process greeted, and its clock is known.
    Greeted(Arc<Member>),
    /// The session with that life of a process ended.
    Lost(Arc<str>, Incarnation),
    /// A process is silent.
    Suspected(Arc<str>),
    /// A suspected process spoke again.
    Trusted(Arc<str>),
    /// A process says that it ends what it has, and then goes.
    Leaves(Arc<str>),
    /// A process published a list.
    List(Arc<str>, MemberList),
    /// The time of [`Roster::next_wakeup`] has come.
    Wakeup,
}

/// What the driver does, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A process joins: its roles get ids, and this process's roles hear of its workers.
    Joined(Arc<Member>),
    /// A process is none of them any more: roles are told, then its ids are free.
    Left(Arc<Member>),
    /// Have a session with the process at that address.
    Dial(Arc<Member>),
    /// End the session with a process, and dial it no more.
    HangUp(Arc<str>),
    /// Send the list to a process.
    Publish(Arc<str>, MemberList),
    /// Another process takes the place of that life of a process, by its name or by another one: the session with it is to end, and
    /// both are to be named.
    Replaced(Arc<str>, Incarnation, Arc<str>),
    /// A process that greeted is none of them, in that life: its session is to end.
    Refuse(Arc<str>, Incarnation, Refusal),
}

/// Why a process that greeted is none of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There are [`MEMBERS_MAX`] already, or their roles would be more than [`ROLES_KNOWN_MAX`].
    Full,
    /// It has the name of this process.
    Own,
    /// Another process has taken its name since it greeted first.
    Replaced,
    /// The process of that name holds a controller of the same module.
    Holds(Arc<str>),
}

/// A life of a process of which another one has taken the name. Once the one that has the name is gone, the name is free again.
#[derive(Clone, Debug)]
struct Replaced {
    name: Arc<str>,
    life: Incarnation,
}

/// The session with a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionState {
    /// There is none since then.
    Gone(Timestamp),
    Greeted,
    Suspected,
}

#[derive(Clone, Debug)]
struct Entry {
    member: Arc<Member>,
    session: SessionState,
    is_leaving: bool,
    is_dialled: bool,
    /// Named by a static topology.
    is_fixed: bool,
    /// The controllers whose lists have it.
    listed_by: Vec<Arc<str>>,
}

impl Entry {
    fn new(member: Arc<Member>, now: Timestamp) -> Self {
        Entry {
            member,
            session: SessionState::Gone(now),
            is_leaving: false,
            is_dialled: false,
            is_fixed: false,
            listed_by: Vec::new(),
        }
    }

    fn has_session(&self) -> bool {
        !matches!(self.session, SessionState::Gone(_))
    }

    /// When it is to be forgotten, if nothing happens.
    fn forget_at(&self) -> Option<Timestamp> {
        match self.session {
            SessionState::Gone(at) if !self.is_fixed && self.listed_by.is_empty() => {
                Some(if self.is_leaving {
                    at
                } else {
                    at + FORGET_AFTER
                })
            }
            _ => None,
        }
    }

    fn state(&self) -> MemberState {
        match self.session {
            _ if self.is_leaving => MemberState::Leaving,
            SessionState::Gone(_) => MemberState::Joining,
            SessionState::Greeted => MemberState::Serving,
            SessionState::Suspected => MemberState::Suspected,
        }
    }
}

/// The processes that one knows, but for itself.
#[derive(Clone, Debug)]
pub struct Roster {
    me: Arc<Member>,
    entries: IndexMap<Arc<str>, Entry, FxBuildHasher>,
    replaced: VecDeque<Replaced>,
    /// When the next list goes out.
    publishes_at: Option<Timestamp>,
}

impl Roster {
    /// A process that knows those of a static topology, if there is one.
    pub fn new(
        me: Arc<Member>,
        fixed: &[Arc<Member>],
        now: Timestamp,
        out: &mut Vec<Command>,
    ) -> Self {
        let mut roster = Roster {
            me,
            entries: IndexMap::default(),
            replaced: VecDeque::new(),
            publishes_at: None,
        };
        for member in fixed.iter().filter(|m| m.name != roster.me.name) {
            let me = &roster.me;
            let entry = Entry {
                is_fixed: true,
                is_dialled: me.speaks_to(member) && me.dials(member),
                ..Entry::new(member.clone(), now)
            };
            out.push(Command::Joined(member.clone()));
            if entry.is_dialled {
                out.push(Command::Dial(member.clone()));
            }
            roster.entries.insert(member.name.clone(), entry);
        }
        roster
    }

    /// The next moment at which something happens without an event from outside.
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        let forgets = self.entries.values().filter_map(Entry::forget_at);
        forgets.chain(self.publishes_at).min()
    }

    /// All processes, but for this one.
    pub fn list(&self) -> impl Iterator<Item = (&Arc<Member>, MemberState)> {
        self.entries.values().map(|e| (&e.member, e.state()))
    }

    /// Takes in one event.
    pub fn on_event(&mut self, now: Timestamp, event: Event, out: &mut Vec<Command>) {
        match event {
            Event::Greeted(member) => self.greeted(now, member, out),
            Event::Lost(name, life) => {
                let entry = self.entries.get_mut(&name);
                if let Some(entry) = entry.filter(|e| e.member.incarnation == life) {
                    entry.session = SessionState::Gone(now);
                    // The name is free: whoever had it before may have it again.
                    self.replaced.retain(|r| r.name != name);
                    self.changed(now, &name);
                }
            }
            Event::Suspected(name) => self.doubt(now, &name, SessionState::Suspected),
            Event::Trusted(name) => self.doubt(now, &name, SessionState::Greeted),
            Event::Leaves(name) => {
                if let Some(entry) = self.entries.get_mut(&name) {
                    entry.is_leaving = true;
                    self.changed(now, &name);
                }
            }
            Event::List(from, list) => self.hear(now, &from, list, out),
            Event::Wakeup => {}
        }
        self.forget(now, out);
        if self.publishes_at.is_some_and(|at| at <= now) {
            self.publishes_at = None;
            let list = self.published();
            let gateways = self.entries.values().filter(|e| self.hears_lists(e));
            out.extend(gateways.map(|e| Command::Publish(e.member.name.clone(), list.clone())));
        }
    }

    fn greeted(&mut self, now: Timestamp, member: Arc<Member>, out: &mut Vec<Command>) {
        let (name, life) = (member.name.clone(), member.incarnation);
        if name == self.me.name {
            return out.push(Command::Refuse(name, life, Refusal::Own));
        }
        if self
            .replaced
            .iter()
            .any(|r| (&r.name, r.life) == (&name, life))
        {
            return out.push(Command::Refuse(name, life, Refusal::Replaced));
        }
        let former = self.entries.get(&name).filter(|e| e.has_session());
        let former = former.map(|e| e.member.incarnation);
        if let Some(former) = former.filter(|former| *former != life) {
            if self.replaced.len() == REPLACED_MAX {
                self.replaced.pop_front();
            }
            self.replaced.push_back(Replaced {
                name: name.clone(),
                life: former,
            });
            out.push(Command::Replaced(name.clone(), former, name.clone()));
        }
        if let Some(other) = self.takes_from(&member, out) {
            return out.push(Command::Refuse(name, life, Refusal::Holds(other)));
        }
        if !self.know(now, &member, out) {
            return;
        }
        let entry = &mut self.entries[&name];
        entry.session = SessionState::Greeted;
        entry.is_leaving = false;
        if self.hears_lists(&self.entries[&name]) {
            out.push(Command::Publish(name.clone(), self.published()));
        }
        self.changed(now, &name);
    }

    /// Of two processes with the controller of one module the one with the lower name counts, wherever both are seen. Returns
    /// the one that counts more than this member.
    fn takes_from(&self, member: &Arc<Member>, out: &mut Vec<Command>) -> Option<Arc<str>> {
        let shares = |of: &Member| {
            of.controllers
                .iter()
                .any(|m| member.controllers.contains(m))
        };
        if shares(&self.me) {
            return Some(self.me.name.clone());
        }
        let is_other = |e: &&Entry| e.has_session() && e.member.name != member.name;
        let others = self.entries.values().filter(is_other);
        let others: Vec<&Entry> = others.filter(|e| shares(&e.member)).collect();
        let more = others.iter().find(|e| e.member.name < member.name);
        if let Some(more) = more {
            return Some(more.member.name.clone());
        }
        out.extend(others.iter().map(|e| {
            let Member {
                name, incarnation, ..
            } = &*e.member;
            Command::Replaced(name.clone(), *incarnation, member.name.clone())
        }));
        None
    }

    fn doubt(&mut self, now: Timestamp, name: &Arc<str>, session: SessionState) {
        let entry = self.entries.get_mut(name);
        if let Some(entry) = entry.filter(|e| e.has_session()) {
            entry.session = session;
            self.changed(now, name);
        }
    }

    /// The process is known, as it is now. False: there is no room for it.
    fn know(&mut self, now: Timestamp, member: &Arc<Member>, out: &mut Vec<Command>) -> bool {
        let former = self.entries.get(&member.name).map(|e| e.member.clone());
        let is_new = former.is_none();
        let n_others = |of: &Entry| (of.member.name != member.name).then(|| of.member.n_roles());
        let n_roles: usize = self.entries.values().filter_map(n_others).sum();
        if (is_new && self.entries.len() >= MEMBERS_MAX)
            || n_roles + member.n_roles() > ROLES_KNOWN_MAX
        {
            let (name, life) = (member.name.clone(), member.incarnation);
            out.push(Command::Refuse(name, life, Refusal::Full));
            return false;
        }
        if let Some(former) = former {
            self.entries[&member.name].member = member.clone();
            if !former.has_roles_of(member) {
                out.push(Command::Left(former));
                out.push(Command::Joined(member.clone()));
            }
            return true;
        }
        let entry = Entry::new(member.clone(), now);
        self.entries.insert(member.name.clone(), entry);
        out.push(Command::Joined(member.clone()));
        true
    }

    /// A controller published a list.
    fn hear(&mut self, now: Timestamp, from: &Arc<str>, list: MemberList, out: &mut Vec<Command>) {
        let sender = self.entries.get(from);
        if !self.me.is_gateway || sender.is_none_or(|e| e.member.controllers.is_empty()) {
            return;
        }
        let has = |name: &Arc<str>| list.iter().any(|listed| listed.member.name == *name);
        for entry in self.entries.values_mut() {
            if !has(&entry.member.name) && entry.listed_by.contains(from) {
                entry.listed_by.retain(|by| by != from);
                if let SessionState::Gone(at) = &mut entry.session {
                    *at = now;
                }
            }
        }
        for Listed { member, state } in list {
            let known = self.entries.get(&member.name);
            // One that is there has greeted with what it is.
            let has_session = known.is_some_and(Entry::has_session);
            let has_moved =
                known.is_some_and(|e| !has_session && e.member.address != member.address);
            let leaves = state == MemberState::Leaving;
            if member.name == self.me.name
                || !member.is_worker()
                || (leaves && known.is_none())
                || (!has_session && !self.know(now, &member, out))
            {
                continue;
            }
            let entry = &mut self.entries[&member.name];
            if !has_session {
                entry.is_leaving = leaves;
            }
            if !entry.listed_by.contains(from) {
                entry.listed_by.push(from.clone());
            }
            let dials = member.address.is_some() && self.me.dials(&member);
            if dials && (!entry.is_dialled || has_moved) {
                entry.is_dialled = true;
                out.push(Command::Dial(member));
            }
        }
    }

    fn forget(&mut self, now: Timestamp, out: &mut Vec<Command>) {
        let is_due = |e: &Entry| e.forget_at().is_some_and(|at| at <= now);
        while let Some(at) = self.entries.values().position(is_due)
            && let Some((name, entry)) = self.entries.swap_remove_index(at)
        {
            if !entry.member.controllers.is_empty() {
                self.controller_gone(now, &name);
            }
            if entry.is_dialled {
                out.push(Command::HangUp(name));
            }
            if entry.member.is_worker() && !self.me.controllers.is_empty() {
                self.publishes_at.get_or_insert(now + PUBLISH_DELAY);
            }
            out.push(Command::Left(entry.member));
        }
    }

    /// The list of a controller that stays away holds no more, if another controller is there.
    fn controller_gone(&mut self, now: Timestamp, name: &Arc<str>) {
        let is_there = |e: &Entry| !e.member.controllers.is_empty() && e.has_session();
        if !self.entries.values().any(is_there) {
            return;
        }
        for entry in self.entries.values_mut() {
            if entry.listed_by.contains(name) {
                entry.listed_by.retain(|by| by != name);
                if let SessionState::Gone(at) = &mut entry.session {
                    *at = now;
                }
            }
        }
    }

    /// Something about a process changed of which lists speak.
    fn changed(&mut self, now: Timestamp, name: &Arc<str>) {
        let is_listed = (self.entries.get(name)).is_some_and(|e| e.member.is_worker());
        if is_listed && !self.me.controllers.is_empty() {
            self.publishes_at.get_or_insert(now + PUBLISH_DELAY);
        }
    }

    fn hears_lists(&self, entry: &Entry) -> bool {
        entry.has_session() && entry.member.is_gateway && !self.me.controllers.is_empty()
    }

    /// The worker processes that are there, or were a moment ago.
    fn published(&self) -> MemberList {
        let workers = self.entries.values().filter(|e| e.member.is_worker());
        let listed = workers.map(|e| Listed {
            member: e.member.clone(),
            state: e.state(),
        });
        listed.collect()
    }
}

#[cfg(test)]
mod tests;
