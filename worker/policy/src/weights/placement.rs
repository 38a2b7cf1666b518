//! Placement: one policy for a set of devices says which model's weights are where, and which batch runs next (Clockwork §5.3 and
//! Appendix B). All choice sits here. Devices only carry out actions whose durations are known.
//!
//! Requests wait here, in one queue a model, until shortly before a device is expected to be free. Then the placement sends INFER with
//! a window, and keeps a shadow of the device: what it was sent, and when it is expected to be free. Weights move ahead of the
//! requests that need them: LOAD, and UNLOAD of what is worth least. Models that run with the same weights come and go together; to
//! run another one of them costs nothing.
//!
//! Under our recipe an event weighs the batches or the LOADs of one device; where others wait for that, a wake-up follows at once. So an
//! event takes no longer with many devices.
//!
//! How it decides is a [`Recipe`], one file for each name in `recipe/`: what durations are expected ([`spillgate_pipeline::predict`]), which
//! batch is chosen (`choose`), which model is loaded and which give way (`load`).
//!
//! Invariants: each request ends in exactly one `Infer` or `Cancel`, where a refused action gives its requests back or ends them;
//! no weights that an action under way needs are unloaded; the pages of what a device holds never exceed its cache.

pub(crate) mod choose;
mod events;
mod fair;
mod infer;
mod lateness;
pub(crate) mod load;
mod most;
mod queues;
mod shadow;
#[cfg(test)]
pub(crate) mod tests;

use std::time::Duration;

use spillgate_pipeline::id::{ActionId, DeviceId, ModelId, RequestId, WeightsId};
use spillgate_pipeline::predict::{Cap, Estimator};
use spillgate_pipeline::time::Timestamp;

use crate::weights::fleet::AROUND;
pub use events::{Ended, PlacementCommand, PlacementEvent};
use fair::Fairness;
use lateness::Lateness;
use load::{Demands, Rates};
use queues::{Queues, Waiting};

use shadow::Shadow;
pub use spillgate_pipeline::placement::PlacementPolicy;
use spillgate_pipeline::placement::recipe::{LateLoads, Recipe};

/// What a placement knows of a model.
#[derive(Clone, Debug)]
pub struct Model {
    /// What it runs with.
    pub weights: WeightsId,
    /// Models that may serve what it serves now: the next variants. Their weights are kept and read ahead, where nothing that is asked
    /// for more needs the memory.
    pub neighbours: Vec<ModelId>,
    /// Profiled execution time of a batch of each size, from the first on. Its batches have no larger sizes.
    pub execution: Vec<Duration>,
    /// Time to copy the input of one request to a device.
    pub input: Duration,
}

/// What a placement knows of weights.
#[derive(Clone, Copy, Debug)]
pub struct Weights {
    /// Their pages.
    pub pages: u32,
    /// Profiled time to read them.
    pub load: Duration,
}

/// What a placement knows of a device.
#[derive(Clone, Debug)]
pub struct DeviceSpec {
    /// Pages of its weight cache.
    pub pages: u32,
    /// Weights that are there from the start.
    pub resident: Vec<WeightsId>,
}

/// What a placement serves.
#[derive(Clone, Debug)]
pub struct PlacementConfig {
    /// Batch sizes, rising from 1.
    pub sizes: Vec<u32>,
    /// Weights, by id.
    pub weights: Vec<Weights>,
    /// Models, by id.
    pub models: Vec<Model>,
    /// Devices, by id.
    pub devices: Vec<DeviceSpec>,
    /// Travel of a message to a device.
    pub travel: Duration,
    /// Models get fair shares of device time, where the placement knows them.
    pub is_fair: bool,
    /// Longest time of a batch that holds requests without a deadline, as far as one request alone does not take longer.
    pub background_time: Duration,
}

/// The placement of models and batches on a set of devices.
#[derive(Debug)]
pub struct Placement {
    recipe: &'static Recipe,
    sizes: Vec<u32>,
    travel: Duration,
    background_time: Duration,
    /// What each model runs with.
    weights_of: Vec<WeightsId>,
    /// What the requests of each model that wait ask for, in devices.
    asked: Vec<f64>,
    /// By weights.
    weights: Vec<OfWeights>,
    /// Expected execution times, by model and position of the size.
    executions: Vec<Vec<Estimator>>,
    /// Time to copy the input of one request, by model.
    inputs: Vec<Estimator>,
    queues: Queues,
    devices: Vec<Shadow>,
    demands: Demands,
    rates: Rates,
    fairness: Option<Fairness>,
    /// Time that the last request of each model had.
    slos: Vec<Duration>,
    /// Of all devices.
    lateness: Lateness,
    /// No batch was ever expected to take longer.
    longest: Duration,
    /// Time to copy the inputs of the largest batch of any model.
    longest_input: Duration,
    /// Batches or LOADs are to be weighed for a further device, at once.
    weighs_on: bool,
    /// A request for these weights arrived, and devices wait to weigh them.
    arrived_before: Option<WeightsId>,
    next_action: u64,
}

