//! Binds late: forms a batch from the waiting requests when the device is about to be free.

use std::cmp::Reverse;
use std::time::Duration;

use spillgate_pipeline::action::BatchItem;
use spillgate_pipeline::id::{RequestId, VariantId};
use spillgate_pipeline::policy::BudgetOrder;
use spillgate_pipeline::policy::recipe::Order;
use spillgate_pipeline::queue::Waiting;
use spillgate_pipeline::request::{DropReason, Estimate, ModelChoice};
use spillgate_pipeline::time::Timestamp;

use super::core::Core;
use super::{Rejected, mixed};

/// Most waiting requests that are sorted to see whether all can be served. When more requests wait, the last deadline
/// alone decides, so that forming a batch is fast whatever the backlog.
pub(crate) const SORTED_MAX: usize = 1024;

/// Forms batches late. It holds no requests between batches.
pub(super) struct Late {
    /// Scratch: module deadlines of the waiting requests.
    deadlines: Vec<Timestamp>,
    /// Scratch: the waiting requests by rank and deadline.
    ranked: Vec<(Reverse<u8>, Reverse<Timestamp>, RequestId)>,
}

impl Late {
    pub(super) fn new() -> Self {
        Late {
            deadlines: Vec::new(),
            ranked: Vec::new(),
        }
    }

    /// The batch that starts at `starts_at`. Each request that would miss its module deadline even in a batch of its
    /// own is dropped. The most urgent requests go first while the whole backlog is feasible in order of deadlines.
    /// Otherwise the requests with the highest budget go first, because they leave the modules downstream the most
    /// time. Where ranks differ, a higher rank goes before a higher budget.
    pub(super) fn form<T>(
        &mut self,
        core: &mut Core<T>,
        now: Timestamp,
        starts_at: Timestamp,
        out: &mut Vec<Rejected<T>>,
    ) -> Vec<BatchItem<T>> {
        let starts_at = starts_at.max(now);
        drop_hopeless(core, now, starts_at, out);
        if !core.is_mixed() {
            if core.queue.is_empty() {
                return Vec::new();
            }
            let variant = core.next_variant();
            let lowest_first = self.serves_lowest_first(core, starts_at);
            return self.bind(core, now, (starts_at, variant), lowest_first, out);
        }
        let mut members = Vec::new();
        while members.is_empty() && !core.queue.is_empty() {
            let lowest_first = self.serves_lowest_first(core, starts_at);
            let Some(first) = first(core, lowest_first) else {
                break;
            };
            let others = core.queue.set_aside_others(first);
            // Those of a slower variant may be hopeless behind others of a faster one.
            drop_hopeless(core, now, starts_at, out);
            let start = (starts_at, first.variant);
            members = self.bind(core, now, start, lowest_first, out);
            core.queue.put_back(others);
        }
        members
    }

    /// Binds a batch of the requests that wait, which are all of that variant, from that end.
    fn bind<T>(
        &mut self,
        core: &mut Core<T>,
        now: Timestamp,
        (starts_at, variant): (Timestamp, VariantId),
        lowest_first: bool,
        out: &mut Vec<Rejected<T>>,
    ) -> Vec<BatchItem<T>> {
        let size = core.queue.len().min(core.batch());
        let mut members = Vec::with_capacity(size);
        if lowest_first {
            while members.len() < size
                && let Some(next) = core.queue.pop_first()
            {
                bind_or_drop(core, now, next, &mut members, out);
            }
            return members;
        }
        if has_ranks(core) {
            self.bind_by_rank(core, now, (starts_at, variant), &mut members, out);
            return members;
        }
        // Each further member has less budget than the members before it and makes the batch longer. So the batch grows
        // while the member added last is still in time.
        for n in 1..=size {
            let ends_by =
                starts_at + core.execution(variant, n) + core.duration_deviation(variant, n);
            let last = core.queue.last();
            let fits = last.is_some_and(|w| ends_by <= core.module_deadline(&w.request));
            if !fits && n > 1 {
                break;
            }
            if let Some(next) = core.queue.pop_last() {
                bind_or_drop(core, now, next, &mut members, out);
            }
        }
        members
    }

    /// Binds requests by rank, and by budget among those of a rank. A request that would make an earlier member late, or
    /// would be late itself in this batch, is passed over.
    fn bind_by_rank<T>(
        &mut self,
        core: &mut Core<T>,
        now: Timestamp,
        (starts_at, variant): (Timestamp, VariantId),
        members: &mut Vec<BatchItem<T>>,
        out: &mut Vec<Rejected<T>>,
    ) {
        self.ranked.clear();
        let waiting = core.queue.iter().map(|w| &w.request);
        self.ranked
            .extend(waiting.map(|r| (Reverse(r.rank), Reverse(core.module_deadline(r)), r.id)));
        self.ranked.sort_unstable();
        let size = core.batch();
        let mut first_deadline = Timestamp::MAX;
        for &(_, Reverse(deadline), id) in &self.ranked {
            let n = members.len() + 1;
            if n > size {
                return;
            }
            let ends_by =
                starts_at + core.execution(variant, n) + core.duration_deviation(variant, n);
            if n > 1 && ends_by > first_deadline.min(deadline) {
                continue;
            }
            if let Some(next) = core.queue.remove(id) {
                bind_or_drop(core, now, next, members, out);
                first_deadline = first_deadline.min(deadline);
            }
        }
    }

