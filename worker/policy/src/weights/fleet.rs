//! A fleet: the devices under one [`Placement`], as gateways see them. Gateways send requests to workers, as to any device. The
//! fleet keeps them, lets the placement choose batches and weights, and sends devices their actions.
//!
//! A worker serves one model, or one model for each member of its module's family or for each variant. Workers whose modules run alike and have one file
//! share its model: their requests may be in one batch.
//!
//! A request is given up when the placement cannot serve it by the time that the modules after its own leave it. That takes the
//! place of the drop policy of a broker. A device that cannot read a model's weights is not asked for them again within
//! [`RETRIED_AFTER`]. Where no other device has them, the requests that wait for the model fail, and those that come within that time.
//!
//! Invariants: each request that arrives is answered by one `Dropped`, `Forgotten` or `Failed`, or is a member of one batch that ran,
//! unless its gateway is lost; a request that arrives while `capacity` requests of its worker wait
//! here is refused. Those of a batch that a device refused wait again in any case, but for those that ended elsewhere meanwhile: they
//! are forgotten.

mod account;
mod around;
mod events;
mod gateways;
mod requests;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use indexmap::{IndexMap, IndexSet};
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::action::{Action, BatchItem, Done, Ended, Load, LoadCause, Work};
use spillgate_pipeline::id::{
    ActionId, DeviceId, ModelId, ModuleId, RequestId, WeightsId, WorkerId,
};
use spillgate_pipeline::predict::{self, ActionKind, ActionRecord, Estimator};
use spillgate_pipeline::request::{Drop, DropReason, Request};
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::ToGateway;

use crate::weights::placement::{self, Placement, PlacementCommand, PlacementEvent};

pub use account::{DeviceAccount, Refused};
pub(crate) use around::AROUND;
pub use events::{FleetCommand, FleetEvent};
use events::{fail, forgotten, tell};
use gateways::Gateways;

/// Weights that could not be read are tried again this long after.
pub const RETRIED_AFTER: Duration = Duration::from_secs(1);

/// A worker on one of the devices.
#[derive(Clone, Debug)]
pub struct FleetWorker {
    /// Its id.
    pub worker: WorkerId,
    /// Its module.
    pub module: ModuleId,
    /// Its model; one for each member where its module has a family, or for each variant where these are chosen request by request.
    pub models: Vec<ModelId>,
    /// Its models are variants.
    pub by_variant: bool,
    /// Most requests that wait.
    pub capacity: usize,
    /// Most requests without an SLO that wait, beside the others.
    pub background: usize,
    /// Execution time of the modules after its own, on the longest path: so much of the time until the deadline is theirs.
    pub downstream: Duration,
}

struct Worker {
    module: ModuleId,
    models: Vec<ModelId>,
    by_variant: bool,
    capacity: usize,
    background: usize,
    downstream: Duration,
    /// Requests that have a deadline.
    waiting: usize,
    waiting_in_background: usize,
}

impl Worker {
    /// The model that serves a request.
    fn model_of(&self, request: &Request) -> Option<ModelId> {
        let idx = match self.by_variant {
            true => request.variant.idx(),
            false => request.member.idx(),
        };
        self.models.get(idx).copied()
    }

    fn waiting_like(&mut self, request: &Request) -> &mut usize {
        match request.background {
            true => &mut self.waiting_in_background,
            false => &mut self.waiting,
        }
    }
}

/// A request that is here.
struct FleetRequest<T> {
    member: BatchItem<T>,
    model: ModelId,
    is_waiting: bool,
    /// It ended elsewhere while it was under way.
    has_ended: bool,
}

/// An action under way.
struct UnderWay {
    of: What,
    members: Vec<RequestId>,
    expected: Duration,
    expected_end: Timestamp,
}

/// What an action under way does.
#[derive(Clone, Copy)]
enum What {
    Load(WeightsId),
    Infer(ModelId),
}

impl What {
    fn kind(self) -> ActionKind {
        match self {
            What::Load(_) => ActionKind::Load,
            What::Infer(_) => ActionKind::Execute,
        }
    }

    /// Position of the weights or the model among their kind.
    fn ordinal(self) -> u32 {
        match self {
            What::Load(weights) => weights.0,
            What::Infer(model) => model.0,
        }
    }
}

struct Failed {
    why: Arc<str>,
    until: Timestamp,
}

