//! Requests that wait at their gateway until a worker of their module asks for them (dispatch `pull`).
//!
//! The pool decides as a broker that binds late does ([`Order`]), for all workers of the module: which requests are dropped,
//! and which end of the queue goes first. It sees its own gateway's part of the backlog, and takes the rest to be alike.
//!
//! Invariants: at most `capacity` requests wait; a worker has at most one ask here.

use std::sync::Arc;
use std::time::Duration;

use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::{ModuleId, RequestId, WorkerId};
use spillgate_pipeline::policy::BudgetOrder;
use spillgate_pipeline::policy::recipe::{Order, Recipe};
use spillgate_pipeline::queue::{Queue, Waiting};
use spillgate_pipeline::request::{DropReason, Estimate, Request};
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{Ask, ModulePlan};

use crate::plan::Planned;
use crate::shares::RANKS;

/// Most waiting requests that are sorted to see whether all can be served. When more wait, the last deadline alone decides.
pub(crate) const SORTED_MAX: usize = 1024;

/// A worker's batch scheduler gets this many times the worker's share of the waiting requests.
const SCHEDULED_SHARE: usize = 2;

/// Weight of what an ask says of the other gateways: the worker heard it for its last batch.
const ELSEWHERE_WEIGHT: f64 = 0.5;

/// A request of the pool, and when it came to the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pooled {
    /// The request.
    pub(crate) request: Request,
    /// When it came.
    pub(crate) since: Timestamp,
}

/// A request that leaves the pool without being served.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PoolDrop {
    /// The request.
    pub(crate) id: RequestId,
    /// Why.
    pub(crate) reason: DropReason,
    /// The numbers behind it.
    pub(crate) estimate: Option<Estimate>,
}

/// What a worker gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    /// The worker.
    pub(crate) worker: WorkerId,
    /// Its ask.
    pub(crate) serial: u64,
    /// The end of the queue from which the requests come.
    pub(crate) order: BudgetOrder,
    /// Requests that wait on.
    pub(crate) waiting: u32,
    /// The requests.
    pub(crate) requests: Vec<Pooled>,
}

/// An ask that can still be served.
struct OpenAsk {
    ask: Ask,
    /// Requests that it still gets from here.
    left: usize,
}

/// What decides on the requests of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    /// What the module's controller said last.
    pub(crate) plan: &'a ModulePlan,
    /// Workers of the module that take requests.
    pub(crate) n_workers: usize,
}

/// The waiting requests of one module at one gateway.
pub(crate) struct Pool {
    module: ModuleId,
    recipe: &'static Recipe,
    planned: Arc<Planned>,
    /// The worker's scheduler decides which requests are given up.
    is_scheduled: bool,
    /// Requests are for different models, and a batch holds requests of one.
    is_mixed: bool,
    /// Requests that may wait for each worker.
    queue_of_worker: usize,
    capacity: usize,
    queue: Queue<()>,
    /// The waiting requests by rank.
    by_rank: [u32; RANKS],
    asks: Vec<OpenAsk>,
    /// Requests that wait at the other gateways, as workers say.
    elsewhere: f64,
    turn: usize,
    /// Scratch: module deadlines of the waiting requests.
    deadlines: Vec<Timestamp>,
}

impl Pool {
    /// An empty pool. Its gateways begin with another worker each where several are idle: `turn` differs between them.
    pub(crate) fn new(
        pipeline: &Pipeline,
        module: ModuleId,
        planned: &Arc<Planned>,
        n_workers: usize,
        turn: usize,
    ) -> Self {
        let of = &pipeline.modules[module.idx()];
        Pool {
            module,
            recipe: pipeline.policy.recipe(),
            planned: planned.clone(),
            is_scheduled: of.schedule.is_some(),
            is_mixed: of.family.is_some() || pipeline.adapted() == Some(module),
            queue_of_worker: of.queue,
            capacity: of.queue.saturating_mul(n_workers.max(1)),
            queue: Queue::default(),
            by_rank: [0; RANKS],
            asks: Vec::new(),
            elsewhere: 0.0,
            turn,
            deadlines: Vec::new(),
        }
    }

    /// The module has so many workers from now on.
    pub(crate) fn set_workers(&mut self, n_workers: usize) {
        self.capacity = self.queue_of_worker.saturating_mul(n_workers.max(1));
    }

    /// Takes in a request. False when the pool is full.
    pub(crate) fn push(&mut self, request: &Request, since: Timestamp) -> bool {
        let has_room = self.queue.len() < self.capacity;
        // One that waits here already stays as it is.
        if has_room && !self.queue.contains(request.id) {
            self.by_rank[usize::from(request.rank)] += 1;
            self.queue.push(request.deadline, *request, (), since);
        }
        has_room
    }