    fn serves_lowest_first<T>(&mut self, core: &Core<T>, starts_at: Timestamp) -> bool {
        if let Some(order) = core.offers.order() {
            return order == BudgetOrder::LowestFirst;
        }
        match core.config.recipe.order {
            Order::Budget(order) => order == BudgetOrder::LowestFirst,
            _ if core.is_mixed() && core.queue.len() <= SORTED_MAX => {
                mixed::backlog_is_feasible(core, starts_at)
            }
            _ => self.backlog_is_feasible(core, starts_at),
        }
    }

    /// Whether all waiting requests make their module deadlines in batches of the planned size, in order of deadlines,
    /// even if a batch takes one deviation longer than expected.
    fn backlog_is_feasible<T>(&mut self, core: &Core<T>, starts_at: Timestamp) -> bool {
        let (batch, waiting) = (core.batch(), core.queue.len());
        let variant = core.next_variant();
        let full = core.execution(variant, batch);
        let deviation = core.duration_deviation(variant, batch);
        let Some(last) = core.queue.last() else {
            return true;
        };
        let all = time_of_all(core, variant, full);
        if starts_at + all + deviation > core.module_deadline(&last.request) {
            return false;
        }
        if waiting > SORTED_MAX {
            return true;
        }
        self.deadlines.clear();
        let waiting = core.queue.iter();
        self.deadlines
            .extend(waiting.map(|w| core.module_deadline(&w.request)));
        self.deadlines.sort_unstable();
        let mut ends_by = starts_at + deviation;
        self.deadlines.chunks(batch).all(|members| {
            let execution = match members.len() {
                n if n == batch => full,
                n => core.execution(variant, n),
            };
            ends_by = ends_by + execution;
            ends_by <= members[0]
        })
    }
}

/// The model of the request that is served first.
fn first<T>(core: &Core<T>, lowest_first: bool) -> Option<ModelChoice> {
    let first = match lowest_first {
        true => core.queue.first(),
        false if has_ranks(core) => {
            let by_rank = |w: &&Waiting<T>| {
                let request = &w.request;
                (request.rank, core.module_deadline(request), request.id)
            };
            core.queue.iter().max_by_key(by_rank)
        }
        false => core.queue.last(),
    };
    Some(first?.request.model())
}

/// Whether the drop policy goes by ranks and waiting requests differ in rank. When many wait, budgets alone decide.
fn has_ranks<T>(core: &Core<T>) -> bool {
    if !core.config.recipe.ranks || core.queue.len() > SORTED_MAX {
        return false;
    }
    let first = core.queue.first().map(|w| w.request.rank);
    core.queue.iter().any(|w| Some(w.request.rank) != first)
}

/// How long the whole backlog takes in batches of the planned size, which take `full` each.
fn time_of_all<T>(core: &Core<T>, variant: VariantId, full: Duration) -> Duration {
    let (batch, waiting) = (core.batch(), core.queue.len());
    let whole = full.saturating_mul((waiting / batch) as u32);
    match waiting % batch {
        0 => whole,
        rest => whole + core.execution(variant, rest),
    }
}

/// Drops, from the most urgent on, the requests that miss their module deadline even in a batch of their own that
/// starts at `starts_at`.
fn drop_hopeless<T>(
    core: &mut Core<T>,
    now: Timestamp,
    starts_at: Timestamp,
    out: &mut Vec<Rejected<T>>,
) {
    while let Some(first) = core.queue.first() {
        let deadline = core.module_deadline(&first.request);
        let execution = core.execution_alone(&first.request);
        if starts_at + execution <= deadline {
            break;
        }
        let Some(gone) = core.queue.pop_first() else {
            break;
        };
        let estimate = Some(Estimate {
            wait: starts_at.since(now),
            execution,
            downstream: core.guidance.downstream,
        });
        let reason = DropReason::Predicted;
        out.push(core.reject(now, gone.request, gone.payload, reason, estimate));
    }
}

/// Binds a request unless its client has used up its time.
fn bind_or_drop<T>(
    core: &mut Core<T>,
    now: Timestamp,
    next: Waiting<T>,
    members: &mut Vec<BatchItem<T>>,
    out: &mut Vec<Rejected<T>>,
) {
    if core.may_run(now, &next.request) {
        members.push(core.bind(next, now));
        return;
    }
    let reason = DropReason::Decoding;
    out.push(core.reject(now, next.request, next.payload, reason, None));
}
