//! The Request Broker (PARD §4.3): owns the requests that wait for one module on one device, moves them into batches,
//! or drops them.
//!
//! Requests wait in a double-ended priority queue ([`spillgate_pipeline::queue`]). The [`Recipe`](spillgate_pipeline::policy::recipe::Recipe) of a drop policy says
//! in which order requests are served and which requests are kept. The [`Guidance`] of the State Planner says how much
//! time is reserved downstream. Batches are formed in one of three ways: *ahead*, as in PARD; *late*, when the device
//! is about to be free; or by a batch *scheduler*. The broker starts nothing itself: [`crate::device::Device`] takes
//! the batch. Requests without an SLO wait apart from these (`background`).
//!
//! Invariants: a request is either in the queue or held by the part that forms batches; at most `capacity` requests
//! wait; a batch that is formed ahead or late has at most `batch` members, a scheduled batch at most its size. Where the
//! module has several models, of a family or variants, a batch holds requests of one: that of the request that the order puts first.

mod ahead;
mod background;
pub(crate) mod cold;
mod config;
mod core;
pub(crate) mod decoding;
mod formation;
pub(crate) mod late;
mod mixed;
pub(crate) mod scheduled;
#[cfg(test)]
mod tests;

use std::time::Duration;

use spillgate_pipeline::action::BatchItem;
use spillgate_pipeline::id::{GatewayId, ModuleId, RequestId, VariantId, WorkerId};
use spillgate_pipeline::policy::Guidance;
use spillgate_pipeline::queue::Waiting;
use spillgate_pipeline::request::{Drop, DropReason, Request};
use spillgate_pipeline::schedule::Application;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{Answer, Lent};

use self::core::{Core, Offers};
use crate::schedule::Lengths;
use background::Background;
use cold::Cold;
pub use config::BrokerConfig;
use formation::Formation;

/// What was learnt fades in steps of this: a small part of the time in which it halves.
const FADING_STEP: Duration = Duration::from_millis(50);

/// A broker that chooses among the requests of several gateways asks for this many times its batch.
const OFFERS: u32 = 3;

/// A batch that the device is to run. Without members there is no batch.
#[derive(Debug)]
pub struct Formed<T> {
    /// Its requests.
    pub members: Vec<BatchItem<T>>,
    /// Size for which its time is expected, at least the number of members.
    pub size: usize,
    /// How long it is expected to take.
    pub execution: Duration,
    /// The expected times of its members alone, where a scheduler formed it.
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
    core: Core<T>,
    formation: Formation<T>,
    background: Background<T>,
    /// Requests that wait for weights.
    cold: Cold<T>,
    /// What the controller said last, and when.
    last_guidance: (Guidance, Timestamp),
    /// What was learnt faded last.
    faded_at: Timestamp,
}

impl<T> Broker<T> {
    /// The empty broker of that worker.
    ///
    /// # Panics
    /// When `batch` is zero or an execution time is missing: the compiler of pipelines excludes both.
    pub fn new(worker: WorkerId, config: BrokerConfig) -> Self {
        assert!(config.batch > 0, "a batch holds at least one request");
        assert!(
            config.execution.served().len() >= config.batch as usize,
            "an execution time is known for each batch size"
        );
        Broker {
            formation: Formation::new(&config),
            background: Background::default(),
            cold: Cold::default(),
            core: Core::new(worker, config),
            last_guidance: (Guidance::NONE, Timestamp::ZERO),
            faded_at: Timestamp::ZERO,
        }
    }

    /// The module it serves.
    pub fn module(&self) -> ModuleId {
        self.core.config.module
    }

    /// Requests that wait, those that are bound included, and those without an SLO.
    pub fn waiting(&self) -> usize {
        self.in_time() + self.in_background()
    }

    /// Requests that wait to be in time: all but those without an SLO.
    pub fn in_time(&self) -> usize {
        self.core.queue.len() + self.formation.len() + self.cold.in_time()
    }

    fn in_background(&self) -> usize {
        self.background.len() + self.cold.in_background()
    }

    fn holds(&self, id: RequestId) -> bool {
        self.formation.holds(id)
            || self.core.queue.contains(id)
            || self.background.contains(id)
            || self.cold.contains(id)
    }

    /// How urgent its next batch of requests without an SLO is; `None` when none waits.
    pub fn background_urgency(&self) -> Option<Timestamp> {
        self.background.next_expiry()
    }

