//! What every way to form a batch works on: the requests that wait, and what is known of the time that they take.

use std::time::Duration;

use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::policy::Guidance;
use spillgate_pipeline::queue::Queue;
use spillgate_pipeline::request::{Drop, DropReason, Estimate, Request};
use spillgate_pipeline::time::Timestamp;

use super::decoding::DecodingShares;
use super::pace::Pace;
use super::{BrokerConfig, Rejected};

/// The part of a broker that does not depend on how it forms batches.
pub(super) struct Core<T> {
    pub(super) config: BrokerConfig,
    pub(super) guidance: Guidance,
    /// Requests that are in no batch and no scheduler's hands.
    pub(super) queue: Queue<T>,
    pace: Pace,
    /// At the source, where clients share the time for decoding.
    decoding: DecodingShares,
}

impl<T> Core<T> {
    pub(super) fn new(config: BrokerConfig) -> Self {
        Core {
            config,
            guidance: Guidance::NONE,
            queue: Queue::default(),
            pace: Pace::default(),
            decoding: DecodingShares::default(),
        }
    }

    /// Requests in a batch: as planned, or as guided.
    pub(super) fn batch(&self) -> usize {
        let most = self.config.execution.len();
        let guided = self.guidance.batch.map(|b| (b as usize).clamp(1, most));
        guided.unwrap_or(self.config.batch as usize)
    }

    /// Expected execution time of a batch of that size, as the profile says.
    fn profiled(&self, size: usize) -> Duration {
        self.config.execution[size.max(1) - 1]
    }

    /// Expected execution time of a batch of that size.
    pub(super) fn execution(&self, size: usize) -> Duration {
        self.pace.of(self.profiled(size))
    }

    /// Expected execution time of a request in a batch of its own. At the source it is what its picture costs.
    pub(super) fn execution_alone(&self, request: &Request) -> Duration {
        if self.decodes(request) {
            return self.pace.of(request.decoding());
        }
        self.execution(1)
    }

    /// How far from its expected end a batch of that size is to end, by how the last ones did.
    pub(super) fn stray(&self, size: usize) -> Duration {
        self.pace.stray(self.profiled(size))
    }

    /// Whether the request's picture is decoded here.
    fn decodes(&self, request: &Request) -> bool {
        self.config.module == ModuleId::SOURCE && request.decoding_us > 0
    }

    /// Whether the request's client may use the time that it takes: at the source it is shared.
    pub(super) fn may_run(&mut self, now: Timestamp, request: &Request) -> bool {
        !self.decodes(request) || {
            let decoding = self.execution_alone(request);
            self.decoding.take(now, request.client, decoding)
        }
    }

    /// Takes in how long a batch took that was expected to take `expected`. Our own policies learn the worker's pace
    /// from it; published ones trust the profile, as their authors do.
    pub(super) fn executed(&mut self, size: usize, expected: Duration, took: Duration) {
        let profiled = match self.config.module {
            // A picture takes what it costs: no table of sizes says it.
            ModuleId::SOURCE => self.pace.profiled(expected),
            _ => self.profiled(size),
        };
        if self.config.recipe.learns_pace && !profiled.is_zero() {
            self.pace.observe(profiled, took);
        }
    }

    /// A request is given up that was to start at `starts_at`. If the device is idle, and the request would be in time
    /// by the profile, only the pace stands against it; and a device that runs nothing shows no other pace. So the pace
    /// is believed a little less each time: one slow batch must not shut a worker for good.
    pub(super) fn doubt(&mut self, now: Timestamp, starts_at: Timestamp, deadline: Timestamp) {
        if self.pace.is_slow() && starts_at <= now && now + self.profiled(1) <= deadline {
            self.pace.doubt();
        }
    }

    /// The latest moment at which the request may leave this module.
    pub(super) fn module_deadline(&self, request: &Request) -> Timestamp {
        self.guidance.module_deadline(request)
    }

    /// Whether a waiting request is answered by timer once its deadline has passed. This needs the queue in order of
    /// deadlines, to find the first in constant time.
    pub(super) fn expires(&self) -> bool {
        self.config.recipe.order.is_by_deadline()
    }

    /// A request that leaves without being executed.
    pub(super) fn reject(
        &self,
        now: Timestamp,
        request: Request,
        payload: T,
        reason: DropReason,
        estimate: Option<Estimate>,
    ) -> Rejected<T> {
        let budget = request.deadline.budget_at(now);
        let drop = Drop {
            module: self.config.module,
            reason,
            at: now,
            budget,
            estimate,
        };
        Rejected {
            request,
            payload,
            drop,
        }
    }
}
