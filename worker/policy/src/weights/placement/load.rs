//! Which weights are loaded where, and which give way.
//!
//! Links that are expected to be idle within the time ahead get a LOAD each, while there are weights worth it. They
//! count as held from the moment their LOAD is sent. A device for which nothing was worth a LOAD is content for a
//! while: only weights for which a request arrives are weighed for it. So the cost of an event does not grow with the number of models.

mod demands;
mod on_demand;
mod rates;
mod unfulfilled;
pub(crate) mod value;

use std::cell::LazyCell;
use std::time::Duration;

use spillgate_pipeline::action::{Action, Window, Work};
use spillgate_pipeline::id::{DeviceId, WeightsId};
use spillgate_pipeline::time::Timestamp;

pub(super) use demands::Demands;
pub(super) use rates::Rates;

use super::Placement;
use super::events::PlacementCommand;
use super::fair::Fairness;
use spillgate_pipeline::placement::recipe::{Eviction, HostToDeviceOrder, LateLoads, LoadRule};

/// A content device weighs all weights again after this time.
const REWEIGHED_AFTER: Duration = Duration::from_millis(2);
/// Weights with the least rate whose fair shares are looked at before some give way.
pub(crate) const VICTIMS_WEIGHED_MAX: usize = 32;
/// Weights with the least rate of which those that no request waits for give way first.
pub(crate) const VICTIMS_LOOKED_AT_MAX: usize = 256;

/// Weights for which fewer requests a second come give way to those that requests without a deadline wait for: less than one in ten seconds.
const UNUSED_BELOW: f64 = 0.1;

/// Weights that are to be loaded.
#[derive(Clone, Copy)]
struct Wanted {
    weights: WeightsId,
    /// For requests without a deadline alone.
    in_background: bool,
}

/// A LOAD that is worth it.
struct Found {
    /// When the link is expected to be idle.
    free: Timestamp,
    device: DeviceId,
    weights: WeightsId,
    /// What gives way.
    victims: Vec<WeightsId>,
}

impl Placement {
    /// Gives links that are about to be idle the next LOAD. A request for the weights `arrived` arrived. Where an event weighs for one
    /// device, `has_weighed` says that this one did.
    pub(super) fn load(
        &mut self,
        now: Timestamp,
        arrived: Option<WeightsId>,
        mut has_weighed: bool,
        out: &mut Vec<PlacementCommand>,
    ) {
        let arrived = arrived.or(self.arrived_before.take());
        while let Some(found) = self.next_load(now, arrived, &mut has_weighed) {
            let Found {
                free,
                device,
                weights,
                victims,
            } = found;
            self.send_load(now, (free, device), weights, victims, out);
        }
    }

    /// The first LOAD that is worth it. Devices are asked in the order of their links: where one has to wait for the next event, those
    /// behind it wait too.
    fn next_load(
        &mut self,
        now: Timestamp,
        arrived: Option<WeightsId>,
        has_weighed: &mut bool,
    ) -> Option<Found> {
        for (free, device) in self.idle_links(now) {
            let content_until = self.devices[device.idx()].content_until;
            let is_content = content_until.is_some_and(|until| now < until);
            if is_content && arrived.is_none() {
                continue;
            }
            if !is_content && *has_weighed && self.recipe.weighs_for_one {
                self.weighs_on = true;
                self.arrived_before = arrived;
                return None;
            }
            *has_weighed |= !is_content;
            let only = arrived.filter(|_| is_content);
            let (wanted, price) = self.worth_loading(now, device, free, only);
            let victims = wanted.and_then(|wanted| self.victims(now, device, wanted));
            if !is_content {
                let weight = self.recipe.constants.link_price_weight;
                self.devices[device.idx()].note_link_price(price, weight);
            }
            if !is_content && victims.is_none() {
                self.devices[device.idx()].content_until = Some(now + REWEIGHED_AFTER);
            }
            if let (Some(wanted), Some(victims)) = (wanted, victims) {
                return Some(Found {
                    free,
                    device,
                    weights: wanted.weights,
                    victims,
                });
            }
        }
        None
    }

    /// Links that are expected to be idle soon, and when, in the order in which they are served.
    fn idle_links(&self, now: Timestamp) -> Vec<(Timestamp, DeviceId)> {
        let arrival = now + self.travel;
        let horizon = arrival + self.recipe.ahead.loads();
        // One LOAD waits behind one that is late: where it ends is not known.
        let waits_for_it = self.recipe.late_loads == LateLoads::WaitedFor;
        let links = self.devices.iter().enumerate();
        let links =
            links.filter(|(_, device)| !(waits_for_it && device.link_is_late(now, self.travel)));
        let links = links.map(|(i, device)| {
            let free = device.link_free().max(arrival);
            (free, DeviceId(i as u16))
        });
        let mut links: Vec<_> = links.filter(|(free, _)| *free < horizon).collect();
        match self.recipe.host_to_device_order {
            HostToDeviceOrder::Free => links.sort_unstable(),
            HostToDeviceOrder::Load => {
                let load = |(_, device): &(Timestamp, DeviceId)| self.demands.load(*device);
                links.sort_by(|a, b| load(a).total_cmp(&load(b)));
            }
        }
        links
    }

