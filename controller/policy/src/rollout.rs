//! The rollout of a revision: how another definition of a pipeline takes the place of the one that is served.
//!
//! The new revision starts beside the old one. Once it is ready, admission moves: at once, or a share of the streams first. What is
//! under way ends where it was admitted: revisions never talk to each other. Then the new one is watched. The old one keeps what it
//! needs to serve until that is over, so that it can come back at once. A new one that does not become ready, or that fails or is late
//! more than the old one by a stated margin ([`judgement`]), is taken back, with a sentence about why.
//!
//! Where there is no room for two, the old one drains and ends first ([`Strategy::Recreate`]): meanwhile nothing is served, and going
//! back takes such a gap, too.
//!
//! What is rolled out together shares its devices: the pipeline of a set of processes, or all pipelines of one process. Each pipeline
//! is judged by itself, and they go back together.
//!
//! Not here: how a revision is started, and how its requests are counted. The driver performs [`Command`]s.

mod admission;
pub mod following;
pub(crate) mod history;
pub mod judgement;
mod known;
mod view;

use std::sync::Arc;
use std::time::Duration;

use spillgate_pipeline::time::Timestamp;

pub use admission::{Admission, RevisionId, Share, key_of};
pub use judgement::Outcomes;
use judgement::{Judged, judge};
use known::Known;
pub use view::{RevisionState, RevisionView};

/// How long a new revision is watched, unless said otherwise. Planners publish every second and workers follow the load within half a
/// minute, so a minute shows what a revision does.
pub const WATCH_DEFAULT: Duration = Duration::from_secs(60);
/// A revision that is not ready after this time is taken back: the largest sets load their models within minutes.
pub const READY_LIMIT: Duration = Duration::from_secs(600);
/// The first part of a watch, in which lateness is not counted: planners and caches begin anew.
const SETTLES: u32 = 6;

/// How admission moves to a new revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// All at once.
    AtOnce,
    /// This share of the streams for one watch, then all.
    Share(Share),
    /// The old revision drains and ends before the new one starts: for want of a second memory or device. Meanwhile nothing is
    /// admitted.
    Recreate,
}

/// The settings of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RolloutConfig {
    /// How admission moves.
    pub strategy: Strategy,
    /// How long a new revision is watched at its share, and again with all streams. Zero: nothing is judged, and the old one ends
    /// with its last request.
    pub watch: Duration,
}

impl Default for RolloutConfig {
    fn default() -> Self {
        RolloutConfig {
            strategy: Strategy::AtOnce,
            watch: WATCH_DEFAULT,
        }
    }
}

/// What happens to the revisions.
#[derive(Clone, Debug, PartialEq)]
pub enum Event<'a> {
    /// This revision is to be served. The one that serves: nothing is to change. The old one of a rollout under way: an undo.
    Offered(RevisionId),
    /// A revision that was to start can serve: each of its modules has a worker.
    Ready(RevisionId),
    /// It could not start, for this reason.
    NotStarted(RevisionId, &'a str),
    /// Requests of a revision's pipeline ended.
    Ended(RevisionId, &'a Arc<str>, Outcomes),
    /// The rollout that is under way, or the last one, is to be undone.
    Undo,
    /// A revision that was to drain has no requests any more.
    Drained(RevisionId),
    /// The time of [`Rollout::next_wakeup`] has come.
    Wakeup,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Start the revision, and say whether it is ready.
    Start(RevisionId),
    /// New requests go there from now on.
    Admit(Admission),
    /// The revision takes no more requests: say when its last one has ended. It may be admitted to again before.
    Drain(RevisionId),
    /// Stop the revision and forget it, whether it is ready or not.
    End(RevisionId),
    /// The revision was taken back; why, as a sentence for people.
    TakenBack(RevisionId, String),
    /// Nothing is served: neither of the two could be started; why.
    Lost(String),
}

/// Where a rollout is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// `current` serves alone.
    Stable,
    /// `current` serves, `other` starts.
    Starting,
    /// `other` serves its share, `current` the rest.
    Moving,
    /// `current` is new and serves all; `other` is the old one and idle, or has ended.
    Watching,
    /// `current` serves again, or still.
    TakenBack,
    /// Nothing is admitted: `current` drains, `other` is to take its place.
    Emptying,
    /// Nothing is admitted: `other` starts; `current` has ended.
    Filling,
    /// Nothing is served.
    Lost,
}

/// What was taken back last.
#[derive(Clone, Debug, PartialEq)]
struct Back {
    id: RevisionId,
    why: String,
    at: Timestamp,
}

