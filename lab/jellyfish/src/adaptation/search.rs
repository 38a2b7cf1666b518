//! A search that its driver advances: it reads no clock. A driver with a time budget looks at the clock between a few steps and tells
//! what part of the budget is over; one that must be repeatable gives a fixed number of steps and tells what part of them
//! is done. Equal seeds, steps and parts give equal answers.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use spillgate_controller_policy::adaptation::{Assignment, Instance, Jellyfish, aligned};
use spillgate_pipeline::id::VariantId;

use super::anneal::Annealing;
use super::partition::Partition;
use super::simple;
use super::small;
use super::stretch;
use super::table::SplitTable;

/// How clients get variants and workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The best split of few clients (`small.rs`), annealing over the split of more (`anneal.rs`).
    Spillgate,
    /// The paper's Algorithms 1 and 2.
    Jellyfish,
    /// All workers run the lowest variant (the paper's B_L).
    Lowest,
    /// All workers run the middle variant (B_M).
    Middle,
    /// All workers run the highest variant (B_H).
    Highest,
    /// All workers run this variant.
    Fixed(VariantId),
    /// Each client takes the best variant that its own link and budget allow.
    Greedy,
}

impl Method {
    /// Methods that have a name of their own.
    pub const ALL: [Method; 6] = [
        Method::Spillgate,
        Method::Jellyfish,
        Method::Lowest,
        Method::Middle,
        Method::Highest,
        Method::Greedy,
    ];

    /// What users call it.
    pub fn name(self) -> &'static str {
        match self {
            Method::Spillgate => "spillgate",
            Method::Jellyfish => "jellyfish",
            Method::Lowest => "fixed-lowest",
            Method::Middle => "fixed-middle",
            Method::Highest => "fixed-highest",
            Method::Fixed(_) => "fixed",
            Method::Greedy => "greedy",
        }
    }

    /// The method of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        Method::ALL.into_iter().find(|m| m.name() == name)
    }
}

/// Steps of Algorithm 2 that make the start of an annealing, and the part of the time after which it begins anyhow.
const START_STEPS: u32 = 60;
/// Workers times clients up to which there are as many: a step maps all clients, so larger questions take fewer.
const START_SIZE: usize = 16 * 160;
const START_PART: f64 = 0.15;

#[derive(Clone, Debug)]
enum State {
    Jellyfish(Box<Jellyfish>),
    Starting(Box<Jellyfish>, u32),
    Annealing(Box<Annealing>),
    Done(Partition),
}

/// One question and what is known of its answer.
#[derive(Clone, Debug)]
pub struct Search {
    instance: Instance,
    table: SplitTable,
    rng: ChaCha8Rng,
    state: State,
    /// What is served now: an answer that must be beaten.
    present: Option<Partition>,
}

impl Search {
    /// Begins. `present` is what is served now, if anything: it may be of other budgets and rates; clients that do not fit any
    /// more are served elsewhere. Where `spillgate` has few clients, this finds the answer, in about a millisecond, and no step is left.
    pub fn new(
        method: Method,
        instance: Instance,
        present: Option<&Assignment>,
        seed: u64,
    ) -> Self {
        let table = SplitTable::new(&instance);
        let lowest = || vec![0; table.n_workers];
        let ranks = |present: Option<&Assignment>| match present {
            Some(present) => table.ranks_of(present),
            None => lowest(),
        };
        let of_present = present.map(|p| Partition::of(&table, &p.clients));
        let state = match method {
            Method::Spillgate if table.n_clients() <= small::SMALL_MAX => {
                let best = small::best(&table);
                // Of equal answers the one that changes nothing.
                let present = of_present.clone().filter(|p| p.score >= best.score);
                State::Done(present.unwrap_or(best))
            }
            Method::Spillgate => {
                let begin = Jellyfish::as_start(&table, &instance, &lowest());
                let size = (table.n_workers * table.n_clients()).max(START_SIZE);
                let steps = START_STEPS as usize * START_SIZE / size;
                State::Starting(Box::new(begin), steps as u32)
            }
            Method::Jellyfish => {
                State::Jellyfish(Box::new(Jellyfish::new(&table, &instance, &ranks(present))))
            }
            Method::Lowest => State::Done(simple::fixed(&table, &instance, 0)),
            Method::Middle => {
                State::Done(simple::fixed(&table, &instance, (table.n_ranks() - 1) / 2))
            }
            Method::Highest => State::Done(simple::fixed(&table, &instance, table.n_ranks() - 1)),
            Method::Fixed(variant) => {
                let rank = table.rank_of(variant).unwrap_or(0);
                State::Done(simple::fixed(&table, &instance, rank))
            }
            Method::Greedy => State::Done(simple::greedy(&table)),
        };
        let rng = ChaCha8Rng::seed_from_u64(seed);
        Search {
            instance,
            table,
            rng,
            state,
            present: of_present,
        }
    }

