//! A process of a set whose revisions are rolled out: it performs what the policy decides, as the renewer of a real one.

use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use rand::Rng;
use rustc_hash::FxBuildHasher;
use spillgate_controller_policy::rollout::following::{Followed, Following};
use spillgate_controller_policy::rollout::{
    Command, Event, Outcomes, RevisionId, RevisionState, RevisionView, Rollout, RolloutConfig,
    Share, Strategy,
};
use spillgate_pipeline::id::GatewayId;
use spillgate_pipeline::invariants::Violation;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::Address;
use spillgate_protocol::publication::{News, Publication, Published};

use super::{Due, Set};
use crate::cluster::{Flaw, Node};
use crate::world::cluster::{Bug, Said};

/// How often a process looks at its revisions.
pub(super) const LOOK: Duration = Duration::from_millis(200);
/// How long a revision that is drained had no request.
const DRAINED: Duration = Duration::from_secs(1);
/// How long a revision drains at most.
const DRAIN_MAX: Duration = Duration::from_secs(5);
/// A revision is offered once fewer than that live beside the one that it follows.
const ENDING_MAX: usize = 2;

/// What decides about the revisions of a process.
pub(super) enum Decides {
    Gateway(Box<Rollout>),
    Inner(Following),
}

pub(super) struct Process {
    pub(super) gateways: Vec<GatewayId>,
    /// It is a gateway or a controller.
    pub(super) publishes: bool,
    pub(super) has_controllers: bool,
    /// It runs, and does not leave.
    pub(super) is_up: bool,
    /// Rises with each end.
    pub(super) life: u64,
    pub(super) published: Published,
    pub(super) decides: Decides,
    /// Its policy said that nothing is served.
    pub(super) is_lost: bool,
    /// A revision that is to be offered.
    waiting: Option<u64>,
    /// Revisions that live, and whose modules do not all have workers yet.
    without_workers: Vec<u64>,
    /// By revision: since when it drains, and since when it has no requests.
    draining: IndexMap<u64, (Timestamp, Timestamp), FxBuildHasher>,
    counted: IndexMap<u64, Outcomes, FxBuildHasher>,
}

fn id(revision: u64) -> RevisionId {
    RevisionId(revision)
}

impl Decides {
    pub(super) fn view(&self) -> Vec<RevisionView> {
        match self {
            Decides::Gateway(rollout) => rollout.view(),
            Decides::Inner(following) => following.view(),
        }
    }

    fn holds(&self, revision: u64) -> bool {
        match self {
            Decides::Gateway(rollout) => rollout.holds(id(revision)),
            Decides::Inner(following) => following.knows(id(revision)),
        }
    }

    fn knows(&self, revision: u64) -> bool {
        match self {
            Decides::Gateway(rollout) => rollout.knows(id(revision)),
            Decides::Inner(following) => following.knows(id(revision)),
        }
    }

    fn next_wakeup(&self) -> Option<Timestamp> {
        match self {
            Decides::Gateway(rollout) => rollout.next_wakeup(),
            Decides::Inner(following) => following.next_wakeup(),
        }
    }
}

/// What the policy is told.
enum Happens<'a> {
    Offered(u64, RolloutConfig),
    Ready(u64),
    NotStarted(u64, &'a str),
    Ended(u64, Outcomes),
    Drained(u64),
    Gateways(u64, usize),
    Wakeup,
}

impl Process {
    /// It is down.
    pub(super) fn new(node: &Node, config: RolloutConfig) -> Self {
        let gateways = node.roles.iter().filter_map(|role| match role {
            Address::Gateway(id) => Some(*id),
            _ => None,
        });
        let gateways: Vec<GatewayId> = gateways.collect();
        let is_controller = |role: &Address| matches!(role, Address::Controller(_));
        let has_controllers = node.roles.iter().any(is_controller);
        Process {
            publishes: has_controllers || !gateways.is_empty(),
            decides: decides(!gateways.is_empty(), config, Timestamp::ZERO),
            gateways,
            has_controllers,
            is_up: false,
            life: 0,
            published: Published::default(),
            is_lost: false,
            waiting: None,
            without_workers: Vec::new(),
            draining: IndexMap::default(),
            counted: IndexMap::default(),
        }
    }

    /// It begins with revision 0, and knows of no publication.
    pub(super) fn begins(&mut self, config: RolloutConfig, now: Timestamp) {
        self.is_up = true;
        self.published = Published::default();
        self.decides = decides(!self.gateways.is_empty(), config, now);
        self.is_lost = false;
        self.waiting = None;
        self.without_workers.clear();
        self.draining.clear();
        self.counted.clear();
    }
}

fn decides(is_gateway: bool, config: RolloutConfig, now: Timestamp) -> Decides {
    match is_gateway {
        true => Decides::Gateway(Box::new(Rollout::new(config, now, id(0)))),
        false => Decides::Inner(Following::new(now, id(0))),
    }
}

