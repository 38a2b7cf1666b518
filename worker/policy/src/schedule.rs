//! The batch scheduler of a module on one device: which of the admitted requests form the next batch, and of what
//! size, when a request's execution time is not known but its law is.
//!
//! ```text
//! Broker ─ admits ─▶ Scheduler (bounded window) ── next(now) ─▶ start this batch │ wait
//!                        │  ▲                                          └─ given up, with reason
//!                        │  └── executed(…), learn(…): what batches took, how long sampled requests were
//!                        └ Book: laws by application ─▶ the strategy of that name
//! ```
//!
//! One machine for all names, driven alike: a plain state machine, told the time. It starts nothing and keeps no
//! thread; the broker admits to its window, asks for a batch when the device is (about to be) free, and answers
//! what is given up. Invariants: a request leaves exactly once, in a batch, given up, or removed; at most
//! `capacity` wait; a batch has at most its size.

mod book;
mod clockwork;
mod config;
mod edf;
mod exploring;
mod fifo;
mod forming;
mod goodput;
pub mod hull;
mod merge;
mod orloj;
pub mod score;
pub mod score_queue;
mod sharing;
mod window;

use std::time::Duration;

use spillgate_pipeline::distribution::{
    BINS_DEFAULT, BINS_MAX, BatchTime, LearnerError, Learnt, Window,
};
use spillgate_pipeline::id::RequestId;
use spillgate_pipeline::request::{DropReason, Estimate};
use spillgate_pipeline::schedule::{Application, SCHEDULED_BATCH_MAX, ScheduleName};
use spillgate_pipeline::time::Timestamp;

pub use config::{NoSchedule, SCHEDULED_MAX};
pub use score::Scoring;
pub use sharing::Lengths;
pub use spillgate_pipeline::schedule::APPLICATIONS_MAX;
pub use window::Pending;

use book::Book;
use clockwork::{Clockwork, Estimator};
use edf::Edf;
use exploring::Explorer;
use fifo::Clipper;
use goodput::Goodput;
use orloj::Orloj;
use score::span;
use window::{PendingSet, Slot};

/// Most batch sizes: each costs a look at every choice.
pub const SIZES_MAX: usize = 16;
/// Most requests in the window.
pub const CAPACITY_MAX: usize = 65_536;

/// What a scheduler is built from.
#[derive(Clone, Debug)]
pub struct SchedulerConfig {
    /// Which one.
    pub name: ScheduleName,
    /// Sizes that the model is compiled or profiled for, rising. A batch is computed at one of them, padded.
    pub sizes: Vec<u32>,
    /// Size of a batch as planned: what `static` and `nexus` form.
    pub planned: u32,
    /// Time of a batch from its members' lengths.
    pub time: BatchTime,
    /// Length that a request is expected to have before anything was learnt, ms.
    pub prior_ms: f64,
    /// How far back learnt lengths count.
    pub window: Window,
    /// Most requests that wait.
    pub capacity: usize,
    /// How `orloj` and `orloj-shared` score them.
    pub scoring: Scoring,
}

/// Why a configuration is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ScheduleError {
    /// Sizes that are none, too many, too large, or do not rise.
    #[error("sizes {sizes:?}: give 1 to {SIZES_MAX} rising sizes up to {SCHEDULED_BATCH_MAX}")]
    Sizes {
        /// As given.
        sizes: Vec<u32>,
    },
    /// A planned size that is not among what can be computed.
    #[error("a planned batch of {planned} is not within 1 to {largest}")]
    Planned {
        /// As given.
        planned: u32,
        /// The largest size.
        largest: u32,
    },
    /// No room, or more than [`CAPACITY_MAX`].
    #[error("a window of {capacity} requests; 1 to {CAPACITY_MAX} are possible")]
    Capacity {
        /// As given.
        capacity: usize,
    },
    /// A delay rate or a number of bins beyond what can be scored with.
    #[error("a delay rate of {} per ms in {} bins; 1e-9 to 1 and 1 to {BINS_MAX} are possible", .0.delay_rate, .0.bins)]
    Scoring(Scoring),
    /// The window of samples or the prior.
    #[error(transparent)]
    Learner(#[from] LearnerError),
}

