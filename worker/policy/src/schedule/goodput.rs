//! Our own scheduler: of all batches it could start, the one that brings the most completions in time, weighed by
//! how urgent they are, per expected device time.
//!
//! A candidate is a batch size and a pool of applications (those up to a rank by mean length, and each alone), filled in
//! order of deadlines with requests that bear what a full batch of the pool's slowest application takes on
//! average. A padded batch over half full is a candidate too. Each member counts with its probability to be in time
//! under the product of the *actual* members' distribution functions, less a share of the probability that it
//! would still have after one more batch: who can wait gains little from being served now. Without that share the
//! rule fills batches with short requests however much time they have, and lets long ones run out of it.
//! docs: NOTES of the evaluation have the figures with and without.

use spillgate_pipeline::time::Timestamp;

use super::Chosen;
use super::book::Book;
use super::forming::{Forming, Grid};
use super::merge::earliest;
use super::score::span;
use super::slack_ms;
use super::window::{Pending, PendingSet};

/// Share of the chance after one more batch that is taken off. From 0.3 to 0.5 finish rates hardly move; at 1, what
/// can wait is worth nothing and small urgent batches waste the device.
const LATER_SHARE: f64 = 0.4;
/// Weight of the newest batch in the mean time of a batch.
const BATCH_WEIGHT: f64 = 0.1;

#[derive(Debug, Default)]
pub(crate) struct Goodput {
    grid: Grid,
    version: Option<u64>,
    /// Applications by rising mean length.
    ranks: Vec<usize>,
    /// Expected time of a full batch of one application, by size and law; ms.
    pure: Vec<Vec<f64>>,
    /// Mean time of the batches started, ms: how long one more takes.
    batch_ms: f64,
    forming: Forming,
    members: Vec<Pending>,
    best: Best,
}

/// The best candidate so far; its members' place is kept from choice to choice.
#[derive(Debug, Default)]
struct Best {
    rate: f64,
    size: u32,
    expected_ms: f64,
    members: Vec<Pending>,
}

impl Goodput {
    pub(crate) fn follow(&mut self, book: &Book, set: &PendingSet) {
        if self.version == Some(book.version()) && self.ranks.len() == set.applications() {
            return;
        }
        self.version = Some(book.version());
        self.grid.follow(book);
        let law = |&application: &usize| book.law(application.min(book.len() - 1)).mean();
        self.ranks = (0..set.applications()).collect();
        self.ranks
            .sort_by(|a, b| law(a).total_cmp(&law(b)).then(a.cmp(b)));
        let (grid, forming) = (&self.grid, &mut self.forming);
        let mut mean = |size: u32, law: usize| {
            forming.clear(grid);
            for _ in 0..size {
                forming.push(grid, law);
            }
            forming.outlook(grid, book.time(), size).mean_ms
        };
        self.pure = book
            .sizes()
            .iter()
            .map(|&size| (0..book.len()).map(|law| mean(size, law)).collect())
            .collect();
    }

    /// The least that a request of that law can take, ms.
    pub(crate) fn least_ms(book: &Book, law: usize) -> f64 {
        let size = book.sizes()[0];
        let low = book.law(law).low();
        book.time().ms(size, low, low)
    }

    pub(crate) fn choose(
        &mut self,
        now: Timestamp,
        book: &Book,
        set: &PendingSet,
    ) -> Option<Chosen> {
        self.best.rate = 0.0;
        let ranks = std::mem::take(&mut self.ranks);
        for upto in 0..ranks.len() {
            self.consider(now, book, set, &ranks[..=upto]);
            if upto > 0 {
                self.consider(now, book, set, &ranks[upto..=upto]);
            }
        }
        self.ranks = ranks;
        if self.best.rate <= 0.0 {
            return None;
        }
        let expected_ms = self.best.expected_ms;
        self.batch_ms += if self.batch_ms > 0.0 {
            BATCH_WEIGHT * (expected_ms - self.batch_ms)
        } else {
            expected_ms
        };
        Some(Chosen {
            size: self.best.size,
            members: self.best.members.iter().map(|p| p.id).collect(),
            expected_ms,
        })
    }

    fn consider(&mut self, now: Timestamp, book: &Book, set: &PendingSet, pool: &[usize]) {
        let law = |application: usize| application.min(book.len() - 1);
        let slowest = law(pool[pool.len() - 1]);
        for (&size, pure) in book.sizes().iter().zip(&self.pure) {
            let (grid, forming, members) = (&self.grid, &mut self.forming, &mut self.members);
            members.clear();
            forming.clear(grid);
            let from = now + span(pure[slowest]);
            earliest(
                set,
                pool,
                |_| from,
                |pending| {
                    forming.push(grid, law(pending.application.idx()));
                    members.push(pending);
                    members.len() < size as usize
                },
            );
            if 2 * members.len() <= size as usize && members.len() < size as usize {
                continue;
            }
            let outlook = forming.outlook(grid, book.time(), size);
            let gain = |pending: &Pending| {
                let slack = slack_ms(now, pending.deadline);
                let later = slack - self.batch_ms;
                forming.on_time(grid, &outlook, slack)
                    - LATER_SHARE * forming.on_time(grid, &outlook, later)
            };
            let rate = members.iter().map(gain).sum::<f64>() / outlook.mean_ms;
            if rate > self.best.rate {
                self.best.rate = rate;
                self.best.size = size;
                self.best.expected_ms = outlook.mean_ms;
                std::mem::swap(&mut self.best.members, members);
            }
        }
    }
}