impl Set {
    /// A process hears what is published, or publishes it.
    pub(super) fn hear(&mut self, node: usize, said: &Arc<Publication>, is_own: bool) {
        let process = &mut self.processes[node];
        let stays = self.config.bug == Some(Bug::StaysBehind)
            && !process.gateways.is_empty()
            && !said.why.is_empty()
            && !is_own;
        if !process.is_up || stays || process.published.hear(said) != News::Later {
            return;
        }
        process.waiting = Some(said.now.revision);
        if !process.publishes {
            return;
        }
        for world in &mut self.worlds {
            world.greet_with(node, Some(said.clone()));
            for peer in world.met(node) {
                world.say_of_revisions(node, peer, Said::Published(said.clone()));
            }
        }
    }

    /// A process says to one that it met which revisions it could not start.
    pub(super) fn report_to(&mut self, node: usize, revision: usize, peer: usize) {
        if !self.processes[node].gateways.is_empty() || !self.processes[peer].publishes {
            return;
        }
        for view in self.processes[node].decides.view() {
            if view.state == RevisionState::TakenBack {
                let said = Said::NotStarted(view.id.0);
                self.worlds[revision].say_of_revisions(node, peer, said);
            }
        }
    }

    /// Another process could not start a revision.
    pub(super) fn fails(&mut self, node: usize, revision: u64) -> Result<(), Violation> {
        self.hears(node, Happens::NotStarted(revision, "it is broken"))
    }

    /// Offers what waits, if there is room.
    pub(super) fn offer_waiting(&mut self, node: usize) -> Result<(), Violation> {
        let process = &self.processes[node];
        let Some(revision) = process.waiting.filter(|_| process.is_up) else {
            return Ok(());
        };
        // What follows gateways makes room itself, once it is told.
        let makes_room = matches!(process.decides, Decides::Inner(_));
        let is_held = process.decides.holds(revision);
        if !makes_room && !is_held && self.live(node).len() > ENDING_MAX {
            return Ok(());
        }
        self.processes[node].waiting = None;
        self.hears(node, Happens::Offered(revision, self.rollouts.config))
    }

    /// The revisions of a process that live.
    pub(super) fn live(&self, node: usize) -> Vec<usize> {
        let revisions = 0..self.worlds.len();
        let live = revisions.filter(|revision| self.worlds[*revision].is_up(node));
        live.collect()
    }

    fn hears(&mut self, node: usize, happens: Happens<'_>) -> Result<(), Violation> {
        let now = self.now;
        let mut commands = Vec::new();
        match &mut self.processes[node].decides {
            Decides::Gateway(rollout) => {
                let pipeline: Arc<str> = "simulated".into();
                let event = match happens {
                    Happens::Offered(revision, config) => {
                        rollout.configure(config);
                        Event::Offered(id(revision))
                    }
                    Happens::Ready(revision) => Event::Ready(id(revision)),
                    Happens::NotStarted(revision, why) => Event::NotStarted(id(revision), why),
                    Happens::Ended(revision, ended) => Event::Ended(id(revision), &pipeline, ended),
                    Happens::Drained(revision) => Event::Drained(id(revision)),
                    Happens::Gateways(..) => return Ok(()),
                    Happens::Wakeup => Event::Wakeup,
                };
                rollout.on_event(now, event, &mut commands);
            }
            Decides::Inner(following) => {
                let event = match happens {
                    Happens::Offered(revision, config) => Followed::Offered {
                        id: id(revision),
                        alone: config.strategy == Strategy::Recreate,
                    },
                    Happens::Ready(revision) => Followed::Ready(id(revision)),
                    Happens::NotStarted(revision, why) => Followed::NotStarted(id(revision), why),
                    Happens::Gateways(revision, n) => Followed::Gateways(id(revision), n),
                    Happens::Wakeup => Followed::Wakeup,
                    Happens::Ended(..) | Happens::Drained(_) => return Ok(()),
                };
                following.on_event(now, event, &mut commands);
            }
        }
        commands
            .into_iter()
            .try_for_each(|command| self.perform(node, command))
    }

    fn perform(&mut self, node: usize, command: Command) -> Result<(), Violation> {
        let now = self.now;
        match command {
            Command::Start(RevisionId(revision)) => {
                self.processes[node].is_lost = false;
                let part = self.rng.random_range(0.1..1.0);
                let life = self.processes[node].life;
                let at = now + self.rollouts.start.mul_f64(part);
                let due = Due::Started {
                    node,
                    life,
                    revision,
                };
                self.agenda.at(at, due);
            }
            Command::Admit(admission) => {
                let draining = &mut self.processes[node].draining;
                draining.retain(|revision, _| admission.share_of(id(*revision)) == Share::NONE);
            }
            Command::Drain(RevisionId(revision)) => {
                let draining = &mut self.processes[node].draining;
                draining.insert(revision, (now, now));
            }
            Command::End(RevisionId(revision)) => {
                self.processes[node].draining.swap_remove(&revision);
                self.worlds[revision as usize].crash(node, false)?;
                self.serve_others(node);
            }
            Command::TakenBack(RevisionId(revision), why) => {
                if self.processes[node].gateways.is_empty() {
                    for live in self.live(node) {
                        for peer in self.worlds[live].met(node) {
                            self.report_to(node, live, peer);
                        }
                    }
                    return Ok(());
                }
                let latest = self.processes[node].published.latest().cloned();
                if let Some(latest) = latest.filter(|latest| latest.now.revision == revision) {
                    let why = format!("node {node}: {why}");
                    if let Some(back) = latest.taken_back(why.into()) {
                        self.hear(node, &Arc::new(back), true);
                    }
                }
            }
            Command::Lost(_) => self.processes[node].is_lost = true,
        }
        Ok(())
    }

