//! The memory for weights of a device whose brokers form its batches: which weights are there, which are read, and which give way.
//!
//! Where all are there and none gives way, nothing is counted and nothing is looked up for a request.
//!
//! Requests whose weights are not there wait apart (`broker/cold.rs`) until these are read, beside the batches and one after another. The
//! weights that are asked for least give way. How often weights are asked for is counted with requests that are dropped, as those are asked
//! for, too; an earlier request counts less ([`FORGOTTEN`]).
//!
//! What is read next: that for which most requests wait that it makes in time or are expected within [`AHEAD`], for the time of reading it.
//! It is worth what gives way if more requests wait for it than for that. What is expected of both counts by the part of the time in which
//! the link was busy: while it has time to spare, what gave way is read again when it is asked for.
//!
//! Requests without an SLO count nothing in this. What only they wait for is read when nothing else is worth it, into memory that nobody uses.
//!
//! Workers that come with the load need what they serve by default before they serve ([`ScaledWorker`]). When they go, what they alone used
//! is given back. Where weights give way to each other, they are read when requests come instead.
//!
//! Source: Clockwork (§5.1) for pages, of 16 MiB. Clockwork's own rule is that the least recently used model gives way; a rate is not
//! misled by one request for a model that hardly anybody asks for.
//!
//! Invariants: the pages of the weights that are there or read are at most those of the device; one is read at a time.

use std::sync::Arc;
use std::time::Duration;

use indexmap::{IndexMap, IndexSet};
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::action::{Load, LoadCause};
use spillgate_pipeline::id::{MemberId, WeightsId, WorkerId};
use spillgate_pipeline::predict::{Cap, Estimator, EstimatorName};
use spillgate_pipeline::request::ModelChoice;
use spillgate_pipeline::time::Timestamp;

use super::pages::Pages;

/// A request of so long ago counts as 1/e of one, and so does the time in which the link was busy.
pub const FORGOTTEN: Duration = Duration::from_secs(10);
/// Requests that are expected within this time count for their weights.
pub const AHEAD: Duration = Duration::from_secs(1);
/// What is read is worth so many requests more than what gives way. Less is chance.
const WORTH_MIN: f64 = 0.01;
/// Weights for which fewer requests are expected within [`AHEAD`] give way to those that requests without an SLO wait for: less than one in ten
/// seconds came.
const UNUSED_BELOW: f64 = 0.1;
/// Weights that could not be read are not read again within this time: their requests fail.
pub const FAILED_FOR: Duration = Duration::from_secs(1);

/// Weights that may be in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightsSize {
    /// Pages that they take.
    pub pages: u32,
    /// How long reading them is expected to take, until it was measured.
    pub load: Duration,
}

/// What the models of a worker run with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerWeights {
    /// By member of the family of its module or by variant; one where there is neither.
    pub weights: Vec<WeightsId>,
    /// They are those of variants.
    pub by_variant: bool,
}

impl WorkerWeights {
    /// The weights of a model.
    fn of(&self, model: ModelChoice) -> Option<WeightsId> {
        let ordinal = match self.by_variant {
            true => model.variant.idx(),
            false => model.member.idx(),
        };
        self.weights.get(ordinal).copied()
    }
}

/// A worker that comes and goes with the load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScaledWorker {
    /// The worker.
    pub worker: WorkerId,
    /// What is there while it serves; members of a family but the default are read when they are asked for.
    pub needs: Vec<WeightsId>,
    /// It serves from the start.
    pub from_start: bool,
}

/// What the memory of a device is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightStoreConfig {
    /// Pages of the device; `u32::MAX`: as many as are asked for, so none gives way.
    pub pages: u32,
    /// All weights, by id.
    pub weights: Arc<[WeightsSize]>,
    /// The workers of the device.
    pub workers: Vec<(WorkerId, WorkerWeights)>,
    /// What is there from the start. It fits.
    pub resident: Vec<WeightsId>,
    /// The workers that come and go; all others serve always. None where weights give way to each other.
    pub scaled: Vec<ScaledWorker>,
}