    /// Whether more steps change nothing.
    pub fn is_done(&self) -> bool {
        match &self.state {
            State::Jellyfish(jellyfish) => jellyfish.is_done(),
            State::Starting(..) | State::Annealing(_) => self.instance.clients().is_empty(),
            State::Done(_) => true,
        }
    }

    /// Takes some steps; at their begin, `part` of the time is over, from 0 to 1. A step takes 10 to 50 microseconds.
    pub fn advance(&mut self, steps: u32, part: f64) {
        for _ in 0..steps {
            if self.is_done() {
                return;
            }
            self.step(part.clamp(0.0, 1.0));
        }
    }

    fn step(&mut self, part: f64) {
        let (table, rng) = (&self.table, &mut self.rng);
        match &mut self.state {
            State::Jellyfish(jellyfish) => jellyfish.step(table, rng),
            State::Starting(jellyfish, left) => {
                if *left == 0 || part > START_PART || jellyfish.is_done() {
                    let mut start = Partition::of_mapped(table, &jellyfish.best);
                    for other in [stretch::by_caps(table), self.present.take()] {
                        start = other.filter(|o| o.score > start.score).unwrap_or(start);
                    }
                    self.state = State::Annealing(Box::new(Annealing::new(table, start)));
                } else {
                    jellyfish.step(table, rng);
                    *left -= 1;
                }
            }
            State::Annealing(annealing) => annealing.step(table, rng, part),
            State::Done(_) => {}
        }
    }

    /// The best answer so far.
    pub fn best(&self) -> Assignment {
        match &self.state {
            State::Jellyfish(jellyfish) => jellyfish.assignment(&self.table, &self.instance),
            State::Starting(jellyfish, _) => {
                let start = Partition::of_mapped(&self.table, &jellyfish.best);
                let present = self.present.as_ref().filter(|p| p.score > start.score);
                present
                    .unwrap_or(&start)
                    .assignment(&self.table, &self.instance)
            }
            State::Annealing(annealing) => annealing.best.assignment(&self.table, &self.instance),
            State::Done(partition) => partition.assignment(&self.table, &self.instance),
        }
    }

    /// The best answer so far, with parts given to workers so that few switch.
    pub fn best_near(&self, present: &Assignment) -> Assignment {
        aligned(&self.best(), present, &present.workers)
    }
}

/// The present split with as little change as serves its clients: only those that nobody serves are placed, in up to that many
/// steps.
pub(super) fn repaired(
    instance: &Instance,
    present: &Assignment,
    seed: u64,
    steps: u32,
) -> Assignment {
    let table = SplitTable::new(instance);
    let present = Partition::of(&table, &present.clients);
    let mut annealing = Annealing::new(&table, present);
    annealing.repair(&table, &mut ChaCha8Rng::seed_from_u64(seed), steps);
    annealing.best.assignment(&table, instance)
}
