//! The Request Broker (PARD §4.3): owns the requests that wait for one module on one device, in a
//! double-ended priority queue, moves them into batches, or drops them.
//!
//! One machine; the [`Recipe`] of a drop policy plugs in the order, the keep test and the moment of binding, a
//! [`Guidance`] of the State Planner what is reserved downstream. Bound *ahead*, as in PARD, the next batch is
//! collected the moment one starts to execute, and later arrivals join it while there is room. Bound *late*,
//! the batch is formed when the device is about to be free. The broker starts nothing itself:
//! [`crate::device::Device`] takes the batch.
//!
//! Invariants: a request is in the queue or in the forming batch, never in both; at most `capacity`
//! wait; the forming batch has at most `batch` members; cancelled entries stay in the heap as tombstones, never
//! more than the live ones plus `TOMBSTONES_MIN`.

mod admitted;
mod decoding;
mod form;
mod queue;

use std::time::Duration;

use spillgate_pipeline::id::{ModuleId, RequestId};
use spillgate_pipeline::policy::recipe::{Bind, Keep, Order, Recipe};
use spillgate_pipeline::policy::{BudgetOrder, Guidance};
use spillgate_pipeline::request::{Drop, DropReason, Estimate, Request};
use spillgate_pipeline::schedule::{Application, ScheduleName};
use spillgate_pipeline::time::Timestamp;

use crate::schedule::{Lengths, SchedulerConfig};
use admitted::Admitted;
use decoding::DecodingShares;
use queue::{Queue, Waiting};

/// Weight of the newest batch in the smoothed ratio of measured to expected execution time.
const PACE_WEIGHT: f64 = 0.25;
/// Bounds of that ratio: a clock that jumps must not make a worker look infinitely slow.
const PACE_RANGE: (f64, f64) = (0.1, 20.0);

/// Part of a pace that is forgotten with each request that an idle device gives up for it: a worker that is slow indeed runs
/// one in many in vain.
const DOUBT: f64 = 0.01;

/// Batches that end this close to their expected end are on time: the difference is rounding.
const STRAY_MIN: f64 = 0.01;

/// What a broker is built from.
#[derive(Clone, Debug)]
pub struct BrokerConfig {
    /// The module it serves.
    pub module: ModuleId,
    /// Most requests that wait, the forming batch included.
    pub capacity: usize,
    /// Requests in a batch, as planned.
    pub batch: u32,
    /// Expected execution time by batch size; entry 0 is size 1. At least `batch` entries.
    pub execution: Vec<Duration>,
    /// Decides who is kept, who comes first, and when.
    pub recipe: &'static Recipe,
    /// Forms the batches of a module whose time depends on what requests bring; it decides who is given up, too.
    /// `None`: batches as planned.
    pub schedule: Option<SchedulerConfig>,
}

/// A request in a forming or running batch, with what its driver attached to it.
#[derive(Debug)]
pub struct Member<T> {
    /// The request.
    pub request: Request,
    /// The driver's own.
    pub payload: T,
    /// t_r.
    pub arrived_at: Timestamp,
    /// t_b.
    pub batched_at: Timestamp,
}

/// A batch that the device is to run; without members there is none.
#[derive(Debug)]
pub struct Formed<T> {
    /// Its requests.
    pub members: Vec<Member<T>>,
    /// Size that its time is counted for, at least the number of members.
    pub size: usize,
    /// How long it is expected to take.
    pub execution: Duration,
    /// What its members are expected to take alone, where a scheduler formed it.
    pub lengths: Lengths,
}

impl<T> Default for Formed<T> {
    fn default() -> Self {
        Formed {
            members: Vec::new(),
            size: 0,
            execution: Duration::ZERO,
            lengths: Lengths::default(),
        }
    }
}

/// A request that left without being executed.
#[derive(Debug)]
pub struct Rejected<T> {
    /// The request.
    pub request: Request,
    /// The driver's own.
    pub payload: T,
    /// Where, why, when.
    pub drop: Drop,
}

/// The broker of one worker.
pub struct Broker<T> {
    config: BrokerConfig,
    guidance: Guidance,
    queue: Queue<T>,
    forming: Vec<Member<T>>,
    admitted: Option<Admitted<T>>,
    /// Measured over expected execution time, smoothed; 1 for policies that trust the profile, and for modules with a
    /// scheduler, which learns for itself.
    pace: f64,
    /// How far single batches are from that, smoothed.
    stray: f64,
    /// Scratch of [`form`]: module deadlines of what waits.
    deadlines: Vec<Timestamp>,
    /// At the source, where clients share the time for decoding.
    decoding: DecodingShares,
}

