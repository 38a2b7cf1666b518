//! Which workers serve which models of the module's family, where requests go by model
//! ([`affinity`](spillgate_pipeline::affinity)).
//!
//! A model goes to the worker that scores highest for it, unless that leaves workers with uneven work: then models move from the
//! busiest worker to the one with the most time, few at a time, because each move costs a load. A model that would keep one worker
//! busy is served by several. What is moved stays there until it must move again, or nobody asks for it any more.
//!
//! How busy a worker is follows from the requests for its models and their planned execution time alone. Larger batches make it less
//! busy, and other modules on its device busier.
//!
//! Invariants: each model has a worker as long as one is up; where rates stay, nothing moves after a while.

use std::collections::BTreeMap;
use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::affinity::{Asked, Assigned, COPIES_MAX, score};
use spillgate_pipeline::id::{GatewayId, MemberId, WorkerId};
use spillgate_pipeline::message::Incarnation;
use spillgate_pipeline::time::Timestamp;

/// Rates follow the requests of about this time.
const FADES_OVER: Duration = Duration::from_secs(2);
/// How often it is looked whether models are to move, while they are asked for.
const PERIOD: Duration = Duration::from_millis(500);
/// A model has so many workers that it takes no more than this part of the time of each.
const PART_MAX: f64 = 0.6;
/// It has one worker less when it would take no more than this part of the others' time.
const PART_LOW: f64 = 0.4;
/// Models stay at a worker that is busy for no more than this part of the time.
const BUSY: f64 = 0.5;
/// They stay where the worker is busier than the mean by no more than this part of the time.
const UNEVEN: f64 = 0.15;
/// Models that move at a time.
const MOVES_MAX: usize = 8;
/// A model for which nobody asked in so long goes where it scores highest again.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// Requests a second, smoothed, and when the last ones came.
#[derive(Clone, Copy, Debug)]
struct Rate {
    value: f64,
    at: Timestamp,
}

impl Rate {
    fn at(&self, now: Timestamp) -> f64 {
        let passed = now.since(self.at).as_secs_f64();
        self.value * (-passed / FADES_OVER.as_secs_f64()).exp()
    }
}

/// A model that was asked for, and the part of a worker's time that each of its workers spends on it.
struct Placed {
    member: MemberId,
    share: f64,
    workers: Vec<WorkerId>,
}

/// The models of a family and their workers.
#[derive(Debug)]
pub struct Models {
    /// Of one request, in seconds.
    execution: f64,
    /// By gateway: its life, and what it counted.
    counted:
        IndexMap<GatewayId, (Incarnation, IndexMap<MemberId, u64, FxBuildHasher>), FxBuildHasher>,
    rates: IndexMap<MemberId, Rate, FxBuildHasher>,
    /// The models that do not go to the worker that scores highest.
    assigned: BTreeMap<MemberId, Vec<WorkerId>>,
    looks_at: Option<Timestamp>,
    /// The workers that were up, and of each model the one of them that scores highest.
    up: Vec<WorkerId>,
    best: IndexMap<MemberId, WorkerId, FxBuildHasher>,
}

impl Models {
    /// Nothing has been asked. A request takes a worker that long.
    pub fn new(execution: Duration) -> Self {
        Models {
            execution: execution.as_secs_f64(),
            counted: IndexMap::default(),
            rates: IndexMap::default(),
            assigned: BTreeMap::new(),
            looks_at: None,
            up: Vec::new(),
            best: IndexMap::default(),
        }
    }

    /// A gateway counted so many requests since it began.
    pub fn take(&mut self, now: Timestamp, gateway: GatewayId, life: Incarnation, asked: Asked) {
        let (of_life, counted) = self.counted.entry(gateway).or_default();
        if *of_life != life {
            (*of_life, *counted) = (life, IndexMap::default());
        }
        for (member, count) in asked {
            let last = counted.entry(member).or_default();
            let more = count.saturating_sub(*last);
            *last += more;
            let rate = self.rates.entry(member);
            let rate = rate.or_insert(Rate {
                value: 0.0,
                at: now,
            });
            *rate = Rate {
                value: rate.at(now) + more as f64 / FADES_OVER.as_secs_f64(),
                at: now,
            };
        }
        self.looks_at.get_or_insert(now + PERIOD);
    }

    /// When it is to be looked whether models move.
    pub fn looks_at(&self) -> Option<Timestamp> {
        self.looks_at
    }

    /// What gateways are to know.
    pub fn assigned(&self) -> Assigned {
        let all = self.assigned.iter();
        all.map(|(member, workers)| (*member, workers.clone()))
            .collect()
    }

