//! How often models are asked for, and what that makes their weights worth.
//!
//! A rate is a count of requests that fades by e in [`FADES_OVER`]. All counts fade alike, so their order changes only with
//! arrivals. They are kept as they would be at one common moment, and so is the
//! index by them.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::time::Duration;

use spillgate_pipeline::id::{DeviceId, ModelId};
use spillgate_pipeline::time::Timestamp;

/// Time after which a request counts 1/e.
const FADES_OVER: Duration = Duration::from_secs(7);
/// Counts are moved to a new common moment before they get larger than this.
const SCALE_MAX: f64 = 1e100;

#[derive(Debug)]
struct Rate {
    /// Faded count at the common moment.
    count: f64,
    /// Seconds of transfer a page: what it costs to bring it back.
    a_page: f64,
    holders: Vec<DeviceId>,
}

/// The rates of all models, and what devices hold by them.
#[derive(Debug)]
pub(in crate::placement) struct Rates {
    since: Timestamp,
    models: Vec<Rate>,
    /// What each device holds, by count times seconds of transfer a page.
    held: Vec<BTreeSet<(u64, ModelId)>>,
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
    /// `models` has the pages and the time of a transfer of each.
    pub(in crate::placement) fn new(
        models: impl Iterator<Item = (u32, Duration)>,
        devices: usize,
    ) -> Self {
        let models = models.map(|(pages, transfer)| {
            let transfer = transfer.as_secs_f64();
            Rate {
                count: 0.0,
                a_page: transfer / f64::from(pages.max(1)),
                holders: Vec::new(),
            }
        });
        Rates {
            since: Timestamp::ZERO,
            models: models.collect(),
            held: vec![BTreeSet::new(); devices],
        }
    }

    /// What one request counts at `now`, at the common moment.
    fn scale(&self, now: Timestamp) -> f64 {
        (now.since(self.since).as_secs_f64() / fade()).exp()
    }

    /// A request for a model arrived.
    pub(in crate::placement) fn arrived(&mut self, now: Timestamp, model: ModelId) {
        let mut scale = self.scale(now);
        if scale > SCALE_MAX {
            self.rescale(now, scale);
            scale = 1.0;
        }
        self.change(model, |rate| rate.count += scale);
    }

    fn rescale(&mut self, now: Timestamp, scale: f64) {
        self.since = now;
        self.held.iter_mut().for_each(BTreeSet::clear);
        for i in 0..self.models.len() {
            self.models[i].count /= scale;
            self.enter(ModelId(i as u32));
        }
    }

    fn enter(&mut self, model: ModelId) {
        let rate = &self.models[model.idx()];
        for holder in &rate.holders {
            self.held[holder.idx()].insert((rate.held_key(), model));
        }
    }

    fn change(&mut self, model: ModelId, change: impl FnOnce(&mut Rate)) {
        let rate = &mut self.models[model.idx()];
        for holder in &rate.holders {
            self.held[holder.idx()].remove(&(rate.held_key(), model));
        }
        change(rate);
        self.enter(model);
    }

    pub(in crate::placement) fn held(&mut self, model: ModelId, device: DeviceId) {
        self.change(model, |rate| rate.holders.push(device));
    }

    pub(in crate::placement) fn released(&mut self, model: ModelId, device: DeviceId) {
        self.change(model, |rate| rate.holders.retain(|h| *h != device));
    }

    /// Requests a second for a model.
    pub(in crate::placement) fn rate(&self, now: Timestamp, model: ModelId) -> f64 {
        self.models[model.idx()].count / self.scale(now) / fade()
    }

    /// By what models give way, the least first: requests by seconds of transfer a page, at the common moment.
    pub(in crate::placement) fn order(&self, model: ModelId) -> f64 {
        let rate = &self.models[model.idx()];
        rate.count * rate.a_page
    }

    /// What a device holds, what is worth least first.
    pub(in crate::placement) fn least(&self, device: DeviceId) -> impl Iterator<Item = ModelId> {
        self.held[device.idx()].iter().map(|(_, model)| *model)
    }
}