    /// Forgets a request. False when it does not wait here.
    pub(crate) fn remove(&mut self, id: RequestId) -> bool {
        let gone = self.queue.remove(id);
        self.left(gone).is_some()
    }

    /// Requests that wait here.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Whether a request waits here.
    pub(crate) fn contains(&self, id: RequestId) -> bool {
        self.queue.contains(id)
    }

    /// So many requests wait at the other gateways, as a worker has just heard.
    pub(crate) fn set_elsewhere(&mut self, elsewhere: u32) {
        self.elsewhere = f64::from(elsewhere);
    }

    /// Counts a request that leaves the queue.
    fn left(&mut self, gone: Option<Waiting<()>>) -> Option<Waiting<()>> {
        if let Some(gone) = &gone {
            self.by_rank[usize::from(gone.request.rank)] -= 1;
        }
        gone
    }

    fn pop_first(&mut self) -> Option<Waiting<()>> {
        let first = self.queue.pop_first();
        self.left(first)
    }

    /// Whether requests wait and asks stand.
    pub(crate) fn can_serve(&self) -> bool {
        !self.asks.is_empty() && !self.queue.is_empty()
    }

    /// The deadline that passes first.
    pub(crate) fn next_expiry(&self) -> Option<Timestamp> {
        self.queue.first_key()
    }

    /// Takes out the requests whose deadline has passed.
    pub(crate) fn expire(&mut self, now: Timestamp, refused: &mut Vec<PoolDrop>) {
        while self.queue.first_key().is_some_and(|key| key <= now)
            && let Some(next) = self.pop_first()
        {
            refused.push(PoolDrop {
                id: next.request.id,
                reason: DropReason::Expired,
                estimate: None,
            });
        }
    }

    /// A worker asks. A worker that is busy gets an answer at once.
    pub(crate) fn ask(
        &mut self,
        now: Timestamp,
        ask: &Ask,
        view: View<'_>,
        refused: &mut Vec<PoolDrop>,
    ) -> Option<Given> {
        self.withdraw(ask.worker, u64::MAX);
        self.elsewhere += ELSEWHERE_WEIGHT * (f64::from(ask.elsewhere) - self.elsewhere);
        let part = (f64::from(ask.most) * view.plan.part).ceil() as usize;
        let most = match self.is_scheduled {
            true => part.min(self.share_of_worker(view)),
            false => part,
        };
        let mut open = OpenAsk {
            ask: *ask,
            left: most.clamp(usize::from(ask.most > 0), ask.most as usize),
        };
        let Some(until) = ask.until else {
            if open.left > 0 {
                self.asks.push(open);
            }
            return None;
        };
        // Some worker begins within the time of a batch, whatever this one says: no request is given up for its word alone.
        let latest = now + view.plan.shape.execution;
        let starts_at = ask.starts_at.clamp(now, latest);
        self.drop_hopeless(now, starts_at, view, refused);
        let order = self.order(starts_at, view);
        let requests = self.take(order, open.left);
        open.left -= requests.len();
        if open.left > 0 && until > now {
            self.asks.push(open);
        }
        Some(Given {
            worker: ask.worker,
            serial: ask.serial,
            order,
            waiting: self.queue.len() as u32,
            requests,
        })
    }

    /// Requests from which a worker's batch scheduler chooses: it takes them all for its own, so not many more than its share.
    fn share_of_worker(&self, view: View<'_>) -> usize {
        SCHEDULED_SHARE * self.queue.len() / view.n_workers.max(1) + 1
    }

    /// The ask of a worker counts no more, if its serial is not a later one.
    pub(crate) fn withdraw(&mut self, worker: WorkerId, serial: u64) {
        self.asks
            .retain(|s| s.ask.worker != worker || s.ask.serial > serial);
    }

