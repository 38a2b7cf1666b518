//! The search of `spillgate` where there are more clients than `small.rs` takes: annealing over the split of clients among workers.
//!
//! The paper anneals the variants and lets Algorithm 1 find the clients (§4.3). Here the clients are what is annealed and the
//! variants follow from them ([`super::partition`]): no split is lost to the greedy order of Algorithm 1. A step tries single moves: a
//! client shifts to another worker or outside, two clients swap, two go for one. Then it puts the clients of a few workers in a row by
//! their caps, nearly, and cuts it anew ([`super::stretch`]). At last it draws two workers and finds the best split of their clients, batch
//! sizes and variants included ([`super::pair`]).
//!
//! The start is the best of what Algorithm 2 reaches in a few steps, all clients in a row by their caps, and the present split. Where that
//! does not serve all clients, the first part of the search only counts: it maximises clients served, then small loads. Single moves and
//! rows follow the relaxed value ([`super::table::Value`]), the best split is the one with the highest exact value. The temperature
//! follows how much of the time is over, which the driver tells: the search reads no clock.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use spillgate_controller_policy::adaptation::ACCURACY_SCALE;

use super::pair::{Pair, Question};
use super::partition::{Exchange, Outcome, Partition};
use super::stretch::Cutter;
use super::table::SplitTable;

/// Temperatures are mean accuracies of one worker's clients, by what instances of 2 to 16 workers need. First one with up to 4 workers.
const T_FIRST: f64 = 0.02;
/// More workers have more moves to try in the same time: colder from the start, by this power of their number.
const T_POWER: f64 = 1.3;
/// Workers up to which the first temperature is used as it is.
const T_WORKERS: f64 = 4.0;
/// Last temperature, as a part of the first one.
const T_LAST: f64 = 0.1;
/// The temperature falls this often; each time but the first from the best split so far.
const COOLINGS: f64 = 2.0;
/// First temperature of a cooling, as a part of the one before.
const T_NEXT: f64 = 0.7;
/// Longest part of the search that counts.
const COUNTING: f64 = 0.3;
/// Temperatures while counting, in clients.
const T_COUNTING: [f64; 2] = [0.3, 0.1];
/// What a mean client's rate counts against a client: small loads leave room for one more.
const LOAD_WEIGHT: f64 = 0.2;
/// What serving one client counts after that, in ranges of accuracy of one worker's clients: walks may pass through splits that
/// serve fewer; the best that was seen never does.
const CLIENT_WORTH: f64 = 0.5;
/// Single moves beside each pair.
const MOVES: u32 = 6;
/// The same where some clients are not served: which of them, is decided by such moves.
const MOVES_OUTSIDE: u32 = 24;
/// Workers whose clients are put in a row.
const ROW_WORKERS: usize = 4;
/// They come in order of their caps, each raised at random by up to this part of 2^16: so rows differ.
const CAP_NOISE: u64 = 1 << 10;
/// Rows are tried as often as they could be cut of late: this is the weight of the last one.
const ROW_MEMORY: f64 = 0.05;
/// And this is how often at least.
const ROW_HOPE_LEAST: f64 = 0.1;
/// Up to this many clients that are not served are also tried together.
const ALL_MAX: usize = 8;
/// Of 16 single moves: those that shift a client, and those that swap two; the others are two for one.
const SHIFTS: u32 = 3;
const SWAPS: u32 = 7;

/// The state of the search.
#[derive(Clone, Debug)]
pub(super) struct Annealing {
    current: Partition,
    pub(super) best: Partition,
    pair: Pair,
    cutter: Cutter,
    /// Clients with what they are sorted by.
    keys: Vec<(u64, u16)>,
    row: Vec<u16>,
    /// How often rows of late could be cut.
    row_hope: f64,
    is_counting: bool,
    /// Part of the time that was over when counting ended.
    counted_at: f64,
    /// Coolings that ended.
    cooling: f64,
    n_servable: i64,
    mean_units: f64,
    /// Value of accuracy 1 for all clients of one worker.
    scale: f64,
    t_first: f64,
    /// What serving one client more counts, beside accuracy.
    client_worth: f64,
}

impl Annealing {
    pub(super) fn new(table: &SplitTable, start: Partition) -> Self {
        let units: f64 = table.units.iter().map(|u| f64::from(*u)).sum();
        let n_servable = (0..table.n_clients())
            .filter(|c| table.is_servable(*c))
            .count();
        let n_workers = table.n_workers as f64;
        let range = table.accuracy[table.n_ranks() - 1] - table.accuracy[0];
        Annealing {
            best: start.clone(),
            current: start,
            pair: Pair::new(),
            cutter: Cutter::default(),
            keys: Vec::new(),
            row: Vec::new(),
            row_hope: 1.0,
            is_counting: true,
            counted_at: 0.0,
            cooling: 0.0,
            n_servable: n_servable as i64,
            mean_units: (units / table.n_clients().max(1) as f64).max(1.0),
            scale: units * ACCURACY_SCALE / n_workers,
            client_worth: CLIENT_WORTH * range as f64 / ACCURACY_SCALE,
            t_first: T_FIRST * (T_WORKERS / n_workers).min(1.0).powf(T_POWER),
        }
    }