/// The devices under one placement.
pub struct Fleet<T> {
    placement: Placement,
    workers: IndexMap<WorkerId, Worker, FxBuildHasher>,
    /// By ticket. One request may wait for several modules at once, so the placement knows it by a number of its own.
    entries: IndexMap<RequestId, FleetRequest<T>, FxBuildHasher>,
    tickets: IndexMap<(WorkerId, RequestId), RequestId, FxBuildHasher>,
    next_ticket: u64,
    under_way: IndexMap<ActionId, UnderWay, FxBuildHasher>,
    failed: IndexMap<WeightsId, Failed, FxBuildHasher>,
    /// When the time of each waiting request without an SLO is over: the placement knows of no end.
    background_ends: BTreeSet<(Timestamp, RequestId)>,
    /// By device.
    accounts: Vec<DeviceAccount>,
    /// When weights were read last.
    loads: IndexMap<WeightsId, Load, FxBuildHasher>,
    /// Weights that gave way once.
    gave_way: IndexSet<WeightsId, FxBuildHasher>,
    /// Of each model that ran, how long the outputs of its batches take to make.
    finishes: IndexMap<ModelId, Estimator, FxBuildHasher>,
    gateways: Gateways,
    closed: Option<DropReason>,
    /// Empty between events.
    commands: Vec<PlacementCommand>,
}

impl<T: Clone> Fleet<T> {
    /// A fleet under that placement. The workers' models are among those that it knows.
    pub fn new(placement: Placement, workers: Vec<FleetWorker>) -> Self {
        let workers = workers.into_iter().map(|w| {
            let FleetWorker {
                worker,
                module,
                models,
                by_variant,
                capacity,
                background,
                downstream,
            } = w;
            let of = Worker {
                module,
                models,
                by_variant,
                capacity,
                background,
                downstream,
                waiting: 0,
                waiting_in_background: 0,
            };
            (worker, of)
        });
        let workers = workers.collect();
        let gateways = Gateways::new(&workers, &placement);
        let accounts = vec![DeviceAccount::default(); placement.n_devices()];
        Fleet {
            accounts,
            loads: IndexMap::default(),
            gave_way: IndexSet::default(),
            finishes: IndexMap::default(),
            placement,
            workers,
            entries: IndexMap::default(),
            tickets: IndexMap::default(),
            next_ticket: 0,
            under_way: IndexMap::default(),
            failed: IndexMap::default(),
            background_ends: BTreeSet::new(),
            gateways,
            closed: None,
            commands: Vec::new(),
        }
    }

    /// Takes in one event.
    pub fn on_event(
        &mut self,
        now: Timestamp,
        event: FleetEvent<'_, T>,
        out: &mut Vec<FleetCommand<T>>,
    ) {
        match event {
            FleetEvent::Arrivals(arrivals) => {
                for arrival in arrivals.drain(..) {
                    self.arrive(now, arrival, out);
                }
            }
            FleetEvent::Cancel(worker, request) => {
                self.cancel(now, worker, request, out);
            }
            FleetEvent::Withdraw(worker, request, reason) => {
                if let Some(entry) = self.take(now, worker, request, out) {
                    self.say_dropped(now, &entry.member, reason, out);
                }
            }
            FleetEvent::Greeted(gateway) => self.greeted(gateway, out),
            FleetEvent::Leave => self.leave(out),
            FleetEvent::Lost(gateway) => {
                self.gateways.lose(gateway);
                let lost = |entry: &FleetRequest<T>| {
                    entry.is_waiting && entry.member.request.id.owner() == gateway
                };
                self.give_up(now, lost, out, |_, _, _| {});
            }
            FleetEvent::Guide(worker, guidance) => {
                if let Some(worker) = self.workers.get_mut(&worker)
                    && !guidance.downstream.is_zero()
                {
                    worker.downstream = guidance.downstream;
                }
            }
            FleetEvent::Done(device, done) => self.done(now, device, done, out),
            FleetEvent::Close(reason) => {
                self.closed = Some(reason);
                self.reject(now, reason, out);
            }
            FleetEvent::Wakeup => self.tell(now, PlacementEvent::Wakeup, out),
        }
        self.expire_background(now, out);
        self.tell_moved(out);
    }

    /// The next moment at which something happens without an event from outside.
    pub fn next_wakeup(&mut self, now: Timestamp) -> Option<Timestamp> {
        let ends = self.background_ends.first().map(|(at, _)| *at);
        [self.placement.next_wakeup(now), ends]
            .into_iter()
            .flatten()
            .min()
    }

    /// Requests that wait at a worker.
    pub fn waiting(&self, worker: WorkerId) -> usize {
        let waiting = |w: &Worker| w.waiting + w.waiting_in_background;
        self.workers.get(&worker).map_or(0, waiting)
    }

