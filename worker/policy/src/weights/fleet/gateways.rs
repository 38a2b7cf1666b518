//! The gateways that a fleet knows, and what all of them hear: which models are in memory here, and that the process is about to end.

use indexmap::{IndexMap, IndexSet};
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::id::{GatewayId, MemberId, WeightsId, WorkerId};
use spillgate_protocol::message::ToGateway;

use super::{Fleet, FleetCommand, Worker};
use crate::weights::placement::Placement;

#[derive(Debug)]
pub(super) struct Gateways {
    there: Vec<GatewayId>,
    is_leaving: bool,
    /// The workers and members that run with weights.
    serves: IndexMap<WeightsId, Vec<(WorkerId, MemberId)>, FxBuildHasher>,
    /// Weights that gateways take to be in memory.
    announced: IndexSet<WeightsId, FxBuildHasher>,
    /// Weights that were loaded or unloaded in the event under way.
    moved: Vec<WeightsId>,
}

impl Gateways {
    pub(super) fn new(
        workers: &IndexMap<WorkerId, Worker, FxBuildHasher>,
        placement: &Placement,
    ) -> Self {
        let mut serves: IndexMap<WeightsId, Vec<_>, FxBuildHasher> = IndexMap::default();
        // Gateways send requests by member; which variants are in memory is no matter of theirs.
        for (id, worker) in workers.iter().filter(|(_, worker)| !worker.by_variant) {
            for (member, model) in (0..).map(MemberId).zip(&worker.models) {
                let weights = placement.weights_of(*model);
                serves.entry(weights).or_default().push((*id, member));
            }
        }
        let announced = serves.keys().copied();
        let announced = announced
            .filter(|weights| placement.is_held(*weights))
            .collect();
        Gateways {
            there: Vec::new(),
            is_leaving: false,
            serves,
            announced,
            moved: Vec::new(),
        }
    }

    pub(super) fn lose(&mut self, gateway: GatewayId) {
        self.there.retain(|h| *h != gateway);
    }

    /// Weights are loaded or unloaded, or their load failed.
    pub(super) fn moved(&mut self, weights: WeightsId) {
        self.moved.push(weights);
    }
}

impl<T: Clone> Fleet<T> {
    /// A gateway greets. It hears which models are here, and if nothing more is to come here.
    pub(super) fn greeted(&mut self, gateway: GatewayId, out: &mut Vec<FleetCommand<T>>) {
        if self.gateways.there.contains(&gateway) {
            return;
        }
        self.gateways.there.push(gateway);
        let announced: Vec<(WeightsId, bool)> =
            self.gateways.announced.iter().map(|w| (*w, true)).collect();
        self.say_holds(&[gateway], &announced, out);
        if self.gateways.is_leaving {
            self.say_leave(gateway, out);
        }
    }

    /// Tells the gateways which models came and went in this event.
    pub(super) fn tell_moved(&mut self, out: &mut Vec<FleetCommand<T>>) {
        if self.gateways.moved.is_empty() {
            return;
        }
        let mut changed = Vec::new();
        for weights in std::mem::take(&mut self.gateways.moved) {
            let is_held = self.placement.is_held(weights);
            let is_new = match is_held {
                true => self.gateways.announced.insert(weights),
                false => self.gateways.announced.swap_remove(&weights),
            };
            if is_new {
                changed.push((weights, is_held));
            }
        }
        self.say_holds(&self.gateways.there, &changed, out);
    }

    fn say_holds(
        &self,
        gateways: &[GatewayId],
        moved: &[(WeightsId, bool)],
        out: &mut Vec<FleetCommand<T>>,
    ) {
        let mut by_worker: IndexMap<WorkerId, Vec<(MemberId, bool)>, FxBuildHasher> =
            IndexMap::default();
        for (weights, is_held) in moved {
            for (worker, member) in self.gateways.serves.get(weights).into_iter().flatten() {
                by_worker
                    .entry(*worker)
                    .or_default()
                    .push((*member, *is_held));
            }
        }
        for (worker, models) in by_worker {
            out.extend(gateways.iter().map(|&gateway| FleetCommand::Tell {
                worker,
                gateway,
                message: ToGateway::Holds(worker, models.clone()),
            }));
        }
    }

    /// The process is about to end: gateways send nothing more, and what is here is served.
    pub(super) fn leave(&mut self, out: &mut Vec<FleetCommand<T>>) {
        if std::mem::replace(&mut self.gateways.is_leaving, true) {
            return;
        }
        for &gateway in &self.gateways.there {
            self.say_leave(gateway, out);
        }
    }

    fn say_leave(&self, gateway: GatewayId, out: &mut Vec<FleetCommand<T>>) {
        let leaves = |&worker: &_| FleetCommand::Tell {
            worker,
            gateway,
            message: ToGateway::Leaves(worker),
        };
        out.extend(self.workers.keys().map(leaves));
    }
}
