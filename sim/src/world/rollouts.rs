//! A set of processes whose revisions are rolled out. Each revision has a world of its own, in which each process has its roles and
//! its sessions while it serves that revision: revisions never talk to each other. What is one for all of them is here: the processes,
//! which crash with all their revisions; what each knows to be published; the policy that decides which of its revisions live, and
//! which one takes a request; faults; operators.
//!
//! The devices of a process serve each revision as if it were alone.

mod process;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use spillgate_controller_policy::rollout::{Admission, RevisionState, key_of};
use spillgate_pipeline::id::GatewayId;
use spillgate_pipeline::invariants::{Checker, Violation};
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::publication::{Definition, News, Publication, Published};

use super::agenda::Next;
use super::cluster::{Change, Notice, Said, drawn};
use super::gateways::stream_of;
use super::{SimConfig, World};
use crate::cluster::{Cluster, Fault, Flaw, Operation, Rollouts, Scripted};
use crate::report::Report;
use process::{Decides, LOOK, Process};

/// So long after the last fault an operator looks at the set for the first time, and for the last time.
const OPERATOR_LOOKS: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(6)];
/// How often it looks.
const OPERATOR_PERIOD: Duration = Duration::from_secs(1);
/// So long after the last fault all processes serve the revision that is published, and no other: the operator has looked, and a
/// revision that it published has started and was watched, and the one before has drained and ended.
const SETTLED: Duration = Duration::from_secs(14);

/// What is to come in the set.
#[derive(Clone, Debug)]
enum Due {
    Begins(Fault, Timestamp),
    Ends(Fault),
    Operates(Operation),
    OperatorLooks,
    /// The process looks at its revisions, in its life.
    Looks {
        node: usize,
        life: u64,
    },
    /// A revision has started in the process, in its life.
    Started {
        node: usize,
        life: u64,
        revision: u64,
    },
    Settled,
}

#[derive(Default)]
struct Agenda {
    by_time: BTreeMap<(Timestamp, u64), Due>,
    n: u64,
}

impl Agenda {
    fn at(&mut self, at: Timestamp, due: Due) {
        self.n += 1;
        self.by_time.insert((at, self.n), due);
    }
}

struct Set {
    config: SimConfig,
    cluster: Arc<Cluster>,
    rollouts: Arc<Rollouts>,
    /// By revision.
    worlds: Vec<World>,
    /// By node.
    processes: Vec<Process>,
    agenda: Agenda,
    now: Timestamp,
    checker: Checker,
    rng: ChaCha8Rng,
}

/// Runs a configuration whose operators publish revisions.
pub(super) fn run(config: SimConfig, rollouts: Arc<Rollouts>) -> Result<Report, Violation> {
    let mut set = Set::new(config, rollouts);
    set.start()?;
    while !set.is_over() {
        set.step()?;
    }
    set.check()?;
    set.report()
}

impl Set {
    fn new(config: SimConfig, rollouts: Arc<Rollouts>) -> Self {
        let cluster = config.cluster.clone().unwrap_or_default();
        let worlds = (0..=rollouts.flaws.len() as u64).map(|revision| {
            let mut world = World::new(SimConfig {
                seed: config.seed ^ revision << 40,
                ..config.clone()
            });
            let fails = revision > 0 && rollouts.flaws[revision as usize - 1] == Flaw::Fails;
            world.of_revision(revision, fails);
            if revision > 0 {
                world.agenda.without_offers();
            }
            world
        });
        let processes = cluster.nodes.iter();
        Set {
            worlds: worlds.collect(),
            processes: processes
                .map(|node| Process::new(node, rollouts.config))
                .collect(),
            agenda: Agenda::default(),
            now: Timestamp::ZERO,
            checker: Checker::default(),
            rng: ChaCha8Rng::seed_from_u64(config.seed ^ 0x0ff1_5e75),
            cluster,
            rollouts,
            config,
        }
    }

    fn start(&mut self) -> Result<(), Violation> {
        for Scripted { at, lasts, fault } in drawn(&self.cluster, &mut self.rng) {
            let at = Timestamp::ZERO + at;
            self.agenda.at(at, Due::Begins(fault, at + lasts));
            self.agenda.at(at + lasts, Due::Ends(fault));
        }
        for (at, operation) in &self.rollouts.operations {
            let due = Due::Operates(*operation);
            self.agenda.at(Timestamp::ZERO + *at, due);
        }
        let healed = Timestamp::ZERO + self.cluster.heals_at();
        self.agenda
            .at(healed + OPERATOR_LOOKS[0], Due::OperatorLooks);
        self.agenda.at(healed + SETTLED, Due::Settled);
        (0..self.processes.len()).try_for_each(|node| self.begin(node))
    }

