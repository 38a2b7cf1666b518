//! An instance in the form in which solvers read it.
//!
//! With one variant, a larger budget allows more batch sizes, so the throughput that a client leaves to its worker is a number
//! of its own: the *cap* of (client, variant), the highest throughput of a batch size in which the client is in time. A worker can
//! serve a set of clients with a variant exactly if the sum of their rates is at most the least of their caps. So the best
//! variant of a set needs no search over batch sizes. Caps of all variants lie in rows of 16-bit numbers, which compilers
//! compare several at a time.
//!
//! Variants are counted by *rank* here: their order by accuracy.

use std::time::Duration;

use spillgate_pipeline::id::VariantId;

use super::assignment::{Assignment, Setting};
use super::instance::{Instance, VARIANTS_MAX};

/// Numbers in one row.
pub(super) const LANES: usize = 16;
/// Rows of a client with the most variants.
pub(super) const BLOCKS_MAX: usize = VARIANTS_MAX.div_ceil(LANES);
/// Caps of some ranks.
pub(super) type Row = [i16; LANES];
/// Caps of all ranks, of which an instance uses the first rows.
pub(super) type Caps = [Row; BLOCKS_MAX];

/// Accuracies are counted in billionths, so that sums are exact and equal ones compare as equal.
pub(super) const ACCURACY_SCALE: f64 = 1e9;
/// Accuracies beyond are cut, so that sums fit: 2^14 clients of 2^15 units at 2^4 of 2^30.
const ACCURACY_MAX: f64 = 16.0;

/// Units of a client beyond are cut: no cap is as high, so it is not served, and sums over all clients fit.
const UNITS_MAX: u32 = 1 << 16;

/// The next rank of a worker counts where it bears more than this part of the load.
const NEARLY: f64 = 0.8;

/// What the clients of one worker are worth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Value {
    /// Accuracy times units.
    pub(super) exact: i64,
    /// The same, and a part of what the next rank would add. The part grows with how much of the load that rank bears. So it shows which
    /// workers come close to their next rank, where the exact value does not change until that rank bears all.
    pub(super) relaxed: i64,
}

/// What solvers know.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) n_workers: usize,
    pub(super) blocks: usize,
    /// Units of each client.
    pub(super) units: Vec<i32>,
    /// Highest cap of each client.
    pub(super) highest: Vec<i32>,
    /// Best rank of a worker that serves the client alone; the lowest where none does.
    pub(super) best_alone: Vec<usize>,
    /// Accuracy by rank, in billionths.
    pub(super) accuracy: Vec<i64>,
    /// Variant by rank.
    pub(super) variants: Vec<VariantId>,
    caps: Vec<Row>,
    /// Different caps of each rank, falling.
    levels: Vec<Vec<i16>>,
    /// Ordinals of each client's caps among them, by client and rank.
    level_of: Vec<u16>,
}

/// In place of an ordinal: a worker at this rank cannot even serve the client alone.
const NO_LEVEL: u16 = u16::MAX;

impl Table {
    pub(super) fn new(instance: &Instance) -> Self {
        let n_clients = instance.clients().len();
        let mut order: Vec<usize> = (0..instance.variants().len()).collect();
        let accuracy = |v: usize| instance.variants()[v].accuracy;
        order.sort_by(|a, b| accuracy(*a).total_cmp(&accuracy(*b)).then(a.cmp(b)));
        let units: Vec<i32> = (0..n_clients)
            .map(|c| instance.units_of(c).min(UNITS_MAX) as i32)
            .collect();
        let blocks = order.len().div_ceil(LANES);
        let mut caps = vec![[0; LANES]; n_clients * blocks];
        let mut levels = Vec::with_capacity(order.len());
        let mut level_of = vec![NO_LEVEL; n_clients * order.len()];
        for (rank, variant) in order.iter().enumerate() {
            let batches = batches(instance, *variant);
            let mut of_rank: Vec<i16> = batches.iter().map(|batch| batch.1).collect();
            of_rank.sort_unstable_by(|a, b| b.cmp(a));
            of_rank.dedup();
            for (client, units) in units.iter().enumerate() {
                let in_time = batches
                    .iter()
                    .filter(|batch| batch.0 <= instance.clients()[client].budgets[*variant]);
                let cap = in_time.map(|batch| batch.1).max().unwrap_or(0);
                caps[client * blocks + rank / LANES][rank % LANES] = cap;
                if i32::from(cap) >= *units
                    && let Ok(level) = of_rank.binary_search_by(|other| cap.cmp(other))
                {
                    level_of[client * order.len() + rank] = level as u16;
                }
            }
            levels.push(of_rank);
        }
        let rows = |client: usize| &caps[client * blocks..(client + 1) * blocks];
        let highest = |c| rows(c).iter().flatten().copied().max().unwrap_or(0);
        let best_alone = |c: usize| {
            let levels = &level_of[c * order.len()..(c + 1) * order.len()];
            levels.iter().rposition(|l| *l != NO_LEVEL).unwrap_or(0)
        };
        let scaled = |v: &usize| accuracy(*v).clamp(-ACCURACY_MAX, ACCURACY_MAX) * ACCURACY_SCALE;
        Table {
            n_workers: instance.n_workers(),
            blocks,
            units,
            highest: (0..n_clients).map(|c| i32::from(highest(c))).collect(),
            best_alone: (0..n_clients).map(best_alone).collect(),
            accuracy: order.iter().map(|v| scaled(v).round() as i64).collect(),
            variants: order.iter().map(|v| VariantId(*v as u16)).collect(),
            caps,
            levels,
            level_of,
        }
    }

