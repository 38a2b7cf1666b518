//! Our LOADs: those that gain the most requests in time.
//!
//! A LOAD gains the waiting requests that it still helps, of all models that run with the weights, and those that are expected in the next
//! second, less what is lost with the weights that give way. That is what they are expected to be asked for, or less: where no request waits for
//! them, and there is time for a LOAD before the deadlines of those that come, they cost the link that LOAD, at the price of the link's time. A
//! link with time to spare has no price. Weights that requests wait for give way last: they were loaded for these requests, most likely. Where
//! device time is short, a request gains the less, the more of it its execution takes: it displaces
//! others. A further copy of weights gains the part of their requests that their holders cannot serve, and goes to devices with little
//! load. A request of a model that got less than its fair share counts more than one (`fair.rs`), also where it would give way.
//!
//! The latest start of a LOAD is when it still helps the first of these requests. Of all LOADs, those are kept that all start in time one
//! after another on the link (`most.rs`); the first of them goes. Weights that only expected requests ask for come last, among them those
//! of the next variants of what is asked for.

use spillgate_pipeline::id::{DeviceId, ModelId, WeightsId};
use spillgate_pipeline::time::Timestamp;

use super::Wanted;
use crate::weights::placement::Placement;
use crate::weights::placement::most::{Job, most_in_time};

/// Weights that are weighed: those with the most demand among those that no device holds, and among those that one holds.
pub(crate) const WEIGHED_MAX: usize = 64;
/// Models with requests without a deadline that are looked at, those that have waited longest. Where memory holds so many of them, a device has
/// more to do in its idle time than it can.
pub(crate) const BACKGROUND_LOOKED_AT_MAX: usize = 256;
/// Shortest transfer, in ns: what takes no time is worth any request.
const TRANSFER_MIN: f64 = 1.0;

struct Gain {
    latest: Timestamp,
    requests: f64,
}

/// What is lost where a device makes room, for any room that is asked for: weights give way in the same order for all.
struct Room<'a> {
    placement: &'a Placement,
    now: Timestamp,
    device: DeviceId,
    /// Weights that nothing is known of yet.
    rest: Option<Box<dyn Iterator<Item = WeightsId> + 'a>>,
    /// What the first of them lose together.
    known: Vec<Loss>,
}

/// Requests that are lost.
#[derive(Clone, Copy, Default)]
struct Loss {
    /// Pages that are free then.
    free: u32,
    /// Where the weights that come are waited for.
    requests: f64,
    /// Where nobody waits for them yet.
    ahead: f64,
}

/// What one of the models that run with weights makes of their LOAD.
struct GainOfModel {
    latest: Timestamp,
    /// Waiting requests that it still helps.
    waiting: usize,
    gained: f64,
}

impl Placement {
    pub(super) fn most_valuable(
        &self,
        now: Timestamp,
        device: DeviceId,
        free: Timestamp,
        only: Option<WeightsId>,
        fits: impl Fn(&WeightsId) -> bool,
    ) -> (Option<Wanted>, f64) {
        let copies = self.demands.load(device) < self.recipe.constants.copied_below;
        let may = |weights: &WeightsId| copies || self.demands.holders(*weights).is_empty();
        let unheld = self.demands.unheld().take(WEIGHED_MAX);
        let descending = copies.then(|| self.demands.descending());
        let held = descending.into_iter().flatten().map(|(_, weights)| weights);
        let held = held.filter(|w| !self.demands.holders(*w).is_empty());
        let ahead = self.rates.ahead().filter(|w| self.is_idle_everywhere(*w));
        let all = unheld.chain(held.take(WEIGHED_MAX)).chain(ahead);
        let all = only.is_none().then_some(all);
        let weighed = only.into_iter().chain(all.into_iter().flatten());
        let mut room = Room::new(self, now, device);
        let gains = weighed.filter(may).filter(&fits).filter_map(|weights| {
            let gain = self.gain(now, &mut room, free, weights)?;
            (gain.requests > 0.0).then_some((gain.latest, weights, gain.requests))
        });
        let mut gains: Vec<(Timestamp, WeightsId, f64)> = gains.collect();
        gains.sort_unstable_by_key(|(latest, weights, _)| (*latest, *weights));
        let jobs = gains.iter().map(|(latest, weights, requests)| {
            let load = self.load_time(*weights).as_nanos() as f64;
            Job {
                latest: latest.as_ns() as f64,
                takes: load.max(TRANSFER_MIN),
                gains: *requests,
            }
        });
        let jobs: Vec<Job> = jobs.collect();
        let in_time = most_in_time(
            free.as_ns() as f64,
            &jobs,
            self.recipe.constants.load_crowding,
        );
        let first = in_time.first.map(|first| Wanted {
            weights: gains[first].1,
            in_background: false,
        });
        let background = || {
            let weights = self.longest_in_background(only, &fits)?;
            Some(Wanted {
                weights,
                in_background: true,
            })
        };
        (first.or_else(background), in_time.price)
    }

    /// The weights that only requests without a deadline wait for, those of the request that has waited longest.
    fn longest_in_background(
        &self,
        only: Option<WeightsId>,
        fits: impl Fn(&WeightsId) -> bool,
    ) -> Option<WeightsId> {
        let is_missing = |w: &WeightsId| {
            self.demands.holders(*w).is_empty() && self.waits_in_background(*w) && fits(w)
        };
        match only {
            Some(weights) => Some(weights).filter(is_missing),
            None => {
                let models = self.queues.in_background().take(BACKGROUND_LOOKED_AT_MAX);
                models.map(|m| self.weights_of(m)).find(is_missing)
            }
        }
    }

