//! Clients split among workers: the state that local search changes.
//!
//! Each worker's variant follows from its clients: the most accurate one that serves them all. One more bin, the last, holds
//! clients that nobody serves. Invariant: every worker serves its clients in time at its rank.

use std::ops::Range;

use spillgate_controller_policy::adaptation::{Assignment, Instance, Mapped};

use super::table::{Caps, SplitTable, UNLIMITED, Value};

/// The clients of one worker.
#[derive(Clone, Debug, Default)]
pub(super) struct Bin {
    pub(super) members: Vec<u16>,
    pub(super) load: i32,
    pub(super) rank: usize,
    pub(super) value: Value,
}

/// Who is where.
#[derive(Clone, Debug)]
pub(super) struct Partition {
    /// By worker, and then those that nobody serves.
    pub(super) bins: Vec<Bin>,
    /// Bin of each client.
    pub(super) bin_of: Vec<u16>,
    pub(super) score: Score,
}

/// What a partition is worth; more clients come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Score {
    pub(super) served: i64,
    pub(super) value: i64,
}

/// A change of two bins: who leaves the one for the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exchange<'a> {
    pub(super) bins: [usize; 2],
    /// Who leaves each of them.
    pub(super) movers: [&'a [u16]; 2],
}

/// What an exchange would make of its two bins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    load: [i32; 2],
    rank: [usize; 2],
    value: [Value; 2],
    /// Change of the whole score.
    pub(super) gain: Score,
    /// Change of the sum of the relaxed values.
    pub(super) relaxed: i64,
}

impl Partition {
    /// Nobody is served.
    pub(super) fn empty(table: &SplitTable) -> Self {
        let mut bins = vec![Bin::default(); table.n_workers + 1];
        bins[table.n_workers].members = (0..table.n_clients() as u16).collect();
        Partition {
            bins,
            bin_of: vec![table.n_workers as u16; table.n_clients()],
            score: Score::default(),
        }
    }

    /// The partition of an assignment; clients that do not fit any more are not served.
    pub(super) fn of(table: &SplitTable, workers: &[Option<usize>]) -> Self {
        let mut partition = Partition::empty(table);
        for (client, worker) in workers.iter().enumerate() {
            if let Some(worker) = worker.filter(|w| *w < table.n_workers) {
                partition.serve(table, client as u16, worker);
            }
        }
        partition
    }

    /// The partition of a mapping, in which workers run the best variants that serve their clients.
    pub(super) fn of_mapped(table: &SplitTable, mapped: &Mapped) -> Self {
        let mut workers = vec![None; table.n_clients()];
        for (worker, members) in mapped.members.iter().enumerate() {
            members
                .iter()
                .for_each(|c| workers[*c as usize] = Some(worker));
        }
        Partition::of(table, &workers)
    }

    /// The bin of those that nobody serves.
    pub(super) fn outside(&self) -> usize {
        self.bins.len() - 1
    }

    /// Moves a client to a worker, if that can serve it beside its others.
    pub(super) fn serve(&mut self, table: &SplitTable, client: u16, worker: usize) -> bool {
        let movers = [client];
        let from = self.bin_of[client as usize] as usize;
        let exchange = Exchange {
            bins: [from, worker],
            movers: [&movers, &[]],
        };
        let outcome = self.outcome(table, exchange);
        if let Some(outcome) = outcome {
            self.apply(exchange, outcome);
        }
        outcome.is_some()
    }

    /// Adds a client that nobody serves to a worker that stays at this rank, which must serve it beside its others.
    pub(super) fn serve_at(&mut self, table: &SplitTable, client: u16, worker: usize, rank: usize) {
        let outside = self.outside();
        self.bins[outside].members.retain(|c| *c != client);
        self.bin_of[client as usize] = worker as u16;
        let bin = &mut self.bins[worker];
        bin.members.push(client);
        bin.load += table.units[client as usize];
        bin.rank = rank;
        let exact = table.accuracy[rank] * i64::from(bin.load);
        self.score.value += exact - bin.value.exact;
        bin.value = Value {
            exact,
            relaxed: exact,
        };
        self.score.served += 1;
    }