    fn is_over(&self) -> bool {
        let is_settled = self.now >= Timestamp::ZERO + self.cluster.heals_at() + SETTLED;
        is_settled
            && self.worlds[0].agenda.all_offered()
            && self.worlds.iter().all(|world| world.in_flight() == 0)
    }

    fn step(&mut self) -> Result<(), Violation> {
        let own = self.agenda.by_time.first_key_value().map(|(key, _)| key.0);
        let worlds = self.worlds.iter_mut().enumerate();
        let next = worlds.filter_map(|(i, world)| Some((world.agenda.next_at()?, Reverse(i))));
        let next = next.min();
        let own = own.filter(|at| next.is_none_or(|(first, _)| *at <= first));
        match (own, next) {
            (Some(at), _) => {
                self.now = at;
                self.advance()?;
                if let Some((_, due)) = self.agenda.by_time.pop_first() {
                    self.fall_due(due)?;
                }
            }
            (None, Some((at, Reverse(revision)))) => {
                self.now = at;
                let world = &mut self.worlds[revision];
                world.advance(at)?;
                match world.agenda.next() {
                    Some((_, Next::Offer(ordinal))) => self.offer_next(ordinal)?,
                    Some((_, next)) => world.step(next)?,
                    None => {}
                }
            }
            (None, None) => unreachable!("processes look at their revisions for ever"),
        }
        self.hear_all()
    }

    /// All worlds have the time of the set.
    fn advance(&mut self) -> Result<(), Violation> {
        let now = self.now;
        let mut worlds = self.worlds.iter_mut();
        worlds.try_for_each(|world| world.advance(now))
    }

    /// Processes hear what their sessions brought, and offer what they heard.
    fn hear_all(&mut self) -> Result<(), Violation> {
        for revision in 0..self.worlds.len() {
            let notices = self.worlds[revision].notices();
            if !notices.is_empty() {
                self.advance()?;
            }
            for (node, notice) in notices {
                match notice {
                    _ if !self.processes[node].is_up => {}
                    Notice::Met(peer) => self.report_to(node, revision, peer),
                    Notice::Heard(Said::Published(said)) => self.hear(node, &said, false),
                    Notice::Heard(Said::NotStarted(revision)) => self.fails(node, revision)?,
                }
                self.offer_waiting(node)?;
            }
        }
        Ok(())
    }

    fn fall_due(&mut self, due: Due) -> Result<(), Violation> {
        match due {
            Due::Begins(fault, until) => self.fault_begins(fault, until),
            Due::Ends(fault) => self.fault_ends(fault),
            Due::Operates(operation) => self.operate(operation),
            Due::OperatorLooks => self.operator_looks(),
            Due::Settled => self.check(),
            Due::Looks { node, life } | Due::Started { node, life, .. }
                if self.processes[node].life != life || !self.processes[node].is_up =>
            {
                Ok(())
            }
            Due::Looks { node, .. } | Due::Started { node, .. }
                if let Some(until) = self.worlds[0].node_stalls(node) =>
            {
                self.agenda.at(until, due);
                Ok(())
            }
            Due::Looks { node, .. } => {
                self.agenda.at(self.now + LOOK, due);
                self.look(node)?;
                self.offer_waiting(node)
            }
            Due::Started { node, revision, .. } => {
                self.started(node, revision)?;
                self.offer_waiting(node)
            }
        }
    }

    /// A process begins, with revision 0.
    fn begin(&mut self, node: usize) -> Result<(), Violation> {
        let process = &mut self.processes[node];
        process.begins(self.rollouts.config, self.now);
        let life = process.life;
        for world in &mut self.worlds {
            world.greet_with(node, None);
        }
        self.begin_revision(node, 0)?;
        self.agenda.at(self.now + LOOK, Due::Looks { node, life });
        Ok(())
    }

    /// A process ends with all its revisions.
    fn end(&mut self, node: usize, silent: bool) -> Result<(), Violation> {
        self.close(node);
        let mut worlds = self.worlds.iter_mut();
        worlds.try_for_each(|world| world.crash(node, silent))
    }