    /// Hands over the next batch of requests without an SLO, for a device without other work.
    pub fn take_background(&mut self, now: Timestamp) -> Formed<T> {
        let batch = self.core.batch();
        let variant = self.background.first_variant();
        let variant = variant.unwrap_or_else(|| self.core.next_variant());
        let fits = |n: &usize| self.execution(variant, *n) <= self.core.config.background_time;
        let size = (2..=batch).take_while(fits).last().unwrap_or(1);
        let taken = self.background.take(size).into_iter();
        let members: Vec<_> = taken.map(|next| self.core.bind(next, now)).collect();
        Formed {
            execution: match members.as_slice() {
                [one] if !self.is_scheduled() => self.core.execution_alone(&one.request),
                several => self.execution(variant, several.len().max(1)),
            },
            size: members.len(),
            lengths: Lengths::default(),
            members,
        }
    }

    /// Whether it binds requests only when the device is about to be free.
    pub fn binds_late(&self) -> bool {
        !matches!(self.formation, Formation::Ahead(_))
    }

    /// Whether a batch scheduler forms its batches, from distributions of execution times.
    pub fn is_scheduled(&self) -> bool {
        matches!(self.formation, Formation::Scheduled(_))
    }

    /// How urgent its next batch is: the earliest deadline of the bound requests or, where it binds late, of the
    /// waiting ones. `None` when there is nothing to run.
    pub fn urgency(&self) -> Option<Timestamp> {
        match &self.formation {
            Formation::Ahead(ahead) => ahead.first_deadline(),
            Formation::Late(_) => self.core.queue.first_key(),
            Formation::Scheduled(scheduled) => scheduled.urgency(),
        }
    }

    /// Expected execution time of a batch of that variant and size.
    pub fn execution(&self, variant: VariantId, size: usize) -> Duration {
        match &self.formation {
            Formation::Scheduled(scheduled) => scheduled.scheduler.execution(size as u32),
            _ => self.core.execution(variant, size),
        }
    }

    /// Usual difference between the expected and the actual end of a batch of that size, from the last batches; zero
    /// where a scheduler forms the batches.
    pub fn duration_deviation(&self, variant: VariantId, size: usize) -> Duration {
        match &self.formation {
            Formation::Scheduled(_) => Duration::ZERO,
            _ => self.core.duration_deviation(variant, size),
        }
    }

    /// Whether enough requests wait to fill a batch: then later arrivals hardly change it.
    pub fn fills_batch(&self) -> bool {
        !self.is_scheduled() && self.core.queue.len() >= self.core.batch()
    }

    /// Takes in how long a batch of that variant and size took, and how long it was expected to take when it was formed. `alone`: its
    /// request, where there is but one.
    pub fn executed(
        &mut self,
        now: Timestamp,
        (variant, size): (VariantId, usize),
        expected: (Duration, Lengths),
        alone: Option<&Request>,
        took: Duration,
    ) {
        match &mut self.formation {
            Formation::Scheduled(scheduled) => scheduled.executed(now, size, expected, took),
            _ => self
                .core
                .executed(now, (variant, size), expected.0, alone, took),
        }
    }

    /// Takes in how long a request ran alone: batch schedulers learn from it.
    pub fn learn(&mut self, now: Timestamp, application: Application, took: Duration) {
        if let Formation::Scheduled(scheduled) = &mut self.formation {
            scheduled.learn(now, application, took);
        }
    }

    /// From now on this number stands for another application: its measurements are forgotten.
    pub fn forget(&mut self, application: Application) {
        if let Formation::Scheduled(scheduled) = &mut self.formation {
            scheduled.forget(application);
        }
    }

    /// Takes in new guidance.
    pub fn guide(&mut self, now: Timestamp, guidance: Guidance) {
        self.last_guidance = (guidance, now);
        self.follow(now, guidance);
    }

    /// Time passed: guidance ages while none comes, and what was learnt while nothing confirms it.
    pub fn age(&mut self, now: Timestamp) {
        let (last, at) = self.last_guidance;
        let aged = last.aged(now.since(at));
        if aged != self.core.guidance {
            self.follow(now, aged);
        }
        if now.since(self.faded_at) < FADING_STEP {
            return;
        }
        self.faded_at = now;
        self.core.age(now);
        if let Formation::Scheduled(scheduled) = &mut self.formation {
            scheduled.age(now);
        }
    }