/// What became of weights on a device, since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WeightStoreAccount {
    /// Batches.
    pub batches: u64,
    /// Requests that waited for weights.
    pub cold: u64,
    /// Weights that were read.
    pub loads: u64,
    /// Weights that could not be read.
    pub failed_loads: u64,
    /// Weights that gave way.
    pub unloads: u64,
}

/// A quantity that fades.
#[derive(Clone, Copy, Debug, Default)]
struct Fading {
    value: f64,
    at: Timestamp,
}

impl Fading {
    fn at(self, now: Timestamp) -> f64 {
        let ages = now.since(self.at).as_secs_f64() / FORGOTTEN.as_secs_f64();
        self.value * (-ages).exp()
    }

    fn add(&mut self, now: Timestamp, value: f64) {
        *self = Fading {
            value: self.at(now) + value,
            at: now,
        };
    }
}

/// What is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) weights: WeightsId,
    /// When it began, and is expected to end.
    pub(crate) load: Load,
}

/// A worker that comes and goes with the load.
#[derive(Clone, Debug)]
struct Scaled {
    needs: Vec<WeightsId>,
    is_served: bool,
}

/// Waiting requests that weights would serve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Wanted {
    pub(crate) weights: WeightsId,
    /// Requests that would be in time.
    pub(crate) in_time: usize,
    /// The earliest deadline of all.
    pub(crate) deadline: Timestamp,
    /// None of them has an SLO.
    pub(crate) is_background: bool,
}

/// The memory of one device.
#[derive(Clone, Debug)]
pub struct WeightStore {
    pages: Pages,
    config: WeightStoreConfig,
    workers: IndexMap<WorkerId, WorkerWeights, FxBuildHasher>,
    scaled: IndexMap<WorkerId, Scaled, FxBuildHasher>,
    /// None gives way, and all are there.
    has_all: bool,
    /// The workers that serve members of families with weights.
    members: IndexMap<WeightsId, Vec<(WorkerId, MemberId)>, FxBuildHasher>,
    /// What is there, or read, and how that was read if it was.
    held: IndexMap<WeightsId, Option<Load>, FxBuildHasher>,
    reading: Option<Reading>,
    /// What could not be read, and until when it is not tried again.
    failed: IndexMap<WeightsId, Timestamp, FxBuildHasher>,
    asked: IndexMap<WeightsId, Fading, FxBuildHasher>,
    loads: IndexMap<WeightsId, Estimator, FxBuildHasher>,
    /// Seconds in which something was read.
    busy: Fading,
    /// What gave way once.
    known: IndexSet<WeightsId, FxBuildHasher>,
    account: WeightStoreAccount,
}

impl WeightStore {
    /// The memory of a device that begins to serve.
    pub fn new(config: WeightStoreConfig) -> Self {
        let mut members: IndexMap<WeightsId, Vec<_>, FxBuildHasher> = IndexMap::default();
        // Gateways send requests by member; which variants are there is no matter of theirs.
        for (worker, of) in config.workers.iter().filter(|(_, of)| !of.by_variant) {
            for (member, weights) in (0..).map(MemberId).zip(&of.weights) {
                members.entry(*weights).or_default().push((*worker, member));
            }
        }
        let scaled = |of: &ScaledWorker| {
            let scaled = Scaled {
                needs: of.needs.clone(),
                is_served: of.from_start,
            };
            (of.worker, scaled)
        };
        let mut memory = WeightStore {
            pages: Pages::new(config.pages, config.weights.iter().map(|w| w.pages)),
            workers: config.workers.iter().cloned().collect(),
            scaled: config.scaled.iter().map(scaled).collect(),
            has_all: false,
            members,
            held: IndexMap::default(),
            reading: None,
            failed: IndexMap::default(),
            asked: IndexMap::default(),
            loads: IndexMap::default(),
            busy: Fading::default(),
            known: IndexSet::default(),
            account: WeightStoreAccount::default(),
            config,
        };
        for weights in memory.config.resident.clone() {
            memory.hold(weights);
            memory.pages.ready(weights);
        }
        memory.changed();
        memory
    }

