//! The data that every way to form a batch uses: the waiting requests and their expected execution times.

use std::time::Duration;

use spillgate_pipeline::action::BatchItem;
use spillgate_pipeline::id::{ModuleId, VariantId, WorkerId};
use spillgate_pipeline::policy::{BudgetOrder, Guidance};
use spillgate_pipeline::predict::{Action, Pace, PaceRule, Predictor, Rule};
use spillgate_pipeline::queue::{Queue, Waiting};
use spillgate_pipeline::request::{Drop, DropReason, Estimate, Request};
use spillgate_pipeline::time::Timestamp;

use super::decoding::Decoding;
use super::{BrokerConfig, Rejected};

/// How gateways chose what they gave to a broker that asked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Offers {
    all: usize,
    highest: usize,
}

impl Offers {
    /// A gateway gave so many requests from that end of its queue.
    pub(super) fn add(&mut self, order: BudgetOrder, requests: usize) {
        self.all += requests;
        if order == BudgetOrder::HighestFirst {
            self.highest += requests;
        }
    }

    /// The end from which most of the requests come; `None` where nothing was given. Gateways see the backlog, which a broker
    /// that asks does not.
    pub(super) fn order(&self) -> Option<BudgetOrder> {
        let most = match 2 * self.highest >= self.all {
            true => BudgetOrder::HighestFirst,
            false => BudgetOrder::LowestFirst,
        };
        (self.all > 0).then_some(most)
    }
}

/// The part of a broker that does not depend on how it forms batches.
pub(super) struct Core<T> {
    worker: WorkerId,
    pub(super) config: BrokerConfig,
    pub(super) guidance: Guidance,
    /// Requests that are in no batch and that no scheduler holds.
    pub(super) queue: Queue<T>,
    /// From which end of their queues gateways took the requests that wait.
    pub(super) offers: Offers,
    /// Requests in a batch, as the newest request of a stream that is bound to this worker says.
    bound_batch: Option<usize>,
    predictor: Predictor,
    /// At the source, where clients share the time for decoding.
    decoding: Decoding,
}

impl<T> Core<T> {
    pub(super) fn new(worker: WorkerId, config: BrokerConfig) -> Self {
        Core {
            worker,
            config,
            guidance: Guidance::NONE,
            queue: Queue::default(),
            offers: Offers::default(),
            bound_batch: None,
            predictor: Predictor::new(Rule::ByPace(PaceRule::Ewma)),
            decoding: Decoding::default(),
        }
    }

    /// A waiting request that is bound `now`.
    pub(super) fn bind(&self, next: Waiting<T>, now: Timestamp) -> BatchItem<T> {
        BatchItem {
            worker: self.worker,
            request: next.request,
            arrived_at: next.arrived_at,
            batched_at: now,
            load: None,
            payload: next.payload,
        }
    }

    /// Requests in a batch: as the scheduler says that bound streams to this worker, else as the guidance says, else as planned.
    pub(super) fn batch(&self) -> usize {
        let most = self.config.execution.served().len();
        let guided = self.guidance.batch.map(|b| (b as usize).clamp(1, most));
        let ordered = self.bound_batch.or(guided);
        ordered.unwrap_or(self.config.batch as usize)
    }

    /// A request came.
    pub(super) fn came(&mut self, request: &Request) {
        if request.batch_most > 0 {
            let most = self.config.execution.served().len();
            self.bound_batch = Some(usize::from(request.batch_most).min(most));
        }
    }

    /// The variant of the request that is first, else the one that serves where none is chosen.
    pub(super) fn next_variant(&self) -> VariantId {
        let first = self.queue.first().map(|w| w.request.variant);
        first.unwrap_or_else(|| self.config.execution.served_variant())
    }

    /// Expected execution time of a batch of that size, as the profile says.
    fn profiled(&self, variant: VariantId, size: usize) -> Duration {
        self.config.execution.of_variant(variant)[size.max(1) - 1]
    }

    fn action(&self, size: usize) -> Action {
        Action::execute(self.config.module, size)
    }

    /// How fast the worker is compared with its profile; `None` before the first batch ended.
    fn pace(&self) -> Option<&Pace> {
        self.predictor.pace(self.action(1))
    }

    /// Expected execution time of a batch of that variant and size.
    pub(super) fn execution(&self, variant: VariantId, size: usize) -> Duration {
        let profiled = self.profiled(variant, size);
        self.predictor.expect(self.action(size), profiled)
    }

    /// Expected execution time of a request in a batch of its own. At the source it is the time to decode its picture.
    pub(super) fn execution_alone(&self, request: &Request) -> Duration {
        if self.decodes(request) {
            return self.decoding.expect(request.client, request.decoding());
        }
        self.execution(request.variant, 1)
    }

    /// Usual difference between the expected and the actual end of a batch of that size, from the last batches.
    pub(super) fn duration_deviation(&self, variant: VariantId, size: usize) -> Duration {
        let spread = self.pace().map_or(0.0, Pace::spread);
        self.profiled(variant, size).mul_f64(spread)
    }

    /// Whether requests of different models wait here, which share no batch.
    pub(super) fn is_mixed(&self) -> bool {
        self.config.is_family || self.config.is_adapted
    }

    /// Whether the request's picture is decoded here.
    fn decodes(&self, request: &Request) -> bool {
        self.config.module == ModuleId::SOURCE && request.decoding_us > 0
    }

    /// Whether the request's client may use that much time: clients share the source's time.
    pub(super) fn may_run(&mut self, now: Timestamp, request: &Request) -> bool {
        !self.decodes(request) || {
            let decoding = self.execution_alone(request);
            self.decoding.take(now, request.client, decoding)
        }
    }

    /// Takes in how long a batch took that was expected to take `expected`, of one request `alone` or of several. Our own policies learn the worker's pace
    /// from it; published policies trust the profile, as their authors do.
    pub(super) fn executed(
        &mut self,
        now: Timestamp,
        (variant, size): (VariantId, usize),
        expected: Duration,
        alone: Option<&Request>,
        took: Duration,
    ) {
        let learns = self.config.recipe.learns_pace;
        // The time to decode a picture depends on the picture; no table by batch size has it.
        if let Some(request) = alone.filter(|request| self.decodes(request)) {
            self.decoding.charge(now, request.client, expected, took);
            if learns {
                self.decoding
                    .learn(now, request.client, request.decoding(), took);
            }
        } else if learns {
            let (action, profiled) = (self.action(size), self.profiled(variant, size));
            self.predictor.observe(now, action, profiled, took);
        }
    }

    /// Time passed: what was learnt and is not confirmed fades.
    pub(super) fn age(&mut self, now: Timestamp) {
        self.predictor.age(now);
        self.decoding.age(now);
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