    fn follow(&mut self, now: Timestamp, guidance: Guidance) {
        let before = std::mem::replace(&mut self.core.guidance, guidance);
        self.look_at_cold();
        let moved = guidance.downstream != before.downstream || guidance.share != before.share;
        if let Formation::Scheduled(scheduled) = &mut self.formation
            && moved
        {
            scheduled.admit_anew(&self.core, now);
        }
    }

    /// Takes in a request. It waits, or is rejected at once when the queue is full. A request that waits here already waits
    /// on as it did.
    pub fn arrive(
        &mut self,
        now: Timestamp,
        request: Request,
        payload: T,
        out: &mut Vec<Rejected<T>>,
    ) {
        if self.formation.holds(request.id) {
            return;
        }
        if request.background {
            self.arrive_in_background(now, request, payload, out);
            return;
        }
        self.core.came(&request);
        if self.in_time() >= self.core.config.capacity {
            if self.core.queue.contains(request.id) {
                return;
            }
            let reason = DropReason::QueueFull;
            out.push(self.core.reject(now, request, payload, reason, None));
            return;
        }
        let key = self.key(now, &request);
        self.core.queue.push(key, request, payload, now);
    }

    fn arrive_in_background(
        &mut self,
        now: Timestamp,
        request: Request,
        payload: T,
        out: &mut Vec<Rejected<T>>,
    ) {
        if self.in_background() < self.core.config.background {
            self.background.push(now, request, payload);
        } else if !self.background.contains(request.id) {
            let reason = DropReason::QueueFull;
            out.push(self.core.reject(now, request, payload, reason, None));
        }
    }

    /// Where a request that came at `since` stands in the queue.
    fn key(&self, since: Timestamp, request: &Request) -> Timestamp {
        match self.core.config.recipe.order.is_by_deadline() {
            true => request.deadline,
            false => since,
        }
    }

    /// Takes in what a gateway has for it. Returns the requests that it has no room for, and when each came to the module.
    pub fn offered(&mut self, answer: Answer<T>) -> Vec<(RequestId, Timestamp)> {
        self.core.offers.add(answer.order, answer.requests.len());
        let mut left = Vec::new();
        for offered in answer.requests {
            let Lent {
                request,
                since,
                payload,
            } = offered;
            if self.formation.holds(request.id) {
                continue;
            }
            if self.in_time() < self.core.config.capacity {
                let key = self.key(since, &request);
                self.core.queue.push(key, request, payload, since);
            } else if !self.core.queue.contains(request.id) {
                left.push((request.id, since));
            }
        }
        left
    }

    /// Whether it asks gateways for requests.
    pub fn pulls(&self) -> bool {
        self.core.config.pulls
    }

    /// Requests that it asks for, of so many gateways. One gateway chooses the batch; of several, each knows only its own
    /// requests, so the broker chooses among several times as many.
    pub fn wanted(&self, n_gateways: usize) -> u32 {
        let batch = match &self.formation {
            Formation::Scheduled(_) => 2 * self.core.config.execution.served().len(),
            _ => self.core.batch(),
        };
        let times = if n_gateways > 1 { OFFERS } else { 1 };
        batch as u32 * times
    }

    /// Hands over all requests that wait, to be given back: each and when it came to the module.
    pub fn give_back(&mut self) -> Vec<(RequestId, Timestamp)> {
        self.core.offers = Offers::default();
        let held = std::iter::from_fn(|| self.formation.take_waiting());
        let mut all: Vec<(RequestId, Timestamp)> = held.collect();
        while let Some(next) = self.core.queue.pop_first() {
            all.push((next.request.id, next.arrived_at));
        }
        all
    }

    /// Binds waiting requests if the policy binds before the device is free, and drops the requests that the policy
    /// gives up. `free_at` is the expected end of the running batch, or `now`.
    pub fn collect(&mut self, now: Timestamp, free_at: Timestamp, out: &mut Vec<Rejected<T>>) {
        match &mut self.formation {
            Formation::Ahead(ahead) => ahead.collect(&mut self.core, now, free_at, out),
            Formation::Late(_) => {}
            Formation::Scheduled(scheduled) => scheduled.admit(&mut self.core, now),
        }
    }