    /// No device holds weights, and nothing that waits asks for them.
    fn is_idle_everywhere(&self, weights: WeightsId) -> bool {
        self.demands.holders(weights).is_empty() && self.demands.demand(weights) <= 0.0
    }

    /// Requests that a model is expected to be asked for.
    fn expected(&self, now: Timestamp, model: ModelId) -> f64 {
        self.rates.rate(now, model) * self.recipe.constants.expected_for_s
    }

    /// The requests that are lost where weights give way.
    fn lost(&self, now: Timestamp, device: DeviceId, weights: WeightsId) -> f64 {
        let load = self.load_time(weights);
        let (mut surely, mut perhaps) = (0.0, 0.0);
        for &model in self.models(weights) {
            let takes = load + self.estimate(model, 0) + self.recipe.kept_back;
            match self.slos[model.idx()] <= takes {
                true => surely += self.expected(now, model),
                false => perhaps += self.expected(now, model),
            }
        }
        let price = self.devices[device.idx()].link_price();
        let again = self.recipe.constants.loads_again * price * load.as_nanos() as f64;
        surely + f64::min(perhaps, again)
    }

    /// What the LOAD of weights gains, or nothing where it finds no room or a copy serves no request more.
    fn gain(
        &self,
        now: Timestamp,
        room: &mut Room<'_>,
        free: Timestamp,
        weights: WeightsId,
    ) -> Option<Gain> {
        let ready = free + self.load_time(weights);
        let price = self.recipe.constants.price_part * self.devices[room.device.idx()].price();
        let (mut gained, mut waiting, mut latest) = (0.0, 0, Timestamp::MAX);
        for &model in self.models(weights) {
            let of = self.gain_of(now, (free, ready), price, model);
            gained += of.gained;
            waiting += of.waiting;
            latest = latest.min(of.latest);
        }
        let unfulfilled = if self.demands.holders(weights).is_empty() {
            1.0
        } else {
            let demand = self.demands.demand(weights);
            self.demands.priority(weights, demand) / demand
        };
        if gained * unfulfilled <= 0.0 {
            return None;
        }
        let loss = room.of(self.weights[weights.idx()].pages)?;
        // What nobody waits for takes no place of what is asked for more.
        let lost = match waiting {
            0 => loss.ahead,
            _ => loss.requests,
        };
        let requests = gained * unfulfilled - lost;
        Some(Gain { latest, requests })
    }

    /// What a LOAD that begins at `free` and ends at `ready` gains a model that runs with its weights, at that price of a ns of the
    /// device.
    fn gain_of(
        &self,
        now: Timestamp,
        (free, ready): (Timestamp, Timestamp),
        price: f64,
        model: ModelId,
    ) -> GainOfModel {
        let alone = self.estimate(model, 0) + self.recipe.kept_back;
        let helped = self.queues.first_from(model, ready + alone);
        let takes = ready.since(free) + alone;
        let waiting = helped.map_or(0, |(first, _)| {
            self.queues.urgent(model).saturating_sub(first)
        });
        let sizes = &self.sizes[..self.executions[model.idx()].len()];
        let full = sizes.partition_point(|s| *s as usize <= waiting).max(1) - 1;
        let worth = self.worth(model);
        // What is left of a request when the device time that it takes in a batch of that size is paid.
        let left = |at: usize| {
            let each = self.estimate(model, at).as_nanos() as f64 / f64::from(sizes[at]);
            (worth - price * each).max(0.0)
        };
        let expected = self.expected(now, model) * left(sizes.len() - 1);
        GainOfModel {
            latest: match helped {
                Some((_, deadline)) if waiting > 0 => deadline - takes,
                _ => Timestamp::MAX,
            },
            waiting,
            gained: waiting as f64 * left(full) + expected,
        }
    }
}

impl<'a> Room<'a> {
    fn new(placement: &'a Placement, now: Timestamp, device: DeviceId) -> Self {
        let free = placement.devices[device.idx()].free_pages();
        Room {
            placement,
            now,
            device,
            rest: None,
            known: vec![Loss {
                free,
                ..Loss::default()
            }],
        }
    }

    /// What room for so many pages loses; `None` where the device cannot make it.
    fn of(&mut self, pages: u32) -> Option<Loss> {
        loop {
            let at = self.known.partition_point(|loss| loss.free < pages);
            if let Some(loss) = self.known.get(at) {
                return Some(*loss);
            }
            self.goes_on()?;
        }
    }

    /// The next weights give way.
    fn goes_on(&mut self) -> Option<()> {
        let (placement, now, device) = (self.placement, self.now, self.device);
        let rest = self
            .rest
            .get_or_insert_with(|| placement.giving_way(device));
        let victim = rest.next()?;
        let models = placement.models(victim).iter();
        let waiting: usize = models.clone().map(|m| placement.queues.urgent(*m)).sum();
        let expected: f64 = models.map(|m| placement.expected(now, *m)).sum();
        let worth = placement.worth_of(victim);
        // Those that wait would have them loaded again at once.
        let lost = match waiting {
            0 => placement.lost(now, device, victim),
            _ => expected,
        };
        let mut loss = self.known.last().copied().unwrap_or_default();
        loss.free += placement.weights[victim.idx()].pages;
        loss.requests += (lost + waiting as f64) * worth;
        loss.ahead += (expected + waiting as f64) * worth;
        self.known.push(loss);
        Some(())
    }
}