    /// What would become of an exchange; `None` if a worker could not serve its clients.
    #[inline]
    pub(super) fn outcome(&self, table: &SplitTable, exchange: Exchange<'_>) -> Option<Outcome> {
        let [a, b] = exchange.bins;
        let units = |movers: &[u16]| movers.iter().map(|c| table.units[*c as usize]).sum::<i32>();
        let moved = units(exchange.movers[0]) - units(exchange.movers[1]);
        let load = [self.bins[a].load - moved, self.bins[b].load + moved];
        // Most exchanges fail because a client that comes cannot bear the load: that is cheap to see.
        for side in [0, 1] {
            if exchange.bins[1 - side] != self.outside()
                && exchange.movers[side]
                    .iter()
                    .any(|c| table.highest[*c as usize] < load[1 - side])
            {
                return None;
            }
        }
        let mut rank = [0; 2];
        let mut value = [Value::default(); 2];
        for side in [0, 1] {
            let bin = exchange.bins[side];
            if bin == self.outside() || load[side] == 0 {
                continue;
            }
            let mut caps: Caps = UNLIMITED;
            for client in exchange.movers[1 - side] {
                table.lower(&mut caps, *client as usize);
            }
            for client in &self.bins[bin].members {
                if !exchange.movers[side].contains(client) {
                    table.lower(&mut caps, *client as usize);
                }
            }
            rank[side] = table.best_rank(&caps, load[side])?;
            value[side] = table.value(&caps, rank[side], load[side]);
        }
        let gained = |bin: usize, comes: &[u16], leaves: &[u16]| {
            if bin == self.outside() {
                leaves.len() as i64 - comes.len() as i64
            } else {
                0
            }
        };
        let change = |of: fn(Value) -> i64| {
            let before = of(self.bins[a].value) + of(self.bins[b].value);
            of(value[0]) + of(value[1]) - before
        };
        let [out_a, out_b] = exchange.movers;
        let gain = Score {
            served: gained(a, out_b, out_a) + gained(b, out_a, out_b),
            value: change(|value| value.exact),
        };
        Some(Outcome {
            load,
            rank,
            value,
            gain,
            relaxed: change(|value| value.relaxed),
        })
    }

    /// Carries an exchange out.
    pub(super) fn apply(&mut self, exchange: Exchange<'_>, outcome: Outcome) {
        for side in [0, 1] {
            let to = exchange.bins[1 - side];
            let from = &mut self.bins[exchange.bins[side]];
            from.load = outcome.load[side];
            from.rank = outcome.rank[side];
            from.value = outcome.value[side];
            for client in exchange.movers[side] {
                let place = from.members.iter().position(|c| c == client);
                from.members
                    .swap_remove(place.expect("a mover is a member of the bin that it leaves"));
            }
            for client in exchange.movers[side] {
                self.bins[to].members.push(*client);
                self.bin_of[*client as usize] = to as u16;
            }
        }
        self.score.served += outcome.gain.served;
        self.score.value += outcome.gain.value;
    }

    /// Serves a client no more.
    pub(super) fn drop_out(&mut self, table: &SplitTable, client: u16) {
        let movers = [client];
        let from = self.bin_of[client as usize] as usize;
        let exchange = Exchange {
            bins: [from, self.outside()],
            movers: [&movers, &[]],
        };
        let outcome = self.outcome(table, exchange);
        self.apply(
            exchange,
            outcome.expect("a worker serves fewer of its clients as well"),
        );
    }

    /// Gives two workers these clients, who are all of theirs and some that nobody served.
    pub(super) fn replace(
        &mut self,
        table: &SplitTable,
        workers: [usize; 2],
        members: [&[u16]; 2],
    ) {
        let outside = self.outside();
        for side in [0, 1] {
            for client in members[side] {
                if usize::from(self.bin_of[*client as usize]) == outside {
                    let place = self.bins[outside].members.iter().position(|c| c == client);
                    self.bins[outside]
                        .members
                        .swap_remove(place.expect("those outside are listed there"));
                    self.score.served += 1;
                }
                self.bin_of[*client as usize] = workers[side] as u16;
            }
        }
        for (worker, members) in workers.into_iter().zip(members) {
            self.fill(table, worker, members);
        }
    }

    /// Gives a worker these clients in place of its own. Bins of clients and the number of clients that are served are left to the caller.
    fn fill(&mut self, table: &SplitTable, worker: usize, members: &[u16]) {
        let bin = &mut self.bins[worker];
        let before = bin.value.exact;
        bin.members.clear();
        bin.members.extend_from_slice(members);
        bin.load = members.iter().map(|c| table.units[*c as usize]).sum();
        let mut caps: Caps = UNLIMITED;
        members
            .iter()
            .for_each(|c| table.lower(&mut caps, *c as usize));
        (bin.rank, bin.value) = match bin.load {
            0 => (0, Value::default()),
            load => {
                let rank = table
                    .best_rank(&caps, load)
                    .expect("a split serves its clients");
                (rank, table.value(&caps, rank, load))
            }
        };
        self.score.value += bin.value.exact - before;
    }

    /// Deals the clients of some workers out among them anew: each of them gets its part of the row.
    pub(super) fn deal(
        &mut self,
        table: &SplitTable,
        workers: &[usize],
        row: &[u16],
        parts: &[Range<usize>],
    ) {
        for (worker, part) in workers.iter().zip(parts) {
            let members = &row[part.clone()];
            for client in members {
                self.bin_of[*client as usize] = *worker as u16;
            }
            self.fill(table, *worker, members);
        }
    }

    /// The assignment that it stands for.
    pub(super) fn assignment(&self, table: &SplitTable, instance: &Instance) -> Assignment {
        let workers = &self.bins[..self.outside()];
        table.assignment(instance, workers.iter().map(|b| (&b.members[..], b.rank)))
    }
}