    /// Weights came or went.
    fn changed(&mut self) {
        let mut all = (0..self.config.weights.len() as u32).map(WeightsId);
        let is_there = |w: WeightsId| self.pages.is_ready(w) || self.pages.needs(w) == 0;
        self.has_all = self.config.pages == u32::MAX && all.all(is_there);
    }

    /// Whether all weights are there and none gives way.
    pub(crate) fn has_all(&self) -> bool {
        self.has_all
    }

    /// Whether what is there may change.
    pub fn changes(&self) -> bool {
        !self.has_all || !self.scaled.is_empty() || self.account.loads > 0
    }

    /// Whether a worker serves.
    pub(crate) fn is_served(&self, worker: WorkerId) -> bool {
        self.scaled.get(&worker).is_none_or(|of| of.is_served)
    }

    /// A worker is to serve. Returns what it needs first and is not there.
    pub(crate) fn serve(&mut self, worker: WorkerId) -> Option<WeightsId> {
        let of = self.scaled.get_mut(&worker)?;
        of.is_served = true;
        let pages = &self.pages;
        let is_missing = |w: &&WeightsId| pages.needs(**w) > 0 && !pages.is_ready(**w);
        of.needs.iter().find(is_missing).copied()
    }

    /// Whether something is read that a worker uses.
    pub(crate) fn reads_for(&self, worker: WorkerId) -> bool {
        self.reading
            .is_some_and(|reading| self.uses(worker, reading.weights))
    }

    fn uses(&self, worker: WorkerId, weights: WeightsId) -> bool {
        let of = self.workers.get(&worker);
        of.is_some_and(|of| of.weights.contains(&weights))
    }

    /// A worker that came with the load serves no more: gives back what it alone used. `stays`: what must not go, since batches have it.
    pub(crate) fn retire(&mut self, worker: WorkerId, stays: &[WeightsId]) -> Vec<WeightsId> {
        let Some(of) = self.scaled.get_mut(&worker) else {
            return Vec::new();
        };
        of.is_served = false;
        let all = self.held.keys().copied();
        let own = all.filter(|weights| self.uses(worker, *weights) && !stays.contains(weights));
        let served = || self.workers.keys().filter(|other| self.is_served(**other));
        let gone = own.filter(|weights| !served().any(|other| self.uses(*other, *weights)));
        let gone: Vec<WeightsId> = gone.collect();
        for weights in &gone {
            self.account.unloads += 1;
            self.release(*weights);
        }
        gone
    }

    /// Reads weights for a worker that is to serve, where none gives way and nothing is read.
    pub(crate) fn read(&mut self, now: Timestamp, weights: WeightsId) {
        self.begin(now, weights, &[]);
    }

    /// Pages that weights have, and those of the device; `None`: it has as many as are asked for.
    pub fn pages(&self) -> Option<(u32, u32)> {
        let taken = self.pages.taken();
        (taken.1 < u32::MAX).then_some(taken)
    }

    /// What became of weights.
    pub fn account(&self) -> WeightStoreAccount {
        self.account
    }

    /// Weights that should be there from the start could not be read.
    pub(crate) fn lack(&mut self, weights: WeightsId) {
        self.release(weights);
    }

    /// What a model of a worker runs with. `None`: it needs nothing.
    pub(crate) fn weights_of(&self, worker: WorkerId, model: ModelChoice) -> Option<WeightsId> {
        let of = self.workers.get(&worker)?;
        of.of(model)
            .filter(|weights| self.pages.needs(*weights) > 0)
    }

    /// Whether requests for weights go to batches: they are there, or can never be, or just could not be read, which these requests are to
    /// hear.
    pub(crate) fn serves(&self, now: Timestamp, weights: WeightsId) -> bool {
        let failed = self.failed.get(&weights).is_some_and(|until| now < *until);
        self.pages.is_ready(weights) || failed || !self.pages.can_hold(weights)
    }

    /// What is read now.
    pub(crate) fn reading(&self) -> Option<Reading> {
        self.reading
    }

    /// When weights can be there at the earliest.
    pub(crate) fn there_at(&self, now: Timestamp, weights: WeightsId) -> Timestamp {
        match self.reading {
            Some(read) if read.weights == weights => read.load.to.max(now),
            Some(read) => read.load.to.max(now) + self.load_of(now, weights),
            None => now + self.load_of(now, weights),
        }
    }