impl<T> Broker<T> {
    /// An empty broker.
    ///
    /// # Panics
    /// When `batch` is zero or an execution time is missing: the compiler of pipelines excludes both.
    pub fn new(config: BrokerConfig) -> Self {
        assert!(config.batch > 0, "a batch holds at least one request");
        assert!(
            config.execution.len() >= config.batch as usize,
            "an execution time is known for each batch size"
        );
        let scheduled = config
            .schedule
            .clone()
            .filter(|s| s.name != ScheduleName::Static);
        Broker {
            admitted: scheduled.map(Admitted::new),
            config,
            guidance: Guidance::NONE,
            queue: Queue::new(),
            forming: Vec::new(),
            pace: 1.0,
            stray: 0.0,
            deadlines: Vec::new(),
            decoding: DecodingShares::default(),
        }
    }

    /// The module it serves.
    pub fn module(&self) -> ModuleId {
        self.config.module
    }

    /// Requests that wait, the forming batch included.
    pub fn waiting(&self) -> usize {
        let admitted = self.admitted.as_ref().map_or(0, Admitted::len);
        self.queue.len() + self.forming.len() + admitted
    }

    /// Whether it binds requests only when the device is about to be free.
    pub fn binds_late(&self) -> bool {
        self.config.recipe.bind == Bind::Late || self.admitted.is_some()
    }

    /// Whether a batch scheduler forms its batches, from distributions of execution times.
    pub fn is_scheduled(&self) -> bool {
        self.admitted.is_some()
    }

    /// How urgent its next batch is: the earliest deadline of what is bound or, bound late, of what waits.
    /// `None` when there is nothing to run.
    pub fn urgency(&self) -> Option<Timestamp> {
        if let Some(admitted) = &self.admitted {
            return admitted.urgency();
        }
        if self.binds_late() {
            return self.queue.first_key();
        }
        self.forming.iter().map(|m| m.request.deadline).min()
    }

    /// Expected execution time of a batch of that size.
    pub fn execution(&self, size: usize) -> Duration {
        if let Some(admitted) = &self.admitted {
            return admitted.scheduler.execution(size as u32);
        }
        let expected = self.config.execution[size.max(1) - 1];
        if self.pace == 1.0 {
            expected
        } else {
            expected.mul_f64(self.pace)
        }
    }

    /// Expected execution time of a request in a batch of its own. At the source it is what its picture costs.
    fn execution_alone(&self, request: &Request) -> Duration {
        if self.decodes(request) {
            return request.decoding().mul_f64(self.pace);
        }
        self.execution(1)
    }

    /// Whether the request's picture is decoded here.
    fn decodes(&self, request: &Request) -> bool {
        self.config.module == ModuleId::SOURCE && request.decoding_us > 0
    }

    /// Whether the request's client may use the time that it takes: at the source it is shared.
    fn may_run(&mut self, now: Timestamp, request: &Request) -> bool {
        !self.decodes(request) || {
            let decoding = self.execution_alone(request);
            self.decoding.take(now, request.client, decoding)
        }
    }

    /// How far from its expected end a batch of that many is to end, by how the last ones did.
    pub fn stray(&self, size: usize) -> Duration {
        if self.stray < STRAY_MIN || self.admitted.is_some() {
            return Duration::ZERO;
        }
        self.config.execution[size.max(1) - 1].mul_f64(self.stray)
    }

    /// Whether as many wait as a batch holds: then whoever comes later hardly changes it.
    pub fn fills_batch(&self) -> bool {
        self.admitted.is_none() && self.queue.len() >= self.batch()
    }

    /// Takes note of how long a batch that was formed took, beside what was expected. Policies of ours learn the pace
    /// of the worker from it; published ones trust the profile, as their authors do.
    pub fn executed(&mut self, size: usize, expected: (Duration, Lengths), took: Duration) {
        if let Some(admitted) = &mut self.admitted {
            admitted.scheduler.executed(size as u32, expected, took);
            admitted.touch();
            return;
        }
        let expected = match self.config.module {
            // Pictures cost what they cost: not what the table of sizes says.
            ModuleId::SOURCE => expected.0.div_f64(self.pace),
            _ => self.config.execution[size.max(1) - 1],
        };
        if !self.config.recipe.learns_pace || expected.is_zero() {
            return;
        }
        let ratio = took.as_secs_f64() / expected.as_secs_f64();
        let ratio = ratio.clamp(PACE_RANGE.0, PACE_RANGE.1);
        self.stray += PACE_WEIGHT * ((ratio - self.pace).abs() - self.stray);
        self.pace += PACE_WEIGHT * (ratio - self.pace);
        // Without noise the ratio is one but for rounding: keep the exact times then.
        if (self.pace - 1.0).abs() < 0.01 {
            self.pace = 1.0;
        }
    }

    /// A request ran alone for so long: modules with a scheduler learn from it.
    pub fn learn(&mut self, now: Timestamp, application: Application, took: Duration) {
        if let Some(admitted) = &mut self.admitted {
            admitted.learn(now, application, took);
        }
    }

