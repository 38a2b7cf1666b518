//! What a rollout shows of itself.

use spillgate_pipeline::time::Timestamp;

use super::{Known, RevisionId, Rollout, Share, State};

/// What a revision does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevisionState {
    /// It serves, and nothing else is under way.
    Stable,
    /// It starts.
    Starting,
    /// It serves while another one starts, or takes a share.
    Old,
    /// It serves its share.
    Moving,
    /// It serves all, and is watched.
    Watching,
    /// It has no requests, and is kept to serve again at once.
    Idle,
    /// It takes no more requests, and ends with its last one.
    Draining,
    /// It did not start, or served and was taken back.
    TakenBack,
}

impl RevisionState {
    /// Its name in `/status`.
    pub fn name(self) -> &'static str {
        match self {
            RevisionState::Stable => "stable",
            RevisionState::Starting => "starting",
            RevisionState::Old => "old",
            RevisionState::Moving => "moving",
            RevisionState::Watching => "watching",
            RevisionState::Idle => "idle",
            RevisionState::Draining => "draining",
            RevisionState::TakenBack => "taken_back",
        }
    }
}

/// A revision as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct RevisionView {
    /// Its id.
    pub id: RevisionId,
    /// The part of the streams that go to it.
    pub share: Share,
    /// What it does.
    pub state: RevisionState,
    /// Since when; `None` where that is not kept.
    pub since: Option<Timestamp>,
    /// Why it was taken back.
    pub why: Option<String>,
}

impl Rollout {
    /// Its revisions as they are: what serves, what else lives, and what was taken back last.
    pub fn view(&self) -> Vec<RevisionView> {
        let admission = self.admission();
        let view = |id, state| RevisionView {
            id,
            share: admission.share_of(id),
            state,
            since: Some(self.since),
            why: None,
        };
        let current = self.current.as_ref().filter(|known| known.is_ready);
        let current = current.map(|known| view(known.id, self.current_state()));
        let other = self
            .other
            .as_ref()
            .map(|known| view(known.id, self.other_state(known)));
        let other = other.filter(|other| self.state != State::Watching || self.is_kept(other.id));
        let leaving = self.leaving.iter().map(|id| RevisionView {
            since: None,
            ..view(*id, RevisionState::Draining)
        });
        let back = self.back.iter().map(|back| RevisionView {
            id: back.id,
            share: Share::NONE,
            state: RevisionState::TakenBack,
            since: Some(back.at),
            why: Some(back.why.clone()),
        });
        (current.into_iter().chain(other))
            .chain(leaving)
            .chain(back)
            .collect()
    }

    fn is_kept(&self, id: RevisionId) -> bool {
        let mut other = self.other.iter();
        other.any(|known| known.id == id && known.is_ready)
    }

    fn current_state(&self) -> RevisionState {
        match self.state {
            State::Stable | State::TakenBack => RevisionState::Stable,
            State::Starting | State::Moving => RevisionState::Old,
            State::Watching => RevisionState::Watching,
            State::Emptying | State::Filling | State::Lost => RevisionState::Draining,
        }
    }

    fn other_state(&self, other: &Known) -> RevisionState {
        match self.state {
            State::Moving => RevisionState::Moving,
            State::Watching if other.is_drained => RevisionState::Idle,
            State::Watching => RevisionState::Draining,
            _ => RevisionState::Starting,
        }
    }
}