    /// Hands over the next batch, which the device starts at `starts_at`; empty when nothing is to run.
    pub fn take_batch(
        &mut self,
        now: Timestamp,
        starts_at: Timestamp,
        out: &mut Vec<Rejected<T>>,
    ) -> Formed<T> {
        let members = match &mut self.formation {
            Formation::Ahead(ahead) => ahead.take_all(),
            Formation::Late(late) => late.form(&mut self.core, now, starts_at, out),
            Formation::Scheduled(scheduled) => {
                return scheduled.form(&mut self.core, now, starts_at, out);
            }
        };
        let execution = match members.as_slice() {
            [one] => self.core.execution_alone(&one.request),
            [] => Duration::ZERO,
            several => self
                .core
                .execution(several[0].request.variant, several.len()),
        };
        Formed {
            execution,
            size: members.len(),
            lengths: Lengths::default(),
            members,
        }
    }

    /// Drops the requests whose deadline has passed. A policy that serves in order of arrival has no timer: it finds
    /// such requests when it forms a batch.
    pub fn expire(&mut self, now: Timestamp, out: &mut Vec<Rejected<T>>) {
        for gone in self.background.expire(now) {
            let reason = DropReason::Expired;
            out.push(
                self.core
                    .reject(now, gone.request, gone.payload, reason, None),
            );
        }
        if let Formation::Scheduled(scheduled) = &mut self.formation {
            scheduled.expire(&self.core, now, out);
        }
        if !self.core.expires() {
            return;
        }
        while self.core.queue.first_key().is_some_and(|key| key <= now)
            && let Some(next) = self.core.queue.pop_first()
        {
            let reason = DropReason::Expired;
            out.push(
                self.core
                    .reject(now, next.request, next.payload, reason, None),
            );
        }
        if let Formation::Ahead(ahead) = &mut self.formation {
            ahead.expire(&self.core, now, out);
        }
    }

    /// Earliest moment at which [`Broker::expire`] has something to do.
    pub fn next_expiry(&self) -> Option<Timestamp> {
        let held = self.formation.next_expiry();
        let in_time = match self.core.expires() {
            true => [self.core.queue.first_key(), held]
                .into_iter()
                .flatten()
                .min(),
            false => held.filter(|_| self.is_scheduled()),
        };
        let all = [
            in_time,
            self.background.next_expiry(),
            self.cold.next_expiry(),
        ];
        all.into_iter().flatten().min()
    }

    /// Forgets a request wherever it waits. False when it does not wait here.
    pub fn cancel(&mut self, id: RequestId) -> bool {
        self.core.queue.cancel(id)
            || self.formation.take(id).is_some()
            || self.background.cancel(id)
            || self.cold.cancel(id)
    }

    /// Rejects one request for that reason, if it waits here.
    pub fn withdraw(
        &mut self,
        now: Timestamp,
        id: RequestId,
        reason: DropReason,
        out: &mut Vec<Rejected<T>>,
    ) {
        let held = self.formation.take(id);
        let gone = held.or_else(|| {
            let waiting = self.core.queue.remove(id);
            let waiting = waiting.or_else(|| self.background.remove(id));
            let waiting = waiting.or_else(|| self.cold.remove(id))?;
            Some((waiting.request, waiting.payload))
        });
        if let Some((request, payload)) = gone {
            out.push(self.core.reject(now, request, payload, reason, None));
        }
    }

    /// Forgets all requests of a gateway: nobody waits for their results.
    pub fn forget_gateway(&mut self, gateway: GatewayId) {
        let mut ids: Vec<RequestId> = self.core.queue.iter().map(|w| w.request.id).collect();
        ids.extend(self.formation.ids());
        ids.extend(self.background.ids());
        ids.extend(self.cold.ids());
        for id in ids.into_iter().filter(|id| id.owner() == gateway) {
            self.cancel(id);
        }
    }

    /// Rejects everything that waits, for the given reason.
    pub fn reject_all(&mut self, now: Timestamp, reason: DropReason, out: &mut Vec<Rejected<T>>) {
        for (request, payload) in self.formation.take_all() {
            out.push(self.core.reject(now, request, payload, reason, None));
        }
        let waiting = std::iter::from_fn(|| self.core.queue.pop_first());
        let others = self.background.take_all().into_iter();
        let others = others.chain(self.cold.take_all());
        let all: Vec<Waiting<T>> = waiting.chain(others).collect();
        for next in all {
            out.push(
                self.core
                    .reject(now, next.request, next.payload, reason, None),
            );
        }
    }
}
