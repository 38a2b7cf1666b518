//! The invariants of a run, each with an id and one predicate. The simulator stops at the first
//! violation; the server counts them by id; tests name them.
//!
//! A driver tells a [`Checker`] all events, in order of time. The checker remembers the requests in flight and the
//! most recent of the ended ones, so its memory is bounded. It changes nothing and decides nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::time::Duration;

use indexmap::{IndexMap, IndexSet};
use rustc_hash::FxBuildHasher;

use crate::id::{BatchId, DeviceId, GatewayId, ModuleId, RequestId, WorkerId};
use crate::request::Outcome;
use crate::time::Timestamp;

/// Ended requests that a checker remembers by default. A request that ends twice, or runs after its end, does so
/// within the travel time of a message; far fewer requests end in that time.
pub const ENDED_REMEMBERED_DEFAULT: usize = 1 << 16;

/// How often a gateway sends a request to a module: once, and once more if the worker died.
const SENDS_MAX: u32 = 2;

/// An invariant of every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// Every accepted request ends, exactly once.
    EndsOnce,
    /// A batch has one request at least and no more than its module allows, none of them twice.
    BatchWithinSize,
    /// A device runs one batch at a time.
    OneBatchPerDevice,
    /// Time never goes back.
    TimeForward,
    /// A request is not executed after it ended, except while its cancellation is on its way.
    NothingAfterEnd,
    /// No request is open later than its deadline and grace.
    EndsInTime,
    /// A module's results count for the request for which it ran, and a gateway sends a request to a module twice at most.
    OwnResults,
    /// Queues and tables are within their named bounds.
    WithinBounds,
    /// Once processes have come and gone, each gateway uses all workers that are there, and no others.
    MembersUsed,
    /// A process that greets as what its certificate does not name is met by nobody.
    ImpostorsRefused,
    /// No request of a revision is at a worker of another one.
    OwnRevision,
    /// Once the latest publication can be known everywhere, all processes serve its revision, and no other one lives.
    OneRevision,
}

impl Invariant {
    /// All, in order.
    pub const ALL: [Invariant; 12] = [
        Invariant::EndsOnce,
        Invariant::BatchWithinSize,
        Invariant::OneBatchPerDevice,
        Invariant::TimeForward,
        Invariant::NothingAfterEnd,
        Invariant::EndsInTime,
        Invariant::OwnResults,
        Invariant::WithinBounds,
        Invariant::MembersUsed,
        Invariant::ImpostorsRefused,
        Invariant::OwnRevision,
        Invariant::OneRevision,
    ];