    /// Nothing waits and no action is under way.
    pub fn has_no_work(&self) -> bool {
        self.entries.is_empty() && self.under_way.is_empty()
    }

    /// What a device did since it began.
    pub fn account(&self, device: DeviceId) -> &DeviceAccount {
        &self.accounts[device.idx()]
    }

    /// Pages of a device that hold weights or are to, and all its pages.
    pub fn pages(&self, device: DeviceId) -> (u32, u32) {
        self.placement.pages(device)
    }

    fn say_dropped(
        &self,
        now: Timestamp,
        member: &BatchItem<T>,
        reason: DropReason,
        out: &mut Vec<FleetCommand<T>>,
    ) {
        let Some(worker) = self.workers.get(&member.worker) else {
            return;
        };
        let drop = Drop {
            module: worker.module,
            reason,
            at: now,
            budget: member.request.deadline.budget_at(now),
            estimate: None,
        };
        let request = member.request.id;
        let message = ToGateway::Dropped {
            worker: member.worker,
            request,
            drop: Box::new(drop),
        };
        out.push(tell(member.worker, request, message));
    }

    /// A device says what became of an action.
    fn done(
        &mut self,
        now: Timestamp,
        device: DeviceId,
        done: Done,
        out: &mut Vec<FleetCommand<T>>,
    ) {
        let Done {
            id: action,
            ended,
            around,
        } = done;
        let Some(was) = self.under_way.swap_remove(&action) else {
            return;
        };
        let account = &mut self.accounts[device.idx()];
        if let Ended::Ran { at, took } = ended {
            account.errors.record(&ActionRecord {
                action: predict::Action {
                    kind: was.of.kind(),
                    model: was.of.ordinal(),
                    size: was.members.len() as u32,
                },
                expected: was.expected,
                took,
                expected_end: was.expected_end,
                ended_at: at,
            });
        }
        if let Ended::Refused(cause) = ended {
            account.refused.count(was.of.kind(), cause);
        }
        let event = match (was.of, ended) {
            (What::Load(weights), Ended::Failed(why)) => {
                account.failed_loads += 1;
                self.gateways.moved(weights);
                self.fail(now, device, weights, why, out);
                PlacementEvent::Loaded {
                    device,
                    action,
                    took: None,
                }
            }
            (What::Load(weights), ended) => {
                self.gateways.moved(weights);
                let took = match ended {
                    Ended::Ran { at, took } => {
                        let from = at - took;
                        let cause = match self.gave_way.contains(&weights) {
                            _ if self.placement.is_held_beside(weights, device) => LoadCause::Copy,
                            true => LoadCause::GaveWay,
                            false => LoadCause::First,
                        };
                        let to = at;
                        self.loads.insert(weights, Load { from, to, cause });
                        Some(took)
                    }
                    Ended::Refused(_) | Ended::Failed(_) => None,
                };
                account.loads += u64::from(took.is_some());
                PlacementEvent::Loaded {
                    device,
                    action,
                    took,
                }
            }
            (What::Infer(model), Ended::Ran { at, took }) => {
                account.batches += 1;
                self.learn(now, model, was.members.len(), around);
                for ticket in was.members {
                    let entry = self.remove(ticket);
                    let waited = entry.is_some_and(|entry| entry.member.load.is_some());
                    self.accounts[device.idx()].cold += u64::from(waited);
                }
                PlacementEvent::Inferred {
                    device,
                    action,
                    ended: placement::Ended::Ran { at, took },
                }
            }
            (What::Infer(_), Ended::Refused(_) | Ended::Failed(_)) => {
                // They wait again, unless the fleet is closed by now; the placement cancels those that it does not serve any more.
                for ticket in was.members {
                    match self
                        .entries
                        .get(&ticket)
                        .is_some_and(|entry| entry.has_ended)
                    {
                        true => {
                            self.placement.forget(device, action, ticket);
                            let entry = self.remove(ticket);
                            out.extend(entry.map(|entry| forgotten(&entry.member)));
                        }
                        false => self.waits(ticket, true),
                    }
                }
                PlacementEvent::Inferred {
                    device,
                    action,
                    ended: placement::Ended::Refused,
                }
            }
        };
        self.tell(now, event, out);
        // A refused batch gave its requests back.
        if let Some(reason) = self.closed {
            self.reject(now, reason, out);
        }
    }

