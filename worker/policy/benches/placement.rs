//! One decision of a placement: 4,000 models on 20 devices that get twice the requests that they can serve. Beside the medians of divan,
//! the worst decisions are printed: a mean hides them. Equal events give equal decisions, so the same ones are timed in several runs, and
//! of each decision the least time counts: the machine does not interrupt the same one in all of them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spillgate_pipeline::action::Work;
use spillgate_pipeline::id::{DeviceId, ModelId, RequestId, WeightsId};
use spillgate_pipeline::time::Timestamp;
use spillgate_recipes::placements;
use spillgate_worker_policy::weights::placement::{
    DeviceSpec, Ended, Model, Placement, PlacementCommand, PlacementConfig, PlacementEvent,
    PlacementPolicy, Weights,
};

const MODELS: u32 = 4_000;
const DEVICES: u16 = 20;
/// Between two requests: twice of what 20 devices serve in batches.
const BETWEEN: Duration = Duration::from_micros(25);
const TIMED: usize = 100_000;
const RUNS: usize = 5;
/// What a decision may take.
const TARGET: Duration = Duration::from_micros(50);

fn main() {
    for name in placements::ALL {
        let timed = || {
            let mut world = World::new(name);
            world.warm_up();
            (0..TIMED).map(|_| world.step()).collect::<Vec<Step>>()
        };
        let mut least = timed();
        report(name, "one run", &least);
        for _ in 1..RUNS {
            for (least, again) in least.iter_mut().zip(timed()) {
                assert_eq!(least.0, again.0, "equal events give equal decisions");
                least.1 = least.1.min(again.1);
            }
        }
        report(name, "least", &least);
        for kind in [Kind::Arrival, Kind::Result, Kind::Load, Kind::Wakeup] {
            let of_kind: Vec<Step> = least.iter().copied().filter(|s| s.0 == kind).collect();
            report(name, &format!("{kind:?}"), &of_kind);
        }
    }
    divan::main();
}

/// What a decision was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Arrival,
    Result,
    Load,
    Wakeup,
}

/// A decision, and how long it took.
type Step = (Kind, Duration);

fn report(name: PlacementPolicy, what: &str, steps: &[Step]) {
    let mut times: Vec<Duration> = steps.iter().map(|s| s.1).collect();
    times.sort_unstable();
    let at = |q: f64| times[((times.len() - 1) as f64 * q) as usize];
    if !times.is_empty() {
        println!(
            "{:10} {what:8} n {:6}  median {:?}  p99 {:?}  p99.9 {:?}  largest {:?}  above {TARGET:?}: {}",
            name.name(),
            times.len(),
            at(0.5),
            at(0.99),
            at(0.999),
            at(1.0),
            times.iter().filter(|t| **t > TARGET).count(),
        );
    }
}

#[divan::bench(args = placements::ALL)]
fn decision(bencher: divan::Bencher<'_, '_>, name: PlacementPolicy) {
    let mut world = World::new(name);
    world.warm_up();
    bencher.bench_local(|| world.step());
}

enum Next {
    Arrival,
    Told(PlacementEvent),
    Wakeup,
}

/// Devices that take as long as was profiled.
struct World {
    placement: Placement,
    config: PlacementConfig,
    agenda: BTreeMap<(Timestamp, u64), Next>,
    rng: ChaCha8Rng,
    scheduled: u64,
    asked: u64,
    out: Vec<PlacementCommand>,
    wakes_at: Option<Timestamp>,
}

