//! What decides about the revisions of a group of pipelines in a process.

use std::sync::Arc;

use spillgate_controller_policy::rollout::following::{Followed, Following};
use spillgate_controller_policy::rollout::{
    Admission, Command, Event, Outcomes, RevisionId, RevisionView, Rollout, RolloutConfig, Share,
    Strategy,
};
use spillgate_pipeline::time::Timestamp;

/// The policy of a process.
pub(super) enum Decides {
    /// Of a gateway, or of a process that is alone.
    Gateway(Box<Rollout>),
    /// Of workers and controllers, which follow gateways. Whether it has devices: without them there is always room for two.
    Inner(Following, bool),
}

/// What either of them is told.
pub(super) enum Happens<'a> {
    Offered(RevisionId, RolloutConfig),
    Ready(RevisionId),
    NotStarted(RevisionId, &'a str),
    /// To a gateway alone.
    Ended(RevisionId, &'a Arc<str>, Outcomes),
    Drained(RevisionId),
    /// To the others alone.
    Gateways(RevisionId, usize),
    Wakeup,
}

impl Decides {
    pub(super) fn on_event(&mut self, now: Timestamp, happens: Happens<'_>) -> Vec<Command> {
        let mut commands = Vec::new();
        match self {
            Decides::Gateway(rollout) => {
                let event = match happens {
                    Happens::Offered(id, config) => {
                        rollout.configure(config);
                        Event::Offered(id)
                    }
                    Happens::Ready(id) => Event::Ready(id),
                    Happens::NotStarted(id, why) => Event::NotStarted(id, why),
                    Happens::Ended(id, pipeline, ended) => Event::Ended(id, pipeline, ended),
                    Happens::Drained(id) => Event::Drained(id),
                    Happens::Gateways(..) => return commands,
                    Happens::Wakeup => Event::Wakeup,
                };
                rollout.on_event(now, event, &mut commands);
            }
            Decides::Inner(following, has_devices) => {
                let event = match happens {
                    Happens::Offered(id, config) => Followed::Offered {
                        id,
                        alone: *has_devices && config.strategy == Strategy::Recreate,
                    },
                    Happens::Ready(id) => Followed::Ready(id),
                    Happens::NotStarted(id, why) => Followed::NotStarted(id, why),
                    Happens::Gateways(id, n) => Followed::Gateways(id, n),
                    Happens::Wakeup => Followed::Wakeup,
                    Happens::Ended(..) | Happens::Drained(_) => return commands,
                };
                following.on_event(now, event, &mut commands);
            }
        }
        commands
    }

    pub(super) fn next_wakeup(&self) -> Option<Timestamp> {
        match self {
            Decides::Gateway(rollout) => rollout.next_wakeup(),
            Decides::Inner(following, _) => following.next_wakeup(),
        }
    }

    pub(super) fn view(&self) -> Vec<RevisionView> {
        match self {
            Decides::Gateway(rollout) => rollout.view(),
            Decides::Inner(following, _) => following.view(),
        }
    }

    /// Whether it may say that the revision is to be started, or started again.
    pub(super) fn knows(&self, id: RevisionId) -> bool {
        match self {
            Decides::Gateway(rollout) => rollout.knows(id),
            Decides::Inner(following, _) => following.knows(id),
        }
    }

    /// Whether the revision serves, or is kept to serve again: to offer it starts nothing.
    pub(super) fn holds(&self, id: RevisionId) -> bool {
        match self {
            Decides::Gateway(rollout) => rollout.holds(id),
            Decides::Inner(following, _) => following.knows(id),
        }
    }

    /// The share of the streams that go to a revision, where this process admits.
    pub(super) fn share_of(&self, id: RevisionId) -> Share {
        match self {
            Decides::Gateway(rollout) => rollout.admission().share_of(id),
            Decides::Inner(..) => Share::NONE,
        }
    }

    /// Whether nothing is admitted.
    pub(super) fn admits_nobody(&self) -> bool {
        match self {
            Decides::Gateway(rollout) => rollout.admission() == Admission::Nobody,
            Decides::Inner(..) => false,
        }
    }
}
