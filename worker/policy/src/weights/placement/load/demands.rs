//! What weights are asked for, and how that loads devices (Clockwork, Appendix B).
//!
//! The demand of a model is the sum over its requests of their execution time alone by their SLO: the number of devices that they
//! would keep busy. That of weights is the sum over the models that run with them; in the paper each model has its own. It is shared out
//! over the devices that hold the weights, inversely to their other load. As in the paper, shares are renewed for weights when something
//! changes about them, and not otherwise.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use spillgate_pipeline::id::{DeviceId, WeightsId};

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
pub(in crate::weights::placement) struct Demands {
    weights: Vec<Demand>,
    loads: Vec<f64>,
    /// Weights with demand, by the bits of it: those of positive numbers are in their order.
    descending: BTreeSet<(u64, WeightsId)>,
    /// The same of those that no device holds.
    unheld: BTreeSet<(u64, WeightsId)>,
}

impl Demands {
    pub(in crate::weights::placement) fn new(weights: usize, devices: usize) -> Self {
        Demands {
            weights: vec![Demand::default(); weights],
            loads: vec![0.0; devices],
            descending: BTreeSet::new(),
            unheld: BTreeSet::new(),
        }
    }

    /// Devices that hold weights.
    pub(in crate::weights::placement) fn holders(&self, weights: WeightsId) -> &[DeviceId] {
        &self.weights[weights.idx()].holders
    }

    /// What is asked of a device for the weights that it holds, in devices.
    pub(in crate::weights::placement) fn load(&self, device: DeviceId) -> f64 {
        self.loads[device.idx()]
    }

    /// Weights with demand, those with the most first.
    pub(in crate::weights::placement) fn descending(
        &self,
    ) -> impl Iterator<Item = (f64, WeightsId)> {
        let all = self.descending.iter().rev();
        all.map(|&(bits, weights)| (f64::from_bits(bits), weights))
    }

    /// Weights with demand that no device holds, those with the most first.
    pub(in crate::weights::placement) fn unheld(&self) -> impl Iterator<Item = WeightsId> {
        self.unheld.iter().rev().map(|(_, weights)| *weights)
    }

    /// What the requests for weights ask for, in devices.
    pub(in crate::weights::placement) fn demand(&self, weights: WeightsId) -> f64 {
        self.weights[weights.idx()].demand
    }

    pub(in crate::weights::placement) fn held(&mut self, weights: WeightsId, device: DeviceId) {
        self.leave(weights);
        let demand = &mut self.weights[weights.idx()];
        demand.holders.push(device);
        demand.shares.push(0.0);
        self.enter(weights);
        self.share(weights);
    }

    pub(in crate::weights::placement) fn released(&mut self, weights: WeightsId, device: DeviceId) {
        self.leave(weights);
        let demand = &mut self.weights[weights.idx()];
        if let Some(at) = demand.holders.iter().position(|h| *h == device) {
            demand.holders.remove(at);
            self.loads[device.idx()] -= demand.shares.remove(at);
            self.share(weights);
        }
        self.enter(weights);
    }

    /// The requests for weights that wait ask for that much.
    pub(in crate::weights::placement) fn changed(&mut self, weights: WeightsId, asked: f64) {
        self.leave(weights);
        self.weights[weights.idx()].demand = asked.max(0.0);
        self.enter(weights);
        self.share(weights);
    }

    fn enter(&mut self, weights: WeightsId) {
        let Demand {
            demand, holders, ..
        } = &self.weights[weights.idx()];
        if *demand > 0.0 {
            let key = (demand.to_bits(), weights);
            self.descending.insert(key);
            if holders.is_empty() {
                self.unheld.insert(key);
            }
        }
    }

    fn leave(&mut self, weights: WeightsId) {
        let key = (self.weights[weights.idx()].demand.to_bits(), weights);
        self.descending.remove(&key);
        self.unheld.remove(&key);
    }

    /// Other load of each holder of weights, and the part of a demand that it takes.
    fn parts(&self, weights: WeightsId) -> impl Iterator<Item = (f64, f64)> + '_ {
        let demand = &self.weights[weights.idx()];
        let others = demand.holders.iter().zip(&demand.shares);
        let others = others.map(|(holder, share)| self.loads[holder.idx()] - share);
        let inverse = |other: f64| 1.0 / other.max(LOAD_MIN);
        let sum: f64 = others.clone().map(inverse).sum();
        others.map(move |other| (other, inverse(other) / sum))
    }

    /// Shares the demand for weights out over their holders.
    fn share(&mut self, weights: WeightsId) {
        if self.weights[weights.idx()].holders.is_empty() {
            return;
        }
        let parts: Vec<f64> = self.parts(weights).map(|(_, part)| part).collect();
        let demand = &mut self.weights[weights.idx()];
        for ((holder, share), part) in demand.holders.iter().zip(&mut demand.shares).zip(parts) {
            let load = &mut self.loads[holder.idx()];
            *load -= *share;
            *share = demand.demand * part;
            *load = (*load + *share).max(0.0);
        }
    }

    /// The part of a demand for weights that their holders do not fulfil: `d - sum(a / l)`. Negative when they could do more.
    pub(in crate::weights::placement) fn priority(&self, weights: WeightsId, demand: f64) -> f64 {
        let fulfilled = self.parts(weights).map(|(other, part)| {
            let share = demand * part;
            share / (other + share)
        });
        demand - fulfilled.sum::<f64>()
    }
}
