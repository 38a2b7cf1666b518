//! Clients in a row, cut into one stretch for each worker: the best cuts, exactly.
//!
//! A worker's batches are as short as its client with the least time left demands, so good splits keep clients that are alike together. In a
//! row of clients by their caps such a split is a row of stretches. The best one follows from those of shorter rows with one worker less.

use std::ops::Range;

use super::partition::Partition;
use super::table::{Caps, LANES, SplitTable, UNLIMITED};

/// Clients next to each other in the row, which are added one by one, and how a worker serves them.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    caps: Caps,
    load: i32,
    /// The best rank that serves them: it falls as the stretch grows.
    rank: usize,
}

impl Stretch {
    /// Without clients: no rank is too high.
    fn empty() -> Self {
        Stretch {
            caps: UNLIMITED,
            load: 0,
            rank: usize::MAX,
        }
    }

    /// Takes one client more. Returns whether a worker serves them all.
    #[inline]
    fn grow(&mut self, table: &SplitTable, client: u16) -> bool {
        table.lower(&mut self.caps, usize::from(client));
        self.load += table.units[usize::from(client)];
        self.rank = self.rank.min(table.best_alone[usize::from(client)]);
        let cap = |rank: usize| i32::from(self.caps[rank / LANES][rank % LANES]);
        while cap(self.rank) < self.load {
            if self.rank == 0 {
                return false;
            }
            self.rank -= 1;
        }
        true
    }

    /// Its relaxed value.
    fn value(&self, table: &SplitTable) -> i64 {
        table.value(&self.caps, self.rank, self.load).relaxed
    }
}

/// The best cuts of the row's begin.
#[derive(Clone, Copy, Debug)]
struct Cuts {
    value: i64,
    /// Length of the last stretch; 0 where the last worker serves nobody.
    last: u16,
}

/// Finds cuts. Keeps its room between calls.
#[derive(Clone, Debug, Default)]
pub(super) struct Cutter {
    /// By number of workers: the first and the last end that they reach and from which the other workers reach the row's end.
    windows: Vec<[usize; 2]>,
    /// Values of the stretches that a worker serves, in order of their ends, the shortest first.
    values: Vec<i64>,
    /// For each end where its stretches begin, and those of the next one.
    begins: Vec<usize>,
    /// By number of workers and end. What lies outside of the windows is old.
    cuts: Vec<Cuts>,
    /// Where the workers' stretches begin and end in the row that was cut last, the last one first.
    pub(super) parts: Vec<Range<usize>>,
}

impl Cutter {
    /// Cuts a row for that many workers. Returns the relaxed value of the best cuts, or `None` where no cuts serve all.
    pub(super) fn cut(&mut self, table: &SplitTable, row: &[u16], n_workers: usize) -> Option<i64> {
        if !self.find_windows(table, row, n_workers) {
            return None;
        }
        self.list_values(table, row);
        let width = row.len() + 1;
        let nobody = Cuts { value: 0, last: 0 };
        self.cuts
            .resize(self.cuts.len().max((n_workers + 1) * width), nobody);
        self.cuts[0] = nobody;
        for worker in 1..=n_workers {
            let [first_before, last_before] = self.windows[worker - 1];
            let [first, last] = self.windows[worker];
            let (before, own) = self.cuts.split_at_mut(worker * width);
            let before = &before[(worker - 1) * width..];
            for end in first..=last {
                // The worker may serve nobody. No end comes before the first one of the worker before.
                let mut best = Cuts {
                    value: if end <= last_before {
                        before[end].value
                    } else {
                        i64::MIN
                    },
                    last: 0,
                };
                let values = &self.values[self.begins[end]..self.begins[end + 1]];
                let longest = values.len().min(end - first_before);
                let shortest = end.saturating_sub(last_before).max(1);
                for length in shortest..=longest {
                    let value = before[end - length].value + values[length - 1];
                    if value > best.value {
                        let last = length as u16;
                        best = Cuts { value, last };
                    }
                }
                own[end] = best;
            }
        }
        self.parts.clear();
        let mut end = row.len();
        for worker in (1..=n_workers).rev() {
            let begin = end - usize::from(self.cuts[worker * width + end].last);
            self.parts.push(begin..end);
            end = begin;
        }
        Some(self.cuts[n_workers * width + row.len()].value)
    }

    /// Finds the windows. Returns whether any cuts serve all: then each window has an end.
    ///
    /// A part of a stretch that a worker serves is one, too. So workers that take as much as they can, one after another, reach the last
    /// end of each window, and from the row's end back they reach the first one.
    fn find_windows(&mut self, table: &SplitTable, row: &[u16], n_workers: usize) -> bool {
        self.windows.clear();
        self.windows.resize(n_workers + 1, [0, 0]);
        let mut end = 0;
        for window in &mut self.windows[1..] {
            let mut stretch = Stretch::empty();
            end += row[end..]
                .iter()
                .take_while(|c| stretch.grow(table, **c))
                .count();
            window[1] = end;
        }
        if end < row.len() {
            return false;
        }
        let mut begin = row.len();
        for window in self.windows.iter_mut().rev() {
            window[0] = begin;
            let mut stretch = Stretch::empty();
            let clients = row[..begin].iter().rev();
            begin -= clients.take_while(|c| stretch.grow(table, **c)).count();
        }
        true
    }

    /// Lists the values of stretches that end in some window.
    fn list_values(&mut self, table: &SplitTable, row: &[u16]) {
        self.values.clear();
        self.begins.clear();
        self.begins.push(0);
        let mut windows = self.windows.iter().peekable();
        for end in 0..=row.len() {
            // Windows begin one after another.
            while windows.next_if(|[_, last]| *last < end).is_some() {}
            let is_used = windows.peek().is_some_and(|[first, _]| *first <= end);
            let clients = if is_used { &row[..end] } else { &[] };
            let mut stretch = Stretch::empty();
            for client in clients.iter().rev() {
                if !stretch.grow(table, *client) {
                    break;
                }
                self.values.push(stretch.value(table));
            }
            self.begins.push(self.values.len());
        }
    }
}

/// The best cuts of all clients, in the order of their caps at one rank, over all ranks. `None` where no cuts serve all.
pub(super) fn by_caps(table: &SplitTable) -> Option<Partition> {
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
