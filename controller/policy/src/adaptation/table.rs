//! An instance in the form in which solvers read it.
//!
//! With one variant, a larger budget allows more batch sizes, so the throughput that a client leaves to its worker is a number
//! of its own: the *cap* of (client, variant), the highest throughput of a batch size in which the client is in time. A worker can
//! serve a set of clients with a variant exactly if the sum of their rates is at most the least of their caps. So the best
//! variant of a set needs no search over batch sizes.
//!
//! Variants are counted by *rank* here: their order by accuracy.

use std::time::Duration;

use spillgate_pipeline::id::VariantId;

use super::assignment::{Assignment, Setting};
use super::instance::Instance;

/// Accuracies are counted in billionths, so that sums are exact and equal ones compare as equal.
pub const ACCURACY_SCALE: f64 = 1e9;
/// Accuracies beyond are cut, so that sums fit: 2^14 clients of 2^15 units at 2^4 of 2^30.
const ACCURACY_MAX: f64 = 16.0;

/// Units of a client beyond are cut: no cap is as high, so it is not served, and sums over all clients fit.
const UNITS_MAX: u32 = 1 << 16;

/// What solvers know.
#[derive(Clone, Debug)]
pub struct Table {
    /// Number of workers.
    pub n_workers: usize,
    /// Units of each client.
    pub units: Vec<i32>,
    /// Highest cap of each client.
    pub highest: Vec<i32>,
    /// Accuracy by rank, in billionths.
    pub accuracy: Vec<i64>,
    /// Variant by rank.
    pub variants: Vec<VariantId>,
    /// By client, then by rank.
    caps: Vec<i16>,
}

impl Table {
    /// The table of an instance.
    pub fn new(instance: &Instance) -> Self {
        let n_clients = instance.clients().len();
        let mut order: Vec<usize> = (0..instance.variants().len()).collect();
        let accuracy = |v: usize| instance.variants()[v].accuracy;
        order.sort_by(|a, b| accuracy(*a).total_cmp(&accuracy(*b)).then(a.cmp(b)));
        let mut caps = vec![0; n_clients * order.len()];
        for (rank, variant) in order.iter().enumerate() {
            let batches = batches(instance, *variant);
            for (client, demand) in instance.clients().iter().enumerate() {
                let in_time = batches
                    .iter()
                    .filter(|batch| batch.0 <= demand.budgets[*variant]);
                let cap = in_time.map(|batch| batch.1).max().unwrap_or(0);
                caps[client * order.len() + rank] = cap;
            }
        }
        let highest = caps.chunks_exact(order.len());
        let highest = highest.map(|caps| caps.iter().copied().max().map_or(0, i32::from));
        let scaled = |v: &usize| accuracy(*v).clamp(-ACCURACY_MAX, ACCURACY_MAX) * ACCURACY_SCALE;
        Table {
            n_workers: instance.n_workers(),
            units: (0..n_clients)
                .map(|c| instance.units_of(c).min(UNITS_MAX) as i32)
                .collect(),
            highest: highest.collect(),
            accuracy: order.iter().map(|v| scaled(v).round() as i64).collect(),
            variants: order.iter().map(|v| VariantId(*v as u16)).collect(),
            caps,
        }
    }

    /// Number of clients.
    pub fn n_clients(&self) -> usize {
        self.units.len()
    }

    /// Number of variants.
    pub fn n_ranks(&self) -> usize {
        self.accuracy.len()
    }

    /// The rank of a variant.
    pub fn rank_of(&self, variant: VariantId) -> Option<usize> {
        self.variants.iter().position(|v| *v == variant)
    }

    /// Ranks of an assignment's workers; idle ones count as the lowest.
    pub fn ranks_of(&self, assignment: &Assignment) -> Vec<usize> {
        let rank = |worker: usize| {
            let setting = assignment.workers.get(worker).copied().flatten()?;
            self.rank_of(setting.variant)
        };
        (0..self.n_workers)
            .map(|worker| rank(worker).unwrap_or(0))
            .collect()
    }

    /// Caps of a client, by rank.
    pub fn caps(&self, client: usize) -> &[i16] {
        &self.caps[client * self.n_ranks()..(client + 1) * self.n_ranks()]
    }

    /// One of them.
    pub fn cap(&self, client: usize, rank: usize) -> i32 {
        i32::from(self.caps[client * self.n_ranks() + rank])
    }

    /// Whether any worker could serve the client, alone.
    pub fn is_servable(&self, client: usize) -> bool {
        self.units[client] <= self.highest[client]
    }

    /// The assignment of sets of clients to workers at given ranks. Each worker gets the smallest batch that serves its
    /// clients: smaller batches are sooner done.
    pub fn assignment<'a>(
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
