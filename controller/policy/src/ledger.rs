//! The ledger of one pipeline at its gateway: which requests are open, what their deadlines are, and that
//! each ends exactly once.
//!
//! A request over a bound is refused at once and was never accepted. An accepted request stays in the ledger until
//! [`Ledger::end`] is called for the first time. Later calls for the same request change nothing.
//!
//! Places are for requests that can succeed. A request that cannot be in time even alone is refused before the gate and does
//! not count as offered. A request that its client ends before a device ran it gives its place back.
//!
//! Requests of clients without an SLO have places of their own ([`Limits::background`]) and pass beside the gate: they take idle time
//! only, so they cost no share, and they do not count as offered.
//!
//! [`Limits::background`]: spillgate_pipeline::pipeline::Limits::background

use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::clients::ClientKey;
use spillgate_pipeline::id::{ClientId, DeviceId, ModuleId, RequestId, WorkerId};
use spillgate_pipeline::pipeline::Pipeline;
use spillgate_pipeline::request::{BACKGROUND_LONGEST, Outcome, Request};
use spillgate_pipeline::schedule::Application;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{ClientReport, Portion};

use crate::clients::ClientLimits;
use crate::families::Members;
use crate::gate::EntryGate;
use crate::plan::Planned;
use crate::planner::ModuleState;
use crate::refusal::Refusal;
use crate::shares::{Party, Ticket};
use crate::variant_selector::{FrameSize, StreamKey};

/// What a client asks for.
#[derive(Clone, Debug)]
pub struct Offer {
    /// When it was sent.
    pub sent_at: Timestamp,
    /// Less time than the pipeline's SLO, from `sent_at` on, if the client asks for that.
    pub timeout: Option<Duration>,
    /// Expected time to decode its picture; zero where there is none.
    pub decoding: Duration,
    /// Whose work it is.
    pub application: Application,
    /// Who sent it.
    pub client: ClientId,
    /// The same for fair shares.
    pub party: Party,
    /// The models that it is for.
    pub members: Members,
    /// Its stream, where variants are chosen for each.
    pub stream: StreamKey,
    /// Its frame.
    pub frame: FrameSize,
}

struct Open<T> {
    deadline: Timestamp,
    background: bool,
    missing: u16,
    /// A device ran a module for it.
    ran: bool,
    application: Application,
    /// What its client was charged for it.
    ticket: Option<Ticket>,
    /// What it took on the bottleneck so far, in requests of average cost.
    used: f64,
    /// The client whose limits it uses.
    limited: Option<ClientKey>,
    content: T,
}

/// A request that was in the ledger, and ended before it was done.
#[derive(Clone, Copy, Debug)]
pub struct Unfinished {
    id: RequestId,
    deadline: Timestamp,
    background: bool,
    ran: bool,
    ticket: Option<Ticket>,
}

/// A request that gives its place back once all workers that had it have said that it had not begun.
struct Returning {
    /// Workers that have yet to say it.
    workers: Vec<WorkerId>,
    deadline: Timestamp,
    ticket: Option<Ticket>,
}

/// The ledger of one pipeline. `T` is what its gateway knows of an open request.
pub struct Ledger<T> {
    slo: Duration,
    limit: usize,
    /// The same of requests without an SLO, beside the others.
    background_limit: usize,
    awaited: u16,
    draining: bool,
    limits: Option<ClientLimits>,
    gate: Option<EntryGate>,
    offered: u64,
    returned: u64,
    open: IndexMap<RequestId, Open<T>, FxBuildHasher>,
    /// Open requests without an SLO.
    n_background: usize,
    /// No more than the limit of requests in flight.
    returning: IndexMap<RequestId, Returning, FxBuildHasher>,
}

impl<T> Ledger<T> {
    /// An empty ledger. `workers`: the device of each worker, by module, so that the gate knows which modules
    /// share one.
    pub fn new(pipeline: &Pipeline, planned: &Arc<Planned>, workers: &[Vec<usize>]) -> Self {
        Ledger {
            slo: pipeline.slo,
            limit: pipeline.limits.in_flight,
            background_limit: pipeline.limits.background(),
            awaited: pipeline
                .awaited()
                .iter()
                .filter(|awaited| **awaited)
                .count() as u16,
            draining: false,
            limits: ClientLimits::new(&pipeline.clients),
            gate: EntryGate::new(pipeline, planned, workers),
            offered: 0,
            returned: 0,
            open: IndexMap::default(),
            n_background: 0,
            returning: IndexMap::default(),
        }
    }