    /// Whether reading something now costs no other weights anything: none has to wait for that, and none ever gives way.
    pub(crate) fn reads_free(&self) -> bool {
        self.reading.is_none() && self.config.pages == u32::MAX
    }

    /// A request that has an SLO came for weights.
    pub(crate) fn asked(&mut self, now: Timestamp, weights: WeightsId) {
        self.asked.entry(weights).or_default().add(now, 1.0);
    }

    /// A batch of that model is bound, whose requests came at these times. Returns how its weights were read, if one of them waited for that.
    pub(crate) fn bound(
        &mut self,
        weights: WeightsId,
        came: impl Iterator<Item = Timestamp>,
    ) -> Option<Load> {
        self.account.batches += 1;
        let read = (*self.held.get(&weights)?)?;
        let waited = came.filter(|at| *at < read.to).count() as u64;
        self.account.cold += waited;
        (waited > 0).then_some(read)
    }

    /// Chooses what is read next, and begins. `wanted`: what requests wait for. `waiting`: by weights, the requests that wait for batches with
    /// what is there; those without an SLO have an entry and count nothing. `stays`: what must not give way. Returns what is read and what gives
    /// way.
    pub(crate) fn read_next(
        &mut self,
        now: Timestamp,
        wanted: Vec<Wanted>,
        waiting: &IndexMap<WeightsId, usize, FxBuildHasher>,
        stays: &[WeightsId],
    ) -> Option<(WeightsId, Vec<WeightsId>)> {
        if self.reading.is_some() {
            return None;
        }
        let gain = |w: &Wanted| w.in_time as f64 + self.expected(now, w.weights);
        let rate = |w: &Wanted| gain(w) / self.load_of(now, w.weights).as_secs_f64().max(1e-6);
        let mut ranked: Vec<(f64, Wanted)> = wanted.into_iter().map(|w| (rate(&w), w)).collect();
        ranked.sort_by(|(a, of_a), (b, of_b)| {
            let by_deadline = of_a.deadline.cmp(&of_b.deadline);
            let by_rate = (of_b.in_time > 0)
                .cmp(&(of_a.in_time > 0))
                .then(b.total_cmp(a));
            let by_class = of_a.is_background.cmp(&of_b.is_background);
            by_class
                .then(by_rate)
                .then(by_deadline)
                .then(of_a.weights.cmp(&of_b.weights))
        });
        let link = self.link_use(now);
        for (_, wants) in &ranked {
            let is_unused =
                |w: &WeightsId| !waiting.contains_key(w) && self.expected(now, *w) < UNUSED_BELOW;
            let may_go = |w: &WeightsId| !wants.is_background || is_unused(w);
            let Some(out) = self.make_room(now, wants.weights, waiting, stays, may_go) else {
                continue;
            };
            let waits = |weights: &WeightsId| waiting.get(weights).copied().unwrap_or_default();
            let wait: usize = out.iter().map(waits).sum();
            let expected: f64 = out.iter().map(|w| self.expected(now, *w)).sum();
            let surplus = self.expected(now, wants.weights) - expected;
            let worth = wants.in_time as f64 - wait as f64 + link * surplus;
            // Where nothing gives way that is used, nothing is lost. What is asked for less gives way to requests that will be late, too, while
            // none waits for it.
            let is_idle = wait == 0 && surplus > WORTH_MIN;
            if out.is_empty() || wants.is_background || is_idle || worth > WORTH_MIN {
                self.begin(now, wants.weights, &out);
                return Some((wants.weights, out));
            }
        }
        None
    }

    /// Weights were read, or could not be. Returns what was expected of it.
    pub(crate) fn read_ended(&mut self, now: Timestamp, is_there: bool) -> Option<Reading> {
        let expected = self.reading.take()?;
        let weights = expected.weights;
        let load = Load {
            to: now,
            ..expected.load
        };
        let took = now.since(load.from);
        self.busy.add(now, took.as_secs_f64());
        if is_there {
            self.account.loads += 1;
            self.held.insert(weights, Some(load));
            self.pages.ready(weights);
            self.changed();
            self.failed.swap_remove(&weights);
            self.estimator(weights).observe(now, took);
        } else {
            self.account.failed_loads += 1;
            self.release(weights);
            self.failed.insert(weights, now + FAILED_FOR);
        }
        Some(expected)
    }

