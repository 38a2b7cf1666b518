//! Variants by annealing: Algorithm 2 (§4.3), with the mapping of Algorithm 1 for every set of variants that is looked at.
//!
//! DEGRADE lowers variants until every client that could be served is (O1), then UPGRADE raises the mean accuracy (O2) and keeps
//! O1. What the text leaves open is as in the authors' code: each mode begins at the first temperature, every worker moves in each
//! step, a step to less accuracy is taken with probability exp(-|difference| / T), and the best that was seen is the answer.
//! Where not all clients can be served, UPGRADE keeps as many as DEGRADE reached; the text does not say what happens then.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::assignment::Assignment;
use super::instance::Instance;
use super::mapping::{Mapped, Mapping, Ties};
use super::table::{ACCURACY_SCALE, Table};

/// First temperature of each mode.
const T_FIRST: f64 = 0.0125;
/// A mode ends when the temperature falls below.
const T_LEAST: f64 = 0.0005;
/// Factor of the temperature in each step: 321 steps a mode.
const REDUCTION: f64 = 0.99;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Degrade,
    Upgrade,
    Done,
}

/// The state of Algorithm 2.
#[derive(Clone, Debug)]
pub struct Jellyfish {
    mapping: Mapping,
    mode: Mode,
    temperature: f64,
    current: Mapped,
    next: Mapped,
    ranks: Vec<usize>,
    has_random_ties: bool,
    /// The best mapping that was seen.
    pub best: Mapped,
    /// Clients that UPGRADE may not lose.
    kept: usize,
    n_servable: usize,
    /// What a difference of temperature 1 is in value.
    scale: f64,
}

impl Jellyfish {
    /// Begins with these ranks. Of several sets of clients with the same sum of rates it takes a random one (§4.2). Its temperatures are
    /// meant for accuracies from 0 to 1 (§4.3): where these span more, they are scaled.
    pub fn new(table: &Table, instance: &Instance, ranks: &[usize]) -> Self {
        let start = Jellyfish::as_start(table, instance, ranks);
        let range = (table.accuracy[table.n_ranks() - 1] - table.accuracy[0]) as f64;
        Jellyfish {
            has_random_ties: true,
            scale: start.scale * (range / ACCURACY_SCALE).max(1.0),
            ..start
        }
    }

    /// As the start of another search: of such sets it takes the one that prefers clients with large budgets, and nothing is scaled.
    pub fn as_start(table: &Table, instance: &Instance, ranks: &[usize]) -> Self {
        let mut mapping = Mapping::new(table, instance);
        let mut current = Mapped::default();
        mapping.map(table, ranks, Ties::LargeBudgets, &mut current);
        let servable: Vec<usize> = (0..table.n_clients())
            .filter(|c| table.is_servable(*c))
            .collect();
        let units: f64 = servable.iter().map(|c| f64::from(table.units[*c])).sum();
        let mut jellyfish = Jellyfish {
            mapping,
            mode: Mode::Degrade,
            temperature: T_FIRST,
            best: current.clone(),
            ranks: ranks.to_vec(),
            has_random_ties: false,
            next: current.clone(),
            kept: 0,
            n_servable: servable.len(),
            scale: units.max(1.0) * ACCURACY_SCALE,
            current,
        };
        jellyfish.switch_when_served();
        jellyfish
    }

    /// Whether it has ended.
    pub fn is_done(&self) -> bool {
        self.mode == Mode::Done
    }

    /// One step of a mode.
    pub fn step(&mut self, table: &Table, rng: &mut ChaCha8Rng) {
        match self.mode {
            Mode::Degrade => self.degrade(table, rng),
            Mode::Upgrade => self.upgrade(table, rng),
            Mode::Done => return,
        }
        self.temperature *= REDUCTION;
        if self.mode == Mode::Degrade {
            self.switch_when_served();
        }
        if self.temperature < T_LEAST {
            match self.mode {
                Mode::Degrade => self.begin_upgrade(),
                Mode::Upgrade | Mode::Done => self.mode = Mode::Done,
            }
        }
    }

    fn switch_when_served(&mut self) {
        if self.best.served >= self.n_servable {
            self.begin_upgrade();
        }
    }

    fn begin_upgrade(&mut self) {
        self.mode = Mode::Upgrade;
        self.temperature = T_FIRST;
        self.kept = self.best.served;
        self.current.clone_from(&self.best);
    }

    fn degrade(&mut self, table: &Table, rng: &mut ChaCha8Rng) {
        self.draw(table, rng, |rng, rank, _| {
            rank - usize::from(rank > 0 && rng.random::<bool>())
        });
        let diff = self.next.served as f64 - self.current.served as f64;
        let diff = diff / self.n_servable.max(1) as f64;
        if diff > 0.0 || rng.random::<f64>() < (diff / self.temperature).exp() {
            std::mem::swap(&mut self.current, &mut self.next);
        }
        if self.current.served > self.best.served {
            self.best.clone_from(&self.current);
        }
    }

    fn upgrade(&mut self, table: &Table, rng: &mut ChaCha8Rng) {
        self.draw(table, rng, |rng, rank, most| {
            match rng.random_range(0..3u32) {
                0 => rank.saturating_sub(1),
                1 => rank,
                _ => most.min(rank + 1),
            }
        });
        if self.next.served < self.kept {
            return;
        }
        let diff = (self.next.value - self.current.value) as f64 / self.scale;
        if diff > 0.0 || rng.random::<f64>() < (diff / self.temperature).exp() {
            std::mem::swap(&mut self.current, &mut self.next);
        }
        if self.current.value > self.best.value {
            self.best.clone_from(&self.current);
        }
    }

    /// Maps clients to neighbours of the current ranks.
    fn draw(
        &mut self,
        table: &Table,
        rng: &mut ChaCha8Rng,
        neighbour: impl Fn(&mut ChaCha8Rng, usize, usize) -> usize,
    ) {
        let most = table.n_ranks() - 1;
        let ranks = self.current.ranks.iter();
        self.ranks.clear();
        self.ranks
            .extend(ranks.map(|rank| neighbour(rng, *rank, most)));
        let ties = match self.has_random_ties {
            true => Ties::Random(rng),
            false => Ties::LargeBudgets,
        };
        self.mapping.map(table, &self.ranks, ties, &mut self.next);
    }

    /// The best that was seen, as an assignment.
    pub fn assignment(&self, table: &Table, instance: &Instance) -> Assignment {
        let sets = self.best.members.iter().zip(&self.best.ranks);
        table.assignment(instance, sets.map(|(members, rank)| (&members[..], *rank)))
    }
}
