//! The weights of a device ([`crate::weights::store`]): what it reads, and what gives way.

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::action::BatchItem;
use spillgate_pipeline::id::{GatewayId, MemberId, WeightsId, WorkerId};
use spillgate_pipeline::predict::{Action, ActionKind, ActionRecord};
use spillgate_pipeline::request::{ModelChoice, Request};
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::ToGateway;

use super::running::Running;
use super::{Device, DeviceCommand, drain_rejected};
use crate::broker::Broker;
use crate::weights::store::{Reading, Wanted, WeightStore};

impl<T> Device<T> {
    /// The same device with memory for weights. Its driver has in memory what is there from the start.
    #[must_use]
    pub fn with_weights(mut self, memory: WeightStore) -> Self {
        self.memory = Some(memory);
        self
    }

    /// Weights that should be there from the start could not be read.
    pub fn lack(&mut self, weights: WeightsId) {
        if let Some(memory) = &mut self.memory {
            memory.lack(weights);
        }
    }

    /// Its memory for weights; `None`: its workers need nothing.
    pub fn memory(&self) -> Option<&WeightStore> {
        self.memory.as_ref()
    }

    /// Weights that a request at a worker waits for: they are not there.
    pub(super) fn cold(
        &mut self,
        now: Timestamp,
        worker: WorkerId,
        request: &Request,
    ) -> Option<WeightsId> {
        let memory = self.memory.as_mut()?;
        if memory.has_all() {
            return None;
        }
        let weights = memory.weights_of(worker, request.model())?;
        if !request.background {
            memory.asked(now, weights);
        }
        if memory.serves(now, weights) {
            return None;
        }
        if !memory.is_served(worker) {
            // It came too late for its worker. What is read for it is given back when it has gone.
            self.loads.unload(worker);
        }
        Some(weights)
    }

    /// Whether the weights of a model are there, as far as weights give way.
    pub(super) fn is_there(&self, now: Timestamp, worker: WorkerId, model: ModelChoice) -> bool {
        let Some(memory) = &self.memory else {
            return true;
        };
        let weights = memory.weights_of(worker, model);
        weights.is_none_or(|weights| memory.serves(now, weights))
    }

    /// Drops the requests that their load makes late.
    pub(super) fn expire_cold(&mut self, now: Timestamp, out: &mut Vec<DeviceCommand<T>>) {
        let Some(memory) = &self.memory else {
            return;
        };
        for (&worker, broker) in &mut self.workers {
            broker.expire_cold(now, memory, &mut self.rejected);
            drain_rejected(worker, &mut self.rejected, out);
        }
    }

    /// A batch is bound: notes with the requests that waited for its weights how these were read.
    pub(super) fn note_load(&mut self, worker: WorkerId, members: &mut [BatchItem<T>]) {
        let (Some(memory), Some(first)) = (&mut self.memory, members.first()) else {
            return;
        };
        let model = first.request.model();
        let Some(weights) = memory.weights_of(worker, model) else {
            return;
        };
        let Some(load) = memory.bound(weights, members.iter().map(|m| m.arrived_at)) else {
            return;
        };
        // What was read before it came, it did not wait for.
        for member in members.iter_mut().filter(|m| m.arrived_at < load.to) {
            member.load = Some(load);
        }
    }

    /// Reads what a worker needs that is to be made ready, else what is worth most, if nothing is read.
    pub(super) fn read_next(&mut self, now: Timestamp, out: &mut Vec<DeviceCommand<T>>) {
        self.load_workers(now, out);
        let Some(memory) = &self.memory else {
            return;
        };
        let is_cold = self.workers.values().any(|broker| broker.has_cold());
        if !is_cold || memory.reading().is_some() {
            return;
        }
        let wanted = self.wanted(now, memory);
        let (waiting, stays) = (self.warm(memory), self.stays(memory));
        let Some(memory) = &mut self.memory else {
            return;
        };
        let Some((next, gone)) = memory.read_next(now, wanted, &waiting, &stays) else {
            return;
        };
        for weights in &gone {
            self.went(*weights);
        }
        self.tell_held(&[(next, true)], &gone, out);
        out.push(DeviceCommand::Read(next, gone));
        self.look_at_cold();
    }

    /// Answers for the workers that have what they need, and reads what the next one needs.
    fn load_workers(&mut self, now: Timestamp, out: &mut Vec<DeviceCommand<T>>) {
        while let Some(worker) = self.loads.next() {
            let missing = self.memory.as_mut().and_then(|memory| memory.serve(worker));
            let Some(missing) = missing else {
                self.loads.ended();
                out.push(DeviceCommand::Loaded(worker, Ok(())));
                continue;
            };
            if let Some(memory) = &mut self.memory
                && memory.reading().is_none()
            {
                memory.read(now, missing);
                self.tell_held(&[(missing, true)], &[], out);
                out.push(DeviceCommand::Read(missing, Vec::new()));
                self.look_at_cold();
            }
            return;
        }
    }

    /// Gives back what the retired workers alone hold that have no request here any more. Nothing of them is run again.
    pub(super) fn unload(&mut self, out: &mut Vec<DeviceCommand<T>>) {
        let runs = |r: &Option<Running>, worker| r.as_ref().is_some_and(|r| r.worker == worker);
        while let Some(worker) = self.loads.take_retired(|worker| {
            let waiting = self.workers.get(&worker).map_or(0, Broker::waiting);
            let is_read = self.memory.as_ref().is_some_and(|m| m.reads_for(worker));
            waiting == 0 && !is_read && !runs(&self.running, worker) && !runs(&self.bound, worker)
        }) {
            self.profiler.forget(worker);
            let stays = self.memory.as_ref().map(|memory| self.stays(memory));
            let gone = match (&mut self.memory, stays) {
                (Some(memory), Some(stays)) => memory.retire(worker, &stays),
                _ => Vec::new(),
            };
            if gone.is_empty() {
                continue;
            }
            for weights in &gone {
                self.went(*weights);
            }
            self.tell_held(&[], &gone, out);
            out.push(DeviceCommand::Forget(gone));
        }
    }

