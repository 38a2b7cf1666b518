//! The batch scheduler of a module on one device. It decides which of the admitted requests form the next batch, and of
//! what size, when only the distribution of a request's execution time is known (its law).
//!
//! ```text
//! Broker ─ inserts ─▶ Scheduler (bounded set) ── next(now) ─▶ start this batch │ wait
//!                        │  ▲                                          └─ given up, with reason
//!                        │  └── executed(…), learn(…): what batches took, how long sampled requests were
//!                        └ Book: laws by application ─▶ the Strategy of its recipe
//! ```
//!
//! All schedulers are one plain state machine that is told the time. The broker inserts requests, asks for a batch when
//! the device is free or about to be, and answers the requests that are given up. A `Strategy` decides; each strategy
//! has a file of its own. Invariants: a request leaves exactly once, in a batch, given up, or removed; at most
//! `capacity` requests wait; a batch has at most its size.

mod arrival;
mod book;
mod clipper;
mod clockwork;
pub(crate) mod config;
mod edf;
mod exploring;
mod forming;
mod goodput;
pub mod hull;
mod merge;
mod nexus;
mod orloj;
mod pending;
mod planned;
pub mod score;
pub mod score_queue;
mod sharing;
mod strategy;
#[cfg(test)]
mod tests;

use std::time::Duration;

use spillgate_pipeline::distribution::{BINS_DEFAULT, LearnerError, Learnt};
use spillgate_pipeline::id::RequestId;
use spillgate_pipeline::request::{DropReason, Estimate};
use spillgate_pipeline::schedule::{Application, SchedulePolicy};
use spillgate_pipeline::time::Timestamp;

pub use config::{
    CAPACITY_MAX, NoSchedule, SCHEDULED_MAX, SIZES_MAX, ScheduleError, SchedulerConfig,
};
pub use pending::Pending;
pub use score::Scoring;
pub use sharing::Lengths;
pub use spillgate_pipeline::schedule::APPLICATIONS_MAX;

use book::Book;
use exploring::Explorer;
use pending::PendingSet;
use score::{ms, span};
use strategy::{Leaving, Strategy, View};

/// Why a request is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// `capacity` requests wait.
    Full,
    /// The request waits already.
    Known,
}

/// A batch to start.
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduledBatch {
    /// Size to compute, at least the number of members; the rest is padding.
    pub size: u32,
    /// Its requests.
    pub members: Vec<RequestId>,
    /// How long it is expected to take.
    pub expected: Duration,
    /// The expected times of its members alone.
    pub lengths: Lengths,
}

/// A request that will not be served.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GivenUp {
    /// Which.
    pub id: RequestId,
    /// Why.
    pub reason: GiveUpReason,
    /// The time that it would still have needed, where the scheduler estimated that.
    pub estimate: Option<Estimate>,
}

/// Why a scheduler gives a request up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GiveUpReason {
    /// Its deadline passed while it waited.
    Expired,
    /// It cannot be expected to be in time in a batch of any size.
    Infeasible,
    /// Its batch was planned for a moment at which the device was still busy (`clockwork`).
    ActionRefused,
    /// It was before the first run of requests that are all in time (`nexus`).
    BeforeRun,
}

impl GiveUpReason {
    /// The reason as metrics and answers name it.
    pub fn drop_reason(self) -> DropReason {
        match self {
            GiveUpReason::Expired => DropReason::Expired,
            GiveUpReason::Infeasible | GiveUpReason::ActionRefused | GiveUpReason::BeforeRun => {
                DropReason::Predicted
            }
        }
    }
}

/// The scheduler.
#[derive(Debug)]
pub struct Scheduler {
    config: SchedulerConfig,
    book: Book,
    set: PendingSet,
    strategy: Box<dyn Strategy>,
    explorer: Explorer,
    /// Scratch.
    leaving: Vec<Leaving>,
}

impl Scheduler {
    /// An empty scheduler.
    ///
    /// # Errors
    /// When the sizes do not rise, the planned size is beyond them, there is no room for requests, the window has no
    /// samples or no age, or the parameters of the score are out of range.
    pub fn new(config: SchedulerConfig) -> Result<Self, ScheduleError> {
        config.check()?;
        let book = Book::new(
            config.sizes.clone(),
            config.time,
            config.window,
            BINS_DEFAULT,
            config.prior_ms,
        )?;
        Ok(Scheduler {
            strategy: strategy::strategy(&config),
            config,
            book,
            set: PendingSet::default(),
            explorer: Explorer::default(),
            leaving: Vec::new(),
        })
    }

    /// Which one it is.
    pub fn policy(&self) -> SchedulePolicy {
        self.config.policy
    }

    /// Requests that wait.
    pub fn len(&self) -> usize {
        self.set.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.set.len() == 0
    }

    /// Whether one more may be inserted.
    pub fn has_room(&self) -> bool {
        self.set.len() < self.config.capacity
    }

    /// The length of a request that took this long alone.
    pub fn length_ms(&self, took: Duration) -> f64 {
        self.book.length_ms(ms(took))
    }