/// What is rolled out together, as a state machine.
#[derive(Clone, Debug)]
pub struct Rollout {
    config: RolloutConfig,
    state: State,
    since: Timestamp,
    current: Option<Known>,
    other: Option<Known>,
    /// Those that end once they are drained.
    leaving: Vec<RevisionId>,
    /// What served before the last rollout that was completed.
    former: Option<RevisionId>,
    back: Option<Back>,
    /// `other`, while it starts, is the old one again.
    is_going_back: bool,
}

impl Rollout {
    /// This revision serves since then.
    pub fn new(config: RolloutConfig, now: Timestamp, serves: RevisionId) -> Self {
        Rollout {
            config,
            state: State::Stable,
            since: now,
            current: Some(Known::new(serves, true)),
            other: None,
            leaving: Vec::new(),
            former: None,
            back: None,
            is_going_back: false,
        }
    }

    /// The revision that is offered next takes its place in this way.
    pub fn configure(&mut self, config: RolloutConfig) {
        self.config = config;
    }

    /// Tells what happened.
    pub fn on_event(&mut self, now: Timestamp, event: Event<'_>, out: &mut Vec<Command>) {
        match event {
            Event::Offered(id) => self.offered(now, id, out),
            Event::Ready(id) => self.ready(now, id, out),
            Event::NotStarted(id, why) => self.not_started(now, id, why, out),
            Event::Ended(id, pipeline, outcomes) => {
                self.ended(now, id, pipeline, outcomes);
                self.judge(now, out);
            }
            Event::Undo => self.undo(now, out),
            Event::Drained(id) => self.drained(now, id, out),
            Event::Wakeup => self.wakeup(now, out),
        }
    }