    fn send_load(
        &mut self,
        now: Timestamp,
        (free, device): (Timestamp, DeviceId),
        weights: WeightsId,
        victims: Vec<WeightsId>,
        out: &mut Vec<PlacementCommand>,
    ) {
        let at_once = Window {
            earliest: now + self.travel,
            latest: Timestamp::MAX,
        };
        for victim in victims {
            let keys = self.keys(victim);
            self.devices[device.idx()].unload(victim, &keys);
            self.demands.released(victim, device);
            self.rates.released(victim, device);
            let id = self.next_id();
            let work = Work::Unload(victim);
            let expected_end = at_once.earliest;
            let window = at_once;
            let action = Action {
                id,
                work,
                window,
                starts_at: window.earliest,
                expected_end,
            };
            out.push(PlacementCommand::Do { device, action });
        }
        let id = self.next_id();
        let takes = self.load_time(weights);
        let ends = free + takes;
        self.devices[device.idx()].load(now, (id, weights), (ends, takes));
        self.demands.held(weights, device);
        self.rates.held(weights, device);
        let action = Action {
            id,
            work: Work::Load(weights),
            window: Window {
                earliest: free,
                latest: free + self.recipe.late_loads.window(takes),
            },
            starts_at: free,
            expected_end: ends,
        };
        out.push(PlacementCommand::Do { device, action });
    }

    /// The weights that the device should load next, if any are worth it; `only` these are weighed.
    fn worth_loading(
        &self,
        now: Timestamp,
        device: DeviceId,
        free: Timestamp,
        only: Option<WeightsId>,
    ) -> (Option<Wanted>, f64) {
        let fits = |weights: &WeightsId| {
            let shadow = &self.devices[device.idx()];
            let may = shadow.can_hold(*weights) && !shadow.is_barred(now, *weights);
            may && !shadow.holds(*weights)
        };
        if only.is_some_and(|weights| !fits(&weights)) {
            return (None, 0.0);
        }
        let weights = match self.recipe.load {
            LoadRule::Value => return self.most_valuable(now, device, free, only, fits),
            LoadRule::Unfulfilled { also_too_late } => {
                self.most_unfulfilled(free, also_too_late, only, fits)
            }
            LoadRule::OnDemand => self.first_asked_for(free, only, fits),
        };
        let wanted = weights.map(|weights| Wanted {
            weights,
            in_background: self.waits_in_background(weights),
        });
        (wanted, 0.0)
    }

    /// The weights that give way for others; none when they cannot make enough room. For requests without a deadline only those do that
    /// nobody uses: their LOADs cost others nothing but the wait for one that is under way.
    fn victims(
        &self,
        now: Timestamp,
        device: DeviceId,
        Wanted {
            weights,
            in_background: spares,
        }: Wanted,
    ) -> Option<Vec<WeightsId>> {
        let needs = self.weights[weights.idx()].pages;
        let mut free = self.devices[device.idx()].free_pages();
        let looked_at = match spares {
            true => VICTIMS_LOOKED_AT_MAX,
            false => usize::MAX,
        };
        let giving_way = || self.giving_way(device).take(looked_at);
        let mut giving_way =
            LazyCell::new(|| giving_way().filter(|w| !spares || self.is_unused(now, *w)));
        let mut victims = Vec::new();
        while free < needs {
            let victim = giving_way.next()?;
            free += self.weights[victim.idx()].pages;
            victims.push(victim);
        }
        Some(victims)
    }

    /// The weights of a device that may give way, in their order.
    pub(super) fn giving_way(&self, device: DeviceId) -> Box<dyn Iterator<Item = WeightsId> + '_> {
        let shadow = &self.devices[device.idx()];
        match self.recipe.eviction {
            Eviction::LeastRecentlyUsed => Box::new(shadow.least_recent()),
            Eviction::LeastRate => {
                let least = move || self.rates.least(device).filter(|w| shadow.is_idle(*w));
                let first = move || least().take(VICTIMS_LOOKED_AT_MAX);
                let of = move |asked_for| {
                    let those = first().filter(move |w| self.is_asked_for(*w) == asked_for);
                    self.by_worth(those)
                };
                let others = least().skip(VICTIMS_LOOKED_AT_MAX);
                Box::new([false, true].into_iter().flat_map(of).chain(others))
            }
        }
    }

    /// Weights in the order of their rates, as they give way: where devices are short of time, the first of them in an order in which those
    /// of a model that got less than its fair share count more.
    fn by_worth(
        &self,
        mut least: impl Iterator<Item = WeightsId>,
    ) -> impl Iterator<Item = WeightsId> {
        let is_short = self.fairness.as_ref().is_some_and(Fairness::is_short);
        let weighed = if is_short { VICTIMS_WEIGHED_MAX } else { 0 };
        let first = least.by_ref().take(weighed);
        let first = first.map(|w| (self.rates.order(w) * self.worth_of(w), w));
        let mut first: Vec<(f64, WeightsId)> = first.collect();
        first.sort_by(|a, b| a.0.total_cmp(&b.0));
        first.into_iter().map(|(_, weights)| weights).chain(least)
    }

    /// A request with a deadline waits, of a model that runs with the weights.
    fn is_asked_for(&self, weights: WeightsId) -> bool {
        let mut models = self.models(weights).iter();
        models.any(|model| self.queues.urgent(*model) > 0)
    }

    /// Of the requests that wait for the weights, none has a deadline.
    fn waits_in_background(&self, weights: WeightsId) -> bool {
        let mut models = self.models(weights).iter();
        models.any(|model| self.queues.has_background(*model)) && !self.is_asked_for(weights)
    }

    /// Nothing waits for the weights, and requests with a deadline have hardly come for them lately.
    fn is_unused(&self, now: Timestamp, weights: WeightsId) -> bool {
        let models = self.models(weights).iter();
        let rate: f64 = models.clone().map(|m| self.rates.rate(now, *m)).sum();
        let mut models = models;
        rate < UNUSED_BELOW && models.all(|model| self.queues.len(*model) == 0)
    }
}
