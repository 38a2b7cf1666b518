//! Devices around a placement, in virtual time, and an account of all that it says.

use std::collections::BTreeMap;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spillgate_pipeline::action::{Action, Work};

use super::*;

/// How a request stands, as its commands tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stands {
    Unborn,
    Waiting,
    /// A device has it.
    Sent,
    /// Answered at that moment.
    Answered(Timestamp),
    Cancelled(Timestamp),
    /// Its client is gone.
    Left,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub(super) at: Timestamp,
    pub(super) model: ModelId,
    pub(super) deadline: Timestamp,
    pub(super) leaves: Option<Timestamp>,
}

/// How the hardware deviates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hardware {
    pub(crate) seed: u64,
    /// How often an INFER is refused, and a LOAD fails.
    pub(crate) refuses: f64,
    pub(crate) fails: f64,
    /// Durations are profiled ones times 1 up to this.
    pub(crate) deviation: f64,
    /// The first INFER takes that many times its profile.
    pub(crate) first: f64,
}

pub(crate) const SOUND: Hardware = Hardware {
    seed: 0,
    refuses: 0.0,
    fails: 0.0,
    deviation: 1.0,
    first: 1.0,
};

enum Event {
    Arrives(usize),
    Leaves(usize),
    Delivered(DeviceId, Action<RequestId>),
    Runs(DeviceId),
    BatchEnds(DeviceId, Duration),
    Reads(DeviceId),
    LoadEnds(DeviceId, Duration),
    Reported(PlacementEvent),
    Woken,
}

#[derive(Default)]
struct Machine {
    infers: Vec<Action<RequestId>>,
    running: Option<Action<RequestId>>,
    loads: Vec<Action<RequestId>>,
    reading: Option<Action<RequestId>>,
}

/// How weights stand on a device, as commands and answers tell.
#[derive(Clone, Copy, Default)]
struct Slot {
    is_held: bool,
    is_loaded: bool,
    under_way: u32,
}

pub(super) struct World {
    pub(super) placement: Placement,
    config: PlacementConfig,
    hardware: Hardware,
    rng: ChaCha8Rng,
    asks: Vec<Ask>,
    pub(super) stands: Vec<Stands>,
    machines: Vec<Machine>,
    slots: Vec<Vec<Slot>>,
    /// Members of the batches that devices have, by action.
    sent: BTreeMap<ActionId, (ModelId, Vec<RequestId>)>,
    loading: BTreeMap<ActionId, WeightsId>,
    agenda: BTreeMap<(Timestamp, u64), Event>,
    scheduled: u64,
    batches: u64,
    requeues: bool,
    pub(super) loads: usize,
    pub(super) refused_loads: usize,
    pub(super) wakeups: usize,
}

impl World {
    pub(super) fn new(
        name: PlacementPolicy,
        config: &PlacementConfig,
        hardware: Hardware,
        asks: &[Ask],
    ) -> Self {
        let slots = config.devices.iter().map(|device| {
            let mut slots = vec![Slot::default(); config.weights.len()];
            let mut free = device.pages;
            for weights in &device.resident {
                let pages = config.weights[weights.idx()].pages;
                let slot = &mut slots[weights.idx()];
                if pages <= free && !slot.is_held {
                    free -= pages;
                    (slot.is_held, slot.is_loaded) = (true, true);
                }
            }
            slots
        });
        let mut world = World {
            placement: Placement::new(name, config.clone()),
            hardware,
            rng: ChaCha8Rng::seed_from_u64(hardware.seed),
            asks: asks.to_vec(),
            stands: vec![Stands::Unborn; asks.len()],
            machines: config.devices.iter().map(|_| Machine::default()).collect(),
            slots: slots.collect(),
            sent: BTreeMap::new(),
            loading: BTreeMap::new(),
            agenda: BTreeMap::new(),
            scheduled: 0,
            batches: 0,
            requeues: name.recipe().requeues,
            loads: 0,
            refused_loads: 0,
            wakeups: 0,
            config: config.clone(),
        };
        for (i, ask) in asks.iter().enumerate() {
            world.push(ask.at, Event::Arrives(i));
            if let Some(leaves) = ask.leaves {
                world.push(leaves, Event::Leaves(i));
            }
        }
        world
    }

    /// Runs until nothing happens any more.
    pub(super) fn run(mut self) -> Self {
        let mut steps = 0;
        while let Some(((now, _), event)) = self.agenda.pop_first() {
            steps += 1;
            assert!(
                steps < 100_000,
                "it goes on without an end: {now} {:?}",
                self.stands
            );
            self.on_event(now, event);
        }
        self
    }