/// Why a request is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// `capacity` requests wait.
    Full,
    /// It waits already.
    Known,
}

/// A batch to start.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Size to compute, at least the number of members: the rest is padding.
    pub size: u32,
    /// Its requests.
    pub members: Vec<RequestId>,
    /// How long it is expected to take.
    pub expected: Duration,
    /// What its members are expected to take alone.
    pub lengths: Lengths,
}

/// A request that will not be served.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GivenUp {
    /// Which.
    pub id: RequestId,
    /// Why.
    pub reason: GaveUp,
    /// What it would still have needed, where the scheduler counted with that.
    pub estimate: Option<Estimate>,
}

/// Why a scheduler gives a request up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GaveUp {
    /// Its deadline passed while it waited.
    Expired,
    /// It cannot be expected to be in time in a batch of any size.
    Infeasible,
    /// Its batch was planned for a moment at which the device was still busy (`clockwork`).
    ActionRefused,
    /// It stood before the first window in time (`nexus`).
    BeforeWindow,
}

impl GaveUp {
    /// As metrics and answers tell it.
    pub fn drop_reason(self) -> DropReason {
        match self {
            GaveUp::Expired => DropReason::Expired,
            GaveUp::Infeasible | GaveUp::ActionRefused | GaveUp::BeforeWindow => {
                DropReason::Predicted
            }
        }
    }
}

/// What a strategy settles on.
#[derive(Debug)]
struct Chosen {
    size: u32,
    members: Vec<RequestId>,
    expected_ms: f64,
}

#[derive(Debug)]
enum Strategy {
    Static,
    Nexus,
    Clipper(Clipper),
    Clockwork(Clockwork),
    Edf(Edf),
    Orloj(Orloj),
    Goodput(Goodput),
}

/// The scheduler.
#[derive(Debug)]
pub struct Scheduler {
    config: SchedulerConfig,
    book: Book,
    set: PendingSet,
    strategy: Strategy,
    explorer: Explorer,
    /// Scratch.
    gone: Vec<Slot>,
}

impl Scheduler {
    /// An empty scheduler.
    ///
    /// # Errors
    /// Sizes that do not rise, a planned size beyond them, a window without room, samples or age, a score of other
    /// numbers than can be scored with.
    pub fn new(config: SchedulerConfig) -> Result<Self, ScheduleError> {
        let sizes = &config.sizes;
        let rises = sizes.windows(2).all(|pair| pair[0] < pair[1]);
        let fits = (1..=SIZES_MAX).contains(&sizes.len());
        if !rises || !fits || sizes[0] == 0 || sizes[sizes.len() - 1] > SCHEDULED_BATCH_MAX {
            return Err(ScheduleError::Sizes {
                sizes: sizes.clone(),
            });
        }
        let largest = sizes[sizes.len() - 1];
        if !(1..=largest).contains(&config.planned) {
            return Err(ScheduleError::Planned {
                planned: config.planned,
                largest,
            });
        }
        if !(1..=CAPACITY_MAX).contains(&config.capacity) {
            return Err(ScheduleError::Capacity {
                capacity: config.capacity,
            });
        }
        if !config.scoring.is_valid() {
            return Err(ScheduleError::Scoring(config.scoring));
        }
        let strategy = match config.name {
            ScheduleName::Static => Strategy::Static,
            ScheduleName::Nexus => Strategy::Nexus,
            ScheduleName::Clipper => Strategy::Clipper(Clipper::new()),
            ScheduleName::Clockwork => Strategy::Clockwork(Clockwork::new(sizes, Estimator::P99)),
            ScheduleName::ClockworkMean => {
                Strategy::Clockwork(Clockwork::new(sizes, Estimator::Mean))
            }
            ScheduleName::Edf => Strategy::Edf(Edf::default()),
            ScheduleName::Orloj => Strategy::Orloj(Orloj::new(sizes, false, config.scoring)),
            ScheduleName::OrlojShared => Strategy::Orloj(Orloj::new(sizes, true, config.scoring)),
            ScheduleName::Goodput => Strategy::Goodput(Goodput::default()),
        };
        let book = Book::new(
            sizes.clone(),
            config.time,
            config.window,
            BINS_DEFAULT,
            config.prior_ms,
        )?;
        Ok(Scheduler {
            config,
            book,
            set: PendingSet::default(),
            strategy,
            explorer: Explorer::default(),
            gone: Vec::new(),
        })
    }

