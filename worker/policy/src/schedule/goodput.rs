//! `goodput`: our own scheduler. Among all batches that it could start, it takes the one with the most expected
//! completions in time, weighted by their urgency, per expected device time.
//!
//! *Candidates.* A candidate has a batch size, a pool of applications and a bound on the slack, the time left until the
//! deadline. A pool holds the applications up to a rank by mean length, or one application alone. The batch is filled
//! from the pool in order of deadlines, with requests that have at least the bound. The bound is the time of a full
//! batch of the pool's slowest application: its mean, or the time within which nine of ten such batches end. The second
//! bound leaves out requests that are unlikely to be in time, which raises goodput under overload. A padded batch that
//! is over half full is a candidate, too. Waiting for one more request is not a candidate.
//!
//! *Value.* The value of a member is its probability to be in time in the batch, less the value of waiting. The
//! probability follows from the product of the members' distribution functions. The value of waiting is the probability
//! to be in time one batch later, less the price of the member's part of a full batch. It is at most a share of that
//! probability, because a waiting request competes with later arrivals. The share is smallest for the applications that
//! cost most and largest for cheap ones. The price of device time is the value that recent batches had per time.
//! Without the value of waiting, short requests would be served at once in small batches, however much time they have,
//! and long requests would run out of time.

use spillgate_pipeline::schedule::Goodput as Constants;

use super::book::Book;
use super::forming::Forming;
use super::merge::earliest;
use super::pending::Pending;
use super::strategy::{Chosen, Strategy, View};

#[derive(Debug)]
pub(crate) struct Goodput {
    constants: Constants,
    version: Option<u64>,
    /// Applications by rising mean length.
    ranks: Vec<usize>,
    /// Bounds on the slack by size and law, ms: the mean time of a full batch of one application, and the time within
    /// which most such batches end.
    bounds: Vec<Vec<[f64; 2]>>,
    /// A request's part of the time of a full batch of its law, ms, at the size at which that is least.
    parts: Vec<f64>,
    /// Largest value of waiting, by law.
    wait_max: Vec<f64>,
    /// Mean time of the batches started, ms: how long one more takes.
    batch_ms: f64,
    /// The price of device time: completions per ms of recent batches, less the value that their members would have had
    /// waiting.
    price: f64,
    forming: Forming,
    members: Vec<Pending>,
    best: Best,
}

/// The best candidate so far. Its vector of members is kept from choice to choice.
#[derive(Debug, Default)]
struct Best {
    rate: f64,
    size: u32,
    expected_ms: f64,
    members: Vec<Pending>,
}

impl Strategy for Goodput {
    fn needs_samples(&self) -> bool {
        true
    }

    fn follow(&mut self, view: View<'_>) {
        let View { book, set, .. } = view;
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
                forming.mostly_ms(grid, book.time(), size, self.constants.sure),
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
        let Constants {
            wait_least,
            wait_cheap,
            ..
        } = self.constants;
        let wait_max = |part: &f64| wait_least + wait_cheap * (1.0 - part / most);
        self.wait_max = self.parts.iter().map(wait_max).collect();
    }

    /// The least that a request of that law can take.
    fn needed_ms(&self, book: &Book, law: usize) -> Option<f64> {
        let size = book.sizes()[0];
        let low = book.law(law).low();
        Some(book.time().ms(size, low, low))
    }

    fn choose(&mut self, view: View<'_>) -> Option<Chosen> {
        self.best.rate = 0.0;
        let ranks = std::mem::take(&mut self.ranks);
        for upto in 0..ranks.len() {
            self.consider(view, &ranks[..=upto]);
            if upto > 0 {
                self.consider(view, &ranks[upto..=upto]);
            }
        }
        self.ranks = ranks;
        if self.best.rate <= 0.0 {
            return None;
        }
        let expected_ms = self.best.expected_ms;
        self.price += self.constants.price_weight * (self.best.rate - self.price);
        self.batch_ms += if self.batch_ms > 0.0 {
            self.constants.batch_weight * (expected_ms - self.batch_ms)
        } else {
            expected_ms
        };
        Some(Chosen {
            size: self.best.size,
            members: self.best.members.iter().map(|p| p.id).collect(),
            expected_ms,
        })
    }
}

impl Goodput {
    pub(crate) fn new(constants: Constants) -> Self {
        Goodput {
            constants,
            version: None,
            ranks: Vec::new(),
            bounds: Vec::new(),
            parts: Vec::new(),
            wait_max: Vec::new(),
            batch_ms: 0.0,
            price: 0.0,
            forming: Forming::default(),
            members: Vec::new(),
            best: Best::default(),
        }
    }

    /// Looks at all candidates of a pool of applications, which are in order of mean length.
    fn consider(&mut self, view: View<'_>, pool: &[usize]) {
        let book = view.book;
        let slowest = pool[pool.len() - 1].min(book.len() - 1);
        for i in 0..book.sizes().len() {
            let [mean, mostly] = self.bounds[i][slowest];
            self.fill(view, pool, book.sizes()[i], mean);
            // Where all members keep the larger bound, too, it gives the same members.
            let first = self.members.first();
            if first.is_some_and(|p| view.slack_ms(p.deadline) < mostly) {
                self.weigh(view, book.sizes()[i]);
                self.fill(view, pool, book.sizes()[i], mostly);
            }
            self.weigh(view, book.sizes()[i]);
        }
    }

    /// Fills a batch of that size with requests that have at least that much slack.
    fn fill(&mut self, view: View<'_>, pool: &[usize], size: u32, slack_ms: f64) {
        let View { book, set, .. } = view;
        self.members.clear();
        let from = view.in_ms(slack_ms);
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
                .push(book.grid(), book.law_idx(pending.application));
        }
    }

    /// Keeps the members if they are the best batch so far.
    fn weigh(&mut self, view: View<'_>, size: u32) {
        let book = view.book;
        let (grid, forming) = (book.grid(), &self.forming);
        let count = self.members.len();
        if count == 0 || 2 * count <= size as usize && count < size as usize {
            return;
        }
        let outlook = forming.outlook(grid, book.time(), size);
        let gain = |pending: &Pending| {
            let slack = view.slack_ms(pending.deadline);
            let later = slack - self.batch_ms;
            let law = book.law_idx(pending.application);
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
