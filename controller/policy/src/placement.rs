//! Placement: one policy for a set of devices says which model's weights are where, and which batch runs next (Clockwork §5.3 and
//! Appendix B). All choice sits here. Devices only carry out actions whose durations are known.
//!
//! Requests wait here, in one queue a model, until shortly before a device is expected to be free. Then the placement sends INFER with
//! a window, and keeps a shadow of the device: what it was sent, and when it is expected to be free. Weights move ahead of the
//! requests that need them: LOAD, and UNLOAD of what is worth least.
//!
//! How it decides is a [`Recipe`], one file for each name in `recipe/`: what durations are expected ([`spillgate_pipeline::predict`]), which
//! batch is chosen (`choose`), which model is loaded (`load`) and which give way (`evict`).
//!
//! Invariants: each request ends in exactly one `Infer` or `Cancel`, where a refused action gives its requests back or ends them;
//! no model that has an action under way is unloaded; the pages of what a device holds never exceed its cache.

mod choose;
mod events;
mod load;
mod queues;
mod recipe;
mod shadow;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use spillgate_pipeline::action::{Action, Window, Work};
use spillgate_pipeline::id::{ActionId, DeviceId, ModelId, RequestId};
use spillgate_pipeline::predict::Estimator;
use spillgate_pipeline::time::Timestamp;

use choose::View;
pub use events::{Ended, PlacementCommand, PlacementEvent};
use load::{Demands, Rates};
use queues::{Queues, Waiting};
use recipe::{Earliest, Latest};
pub use recipe::{PlacementName, Recipe};
use shadow::{Sent, Shadow};

/// What a placement knows of a model.
#[derive(Clone, Debug)]
pub struct Model {
    /// Pages of its weights.
    pub pages: u32,
    /// Profiled time to read its weights.
    pub load: Duration,
    /// Profiled execution time of a batch of each size.
    pub execution: Vec<Duration>,
    /// Time to copy the input of one request to a device.
    pub input: Duration,
}

/// What a placement knows of a device.
#[derive(Clone, Debug)]
pub struct DeviceSpec {
    /// Pages of its weight cache.
    pub pages: u32,
    /// Models whose weights are there from the start.
    pub resident: Vec<ModelId>,
}

/// What a placement serves.
#[derive(Clone, Debug)]
pub struct PlacementConfig {
    /// Batch sizes, rising from 1.
    pub sizes: Vec<u32>,
    /// Models, by id.
    pub models: Vec<Model>,
    /// Devices, by id.
    pub devices: Vec<DeviceSpec>,
    /// Travel of a message to a device.
    pub travel: Duration,
}

/// The placement of models and batches on a set of devices.
#[derive(Debug)]
pub struct Placement {
    recipe: &'static Recipe,
    sizes: Vec<u32>,
    travel: Duration,
    models: Vec<Model>,
    /// Expected execution times, by model and position of the size.
    executions: Vec<Vec<Estimator>>,
    loads: Vec<Estimator>,
    queues: Queues,
    devices: Vec<Shadow>,
    demands: Demands,
    rates: Rates,
    /// No batch was ever expected to take longer.
    longest: Duration,
    next_action: u64,
}