    /// When it wants to be woken.
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        match self.state {
            State::Starting | State::Filling => Some(self.since + READY_LIMIT),
            State::Moving | State::Watching => Some(self.since + self.config.watch),
            State::Stable | State::TakenBack | State::Emptying | State::Lost => None,
        }
    }

    /// Where new requests go.
    pub fn admission(&self) -> Admission {
        let id = |known: &Option<Known>| known.as_ref().map(|known| known.id);
        let share = match self.config.strategy {
            Strategy::Share(share) => share,
            Strategy::AtOnce | Strategy::Recreate => Share::ALL,
        };
        match (self.state, id(&self.current), id(&self.other)) {
            (State::Moving, Some(old), Some(new)) => Admission::Split { old, new, share },
            (State::Emptying | State::Filling | State::Lost, ..) | (_, None, _) => {
                Admission::Nobody
            }
            (_, Some(current), _) => Admission::One(current),
        }
    }

    /// The revision that takes a request: `key` is that of its stream, or of the request where its stream has no name ([`key_of`]).
    pub fn choose(&self, key: u64) -> Option<RevisionId> {
        self.admission().choose(key)
    }

    /// Whether the revision serves, or is kept to serve again: to offer it starts nothing.
    pub fn holds(&self, id: RevisionId) -> bool {
        let mut known = self.current.iter().chain(&self.other);
        known.any(|known| known.id == id && known.is_ready)
    }

    /// Whether it may say that the revision is to be started, or started again.
    pub fn knows(&self, id: RevisionId) -> bool {
        let mut known = self.current.iter().chain(&self.other);
        known.any(|known| known.id == id)
    }

    fn enter(&mut self, now: Timestamp, state: State) {
        (self.state, self.since) = (state, now);
    }

    fn offered(&mut self, now: Timestamp, id: RevisionId, out: &mut Vec<Command>) {
        let is = |known: &Option<Known>| known.as_ref().is_some_and(|known| known.id == id);
        let (is_current, is_other) = (is(&self.current), is(&self.other));
        match self.state {
            State::Stable | State::TakenBack | State::Watching if is_current => return,
            State::Starting | State::Moving | State::Emptying | State::Filling if is_other => {
                return;
            }
            State::Starting | State::Moving | State::Emptying | State::Filling if is_current => {
                return self.undo(now, out);
            }
            State::Watching if is_other => return self.undo(now, out),
            State::Stable | State::TakenBack | State::Lost => {}
            State::Moving => {
                self.admit_current(out);
                self.leave_other(out);
            }
            // What is watched is taken to be right: there is room for two.
            State::Watching => self.leave_other(out),
            State::Starting | State::Filling => self.discard_other(out),
            State::Emptying => {
                self.other = Some(Known::new(id, false));
                self.is_going_back = false;
                return;
            }
        }
        self.back = None;
        self.is_going_back = false;
        self.other = Some(Known::new(id, false));
        if let Some(at) = self.leaving.iter().position(|of| *of == id) {
            // It still answers its last requests, and can take more.
            self.leaving.remove(at);
            self.enter(now, State::Starting);
            return self.ready(now, id, out);
        }
        match (self.state, self.config.strategy) {
            (State::Filling | State::Lost, _) => {
                self.enter(now, State::Filling);
                out.push(Command::Start(id));
            }
            (_, Strategy::Recreate) => self.empty(now, out),
            _ => {
                self.enter(now, State::Starting);
                out.push(Command::Start(id));
            }
        }
    }

    /// The one that serves gives way before `other` starts.
    fn empty(&mut self, now: Timestamp, out: &mut Vec<Command>) {
        self.enter(now, State::Emptying);
        out.push(Command::Admit(Admission::Nobody));
        if let Some(current) = &mut self.current {
            current.is_drained = false;
            out.push(Command::Drain(current.id));
        }
    }

    fn ready(&mut self, now: Timestamp, id: RevisionId, out: &mut Vec<Command>) {
        let is_awaited = matches!(self.state, State::Starting | State::Filling);
        let is_held = self.holds(id);
        match &mut self.other {
            Some(other) if is_awaited && other.id == id => other.is_ready = true,
            _ if is_held => return,
            // It was given up while it started.
            _ => return out.push(Command::End(id)),
        }
        match (self.state, self.config.strategy) {
            (State::Filling, _) => {
                std::mem::swap(&mut self.current, &mut self.other);
                self.admit_current(out);
                if self.is_going_back {
                    self.is_going_back = false;
                    self.other = None;
                    return self.enter(now, State::TakenBack);
                }
                self.watch(now, out);
            }
            (_, Strategy::Share(_)) if !self.config.watch.is_zero() => {
                self.enter(now, State::Moving);
                self.begin_step();
                out.push(Command::Admit(self.admission()));
            }
            _ => self.move_all(now, out),
        }
    }

    /// `other` serves all from now on.
    fn move_all(&mut self, now: Timestamp, out: &mut Vec<Command>) {
        std::mem::swap(&mut self.current, &mut self.other);
        self.admit_current(out);
        if let Some(old) = &mut self.other {
            old.is_drained = false;
            out.push(Command::Drain(old.id));
        }
        self.watch(now, out);
    }

    fn watch(&mut self, now: Timestamp, out: &mut Vec<Command>) {
        self.enter(now, State::Watching);
        self.begin_step();
        if self.config.watch.is_zero() {
            self.complete(now, out);
        }
    }

    /// The new one has shown what it does: the old one goes.
    fn complete(&mut self, now: Timestamp, out: &mut Vec<Command>) {
        self.former = self.other.as_ref().map(|old| old.id);
        self.leave_other(out);
        self.enter(now, State::Stable);
    }

    fn begin_step(&mut self) {
        let known = self.current.iter_mut().chain(&mut self.other);
        known.for_each(Known::begin_step);
    }

    fn not_started(&mut self, now: Timestamp, id: RevisionId, why: &str, out: &mut Vec<Command>) {
        let is_awaited = matches!(self.state, State::Starting | State::Filling);
        if is_awaited && self.other.as_ref().is_some_and(|other| other.id == id) {
            let why = format!("it could not start: {why}");
            self.give_up_start(now, why, out);
        }
    }

    /// `other` does not come.
    fn give_up_start(&mut self, now: Timestamp, why: String, out: &mut Vec<Command>) {
        if self.is_going_back || self.current.is_none() {
            self.discard_other(out);
            self.current = None;
            self.is_going_back = false;
            self.enter(now, State::Lost);
            out.push(Command::Lost(why));
            return;
        }
        self.taken_back(now, why, out);
    }

    fn undo(&mut self, now: Timestamp, out: &mut Vec<Command>) {
        match self.state {
            State::Stable => {
                if let Some(former) = self.former {
                    self.offered(now, former, out);
                }
            }
            State::TakenBack | State::Lost => {}
            _ if self.is_going_back || self.current.is_none() => {}
            _ => self.go_back(now, "it was undone".to_owned(), out),
        }
    }

    /// Takes the new one back and says so.
    fn taken_back(&mut self, now: Timestamp, why: String, out: &mut Vec<Command>) {
        let new = match self.state {
            State::Watching => &self.current,
            _ => &self.other,
        };
        if let Some(new) = new {
            out.push(Command::TakenBack(new.id, why.clone()));
        }
        self.go_back(now, why, out);
    }

    /// The old one serves all again, or still.
    fn go_back(&mut self, now: Timestamp, why: String, out: &mut Vec<Command>) {
        if self.other.is_none() {
            return;
        }
        if self.state == State::Watching {
            std::mem::swap(&mut self.current, &mut self.other);
        }
        // From here on `current` is the old one and `other` the new one.
        let (Some(old), Some(new)) = (&mut self.current, &self.other) else {
            return;
        };
        let new = new.id;
        self.back = Some(Back {
            id: new,
            why,
            at: now,
        });
        match self.state {
            State::Starting => self.discard_other(out),
            State::Moving => {
                self.admit_current(out);
                self.leave_other(out);
            }
            State::Emptying => {
                self.other = None;
                self.admit_current(out);
            }
            State::Watching if old.is_ready => {
                self.admit_current(out);
                out.push(Command::Drain(new));
                self.leave_other(out);
            }
            // The old one has ended: it is started again in the place of the new one.
            State::Watching => {
                std::mem::swap(&mut self.current, &mut self.other);
                self.is_going_back = true;
                return self.empty(now, out);
            }
            State::Filling => {
                self.discard_other(out);
                self.other = self.current.take();
                self.is_going_back = true;
                self.enter(now, State::Filling);
                if let Some(old) = &self.other {
                    out.push(Command::Start(old.id));
                }
                return;
            }
            State::Stable | State::TakenBack | State::Lost => return,
        }
        self.enter(now, State::TakenBack);
    }

    fn drained(&mut self, now: Timestamp, id: RevisionId, out: &mut Vec<Command>) {
        if let Some(at) = self.leaving.iter().position(|of| *of == id) {
            self.leaving.remove(at);
            return out.push(Command::End(id));
        }
        match (self.state, &mut self.current, &mut self.other) {
            (State::Watching, _, Some(old)) if old.id == id => old.is_drained = true,
            (State::Emptying, Some(current), Some(other)) if current.id == id => {
                out.push(Command::End(id));
                current.is_ready = false;
                let next = other.id;
                if self.is_going_back {
                    // What is taken back is not started again.
                    self.current = None;
                }
                self.enter(now, State::Filling);
                out.push(Command::Start(next));
            }
            _ => {}
        }
    }

    fn wakeup(&mut self, now: Timestamp, out: &mut Vec<Command>) {
        if self.next_wakeup().is_none_or(|at| now < at) {
            return;
        }
        match self.state {
            State::Starting | State::Filling => {
                let limit = spillgate_pipeline::time::format_duration(READY_LIMIT);
                self.give_up_start(now, format!("it was not ready within {limit}"), out);
            }
            State::Moving => {
                self.judge(now, out);
                if self.state == State::Moving {
                    self.move_all(now, out);
                }
            }
            State::Watching => {
                self.judge(now, out);
                if self.state == State::Watching {
                    self.complete(now, out);
                }
            }
            State::Stable | State::TakenBack | State::Emptying | State::Lost => {}
        }
    }

    fn ended(&mut self, now: Timestamp, id: RevisionId, pipeline: &Arc<str>, outcomes: Outcomes) {
        let has_settled = now >= self.since + self.config.watch / SETTLES;
        // What the old one still answers after admission moved is no measure: its slowest requests are the last.
        let is_over =
            self.state == State::Watching && self.other.as_ref().is_some_and(|o| o.id == id);
        let mut known = self.current.iter_mut().chain(&mut self.other);
        let Some(known) = known.find(|known| known.id == id).filter(|_| !is_over) else {
            return;
        };
        let record = known.records.entry(pipeline.clone()).or_default();
        record.history.add(now, outcomes);
        record.step.add(outcomes);
        if has_settled {
            record.settled.add(outcomes);
        }
    }

    /// Takes the new one back where it is worse than the old one.
    fn judge(&mut self, now: Timestamp, out: &mut Vec<Command>) {
        let (new, old, is_beside) = match self.state {
            State::Moving => (&self.other, &self.current, true),
            State::Watching => (&self.current, &self.other, false),
            _ => return,
        };
        let (Some(new), Some(old)) = (new, old) else {
            return;
        };
        let worse = new.records.iter().find_map(|(pipeline, record)| {
            let of_old = old.records.get(pipeline);
            let beside = of_old.map(|of| of.step).filter(|_| is_beside);
            let judged = Judged {
                pipeline,
                failing: record.step,
                timely: record.settled,
                beside,
                before: of_old.and_then(|of| of.history.last(now)),
            };
            judge(&judged)
        });
        if let Some(why) = worse {
            self.taken_back(now, why, out);
        }
    }

    fn admit_current(&self, out: &mut Vec<Command>) {
        if let Some(current) = &self.current {
            out.push(Command::Admit(Admission::One(current.id)));
        }
    }

    /// `other`, which may have requests, ends once it has none.
    fn leave_other(&mut self, out: &mut Vec<Command>) {
        let Some(other) = self.other.take() else {
            return;
        };
        if self.state == State::Moving {
            out.push(Command::Drain(other.id));
        }
        match (other.is_ready, other.is_drained) {
            // It has ended already.
            (false, _) => {}
            (true, true) => out.push(Command::End(other.id)),
            (true, false) => self.leaving.push(other.id),
        }
    }

    /// `other`, which starts, is not wanted any more.
    fn discard_other(&mut self, out: &mut Vec<Command>) {
        if let Some(other) = self.other.take() {
            out.push(Command::End(other.id));
        }
    }
}

#[cfg(test)]
mod tests;