    /// Its id in metrics, reports and tests.
    pub fn id(self) -> &'static str {
        match self {
            Invariant::EndsOnce => "ends-once",
            Invariant::BatchWithinSize => "batch-within-size",
            Invariant::OneBatchPerDevice => "one-batch-per-device",
            Invariant::TimeForward => "time-forward",
            Invariant::NothingAfterEnd => "nothing-after-end",
            Invariant::EndsInTime => "ends-in-time",
            Invariant::OwnResults => "own-results",
            Invariant::WithinBounds => "within-bounds",
            Invariant::MembersUsed => "members-used",
            Invariant::ImpostorsRefused => "impostors-refused",
            Invariant::OwnRevision => "own-revision",
            Invariant::OneRevision => "one-revision",
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

/// An invariant that did not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invariant {invariant} is violated: {detail}")]
pub struct Violation {
    /// Which one.
    pub invariant: Invariant,
    /// The event that violated it.
    pub detail: String,
}

fn holds(
    condition: bool,
    invariant: Invariant,
    detail: impl FnOnce() -> String,
) -> Result<(), Violation> {
    if condition {
        Ok(())
    } else {
        Err(Violation {
            invariant,
            detail: detail(),
        })
    }
}

/// Watches one run.
#[derive(Clone, Debug)]
pub struct Checker {
    now: Timestamp,
    in_flight: IndexSet<RequestId, FxBuildHasher>,
    /// When requests must have ended, where that was said. Requests that have are taken out when their time comes.
    due: BTreeSet<(Timestamp, RequestId)>,
    /// How often the gateway sent a request that is in flight to a module.
    sent: IndexMap<RequestId, Vec<(ModuleId, u32)>, FxBuildHasher>,
    running: BTreeMap<DeviceId, BatchId>,
    /// Outcome and time of the most recently ended requests, and the order in which they ended.
    ended: IndexMap<RequestId, (Outcome, Timestamp), FxBuildHasher>,
    ended_order: VecDeque<RequestId>,
    ended_remembered: usize,
    cancel_delay: Duration,
}

impl Default for Checker {
    fn default() -> Self {
        Checker::new(ENDED_REMEMBERED_DEFAULT)
    }
}

impl Checker {
    /// A checker that remembers this many ended requests.
    pub fn new(ended_remembered: usize) -> Self {
        Checker {
            now: Timestamp::ZERO,
            in_flight: IndexSet::default(),
            due: BTreeSet::new(),
            sent: IndexMap::default(),
            running: BTreeMap::new(),
            ended: IndexMap::default(),
            ended_order: VecDeque::new(),
            ended_remembered,
            cancel_delay: Duration::ZERO,
        }
    }

    /// Allows a request to run for this long after its end: when one branch drops a request, the workers of the other
    /// branches learn it only with the cancellation.
    #[must_use]
    pub fn cancel_delay(mut self, delay: Duration) -> Self {
        self.cancel_delay = delay;
        self
    }

    /// Requests accepted and not ended.
    pub fn n_in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// The time is now `now`. Other events that carry a time do this themselves.
    ///
    /// # Errors
    /// [`Invariant::TimeForward`].
    pub fn time(&mut self, now: Timestamp) -> Result<(), Violation> {
        let before = self.now;
        self.now = before.max(now);
        holds(now >= before, Invariant::TimeForward, || {
            format!("{now} comes after {before}")
        })?;
        while let Some(&(at, request)) = self.due.first()
            && at < now
        {
            self.due.pop_first();
            let has_ended = !self.in_flight.contains(&request);
            holds(has_ended, Invariant::EndsInTime, || {
                format!("{request} is open at {now}; it had to end by {at}")
            })?;
        }
        Ok(())
    }

    /// An accepted request must have ended by that time.
    pub fn must_end(&mut self, request: RequestId, by: Timestamp) {
        self.due.insert((by, request));
    }

    /// A gateway sent a request to a worker of a module.
    ///
    /// # Errors
    /// [`Invariant::OwnResults`] when it did so for the third time: a module runs once, and once more if its worker died.
    pub fn sent(&mut self, request: RequestId, module: ModuleId) -> Result<(), Violation> {
        if !self.in_flight.contains(&request) {
            return Ok(());
        }
        let sends = self.sent.entry(request).or_default();
        let n = match sends.iter_mut().find(|(to, _)| *to == module) {
            Some((_, n)) => {
                *n += 1;
                *n
            }
            None => {
                sends.push((module, 1));
                1
            }
        };
        holds(n <= SENDS_MAX, Invariant::OwnResults, || {
            format!("{request} is sent to {module} for the third time")
        })
    }

    /// A gateway hears a result from where the request is. `is_own`: its module ran there for that request, not for one with the same
    /// id in another life, and not at all.
    ///
    /// # Errors
    /// [`Invariant::OwnResults`] when the request is open and the result is that of another one.
    pub fn result(&self, request: RequestId, is_own: bool) -> Result<(), Violation> {
        let counts = self.in_flight.contains(&request);
        holds(is_own || !counts, Invariant::OwnResults, || {
            format!("{request} gets a result that is not its own")
        })
    }

    /// Something has `n` entries, of at most `limit`.
    ///
    /// # Errors
    /// [`Invariant::WithinBounds`].
    pub fn bound(&self, what: &str, n: usize, limit: usize) -> Result<(), Violation> {
        holds(n <= limit, Invariant::WithinBounds, || {
            format!("{what}: {n}, of at most {limit}")
        })
    }

    /// A gateway was looked at: it uses a worker as it should, or not.
    ///
    /// # Errors
    /// [`Invariant::MembersUsed`] when it does not.
    pub fn member(
        &self,
        gateway: GatewayId,
        worker: WorkerId,
        (uses, is_there): (bool, bool),
    ) -> Result<(), Violation> {
        holds(uses == is_there, Invariant::MembersUsed, || {
            let does = if uses { "uses" } else { "does not use" };
            let is = if is_there { "there" } else { "gone" };
            format!("{gateway} {does} {worker}, which is {is}")
        })
    }

    /// A process met another one, which its certificate did not allow for this reason, if any.
    ///
    /// # Errors
    /// [`Invariant::ImpostorsRefused`] where there is a reason.
    pub fn met(&self, forbidden: Option<String>) -> Result<(), Violation> {
        holds(forbidden.is_none(), Invariant::ImpostorsRefused, || {
            forbidden.clone().unwrap_or_default()
        })
    }

    /// A request of a revision came to a worker, of its own revision or of another one.
    ///
    /// # Errors
    /// [`Invariant::OwnRevision`] where it is another one.
    pub fn at_revision(&self, request: RequestId, of: u64, is_own: bool) -> Result<(), Violation> {
        holds(is_own, Invariant::OwnRevision, || {
            format!("{request} of revision {of} is at a worker of another one")
        })
    }

    /// The revisions of all processes were looked at, and that is wrong with them, if anything.
    ///
    /// # Errors
    /// [`Invariant::OneRevision`] where something is.
    pub fn revisions(&self, wrong: Option<String>) -> Result<(), Violation> {
        holds(wrong.is_none(), Invariant::OneRevision, || {
            wrong.clone().unwrap_or_default()
        })
    }

    /// The gateway accepted a request.
    ///
    /// # Errors
    /// [`Invariant::EndsOnce`] when the id is in use or was used.
    pub fn accepted(&mut self, request: RequestId) -> Result<(), Violation> {
        let is_new = !self.ended.contains_key(&request) && self.in_flight.insert(request);
        holds(is_new, Invariant::EndsOnce, || {
            format!("{request} is accepted twice")
        })
    }

    /// A request ended, at the time of the event before.
    ///
    /// # Errors
    /// [`Invariant::EndsOnce`] when it was not in flight.
    pub fn ended(&mut self, request: RequestId, outcome: Outcome) -> Result<(), Violation> {
        if !self.in_flight.swap_remove(&request) {
            return Err(Violation {
                invariant: Invariant::EndsOnce,
                detail: match self.ended.get(&request) {
                    Some((first, _)) => format!(
                        "{request} ends as {} and before that as {}",
                        outcome.label(),
                        first.label()
                    ),
                    None => format!("{request} ends as {} but was not accepted", outcome.label()),
                },
            });
        }
        self.sent.swap_remove(&request);
        if self.ended_remembered > 0 {
            if self.ended_order.len() >= self.ended_remembered
                && let Some(oldest) = self.ended_order.pop_front()
            {
                self.ended.swap_remove(&oldest);
            }
            self.ended.insert(request, (outcome, self.now));
            self.ended_order.push_back(request);
        }
        Ok(())
    }

    /// A device began to execute a batch of `requests`, of which its module allows `max`.
    ///
    /// # Errors
    /// The first invariant that does not hold. The batch counts as running in any case.
    pub fn batch_started(
        &mut self,
        device: DeviceId,
        batch: BatchId,
        max: u32,
        now: Timestamp,
        requests: &[RequestId],
    ) -> Result<(), Violation> {
        let other = self.running.insert(device, batch);
        self.time(now)?;
        holds(other.is_none(), Invariant::OneBatchPerDevice, || {
            let other = other.map_or_else(String::new, |b| b.to_string());
            format!("{device} starts {batch} at {now} while it runs {other}")
        })?;
        let size = requests.len();
        holds(
            size >= 1 && size as u64 <= u64::from(max),
            Invariant::BatchWithinSize,
            || format!("{batch} on {device} has {size} requests; 1 to {max} are allowed"),
        )?;
        let mut distinct: Vec<&RequestId> = requests.iter().collect();
        distinct.sort_unstable();
        distinct.dedup();
        holds(distinct.len() == size, Invariant::BatchWithinSize, || {
            format!("{batch} on {device} holds a request twice")
        })?;
        Ok(())
    }

    /// A device committed itself to execute `requests`, now or after the batch that runs.
    ///
    /// # Errors
    /// [`Invariant::NothingAfterEnd`] when one of them had ended, longer ago than its cancellation travels.
    pub fn batch_bound(
        &self,
        device: DeviceId,
        batch: BatchId,
        now: Timestamp,
        requests: &[RequestId],
    ) -> Result<(), Violation> {
        for request in requests.iter().filter(|r| !self.in_flight.contains(*r)) {
            let end = self.ended.get(request);
            let is_cancelling = end.is_some_and(|(_, at)| now.since(*at) <= self.cancel_delay);
            holds(is_cancelling, Invariant::NothingAfterEnd, || {
                let how = end.map_or("not accepted", |(outcome, _)| outcome.label());
                format!("{batch} on {device} executes {request} at {now}, which is {how}")
            })?;
        }
        Ok(())
    }

    /// A device finished a batch.
    ///
    /// # Errors
    /// [`Invariant::OneBatchPerDevice`] when it ran another one or none, [`Invariant::TimeForward`].
    pub fn batch_ended(
        &mut self,
        device: DeviceId,
        batch: BatchId,
        now: Timestamp,
    ) -> Result<(), Violation> {
        let running = self.running.remove(&device);
        self.time(now)?;
        holds(running == Some(batch), Invariant::OneBatchPerDevice, || {
            let running = running.map_or_else(|| "nothing".to_owned(), |b| b.to_string());
            format!("{device} ends {batch} at {now} while it runs {running}")
        })
    }

    /// A device is gone, and its running batch with it (a crash, a stop in the middle of a run).
    pub fn device_lost(&mut self, device: DeviceId) {
        self.running.remove(&device);
    }

    /// The run is over, everything drained.
    ///
    /// # Errors
    /// [`Invariant::EndsOnce`] when a request never ended.
    pub fn finished(&self) -> Result<(), Violation> {
        holds(self.in_flight.is_empty(), Invariant::EndsOnce, || {
            let first = self
                .in_flight
                .first()
                .map_or_else(String::new, |r| r.to_string());
            format!(
                "{} requests never ended, {first} the first of them",
                self.in_flight.len()
            )
        })
    }
}

#[cfg(test)]
mod tests;