    /// Drops all that waits.
    fn reject(&mut self, now: Timestamp, reason: DropReason, out: &mut Vec<FleetCommand<T>>) {
        let say = |fleet: &mut Self, entry: FleetRequest<T>, out: &mut Vec<FleetCommand<T>>| {
            fleet.say_dropped(now, &entry.member, reason, out);
        };
        self.give_up(now, |entry| entry.is_waiting, out, say);
    }

    /// A device cannot read weights. Requests fail where no other device has them.
    fn fail(
        &mut self,
        now: Timestamp,
        device: DeviceId,
        weights: WeightsId,
        why: Arc<str>,
        out: &mut Vec<FleetCommand<T>>,
    ) {
        let until = now + RETRIED_AFTER;
        self.placement.bar(device, weights, until);
        if self.placement.is_held_beside(weights, device) {
            return;
        }
        for model in self.placement.models(weights).to_vec() {
            for ticket in self.placement.queue(model).collect::<Vec<_>>() {
                let request = ticket;
                self.tell(now, PlacementEvent::Left { request, model }, out);
                let entry = self.remove(ticket);
                out.extend(entry.map(|entry| fail(&entry.member, &why)));
            }
        }
        self.failed.insert(weights, Failed { why, until });
    }

    /// A request waits from now on, or no longer.
    fn waits(&mut self, ticket: RequestId, is_waiting: bool) {
        let Some(entry) = self.entries.get_mut(&ticket) else {
            return;
        };
        if entry.is_waiting != is_waiting
            && let Some(worker) = self.workers.get_mut(&entry.member.worker)
        {
            let waiting = worker.waiting_like(&entry.member.request);
            match is_waiting {
                true => *waiting += 1,
                false => *waiting -= 1,
            }
        }
        entry.is_waiting = is_waiting;
        let request = &entry.member.request;
        if request.background {
            let end = (request.deadline, ticket);
            match is_waiting {
                true => self.background_ends.insert(end),
                false => self.background_ends.remove(&end),
            };
        }
    }

    /// Tells the placement, and carries out what it says.
    fn tell(&mut self, now: Timestamp, event: PlacementEvent, out: &mut Vec<FleetCommand<T>>) {
        let mut commands = std::mem::take(&mut self.commands);
        self.placement.on_event(now, event, &mut commands);
        for command in commands.drain(..) {
            match command {
                PlacementCommand::Do { device, action } => {
                    let action = self.send(now, device, action);
                    out.push(FleetCommand::Do { device, action });
                }
                PlacementCommand::Cancel { request } => {
                    if let Some(entry) = self.remove(request) {
                        let is_late = entry.member.request.deadline <= now;
                        let reason = match is_late {
                            true => DropReason::Expired,
                            false => DropReason::Predicted,
                        };
                        self.say_dropped(now, &entry.member, reason, out);
                    }
                }
            }
        }
        self.commands = commands;
    }

    /// An action is on its way, with what its members carry.
    fn send(
        &mut self,
        now: Timestamp,
        device: DeviceId,
        action: Action<RequestId>,
    ) -> Action<BatchItem<T>> {
        let Action {
            id,
            work,
            window,
            starts_at,
            expected_end,
        } = action;
        let under_way = |of, members| UnderWay {
            of,
            members,
            expected: expected_end.since(starts_at),
            expected_end,
        };
        let work = match work {
            Work::Load(weights) => {
                self.gateways.moved(weights);
                let of = under_way(What::Load(weights), Vec::new());
                self.under_way.insert(id, of);
                Work::Load(weights)
            }
            Work::Unload(weights) => {
                self.gateways.moved(weights);
                self.accounts[device.idx()].unloads += 1;
                self.gave_way.insert(weights);
                Work::Unload(weights)
            }
            Work::Infer {
                model,
                weights,
                members,
            } => {
                let read = self.loads.get(&weights).copied();
                let tickets = members.iter();
                let riders = tickets.filter_map(|&ticket| {
                    self.waits(ticket, false);
                    let entry = self.entries.get_mut(&ticket)?;
                    entry.member.batched_at = now;
                    // It came before its weights were there.
                    entry.member.load = read.filter(|read| entry.member.arrived_at < read.to);
                    Some(entry.member.clone())
                });
                let riders = riders.collect();
                let of = under_way(What::Infer(model), members);
                self.under_way.insert(id, of);
                Work::Infer {
                    model,
                    weights,
                    members: riders,
                }
            }
        };
        Action {
            id,
            work,
            window,
            starts_at,
            expected_end,
        }
    }
}
