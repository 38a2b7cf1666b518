//! The periodic scheduler of one module: every half second, and at once when a client joins, leaves or finds another link, it maps
//! clients to variants and workers (Fig. 7, ❺ to ❻).
//!
//! Two kinds of decisions. A *whole* one, each [`PERIOD`], searches anew. A *quick* one, in between, keeps what there is and finds a
//! place for clients that have none: it is short, and at most one runs in [`QUICK_GAP`]. So both together stay below 5% of one
//! core with 160 clients.
//!
//! Deviations from the paper, for [`Method::Spillgate`] only: a new split must beat the present one by more than the stated cost of the
//! switches ([`AdaptationConfig::switch_time`]), at once or summed over the periods since the last change; parts are given to workers so
//! that few switch; quick decisions. Other methods take
//! what they find, as their authors do.
//!
//! Invariants: a client is told only variants and workers that serve it in time by its bounded report; each worker has one
//! setting; equal events and seeds give equal commands.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use spillgate_controller_policy::adaptation::{
    Assignment, BadInstance, CLIENTS_MAX, ClientDemand, Instance, Setting, Variant, WORKERS_MAX,
    aligned, rate_unit,
};
use spillgate_pipeline::id::{ClientId, VariantId, WorkerId};
use spillgate_pipeline::time::Timestamp;

use super::cost::{Lost, switch_cost};
use super::explain::{Explanation, Obstacle, obstacle};
use super::report::ClientReport;
use super::search::{Method, Search, repaired};

/// Between two whole decisions (§7).
pub const PERIOD: Duration = Duration::from_millis(500);
/// Least time between a quick decision and the one before: a burst of clients that join is one decision.
pub const QUICK_GAP: Duration = Duration::from_millis(50);
/// A link has changed when its bandwidth, or the client's rate, is this many times what it was at the last decision, or that part.
pub const LINK_JUMP: f64 = 1.3;
/// So it has when its round trip differs by more.
pub const ROUND_TRIP_JUMP: Duration = Duration::from_millis(10);
/// Steps of a quick one.
const QUICK_STEPS: u32 = 40;
/// Requests of a switched client that are lost, as time, unless said otherwise: frames under way, and a variant that is loaded.
pub const SWITCH_TIME_DEFAULT: Duration = Duration::from_millis(5);
/// Neighbours that a worker prefetches, unless said otherwise: with its own variant 5 are cached, which is where hits stop growing.
pub const PREFETCHED_DEFAULT: usize = 4;

/// One variant, as the scheduler knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct AdaptiveVariant {
    /// Accuracy and profile.
    pub variant: Variant,
    /// Bits of one frame of its size, as clients send it.
    pub frame_bits: f64,
}

/// What a scheduler is built from.
#[derive(Clone, Debug, PartialEq)]
pub struct AdaptationConfig {
    /// How clients get variants and workers.
    pub method: Method,
    /// Variants, by id.
    pub variants: Vec<AdaptiveVariant>,
    /// Workers that serve at first.
    pub workers: Vec<WorkerId>,
    /// Time for which the requests of a client are lost when its variant changes, or when its worker loads another one: the cost of a
    /// switch.
    pub switch_time: Duration,
    /// Most of a worker's throughput that its clients get, as a part of it. The rest is for frames that come at once and for batches
    /// that are not full.
    pub load_max: f64,
    /// Neighbours that each worker prefetches.
    pub n_prefetched: usize,
    /// Steps of a whole decision.
    pub steps: u32,
    /// Seed of every random choice.
    pub seed: u64,
}

