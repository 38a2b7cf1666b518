//! What models ask for, and how that loads devices (Clockwork, Appendix B).
//!
//! The demand of a model is the sum over its requests of their execution time alone by their SLO: the number of devices that they
//! would keep busy. It is shared out over the devices that hold the model, inversely to their other load. As in the paper, shares
//! are renewed for a model when something changes about it, and not otherwise.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use spillgate_pipeline::id::{DeviceId, ModelId};

/// Other load, in devices, below which a device counts as this much loaded.
const LOAD_MIN: f64 = 0.05;

#[derive(Clone, Debug, Default)]
struct Demand {
    demand: f64,
    holders: Vec<DeviceId>,
    /// Of each holder.
    shares: Vec<f64>,
}

#[derive(Debug)]
pub(in crate::placement) struct Demands {
    models: Vec<Demand>,
    loads: Vec<f64>,
    /// Models with demand, by the bits of it: those of positive numbers are in their order.
    descending: BTreeSet<(u64, ModelId)>,
    /// The same of those that no device holds.
    unheld: BTreeSet<(u64, ModelId)>,
}

impl Demands {
    pub(in crate::placement) fn new(models: usize, devices: usize) -> Self {
        Demands {
            models: vec![Demand::default(); models],
            loads: vec![0.0; devices],
            descending: BTreeSet::new(),
            unheld: BTreeSet::new(),
        }
    }

    /// Devices that hold a model.
    pub(in crate::placement) fn holders(&self, model: ModelId) -> &[DeviceId] {
        &self.models[model.idx()].holders
    }

    /// What the models of a device ask of it, in devices.
    pub(in crate::placement) fn load(&self, device: DeviceId) -> f64 {
        self.loads[device.idx()]
    }

    /// Models with demand, the one with the most first.
    pub(in crate::placement) fn descending(&self) -> impl Iterator<Item = (f64, ModelId)> {
        let models = self.descending.iter().rev();
        models.map(|&(bits, model)| (f64::from_bits(bits), model))
    }

    /// Models with demand that no device holds, the one with the most first.
    pub(in crate::placement) fn unheld(&self) -> impl Iterator<Item = ModelId> {
        self.unheld.iter().rev().map(|(_, model)| *model)
    }

    /// What the requests of a model ask for, in devices.
    pub(in crate::placement) fn demand(&self, model: ModelId) -> f64 {
        self.models[model.idx()].demand
    }

    pub(in crate::placement) fn held(&mut self, model: ModelId, device: DeviceId) {
        self.leave(model);
        let demand = &mut self.models[model.idx()];
        demand.holders.push(device);
        demand.shares.push(0.0);
        self.enter(model);
        self.share(model);
    }

    pub(in crate::placement) fn released(&mut self, model: ModelId, device: DeviceId) {
        self.leave(model);
        let demand = &mut self.models[model.idx()];
        if let Some(at) = demand.holders.iter().position(|h| *h == device) {
            demand.holders.remove(at);
            self.loads[device.idx()] -= demand.shares.remove(at);
            self.share(model);
        }
        self.enter(model);
    }

    /// The requests of a model that wait ask for that much.
    pub(in crate::placement) fn changed(&mut self, model: ModelId, asked: f64) {
        self.leave(model);
        self.models[model.idx()].demand = asked.max(0.0);
        self.enter(model);
        self.share(model);
    }

    fn enter(&mut self, model: ModelId) {
        let Demand {
            demand, holders, ..
        } = &self.models[model.idx()];
        if *demand > 0.0 {
            let key = (demand.to_bits(), model);
            self.descending.insert(key);
            if holders.is_empty() {
                self.unheld.insert(key);
            }
        }
    }

    fn leave(&mut self, model: ModelId) {
        let key = (self.models[model.idx()].demand.to_bits(), model);
        self.descending.remove(&key);
        self.unheld.remove(&key);
    }

    /// Other load of each holder of a model, and the part of a demand that it takes.
    fn parts(&self, model: ModelId) -> impl Iterator<Item = (f64, f64)> + '_ {
        let demand = &self.models[model.idx()];
        let others = demand.holders.iter().zip(&demand.shares);
        let others = others.map(|(holder, share)| self.loads[holder.idx()] - share);
        let inverse = |other: f64| 1.0 / other.max(LOAD_MIN);
        let sum: f64 = others.clone().map(inverse).sum();
        others.map(move |other| (other, inverse(other) / sum))
    }

    /// Shares the demand of a model out over its holders.
    fn share(&mut self, model: ModelId) {
        if self.models[model.idx()].holders.is_empty() {
            return;
        }
        let parts: Vec<f64> = self.parts(model).map(|(_, part)| part).collect();
        let demand = &mut self.models[model.idx()];
        for ((holder, share), part) in demand.holders.iter().zip(&mut demand.shares).zip(parts) {
            let load = &mut self.loads[holder.idx()];
            *load -= *share;
            *share = demand.demand * part;
            *load = (*load + *share).max(0.0);
        }
    }

    /// The part of a demand for a model that its holders do not fulfil: `d - sum(a / l)`. Negative when they could do more.
    pub(in crate::placement) fn priority(&self, model: ModelId, demand: f64) -> f64 {
        let fulfilled = self.parts(model).map(|(other, part)| {
            let share = demand * part;
            share / (other + share)
        });
        demand - fulfilled.sum::<f64>()
    }
}
