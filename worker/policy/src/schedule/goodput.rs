//! Our own scheduler: of all batches it could start, the one that brings the most completions in time, weighed by
//! how urgent they are, per expected device time.
//!
//! A candidate is a batch size, a pool of applications (those up to a rank by mean length, and each alone) and a bound
//! on the slack, filled in order of deadlines. The bound is what a full batch of the pool's slowest application takes
//! on average, or nine times out of ten: under overload it pays to leave who is unlikely to be in time. A padded batch
//! over half full is a candidate too; waiting for one more request is not. Each member counts with its probability to
//! be in time under the product of the *actual* members' distribution functions, less what it would be worth to wait:
//! the probability that it still has after one more batch, less the price of its part of a full batch, and no more
//! than a share of that probability, since whoever waits competes with who comes: least of it for the applications
//! that cost most, more for cheap ones, which go first. The price of device time is what the batches of late brought
//! per time, net of the same. Without, short requests are served at once in small batches, however much time they
//! have, and long ones run out of it.
//!
//! The rule that this grew from (expected completions per expected time, one bound) closes two thirds of the gap from
//! ORLOJ to a simple clairvoyant schedule on two applications; the second bound keeps it level with ORLOJ where there is
//! only one.

use spillgate_pipeline::time::Timestamp;

use super::Chosen;
use super::book::Book;
use super::forming::Forming;
use super::merge::earliest;
use super::score::span;
use super::slack_ms;
use super::window::{Pending, PendingSet};

/// Share of the chance after one more batch that waiting is worth at most, for who costs most, and how much larger it is
/// for who costs nothing beside those. With 0.2 for all, goodput is 0.003 lower on ORLOJ's workloads of several modes and
/// 0.01 lower where members share much of a batch; with 0.2 and 0.8, 0.005 lower on the former.
const WAIT_LEAST: f64 = 0.15;
/// See [`WAIT_LEAST`].
const WAIT_CHEAP: f64 = 0.5;
/// How often a batch keeps within the larger of the two bounds on its members' slack.
const SURE: f64 = 0.9;
/// Weight of the newest batch in the price of device time.
const PRICE_WEIGHT: f64 = 0.05;
/// Weight of the newest batch in the mean time of a batch.
const BATCH_WEIGHT: f64 = 0.1;

#[derive(Debug, Default)]
pub(crate) struct Goodput {
    version: Option<u64>,
    /// Applications by rising mean length.
    ranks: Vec<usize>,
    /// Bounds on the slack by size and law: what a full batch of one application takes on average, and mostly; ms.
    bounds: Vec<Vec<[f64; 2]>>,
    /// A request's part of the time of a full batch of its law, ms, at the size at which that is least.
    parts: Vec<f64>,
    /// Largest worth of waiting, by law.
    wait_max: Vec<f64>,
    /// Mean time of the batches started, ms: how long one more takes.
    batch_ms: f64,
    /// What device time brings: completions per ms, net of what the same requests are worth when they wait.
    price: f64,
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
        let law = |&application: &usize| book.law(application.min(book.len() - 1)).mean();
        self.ranks = (0..set.applications()).collect();
        self.ranks
            .sort_by(|a, b| law(a).total_cmp(&law(b)).then(a.cmp(b)));
        let (grid, forming) = (book.grid(), &mut self.forming);
        let mut bounds = |size: u32, law: usize| {
            forming.clear(grid);
            for _ in 0..size {
                forming.push(grid, law);
            }
            [
                forming.outlook(grid, book.time(), size).mean_ms,
                forming.mostly_ms(grid, book.time(), size, SURE),
            ]
        };
        self.bounds = book
            .sizes()
            .iter()
            .map(|&size| (0..book.len()).map(|law| bounds(size, law)).collect())
            .collect();
        let part = |law: usize| {
            let sizes = book.sizes().iter().zip(&self.bounds);
            let parts = sizes.map(|(&size, bounds)| bounds[law][0] / f64::from(size));
            parts.fold(f64::INFINITY, f64::min)
        };
        self.parts = (0..book.len()).map(part).collect();
        let most = self.parts.iter().copied().fold(0.0, f64::max);
        let wait_max = |part: &f64| WAIT_LEAST + WAIT_CHEAP * (1.0 - part / most);
        self.wait_max = self.parts.iter().map(wait_max).collect();
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
        self.price += PRICE_WEIGHT * (self.best.rate - self.price);
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
        let slowest = pool[pool.len() - 1].min(book.len() - 1);
        for i in 0..book.sizes().len() {
            let [mean, mostly] = self.bounds[i][slowest];
            self.fill(now, book, set, pool, (book.sizes()[i], mean));
            // The same members again where all of them bear the larger bound as well.
            let first = self.members.first();
            if first.is_some_and(|p| slack_ms(now, p.deadline) < mostly) {
                self.weigh(now, book, book.sizes()[i]);
                self.fill(now, book, set, pool, (book.sizes()[i], mostly));
            }
            self.weigh(now, book, book.sizes()[i]);
        }
    }

    /// Fills a batch of that size with who has that much slack.
    fn fill(
        &mut self,
        now: Timestamp,
        book: &Book,
        set: &PendingSet,
        pool: &[usize],
        (size, slack_ms): (u32, f64),
    ) {
        self.members.clear();
        let from = now + span(slack_ms);
        let members = &mut self.members;
        earliest(
            set,
            pool,
            |_| from,
            |pending| {
                members.push(pending);
                members.len() < size as usize
            },
        );
        self.forming.clear(book.grid());
        for pending in &self.members {
            self.forming
                .push(book.grid(), book.known(pending.application));
        }
    }

    /// Keeps the members if they are the best batch so far.
    fn weigh(&mut self, now: Timestamp, book: &Book, size: u32) {
        let (grid, forming) = (book.grid(), &self.forming);
        let count = self.members.len();
        if count == 0 || 2 * count <= size as usize && count < size as usize {
            return;
        }
        let outlook = forming.outlook(grid, book.time(), size);
        let gain = |pending: &Pending| {
            let slack = slack_ms(now, pending.deadline);
            let later = slack - self.batch_ms;
            let law = book.known(pending.application);
            let worth = (1.0 - self.price * self.parts[law]).clamp(0.0, self.wait_max[law]);
            forming.on_time(grid, &outlook, slack) - worth * forming.on_time(grid, &outlook, later)
        };
        let rate = self.members.iter().map(gain).sum::<f64>() / outlook.mean_ms;
        if rate > self.best.rate {
            self.best.rate = rate;
            self.best.size = size;
            self.best.expected_ms = outlook.mean_ms;
            std::mem::swap(&mut self.best.members, &mut self.members);
        }
    }
}