    /// Which one it is.
    pub fn name(&self) -> ScheduleName {
        self.config.name
    }

    /// Requests that wait.
    pub fn len(&self) -> usize {
        self.set.len()
    }

    /// Whether one more may be inserted.
    pub fn has_room(&self) -> bool {
        self.set.len() < self.config.capacity
    }

    /// The length of a request that took this long alone.
    pub fn length_ms(&self, took: Duration) -> f64 {
        self.book.length_ms(took.as_secs_f64() * 1e3)
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.set.len() == 0
    }

    /// Admits a request to the window.
    ///
    /// # Errors
    /// When the window is full or holds it already; nothing changes.
    pub fn insert(&mut self, now: Timestamp, pending: Pending) -> Result<(), Refused> {
        if self.set.len() >= self.config.capacity {
            return Err(Refused::Full);
        }
        if self.set.contains(pending.id) {
            return Err(Refused::Known);
        }
        // Whoever is beyond the bound shares the last place: told apart no more, but served.
        let last = Application(APPLICATIONS_MAX as u16 - 1);
        let pending = Pending {
            application: pending.application.min(last),
            ..pending
        };
        self.book.see(pending.application);
        let slot = self.set.insert(pending);
        if let Strategy::Orloj(orloj) = &mut self.strategy {
            orloj.insert(now, &self.book, &self.set, slot);
        }
        Ok(())
    }

    /// Forgets a request. False when it does not wait here.
    pub fn remove(&mut self, id: RequestId) -> bool {
        let Some(slot) = self.set.remove(id) else {
            return false;
        };
        if let Strategy::Orloj(orloj) = &mut self.strategy {
            orloj.remove(slot);
        }
        true
    }

    /// Takes in how long a finished request was when it was run again alone: its *length*, for which
    /// [`BatchTime::length_ms`] turns a measured time. Tells when the application's times jumped.
    ///
    /// # Errors
    /// A length that is no time; nothing changes.
    pub fn learn(
        &mut self,
        now: Timestamp,
        application: Application,
        length_ms: f64,
    ) -> Result<Learnt, LearnerError> {
        self.book.learn(now, application, length_ms)
    }

    /// The application is another one from now on: what was learnt of it is void.
    pub fn forget(&mut self, application: Application) {
        self.book.forget(application);
    }

    /// What a batch of that many requests is expected to take, whosever they are.
    pub fn execution(&self, size: u32) -> Duration {
        span(fifo::batch_ms(&self.book, size))
    }

    /// Takes in what a batch took, beside what was expected of it. What its members share is learnt from it. When
    /// batches take twice as long as expected, or half as long, time and again, all expectations follow.
    pub fn executed(
        &mut self,
        size: u32,
        (expected, lengths): (Duration, Lengths),
        took: Duration,
    ) {
        let Some(at) = self.config.sizes.iter().position(|&s| s == size) else {
            return;
        };
        let took_ms = took.as_secs_f64() * 1e3;
        match &mut self.strategy {
            Strategy::Clockwork(clockwork) => clockwork.executed(at, took_ms),
            Strategy::Clipper(clipper) => clipper.executed(&self.book, took_ms),
            _ => {}
        }
        self.book.keep_sharing(lengths, took_ms);
        self.book.keep_pace(expected.as_secs_f64() * 1e3, took_ms);
    }

