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
    /// `first_load`: what the policy expects of a load until one was measured.
    fn new(
        policy: DropPolicyName,
        schedule: Option<ScheduleName>,
        knows_loads: bool,
        first_load: Duration,
    ) -> Self {
        let mut pipeline = noop_pipeline(SLO, &[&[0]], &[]);
        let module = &mut pipeline.modules[1];
        (module.batch.max, module.schedule, module.window) = (4, schedule, WINDOW_DEFAULT);
        let schedule = SchedulerConfig::of(module, &execution(), 4);
        let config = BrokerConfig {
            module: ModuleId(1),
            capacity: 256,
            batch: 4,
            execution: execution().into(),
            recipe: policy.recipe(),
            pulls: false,
            is_family: true,
            is_adapted: false,
            default_member: None,
            first_load,
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

    /// Runs each popular model once. They are in memory.
    fn warm(&mut self) {
        for member in (0..POPULAR).map(MemberId) {
            self.loaded.insert(member);
            self.arrive(u64::MAX - u64::from(member.0), member);
            self.run_until(self.now + SLO);
        }
        self.in_time = 0;
    }

    fn arrive(&mut self, id: u64, member: MemberId) {
        let request = Request {
            member,
            ..Request::new(RequestId(id), self.now, self.now + SLO)
        };
        let mut arrivals = vec![Arrival {
            worker: WorkerId(1),
            request,
            payload: (),
        }];
        self.on(DeviceEvent::Arrivals(&mut arrivals));
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

    /// Requests at 100 a second. Half of them are for the popular models.
    fn serve(&mut self, requests: u64, seed: u64) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let begin = self.now;
        let mut at = 0.0;
        for id in 0..requests {
            at += -(1.0 - rng.random::<f64>()).ln() / 100.0;
            self.run_until(begin + Duration::from_nanos((at * 1e9) as u64));
            let member = match rng.random::<bool>() {
                true => rng.random_range(0..POPULAR),
                false => rng.random_range(POPULAR..MODELS),
            };
            self.arrive(id, MemberId(member));
        }
        self.run_until(self.now + SLO * 100);
    }
}

/// The part of the requests that are in time.
fn share(policy: DropPolicyName, schedule: Option<ScheduleName>, knows_loads: bool) -> f64 {
    let mut world = World::new(policy, schedule, knows_loads, Duration::ZERO);
    world.serve(REQUESTS, 1);
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

/// Of the first requests of servers that have just started, with the popular models in memory.
#[test]
fn more_is_in_time_from_the_start_where_the_first_load_is_known() {
    const SERVERS: u64 = 400;
    const FIRST: u64 = 8;
    let share = |first_load| {
        let in_time = (0..SERVERS).map(|seed| {
            let policy = DropPolicyName::Spillgate;
            let mut world = World::new(policy, None, true, first_load);
            world.warm();
            world.serve(FIRST, seed);
            world.in_time
        });
        in_time.sum::<u64>() as f64 / (SERVERS * FIRST) as f64
    };
    let (unknown, half, known, twice) = (
        share(Duration::ZERO),
        share(LOAD / 2),
        share(LOAD),
        share(2 * LOAD),
    );
    let said = format!("{unknown:.3} in time, {half:.3}, {known:.3}, {twice:.3}");
    println!("{said}");
    assert!(known >= unknown + 0.05, "{said}");
}