/// What happens.
#[derive(Clone, Debug, PartialEq)]
pub enum AdaptationEvent {
    /// A client is there and reports; one that is known reports anew.
    Reported {
        /// The client.
        client: ClientId,
        /// What it says of itself.
        report: ClientReport,
    },
    /// A client is gone.
    Left(ClientId),
    /// The other modules of the pipeline are expected to take that long (L_sub, and what passed before this module).
    Rest(Duration),
    /// These workers serve from now on.
    Workers(Vec<WorkerId>),
    /// The time of [`Adaptation::next_wakeup`] has come.
    Wakeup,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdaptationCommand {
    /// The worker runs this variant from now on, in batches of up to this size.
    Run {
        /// The worker.
        worker: WorkerId,
        /// What it runs.
        setting: Setting,
    },
    /// The worker keeps these variants near, the nearest first.
    Prefetch {
        /// The worker.
        worker: WorkerId,
        /// Neighbours of its variant.
        variants: Vec<VariantId>,
    },
    /// The client's frames get this variant's size and go to this worker; `None`: it is not served.
    Tell {
        /// The client.
        client: ClientId,
        /// Its variant and worker.
        served: Option<(VariantId, WorkerId)>,
    },
}

#[derive(Clone, Copy, Debug)]
struct Client {
    /// Last bounded report; `None` while none made sense.
    report: Option<ClientReport>,
    /// The report at the last decision.
    decided: Option<ClientReport>,
    served: Option<(VariantId, WorkerId)>,
    was_told: bool,
}

/// The scheduler.
#[derive(Clone, Debug)]
pub struct Adaptation {
    config: AdaptationConfig,
    clients: BTreeMap<ClientId, Client>,
    /// What each worker runs; `None` until it was told.
    workers: BTreeMap<WorkerId, Option<Setting>>,
    rest: Duration,
    /// When the next whole decision is due.
    whole_at: Timestamp,
    /// When a quick one is due.
    quick_at: Option<Timestamp>,
    decided_at: Option<Timestamp>,
    n_decisions: u64,
    /// Mean accuracy, summed over periods, that another answer would have gained since the last change.
    forgone: f64,
}

impl Adaptation {
    /// A scheduler before its first client. Fails where no decision could be made: for variants without profiles, for instance.
    pub fn new(config: AdaptationConfig) -> Result<Self, BadConfig> {
        let variants = config.variants.iter().map(|v| v.variant.clone()).collect();
        Instance::new(variants, Vec::new(), 1, 1.0)?;
        for (idx, variant) in config.variants.iter().enumerate() {
            positive(variant.frame_bits, || {
                format!("frame size of variant {idx}")
            })?;
        }
        positive(config.load_max, || "the most load of a worker".to_owned())?;
        Ok(Adaptation {
            workers: config
                .workers
                .iter()
                .take(WORKERS_MAX)
                .map(|w| (*w, None))
                .collect(),
            config,
            clients: BTreeMap::new(),
            rest: Duration::ZERO,
            whole_at: Timestamp::ZERO,
            quick_at: None,
            decided_at: None,
            n_decisions: 0,
            forgone: 0.0,
        })
    }

    /// When a decision is due; `None` while there are no clients.
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        if self.clients.is_empty() {
            return None;
        }
        Some(
            self.quick_at
                .map_or(self.whole_at, |quick| quick.min(self.whole_at)),
        )
    }

    /// Takes in one event. Decisions are made on wake-ups only.
    pub fn on_event(
        &mut self,
        now: Timestamp,
        event: AdaptationEvent,
        out: &mut Vec<AdaptationCommand>,
    ) {
        match event {
            AdaptationEvent::Reported { client, report } => {
                let is_known = self.clients.contains_key(&client);
                if is_known || self.clients.len() < CLIENTS_MAX {
                    self.report(now, client, report);
                } else {
                    out.push(AdaptationCommand::Tell {
                        client,
                        served: None,
                    });
                }
            }
            AdaptationEvent::Left(client) => {
                if self.clients.remove(&client).is_some() {
                    self.hurry(now);
                }
            }
            AdaptationEvent::Rest(rest) => self.rest = rest,
            AdaptationEvent::Workers(workers) => {
                let held = |w: &WorkerId| self.workers.get(w).copied().flatten();
                let workers = workers.iter().take(WORKERS_MAX);
                self.workers = workers.map(|w| (*w, held(w))).collect();
                self.hurry(now);
            }
            AdaptationEvent::Wakeup => {
                if self.next_wakeup().is_some_and(|at| at <= now) {
                    self.decide(now, out);
                }
            }
        }
    }

    /// Why a client has what it has; `None` for an unknown one.
    pub fn explain(&self, client: ClientId) -> Option<Explanation> {
        let client = self.clients.get(&client)?;
        let accuracy = |v: usize| self.config.variants[v].variant.accuracy;
        let now = client.served.map(|(variant, _)| variant.0 as usize);
        let better = (0..self.config.variants.len())
            .filter(|v| now.is_none_or(|now| accuracy(*v) > accuracy(now)))
            .min_by(|a, b| accuracy(*a).total_cmp(&accuracy(*b)).then(a.cmp(b)));
        let next = better.map(|v| {
            let AdaptiveVariant {
                variant,
                frame_bits,
            } = &self.config.variants[v];
            let why = client
                .decided
                .or(client.report)
                .map_or(Obstacle::Unknown, |report| {
                    obstacle(&report, variant, *frame_bits, self.rest)
                });
            (VariantId(v as u16), why)
        });
        Some(Explanation {
            served: client.served,
            next,
        })
    }

    fn report(&mut self, now: Timestamp, id: ClientId, report: ClientReport) {
        let known = self.clients.get(&id).copied();
        let mut client = known.unwrap_or(Client {
            report: None,
            decided: None,
            served: None,
            was_told: false,
        });
        client.report = report.bounded(client.report);
        let has_changed = match (client.report, client.decided) {
            (Some(new), Some(old)) => has_jumped(new, old),
            (_, None) => !client.was_told || client.report.is_some(),
            (None, Some(_)) => false,
        };
        self.clients.insert(id, client);
        if has_changed {
            self.hurry(now);
        }
    }