    /// Requests in a batch: as planned, or as guided.
    fn batch(&self) -> usize {
        let most = self.config.execution.len();
        let guided = self.guidance.batch.map(|b| (b as usize).clamp(1, most));
        guided.unwrap_or(self.config.batch as usize)
    }

    /// New downstream state.
    pub fn guide(&mut self, now: Timestamp, guidance: Guidance) {
        let moved = guidance.downstream != self.guidance.downstream
            || guidance.share != self.guidance.share;
        self.guidance = guidance;
        if moved {
            self.admit_anew(now);
        }
    }

    /// Takes in a request. It waits, or is rejected at once when the queue is full.
    pub fn arrive(
        &mut self,
        now: Timestamp,
        request: Request,
        payload: T,
        out: &mut Vec<Rejected<T>>,
    ) {
        if self.waiting() >= self.config.capacity {
            out.push(self.reject(now, request, payload, DropReason::QueueFull, None));
            return;
        }
        let key = if self.config.recipe.order.is_by_deadline() {
            request.deadline
        } else {
            now
        };
        self.queue.push(key, request, payload, now);
    }

    /// Moves requests from the queue into the forming batch while there is room, dropping those that
    /// the policy gives up. `free_at` is the expected end of what the device runs, or `now`.
    pub fn collect(&mut self, now: Timestamp, free_at: Timestamp, out: &mut Vec<Rejected<T>>) {
        if self.admitted.is_some() {
            return self.admit(now);
        }
        if self.binds_late() {
            return;
        }
        if self.config.recipe.keep == Keep::EarlyDrop {
            return self.collect_window(now, free_at, out);
        }
        while self.forming.len() < self.batch() {
            let next = match self.order() {
                BudgetOrder::LowestFirst => self.queue.pop_first(),
                BudgetOrder::HighestFirst => self.queue.pop_last(),
            };
            let Some(next) = next else { break };
            match self.keep(&next.request, now, free_at) {
                Ok(()) if !self.may_run(now, &next.request) => {
                    let reason = DropReason::Decoding;
                    out.push(self.reject(now, next.request, next.payload, reason, None));
                }
                Ok(()) => self.bind(now, next),
                Err((reason, estimate)) => {
                    self.doubt(now, free_at, self.guidance.module_deadline(&next.request));
                    out.push(self.reject(now, next.request, next.payload, reason, estimate));
                }
            }
        }
    }

    /// A request is given up that was to start at `starts_at`. If the device is idle, and by the profile it would be in time,
    /// then all that stands against it is the pace; and where nobody runs, no other pace will be seen. So it is believed
    /// a little less each time: one slow batch must not shut a worker for good.
    fn doubt(&mut self, now: Timestamp, starts_at: Timestamp, deadline: Timestamp) {
        if self.pace > 1.0 && starts_at <= now && now + self.config.execution[0] <= deadline {
            self.pace += DOUBT * (1.0 - self.pace);
        }
    }

    /// Nexus: the first window, as long as what is left of the batch, of which every request is in time.
    fn collect_window(&mut self, now: Timestamp, free_at: Timestamp, out: &mut Vec<Rejected<T>>) {
        let ends_at = free_at.max(now) + self.planned_execution();
        let mut window: Vec<Waiting<T>> = Vec::new();
        loop {
            while self.forming.len() + window.len() < self.batch() {
                let Some(next) = self.queue.pop_first() else {
                    break;
                };
                window.push(next);
            }
            let too_late = window
                .iter()
                .rposition(|w| ends_at > self.guidance.module_deadline(&w.request));
            let Some(last) = too_late else { break };
            for gone in window.drain(..=last) {
                let estimate = Some(self.estimate(now, free_at));
                out.push(self.reject(
                    now,
                    gone.request,
                    gone.payload,
                    DropReason::Predicted,
                    estimate,
                ));
            }
        }
        for next in window {
            self.bind(now, next);
        }
    }

    fn bind(&mut self, now: Timestamp, next: Waiting<T>) {
        self.forming.push(Member {
            request: next.request,
            payload: next.payload,
            arrived_at: next.arrived_at,
            batched_at: now,
        });
    }

    fn order(&self) -> BudgetOrder {
        match self.config.recipe.order {
            Order::Budget(order) => order,
            Order::Guided(_) => self.guidance.order,
            Order::Arrival | Order::Feasibility => BudgetOrder::LowestFirst,
        }
    }

    fn planned_execution(&self) -> Duration {
        self.execution(self.batch())
    }

    fn estimate(&self, now: Timestamp, free_at: Timestamp) -> Estimate {
        Estimate {
            wait: free_at.since(now),
            execution: self.planned_execution(),
            downstream: self.guidance.downstream,
        }
    }

