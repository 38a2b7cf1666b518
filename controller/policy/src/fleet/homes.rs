//! The gateways that a fleet knows, and what all of them hear: which models are in memory here, and that the process is about to end.

use indexmap::{IndexMap, IndexSet};
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::id::{GatewayId, MemberId, ModelId, WorkerId};
use spillgate_pipeline::message::ToGateway;

use super::{Fleet, FleetCommand, Worker};
use crate::placement::Placement;

#[derive(Debug)]
pub(super) struct Homes {
    there: Vec<GatewayId>,
    is_leaving: bool,
    /// The workers and members of each model.
    serves: IndexMap<ModelId, Vec<(WorkerId, MemberId)>, FxBuildHasher>,
    /// Models that gateways take to be in memory.
    held: IndexSet<ModelId, FxBuildHasher>,
    /// Models that were loaded or unloaded in the event under way.
    moved: Vec<ModelId>,
}

impl Homes {
    pub(super) fn new(
        workers: &IndexMap<WorkerId, Worker, FxBuildHasher>,
        placement: &Placement,
    ) -> Self {
        let mut serves: IndexMap<ModelId, Vec<_>, FxBuildHasher> = IndexMap::default();
        // Gateways send requests by member; which variants are in memory is no matter of theirs.
        for (id, worker) in workers.iter().filter(|(_, worker)| !worker.by_variant) {
            for (member, model) in (0..).map(MemberId).zip(&worker.models) {
                serves.entry(*model).or_default().push((*id, member));
            }
        }
        let held = serves.keys().copied();
        let held = held.filter(|model| placement.is_held(*model)).collect();
        Homes {
            there: Vec::new(),
            is_leaving: false,
            serves,
            held,
            moved: Vec::new(),
        }
    }

    pub(super) fn lose(&mut self, home: GatewayId) {
        self.there.retain(|h| *h != home);
    }

    /// A model is loaded or unloaded, or its load failed.
    pub(super) fn moved(&mut self, model: ModelId) {
        self.moved.push(model);
    }
}

impl<T: Clone> Fleet<T> {
    /// A gateway greets. It hears which models are here, and if nothing more is to come here.
    pub(super) fn greeted(&mut self, home: GatewayId, out: &mut Vec<FleetCommand<T>>) {
        if self.homes.there.contains(&home) {
            return;
        }
        self.homes.there.push(home);
        let held: Vec<(ModelId, bool)> = self.homes.held.iter().map(|m| (*m, true)).collect();
        self.say_holds(&[home], &held, out);
        if self.homes.is_leaving {
            self.say_leave(home, out);
        }
    }

    /// Tells the gateways which models came and went in this event.
    pub(super) fn tell_moved(&mut self, out: &mut Vec<FleetCommand<T>>) {
        if self.homes.moved.is_empty() {
            return;
        }
        let mut changed = Vec::new();
        for model in std::mem::take(&mut self.homes.moved) {
            let is_held = self.placement.is_held(model);
            let is_new = match is_held {
                true => self.homes.held.insert(model),
                false => self.homes.held.swap_remove(&model),
            };
            if is_new {
                changed.push((model, is_held));
            }
        }
        self.say_holds(&self.homes.there, &changed, out);
    }

    fn say_holds(
        &self,
        homes: &[GatewayId],
        models: &[(ModelId, bool)],
        out: &mut Vec<FleetCommand<T>>,
    ) {
        let mut by_worker: IndexMap<WorkerId, Vec<(MemberId, bool)>, FxBuildHasher> =
            IndexMap::default();
        for (model, is_held) in models {
            for (worker, member) in self.homes.serves.get(model).into_iter().flatten() {
                by_worker
                    .entry(*worker)
                    .or_default()
                    .push((*member, *is_held));
            }
        }
        for (worker, models) in by_worker {
            out.extend(homes.iter().map(|&home| FleetCommand::Tell {
                worker,
                home,
                message: ToGateway::Holds(worker, models.clone()),
            }));
        }
    }

    /// The process is about to end: gateways send nothing more, and what is here is served.
    pub(super) fn leave(&mut self, out: &mut Vec<FleetCommand<T>>) {
        if std::mem::replace(&mut self.homes.is_leaving, true) {
            return;
        }
        for &home in &self.homes.there {
            self.say_leave(home, out);
        }
    }

    fn say_leave(&self, home: GatewayId, out: &mut Vec<FleetCommand<T>>) {
        let leaves = |&worker: &_| FleetCommand::Tell {
            worker,
            home,
            message: ToGateway::Leaves(worker),
        };
        out.extend(self.workers.keys().map(leaves));
    }
}