    /// Looks which models are to move, if it is time; `up` are the workers that take requests. Returns whether any moved.
    pub fn look(&mut self, now: Timestamp, up: &[WorkerId]) -> bool {
        if self.looks_at.is_none_or(|at| at > now) {
            return false;
        }
        self.rates
            .retain(|_, rate| now.since(rate.at) < FORGOTTEN_AFTER);
        self.looks_at = (!self.rates.is_empty()).then_some(now + PERIOD);
        if up.is_empty() {
            return false;
        }
        self.see(up);
        let mut busy: IndexMap<WorkerId, f64, FxBuildHasher> =
            up.iter().map(|w| (*w, 0.0)).collect();
        let mut placed = self.place(now, &mut busy);
        for _ in 0..MOVES_MAX {
            if !move_one(&mut placed, &mut busy) {
                break;
            }
        }
        let mut assigned = BTreeMap::new();
        for Placed {
            member, workers, ..
        } in placed
        {
            if workers != [self.best[&member]] {
                assigned.insert(member, workers);
            }
        }
        let moved = assigned != self.assigned;
        self.assigned = assigned;
        moved
    }

    /// Each model where it was, with as many workers as it needs; the ones with the most work first.
    fn place(
        &mut self,
        now: Timestamp,
        busy: &mut IndexMap<WorkerId, f64, FxBuildHasher>,
    ) -> Vec<Placed> {
        let work = |(member, rate): (&MemberId, &Rate)| (*member, rate.at(now) * self.execution);
        let mut models: Vec<(MemberId, f64)> = self.rates.iter().map(work).collect();
        models.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let most = self.up.len().min(COPIES_MAX);
        let mut placed = Vec::with_capacity(models.len());
        for (member, work) in models {
            let mut workers = self.served_by(member);
            let needs = ((work / PART_MAX).ceil() as usize).clamp(1, most);
            let is_spared = workers.len() > needs && work / (workers.len() - 1) as f64 <= PART_LOW;
            if is_spared {
                let busiest = (0..workers.len())
                    .max_by(|&a, &b| busy[&workers[a]].total_cmp(&busy[&workers[b]]));
                workers.remove(busiest.unwrap_or_default());
            }
            while workers.len() < needs {
                let others = self.up.iter().filter(|w| !workers.contains(w));
                let next = others.min_by(|a, b| {
                    let by_score = || score(member, **b).cmp(&score(member, **a));
                    busy[*a].total_cmp(&busy[*b]).then_with(by_score)
                });
                workers.extend(next);
            }
            let share = work / workers.len() as f64;
            for worker in &workers {
                busy[worker] += share;
            }
            placed.push(Placed {
                member,
                share,
                workers,
            });
        }
        placed
    }

    fn see(&mut self, up: &[WorkerId]) {
        if self.up != up {
            self.up = up.to_vec();
            self.best.clear();
        }
    }

    /// The workers of a model, of those that are up.
    ///
    /// # Panics
    /// When none is up.
    pub fn workers_of(&mut self, member: MemberId, up: &[WorkerId]) -> Vec<WorkerId> {
        self.see(up);
        self.served_by(member)
    }

    fn served_by(&mut self, member: MemberId) -> Vec<WorkerId> {
        let up = &self.up;
        let best = *self.best.entry(member).or_insert_with(|| {
            let best = up.iter().max_by_key(|w| score(member, **w));
            *best.expect("a worker is up")
        });
        let assigned = self.assigned.get(&member).into_iter().flatten();
        let workers: Vec<WorkerId> = assigned.filter(|w| up.contains(w)).copied().collect();
        match workers.is_empty() {
            true => vec![best],
            false => workers,
        }
    }
}

/// Moves a model from the busiest worker to the one with the most time: the one that comes closest to half of what parts them. False
/// when none is to move.
fn move_one(placed: &mut [Placed], busy: &mut IndexMap<WorkerId, f64, FxBuildHasher>) -> bool {
    let by_work = |a: &(WorkerId, f64), b: &(WorkerId, f64)| a.1.total_cmp(&b.1);
    let all = || busy.iter().map(|(worker, work)| (*worker, *work));
    let (Some(most), Some(least)) = (all().max_by(by_work), all().min_by(by_work)) else {
        return false;
    };
    let mean = busy.values().sum::<f64>() / busy.len() as f64;
    if most.1 <= BUSY || most.1 - mean <= UNEVEN {
        return false;
    }
    let gap = most.1 - least.1;
    let may_move = |p: &&mut Placed| {
        let is_there = p.workers.contains(&most.0) && !p.workers.contains(&least.0);
        is_there && p.share > 0.0 && p.share < gap
    };
    let off = |p: &Placed| (p.share - gap / 2.0).abs();
    let moves = placed.iter_mut().filter(may_move);
    let Some(model) = moves.min_by(|a, b| off(a).total_cmp(&off(b))) else {
        return false;
    };
    for worker in &mut model.workers {
        if *worker == most.0 {
            *worker = least.0;
        }
    }
    busy[&most.0] -= model.share;
    busy[&least.0] += model.share;
    true
}

#[cfg(test)]
mod tests;