/// What a placement keeps of weights.
#[derive(Debug)]
struct OfWeights {
    pages: u32,
    /// Expected time to read them.
    load: Estimator,
    /// Whether any device could ever hold them.
    fit: bool,
    /// The models that run with them.
    models: Vec<ModelId>,
}

impl Placement {
    /// A placement before its first event.
    pub fn new(policy: PlacementPolicy, config: PlacementConfig) -> Self {
        let recipe = policy.recipe();
        let estimator = |seed| Estimator::new(recipe.estimator, recipe.cap, seed);
        let PlacementConfig {
            sizes,
            weights,
            models,
            devices,
            travel,
            is_fair,
            background_time,
        } = config;
        let alone = |m: &Model| m.execution.first().copied().unwrap_or_default();
        let fairness = (is_fair && recipe.is_fair).then(|| Fairness::new(models.iter().map(alone)));
        let executions = models
            .iter()
            .map(|m| m.execution.iter().copied().map(estimator).collect())
            .collect();
        let longest = models.iter().flat_map(|m| m.execution.iter().copied());
        let longest = longest.max().unwrap_or_default() + recipe.kept_back;
        let largest = sizes.last().copied().unwrap_or(1);
        let longest_input = models.iter().map(|m| m.input * largest).max();
        let longest_input = longest_input.unwrap_or_default();
        let input = |m: &Model| Estimator::new(AROUND, Cap::None, m.input);
        let inputs = models.iter().map(input).collect();
        let pages: Vec<u32> = weights.iter().map(|w| w.pages).collect();
        let devices: Vec<Shadow> = devices.iter().map(|d| Shadow::new(d, &pages)).collect();
        let weights_of: Vec<WeightsId> = models.iter().map(|m| m.weights).collect();
        let mut demands = Demands::new(weights.len(), devices.len());
        let transfers = weights.iter().map(|w| (w.pages, w.load));
        let neighbours = models.iter().map(|m| m.neighbours.clone()).collect();
        let mut rates = Rates::new(&weights_of, neighbours, transfers, devices.len());
        for (i, device) in devices.iter().enumerate() {
            for weights in device.held() {
                demands.held(weights, DeviceId(i as u16));
                rates.held(weights, DeviceId(i as u16));
            }
        }
        let of = |(id, of): (u32, &Weights)| OfWeights {
            pages: of.pages,
            load: estimator(of.load),
            fit: devices.iter().any(|d| d.can_hold(WeightsId(id))),
            models: Vec::new(),
        };
        let mut weights: Vec<OfWeights> = (0..).zip(&weights).map(of).collect();
        for (id, of) in (0..).map(ModelId).zip(&weights_of) {
            weights[of.idx()].models.push(id);
        }
        let n_models = models.len();
        Placement {
            recipe,
            sizes,
            travel,
            background_time,
            queues: Queues::new(models.len()),
            asked: vec![0.0; n_models],
            weights_of,
            weights,
            executions,
            inputs,
            devices,
            demands,
            rates,
            fairness,
            slos: vec![Duration::MAX; n_models],
            lateness: Lateness::new(),
            longest,
            longest_input,
            weighs_on: false,
            arrived_before: None,
            next_action: 0,
        }
    }