    /// What was read is there, or cannot be.
    pub(super) fn read_ended(
        &mut self,
        now: Timestamp,
        is_there: bool,
        out: &mut Vec<DeviceCommand<T>>,
    ) {
        let ended = self.memory.as_mut();
        let Some(Reading { weights, load }) =
            ended.and_then(|memory| memory.read_ended(now, is_there))
        else {
            return;
        };
        for broker in self.workers.values_mut() {
            // Where it could not be read, these requests hear why.
            broker.weights_came(weights);
        }
        self.look_at_cold();
        if !is_there {
            self.tell_held(&[(weights, false)], &[], out);
            if let (Some(worker), Some(memory)) = (self.loads.next(), &mut self.memory)
                && memory.serve(worker) == Some(weights)
            {
                self.loads.ended();
                out.push(DeviceCommand::Loaded(worker, Err(weights)));
            }
            return;
        }
        let first = self.workers.values().next();
        if let Some(broker) = first {
            self.errors.record(&ActionRecord {
                action: Action {
                    kind: ActionKind::Load,
                    ..Action::execute(broker.module(), 1)
                },
                expected: load.to.since(load.from),
                took: now.since(load.from),
                expected_end: load.to,
                ended_at: now,
            });
        }
    }

    /// A gateway that greets hears which models are here.
    pub(super) fn tell_all_held(&self, gateway: GatewayId, out: &mut Vec<DeviceCommand<T>>) {
        if let Some(memory) = &self.memory {
            let held: Vec<_> = memory.held().map(|weights| (weights, true)).collect();
            let hears = |worker| self.gateways.of(worker).filter(|of| *of == gateway);
            tell(memory, hears, &held, out);
        }
    }

    fn tell_held(
        &self,
        moved: &[(WeightsId, bool)],
        gone: &[WeightsId],
        out: &mut Vec<DeviceCommand<T>>,
    ) {
        if let Some(memory) = &self.memory {
            let gone = gone.iter().map(|weights| (*weights, false));
            let moved: Vec<_> = moved.iter().copied().chain(gone).collect();
            tell(memory, |worker| self.gateways.of(worker), &moved, out);
        }
    }

    fn look_at_cold(&mut self) {
        self.workers.values_mut().for_each(|b| b.look_at_cold());
    }

    /// Weights gave way.
    fn went(&mut self, weights: WeightsId) {
        let Some(memory) = &self.memory else {
            return;
        };
        for (worker, broker) in &mut self.workers {
            let of = |request: &Request| memory.weights_of(*worker, request.model());
            broker.weights_went(weights, |request| of(request) == Some(weights));
        }
    }

    /// What requests wait for, over all workers.
    fn wanted(&self, now: Timestamp, memory: &WeightStore) -> Vec<Wanted> {
        let mut all: IndexMap<WeightsId, Wanted, FxBuildHasher> = IndexMap::default();
        for broker in self.workers.values() {
            for one in broker.wanted_weights(|weights| memory.there_at(now, weights)) {
                let sum = all
                    .entry(one.weights)
                    .or_insert(Wanted { in_time: 0, ..one });
                sum.in_time += one.in_time;
                sum.deadline = sum.deadline.min(one.deadline);
                sum.is_background &= one.is_background;
            }
        }
        all.into_values().collect()
    }

    /// How many requests wait for batches, by what is there. Those without an SLO have an entry and count nothing.
    fn warm(&self, memory: &WeightStore) -> IndexMap<WeightsId, usize, FxBuildHasher> {
        let mut waiting: IndexMap<WeightsId, usize, FxBuildHasher> = IndexMap::default();
        for (worker, broker) in &self.workers {
            for request in broker.warm() {
                if let Some(weights) = memory.weights_of(*worker, request.model()) {
                    *waiting.entry(weights).or_default() += usize::from(!request.background);
                }
            }
        }
        waiting
    }

    /// What must not give way: a batch of it runs, is bound or is formed.
    fn stays(&self, memory: &WeightStore) -> Vec<WeightsId> {
        let on_device = [&self.running, &self.bound].into_iter().flatten();
        let on_device = on_device.filter_map(|r: &Running| memory.weights_of(r.worker, r.model));
        let formed = self.workers.iter().flat_map(|(worker, broker)| {
            let requests = broker.forming().into_iter();
            requests.filter_map(|request| memory.weights_of(*worker, request.model()))
        });
        on_device.chain(formed).collect()
    }
}

/// Tells gateways which models are in memory, or no longer.
fn tell<T, I: Iterator<Item = GatewayId>>(
    memory: &WeightStore,
    hear: impl Fn(WorkerId) -> I,
    moved: &[(WeightsId, bool)],
    out: &mut Vec<DeviceCommand<T>>,
) {
    let mut by_worker: IndexMap<WorkerId, Vec<(MemberId, bool)>, FxBuildHasher> =
        IndexMap::default();
    for (weights, is_held) in moved {
        for (worker, member) in memory.members(*weights) {
            let of_worker = by_worker.entry(*worker).or_default();
            of_worker.push((*member, *is_held));
        }
    }
    for (worker, models) in by_worker {
        out.extend(hear(worker).map(|gateway| DeviceCommand::Tell {
            worker,
            gateway,
            message: ToGateway::Holds(worker, models.clone()),
        }));
    }
}
