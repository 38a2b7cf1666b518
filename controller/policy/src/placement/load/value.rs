//! Our LOADs: those that gain the most requests in time.
//!
//! A LOAD gains the waiting requests that it still helps, and those that are expected in the next second, less what is lost with the
//! models that give way. That is what they are expected to be asked for, or less: where there is time for a LOAD before
//! their deadlines, they cost the link that LOAD, at the price of the link's time. A link with time to spare has no price. Where
//! device time is short, a request gains the less, the more of it its execution takes: it displaces
//! others. A further copy of a model gains the part of its requests that its holders cannot serve, and goes to devices with little
//! load. A request of a model that got less than its fair share counts more than one (`fair.rs`), also where it would give way.
//!
//! The latest start of a LOAD is when it still helps the first of these requests. Of all LOADs, those are kept that all start in time one
//! after another on the link (`most.rs`); the first of them goes. Models that only expected requests ask for come last.

use std::cell::OnceCell;

use spillgate_pipeline::id::{DeviceId, ModelId};
use spillgate_pipeline::time::Timestamp;

use crate::placement::Placement;
use crate::placement::most::{Crowding, Job, most_in_time};

/// Load, in devices, below which a device gets further copies of models.
const COPIED_BELOW: f64 = 0.5;
/// Seconds for which a model is expected to be asked for at its present rate.
const EXPECTED_FOR_S: f64 = 1.0;
/// Models that are weighed: those with the most demand among the models that no device holds, and among those that one holds.
const WEIGHED_MAX: usize = 64;
/// The part of the price of a device's time that counts. The price is that of the best batch that went: the mean one is worth less.
const PRICE_PART: f64 = 0.7;
const CROWDING: Crowding = Crowding(1.5);
/// A model that gave way may have to be loaded this many times, before it is kept.
const LOADS_AGAIN: f64 = 2.0;
/// Shortest transfer, in ns: what takes no time is worth any request.
const TRANSFER_MIN: f64 = 1.0;

struct Gain {
    latest: Timestamp,
    requests: f64,
}

impl Placement {
    pub(super) fn most_valuable(
        &self,
        now: Timestamp,
        device: DeviceId,
        free: Timestamp,
        only: Option<ModelId>,
        fits: impl Fn(&ModelId) -> bool,
    ) -> (Option<ModelId>, f64) {
        let copies = self.demands.load(device) < COPIED_BELOW;
        let may = |model: &ModelId| copies || self.demands.holders(*model).is_empty();
        let unheld = self.demands.unheld().take(WEIGHED_MAX);
        let held = self.demands.descending().map(|(_, model)| model);
        let held = held.filter(|m| copies && !self.demands.holders(*m).is_empty());
        let all = unheld.chain(held.take(WEIGHED_MAX));
        let all = only.is_none().then_some(all);
        let weighed = only.into_iter().chain(all.into_iter().flatten());
        let giving_way = OnceCell::new();
        let gains = weighed.filter(may).filter(fits).filter_map(|model| {
            let gain = self.gain(now, (device, &giving_way), free, model)?;
            (gain.requests > 0.0).then_some((gain.latest, model, gain.requests))
        });
        let mut gains: Vec<(Timestamp, ModelId, f64)> = gains.collect();
        gains.sort_unstable_by_key(|(latest, model, _)| (*latest, *model));
        let jobs = gains.iter().map(|(latest, model, requests)| {
            let load = self.loads[model.idx()].estimate().as_nanos() as f64;
            Job {
                latest: latest.as_ns() as f64,
                takes: load.max(TRANSFER_MIN),
                gains: *requests,
            }
        });
        let jobs: Vec<Job> = jobs.collect();
        let kept = most_in_time(free.as_ns() as f64, &jobs, &CROWDING);
        (kept.first.map(|first| gains[first].1), kept.price)
    }

    /// Requests that a model is expected to be asked for.
    fn expected(&self, now: Timestamp, model: ModelId) -> f64 {
        self.rates.rate(now, model) * EXPECTED_FOR_S
    }

    /// The requests that are lost where a model gives way.
    fn lost(&self, now: Timestamp, device: DeviceId, model: ModelId) -> f64 {
        let expected = self.expected(now, model);
        let load = self.loads[model.idx()].estimate();
        let takes = load + self.estimate(model, 0) + self.recipe.kept_back;
        if self.slos[model.idx()] <= takes {
            return expected;
        }
        let price = self.devices[device.idx()].link_price();
        expected.min(LOADS_AGAIN * price * load.as_nanos() as f64)
    }

    /// What the LOAD of a model gains, or nothing where it finds no room or a copy serves no request more.
    fn gain(
        &self,
        now: Timestamp,
        (device, giving_way): (DeviceId, &OnceCell<Vec<ModelId>>),
        free: Timestamp,
        model: ModelId,
    ) -> Option<Gain> {
        let load = self.loads[model.idx()].estimate();
        let takes = load + self.estimate(model, 0) + self.recipe.kept_back;
        let helped = self.queues.first_from(model, free + takes);
        let latest = helped.map_or(Timestamp::MAX, |(_, deadline)| deadline - takes);
        let waiting = helped.map_or(0, |(first, _)| self.queues.len(model) - first);
        let largest = self.sizes.len() - 1;
        let full = self
            .sizes
            .partition_point(|s| *s as usize <= waiting)
            .max(1)
            - 1;
        let price = PRICE_PART * self.devices[device.idx()].price();
        let worth = self.worth(model);
        // What is left of a request when the device time that it takes in a batch of that size is paid.
        let left = |at: usize| {
            let each = self.estimate(model, at).as_nanos() as f64 / f64::from(self.sizes[at]);
            (worth - price * each).max(0.0)
        };
        let gained = waiting as f64 * left(full) + self.expected(now, model) * left(largest);
        let unfulfilled = if self.demands.holders(model).is_empty() {
            1.0
        } else {
            let demand = self.demands.demand(model);
            self.demands.priority(model, demand) / demand
        };
        if gained * unfulfilled <= 0.0 {
            return None;
        }
        // What nobody waits for takes no place of what is asked for more.
        let is_ahead = waiting == 0;
        let mut lost = 0.0;
        let room = self.make_room(device, model, giving_way, |victim| {
            let needed = match is_ahead {
                true => self.expected(now, victim),
                false => self.lost(now, device, victim),
            };
            lost += (needed + self.queues.len(victim) as f64) * self.worth(victim);
        });
        let requests = gained * unfulfilled - lost;
        room.then_some(Gain { latest, requests })
    }
}