    /// Accepts a request. A timeout that the client asks for is capped at the
    /// pipeline's SLO, so that nobody gains priority by claiming more time; at [`BACKGROUND_LONGEST`] where the client has no SLO.
    ///
    /// # Errors
    /// When it is refused: its time is over already or is less than it needs even alone, a limit is reached, more comes
    /// than the pipeline can serve or than the share of its client, or the server drains.
    pub fn admit(
        &mut self,
        now: Timestamp,
        id: RequestId,
        offer: &Offer,
        content: impl FnOnce(&Request) -> T,
    ) -> Result<Request, Refusal> {
        let &Offer {
            sent_at,
            timeout,
            decoding,
            application,
            client,
            party,
            ..
        } = offer;
        if self.draining {
            return Err(Refusal::Draining);
        }
        let longest = match party.background {
            true => BACKGROUND_LONGEST,
            false => self.slo,
        };
        let deadline = sent_at + timeout.map_or(longest, |t| t.min(longest));
        if deadline <= now {
            return Err(Refusal::Expired);
        }
        let (limited, ticket) = match party.background {
            true => (self.pass_background(now, &party)?, None),
            false => self.pass(now, deadline, offer)?,
        };
        let request = Request {
            application,
            client,
            decoding_us: u32::try_from(decoding.as_micros()).unwrap_or(u32::MAX),
            rank: ticket.map_or(party.rank(true), |t| t.rank()),
            background: party.background,
            ..Request::new(id, sent_at, deadline)
        };
        self.n_background += usize::from(party.background);
        let known = self.open.insert(
            id,
            Open {
                deadline,
                background: party.background,
                missing: self.awaited,
                ran: false,
                application,
                ticket,
                used: 0.0,
                limited,
                content: content(&request),
            },
        );
        assert!(known.is_none(), "request ids are unique");
        Ok(request)
    }

    /// Whether one more request that has a deadline may enter: whose limits it uses, and what its client is charged.
    fn pass(
        &mut self,
        now: Timestamp,
        deadline: Timestamp,
        offer: &Offer,
    ) -> Result<(Option<ClientKey>, Option<Ticket>), Refusal> {
        let gate = self.gate.as_ref();
        if gate.is_some_and(|g| g.is_hopeless(now, deadline, offer.decoding)) {
            return Err(Refusal::Hopeless);
        }
        self.offered += 1;
        if self.open.len() - self.n_background >= self.limit {
            return Err(Refusal::Full { limit: self.limit });
        }
        let limits = self.limits.as_mut();
        let limited = limits
            .map(|l| l.ask(now, &offer.party))
            .transpose()?
            .flatten();
        let gate = self.gate.as_mut();
        let passed = gate.map(|g| g.pass(now, &offer.party, offer.application));
        let passed = passed.transpose();
        if passed.is_err() {
            self.done(limited);
        }
        let ticket = passed.map_err(Refusal::Overload)?.flatten();
        Ok((limited, ticket))
    }

    /// The same for a request without an SLO: it takes no share of the gate.
    fn pass_background(
        &mut self,
        now: Timestamp,
        party: &Party,
    ) -> Result<Option<ClientKey>, Refusal> {
        if self.n_background >= self.background_limit {
            let limit = self.background_limit;
            return Err(Refusal::BackgroundFull { limit });
        }
        let limits = self.limits.as_mut();
        Ok(limits.map(|l| l.ask(now, party)).transpose()?.flatten())
    }

    /// What the gateway knows of a request; `None` once it has ended.
    pub fn get(&self, id: RequestId) -> Option<&T> {
        Some(&self.open.get(&id)?.content)
    }

    /// Whether a device ran a module for a request; `None` once it has ended.
    pub fn has_run(&self, id: RequestId) -> Option<bool> {
        Some(self.open.get(&id)?.ran)
    }

    /// The same as [`Ledger::get`], to be changed.
    pub fn get_mut(&mut self, id: RequestId) -> Option<&mut T> {
        Some(&mut self.open.get_mut(&id)?.content)
    }

    /// The part of all requests that this gateway accepts: the gate lets so much of the bottleneck's capacity pass.
    pub fn set_part(&mut self, now: Timestamp, part: f64) {
        if let Some(gate) = &mut self.gate {
            gate.set_part(now, part);
        }
    }

    /// What the clients asked for in the last `period`; `None` while neither the gate nor limits tell clients apart.
    pub(crate) fn report_clients(&mut self, period: Duration) -> Option<ClientReport> {
        let gate = self.gate.as_mut();
        let of_gate = gate.and_then(|gate| gate.report_clients(period));
        let (capacity, mut offered) = of_gate.unwrap_or_default();
        if let Some(limits) = &mut self.limits {
            limits.report(period, &mut offered);
        }
        (!offered.is_empty()).then(|| ClientReport::new(capacity, offered))
    }

