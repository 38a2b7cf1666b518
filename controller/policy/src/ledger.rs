//! The ledger of one pipeline at its gateway: which requests are open, what their deadlines are, and that
//! each ends exactly once.
//!
//! What is over a bound is refused at once and was never accepted; what is accepted stays in the ledger
//! until [`Ledger::end`] is called for the first time. Later calls for the same request change nothing.

use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::id::RequestId;
use spillgate_pipeline::pipeline::Pipeline;
use spillgate_pipeline::request::{DropReason, Outcome, Request};
use spillgate_pipeline::schedule::Application;
use spillgate_pipeline::time::Timestamp;

use crate::gate::EntryGate;
use crate::planner::{ModuleState, Window};

/// Span of the offered rate: long enough for a rate, short enough to follow a burst.
const OFFERED_WINDOW: Duration = Duration::from_secs(2);

/// Why a request was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The limit of requests in flight is reached.
    Full {
        /// The limit.
        limit: usize,
    },
    /// The server is shutting down.
    Draining,
    /// Its deadline had passed when it came.
    Expired,
    /// The gate is shut: more comes than the pipeline can serve.
    Overload,
}

impl Refusal {
    /// The same reason as drops have, for metrics.
    pub fn reason(self) -> DropReason {
        match self {
            Refusal::Full { .. } => DropReason::QueueFull,
            Refusal::Draining => DropReason::Draining,
            Refusal::Expired => DropReason::Expired,
            Refusal::Overload => DropReason::Overload,
        }
    }
}

#[derive(Clone, Copy)]
struct Open {
    deadline: Timestamp,
    sinks_missing: u16,
}

/// The ledger of one pipeline.
pub struct Ledger {
    slo: Duration,
    limit: usize,
    n_sinks: u16,
    draining: bool,
    gate: Option<EntryGate>,
    offered: Window,
    open: IndexMap<RequestId, Open, FxBuildHasher>,
}

impl Ledger {
    /// An empty ledger. `workers`: the device of each worker, by module, so that the gate knows which modules
    /// share one.
    pub fn new(pipeline: &Pipeline, workers: &[Vec<usize>]) -> Self {
        Ledger {
            slo: pipeline.slo,
            limit: pipeline.limits.in_flight,
            n_sinks: pipeline.sinks().len() as u16,
            draining: false,
            gate: EntryGate::new(pipeline, workers),
            offered: Window::new(OFFERED_WINDOW),
            open: IndexMap::default(),
        }
    }

    /// Accepts a request that was sent at `sent_at`. A timeout that the client asks for is capped at the
    /// pipeline's SLO, so that nobody gains priority by claiming more time. Whose it is the caller writes into it.
    ///
    /// # Errors
    /// When it is refused: the limit is reached, the server drains, or its time is over already.
    pub fn admit(
        &mut self,
        now: Timestamp,
        id: RequestId,
        sent_at: Timestamp,
        timeout: Option<Duration>,
    ) -> Result<Request, Refusal> {
        self.offered.add(now, 0.0, 1, 0.0);
        if self.draining {
            return Err(Refusal::Draining);
        }
        if self.open.len() >= self.limit {
            return Err(Refusal::Full { limit: self.limit });
        }
        let deadline = sent_at + timeout.map_or(self.slo, |t| t.min(self.slo));
        if deadline <= now {
            return Err(Refusal::Expired);
        }
        if self.gate.as_mut().is_some_and(|g| !g.pass(now)) {
            return Err(Refusal::Overload);
        }
        let known = self.open.insert(
            id,
            Open {
                deadline,
                sinks_missing: self.n_sinks,
            },
        );
        assert!(known.is_none(), "request ids are unique");
        Ok(Request {
            id,
            sent_at,
            deadline,
            application: Application::default(),
        })
    }

    /// A module published its state: the gate follows the bottleneck. Returns [`Ledger::offered_rate`] for the planner
    /// of that module, which sees only what passes.
    pub fn learn(&mut self, now: Timestamp, state: &ModuleState) -> f64 {
        if let Some(gate) = &mut self.gate {
            gate.learn(now, state);
        }
        self.offered_rate(now)
    }

    /// Requests a second that are offered, refused ones included, over the last seconds.
    pub fn offered_rate(&mut self, now: Timestamp) -> f64 {
        self.offered.rate(now)
    }

    /// Requests a second that the gate lets pass; `None` when there is none or it is open.
    pub fn gate_rate(&self) -> Option<f64> {
        self.gate.as_ref()?.rate()
    }

    /// A sink of the pipeline is done with the request, or was skipped. Says how the request ended
    /// when that was the last one.
    pub fn sink_done(&mut self, now: Timestamp, id: RequestId) -> Option<Outcome> {
        let open = self.open.get_mut(&id)?;
        open.sinks_missing -= 1;
        if open.sinks_missing > 0 {
            return None;
        }
        let deadline = open.deadline;
        self.open.swap_remove(&id);
        Some(if now <= deadline {
            Outcome::Completed
        } else {
            Outcome::Late
        })
    }

    /// The request ends before it is done. False when it had ended already: then nobody is to be told.
    pub fn end(&mut self, id: RequestId) -> bool {
        self.open.swap_remove(&id).is_some()
    }

    /// Whether the request has not ended. Branches of one that has are not passed on.
    pub fn is_open(&self, id: RequestId) -> bool {
        self.open.contains_key(&id)
    }

    /// Refuses all that comes from now on.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Requests that have not ended.
    pub fn in_flight(&self) -> usize {
        self.open.len()
    }

    /// Ids of the requests that have not ended, in order.
    pub fn open_requests(&self) -> Vec<RequestId> {
        let mut ids: Vec<RequestId> = self.open.keys().copied().collect();
        ids.sort_unstable();
        ids
    }
}

#[cfg(test)]
mod tests;
