//! Which model is loaded where, and which models give way.
//!
//! Links that are expected to be idle within the time ahead get a LOAD each, while there is a model worth it. A model
//! counts as held from the moment its LOAD is sent.

mod demands;
mod rates;

use spillgate_pipeline::action::{Action, Window, Work};
use spillgate_pipeline::id::{DeviceId, ModelId};
use spillgate_pipeline::time::Timestamp;

pub(super) use demands::Demands;
pub(super) use rates::Rates;

use super::Placement;
use super::events::PlacementCommand;
use super::recipe::{Eviction, LinkOrder, LoadRule, WINDOW};

/// Load, in devices, below which a device gets further copies of models.
static COPIED_BELOW: std::sync::LazyLock<f64> = std::sync::LazyLock::new(|| tune("COPY", 0.5));
/// Models without requests that are weighed, those with the most requests a second of transfer.
static WEIGHED_MAX: std::sync::LazyLock<usize> = std::sync::LazyLock::new(|| tune("PRE", 0.0) as usize);
/// Seconds for which a model is expected to be asked for at its present rate.
static EXPECTED_FOR_S: std::sync::LazyLock<f64> = std::sync::LazyLock::new(|| tune("EXP", 1.0));

impl Placement {
    /// Gives links that are about to be idle the next LOAD.
    pub(super) fn load(&mut self, now: Timestamp, out: &mut Vec<PlacementCommand>) {
        let arrival = now + self.travel;
        let horizon = arrival + WINDOW;
        loop {
            let mut links: Vec<(Timestamp, DeviceId)> = Vec::new();
            for (i, device) in self.devices.iter().enumerate() {
                let free = device.link_free().max(arrival);
                if free < horizon {
                    links.push((free, DeviceId(i as u16)));
                }
            }
            match self.recipe.link_order {
                LinkOrder::Free => links.sort_unstable(),
                LinkOrder::Load => links.sort_by(|a, b| {
                    let load = |device| match self.recipe.load {
                        LoadRule::Value => self.rates.load(now, device),
                        _ => self.demands.load(device),
                    };
                    let [a, b] = [a, b].map(|(_, device)| load(*device));
                    a.total_cmp(&b)
                }),
            }
            let found = links.into_iter().find_map(|(free, device)| {
                let model = self.worth_loading(now, device, free)?;
                let victims = self.victims(device, model)?;
                Some((free, device, model, victims))
            });
            let Some((free, device, model, victims)) = found else {
                return;
            };
            self.send_load(now, (free, device), model, victims, out);
        }
    }

