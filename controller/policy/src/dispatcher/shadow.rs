//! What the dispatcher knows of one worker.

use spillgate_pipeline::id::{BatchId, WorkerId};
use spillgate_pipeline::request::Request;
use spillgate_pipeline::time::Timestamp;

use super::WorkerHealth;
use crate::shares::RANKS;

/// Planned batches that a worker may have at once at the end of its slow start: more than one that is as quick as planned is given
/// within the SLO.
const SLOW_START_MAX: usize = 8;

/// How a request counts at its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// It has a deadline, and that rank.
    Ranked(u8),
    /// It has no SLO.
    Background,
}

impl Sort {
    pub(super) fn of(request: &Request) -> Self {
        match request.background {
            true => Sort::Background,
            false => Sort::Ranked(request.rank),
        }
    }
}

/// What the dispatcher knows of a worker: the requests that it sent there and the worker's last reports.
pub(super) struct Shadow {
    pub(super) worker: WorkerId,
    /// The controller wants it to serve.
    pub(super) is_listed: bool,
    /// Its controller wants it to serve one request, to see how long it takes.
    pub(super) is_on_trial: bool,
    /// Its device is there.
    pub(super) is_reachable: bool,
    /// Its device is silent.
    pub(super) is_suspected: bool,
    /// Its process is about to end.
    pub(super) is_leaving: bool,
    /// It joined a while ago: the planned batches that it may have at once. `None`: as many as it gets.
    pub(super) slow_start: Option<usize>,
    /// Requests that it has, but for those without an SLO.
    pub(super) outstanding: usize,
    /// Requests without an SLO that it has.
    pub(super) background: usize,
    /// The same by rank.
    pub(super) by_rank: [u32; RANKS],
    /// The batches that run or are bound behind them, and their sizes.
    pub(super) batches: Vec<(BatchId, usize)>,
    /// When the first of those batches is expected to end.
    pub(super) runs_until: Timestamp,
    /// When the last of those batches is expected to end.
    pub(super) free_at: Timestamp,
    /// The last of its batches that ended.
    pub(super) ended: Option<BatchId>,
}

impl Shadow {
    pub(super) fn new(worker: WorkerId) -> Self {
        Shadow {
            worker,
            is_listed: true,
            is_on_trial: false,
            is_reachable: false,
            is_suspected: false,
            is_leaving: false,
            slow_start: None,
            outstanding: 0,
            background: 0,
            by_rank: [0; RANKS],
            batches: Vec::new(),
            runs_until: Timestamp::ZERO,
            free_at: Timestamp::ZERO,
            ended: None,
        }
    }

    /// One that joins while others serve. Its device is cold, and nothing is known of it: it gets a planned batch first.
    pub(super) fn joining(worker: WorkerId) -> Self {
        Shadow {
            slow_start: Some(1),
            ..Shadow::new(worker)
        }
    }

    /// A batch of it ended: it may have twice as many from now on, and soon as many as it gets.
    pub(super) fn served(&mut self) {
        let more = self.slow_start.map(|batches| 2 * batches);
        self.slow_start = more.filter(|batches| *batches <= SLOW_START_MAX);
    }

    /// It takes requests.
    pub(super) fn is_up(&self) -> bool {
        self.is_listed && self.answers()
    }

    /// It takes requests, as many as it gets.
    pub(super) fn is_proven(&self) -> bool {
        self.is_up() && self.slow_start.is_none()
    }

    /// Its device is there to stay, and not silent.
    pub(super) fn answers(&self) -> bool {
        self.is_reachable && !self.is_suspected && !self.is_leaving
    }

    pub(super) fn health(&self) -> WorkerHealth {
        match self {
            s if !s.is_reachable => WorkerHealth::Away,
            s if s.is_leaving => WorkerHealth::Leaves,
            s if s.is_suspected => WorkerHealth::Suspected,
            s if !s.is_listed => WorkerHealth::SetAside,
            _ => WorkerHealth::Serves,
        }
    }

    /// The most requests that it may be sent at once.
    pub(super) fn room(&self) -> usize {
        match (self.answers(), self.is_listed, self.is_on_trial) {
            (true, true, _) => usize::MAX,
            (true, false, true) => 1,
            _ => 0,
        }
    }

    /// A request is sent there. On trial it gets no other.
    pub(super) fn takes(&mut self, sort: Sort) {
        match sort {
            Sort::Ranked(rank) => {
                self.outstanding += 1;
                self.by_rank[usize::from(rank)] += 1;
                self.is_on_trial = false;
            }
            Sort::Background => self.background += 1,
        }
    }

    /// A request is not there any more.
    pub(super) fn gives_back(&mut self, sort: Sort) {
        match sort {
            Sort::Ranked(rank) => {
                self.outstanding -= 1;
                self.by_rank[usize::from(rank)] -= 1;
            }
            Sort::Background => self.background -= 1,
        }
    }

    /// Requests in batches that run or are bound.
    pub(super) fn executing(&self) -> usize {
        self.batches.iter().map(|(_, size)| size).sum()
    }

    /// Requests that wait there and go before a request of that rank that comes now: none of a lower rank.
    pub(super) fn before(&self, rank: u8) -> usize {
        let waiting = self.outstanding.saturating_sub(self.executing());
        let not_lower: u32 = self.by_rank[usize::from(rank)..].iter().sum();
        waiting.min(not_lower as usize)
    }

    /// When the running batch is expected to end. For an idle worker it is earlier than all other times.
    pub(super) fn free_first(&self) -> Timestamp {
        if self.batches.is_empty() {
            Timestamp::ZERO
        } else {
            self.runs_until
        }
    }
}