    /// This gateway accepts that part of all requests. Limits of clients of which nothing else is known are divided by it.
    pub(crate) fn divide_limits(&mut self, part: f64) {
        if let Some(limits) = &mut self.limits {
            limits.set_part(part);
        }
    }

    /// Takes over the part of what all clients share that is for this gateway; `None`: all of each client's share. Limits are
    /// divided in the same way; `None`: by the part of all requests.
    pub(crate) fn divide(&mut self, now: Timestamp, portion: Option<&Portion>) {
        if let Some(limits) = &mut self.limits {
            limits.divide(portion);
        }
        if let Some(gate) = &mut self.gate {
            gate.divide(now, portion);
        }
    }

    /// A module published its state: the gate follows the bottleneck.
    pub fn learn(&mut self, now: Timestamp, state: &ModuleState) {
        if let Some(gate) = &mut self.gate {
            gate.learn(now, state);
        }
    }

    /// Requests of a module take so many times as long now as its controller reported: the gate follows.
    pub fn set_change(&mut self, now: Timestamp, module: ModuleId, change: f64) {
        if let Some(gate) = &mut self.gate {
            gate.set_change(now, module, change);
        }
    }

    /// The controller of a module is away, and so many of its workers take requests: the gate follows them.
    pub fn set_workers(&mut self, now: Timestamp, module: ModuleId, n_workers: usize) {
        if let Some(gate) = &mut self.gate {
            gate.set_workers(now, module, n_workers as u32);
        }
    }

    /// A worker of a module joins, on that device.
    pub fn join(&mut self, now: Timestamp, module: ModuleId, device: DeviceId) {
        if let Some(gate) = &mut self.gate {
            gate.join(now, module, device.idx());
        }
    }

    /// A device is none of the pipeline's any more.
    pub fn forget(&mut self, now: Timestamp, device: DeviceId) {
        if let Some(gate) = &mut self.gate {
            gate.forget(now, device.idx());
        }
    }

    /// Requests that were offered, refused ones included, and of those requests that gave their place back.
    pub fn offered(&self) -> (u64, u64) {
        (self.offered, self.returned)
    }

    /// Requests a second that the gate lets pass; `None` when there is none or it is open.
    pub fn gate_rate(&self) -> Option<f64> {
        self.gate.as_ref()?.rate()
    }

    /// One of the results that the request waits for is there, or will not come: its module was skipped. Says how the
    /// request ended when that was the last one.
    pub fn result_in(&mut self, now: Timestamp, id: RequestId) -> Option<(Outcome, T)> {
        let open = self.open.get_mut(&id)?;
        open.missing -= 1;
        if open.missing > 0 {
            return None;
        }
        let open = self.open.swap_remove(&id)?;
        self.n_background -= usize::from(open.background);
        self.done(open.limited);
        if let (Some(gate), Some(ticket)) = (&mut self.gate, &open.ticket) {
            gate.answered(now, ticket);
        }
        self.settle(now, open.ticket, open.application, open.used);
        let outcome = if now <= open.deadline {
            Outcome::Completed
        } else {
            Outcome::Late
        };
        Some((outcome, open.content))
    }

    /// The request ends before it is done. Its client pays no less than predicted: a device may run it at this moment. `None`
    /// when it had ended already: then nobody is to be told.
    pub fn end(&mut self, now: Timestamp, id: RequestId) -> Option<(Unfinished, T)> {
        let Open {
            deadline,
            background,
            ran,
            application,
            ticket,
            used,
            limited,
            content,
            ..
        } = self.open.swap_remove(&id)?;
        self.n_background -= usize::from(background);
        self.done(limited);
        if ticket.is_some_and(|t| used > t.cost()) {
            self.settle(now, ticket, application, used);
        }
        let unfinished = Unfinished {
            id,
            deadline,
            background,
            ran,
            ticket,
        };
        Some((unfinished, content))
    }

    /// A request ended by its client's doing, and these workers are told to forget it. If no device ran it, its place
    /// is given back once they all say that they had not begun ([`Ledger::forgotten`]).
    pub fn gives_back(&mut self, now: Timestamp, unfinished: &Unfinished, workers: Vec<WorkerId>) {
        if unfinished.ran || unfinished.background {
            return;
        }
        if workers.is_empty() {
            return self.give_back(unfinished.ticket);
        }
        if self.returning.len() >= self.limit {
            // Workers that had begun a request never confirm. Such entries are removed after the deadline.
            self.returning.retain(|_, r| r.deadline > now);
        }
        if self.returning.len() < self.limit {
            let returning = Returning {
                workers,
                deadline: unfinished.deadline,
                ticket: unfinished.ticket,
            };
            self.returning.insert(unfinished.id, returning);
        }
    }

