//! What plugs into the broker: which waiting request comes first, and whether one that is about to be
//! batched is kept.

use std::time::Duration;

use spillgate_pipeline::pipeline::DropPolicyName;
use spillgate_pipeline::request::{DropReason, Estimate, Request};
use spillgate_pipeline::time::Timestamp;

/// What is known when a request would join the forming batch.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// t_b, now.
    pub now: Timestamp,
    /// t_e, when the forming batch is expected to start: the expected end of the running batch, or now.
    pub starts_at: Timestamp,
    /// D, the expected execution time of the forming batch with this request in it.
    pub execution: Duration,
}

/// Decides at one broker. Requests are sorted by `key` and taken from the lower end.
pub trait DropPolicy: Send {
    /// Position of a request among the waiting ones. Constant while it waits.
    fn key(&self, request: &Request, arrived_at: Timestamp) -> Timestamp;

    /// Whether waiting requests are dropped by timer the moment their deadline passes. A policy that
    /// says so must use the deadline as its key, so that the first to expire is the first in order.
    fn expires(&self) -> bool;

    /// Whether to keep a request that would join the forming batch now.
    ///
    /// # Errors
    /// The reason to drop it, with the estimate behind it.
    fn keep(
        &self,
        request: &Request,
        moment: &Moment,
    ) -> Result<(), (DropReason, Option<Estimate>)>;
}

/// The policy of that name.
pub fn by_name(name: DropPolicyName) -> Box<dyn DropPolicy> {
    match name {
        DropPolicyName::None => Box::new(KeepAll),
        DropPolicyName::Deadline => Box::new(Deadline),
    }
}

/// `none`: first come, first served, nothing dropped. PARD's "naive".
struct KeepAll;

impl DropPolicy for KeepAll {
    fn key(&self, _request: &Request, arrived_at: Timestamp) -> Timestamp {
        arrived_at
    }

    fn expires(&self) -> bool {
        false
    }

    fn keep(&self, _: &Request, _: &Moment) -> Result<(), (DropReason, Option<Estimate>)> {
        Ok(())
    }
}

/// `deadline`: earliest deadline first; drops only what is already too late. It predicts nothing, so a
/// request that will miss its deadline during its batch still runs.
struct Deadline;

impl DropPolicy for Deadline {
    fn key(&self, request: &Request, _arrived_at: Timestamp) -> Timestamp {
        request.deadline
    }

    fn expires(&self) -> bool {
        true
    }

    fn keep(&self, request: &Request, at: &Moment) -> Result<(), (DropReason, Option<Estimate>)> {
        if at.now < request.deadline {
            return Ok(());
        }
        let estimate = Estimate {
            wait: at.starts_at.since(at.now),
            execution: at.execution,
            downstream: Duration::ZERO,
        };
        Err((DropReason::Expired, Some(estimate)))
    }
}