    /// Takes in one event.
    pub fn on_event(
        &mut self,
        now: Timestamp,
        event: PlacementEvent,
        out: &mut Vec<PlacementCommand>,
    ) {
        let mut arrived = None;
        let mut has_weighed = match &mut self.fairness {
            Some(fairness) => fairness.advance(now, self.devices.len()),
            None => false,
        };
        match event {
            PlacementEvent::Arrived {
                request,
                model,
                deadline,
            } if deadline == Timestamp::MAX && !self.fits(model) => {
                // It would wait for ever.
                out.push(PlacementCommand::Cancel { request });
            }
            PlacementEvent::Arrived {
                request,
                model,
                deadline,
            } => {
                let slo = deadline.since(now);
                // What waits for idle time is no measure for others.
                if deadline < Timestamp::MAX {
                    self.rates.arrived(now, model);
                    if let Some(fairness) = &mut self.fairness {
                        fairness.arrived(model);
                    }
                    self.slos[model.idx()] = slo;
                }
                let kept_free = match deadline {
                    Timestamp::MAX => Duration::ZERO,
                    _ => self.lateness.kept_free(slo, self.recipe.kept_back),
                };
                let waiting = Waiting {
                    id: request,
                    deadline: deadline - kept_free,
                    kept_free,
                    slo,
                };
                self.queues.push(model, waiting);
                self.requeued(model);
                arrived = Some(self.weights_of(model));
            }
            PlacementEvent::Inferred {
                device,
                action,
                ended,
            } => self.inferred(now, device, action, ended, out),
            PlacementEvent::Loaded {
                device,
                action,
                took,
            } => self.loaded(now, device, action, took),
            PlacementEvent::Left { request, model } => {
                self.queues.remove(model, request);
                self.requeued(model);
            }
            PlacementEvent::Wakeup => {}
        }
        self.cancel(now, out);
        self.weighs_on = false;
        self.infer(now, &mut has_weighed, out);
        self.load(now, arrived, has_weighed, out);
    }

    /// The next moment at which something happens without an event from outside: a device is about to be free, or a request can
    /// no longer be in time, all models are weighed again while one that no device holds is asked for, or a further device is to be
    /// looked at.
    pub fn next_wakeup(&mut self, now: Timestamp) -> Option<Timestamp> {
        let just_after = Duration::from_nanos(1);
        let batch_due = self.travel + self.recipe.ahead.looks(self.longest_input);
        let load_due = self.travel + self.recipe.ahead.loads();
        let is_one_missing = self.demands.unheld().next().is_some();
        let devices = self.devices.iter().flat_map(|device| {
            let weighs_at = device.content_until.filter(|_| is_one_missing);
            let free = device.free_if_in_time();
            let batch = free - batch_due + just_after;
            // While a batch is late, the moment to choose moves on with the clock.
            let chooses_at = device
                .chooses_at
                .filter(|_| device.free_at(now) <= free.max(now));
            let load = device.link_free() - load_due + just_after;
            [Some(batch), Some(load), chooses_at, weighs_at]
        });
        let devices = devices.flatten().filter(|at| *at > now).min();
        let expiry = self.queues.next_expiry().map(|at| at + just_after);
        let weighs_on = self.weighs_on.then_some(now + just_after);
        [devices, expiry, weighs_on].into_iter().flatten().min()
    }

    /// Expected execution time of a batch of the size at that position.
    fn estimate(&self, model: ModelId, at: usize) -> Duration {
        self.executions[model.idx()][at].estimate()
    }

    /// The input of a request of a model took that long to copy.
    pub fn input_took(&mut self, now: Timestamp, model: ModelId, took: Duration) {
        self.inputs[model.idx()].observe(now, took);
        let largest = self.sizes.last().copied().unwrap_or(1);
        let input = self.inputs[model.idx()].estimate();
        self.longest_input = self.longest_input.max(input * largest);
    }

    /// Expected time to copy the inputs of a batch of that size.
    fn copies(&self, model: ModelId, size: u32) -> Duration {
        self.inputs[model.idx()].estimate() * size
    }

    /// The queue of a model has changed: the indexes over its first request follow.
    fn requeued(&mut self, model: ModelId) {
        let alone = self.estimate(model, 0) + self.recipe.kept_back;
        let (before, after) = self.queues.rekey(model, alone);
        let weights = self.weights_of(model);
        if before != after {
            for &device in self.demands.holders(weights) {
                self.devices[device.idx()].rekey((model, weights), before, after);
            }
        }
        let pressure = self.queues.pressure(model);
        let alone = self.estimate(model, 0).as_secs_f64();
        self.asked[model.idx()] = pressure * alone;
        let of = &self.weights[weights.idx()];
        // What no device can hold asks for nothing.
        let asked = match of.fit {
            true => of.models.iter().map(|m| self.asked[m.idx()]).sum(),
            false => 0.0,
        };
        self.demands.changed(weights, asked);
    }

