//! Two workers and their clients: the best split of these between them, exactly.
//!
//! For one worker a *class* is a variant with a cap: it takes clients whose own cap is at least that, up to that sum. Two classes
//! serve all clients if those that only one of them takes fit there, and some of those that both take bring both loads below the
//! caps: a sum that is reached ([`Reach`]). A set of clients is one word, so most pairs of classes are settled in a few
//! instructions.
//!
//! For an annealing, each pair of classes gets a random bonus in proportion to the temperature, and any split that is at least as
//! good as the present one wins over it. So splits of equal value are walked through.

use rand::{Rng, RngCore};
use rand_chacha::ChaCha8Rng;
use spillgate_controller_policy::adaptation::Reach;

use super::partition::Partition;
use super::table::SplitTable;

/// Most clients of two workers: a set of them is one word. Larger pairs are left to single moves.
const MEMBERS_MAX: usize = 64;
/// Different bonuses: one byte of randomness chooses.
const N_BONUS: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Class {
    accuracy: i64,
    cap: i32,
    /// Those that it takes.
    takes: u64,
    /// Units of those that it does not take.
    left: i32,
}

/// What is to be split.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question<'a> {
    pub(super) workers: [usize; 2],
    /// Clients that nobody serves and that are to be served.
    pub(super) comes: &'a [u16],
    /// A client of theirs that is served no more.
    pub(super) leaves: Option<u16>,
    /// Splits that are worth less than this, bonus included, are none.
    pub(super) floor: i64,
    /// Value of a mean bonus.
    pub(super) heat: f64,
}

/// Finds splits. Keeps its room between calls.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    members: Vec<u16>,
    total: i32,
    classes: Vec<Class>,
    /// By level of one rank: the members with this cap, and their units.
    levels: Vec<(u64, i32)>,
    /// Which levels have members: what others hold is old.
    is_used: Vec<u64>,
    /// Positions of the clients that both classes take.
    order: Vec<u32>,
    reach: Reach,
    /// Logarithms of evenly spaced numbers: how a bonus is distributed, falling.
    quantiles: [f64; N_BONUS],
    bonus: [i64; N_BONUS],
    /// Clients of the one worker.
    pub(super) first: Vec<u16>,
    /// Clients of the other one.
    pub(super) second: Vec<u16>,
}

impl Pair {
    pub(super) fn new() -> Self {
        let quantile = |i: usize| -((i as f64 + 0.5) / N_BONUS as f64).ln();
        Pair {
            members: Vec::new(),
            total: 0,
            classes: Vec::new(),
            levels: Vec::new(),
            is_used: Vec::new(),
            order: Vec::new(),
            reach: Reach::default(),
            quantiles: std::array::from_fn(quantile),
            bonus: [0; N_BONUS],
            first: Vec::new(),
            second: Vec::new(),
        }
    }

    /// Splits the clients: into `first` and `second`, if there is a split of that worth.
    pub(super) fn solve(
        &mut self,
        table: &SplitTable,
        partition: &Partition,
        question: Question<'_>,
        rng: &mut ChaCha8Rng,
    ) -> bool {
        self.members.clear();
        for worker in question.workers {
            let members = partition.bins[worker].members.iter();
            self.members
                .extend(members.filter(|c| question.leaves != Some(**c)));
        }
        self.members.extend(question.comes);
        if self.members.is_empty() || self.members.len() > MEMBERS_MAX {
            return false;
        }
        // Which of equal clients goes where follows from their order.
        for i in (1..self.members.len()).rev() {
            self.members
                .swap(i, rng.random_range(0..=i as u32) as usize);
        }
        self.total = self.members.iter().map(|c| table.units[*c as usize]).sum();
        for (bonus, quantile) in self.bonus.iter_mut().zip(self.quantiles) {
            *bonus = (quantile * question.heat) as i64;
        }
        self.list_classes(table);
        let Some(split) = self.search(table, question.floor, rng) else {
            return false;
        };
        self.first.clear();
        self.second.clear();
        for (i, client) in self.members.iter().enumerate() {
            let is_first = split >> i & 1 == 1;
            if is_first {
                &mut self.first
            } else {
                &mut self.second
            }
            .push(*client);
        }
        true
    }