    /// One step. `part` of the time is over.
    pub(super) fn step(&mut self, table: &SplitTable, rng: &mut ChaCha8Rng, part: f64) {
        if self.is_counting && (self.best.score.served == self.n_servable || part > COUNTING) {
            self.is_counting = false;
            self.counted_at = part;
            self.current.clone_from(&self.best);
        }
        let temperature = self.temperature(part);
        let [hot, cold] = T_COUNTING;
        let temperature_of_moves = if self.is_counting {
            hot * (cold / hot).powf(part / COUNTING)
        } else {
            temperature
        };
        let is_full = self.current.bins[self.current.outside()].members.is_empty();
        for _ in 0..if is_full { MOVES } else { MOVES_OUTSIDE } {
            self.single_move(table, rng, temperature_of_moves);
        }
        // Two workers are split exactly below.
        if table.n_workers > 2 && rng.random::<f64>() < self.row_hope {
            let has_cuts = self.cut_row(table, rng, temperature);
            let seen = if has_cuts { 1.0 } else { ROW_HOPE_LEAST };
            self.row_hope += (seen - self.row_hope) * ROW_MEMORY;
        }
        self.split_pair(table, rng, temperature * self.scale);
    }

    /// The temperature after counting. Where another cooling begins, the search goes back to the best split.
    fn temperature(&mut self, part: f64) -> f64 {
        if self.is_counting {
            return self.t_first;
        }
        let over = (part - self.counted_at) / (1.0 - self.counted_at).max(f64::MIN_POSITIVE);
        let cooling = (over * COOLINGS).floor().min(COOLINGS - 1.0);
        if cooling > self.cooling {
            self.cooling = cooling;
            self.current.clone_from(&self.best);
        }
        self.t_first * T_NEXT.powf(cooling) * T_LAST.powf(over * COOLINGS - cooling)
    }

    /// Puts the clients of a few workers in a row and cuts it anew. Returns whether there are cuts that serve them all.
    fn cut_row(&mut self, table: &SplitTable, rng: &mut ChaCha8Rng, temperature: f64) -> bool {
        let mut drawn = [0; ROW_WORKERS];
        let mut n_drawn = 0;
        for _ in 0..ROW_WORKERS {
            let worker = rng.random_range(0..table.n_workers as u32) as usize;
            if !drawn[..n_drawn].contains(&worker) {
                drawn[n_drawn] = worker;
                n_drawn += 1;
            }
        }
        let workers = &drawn[..n_drawn];
        let rank = self.current.bins[workers[0]].rank;
        self.keys.clear();
        for worker in workers {
            for client in &self.current.bins[*worker].members {
                let cap = table.cap(usize::from(*client), rank) as u64;
                let random = u64::from(rng.random::<u32>());
                // Clients with equal caps come in random order.
                let noisy = (cap * ((1 << 16) + random % CAP_NOISE)) << 16;
                self.keys.push((noisy | (random >> 16), *client));
            }
        }
        self.keys.sort_unstable();
        self.row.clear();
        self.row.extend(self.keys.iter().map(|key| key.1));
        let Some(value) = self.cutter.cut(table, &self.row, n_drawn) else {
            return false;
        };
        let before: i64 = workers
            .iter()
            .map(|w| self.current.bins[*w].value.relaxed)
            .sum();
        let gain = (value - before) as f64 / self.scale;
        if gain < 0.0 && rng.random::<f64>() >= (gain / temperature).exp() {
            return true;
        }
        self.current
            .deal(table, workers, &self.row, &self.cutter.parts);
        self.keep_best();
        true
    }

    /// Serves clients that nobody serves, and changes no more than that needs.
    pub(super) fn repair(&mut self, table: &SplitTable, rng: &mut ChaCha8Rng, steps: u32) {
        for client in self.current.bins[self.current.outside()].members.clone() {
            let serves = |worker: &usize| {
                let movers = [client];
                let exchange = Exchange {
                    bins: [self.current.outside(), *worker],
                    movers: [&movers, &[]],
                };
                let outcome = self.current.outcome(table, exchange)?;
                Some(outcome.gain.value)
            };
            let best = (0..table.n_workers)
                .filter_map(|worker| serves(&worker).map(|gain| (gain, worker)))
                .max_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
            if let Some((_, worker)) = best {
                self.current.serve(table, client, worker);
            }
        }
        self.keep_best();
        for _ in 0..steps {
            if self.best.score.served == self.n_servable {
                return;
            }
            self.split_pair(table, rng, 0.0);
        }
    }