    fn push(&mut self, at: Timestamp, event: Event) {
        self.agenda.insert((at, self.scheduled), event);
        self.scheduled += 1;
    }

    fn on_event(&mut self, now: Timestamp, event: Event) {
        match event {
            Event::Arrives(i) => {
                self.stands[i] = Stands::Waiting;
                let ask = self.asks[i];
                let event = PlacementEvent::Arrived {
                    request: RequestId(i as u64),
                    model: ask.model,
                    deadline: ask.deadline,
                };
                self.tell(now, event);
            }
            Event::Leaves(i) => {
                if self.stands[i] == Stands::Waiting {
                    self.stands[i] = Stands::Left;
                    let event = PlacementEvent::Left {
                        request: RequestId(i as u64),
                        model: self.asks[i].model,
                    };
                    self.tell(now, event);
                }
            }
            Event::Delivered(device, action) => {
                let machine = &mut self.machines[device.idx()];
                match action.work {
                    Work::Infer { .. } => machine.infers.push(action),
                    Work::Load(_) => machine.loads.push(action),
                    Work::Unload(_) => {}
                }
                self.run_next(now, device);
                self.read_next(now, device);
            }
            Event::Runs(device) => self.run_next(now, device),
            Event::Reads(device) => self.read_next(now, device),
            Event::BatchEnds(device, took) => {
                let action = self.machines[device.idx()].running.take();
                let action = action.expect("a batch runs").id;
                let ended = Ended::Ran { at: now, took };
                let event = PlacementEvent::Inferred {
                    device,
                    action,
                    ended,
                };
                self.push(now + self.config.travel, Event::Reported(event));
                self.run_next(now, device);
            }
            Event::LoadEnds(device, took) => {
                let action = self.machines[device.idx()].reading.take();
                let action = action.expect("a model is read").id;
                let fails = self.rng.random_bool(self.hardware.fails);
                let event = PlacementEvent::Loaded {
                    device,
                    action,
                    took: (!fails).then_some(took),
                };
                self.push(now + self.config.travel, Event::Reported(event));
                self.read_next(now, device);
            }
            Event::Reported(event) => self.reported(now, event),
            Event::Woken => {
                self.wakeups += 1;
                self.tell(now, PlacementEvent::Wakeup);
            }
        }
    }

    fn deviates(&mut self, base: Duration) -> Duration {
        let factor = 1.0 + (self.hardware.deviation - 1.0) * self.rng.random::<f64>();
        base.mul_f64(factor)
    }

    fn run_next(&mut self, now: Timestamp, device: DeviceId) {
        loop {
            let machine = &mut self.machines[device.idx()];
            let first = machine.infers.iter().enumerate();
            let first = first.min_by_key(|(_, a)| (a.window.earliest, a.id));
            let Some((i, first)) = first.filter(|_| machine.running.is_none()) else {
                return;
            };
            if now < first.window.earliest {
                let earliest = first.window.earliest;
                self.push(earliest, Event::Runs(device));
                return;
            }
            let action = machine.infers.remove(i);
            let Work::Infer { model, members, .. } = &action.work else {
                continue;
            };
            if now > action.window.latest || self.rng.random_bool(self.hardware.refuses) {
                let event = PlacementEvent::Inferred {
                    device,
                    action: action.id,
                    ended: Ended::Refused,
                };
                self.push(now + self.config.travel, Event::Reported(event));
                continue;
            }
            let sizes = &self.config.sizes;
            let at = sizes.iter().position(|s| *s as usize == members.len());
            let profiled = self.config.models[model.idx()].execution[at.expect("never padded")];
            let mut took = self.deviates(profiled);
            if self.batches == 0 {
                took = took.mul_f64(self.hardware.first);
            }
            self.batches += 1;
            self.machines[device.idx()].running = Some(action);
            self.push(now + took, Event::BatchEnds(device, took));
        }
    }

    fn read_next(&mut self, now: Timestamp, device: DeviceId) {
        let machine = &mut self.machines[device.idx()];
        if machine.reading.is_some() || machine.loads.is_empty() {
            return;
        }
        let earliest = machine.loads[0].window.earliest;
        if now < earliest {
            self.push(earliest, Event::Reads(device));
            return;
        }
        let action = machine.loads.remove(0);
        if now > action.window.latest {
            self.refused_loads += 1;
            let event = PlacementEvent::Loaded {
                device,
                action: action.id,
                took: None,
            };
            self.push(now + self.config.travel, Event::Reported(event));
            return self.read_next(now, device);
        }
        let Work::Load(weights) = action.work else {
            return;
        };
        machine.reading = Some(action);
        let took = self.deviates(self.config.weights[weights.idx()].load);
        self.push(now + took, Event::LoadEnds(device, took));
    }