    /// The batch to start at `now`, when the device is free then; `None` to wait, until something arrives or
    /// [`Scheduler::next_expiry`]. The members leave the window; so does what is given up, into `out`.
    pub fn next(&mut self, now: Timestamp, out: &mut Vec<GivenUp>) -> Option<Batch> {
        self.book.refresh(now);
        self.follow();
        self.give_up(now, out);
        let (book, set) = (&self.book, &self.set);
        let unknown = match &self.strategy {
            Strategy::Edf(_) | Strategy::Orloj(_) | Strategy::Goodput(_) => {
                self.explorer.choose(now, book, set)
            }
            _ => None,
        };
        let chosen = match &mut self.strategy {
            _ if unknown.is_some() => unknown,
            Strategy::Static => fifo::first(book, set, self.config.planned),
            Strategy::Clipper(clipper) => clipper.choose(book, set),
            Strategy::Clockwork(clockwork) => clockwork.choose(now, book, set),
            Strategy::Edf(edf) => edf.choose(now, book, set),
            Strategy::Orloj(orloj) => orloj.choose(now, book, set),
            Strategy::Goodput(goodput) => goodput.choose(now, book, set),
            Strategy::Nexus => {
                let mut dropped = Vec::new();
                let chosen = fifo::window(now, book, set, self.config.planned, &mut dropped);
                for pending in dropped {
                    let needed = fifo::batch_ms(&self.book, self.config.planned);
                    self.leave(pending.id, GaveUp::BeforeWindow, Some(needed), out);
                }
                chosen
            }
        }?;
        let (book, set) = (&mut self.book, &self.set);
        let members = chosen.members.iter();
        let lengths = book.lengths(members.filter_map(|&id| set.application_of(id)));
        for &id in &chosen.members {
            self.remove(id);
        }
        Some(Batch {
            size: chosen.size,
            members: chosen.members,
            expected: span(chosen.expected_ms),
            lengths,
        })
    }

    /// Gives up what is past its deadline, for use while the device is busy.
    pub fn expire(&mut self, now: Timestamp, out: &mut Vec<GivenUp>) {
        for application in 0..self.set.applications() {
            while let Some(first) = self.set.first_of(application) {
                if first.deadline > now {
                    break;
                }
                self.leave(first.id, GaveUp::Expired, None, out);
            }
        }
    }

    /// Earliest moment at which [`Scheduler::expire`] has something to do.
    pub fn next_expiry(&self) -> Option<Timestamp> {
        self.set.first_deadline()
    }

    fn follow(&mut self) {
        match &mut self.strategy {
            Strategy::Edf(edf) => edf.follow(&self.book),
            Strategy::Goodput(goodput) => goodput.follow(&self.book, &self.set),
            _ => {}
        }
    }

    /// Gives up what is past its deadline and, by a strategy's own estimate, what cannot make it any more.
    fn give_up(&mut self, now: Timestamp, out: &mut Vec<GivenUp>) {
        self.expire(now, out);
        match &mut self.strategy {
            Strategy::Orloj(orloj) => {
                let mut gone = std::mem::take(&mut self.gone);
                orloj.advance(now, &self.book, &self.set, &mut gone);
                for slot in gone.drain(..) {
                    let id = self.set.get(slot).id;
                    self.leave(id, GaveUp::Infeasible, None, out);
                }
                self.gone = gone;
                return;
            }
            Strategy::Clockwork(clockwork) => {
                for pending in clockwork.refused(now, &self.book, &self.set) {
                    self.leave(pending.id, GaveUp::ActionRefused, None, out);
                }
            }
            _ => {}
        }
        for application in 0..self.set.applications() {
            let law = self.book.known(Application(application as u16));
            let needed = match &self.strategy {
                Strategy::Edf(edf) => edf.alone_ms(law),
                Strategy::Goodput(_) => Goodput::least_ms(&self.book, law),
                Strategy::Clockwork(clockwork) => clockwork.predict(&self.book, 0),
                _ => return,
            };
            while let Some(first) = self.set.first_of(application) {
                if slack_ms(now, first.deadline) >= needed {
                    break;
                }
                self.leave(first.id, GaveUp::Infeasible, Some(needed), out);
            }
        }
    }

    fn leave(
        &mut self,
        id: RequestId,
        reason: GaveUp,
        needed: Option<f64>,
        out: &mut Vec<GivenUp>,
    ) {
        self.remove(id);
        let estimate = needed.map(|ms| Estimate {
            wait: Duration::ZERO,
            execution: span(ms),
            downstream: Duration::ZERO,
        });
        out.push(GivenUp {
            id,
            reason,
            estimate,
        });
    }
}

/// Time from `now` to the deadline, ms; negative when it has passed.
fn slack_ms(now: Timestamp, deadline: Timestamp) -> f64 {
    deadline.budget_at(now).as_ms_f64()
}

#[cfg(test)]
mod tests;
