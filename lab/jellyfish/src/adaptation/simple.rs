//! Methods without a search, for comparison.

use spillgate_controller_policy::adaptation::{Instance, Mapped, Mapping, Ties};

use super::partition::Partition;
use super::table::SplitTable;

/// All workers run the same variant, and Algorithm 1 maps the clients.
pub(super) fn fixed(table: &SplitTable, instance: &Instance, rank: usize) -> Partition {
    let mut mapped = Mapped::default();
    let ranks = vec![rank; table.n_workers];
    Mapping::new(table, instance).map(table, &ranks, Ties::LargeBudgets, &mut mapped);
    let mut partition = Partition::empty(table);
    for (worker, members) in mapped.members.iter().enumerate() {
        members
            .iter()
            .for_each(|c| partition.serve_at(table, *c, worker, rank));
    }
    partition
}

/// Each client takes the best variant that its link and budget allow, as if it were alone. Then they are packed: those with the best
/// variants first, and of these those with the highest cap, each into the first worker that runs its variant and bears it, or that
/// is idle. Who finds no room is not served: nobody gives way.
pub(super) fn greedy(table: &SplitTable) -> Partition {
    let alone = |client: usize| {
        let serves = |rank: &usize| table.cap(client, *rank) >= table.units[client];
        (0..table.n_ranks()).rev().find(serves)
    };
    let mut wishes: Vec<(usize, u16)> = (0..table.n_clients())
        .filter_map(|c| alone(c).map(|rank| (rank, c as u16)))
        .collect();
    let cap = |wish: &(usize, u16)| table.cap(wish.1 as usize, wish.0);
    wishes.sort_by(|a, b| b.0.cmp(&a.0).then(cap(b).cmp(&cap(a))).then(a.1.cmp(&b.1)));
    let mut partition = Partition::empty(table);
    for (rank, client) in wishes {
        let bears = |worker: &usize| {
            let bin = &partition.bins[*worker];
            let least = bin
                .members
                .iter()
                .map(|c| table.cap(*c as usize, rank))
                .min();
            let least = least
                .unwrap_or(i32::MAX)
                .min(table.cap(client as usize, rank));
            (bin.members.is_empty() || bin.rank == rank)
                && bin.load + table.units[client as usize] <= least
        };
        if let Some(worker) = (0..table.n_workers).find(bears) {
            partition.serve_at(table, client, worker, rank);
        }
    }
    partition
}
