//! Questions with few clients, exactly: the best split is found among all of them, and of equal splits one whose workers have time left.
//!
//! A worker's value follows from its set of clients, and workers are alike. So the best value of a set with `k` workers is the best sum of
//! one subset's value and what the rest is worth with `k - 1`. The subset holds the first client of its set: which worker has it does
//! not matter. That is half of 3^n sums for each worker.

use super::partition::Partition;
use super::table::{SplitTable, UNLIMITED};

/// Most clients of a small question: each client more takes three times the work.
pub(crate) const SMALL_MAX: usize = 10;

/// Frames of a worker are late the more often the more of its time is taken: by this power of that part.
const CROWDING_POWER: i32 = 4;
/// Crowding is counted in whole numbers, so that sums are exact.
const CROWDING_SCALE: f64 = 1e6;

/// What workers are worth; value comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Worth {
    value: i64,
    /// Crowding of their clients, negative.
    slack: i64,
}

/// The best split of at most [`SMALL_MAX`] clients.
pub(super) fn best(table: &SplitTable) -> Partition {
    let n_clients = table.n_clients();
    assert!(n_clients <= SMALL_MAX, "{n_clients} clients are many");
    let of_one: Vec<Option<Worth>> = (0..1 << n_clients).map(|set| worth(table, set)).collect();
    // Best value of each set with the workers so far, and for each worker the subset that it takes of a set.
    let mut best = vec![None; of_one.len()];
    best[0] = Some(Worth::default());
    let mut takes: Vec<Vec<usize>> = Vec::new();
    for _ in 0..table.n_workers.min(n_clients) {
        let mut next = best.clone();
        let mut own = vec![0; best.len()];
        for set in 1..best.len() {
            let first = set & set.wrapping_neg();
            for more in subsets(set ^ first) {
                let subset = first | more;
                let (Some(one), Some(others)) = (of_one[subset], best[set ^ subset]) else {
                    continue;
                };
                let worth = Worth {
                    value: one.value + others.value,
                    slack: one.slack + others.slack,
                };
                if next[set].is_none_or(|known| worth > known) {
                    next[set] = Some(worth);
                    own[set] = subset;
                }
            }
        }
        best = next;
        takes.push(own);
    }
    let served = (0..best.len()).filter(|set| best[*set].is_some());
    let mut left = served
        .max_by_key(|set| (set.count_ones(), best[*set]))
        .unwrap_or(0);
    let mut workers = vec![None; n_clients];
    for (worker, own) in takes.iter().enumerate().rev() {
        members(own[left]).for_each(|client| workers[client] = Some(worker));
        left ^= own[left];
    }
    Partition::of(table, &workers)
}

/// What a worker is worth that serves this set, if one can.
fn worth(table: &SplitTable, set: usize) -> Option<Worth> {
    if set == 0 {
        return Some(Worth::default());
    }
    let mut caps = UNLIMITED;
    members(set).for_each(|client| table.lower(&mut caps, client));
    let load = members(set).map(|client| table.units[client]).sum();
    let rank = table.best_rank(&caps, load)?;
    let cap = members(set).map(|client| table.cap(client, rank)).min()?;
    let utilization = f64::from(load) / f64::from(cap);
    let crowding = f64::from(load) * utilization.powi(CROWDING_POWER);
    Some(Worth {
        value: table.accuracy[rank] * i64::from(load),
        slack: -(crowding * CROWDING_SCALE) as i64,
    })
}

/// Positions in a set.
fn members(set: usize) -> impl Iterator<Item = usize> {
    (0..SMALL_MAX).filter(move |client| set >> client & 1 == 1)
}

/// All subsets of a set, the set itself first.
fn subsets(set: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(set), move |subset| {
        (*subset > 0).then(|| (subset - 1) & set)
    })
}