    /// Admits a request.
    ///
    /// # Errors
    /// When there is no room or the request waits already; nothing changes.
    pub fn insert(&mut self, now: Timestamp, pending: Pending) -> Result<(), Refused> {
        if !self.has_room() {
            return Err(Refused::Full);
        }
        if self.set.contains(pending.id) {
            return Err(Refused::Known);
        }
        // Applications beyond the bound share the last place: they are served, but not told apart.
        let last = Application(APPLICATIONS_MAX as u16 - 1);
        let pending = Pending {
            application: pending.application.min(last),
            ..pending
        };
        self.book.see(pending.application);
        let slot = self.set.insert(pending);
        let view = View {
            now,
            book: &self.book,
            set: &self.set,
        };
        self.strategy.inserted(view, slot);
        Ok(())
    }

    /// Forgets a request. False when it does not wait here.
    pub fn remove(&mut self, id: RequestId) -> bool {
        let Some(slot) = self.set.remove(id) else {
            return false;
        };
        self.strategy.removed(slot);
        true
    }

    /// Takes in how long a finished request was when it ran again alone: its *length*, which [`Scheduler::length_ms`]
    /// makes of a measured time. Returns whether the application's times jumped.
    ///
    /// # Errors
    /// When the length is not a valid time; then nothing changes.
    pub fn learn(
        &mut self,
        now: Timestamp,
        application: Application,
        length_ms: f64,
    ) -> Result<Learnt, LearnerError> {
        self.book.learn(now, application, length_ms)
    }

    /// From now on this number stands for another application: its samples are forgotten.
    pub fn forget(&mut self, application: Application) {
        self.book.forget(application);
    }

    /// The expected time of a batch of that many requests of any applications.
    pub fn execution(&self, size: u32) -> Duration {
        span(arrival::batch_ms(&self.book, size))
    }

    /// Takes in how long a batch took and what was expected. The scheduler learns from it how much of their time
    /// members share. When batches repeatedly take twice as long as expected, or half as long, all expectations follow.
    pub fn executed(
        &mut self,
        now: Timestamp,
        size: u32,
        (expected, lengths): (Duration, Lengths),
        took: Duration,
    ) {
        let Some(at) = self.config.sizes.iter().position(|&s| s == size) else {
            return;
        };
        let view = View {
            now,
            book: &self.book,
            set: &self.set,
        };
        self.strategy.executed(view, at, took);
        let took_ms = ms(took);
        self.book.keep_sharing(lengths, took_ms);
        self.book.keep_pace(now, ms(expected), took_ms);
    }

    /// Time passed: a pace that nothing confirms fades. What a published scheduler measures by itself stays, as its authors have it.
    pub fn age(&mut self, now: Timestamp) {
        self.book.age(now);
    }

    /// The batch to start at `now`, if the device is free then. `None`: wait until a request arrives or until
    /// [`Scheduler::next_expiry`]. The members leave the scheduler. So do the requests that are given up, into `out`.
    pub fn next(&mut self, now: Timestamp, out: &mut Vec<GivenUp>) -> Option<ScheduledBatch> {
        self.book.refresh(now);
        self.expire(now, out);
        self.give_up(now, out);
        let view = View {
            now,
            book: &self.book,
            set: &self.set,
        };
        let unknown = if self.strategy.needs_samples() {
            self.explorer.choose(view)
        } else {
            None
        };
        let chosen = unknown.or_else(|| self.strategy.choose(view))?;
        let members = chosen.members.iter();
        let applications = members.filter_map(|&id| self.set.application_of(id));
        let lengths = self.book.lengths(applications);
        for &id in &chosen.members {
            self.remove(id);
        }
        Some(ScheduledBatch {
            size: chosen.size,
            members: chosen.members,
            expected: span(chosen.expected_ms),
            lengths,
        })
    }

    /// Gives up the requests whose deadline has passed, for use while the device is busy.
    pub fn expire(&mut self, now: Timestamp, out: &mut Vec<GivenUp>) {
        for application in 0..self.set.applications() {
            while let Some(first) = self.set.first_of(application)
                && first.deadline <= now
            {
                self.leave(first.id, GiveUpReason::Expired, None, out);
            }
        }
    }

    /// Earliest moment at which [`Scheduler::expire`] has something to do.
    pub fn next_expiry(&self) -> Option<Timestamp> {
        self.set.first_deadline()
    }

    /// Gives up the requests that cannot be in time by the strategy's own estimate.
    fn give_up(&mut self, now: Timestamp, out: &mut Vec<GivenUp>) {
        let view = View {
            now,
            book: &self.book,
            set: &self.set,
        };
        self.strategy.follow(view);
        let mut leaving = std::mem::take(&mut self.leaving);
        self.strategy.give_up(view, &mut leaving);
        for gone in leaving.drain(..) {
            self.leave(gone.id, gone.reason, gone.needed_ms, out);
        }
        self.leaving = leaving;
        for application in 0..self.set.applications() {
            let law = self.book.law_idx(Application(application as u16));
            let Some(needed) = self.strategy.needed_ms(&self.book, law) else {
                return;
            };
            while let Some(first) = self.set.first_of(application)
                && first.deadline.budget_at(now).as_ms_f64() < needed
            {
                self.leave(first.id, GiveUpReason::Infeasible, Some(needed), out);
            }
        }
    }

    fn leave(
        &mut self,
        id: RequestId,
        reason: GiveUpReason,
        needed_ms: Option<f64>,
        out: &mut Vec<GivenUp>,
    ) {
        self.remove(id);
        let estimate = needed_ms.map(|ms| Estimate {
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