    /// Serves the asks that stand, after requests have come. An idle worker begins at once with what it gets, so its ask stands
    /// no more. `room`: the most requests that a worker may have at once.
    pub(crate) fn serve(
        &mut self,
        now: Timestamp,
        view: View<'_>,
        room: impl Fn(WorkerId) -> usize,
        refused: &mut Vec<PoolDrop>,
    ) -> Vec<Given> {
        let mut given: Vec<Given> = Vec::new();
        self.asks
            .retain(|s| s.ask.until.is_none_or(|until| until > now));
        self.drop_hopeless(now, now, view, refused);
        let order = self.order(now, view);
        while !self.queue.is_empty()
            && let Some(idx) = self.next_ask(&|worker| {
                let has = given.iter().find(|g| g.worker == worker);
                room(worker) > has.map_or(0, |g| g.requests.len())
            })
        {
            let open = &mut self.asks[idx];
            open.left -= 1;
            let (worker, serial) = (open.ask.worker, open.ask.serial);
            let next = self.take(order, 1);
            match given.iter_mut().find(|g| g.worker == worker) {
                Some(given) => given.requests.extend(next),
                None => given.push(Given {
                    worker,
                    serial,
                    order,
                    waiting: 0,
                    requests: next,
                }),
            }
        }
        self.asks.retain(|s| {
            let is_used = given.iter().any(|g| g.worker == s.ask.worker);
            s.left > 0 && !(is_used && s.ask.until.is_none())
        });
        for given in &mut given {
            given.waiting = self.queue.len() as u32;
        }
        given
    }

    /// The ask that gets the next request: that of an idle worker, in turn, else that of the worker that starts first.
    fn next_ask(&mut self, has_room: &impl Fn(WorkerId) -> bool) -> Option<usize> {
        let n = self.asks.len();
        let turn = self.turn;
        let all = (0..n).map(|i| (turn + i) % n);
        let with_room = all.filter(|&i| self.asks[i].left > 0 && has_room(self.asks[i].ask.worker));
        let next = with_room.min_by_key(|&i| {
            let ask = &self.asks[i].ask;
            ask.until.map(|_| ask.starts_at)
        })?;
        self.turn = (next + 1) % n;
        Some(next)
    }

    /// When a request of that rank that comes now would start: the waiting requests of no lower rank fill whole batches before
    /// it. Rank 0: all of them. `is_up`: whether a worker takes requests.
    pub(crate) fn earliest_start(
        &self,
        now: Timestamp,
        view: View<'_>,
        rank: u8,
        is_up: impl Fn(WorkerId) -> bool,
    ) -> Timestamp {
        let is_idle = |s: &OpenAsk| s.ask.until.is_none() && is_up(s.ask.worker);
        if self.asks.iter().any(is_idle) {
            return now;
        }
        let position = self.before(rank);
        let before = (position / f64::from(view.plan.shape.size.max(1))).floor();
        now + self.interval(view).mul_f64(before + 0.5)
    }

    /// Requests of no lower rank that wait at all gateways: the others' are taken to be of the same ranks.
    fn before(&self, rank: u8) -> f64 {
        let here: u32 = self.by_rank[usize::from(rank)..].iter().sum();
        match self.queue.len() as f64 {
            0.0 => self.elsewhere,
            all => (all + self.elsewhere) * f64::from(here) / all,
        }
    }

    /// The time between the starts of two batches of the module.
    fn interval(&self, view: View<'_>) -> Duration {
        view.plan.shape.execution / view.n_workers.max(1) as u32
    }

    /// Requests that wait at all gateways, by one that waits here: the gateways' requests are taken to be alike.
    fn scale(&self) -> f64 {
        (self.queue.len() as f64 + self.elsewhere) / self.queue.len().max(1) as f64
    }

    /// Whole batches before the request at that position of this pool's queue, over all gateways.
    fn batches_before(&self, position: usize, view: View<'_>) -> f64 {
        (position as f64 * self.scale() / f64::from(view.plan.shape.size.max(1))).floor()
    }

    /// Expected execution time of a batch of that size, at the pace that the module's workers show.
    fn execution(&self, size: usize, view: View<'_>) -> Duration {
        let shape = view.plan.shape;
        let planned = self.planned.duration_of(self.module, shape.size);
        let alone = self.planned.duration_of(self.module, size as u32);
        if planned == shape.execution || planned.is_zero() {
            return alone;
        }
        alone.mul_f64(shape.execution.as_secs_f64() / planned.as_secs_f64())
    }

    /// Execution time of a request in a batch of its own as its variant's profile says, where variants differ: the pace that workers
    /// show is that of all variants together.
    fn profiled_alone(&self, request: &Request) -> Duration {
        let of = self.planned.execution.of_module(self.module);
        let alone = of.of_variant(request.variant).first();
        let alone = alone.filter(|_| self.is_mixed);
        alone.copied().unwrap_or(Duration::MAX)
    }