    pub(super) fn n_clients(&self) -> usize {
        self.units.len()
    }

    pub(super) fn n_ranks(&self) -> usize {
        self.accuracy.len()
    }

    pub(super) fn rank_of(&self, variant: VariantId) -> Option<usize> {
        self.variants.iter().position(|v| *v == variant)
    }

    /// Ranks of an assignment's workers; idle ones count as the lowest.
    pub(super) fn ranks_of(&self, assignment: &Assignment) -> Vec<usize> {
        let rank = |worker: usize| {
            let setting = assignment.workers.get(worker).copied().flatten()?;
            self.rank_of(setting.variant)
        };
        (0..self.n_workers)
            .map(|worker| rank(worker).unwrap_or(0))
            .collect()
    }

    /// Caps of a client.
    pub(super) fn caps(&self, client: usize) -> &[Row] {
        &self.caps[client * self.blocks..(client + 1) * self.blocks]
    }

    pub(super) fn cap(&self, client: usize, rank: usize) -> i32 {
        i32::from(self.caps[client * self.blocks + rank / LANES][rank % LANES])
    }

    /// Different caps of a rank: their number.
    pub(super) fn n_levels(&self, rank: usize) -> usize {
        self.levels[rank].len()
    }

    /// Which of a rank's caps a client has, counted from the highest; `None` if it cannot be served at this rank.
    #[inline]
    pub(super) fn level(&self, client: usize, rank: usize) -> Option<usize> {
        let level = self.level_of[client * self.n_ranks() + rank];
        (level != NO_LEVEL).then_some(usize::from(level))
    }

    /// The cap of a level.
    #[inline]
    pub(super) fn cap_of_level(&self, rank: usize, level: usize) -> i32 {
        i32::from(self.levels[rank][level])
    }

    /// Whether any worker could serve the client, alone.
    pub(super) fn is_servable(&self, client: usize) -> bool {
        self.units[client] <= self.highest[client]
    }

    /// Lowers caps to those of a client.
    #[inline]
    pub(super) fn lower(&self, caps: &mut Caps, client: usize) {
        for (row, own) in caps.iter_mut().zip(self.caps(client)) {
            for (cap, own) in row.iter_mut().zip(own) {
                *cap = (*cap).min(*own);
            }
        }
    }

    /// The highest rank whose cap is at least the load.
    #[inline]
    pub(super) fn best_rank(&self, caps: &Caps, load: i32) -> Option<usize> {
        let load = i16::try_from(load).ok()?;
        for block in (0..self.blocks).rev() {
            let mut best = -1;
            for (lane, cap) in caps[block].iter().enumerate() {
                let lane = lane as i16;
                best = best.max(if *cap >= load { lane } else { -1 });
            }
            if best >= 0 {
                return Some(block * LANES + best as usize);
            }
        }
        None
    }

    /// What clients with these caps and this load are worth, at the best rank that serves them.
    #[inline]
    pub(super) fn value(&self, caps: &Caps, rank: usize, load: i32) -> Value {
        let exact = self.accuracy[rank] * i64::from(load);
        let next = rank + 1;
        let Some(accuracy) = self.accuracy.get(next) else {
            return Value {
                exact,
                relaxed: exact,
            };
        };
        let borne = f64::from(caps[next / LANES][next % LANES]) / f64::from(load);
        let reached = ((borne - NEARLY) / (1.0 - NEARLY)).max(0.0);
        let gain = (accuracy * i64::from(load) - exact) as f64;
        Value {
            exact,
            relaxed: exact + (gain * reached * reached) as i64,
        }
    }

    /// The assignment of sets of clients to workers at given ranks. Each worker gets the smallest batch that serves its
    /// clients: smaller batches are sooner done.
    pub(super) fn assignment<'a>(
        &self,
        instance: &Instance,
        sets: impl Iterator<Item = (&'a [u16], usize)>,
    ) -> Assignment {
        let mut assignment = Assignment::empty(instance);
        for (worker, (members, rank)) in sets.enumerate() {
            if members.is_empty() {
                continue;
            }
            let variant = self.variants[rank];
            let load: i32 = members.iter().map(|c| self.units[*c as usize]).sum();
            let serves = |batch: &usize| {
                instance.throughput(variant.0 as usize, *batch) >= load as u32
                    && members
                        .iter()
                        .all(|c| instance.is_in_time(*c as usize, variant.0 as usize, *batch))
            };
            let sizes = instance.variants()[variant.0 as usize].execution.len();
            let Some(batch) = (0..sizes).find(serves) else {
                continue;
            };
            assignment.workers[worker] = Some(Setting {
                variant,
                batch: batch as u32 + 1,
            });
            for client in members {
                assignment.clients[*client as usize] = Some(worker);
            }
        }
        assignment
    }
}

/// Rows that no client has lowered. The lanes beyond the last rank hold zeros in every client's rows, so they never serve anyone.
pub(super) const UNLIMITED: Caps = [[i16::MAX; LANES]; BLOCKS_MAX];

/// By batch size: the least budget of clients that are in time, and the throughput.
fn batches(instance: &Instance, variant: usize) -> Vec<(Duration, i16)> {
    let batch = |batch: usize| {
        let throughput = instance.throughput(variant, batch);
        let throughput = i16::try_from(throughput).unwrap_or(i16::MAX);
        (instance.least_budget(variant, batch), throughput)
    };
    let sizes = 0..instance.variants()[variant].execution.len();
    sizes.map(batch).collect()
}