    /// A process decides no more.
    fn close(&mut self, node: usize) {
        let process = &mut self.processes[node];
        process.is_up = false;
        process.life += 1;
        self.serve_others(node);
    }

    fn fault_begins(&mut self, fault: Fault, until: Timestamp) -> Result<(), Violation> {
        match fault {
            Fault::Crash { node, silent } => self.end(node, silent),
            Fault::Away {
                node, leaves: true, ..
            } => {
                self.close(node);
                let mut worlds = self.worlds.iter_mut();
                worlds.try_for_each(|world| world.leave(node))
            }
            Fault::Away { node, .. } => self.end(node, false),
            Fault::Impostor { node, of } => self.impersonate(node, Some(of)),
            _ => self.change(Change::Begins { fault, until }),
        }
    }

    fn fault_ends(&mut self, fault: Fault) -> Result<(), Violation> {
        match fault {
            Fault::Crash { node, .. } if self.processes[node].is_up => Ok(()),
            Fault::Away { node, .. } if self.processes[node].is_up => Ok(()),
            Fault::Crash { node, .. } => self.end(node, false).and_then(|()| self.begin(node)),
            Fault::Away { node, renamed, .. } => {
                self.end(node, false)?;
                for world in &mut self.worlds {
                    world.rename(node, renamed);
                }
                self.begin(node)
            }
            Fault::Impostor { node, .. } => self.impersonate(node, None),
            _ => self.change(Change::Ends(fault)),
        }
    }

    fn change(&mut self, change: Change) -> Result<(), Violation> {
        let mut worlds = self.worlds.iter_mut();
        worlds.try_for_each(|world| world.change(change))
    }

    fn impersonate(&mut self, node: usize, of: Option<usize>) -> Result<(), Violation> {
        self.end(node, false)?;
        for world in &mut self.worlds {
            world.take_name(node, of);
        }
        self.begin(node)
    }

    /// The next request comes to a gateway, and there to the revision that takes it.
    fn offer_next(&mut self, ordinal: usize) -> Result<(), Violation> {
        let clients = self.config.clients.as_ref();
        let key = match clients {
            Some(clients) => stream_of(&clients.requests[ordinal].1).0,
            None => ordinal as u64,
        };
        let key = key_of(&key.to_be_bytes());
        let mut takes: Vec<(GatewayId, usize)> = Vec::new();
        for process in self.processes.iter().filter(|process| process.is_up) {
            let Decides::Gateway(rollout) = &process.decides else {
                continue;
            };
            let Some(revision) = rollout.choose(key).map(|id| id.0 as usize) else {
                continue;
            };
            let world = &self.worlds[revision];
            let ready = process.gateways.iter().filter(|id| world.is_ready(**id));
            takes.extend(ready.map(|id| (*id, revision)));
        }
        takes.sort_unstable();
        let living: Vec<GatewayId> = takes.iter().map(|(id, _)| *id).collect();
        let owner = self.worlds[0].draw_owner(&living);
        let taken = takes.iter().find(|(id, _)| Some(*id) == owner);
        let world = &mut self.worlds[taken.map_or(0, |(_, revision)| *revision)];
        world.advance(self.now)?;
        world.offer_ordinal(owner, ordinal)
    }

    fn flaw(&self, revision: u64) -> Flaw {
        match revision {
            0 => Flaw::None,
            n => self.rollouts.flaws[n as usize - 1],
        }
    }

    /// An operator asks something of a controller, which does it if it can.
    fn operate(&mut self, operation: Operation) -> Result<(), Violation> {
        let Operation { node, publishes } = operation;
        let process = &self.processes[node];
        if !process.is_up || !process.has_controllers {
            return Ok(());
        }
        let latest = process.published.latest();
        let served = latest.map_or(0, |latest| latest.now.revision);
        let next = match (latest, publishes) {
            (_, Some(revision)) if revision == served => None,
            (Some(latest), Some(revision)) => Some(latest.next(definition(revision))),
            (None, Some(revision)) => {
                let [former, now] = [0, revision].map(definition);
                Some(Publication::first("simulated".into(), former, now))
            }
            (Some(latest), None) => Some(latest.undone("".into())),
            (None, None) => None,
        };
        if let Some(next) = next {
            self.hear(node, &Arc::new(next), true);
        }
        self.offer_waiting(node)
    }

