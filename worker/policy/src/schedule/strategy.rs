//! The part that differs between schedulers, and the list of strategies.

use std::fmt::Debug;
use std::time::Duration;

use spillgate_pipeline::id::RequestId;
use spillgate_pipeline::schedule::Choice;
use spillgate_pipeline::time::Timestamp;

use super::book::Book;
use super::clipper::Clipper;
use super::clockwork::Clockwork;
use super::config::SchedulerConfig;
use super::edf::Edf;
use super::goodput::Goodput;
use super::nexus::Nexus;
use super::orloj::Orloj;
use super::pending::{PendingSet, Slot};
use super::planned::Planned;
use super::{GiveUpReason, span};

/// The inputs of a strategy: the time, the laws of execution times, and the waiting requests.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) now: Timestamp,
    pub(crate) book: &'a Book,
    pub(crate) set: &'a PendingSet,
}

impl View<'_> {
    /// Time until a deadline, ms; negative when it has passed.
    pub(crate) fn slack_ms(&self, deadline: Timestamp) -> f64 {
        deadline.budget_at(self.now).as_ms_f64()
    }

    /// The moment in that many ms.
    pub(crate) fn in_ms(&self, ms: f64) -> Timestamp {
        self.now + span(ms)
    }
}

/// A batch that a strategy settles on.
#[derive(Debug)]
pub(crate) struct Chosen {
    /// Size to compute, at least the number of members.
    pub(crate) size: u32,
    pub(crate) members: Vec<RequestId>,
    pub(crate) expected_ms: f64,
}

/// A request that a strategy gives up.
#[derive(Debug)]
pub(crate) struct Leaving {
    pub(crate) id: RequestId,
    pub(crate) reason: GiveUpReason,
    /// What it would have needed, where the strategy counted with that.
    pub(crate) needed_ms: Option<f64>,
}

/// A way to choose batches. The scheduler keeps the requests, drops the expired ones, and removes those that a strategy
/// chooses or gives up. All methods but the choice have a default, because most strategies keep little state.
pub(crate) trait Strategy: Debug + Send {
    /// A request was inserted.
    fn inserted(&mut self, _view: View<'_>, _slot: Slot) {}

    /// The request in the slot is gone.
    fn removed(&mut self, _slot: Slot) {}

    /// A batch of the size at position `at` took this long.
    fn executed(&mut self, _view: View<'_>, _at: usize, _took: Duration) {}

    /// Whether it uses the laws of single applications. Then a request of an unknown application runs alone now and
    /// then ([`super::exploring`]).
    fn needs_samples(&self) -> bool {
        false
    }

    /// Updates the values that it derives from the laws, if the laws changed.
    fn follow(&mut self, _view: View<'_>) {}

    /// Puts the requests that are given up now into `leaving`. Requests whose deadline has passed are gone already.
    fn give_up(&mut self, _view: View<'_>, _leaving: &mut Vec<Leaving>) {}

    /// Least time that a request of that law needs, ms; a request with less is given up. `None`: no request is given up
    /// for that.
    fn needed_ms(&self, _book: &Book, _law: usize) -> Option<f64> {
        None
    }

    /// The batch to start now; `None` to wait.
    fn choose(&mut self, view: View<'_>) -> Option<Chosen>;
}

/// The strategy of each way to choose: the list of strategies.
pub(super) fn strategy(config: &SchedulerConfig) -> Box<dyn Strategy> {
    let SchedulerConfig {
        sizes,
        planned,
        scoring,
        ..
    } = config;
    match config.policy.choice() {
        Choice::Goodput(constants) => Box::new(Goodput::new(constants)),
        Choice::Score { is_shared } => Box::new(Orloj::new(sizes, is_shared, *scoring)),
        Choice::RequiredStart(estimator) => Box::new(Clockwork::new(estimator)),
        Choice::EarliestDeadline => Box::new(Edf::default()),
        Choice::FirstRun => Box::new(Nexus::new(*planned)),
        Choice::Increasing => Box::new(Clipper::new()),
        Choice::Planned => Box::new(Planned::new(*planned)),
    }
}