    /// An answer reaches the placement: the account comes first.
    fn reported(&mut self, now: Timestamp, event: PlacementEvent) {
        let mut back = Vec::new();
        match event {
            PlacementEvent::Inferred {
                device,
                action,
                ended,
            } => {
                let (model, members) = self.sent.remove(&action).expect("it was sent");
                let weights = self.config.models[model.idx()].weights;
                self.slots[device.idx()][weights.idx()].under_way -= 1;
                for member in &members {
                    self.stands[member.0 as usize] = match ended {
                        Ended::Ran { .. } => Stands::Answered(now),
                        Ended::Refused => Stands::Waiting,
                    };
                }
                if ended == Ended::Refused && !self.requeues {
                    back = members;
                }
            }
            PlacementEvent::Loaded {
                device,
                action,
                took,
            } => {
                let weights = self.loading.remove(&action).expect("it was sent");
                let slot = &mut self.slots[device.idx()][weights.idx()];
                slot.is_loaded = took.is_some();
                slot.is_held = took.is_some();
            }
            _ => {}
        }
        self.tell(now, event);
        for member in back {
            let stands = self.stands[member.0 as usize];
            assert_eq!(stands, Stands::Cancelled(now), "refused requests end");
        }
    }

    fn tell(&mut self, now: Timestamp, event: PlacementEvent) {
        let mut out = Vec::new();
        self.placement.on_event(now, event, &mut out);
        for command in out {
            self.obey(now, command);
        }
        let waiting = self.stands.iter().filter(|s| **s == Stands::Waiting);
        let models = (0..self.config.models.len() as u32).map(ModelId);
        let queued = models.map(|model| self.placement.queue(model).count());
        assert_eq!(queued.sum::<usize>(), waiting.count());
        if let Some(at) = self.placement.next_wakeup(now) {
            assert!(at > now, "a wake-up lies ahead");
            let is_known = self.agenda.range((now, 0)..=(at, u64::MAX));
            if !is_known.into_iter().any(|(_, e)| matches!(e, Event::Woken)) {
                self.push(at, Event::Woken);
            }
        }
    }

    fn obey(&mut self, now: Timestamp, command: PlacementCommand) {
        let (device, action) = match command {
            PlacementCommand::Cancel { request } => {
                let stands = &mut self.stands[request.0 as usize];
                assert_eq!(*stands, Stands::Waiting, "{request} ends once");
                *stands = Stands::Cancelled(now);
                return;
            }
            PlacementCommand::Do { device, action } => (device, action),
        };
        assert!(action.window.earliest <= action.window.latest);
        assert!(action.starts_at >= now && action.expected_end >= action.starts_at);
        let slots = &mut self.slots[device.idx()];
        match &action.work {
            Work::Infer {
                model,
                weights,
                members,
            } => {
                let of = &self.config.models[model.idx()];
                assert_eq!(of.weights, *weights);
                let slot = &mut slots[weights.idx()];
                assert!(slot.is_loaded, "its LOAD was answered");
                slot.under_way += 1;
                let sizes = &self.config.sizes[..of.execution.len()];
                assert!(sizes.contains(&(members.len() as u32)));
                for member in members {
                    let i = member.0 as usize;
                    assert_eq!(self.stands[i], Stands::Waiting);
                    assert_eq!(self.asks[i].model, *model);
                    assert!(self.asks[i].deadline >= action.expected_end, "it is late");
                    self.stands[i] = Stands::Sent;
                }
                self.sent.insert(action.id, (*model, members.clone()));
            }
            Work::Load(weights) => {
                let slot = &mut slots[weights.idx()];
                assert!(!slot.is_held, "they are there");
                slot.is_held = true;
                self.loading.insert(action.id, *weights);
                self.loads += 1;
            }
            Work::Unload(weights) => {
                let slot = &mut slots[weights.idx()];
                assert!(slot.is_held && slot.is_loaded && slot.under_way == 0);
                *slot = Slot::default();
            }
        }
        let held = slots.iter().zip(&self.config.weights);
        let held = held.filter(|(s, _)| s.is_held).map(|(_, w)| w.pages);
        let pages = self.config.devices[device.idx()].pages;
        assert!(held.sum::<u32>() <= pages, "the cache is too small");
        self.push(now + self.config.travel, Event::Delivered(device, action));
    }
}