impl Placement {
    /// A placement before its first event.
    pub fn new(name: PlacementName, config: PlacementConfig) -> Self {
        let recipe = name.recipe();
        let estimator = |seed| Estimator::new(recipe.estimator, recipe.cap, seed);
        let PlacementConfig {
            sizes,
            models,
            devices,
            travel,
        } = config;
        let executions = models
            .iter()
            .map(|m| m.execution.iter().copied().map(estimator).collect())
            .collect();
        let longest = models.iter().flat_map(|m| m.execution.iter().copied());
        let longest = longest.max().unwrap_or_default() + recipe.kept_back;
        let loads = models.iter().map(|m| estimator(m.load)).collect();
        let pages: Vec<u32> = models.iter().map(|m| m.pages).collect();
        let devices: Vec<Shadow> = devices.iter().map(|d| Shadow::new(d, &pages)).collect();
        let mut demands = Demands::new(models.len(), devices.len());
        let costs = models.iter().map(|m| {
            let alone = m.execution.first().copied().unwrap_or_default();
            (m.pages, m.load, alone)
        });
        let mut rates = Rates::new(costs, devices.len());
        for (i, device) in devices.iter().enumerate() {
            for model in device.held() {
                demands.held(model, DeviceId(i as u16));
                rates.held(model, DeviceId(i as u16));
            }
        }
        Placement {
            recipe,
            sizes,
            travel,
            queues: Queues::new(models.len()),
            models,
            executions,
            loads,
            devices,
            demands,
            rates,
            longest,
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
        match event {
            PlacementEvent::Arrived {
                request,
                model,
                deadline,
            } => {
                self.rates.arrived(now, model);
                let slo = deadline.since(now);
                let waiting = Waiting {
                    id: request,
                    deadline,
                    slo,
                };
                self.enqueue(model, waiting);
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
            } => self.loaded(device, action, took),
            PlacementEvent::Left { request, model } => {
                self.queues.remove(model, request);
                self.requeued(model);
            }
            PlacementEvent::Wakeup => {}
        }
        self.cancel(now, out);
        self.infer(now, out);
        self.load(now, out);
    }

    /// The next moment at which something happens without an event from outside: a device is about to be free, or a request can
    /// no longer be in time.
    pub fn next_wakeup(&mut self, now: Timestamp) -> Option<Timestamp> {
        let just_after = Duration::from_nanos(1);
        let lead = self.travel + self.ahead();
        let due = |free: Timestamp| free - lead + just_after;
        let devices = self.devices.iter();
        let devices = devices
            .flat_map(|d| [due(d.free_at(now)), due(d.link_free())])
            .filter(|at| *at > now)
            .min();
        let expiry = self.queues.next_expiry().map(|at| at + just_after);
        let waits = self.devices.iter().filter_map(|d| d.waits_until).min();
        [devices, expiry, waits].into_iter().flatten().min()
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        self.queues.waiting()
    }

    /// Expected execution time of a batch of the size at that position.
    fn estimate(&self, model: ModelId, at: usize) -> Duration {
        self.executions[model.idx()][at].estimate()
    }

    /// The latest moment at which a batch of the size at that position may start to end by a deadline.
    fn required_start(&self, model: ModelId, at: usize, deadline: Timestamp) -> Timestamp {
        deadline - (self.estimate(model, at) + self.recipe.kept_back)
    }

    fn enqueue(&mut self, model: ModelId, waiting: Waiting) {
        self.queues.push(model, waiting);
        self.requeued(model);
    }

    /// The queue of a model has changed: the indexes over its first request follow.
    fn requeued(&mut self, model: ModelId) {
        let alone = self.estimate(model, 0) + self.recipe.kept_back;
        let (before, after) = self.queues.rekey(model, alone);
        if before != after {
            for &device in self.demands.holders(model) {
                self.devices[device.idx()].rekey(model, before, after);
            }
        }
        let pressure = self.queues.pressure(model);
        let alone = self.estimate(model, 0).as_secs_f64();
        self.demands.changed(model, pressure * alone);
    }

    /// Ends the requests that cannot be in time any more, even alone and at once.
    fn cancel(&mut self, now: Timestamp, out: &mut Vec<PlacementCommand>) {
        while let Some(model) = self.queues.pop_expired(now) {
            let alone = self.estimate(model, 0) + self.recipe.kept_back;
            self.queues.drop_before(model, now + alone, |request| {
                out.push(PlacementCommand::Cancel { request });
                if std::env::var("DBG").is_ok() { let h: Vec<String> = self.demands.holders(model).iter().map(|h| { let d = &self.devices[h.idx()]; format!("{}:{}:{:.1}ms", h.idx(), d.is_loaded(model), d.free_at(now).since(now).as_secs_f64()*1e3) }).collect(); eprintln!("CANCEL {:.3} m{} est {:?} load {:?} holders {:?}", now.as_secs_f64(), model.0, self.executions[model.idx()][0].estimate(), self.loads[model.idx()].estimate(), h); }
            });
            self.requeued(model);
        }
    }

    /// Gives devices that are about to be free their next batches, the one that is free first one, and so on.
    fn infer(&mut self, now: Timestamp, out: &mut Vec<PlacementCommand>) {
        let arrival = now + self.travel;
        let horizon = arrival + self.ahead();
        let free = (0..self.devices.len()).map(|i| (self.device_free(now, i), i));
        let mut hungry: BinaryHeap<Reverse<(Timestamp, usize)>> = free
            .filter(|(free, _)| *free < horizon)
            .map(Reverse)
            .collect();
        while let Some(Reverse((_, i))) = hungry.pop() {
            if self.infer_on(now, DeviceId(i as u16), out) {
                let free = self.device_free(now, i);
                hungry.extend((free < horizon).then_some(Reverse((free, i))));
            }
        }
    }

    /// When a device is expected to be free for an action that is sent now.
    fn device_free(&self, now: Timestamp, device: usize) -> Timestamp {
        self.devices[device].free_at(now).max(now + self.travel)
    }

    fn ahead(&self) -> Duration { if self.recipe.requeues && self.recipe.ahead < Duration::from_millis(3) { Duration::from_secs_f64(load::tune("AHEAD", 2.0)*1e-3) } else { self.recipe.ahead } }
    /// Sends a device its next batch. False when it has none.
    fn infer_on(
        &mut self,
        now: Timestamp,
        device: DeviceId,
        out: &mut Vec<PlacementCommand>,
    ) -> bool {
        let view = View {
            device: &self.devices[device.idx()],
            arrival: now + self.travel,
            free: self.device_free(now, device.idx()),
        };
        let (arrival, free) = (view.arrival, view.free);
        self.devices[device.idx()].waits_until = None;
        let view = View { device: &self.devices[device.idx()], arrival, free };
        let Some(chosen) = self.choose(view) else { return false };
        if let Some(margin) = self.recipe.as_late_as_possible() {
            let copied = self.models[chosen.model.idx()].input * self.sizes[chosen.at];
            let due = free - (copied + margin);
            if due > arrival {
                self.devices[device.idx()].waits_until = Some(due - self.travel);
                return false;
            }
        }
        self.send(now, device, chosen, out);
        true
    }

    fn send(
        &mut self,
        now: Timestamp,
        device: DeviceId,
        chosen: choose::Chosen,
        out: &mut Vec<PlacementCommand>,
    ) {
        let arrival = now + self.travel;
        let choose::Chosen {
            model,
            at,
            first,
            starts_at,
        } = chosen;
        let size = self.sizes[at];
        let members = self.queues.take(model, first, size as usize);
        let estimate = self.estimate(model, at);
        let earliest = match self.recipe.earliest {
            Earliest::PredictedStart => starts_at,
            Earliest::Now => arrival,
        };
        let latest = match self.recipe.latest {
            Latest::After(window) => starts_at + window,
            Latest::Never => Timestamp::MAX,
            Latest::LastUseful => {
                let last = members
                    .iter()
                    .map(|m| m.deadline)
                    .max()
                    .unwrap_or(starts_at);
                self.required_start(model, at, last).max(starts_at)
            }
        };
        let window = Window { earliest, latest };
        let id = self.next_id();
        let shadow = &mut self.devices[device.idx()];
        let input_ends = arrival.max(shadow.input_free()) + self.models[model.idx()].input * size;
        let counted = if self.recipe.counts_input {
            input_ends
        } else {
            arrival
        };
        shadow.sent(Sent {
            id,
            model,
            at,
            earliest: earliest.max(counted),
            estimate,
            sent_at: now,
            input_ends,
            members: members.clone(),
        });
        let expected_end = starts_at + estimate;
        self.queues.went(model, &members);
        let members = members.iter().map(|m| m.id).collect();
        let work = Work::Infer { model, members };
        out.push(PlacementCommand::Do {
            device,
            action: Action {
                id,
                work,
                window,
                starts_at,
                expected_end,
            },
        });
        self.requeued(model);
    }

    fn next_id(&mut self) -> ActionId {
        let id = ActionId(self.next_action);
        self.next_action += 1;
        id
    }

    fn inferred(
        &mut self,
        now: Timestamp,
        device: DeviceId,
        action: ActionId,
        ended: Ended,
        out: &mut Vec<PlacementCommand>,
    ) {
        let Some(sent) = self.devices[device.idx()].ended(action, ended) else {
            return;
        };
        self.queues.came_back(sent.model, &sent.members);
        match ended {
            Ended::Ran { took, .. } => {
                let estimator = &mut self.executions[sent.model.idx()][sent.at];
                estimator.observe(took);
                let takes = estimator.estimate() + self.recipe.kept_back;
                self.longest = self.longest.max(takes);
                self.requeued(sent.model);
            }
            Ended::Refused if self.recipe.requeues => {
                let alone = self.estimate(sent.model, 0) + self.recipe.kept_back;
                for waiting in sent.members {
                    if waiting.deadline >= now + alone {
                        self.queues.push(sent.model, waiting);
                    } else {
                        out.push(PlacementCommand::Cancel {
                            request: waiting.id,
                        });
                    }
                }
                self.requeued(sent.model);
            }
            Ended::Refused => out.extend(
                sent.members
                    .iter()
                    .map(|w| PlacementCommand::Cancel { request: w.id }),
            ),
        }
    }

    fn loaded(&mut self, device: DeviceId, action: ActionId, took: Option<Duration>) {
        let key = |model| self.queues.key(model);
        let Some(model) = self.devices[device.idx()].loaded(action, took.is_some(), key) else {
            return;
        };
        match took {
            Some(took) => self.loads[model.idx()].observe(took),
            None => {
                self.demands.released(model, device);
                self.rates.released(model, device);
            }
        }
        self.requeued(model);
    }

    /// Requests of a model that wait, and what they ask for; for tests and reports.
    pub fn queue(&self, model: ModelId) -> Vec<RequestId> {
        self.queues.of(model).map(|w| w.id).collect()
    }
}
