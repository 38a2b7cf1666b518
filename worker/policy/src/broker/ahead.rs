//! Binds a batch ahead, as PARD does (§3): the next batch is collected the moment one starts to execute, and later
//! arrivals join it while there is room.

use spillgate_pipeline::action::BatchItem;
use spillgate_pipeline::id::{RequestId, VariantId};
use spillgate_pipeline::policy::BudgetOrder;
use spillgate_pipeline::policy::recipe::{Keep, Order};
use spillgate_pipeline::queue::Waiting;
use spillgate_pipeline::request::{DropReason, Estimate, ModelChoice, Request};
use spillgate_pipeline::time::Timestamp;

use super::Rejected;
use super::core::Core;

/// The batch that is collected, at most as large as the plan or the guidance says.
pub(super) struct Ahead<T> {
    members: Vec<BatchItem<T>>,
}

/// Why a request is given up, with what was expected of it.
type Cause = (DropReason, Option<Estimate>);

impl<T> Ahead<T> {
    pub(super) fn new() -> Self {
        Ahead {
            members: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// The earliest deadline of the members.
    pub(super) fn first_deadline(&self) -> Option<Timestamp> {
        self.members.iter().map(|m| m.request.deadline).min()
    }

    /// Hands over the batch.
    pub(super) fn take_all(&mut self) -> Vec<BatchItem<T>> {
        std::mem::take(&mut self.members)
    }

    pub(super) fn requests(&self) -> impl Iterator<Item = &Request> {
        self.members.iter().map(|m| &m.request)
    }

    pub(super) fn ids(&self) -> Vec<RequestId> {
        self.members.iter().map(|m| m.request.id).collect()
    }

    pub(super) fn holds(&self, id: RequestId) -> bool {
        self.members.iter().any(|m| m.request.id == id)
    }

    /// Takes out one member.
    pub(super) fn take(&mut self, id: RequestId) -> Option<BatchItem<T>> {
        let at = self.members.iter().position(|m| m.request.id == id)?;
        Some(self.members.remove(at))
    }

    /// Moves requests from the queue into the batch while there is room, and drops the requests that the policy gives
    /// up. `free_at` is when the device is expected to be free.
    pub(super) fn collect(
        &mut self,
        core: &mut Core<T>,
        now: Timestamp,
        free_at: Timestamp,
        out: &mut Vec<Rejected<T>>,
    ) {
        if !core.is_mixed() {
            return self.collect_up_to(core, core.batch(), now, free_at, out);
        }
        // The first request decides which model the batch is of, unless one is bound already.
        let is_run = core.config.recipe.keep == Keep::EarlyDrop;
        while self.members.is_empty() && !core.queue.is_empty() {
            let first = core.queue.first().map(|w| w.request.model());
            if let (true, Some(first)) = (is_run, first) {
                self.collect_of(core, first, now, free_at, out);
            } else {
                self.collect_up_to(core, 1, now, free_at, out);
            }
        }
        let bound = self.members.first().map(|m| m.request.model());
        if let Some(bound) = bound
            && self.members.len() < core.batch()
        {
            self.collect_of(core, bound, now, free_at, out);
        }
    }

    /// The same for the requests of one model.
    fn collect_of(
        &mut self,
        core: &mut Core<T>,
        model: ModelChoice,
        now: Timestamp,
        free_at: Timestamp,
        out: &mut Vec<Rejected<T>>,
    ) {
        let others = core.queue.set_aside_others(model);
        self.collect_up_to(core, core.batch(), now, free_at, out);
        core.queue.put_back(others);
    }

    /// The same until the batch has so many members.
    fn collect_up_to(
        &mut self,
        core: &mut Core<T>,
        size: usize,
        now: Timestamp,
        free_at: Timestamp,
        out: &mut Vec<Rejected<T>>,
    ) {
        if core.config.recipe.keep == Keep::EarlyDrop {
            return self.collect_run(core, now, free_at, out);
        }
        while self.members.len() < size {
            let next = match order(core) {
                BudgetOrder::LowestFirst => core.queue.pop_first(),
                BudgetOrder::HighestFirst => core.queue.pop_last(),
            };
            let Some(next) = next else { break };
            let (reason, estimate) = match keep(core, &next.request, now, free_at) {
                Ok(()) if core.may_run(now, &next.request) => {
                    self.members.push(core.bind(next, now));
                    continue;
                }
                Ok(()) => (DropReason::Decoding, None),
                Err(cause) => cause,
            };
            out.push(core.reject(now, next.request, next.payload, reason, estimate));
        }
    }

    /// Early drop in Nexus, as PARD §5.1 describes it: the batch is the first run of consecutive requests that fills
    /// the room left and whose members are all in time. All requests before that run are dropped.
    fn collect_run(
        &mut self,
        core: &mut Core<T>,
        now: Timestamp,
        free_at: Timestamp,
        out: &mut Vec<Rejected<T>>,
    ) {
        let variant = core.next_variant();
        let ends_at = free_at.max(now) + core.execution(variant, core.batch());
        let mut run: Vec<Waiting<T>> = Vec::new();
        loop {
            while self.members.len() + run.len() < core.batch() {
                let Some(next) = core.queue.pop_first() else {
                    break;
                };
                run.push(next);
            }
            let is_late = |w: &Waiting<T>| ends_at > core.module_deadline(&w.request);
            let Some(last) = run.iter().rposition(is_late) else {
                break;
            };
            for gone in run.drain(..=last) {
                let (reason, estimate) = predicted(core, variant, now, free_at);
                out.push(core.reject(now, gone.request, gone.payload, reason, estimate));
            }
        }
        let bound = run.into_iter().map(|next| core.bind(next, now));
        self.members.extend(bound);
    }

    /// Drops the members whose deadline has passed.
    pub(super) fn expire(&mut self, core: &Core<T>, now: Timestamp, out: &mut Vec<Rejected<T>>) {
        let is_late = |m: &mut BatchItem<T>| m.request.deadline <= now;
        for gone in self.members.extract_if(.., is_late) {
            out.push(core.reject(now, gone.request, gone.payload, DropReason::Expired, None));
        }
    }
}

/// Which end of the queue comes first.
fn order<T>(core: &Core<T>) -> BudgetOrder {
    match core.config.recipe.order {
        Order::Budget(order) => order,
        Order::Guided(_) => core.guidance.order,
        Order::Arrival | Order::Feasibility => BudgetOrder::LowestFirst,
    }
}

/// Whether the request may enter the batch that starts at `free_at`; if not, why.
fn keep<T>(
    core: &Core<T>,
    request: &Request,
    now: Timestamp,
    free_at: Timestamp,
) -> Result<(), Cause> {
    let in_time = match core.config.recipe.keep {
        Keep::Always | Keep::EarlyDrop => true,
        Keep::Unexpired => {
            if now >= request.deadline {
                let (_, estimate) = predicted(core, request.variant, now, free_at);
                return Err((DropReason::Expired, estimate));
            }
            true
        }
        Keep::Elapsed => now <= core.module_deadline(request),
        Keep::Estimate => {
            let execution = core.execution(request.variant, core.batch());
            let ends_at = free_at.max(now) + execution;
            ends_at <= core.module_deadline(request)
        }
    };
    if in_time {
        Ok(())
    } else {
        Err(predicted(core, request.variant, now, free_at))
    }
}

/// The request would be late in a batch of the planned size that starts at `free_at`.
fn predicted<T>(core: &Core<T>, variant: VariantId, now: Timestamp, free_at: Timestamp) -> Cause {
    let estimate = Estimate {
        wait: free_at.since(now),
        execution: core.execution(variant, core.batch()),
        downstream: core.guidance.downstream,
    };
    (DropReason::Predicted, Some(estimate))
}
