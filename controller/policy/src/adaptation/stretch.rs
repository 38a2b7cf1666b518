//! Clients in a row, cut into one stretch for each worker: the best cuts, exactly.
//!
//! A worker's batches are as short as its client with the least time left demands, so good splits keep clients that are alike together. In a
//! row of clients by their caps such a split is a row of stretches. The best one follows from those of shorter rows with one worker less.

use std::ops::Range;

use super::partition::Partition;
use super::table::{Caps, Table, UNLIMITED};

/// Clients next to each other that one worker serves.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    length: u16,
    value: i64,
}

/// The best cuts of the row's begin.
#[derive(Clone, Copy, Debug)]
struct Cuts {
    value: i64,
    /// Length of the last stretch; 0 where the last worker serves nobody.
    last: u16,
}

/// No cuts serve all.
const NONE: Cuts = Cuts {
    value: i64::MIN,
    last: 0,
};

/// Finds cuts. Keeps its room between calls.
#[derive(Clone, Debug, Default)]
pub(super) struct Cutter {
    /// Stretches that a worker serves, in order of their ends.
    stretches: Vec<Stretch>,
    /// For each end where its stretches begin, and those of the next one.
    begins: Vec<usize>,
    /// By number of workers and end.
    cuts: Vec<Cuts>,
    /// Where the workers' stretches begin and end in the row that was cut last.
    pub(super) parts: Vec<Range<usize>>,
}

impl Cutter {
    /// Cuts a row for that many workers. Returns the value of the best cuts, or `None` where no cuts serve all.
    pub(super) fn cut(&mut self, table: &Table, row: &[u16], n_workers: usize) -> Option<i64> {
        self.list_stretches(table, row);
        let width = row.len() + 1;
        let nobody = Cuts { value: 0, last: 0 };
        self.cuts.clear();
        self.cuts.push(nobody);
        self.cuts.resize(width, NONE);
        for worker in 0..n_workers {
            let before = worker * width;
            self.cuts.push(nobody);
            for end in 1..width {
                let mut best = Cuts {
                    last: 0,
                    ..self.cuts[before + end]
                };
                for stretch in &self.stretches[self.begins[end]..self.begins[end + 1]] {
                    let others = self.cuts[before + end - usize::from(stretch.length)].value;
                    if others != i64::MIN && others + stretch.value > best.value {
                        best = Cuts {
                            value: others + stretch.value,
                            last: stretch.length,
                        };
                    }
                }
                self.cuts.push(best);
            }
        }
        self.parts.clear();
        let mut end = row.len();
        for worker in (1..=n_workers).rev() {
            let begin = end - usize::from(self.cuts[worker * width + end].last);
            self.parts.push(begin..end);
            end = begin;
        }
        let value = self.cuts[n_workers * width + row.len()].value;
        (value != i64::MIN).then_some(value)
    }

    fn list_stretches(&mut self, table: &Table, row: &[u16]) {
        self.stretches.clear();
        self.begins.clear();
        self.begins.push(0);
        for end in 0..=row.len() {
            let mut caps: Caps = UNLIMITED;
            let mut load = 0;
            for (length, client) in (1..).zip(row[..end].iter().rev()) {
                table.lower(&mut caps, usize::from(*client));
                load += table.units[usize::from(*client)];
                let Some(rank) = table.best_rank(&caps, load) else {
                    break;
                };
                let value = table.accuracy[rank] * i64::from(load);
                self.stretches.push(Stretch { length, value });
            }
            self.begins.push(self.stretches.len());
        }
    }
}

/// The best cuts of all clients, in the order of their caps at one rank, over all ranks. `None` where no cuts serve all.
pub(super) fn by_caps(table: &Table) -> Option<Partition> {
    let mut cutter = Cutter::default();
    let mut row: Vec<u16> = (0..table.n_clients() as u16).collect();
    let mut best: Option<(i64, Vec<Option<usize>>)> = None;
    for rank in 0..table.n_ranks() {
        row.sort_by_key(|client| (table.cap(usize::from(*client), rank), *client));
        let Some(value) = cutter.cut(table, &row, table.n_workers) else {
            continue;
        };
        if best.as_ref().is_some_and(|(known, _)| *known >= value) {
            continue;
        }
        let mut workers = vec![None; row.len()];
        for (worker, part) in cutter.parts.iter().enumerate() {
            for client in &row[part.clone()] {
                workers[usize::from(*client)] = Some(worker);
            }
        }
        best = Some((value, workers));
    }
    best.map(|(_, workers)| Partition::of(table, &workers))
}