    /// A quick decision is due as soon as the gap allows.
    fn hurry(&mut self, now: Timestamp) {
        let earliest = self.decided_at.map_or(now, |at| (at + QUICK_GAP).max(now));
        self.quick_at = Some(self.quick_at.map_or(earliest, |at| at.min(earliest)));
    }

    fn decide(&mut self, now: Timestamp, out: &mut Vec<AdaptationCommand>) {
        let is_whole = self.whole_at <= now;
        if is_whole {
            self.whole_at = now + PERIOD;
        }
        self.quick_at = None;
        self.decided_at = Some(now);
        self.n_decisions += 1;
        let ids: Vec<ClientId> = self
            .clients
            .iter()
            .filter(|(_, c)| c.report.is_some())
            .map(|(id, _)| *id)
            .collect();
        let instance = self.instance(&ids).ok();
        let assignment = instance.and_then(|instance| self.assign(instance, &ids, is_whole));
        self.carry_out(&ids, assignment, out);
    }

    /// The question of this moment.
    fn instance(&self, ids: &[ClientId]) -> Result<Instance, BadInstance> {
        let variants: Vec<Variant> = self
            .config
            .variants
            .iter()
            .map(|v| v.variant.clone())
            .collect();
        let demand = |id: &ClientId| {
            let report = self.clients[id].report?;
            let budget = |v: &AdaptiveVariant| report.budget(v.frame_bits, self.rest);
            let budgets = self.config.variants.iter().map(budget).collect();
            Some(ClientDemand {
                rate: report.rate / self.config.load_max,
                budgets,
            })
        };
        let clients = ids.iter().filter_map(demand).collect();
        let unit = rate_unit(&variants);
        Instance::new(variants, clients, self.workers.len(), unit)
    }

    /// What workers hold and whom they serve, in ordinals of this moment.
    fn present(&self, ids: &[ClientId]) -> Assignment {
        let order: Vec<WorkerId> = self.workers.keys().copied().collect();
        let worker = |id: &ClientId| {
            let (_, worker) = self.clients[id].served?;
            order.binary_search(&worker).ok()
        };
        Assignment {
            workers: self.workers.values().copied().collect(),
            clients: ids.iter().map(worker).collect(),
        }
    }

    fn assign(
        &mut self,
        instance: Instance,
        ids: &[ClientId],
        is_whole: bool,
    ) -> Option<Assignment> {
        let present = self.present(ids);
        let seed = self.config.seed.wrapping_add(self.n_decisions);
        let method = self.config.method;
        let searched = || {
            let mut search = Search::new(method, instance.clone(), Some(&present), seed);
            for step in 0..self.config.steps {
                search.advance(1, f64::from(step) / f64::from(self.config.steps));
            }
            search.best_near(&present)
        };
        if method != Method::Spillgate {
            return Some(searched());
        }
        let repaired = repaired(&instance, &present, seed, QUICK_STEPS);
        let mut answers = vec![
            without_idle(&present),
            aligned(&repaired, &present, &present.workers),
        ];
        if is_whole {
            answers.push(searched());
        }
        self.least_change(&instance, &present, answers, (ids, is_whole))
    }