    fn send_load(
        &mut self,
        now: Timestamp,
        (free, device): (Timestamp, DeviceId),
        model: ModelId,
        victims: Vec<ModelId>,
        out: &mut Vec<PlacementCommand>,
    ) {
        let at_once = Window {
            earliest: now + self.travel,
            latest: Timestamp::MAX,
        };
        for victim in victims {
            let key = self.queues.key(victim);
            self.devices[device.idx()].unload(victim, key);
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
        let ends = free + self.loads[model.idx()].estimate();
        self.devices[device.idx()].load(now, id, model, ends);
        self.demands.held(model, device);
        self.rates.held(model, device);
        let action = Action {
            id,
            work: Work::Load(model),
            window: Window {
                earliest: free,
                latest: free + WINDOW,
            },
            starts_at: free,
            expected_end: ends,
        };
        out.push(PlacementCommand::Do { device, action });
    }

    /// The model that the device should load next, if any is worth it.
    fn worth_loading(&self, now: Timestamp, device: DeviceId, free: Timestamp) -> Option<ModelId> {
        match self.recipe.load {
            LoadRule::Unfulfilled { also_too_late } => {
                self.most_unfulfilled(device, free, also_too_late)
            }
            LoadRule::Value => self.most_valuable(now, device, free),
            LoadRule::OnDemand => self.first_asked_for(device, free),
        }
    }

    fn most_unfulfilled(
        &self,
        device: DeviceId,
        free: Timestamp,
        also_too_late: bool,
    ) -> Option<ModelId> {
        let shadow = &self.devices[device.idx()];
        let mut best: Option<(f64, ModelId)> = None;
        for (demand, model) in self.demands.descending() {
            // A priority never exceeds the demand.
            if best.is_some_and(|(priority, _)| demand < priority) {
                break;
            }
            if shadow.holds(model) || !shadow.can_hold(model) {
                continue;
            }
            let demand = if also_too_late {
                demand
            } else {
                let alone = self.estimate(model, 0);
                let ready = free + self.loads[model.idx()].estimate();
                let deadline = ready + alone;
                let holders = self.demands.holders(model).iter();
                let under_way = holders
                    .map(|h| self.devices[h.idx()].pressure_from(model, deadline))
                    .sum::<f64>();
                let pressure = self.queues.pressure_from(model, deadline) + under_way;
                pressure * alone.as_secs_f64()
            };
            if demand <= 0.0 {
                continue;
            }
            let priority = self.demands.priority(model, demand);
            let beats = |(p, m): (f64, ModelId)| priority > p || priority >= p && model < m;
            if priority > 0.0 && best.is_none_or(beats) {
                best = Some((priority, model));
            }
        }
        best.map(|(_, model)| model)
    }

    fn first_asked_for(&self, device: DeviceId, free: Timestamp) -> Option<ModelId> {
        let shadow = &self.devices[device.idx()];
        let mut best: Option<(Timestamp, ModelId)> = None;
        for (_, model) in self.demands.descending() {
            if !self.demands.holders(model).is_empty() || !shadow.can_hold(model) {
                continue;
            }
            let ready = free + self.loads[model.idx()].estimate();
            let in_time = ready + self.estimate(model, 0);
            let Some((_, deadline)) = self.queues.first_from(model, in_time) else {
                continue;
            };
            if best.is_none_or(|b| (deadline, model) < b) {
                best = Some((deadline, model));
            }
        }
        best.map(|(_, model)| model)
    }

    /// Requests that the weights of a model are worth while they are there.
    fn worth(&self, now: Timestamp, model: ModelId) -> f64 {
        self.rates.rate(now, model) * *EXPECTED_FOR_S + self.queues.len(model) as f64
    }

    fn most_valuable(&self, now: Timestamp, device: DeviceId, free: Timestamp) -> Option<ModelId> {
        let asked_for = self.demands.descending().map(|(_, model)| model);
        let copies = self.demands.load(device) < *COPIED_BELOW;
        let asked_for = asked_for.filter(|m| copies || self.demands.holders(*m).is_empty());
        let soon = self.rates.unheld().take(*WEIGHED_MAX);
        let mut jobs: Vec<(Timestamp, f64, f64, ModelId)> = Vec::new();
        for model in asked_for.chain(soon) {
            if let Some((latest, gained)) = self.value(now, device, free, model)
                && gained > 0.0
            {
                let load = self.loads[model.idx()].estimate().as_nanos() as f64;
                jobs.push((latest, gained, load, model));
            }
        }
        jobs.sort_by(|a, b| (a.0, a.3).cmp(&(b.0, b.3)));
        let mut kept: Vec<(Timestamp, f64, f64, ModelId)> = Vec::new();
        let mut start = free.as_ns() as f64;
        for job in jobs {
            let is_late = start > job.0.as_ns() as f64;
            kept.push(job);
            start += job.2 * tune("LINFL", 1.0);
            if is_late {
                let worst = kept.iter().enumerate().max_by(|a, b| (a.1.2 / a.1.1).total_cmp(&(b.1.2 / b.1.1)));
                let (idx, _) = worst.expect("one was pushed");
                start -= kept.remove(idx).2 * tune("LINFL", 1.0);
            }
        }
        kept.first().map(|job| job.3)
    }

    /// The latest start of a LOAD, and the requests in time that it gains; none where the model cannot go.
    fn value(
        &self,
        now: Timestamp,
        device: DeviceId,
        free: Timestamp,
        model: ModelId,
    ) -> Option<(Timestamp, f64)> {
        let shadow = &self.devices[device.idx()];
        if shadow.holds(model) || !shadow.can_hold(model) {
            return None;
        }
        let load = self.loads[model.idx()].estimate();
        let takes = load + self.estimate(model, 0) + self.recipe.kept_back;
        let first = self.queues.first_from(model, free + takes);
        let latest = first.map_or(Timestamp::MAX, |(_, deadline)| deadline - takes);
        let saved = first.map_or(0, |(first, _)| self.queues.len(model) - first);
        let victims = self.victims(device, model)?;
        let lost: f64 = victims.iter().map(|v| self.worth(now, *v)).sum();
        let soon = self.rates.rate(now, model) * *EXPECTED_FOR_S;
        let price = shadow.price.get() * tune("PRICE", 1.0);
        let gained = {
            let at = self.sizes.partition_point(|s| *s as usize <= saved.max(1)) - 1;
            let each = |at: usize| self.estimate(model, at).as_nanos() as f64 / f64::from(self.sizes[at]);
            let at2 = match tune("SOON", 0.0) as u8 { 0 => at, 1 => 0, _ => self.sizes.len() - 1 };
            saved as f64 * (1.0 - price * each(at)).max(0.0) + soon * (1.0 - price * each(at2)).max(0.0)
        };
        let gained = match self.demands.holders(model) {
            [] => gained,
            _ => {
                let demand = self.queues.pressure(model) * self.estimate(model, 0).as_secs_f64();
                let priority = self.demands.priority(model, demand);
                if priority <= 0.0 {
                    return None;
                }
                gained * priority / demand
            }
        };
        Some((latest, gained - lost))
    }

    /// The models that give way for another; none when they cannot make enough room.
    fn victims(&self, device: DeviceId, model: ModelId) -> Option<Vec<ModelId>> {
        let shadow = &self.devices[device.idx()];
        let needs = self.models[model.idx()].pages;
        let mut free = shadow.free_pages();
        let mut victims = Vec::new();
        if free >= needs {
            return Some(victims);
        }
        let mut give = |victim: ModelId| {
            victims.push(victim);
            free += self.models[victim.idx()].pages;
            free >= needs
        };
        let is_enough = match self.recipe.eviction {
            Eviction::LeastRecentlyUsed => {
                let mut idle: Vec<(Timestamp, ModelId)> = shadow.idle().collect();
                idle.sort_unstable();
                idle.into_iter().any(|(_, victim)| give(victim))
            }
            Eviction::LeastRate => {
                let mut least = self.rates.least(device).filter(|m| shadow.is_idle(*m));
                least.any(give)
            }
        };
        is_enough.then_some(victims)
    }
}

#[allow(missing_docs)]
pub fn tune(name: &str, default: f64) -> f64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}