    /// A process has started a revision, or could not.
    pub(super) fn started(&mut self, node: usize, revision: u64) -> Result<(), Violation> {
        if !self.processes[node].decides.knows(revision) {
            // It was given up while it started.
            return Ok(());
        }
        if self.flaw(revision) == Flaw::NotStarted(node) {
            return self.hears(node, Happens::NotStarted(revision, "it is broken"));
        }
        self.begin_revision(node, revision)?;
        match &self.processes[node].decides {
            Decides::Gateway(_) => {
                self.processes[node].without_workers.push(revision);
                Ok(())
            }
            Decides::Inner(_) => self.ready(node, revision),
        }
    }

    /// The roles of a process begin in a revision.
    pub(super) fn begin_revision(&mut self, node: usize, revision: u64) -> Result<(), Violation> {
        let world = &mut self.worlds[revision as usize];
        world.crash(node, false)?;
        for owner in &self.processes[node].gateways {
            world.outcomes[owner.idx()] = Outcomes::default();
        }
        world.begin(node)?;
        self.serve_others(node);
        Ok(())
    }

    /// The process of a node accepts connections for each revision as long as it has some.
    pub(super) fn serve_others(&mut self, node: usize) {
        let does = self.processes[node].is_up && !self.live(node).is_empty();
        for world in &mut self.worlds {
            world.serve_other(node, does);
        }
    }

    fn ready(&mut self, node: usize, revision: u64) -> Result<(), Violation> {
        self.count(node)?;
        self.hears(node, Happens::Ready(revision))
    }

    /// A process looks at its revisions.
    pub(super) fn look(&mut self, node: usize) -> Result<(), Violation> {
        self.count(node)?;
        for revision in self.live(node) {
            let peers = self.worlds[revision].met(node).into_iter();
            let n = peers.filter(|peer| !self.processes[*peer].gateways.is_empty());
            let gateways = Happens::Gateways(revision as u64, n.count());
            self.hears(node, gateways)?;
        }
        for revision in std::mem::take(&mut self.processes[node].without_workers) {
            let world = &self.worlds[revision as usize];
            if !world.is_up(node) {
                continue;
            }
            let mut gateways = self.processes[node].gateways.iter();
            match gateways.all(|owner| world.has_workers(*owner)) {
                true => self.ready(node, revision)?,
                false => self.processes[node].without_workers.push(revision),
            }
        }
        self.look_whether_drained(node)?;
        let wakes = self.processes[node].decides.next_wakeup();
        if wakes.is_some_and(|at| at <= self.now) {
            self.hears(node, Happens::Wakeup)?;
        }
        Ok(())
    }

    fn look_whether_drained(&mut self, node: usize) -> Result<(), Violation> {
        let now = self.now;
        for (revision, (since, idle_since)) in self.processes[node].draining.clone() {
            let world = &self.worlds[revision as usize];
            let mut gateways = self.processes[node].gateways.iter();
            let is_idle = gateways.all(|id| world.gateways[id.idx()].policy.in_flight() == 0);
            if is_idle && now.since(idle_since) >= DRAINED || now.since(since) >= DRAIN_MAX {
                self.processes[node].draining.swap_remove(&revision);
                self.hears(node, Happens::Drained(revision))?;
            } else if !is_idle && let Some(of) = self.processes[node].draining.get_mut(&revision) {
                of.1 = now;
            }
        }
        Ok(())
    }

    /// Tells the policy of the requests that have ended since it was told last.
    fn count(&mut self, node: usize) -> Result<(), Violation> {
        let live = self.live(node);
        let is_live = |revision: &u64, _: &mut Outcomes| live.contains(&(*revision as usize));
        self.processes[node].counted.retain(is_live);
        for revision in live.clone() {
            let mut now = Outcomes::default();
            for owner in &self.processes[node].gateways {
                now.add(self.worlds[revision].outcomes[owner.idx()]);
            }
            let counted = &mut self.processes[node].counted;
            let before = counted.insert(revision as u64, now).unwrap_or_default();
            let ended = now.since(before);
            if ended != Outcomes::default() {
                self.hears(node, Happens::Ended(revision as u64, ended))?;
            }
        }
        Ok(())
    }
}