    /// The best of some answers, less what their switches cost. Earlier ones win where nothing is gained; the first is the present one. What others
    /// would have gained since the last change counts against their cost, so that a small gain that lasts is taken.
    fn least_change(
        &mut self,
        instance: &Instance,
        present: &Assignment,
        answers: Vec<Assignment>,
        (ids, is_whole): (&[ClientId], bool),
    ) -> Option<Assignment> {
        let setting = |variant| Setting { variant, batch: 1 };
        let told: Vec<Option<Setting>> = ids
            .iter()
            .map(|id| self.clients[id].served.map(|(v, _)| setting(v)))
            .collect();
        let lost = Lost {
            switch_time: self.config.switch_time,
            period: PERIOD,
        };
        let is_more =
            |a: &(usize, f64), b: &(usize, f64)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).is_gt();
        let mut best: Option<((usize, f64), usize, Assignment)> = None;
        let mut most = (0, f64::NEG_INFINITY);
        let mut kept = None;
        for (idx, answer) in answers.into_iter().enumerate() {
            if answer.check(instance).is_err() {
                continue;
            }
            let worth = answer.worth(instance);
            let cost = switch_cost(instance, &answer, &told, &present.workers, lost);
            let value = (worth.served, worth.value);
            if is_more(&value, &most) {
                most = value;
            }
            if idx == 0 {
                kept = Some(value);
            }
            let net = (worth.served, worth.value - (cost - self.forgone).max(0.0));
            if best.as_ref().is_none_or(|(old, ..)| is_more(&net, old)) {
                best = Some((net, idx, answer));
            }
        }
        let (_, idx, answer) = best?;
        self.forgone = match kept.filter(|kept| idx == 0 && kept.0 == most.0) {
            Some(kept) if is_whole => self.forgone + (most.1 - kept.1),
            Some(_) => self.forgone,
            None => 0.0,
        };
        Some(answer)
    }

    /// Tells workers and clients what has changed.
    fn carry_out(
        &mut self,
        ids: &[ClientId],
        assignment: Option<Assignment>,
        out: &mut Vec<AdaptationCommand>,
    ) {
        let assignment = assignment.unwrap_or_default();
        let order: Vec<WorkerId> = self.workers.keys().copied().collect();
        for (id, setting) in order.iter().zip(&assignment.workers) {
            let held = self.workers[id];
            let Some(setting) = setting.filter(|s| held != Some(*s)) else {
                continue;
            };
            self.workers.insert(*id, Some(setting));
            out.push(AdaptationCommand::Run {
                worker: *id,
                setting,
            });
            if held.is_none_or(|h| h.variant != setting.variant) && self.config.n_prefetched > 0 {
                let variants = self.neighbours(setting.variant);
                out.push(AdaptationCommand::Prefetch {
                    worker: *id,
                    variants,
                });
            }
        }
        let mut served = vec![None; ids.len()];
        for (client, worker) in assignment.clients.iter().enumerate() {
            let setting = worker.and_then(|w| assignment.workers[w].map(|s| (s.variant, order[w])));
            served[client] = setting;
        }
        let found: BTreeMap<ClientId, _> = ids.iter().copied().zip(served).collect();
        for (id, client) in &mut self.clients {
            let served = found.get(id).copied().flatten();
            client.decided = client.report;
            if served != client.served || !client.was_told {
                client.served = served;
                client.was_told = true;
                out.push(AdaptationCommand::Tell {
                    client: *id,
                    served,
                });
            }
        }
    }

    /// The nearest variants in order of execution time, by turns below and above (§4.4).
    fn neighbours(&self, variant: VariantId) -> Vec<VariantId> {
        let time = |v: &u16| self.config.variants[*v as usize].variant.execution[0];
        let mut order: Vec<u16> = (0..self.config.variants.len() as u16).collect();
        order.sort_by(|a, b| time(a).cmp(&time(b)).then(a.cmp(b)));
        let at = order.iter().position(|v| *v == variant.0).unwrap_or(0);
        let mut near: Vec<usize> = (0..order.len()).filter(|i| *i != at).collect();
        near.sort_by_key(|i| (i.abs_diff(at), *i));
        near.truncate(self.config.n_prefetched);
        near.into_iter().map(|i| VariantId(order[i])).collect()
    }
}

/// The same assignment, in which workers that serve nobody run nothing.
fn without_idle(assignment: &Assignment) -> Assignment {
    let mut workers = vec![None; assignment.workers.len()];
    for worker in assignment.clients.iter().flatten() {
        workers[*worker] = assignment.workers[*worker];
    }
    Assignment {
        workers,
        clients: assignment.clients.clone(),
    }
}

/// Why a scheduler cannot be built.
#[derive(Clone, Debug, PartialEq)]
pub enum BadConfig {
    /// No question could be asked.
    Instance(BadInstance),
    /// A number that is not finite, or not above 0.
    NotPositive {
        /// What it says.
        what: String,
        /// The number.
        value: f64,
    },
}

impl From<BadInstance> for BadConfig {
    fn from(bad: BadInstance) -> Self {
        BadConfig::Instance(bad)
    }
}

impl fmt::Display for BadConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadConfig::Instance(bad) => bad.fmt(f),
            BadConfig::NotPositive { what, value } => {
                write!(f, "{what} is {value}; it is a finite number above 0")
            }
        }
    }
}

impl std::error::Error for BadConfig {}

fn positive(value: f64, what: impl Fn() -> String) -> Result<(), BadConfig> {
    if value.is_finite() && value > 0.0 {
        return Ok(());
    }
    let what = what();
    Err(BadConfig::NotPositive { what, value })
}

/// Whether a client's link or rate has changed so much that a decision cannot wait.
fn has_jumped(new: ClientReport, old: ClientReport) -> bool {
    let jumps = |new: f64, old: f64| new > old * LINK_JUMP || old > new * LINK_JUMP;
    jumps(new.bandwidth, old.bandwidth)
        || jumps(new.rate, old.rate)
        || new.round_trip.abs_diff(old.round_trip) > ROUND_TRIP_JUMP
        || new.slo != old.slo
}
