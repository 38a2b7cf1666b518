//! How often models and their weights are asked for, and what that makes the weights worth.
//!
//! A rate is a count of requests that fades by e in [`FADES_OVER`]. All counts fade alike, so their order changes only with
//! arrivals. They are kept as they would be at one common moment, and so is the
//! index by them.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::time::Duration;

use spillgate_pipeline::id::{DeviceId, ModelId, WeightsId};
use spillgate_pipeline::time::Timestamp;

/// Time after which a request counts 1/e.
const FADES_OVER: Duration = Duration::from_secs(7);
/// What a request counts for each model that may serve such requests next. Its weights are worth that much more than others that nobody
/// asks for, and less than those that are in use.
const OF_NEIGHBOUR: f64 = 0.1;
/// Counts are moved to a new common moment before they get larger than this.
const SCALE_MAX: f64 = 1e100;

#[derive(Debug)]
struct Rate {
    /// Faded count at the common moment.
    count: f64,
    /// Seconds of transfer a page: what it costs to bring them back.
    a_page: f64,
    holders: Vec<DeviceId>,
}

#[derive(Debug)]
struct OfModel {
    /// Faded count at the common moment.
    count: f64,
    weights: WeightsId,
    /// Those that run with other weights.
    neighbours: Vec<ModelId>,
}

/// The rates of all weights and models, and what devices hold by them.
#[derive(Debug)]
pub(in crate::weights::placement) struct Rates {
    since: Timestamp,
    /// By weights; their count is the sum of those of the models that run with them.
    weights: Vec<Rate>,
    models: Vec<OfModel>,
    /// Weights of models that are neighbours of others.
    ahead: Vec<WeightsId>,
    /// What each device holds, by count times seconds of transfer a page.
    held: Vec<BTreeSet<(u64, WeightsId)>>,
}

fn fade() -> f64 {
    FADES_OVER.as_secs_f64()
}

impl Rate {
    /// The order of positive numbers is that of their bits.
    fn held_key(&self) -> u64 {
        (self.count * self.a_page).to_bits()
    }
}

impl Rates {
    /// What each model runs with, its neighbours, and of all weights the pages and the time of a transfer.
    pub(in crate::weights::placement) fn new(
        weights_of: &[WeightsId],
        neighbours: Vec<Vec<ModelId>>,
        weights: impl Iterator<Item = (u32, Duration)>,
        devices: usize,
    ) -> Self {
        let weights = weights.map(|(pages, transfer)| {
            let transfer = transfer.as_secs_f64();
            Rate {
                count: 0.0,
                a_page: transfer / f64::from(pages.max(1)),
                holders: Vec::new(),
            }
        });
        let of_model = |(weights, mut neighbours): (&WeightsId, Vec<ModelId>)| {
            neighbours.retain(|n| weights_of[n.idx()] != *weights);
            OfModel {
                count: 0.0,
                weights: *weights,
                neighbours,
            }
        };
        let models: Vec<OfModel> = weights_of.iter().zip(neighbours).map(of_model).collect();
        let ahead = models.iter().flat_map(|m| &m.neighbours);
        let mut ahead: Vec<WeightsId> = ahead.map(|n| weights_of[n.idx()]).collect();
        ahead.sort_unstable();
        ahead.dedup();
        Rates {
            since: Timestamp::ZERO,
            weights: weights.collect(),
            models,
            ahead,
            held: vec![BTreeSet::new(); devices],
        }
    }

    /// What one request counts at `now`, at the common moment.
    fn scale(&self, now: Timestamp) -> f64 {
        (now.since(self.since).as_secs_f64() / fade()).exp()
    }

    /// A request for a model arrived.
    pub(in crate::weights::placement) fn arrived(&mut self, now: Timestamp, model: ModelId) {
        let mut scale = self.scale(now);
        if scale > SCALE_MAX {
            self.rescale(now, scale);
            scale = 1.0;
        }
        self.count(model, scale);
        for at in 0..self.models[model.idx()].neighbours.len() {
            let neighbour = self.models[model.idx()].neighbours[at];
            self.count(neighbour, scale * OF_NEIGHBOUR);
        }
    }

    fn count(&mut self, model: ModelId, more: f64) {
        let of = &mut self.models[model.idx()];
        of.count += more;
        let weights = of.weights;
        self.change(weights, |rate| rate.count += more);
    }

    /// Weights that are read ahead: those of models that may serve next what others serve now.
    pub(in crate::weights::placement) fn ahead(&self) -> impl Iterator<Item = WeightsId> {
        self.ahead.iter().copied()
    }

    fn rescale(&mut self, now: Timestamp, scale: f64) {
        self.since = now;
        self.held.iter_mut().for_each(BTreeSet::clear);
        self.models.iter_mut().for_each(|m| m.count /= scale);
        for i in 0..self.weights.len() {
            self.weights[i].count /= scale;
            self.enter(WeightsId(i as u32));
        }
    }

    fn enter(&mut self, weights: WeightsId) {
        let rate = &self.weights[weights.idx()];
        for holder in &rate.holders {
            self.held[holder.idx()].insert((rate.held_key(), weights));
        }
    }

    fn change(&mut self, weights: WeightsId, change: impl FnOnce(&mut Rate)) {
        let rate = &mut self.weights[weights.idx()];
        for holder in &rate.holders {
            self.held[holder.idx()].remove(&(rate.held_key(), weights));
        }
        change(rate);
        self.enter(weights);
    }

    pub(in crate::weights::placement) fn held(&mut self, weights: WeightsId, device: DeviceId) {
        self.change(weights, |rate| rate.holders.push(device));
    }

    pub(in crate::weights::placement) fn released(&mut self, weights: WeightsId, device: DeviceId) {
        self.change(weights, |rate| rate.holders.retain(|h| *h != device));
    }

    /// Requests a second for a model, with a part of those for its neighbours.
    pub(in crate::weights::placement) fn rate(&self, now: Timestamp, model: ModelId) -> f64 {
        self.models[model.idx()].count / self.scale(now) / fade()
    }

    /// By what weights give way, the least first: requests by seconds of transfer a page, at the common moment.
    pub(in crate::weights::placement) fn order(&self, weights: WeightsId) -> f64 {
        let rate = &self.weights[weights.idx()];
        rate.count * rate.a_page
    }

    /// What a device holds, what is worth least first.
    pub(in crate::weights::placement) fn least(
        &self,
        device: DeviceId,
    ) -> impl Iterator<Item = WeightsId> {
        self.held[device.idx()].iter().map(|(_, weights)| *weights)
    }
}
