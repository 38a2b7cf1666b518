//! A device whose models are loaded when they are first asked for: what it serves in time where its policy knows of loads, and where a
//! load looks like a long batch.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spillgate_pipeline::distribution::WINDOW_DEFAULT;
use spillgate_pipeline::id::{GatewayId, MemberId, ModuleId, RequestId, WorkerId};
use spillgate_pipeline::message::Arrival;
use spillgate_pipeline::policy::DropPolicyName;
use spillgate_pipeline::request::Request;
use spillgate_pipeline::schedule::ScheduleName;
use spillgate_pipeline::testing::noop_pipeline;
use spillgate_pipeline::time::Timestamp;
use spillgate_worker_policy::broker::BrokerConfig;
use spillgate_worker_policy::device::{Batch, Device, DeviceCommand, DeviceEvent};
use spillgate_worker_policy::schedule::SchedulerConfig;

const SLO: Duration = Duration::from_millis(100);
const LOAD: Duration = Duration::from_millis(60);
const REQUESTS: u64 = 4000;
/// Models that are asked for from the start, as often as all others together.
const POPULAR: u16 = 4;
const MODELS: u16 = 400;

/// A batch of `n` takes `4 + n` ms.
fn execution() -> Vec<Duration> {
    (1..=4).map(|n| Duration::from_millis(4 + n)).collect()
}

struct World {
    device: Device<()>,
    now: Timestamp,
    /// Bound, and the end of the first, which runs.
    batches: VecDeque<Batch<()>>,
    ends: Option<(Timestamp, Option<Duration>, Duration)>,
    loaded: BTreeSet<MemberId>,
    knows_loads: bool,
    in_time: u64,
}

impl World {
    fn new(policy: DropPolicyName, schedule: Option<ScheduleName>, knows_loads: bool) -> Self {
        let mut pipeline = noop_pipeline(SLO, &[&[0]], &[]);
        let module = &mut pipeline.modules[1];
        (module.batch.max, module.schedule, module.window) = (4, schedule, WINDOW_DEFAULT);
        let schedule = SchedulerConfig::of(module, &execution(), 4);
        let config = BrokerConfig {
            module: ModuleId(1),
            capacity: 256,
            batch: 4,
            execution: execution(),
            recipe: policy.recipe(),
            pulls: false,
            is_family: true,
            default_member: None,
            background: 1,
            background_time: Duration::ZERO,
            schedule: schedule.expect("the profile fits"),
        };
        let mut world = World {
            device: Device::new(vec![(WorkerId(1), config)], Duration::from_micros(500)),
            now: Timestamp::ZERO,
            batches: VecDeque::new(),
            ends: None,
            loaded: BTreeSet::new(),
            knows_loads,
            in_time: 0,
        };
        world.on(DeviceEvent::Greeted(GatewayId(0)));
        world
    }

    fn on(&mut self, event: DeviceEvent<'_, ()>) {
        let mut out = Vec::new();
        self.device.on_event(self.now, event, &mut out);
        for command in out {
            if let DeviceCommand::Execute(batch) = command {
                self.batches.push_back(batch);
            }
        }
        if self.ends.is_none()
            && let Some(batch) = self.batches.front()
        {
            let member = batch.members[0].request.member;
            let load = self.loaded.insert(member).then_some(LOAD);
            let took = execution()[batch.members.len() - 1];
            let ends_at = self.now + load.unwrap_or_default() + took;
            self.ends = Some((ends_at, load, took));
        }
    }

    fn end(&mut self, load: Option<Duration>, took: Duration) {
        let batch = self.batches.pop_front().unwrap();
        self.ends = None;
        let deadlines = batch.members.iter().map(|m| m.request.deadline);
        self.in_time += deadlines.filter(|d| self.now <= *d).count() as u64;
        let (took, load) = match self.knows_loads {
            true => (took, load),
            false => (took + load.unwrap_or_default(), None),
        };
        self.on(DeviceEvent::BatchEnded {
            batch: batch.id,
            took,
            load,
            sampled: None,
        });
    }

    /// Until then, or until nothing happens any more.
    fn run_until(&mut self, until: Timestamp) {
        loop {
            let wakes_at = self.device.next_wakeup().map(|at| at.max(self.now));
            let ends_at = self.ends.map(|(at, ..)| at);
            let Some(next) = [wakes_at, ends_at].into_iter().flatten().min() else {
                break;
            };
            if next > until {
                break;
            }
            self.now = next;
            match self.ends {
                Some((at, load, took)) if at == next => self.end(load, took),
                _ => self.on(DeviceEvent::Wakeup),
            }
        }
        self.now = until;
    }
}

/// The part of the requests that are in time.
fn share(policy: DropPolicyName, schedule: Option<ScheduleName>, knows_loads: bool) -> f64 {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut world = World::new(policy, schedule, knows_loads);
    let mut at = 0.0;
    for id in 0..REQUESTS {
        at += -(1.0 - rng.random::<f64>()).ln() / 100.0;
        let now = Timestamp::from_ns((at * 1e9) as u64);
        world.run_until(now);
        let member = match rng.random::<bool>() {
            true => rng.random_range(0..POPULAR),
            false => rng.random_range(POPULAR..MODELS),
        };
        let request = Request {
            id: RequestId(id),
            sent_at: now,
            deadline: now + SLO,
            application: Default::default(),
            client: Default::default(),
            decoding_us: 0,
            rank: 0,
            member: MemberId(member),
            background: false,
        };
        let worker = WorkerId(1);
        let payload = ();
        let mut arrivals = vec![Arrival {
            worker,
            request,
            payload,
        }];
        world.on(DeviceEvent::Arrivals(&mut arrivals));
    }
    world.run_until(world.now + SLO * 100);
    assert!(
        world.loaded.len() > usize::from(MODELS) / 2,
        "models get loaded"
    );
    world.in_time as f64 / REQUESTS as f64
}

#[test]
fn more_is_in_time_where_loads_are_known() {
    for (policy, schedule) in [
        (DropPolicyName::Spillgate, None),
        (DropPolicyName::PardLbf, None),
        (DropPolicyName::Spillgate, Some(ScheduleName::Goodput)),
    ] {
        let share = |knows_loads| share(policy, schedule, knows_loads);
        let (without, with) = (share(false), share(true));
        let said = format!(
            "{} {schedule:?}: {without:.3} in time, {with:.3} with loads",
            policy.name()
        );
        println!("{said}");
        assert!(with >= without + 0.1, "{said}");
    }
}