    /// What counts of all that gateways and controllers know.
    fn latest(&self) -> Published {
        let mut latest = Published::default();
        for process in self.processes.iter().filter(|of| of.is_up && of.publishes) {
            if let Some(of) = process.published.latest() {
                latest.hear(of);
            }
        }
        latest
    }

    /// An operator looks after the last fault. Where all gateways and controllers had ended, nobody says any more what was published: the
    /// operator begins those anew that follow it still, and those that say that they serve nothing. A revision that has a flaw and was not
    /// taken back gives way to the first one, and so does one that gateways took back each by itself.
    fn operator_looks(&mut self) -> Result<(), Violation> {
        let healed = Timestamp::ZERO + self.cluster.heals_at();
        if self.now < healed + OPERATOR_LOOKS[1] {
            self.agenda
                .at(self.now + OPERATOR_PERIOD, Due::OperatorLooks);
        }
        let latest = self.latest();
        for node in 0..self.processes.len() {
            let known = self.processes[node].published.latest().cloned();
            let is_later = |known| latest.clone().hear(known) == News::Later;
            let is_stuck = self.processes[node].is_lost || known.as_ref().is_some_and(is_later);
            if self.processes[node].is_up && is_stuck {
                self.end(node, false)?;
                self.begin(node)?;
            }
        }
        let served = latest.latest().map_or(0, |latest| latest.now.revision);
        let knows = latest.latest();
        let controller = self.processes.iter().position(|process| {
            process.is_up && process.has_controllers && process.published.latest() == knows
        });
        match controller {
            Some(node) if self.flaw(served) != Flaw::None || self.is_taken_back(served) => self
                .operate(Operation {
                    node,
                    publishes: Some(0),
                }),
            _ => Ok(()),
        }
    }

    /// Whether a gateway took a revision back.
    fn is_taken_back(&self, revision: u64) -> bool {
        let up = self.processes.iter().filter(|process| process.is_up);
        let gateways = up.filter(|process| !process.gateways.is_empty());
        let mut views = gateways.flat_map(|process| process.decides.view());
        views.any(|of| of.id.0 == revision && of.state == RevisionState::TakenBack)
    }

    /// All processes serve the revision that is published, and no other.
    fn check(&self) -> Result<(), Violation> {
        let latest = self.latest();
        let latest = latest.latest();
        let revision = latest.map_or(0, |latest| latest.now.revision);
        let wrong = self.processes.iter().enumerate().find_map(|(node, of)| {
            let generation = latest.map_or(0, |latest| latest.generation);
            let wrong = match &of.decides {
                _ if !of.is_up => return None,
                Decides::Gateway(rollout) => match rollout.admission() {
                    Admission::One(id) if id.0 == revision => None,
                    admission => Some(format!("admits to {admission:?}")),
                },
                Decides::Inner(_) => None,
            };
            let live = self.live(node);
            let expected = match self.flaw(revision) == Flaw::NotStarted(node) {
                true => Vec::new(),
                false => vec![revision as usize],
            };
            let wrong = match of.published.latest() == latest {
                true => wrong,
                false => Some(format!("knows {:?}", of.published.latest())),
            };
            let lives = (live != expected).then(|| format!("has revisions {live:?}"));
            let wrong = wrong.or(lives)?;
            Some(format!(
                "node {node} {wrong}; revision {revision} is published, as generation {generation}"
            ))
        });
        self.checker.revisions(wrong)
    }

    /// The first revision's report, with the requests by second and the events of all.
    fn report(self) -> Result<Report, Violation> {
        let reports = self.worlds.into_iter().map(World::finish);
        let mut reports = reports.collect::<Result<Vec<Report>, _>>()?.into_iter();
        let mut all = reports.next().unwrap_or_default();
        for of in reports {
            add(&mut all.offered_by_second, &of.offered_by_second);
            add(&mut all.good_by_second, &of.good_by_second);
            all.events += of.events;
            all.trace_hash.push_str(&of.trace_hash);
        }
        Ok(all)
    }
}

fn add(sum: &mut Vec<u32>, of: &[u32]) {
    if sum.len() < of.len() {
        sum.resize(of.len(), 0);
    }
    for (sum, of) in sum.iter_mut().zip(of) {
        *sum += of;
    }
}

fn definition(revision: u64) -> Arc<Definition> {
    Arc::new(Definition {
        revision,
        pipeline: format!("revision {revision}").into(),
        profiles: "".into(),
    })
}
