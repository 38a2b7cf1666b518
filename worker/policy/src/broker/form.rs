//! Binding late: forms a batch from what waits when the device is about to be free.

use std::time::Duration;

use spillgate_pipeline::policy::BudgetOrder;
use spillgate_pipeline::policy::recipe::Order;
use spillgate_pipeline::request::{DropReason, Estimate};
use spillgate_pipeline::time::Timestamp;

use super::queue::Waiting;
use super::{Broker, Rejected};

/// Most waiting requests that are sorted to see whether all can be served: more are judged by the last of them
/// alone, so that forming a batch stays short whatever the backlog.
const SORTED_MAX: usize = 1024;

impl<T> Broker<T> {
    /// Forms the batch that starts at `starts_at`. Drops what cannot make it even in a batch of its own that
    /// starts then; while the whole backlog is feasible in order of deadlines the most urgent go first, else
    /// those with the highest budget, so that what is served keeps time for the modules after this one.
    pub(super) fn form(
        &mut self,
        now: Timestamp,
        starts_at: Timestamp,
        out: &mut Vec<Rejected<T>>,
    ) {
        let starts_at = starts_at.max(now);
        while let Some(first) = self.queue.first() {
            let deadline = self.guidance.module_deadline(&first.request);
            let alone = self.execution_alone(&first.request);
            if starts_at + alone <= deadline {
                break;
            }
            self.doubt(now, starts_at, deadline);
            let Some(gone) = self.queue.pop_first() else {
                break;
            };
            let estimate = Estimate {
                wait: starts_at.since(now),
                execution: alone,
                downstream: self.guidance.downstream,
            };
            out.push(self.reject(
                now,
                gone.request,
                gone.payload,
                DropReason::Predicted,
                Some(estimate),
            ));
        }
        let waiting = self.queue.len();
        if waiting == 0 {
            return;
        }
        let size = waiting.min(self.batch());
        if self.serves_lowest_first(starts_at) {
            while self.forming.len() < size
                && let Some(next) = self.queue.pop_first()
            {
                self.bind_or_refuse(now, next, out);
            }
            return;
        }
        // Highest budget first, as many as bear a batch of so many: each one more has less time, and takes longer.
        for n in 1..=size {
            let ends_by = starts_at + self.execution(n) + self.stray(n);
            let fits = self
                .queue
                .last()
                .is_some_and(|w| ends_by <= self.guidance.module_deadline(&w.request));
            if !fits && n > 1 {
                break;
            }
            if let Some(next) = self.queue.pop_last() {
                self.bind_or_refuse(now, next, out);
            }
        }
    }

    /// Binds a request unless its client has used up its time.
    fn bind_or_refuse(&mut self, now: Timestamp, next: Waiting<T>, out: &mut Vec<Rejected<T>>) {
        if self.may_run(now, &next.request) {
            return self.bind(now, next);
        }
        let reason = DropReason::Decoding;
        out.push(self.reject(now, next.request, next.payload, reason, None));
    }

    fn serves_lowest_first(&mut self, starts_at: Timestamp) -> bool {
        match self.config.recipe.order {
            Order::Budget(order) => order == BudgetOrder::LowestFirst,
            _ => self.backlog_is_feasible(starts_at),
        }
    }

    /// Whether all that waits makes its module deadline in batches of the planned size, in order of deadlines, and be it
    /// that a batch takes a deviation longer than expected.
    fn backlog_is_feasible(&mut self, starts_at: Timestamp) -> bool {
        let batch = self.batch();
        let waiting = self.queue.len();
        let full = self.execution(batch);
        let (whole, rest) = (waiting / batch, waiting % batch);
        let mut all = full.saturating_mul(whole as u32);
        if rest > 0 {
            all += self.execution(rest);
        }
        let last = self
            .queue
            .last()
            .map(|w| self.guidance.module_deadline(&w.request));
        let stray = self.stray(batch);
        if last.is_some_and(|last| starts_at + all + stray > last) {
            return false;
        }
        if waiting > SORTED_MAX {
            return true;
        }
        let mut deadlines = std::mem::take(&mut self.deadlines);
        deadlines.clear();
        deadlines.extend(
            self.queue
                .iter()
                .map(|w| self.guidance.module_deadline(&w.request)),
        );
        deadlines.sort_unstable();
        let mut ends_by = starts_at + stray;
        let mut feasible = true;
        for members in deadlines.chunks(batch) {
            ends_by = ends_by + self.execution_of(members.len(), full);
            if ends_by > members[0] {
                feasible = false;
                break;
            }
        }
        self.deadlines = deadlines;
        feasible
    }

    fn execution_of(&self, size: usize, full: Duration) -> Duration {
        if size == self.batch() {
            full
        } else {
            self.execution(size)
        }
    }
}