    /// Splits the clients of two workers anew: with one more, with another one, or just so.
    fn split_pair(&mut self, table: &SplitTable, rng: &mut ChaCha8Rng, heat: f64) {
        let [a, b] = [0; 2].map(|_| rng.random_range(0..table.n_workers as u32) as usize);
        if a == b {
            return;
        }
        let bins = &self.current.bins;
        let floor = bins[a].value.exact + bins[b].value.exact;
        let question = Question {
            workers: [a, b],
            comes: &[],
            leaves: None,
            floor,
            heat,
        };
        let outside = &bins[self.current.outside()].members;
        if let Some(comes) = pick(outside, rng) {
            let comes = [comes];
            if (2..=ALL_MAX).contains(&outside.len()) && rng.random_range(0..4u32) == 0 {
                let outside = outside.clone();
                let all = Question {
                    comes: &outside,
                    floor: i64::MIN,
                    ..question
                };
                if self.ask(table, rng, all) {
                    return;
                }
            }
            let one_more = Question {
                comes: &comes,
                floor: i64::MIN,
                ..question
            };
            if self.ask(table, rng, one_more) {
                return;
            }
            let of = if rng.random::<bool>() { a } else { b };
            if let Some(leaves) = pick(&self.current.bins[of].members, rng) {
                let another = Question {
                    comes: &comes,
                    leaves: Some(leaves),
                    ..question
                };
                if self.ask(table, rng, another) {
                    return;
                }
            }
        }
        self.ask(table, rng, question);
    }

    fn ask(&mut self, table: &SplitTable, rng: &mut ChaCha8Rng, question: Question<'_>) -> bool {
        if !self.pair.solve(table, &self.current, question, rng) {
            return false;
        }
        if let Some(client) = question.leaves {
            self.current.drop_out(table, client);
        }
        let members = [&self.pair.first[..], &self.pair.second[..]];
        self.current.replace(table, question.workers, members);
        self.keep_best();
        true
    }

    /// Tries to shift, swap, or exchange two for one.
    fn single_move(&mut self, table: &SplitTable, rng: &mut ChaCha8Rng, temperature: f64) {
        let n_clients = table.n_clients() as u32;
        let client = rng.random_range(0..n_clients) as u16;
        let from = self.current.bin_of[client as usize] as usize;
        let kind = rng.random_range(0..16u32);
        let mut leave = [client; 2];
        let mut n_leave = 1;
        if kind < SHIFTS {
            let to = rng.random_range(0..table.n_workers as u32 + 1) as usize;
            self.try_exchange(table, rng, [from, to], [&leave[..1], &[]], temperature);
            return;
        }
        if kind >= SHIFTS + SWAPS
            && let Some(second) = pick(&self.current.bins[from].members, rng)
            && second != client
        {
            leave[1] = second;
            n_leave = 2;
        }
        let comes = [rng.random_range(0..n_clients) as u16];
        let to = self.current.bin_of[comes[0] as usize] as usize;
        self.try_exchange(
            table,
            rng,
            [from, to],
            [&leave[..n_leave], &comes],
            temperature,
        );
    }

    fn try_exchange(
        &mut self,
        table: &SplitTable,
        rng: &mut ChaCha8Rng,
        bins: [usize; 2],
        movers: [&[u16]; 2],
        temperature: f64,
    ) {
        if bins[0] == bins[1] {
            return;
        }
        let exchange = Exchange { bins, movers };
        let Some(outcome) = self.current.outcome(table, exchange) else {
            return;
        };
        let gain = self.gain(table, exchange, outcome);
        if gain < 0.0 && rng.random::<f64>() >= (gain / temperature).exp() {
            return;
        }
        self.current.apply(exchange, outcome);
        self.keep_best();
    }

    /// What an exchange gains, in the measure of the present part of the search.
    fn gain(&self, table: &SplitTable, exchange: Exchange<'_>, outcome: Outcome) -> f64 {
        let served = outcome.gain.served as f64;
        if !self.is_counting {
            return outcome.relaxed as f64 / self.scale + served * self.client_worth;
        }
        let units = |movers: &[u16]| movers.iter().map(|c| table.units[*c as usize]).sum::<i32>();
        let moved = f64::from(units(exchange.movers[0]) - units(exchange.movers[1]));
        let outside = self.current.outside();
        let unloaded = match exchange.bins {
            [_, to] if to == outside => moved,
            [from, _] if from == outside => -moved,
            _ => 0.0,
        };
        served + unloaded / self.mean_units * LOAD_WEIGHT
    }

    fn keep_best(&mut self) {
        if self.current.score > self.best.score {
            self.best.clone_from(&self.current);
        }
    }
}

fn pick(members: &[u16], rng: &mut ChaCha8Rng) -> Option<u16> {
    let n = members.len() as u32;
    (n > 0).then(|| members[rng.random_range(0..n) as usize])
}