impl World {
    fn new(name: PlacementPolicy) -> Self {
        let us = Duration::from_micros;
        let scale = |i: u32| u64::from(i % 7) + 4;
        let weights = (0..MODELS).map(|i| Weights {
            pages: 4 + i % 9,
            load: us(1_000 * scale(i)),
        });
        let models = (0..MODELS).map(|i| {
            let scale = scale(i);
            Model {
                weights: WeightsId(i),
                neighbours: Vec::new(),
                execution: [450, 700, 1_100, 1_900, 3_400]
                    .map(|t| us(t * scale))
                    .to_vec(),
                input: us(50),
            }
        });
        let devices = (0..DEVICES).map(|device| {
            let resident = (0..MODELS).filter(|m| m % u32::from(DEVICES) == u32::from(device));
            DeviceSpec {
                pages: 1_200,
                resident: resident.map(WeightsId).collect(),
            }
        });
        let config = PlacementConfig {
            sizes: vec![1, 2, 4, 8, 16],
            weights: weights.collect(),
            models: models.collect(),
            devices: devices.collect(),
            travel: us(200),
            is_fair: true,
            background_time: Duration::MAX,
        };
        let mut world = World {
            placement: Placement::new(name, config.clone()),
            config,
            agenda: BTreeMap::new(),
            rng: ChaCha8Rng::seed_from_u64(7),
            scheduled: 0,
            asked: 0,
            out: Vec::new(),
            wakes_at: None,
        };
        world.push(Timestamp::ZERO, Next::Arrival);
        world
    }

    fn warm_up(&mut self) {
        for _ in 0..TIMED {
            self.step();
        }
    }

    fn push(&mut self, at: Timestamp, next: Next) {
        self.agenda.insert((at, self.scheduled), next);
        self.scheduled += 1;
    }

    /// One event.
    fn step(&mut self) -> Step {
        let ((now, _), next) = self.agenda.pop_first().expect("requests never end");
        let (kind, event) = match next {
            Next::Arrival => {
                self.push(now + BETWEEN, Next::Arrival);
                self.asked += 1;
                // A few models get most requests.
                let model = (self.rng.random::<f64>().powi(3) * f64::from(MODELS)) as u32;
                let event = PlacementEvent::Arrived {
                    request: RequestId(self.asked),
                    model: ModelId(model),
                    deadline: now + Duration::from_millis(100),
                };
                (Kind::Arrival, event)
            }
            Next::Told(event @ PlacementEvent::Loaded { .. }) => (Kind::Load, event),
            Next::Told(event) => (Kind::Result, event),
            Next::Wakeup => {
                self.wakes_at = self.wakes_at.filter(|at| *at > now);
                (Kind::Wakeup, PlacementEvent::Wakeup)
            }
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "this clock is the one that measures"
        )]
        let begins = Instant::now();
        self.placement.on_event(now, event, &mut self.out);
        let wakes_at = self.placement.next_wakeup(now);
        #[expect(
            clippy::disallowed_methods,
            reason = "this clock is the one that measures"
        )]
        let took = begins.elapsed();
        if let Some(at) = wakes_at
            && self.wakes_at.is_none_or(|known| at < known)
        {
            self.wakes_at = Some(at);
            self.push(at, Next::Wakeup);
        }
        for command in std::mem::take(&mut self.out) {
            if let PlacementCommand::Do { device, action } = command {
                self.carry_out(device, action);
            }
        }
        (kind, took)
    }

    fn carry_out(
        &mut self,
        device: DeviceId,
        action: spillgate_pipeline::action::Action<RequestId>,
    ) {
        let ends = action.expected_end;
        let event = match action.work {
            Work::Infer { model, members, .. } => {
                let at = self
                    .config
                    .sizes
                    .iter()
                    .position(|s| *s as usize == members.len());
                let execution = &self.config.models[model.idx()].execution;
                let took = execution[at.expect("batches are never padded")];
                PlacementEvent::Inferred {
                    device,
                    action: action.id,
                    ended: Ended::Ran { at: ends, took },
                }
            }
            Work::Load(weights) => PlacementEvent::Loaded {
                device,
                action: action.id,
                took: Some(self.config.weights[weights.idx()].load),
            },
            Work::Unload(_) => return,
        };
        self.push(ends + self.config.travel, Next::Told(event));
    }
}