    /// Lists classes, the most accurate first.
    fn list_classes(&mut self, table: &SplitTable) {
        self.classes.clear();
        let mut most = 0;
        for rank in (0..table.n_ranks()).rev() {
            let n_levels = table.n_levels(rank);
            self.is_used.clear();
            self.is_used.resize(n_levels.div_ceil(64), 0);
            self.levels.resize(n_levels.max(self.levels.len()), (0, 0));
            for (i, client) in self.members.iter().enumerate() {
                let client = *client as usize;
                let Some(level) = table.level(client, rank) else {
                    continue;
                };
                let (word, bit) = (&mut self.is_used[level / 64], 1 << (level % 64));
                let own = &mut self.levels[level];
                if *word & bit == 0 {
                    *word |= bit;
                    *own = (0, 0);
                }
                own.0 |= 1 << i;
                own.1 += table.units[client];
            }
            let (mut takes, mut left) = (0, self.total);
            for (word, used) in self.is_used.iter().enumerate() {
                for level in each(*used).map(|bit| word * 64 + bit as usize) {
                    let (clients, units) = self.levels[level];
                    takes |= clients;
                    left -= units;
                    let cap = table.cap_of_level(rank, level);
                    most = most.max(cap);
                    self.classes.push(Class {
                        accuracy: table.accuracy[rank],
                        cap,
                        takes,
                        left,
                    });
                }
            }
        }
        // What a class leaves must fit into some other one.
        let total = self.total;
        self.classes
            .retain(|c| c.left <= most && total - c.cap <= most);
    }

    /// Those of the first class, in the best split.
    fn search(&mut self, table: &SplitTable, floor: i64, rng: &mut ChaCha8Rng) -> Option<u64> {
        let all = u64::MAX >> (64 - self.members.len());
        let total = self.total;
        let mut best = None;
        // A split must be worth more.
        let mut known = floor.saturating_sub(1);
        let mut random = 0;
        for i in 0..self.classes.len() {
            let one = self.classes[i];
            let most_of_one = one.cap.min(total - one.left);
            for j in i..self.classes.len() {
                let two = self.classes[j];
                let worth = |load: i32| {
                    one.accuracy * i64::from(load) + two.accuracy * i64::from(total - load)
                };
                // Later classes are no more accurate.
                if worth(most_of_one) + self.bonus[0] <= known {
                    break;
                }
                let least = (total - two.cap).max(two.left);
                if one.takes | two.takes != all || least > most_of_one {
                    continue;
                }
                if random < N_BONUS as u64 {
                    // The highest bit tells when the bytes are used up.
                    random = rng.next_u64() | 1 << 63;
                }
                let bonus = self.bonus[random as usize % N_BONUS];
                random /= N_BONUS as u64;
                if worth(most_of_one) + bonus <= known {
                    continue;
                }
                let [least, most] = [least, most_of_one].map(|load| (load - two.left) as u32);
                let Some(sum) = self.sum_of(table, one.takes & two.takes, least, most) else {
                    continue;
                };
                let found = worth(sum as i32 + two.left) + bonus;
                if found > known {
                    known = found;
                    let mut first = all & !two.takes;
                    self.reach.members(sum, |at| first |= 1 << self.order[at]);
                    best = Some(first);
                }
            }
        }
        best
    }

    /// The largest sum of rates of some of a set.
    fn sum_of(&mut self, table: &SplitTable, set: u64, least: u32, most: u32) -> Option<u32> {
        self.reach.begin(most, set.count_ones() as usize);
        self.order.clear();
        for i in each(set) {
            if self.reach.largest(most, most).is_some() {
                break;
            }
            self.order.push(i);
            self.reach
                .add(table.units[self.members[i as usize] as usize] as u32, most);
        }
        self.reach.largest(least, most)
    }
}

/// Positions in a set.
fn each(mut set: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let at = set.trailing_zeros();
        (set != 0).then(|| {
            set &= set - 1;
            at
        })
    })
}