    fn keep(
        &self,
        request: &Request,
        now: Timestamp,
        free_at: Timestamp,
    ) -> Result<(), (DropReason, Option<Estimate>)> {
        let in_time = match self.config.recipe.keep {
            Keep::Always | Keep::EarlyDrop => true,
            Keep::Unexpired => {
                if now >= request.deadline {
                    let estimate = self.estimate(now, free_at);
                    return Err((DropReason::Expired, Some(estimate)));
                }
                true
            }
            Keep::Elapsed => now <= self.guidance.module_deadline(request),
            Keep::Estimate => {
                let ends_at = free_at.max(now) + self.planned_execution();
                ends_at <= self.guidance.module_deadline(request)
            }
        };
        if in_time {
            Ok(())
        } else {
            let estimate = self.estimate(now, free_at);
            Err((DropReason::Predicted, Some(estimate)))
        }
    }

    /// Whether a waiting request is answered by timer once its deadline has passed. This needs the queue in order of
    /// deadlines, to find the first in constant time.
    fn expires(&self) -> bool {
        self.config.recipe.order.is_by_deadline()
    }

    /// Drops what has expired in the queue and in the forming batch, for policies that expire.
    pub fn expire(&mut self, now: Timestamp, out: &mut Vec<Rejected<T>>) {
        self.expire_admitted(now, out);
        if !self.expires() {
            return;
        }
        while self.queue.first_key().is_some_and(|key| key <= now) {
            let Some(next) = self.queue.pop_first() else {
                break;
            };
            out.push(self.reject(now, next.request, next.payload, DropReason::Expired, None));
        }
        let mut i = 0;
        while i < self.forming.len() {
            if self.forming[i].request.deadline <= now {
                let gone = self.forming.remove(i);
                out.push(self.reject(now, gone.request, gone.payload, DropReason::Expired, None));
            } else {
                i += 1;
            }
        }
    }

    /// Earliest moment at which [`Broker::expire`] has something to do.
    pub fn next_expiry(&self) -> Option<Timestamp> {
        let admitted = self
            .admitted
            .as_ref()
            .and_then(|a| a.scheduler.next_expiry());
        if !self.expires() {
            return admitted;
        }
        let forming = self.forming.iter().map(|m| m.request.deadline).min();
        [self.queue.first_key(), forming, admitted]
            .into_iter()
            .flatten()
            .min()
    }

    /// Forgets a request wherever it waits. False when it does not wait here.
    pub fn cancel(&mut self, id: RequestId) -> bool {
        if self.queue.cancel(id) {
            return true;
        }
        if self.admitted.as_mut().is_some_and(|a| a.take(id).is_some()) {
            return true;
        }
        let before = self.forming.len();
        self.forming.retain(|m| m.request.id != id);
        self.forming.len() < before
    }

    /// Rejects one request for that reason, if it waits here.
    pub fn withdraw(
        &mut self,
        now: Timestamp,
        id: RequestId,
        reason: DropReason,
        out: &mut Vec<Rejected<T>>,
    ) {
        if let Some(at) = self.forming.iter().position(|m| m.request.id == id) {
            let gone = self.forming.remove(at);
            out.push(self.reject(now, gone.request, gone.payload, reason, None));
            return;
        }
        let admitted = self.admitted.as_mut();
        let gone = admitted
            .and_then(|a| a.take(id))
            .or_else(|| self.queue.remove(id));
        if let Some(gone) = gone {
            out.push(self.reject(now, gone.request, gone.payload, reason, None));
        }
    }

    /// Hands over the next batch, which the device starts at `starts_at`; empty when nothing is to run.
    pub fn take_batch(
        &mut self,
        now: Timestamp,
        starts_at: Timestamp,
        out: &mut Vec<Rejected<T>>,
    ) -> Formed<T> {
        if self.admitted.is_some() {
            return self.schedule(now, starts_at, out);
        }
        if self.binds_late() {
            self.form(now, starts_at, out);
        }
        let members = std::mem::take(&mut self.forming);
        let execution = match members.as_slice() {
            [one] => self.execution_alone(&one.request),
            several => self.execution(several.len()),
        };
        Formed {
            execution,
            size: members.len(),
            lengths: Lengths::default(),
            members,
        }
    }

    /// Rejects everything that waits, for the given reason.
    pub fn reject_all(&mut self, now: Timestamp, reason: DropReason, out: &mut Vec<Rejected<T>>) {
        for member in std::mem::take(&mut self.forming) {
            out.push(self.reject(now, member.request, member.payload, reason, None));
        }
        while let Some(next) = self.admitted.as_mut().and_then(Admitted::take_any) {
            out.push(self.reject(now, next.request, next.payload, reason, None));
        }
        while let Some(next) = self.queue.pop_first() {
            out.push(self.reject(now, next.request, next.payload, reason, None));
        }
    }

    fn reject(
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

#[cfg(test)]
mod tests;