    /// Ends the requests that cannot be in time any more, even alone and at once.
    fn cancel(&mut self, now: Timestamp, out: &mut Vec<PlacementCommand>) {
        while let Some(model) = self.queues.pop_expired(now) {
            let alone = self.estimate(model, 0) + self.recipe.kept_back;
            self.queues.drop_before(model, now + alone, |request| {
                out.push(PlacementCommand::Cancel { request });
            });
            self.measure_anew(model, alone);
            self.requeued(model);
        }
    }

    /// A model would run so long alone, and its first request has expired. Where its requests have too little time for that, or for a
    /// LOAD before it, what was measured is forgotten: else the model would not run, and not be measured, any more.
    fn measure_anew(&mut self, model: ModelId, alone: Duration) {
        if !matches!(self.recipe.cap, Cap::Typical(_)) {
            return;
        }
        let slo = self.slos[model.idx()];
        let time = slo - self.lateness.kept_free(slo, self.recipe.kept_back);
        let weights = self.weights_of(model);
        if alone > time {
            let sizes = &mut self.executions[model.idx()];
            sizes.iter_mut().for_each(Estimator::forget);
        } else if self.demands.holders(weights).is_empty() && self.load_time(weights) + alone > time
        {
            self.weights[weights.idx()].load.forget();
        }
    }

    fn next_id(&mut self) -> ActionId {
        let id = ActionId(self.next_action);
        self.next_action += 1;
        id
    }

    fn loaded(
        &mut self,
        now: Timestamp,
        device: DeviceId,
        action: ActionId,
        took: Option<Duration>,
    ) {
        let Some(weights) = self.devices[device.idx()].loaded(action, took.is_some()) else {
            return;
        };
        match took {
            Some(took) => {
                self.weights[weights.idx()].load.observe(now, took);
                for (key, model) in self.keys(weights) {
                    self.devices[device.idx()].is_ready(key, model);
                }
                if self.recipe.late_loads == LateLoads::WaitedFor {
                    self.devices[device.idx()].link_goes_on(now - self.travel);
                }
            }
            None => {
                self.demands.released(weights, device);
                self.rates.released(weights, device);
            }
        }
        for at in 0..self.models(weights).len() {
            self.requeued(self.models(weights)[at]);
        }
    }

    /// What a model runs with.
    pub fn weights_of(&self, model: ModelId) -> WeightsId {
        self.weights_of[model.idx()]
    }

    /// The models that run with weights.
    pub fn models(&self, weights: WeightsId) -> &[ModelId] {
        &self.weights[weights.idx()].models
    }

    /// Expected time to read weights.
    fn load_time(&self, weights: WeightsId) -> Duration {
        self.weights[weights.idx()].load.estimate()
    }

    /// The models that run with weights and have requests, each with the first deadline.
    fn keys(&self, weights: WeightsId) -> Vec<(Timestamp, ModelId)> {
        let models = self.models(weights).iter();
        let keys = models.filter_map(|model| Some((self.queues.key(*model)?, *model)));
        keys.collect()
    }

    /// A request of a batch under way ended elsewhere: it does not wait again where a device refuses the batch.
    pub fn forget(&mut self, device: DeviceId, action: ActionId, request: RequestId) {
        let forgotten = self.devices[device.idx()].forget(action, request);
        if let Some((model, waiting)) = forgotten {
            self.queues.came_back(model, &[waiting]);
            self.requeued(model);
        }
    }

    /// The requests of a model that wait, the first deadline first.
    pub fn queue(&self, model: ModelId) -> impl Iterator<Item = RequestId> {
        self.queues.of(model).map(|w| w.id)
    }

    /// Its devices.
    pub fn n_devices(&self) -> usize {
        self.devices.len()
    }

    /// Pages of a device that hold weights or are to, and all its pages.
    pub fn pages(&self, device: DeviceId) -> (u32, u32) {
        self.devices[device.idx()].pages()
    }

    /// Whether a device holds weights, or is to.
    pub fn is_held(&self, weights: WeightsId) -> bool {
        !self.demands.holders(weights).is_empty()
    }

    /// Whether a device other than this one holds weights, or is to.
    pub fn is_held_beside(&self, weights: WeightsId, device: DeviceId) -> bool {
        self.demands.holders(weights).iter().any(|h| *h != device)
    }

    /// A device cannot read weights: it is not asked to until then.
    pub fn bar(&mut self, device: DeviceId, weights: WeightsId, until: Timestamp) {
        self.devices[device.idx()].bar(weights, until);
    }

    /// Whether any device could ever hold what a model runs with.
    pub fn fits(&self, model: ModelId) -> bool {
        self.weights[self.weights_of(model).idx()].fit
    }
}