    /// Drops, from the most urgent on, the requests that miss their module deadline even in a batch of their own that starts
    /// at `starts_at`.
    fn drop_hopeless(
        &mut self,
        now: Timestamp,
        starts_at: Timestamp,
        view: View<'_>,
        refused: &mut Vec<PoolDrop>,
    ) {
        let usual = match self.is_scheduled {
            true => Duration::ZERO,
            false => self.execution(1, view),
        };
        let guidance = &view.plan.guidance;
        while let Some(first) = self.queue.first() {
            let execution = usual.min(self.profiled_alone(&first.request));
            if starts_at + execution <= guidance.module_deadline(&first.request) {
                break;
            }
            let Some(gone) = self.pop_first() else {
                break;
            };
            refused.push(PoolDrop {
                id: gone.request.id,
                reason: DropReason::Predicted,
                estimate: Some(Estimate {
                    wait: starts_at.since(now),
                    execution,
                    downstream: guidance.downstream,
                }),
            });
        }
    }

    /// The end of the queue that goes first.
    fn order(&mut self, starts_at: Timestamp, view: View<'_>) -> BudgetOrder {
        match self.recipe.order {
            Order::Budget(order) => order,
            _ => {
                let mut deadlines = std::mem::take(&mut self.deadlines);
                let is_feasible = self.is_feasible(starts_at, view, &mut deadlines);
                self.deadlines = deadlines;
                match is_feasible {
                    true => BudgetOrder::LowestFirst,
                    false => BudgetOrder::HighestFirst,
                }
            }
        }
    }

    /// Whether all waiting requests make their module deadlines in order of deadlines, when the workers of the module begin
    /// batches of the planned size at equal distances, the next one at `starts_at`.
    fn is_feasible(
        &self,
        starts_at: Timestamp,
        view: View<'_>,
        deadlines: &mut Vec<Timestamp>,
    ) -> bool {
        let guidance = &view.plan.guidance;
        let n = self.queue.len();
        let Some(last) = self.queue.last() else {
            return true;
        };
        let interval = self.interval(view);
        let full = view.plan.shape.execution;
        let size = view.plan.shape.size.max(1) as usize;
        // Over all gateways.
        let all = n as f64 * self.scale();
        let ends_by = |position: usize| {
            let before = self.batches_before(position, view);
            let members = (all - before * size as f64).ceil() as usize;
            let execution = match members {
                fewer if fewer < size => self.execution(fewer.max(1), view),
                _ => full,
            };
            starts_at + interval.mul_f64(before) + execution
        };
        if ends_by(n - 1) > guidance.module_deadline(&last.request) {
            return false;
        }
        if n > SORTED_MAX {
            return true;
        }
        deadlines.clear();
        let waiting = self.queue.iter();
        deadlines.extend(waiting.map(|w| guidance.module_deadline(&w.request)));
        deadlines.sort_unstable();
        let mut in_order = deadlines.iter().enumerate();
        in_order.all(|(i, deadline)| ends_by(i) <= *deadline)
    }

    /// Takes out so many requests from that end; where the module has several models, those of the first one's model.
    fn take(&mut self, order: BudgetOrder, most: usize) -> Vec<Pooled> {
        let mut taken = Vec::with_capacity(most.min(self.queue.len()));
        if !self.is_mixed {
            self.take_into(&mut taken, order, most);
            return taken;
        }
        self.take_into(&mut taken, order, most.min(1));
        if let Some(first) = taken.first() {
            let others = self.queue.set_aside_others(first.request.model());
            self.take_into(&mut taken, order, most);
            self.queue.put_back(others);
        }
        taken
    }

    fn take_into(&mut self, taken: &mut Vec<Pooled>, order: BudgetOrder, most: usize) {
        while taken.len() < most
            && let Some(next) = self.next(order)
        {
            taken.push(Pooled {
                request: next.request,
                since: next.arrived_at,
            });
        }
    }

    /// Where not all can be in time, a higher rank goes before a higher budget, as in a broker.
    fn next(&mut self, order: BudgetOrder) -> Option<Waiting<()>> {
        let next = match order {
            BudgetOrder::LowestFirst => self.queue.pop_first(),
            BudgetOrder::HighestFirst if self.has_ranks() => {
                let waiting = self.queue.iter().map(|w| &w.request);
                let first = waiting.max_by_key(|r| (r.rank, r.deadline, r.id))?.id;
                self.queue.remove(first)
            }
            BudgetOrder::HighestFirst => self.queue.pop_last(),
        };
        self.left(next)
    }

    /// Whether the drop policy goes by ranks and waiting requests differ in rank. When many wait, budgets alone decide.
    fn has_ranks(&self) -> bool {
        let ranks = self.by_rank.iter().filter(|n| **n > 0);
        self.recipe.ranks && self.queue.len() <= SORTED_MAX && ranks.count() > 1
    }
}

#[cfg(test)]
mod tests;