    /// A request was dropped, not by its client's doing. If no device ran it, one that overtook it may have its place.
    pub fn dropped(&mut self, unfinished: &Unfinished) {
        if let (Some(gate), Some(ticket)) = (&mut self.gate, &unfinished.ticket)
            && !unfinished.ran
        {
            gate.overtaken(ticket);
        }
    }

    /// A worker that was told to forget a request had not begun it. Whether that counts: the request ended by its
    /// client's doing and no device ran it.
    pub fn forgotten(&mut self, worker: WorkerId, id: RequestId) -> bool {
        let Some(returning) = self.returning.get_mut(&id) else {
            return false;
        };
        let Some(at) = returning.workers.iter().position(|w| *w == worker) else {
            return false;
        };
        returning.workers.swap_remove(at);
        if returning.workers.is_empty() {
            let ticket = returning.ticket;
            self.returning.swap_remove(&id);
            self.give_back(ticket);
        }
        true
    }

    /// A batch of a module ended, which took so long and had so many members: these requests and others that have ended or are
    /// of other gateways. Each is charged its part.
    pub fn charge(
        &mut self,
        module: ModuleId,
        batch: (Duration, u32),
        members: impl Iterator<Item = RequestId> + Clone,
    ) {
        let Ledger { gate, open, .. } = self;
        let Some(gate) = gate else { return };
        let Some(cost) = gate.cost_of_batch(module, batch) else {
            return;
        };
        let expected = |open: &Open<T>| {
            let ticket = open.ticket.as_ref()?;
            Some(gate.expected(open.application, ticket))
        };
        let known = members.clone();
        let known = known.filter_map(|id| open.get(&id).and_then(expected));
        let (n, sum) = known.fold((0, 0.0), |(n, sum), of| (n + 1, sum + of));
        // The others are taken to be of average cost.
        let all = sum + f64::from(batch.1.saturating_sub(n));
        for id in members {
            if let Some(open) = open.get_mut(&id)
                && let Some(of) = expected(open)
            {
                open.used += cost * of / all;
            }
        }
    }

    /// The number of an application stands for another one from now on.
    pub(crate) fn reassigned(&mut self, application: Application) {
        if let Some(gate) = &mut self.gate {
            gate.reassigned(application);
        }
    }

    /// A request has ended: its client is charged what it took.
    fn settle(
        &mut self,
        now: Timestamp,
        ticket: Option<Ticket>,
        application: Application,
        used: f64,
    ) {
        if let (Some(gate), Some(ticket)) = (&mut self.gate, ticket) {
            gate.settle(now, &ticket, application, used);
        }
    }

    /// A request that used a client's limits uses them no more.
    fn done(&mut self, limited: Option<ClientKey>) {
        if let (Some(limits), Some(client)) = (&mut self.limits, limited) {
            limits.done(client);
        }
    }

    /// The place is free for another request, and the request counts as never offered. A request that came while the gate
    /// was open has no place.
    fn give_back(&mut self, ticket: Option<Ticket>) {
        self.returned += 1;
        if let (Some(gate), Some(ticket)) = (&mut self.gate, ticket) {
            gate.give_back(&ticket);
        }
    }

    /// A device ran a module for the request. False when it has ended: what it brought is not passed on.
    pub fn ran(&mut self, id: RequestId, module: ModuleId) -> bool {
        let open = self.open.get_mut(&id);
        let is_open = open
            .map(|open| open.ran |= module != ModuleId::SOURCE)
            .is_some();
        if !is_open {
            self.returning.swap_remove(&id);
        }
        is_open
    }

    /// The requests whose deadline and grace have passed, and when the first of the others is at that point.
    pub fn overdue(&self, now: Timestamp, grace: Duration) -> (Vec<RequestId>, Option<Timestamp>) {
        let mut overdue = Vec::new();
        let mut next: Option<Timestamp> = None;
        for (id, open) in &self.open {
            let at = open.deadline + grace;
            if at <= now {
                overdue.push(*id);
            } else {
                next = Some(next.map_or(at, |next| next.min(at)));
            }
        }
        overdue.sort_unstable();
        (overdue, next)
    }

    /// Refuses all that comes from now on.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Requests that have not ended.
    pub fn in_flight(&self) -> usize {
        self.open.len()
    }

    /// Of these, requests without an SLO.
    pub fn in_background(&self) -> usize {
        self.n_background
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