    /// The members that workers serve with weights.
    pub(crate) fn members(&self, weights: WeightsId) -> &[(WorkerId, MemberId)] {
        self.members.get(&weights).map_or(&[], Vec::as_slice)
    }

    /// What is there, or read.
    pub(crate) fn held(&self) -> impl Iterator<Item = WeightsId> {
        self.held.keys().copied()
    }

    fn estimator(&mut self, weights: WeightsId) -> &mut Estimator {
        let first = self.config.weights[weights.idx()].load;
        let of = self.loads.entry(weights);
        of.or_insert_with(|| Estimator::new(EstimatorName::LastMedian, Cap::None, first))
    }

    fn load_of(&self, now: Timestamp, weights: WeightsId) -> Duration {
        let first = self.config.weights[weights.idx()].load;
        self.loads.get(&weights).map_or(first, |load| load.at(now))
    }

    /// Requests for weights that are expected within [`AHEAD`].
    fn expected(&self, now: Timestamp, weights: WeightsId) -> f64 {
        let asked = self.asked.get(&weights).map_or(0.0, |asked| asked.at(now));
        asked * AHEAD.as_secs_f64() / FORGOTTEN.as_secs_f64()
    }

    /// The part of the time in which something was read.
    fn link_use(&self, now: Timestamp) -> f64 {
        (self.busy.at(now) / FORGOTTEN.as_secs_f64()).min(1.0)
    }

    /// What gives way to weights: what is asked for least of what may go, as much as needed. `None`: they do not fit beside the rest.
    fn make_room(
        &self,
        now: Timestamp,
        weights: WeightsId,
        waiting: &IndexMap<WeightsId, usize, FxBuildHasher>,
        stays: &[WeightsId],
        may_go: impl Fn(&WeightsId) -> bool,
    ) -> Option<Vec<WeightsId>> {
        let pages = self.pages.needs(weights);
        let mut missing = pages.saturating_sub(self.pages.free());
        if missing == 0 {
            return Some(Vec::new());
        }
        let count = |weights: &WeightsId| {
            let waits = waiting.get(weights).copied().unwrap_or_default();
            waits as f64 + self.expected(now, *weights)
        };
        let others = self.held.keys().filter(|weights| !stays.contains(weights));
        let others = others.filter(|weights| may_go(weights));
        let mut others: Vec<(f64, WeightsId)> = others.map(|w| (count(w), *w)).collect();
        others.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut out = Vec::new();
        for (_, other) in others {
            if missing == 0 {
                break;
            }
            missing = missing.saturating_sub(self.pages.needs(other));
            out.push(other);
        }
        if missing > 0 {
            return None;
        }
        // A large one that was taken last may make earlier ones needless.
        let given: u32 = out.iter().map(|other| self.pages.needs(*other)).sum();
        let mut spare = given + self.pages.free() - pages;
        out.retain(|other| {
            let stays = self.pages.needs(*other) <= spare;
            spare -= if stays { self.pages.needs(*other) } else { 0 };
            !stays
        });
        Some(out)
    }

    fn begin(&mut self, now: Timestamp, weights: WeightsId, out: &[WeightsId]) {
        for other in out {
            self.account.unloads += 1;
            self.known.insert(*other);
            self.release(*other);
        }
        self.hold(weights);
        let load = Load {
            from: now,
            to: now + self.load_of(now, weights),
            cause: match self.known.contains(&weights) {
                true => LoadCause::GaveWay,
                false => LoadCause::First,
            },
        };
        self.reading = Some(Reading { weights, load });
    }

    fn hold(&mut self, weights: WeightsId) {
        if self.pages.take(weights) {
            self.held.insert(weights, None);
        }
    }

    fn release(&mut self, weights: WeightsId) {
        self.held.swap_remove(&weights);
        self.pages.release(weights);
        self.has_all = false;
    }
}

#[cfg(test)]
mod tests;
