//! A device whose models are read when they are first asked for, beside its batches, and stay: what it serves in time.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spillgate_pipeline::distribution::WINDOW_DEFAULT;
use spillgate_pipeline::id::{GatewayId, MemberId, ModuleId, RequestId, WeightsId, WorkerId};
use spillgate_pipeline::policy::DropPolicy;
use spillgate_pipeline::request::Request;
use spillgate_pipeline::schedule::SchedulePolicy;
use spillgate_pipeline::testing::noop_pipeline;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::Arrival;
use spillgate_recipes::drops;
use spillgate_worker_policy::broker::BrokerConfig;
use spillgate_worker_policy::device::{Batch, Device, DeviceCommand, DeviceEvent};
use spillgate_worker_policy::schedule::SchedulerConfig;
use spillgate_worker_policy::weights::store::{
    WeightStore, WeightStoreConfig, WeightsSize, WorkerWeights,
};

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
    ends: Option<(Timestamp, Duration)>,
    /// How long reading takes.
    load: Duration,
    /// When what is read is there.
    read_ends: Option<Timestamp>,
    read: BTreeSet<WeightsId>,
    in_time: u64,
}

impl World {
    /// `first_load`: what the policy expects of a load until one was measured. The popular models are there from the start.
    fn new(policy: DropPolicy, schedule: Option<SchedulePolicy>, first_load: Duration) -> Self {
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
            background: 1,
            background_time: Duration::ZERO,
            schedule: schedule.expect("the profile fits"),
        };
        let size = WeightsSize {
            pages: 1,
            load: first_load,
        };
        let weights = WorkerWeights {
            weights: (0..u32::from(MODELS)).map(WeightsId).collect(),
            by_variant: false,
        };
        let memory = WeightStore::new(WeightStoreConfig {
            pages: u32::MAX,
            weights: [size; MODELS as usize].into(),
            workers: vec![(WorkerId(1), weights)],
            resident: (0..u32::from(POPULAR)).map(WeightsId).collect(),
            scaled: Vec::new(),
        });
        let device = Device::new(vec![(WorkerId(1), config)], Duration::from_micros(500));
        let mut world = World {
            device: device.with_weights(memory),
            now: Timestamp::ZERO,
            batches: VecDeque::new(),
            ends: None,
            load: LOAD,
            read_ends: None,
            read: BTreeSet::new(),
            in_time: 0,
        };
        world.on(DeviceEvent::Greeted(GatewayId(0), &[WorkerId(1)]));
        world
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
            match command {
                DeviceCommand::Execute(batch) => self.batches.push_back(batch),
                DeviceCommand::Read(weights, gone) => {
                    assert!(gone.is_empty(), "none gives way");
                    assert!(self.read.insert(weights), "it is read once");
                    self.read_ends = Some(self.now + self.load);
                }
                _ => {}
            }
        }
        if self.ends.is_none()
            && let Some(batch) = self.batches.front()
        {
            let took = execution()[batch.members.len() - 1];
            self.ends = Some((self.now + took, took));
        }
    }

    fn end(&mut self, took: Duration) {
        let batch = self.batches.pop_front().unwrap();
        self.ends = None;
        let deadlines = batch.members.iter().map(|m| m.request.deadline);
        self.in_time += deadlines.filter(|d| self.now <= *d).count() as u64;
        self.on(DeviceEvent::BatchEnded {
            batch: batch.id,
            took,
            sampled: None,
        });
    }

    /// Until then, or until nothing happens any more.
    fn run_until(&mut self, until: Timestamp) {
        loop {
            let wakes_at = self.device.next_wakeup().map(|at| at.max(self.now));
            let ends_at = self.ends.map(|(at, _)| at);
            let nexts = [wakes_at, ends_at, self.read_ends];
            let Some(next) = nexts.into_iter().flatten().min() else {
                break;
            };
            if next > until {
                break;
            }
            self.now = next;
            match self.ends {
                Some((at, took)) if at == next => self.end(took),
                _ if self.read_ends == Some(next) => {
                    self.read_ends = None;
                    self.on(DeviceEvent::ReadEnded(true));
                }
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

/// Half of the requests are for models that are there, and no load delays them.
#[test]
fn what_is_there_is_served_beside_loads() {
    for (policy, schedule) in [
        (DropPolicy::SPILLGATE, None),
        (drops::PARD_LBF, None),
        (DropPolicy::SPILLGATE, Some(SchedulePolicy::GOODPUT)),
    ] {
        let mut world = World::new(policy, schedule, Duration::ZERO);
        world.serve(REQUESTS, 1);
        let read = world.read.len();
        assert!(read > usize::from(MODELS) / 2, "models are read: {read}");
        let share = world.in_time as f64 / REQUESTS as f64;
        let said = format!("{} {schedule:?}: {share:.3} in time", policy.name());
        println!("{said}");
        assert!(share >= 0.85, "{said}");
    }
}

/// Reading a model takes longer than requests may: the first of each model is late, and those after it find the model there.
#[test]
fn a_model_whose_load_exceeds_the_objective_is_read_at_its_first_request() {
    for first_load in [Duration::ZERO, SLO * 3] {
        let mut world = World::new(DropPolicy::SPILLGATE, None, first_load);
        world.load = SLO * 3;
        for id in 0..6 {
            world.arrive(id, MemberId(POPULAR));
            world.run_until(world.now + SLO);
        }
        assert_eq!((world.read.len(), world.in_time), (1, 3), "{first_load:?}");
    }
}

/// Of the first requests of servers that have just started.
#[test]
fn no_less_is_in_time_from_the_start_where_the_first_load_is_known() {
    const SERVERS: u64 = 400;
    const FIRST: u64 = 8;
    let share = |first_load| {
        let in_time = (0..SERVERS).map(|seed| {
            let mut world = World::new(DropPolicy::SPILLGATE, None, first_load);
            world.serve(FIRST, seed);
            world.in_time
        });
        in_time.sum::<u64>() as f64 / (SERVERS * FIRST) as f64
    };
    let (unknown, known) = (share(Duration::ZERO), share(LOAD));
    let said = format!("{unknown:.3} in time, {known:.3}");
    println!("{said}");
    assert!(known >= unknown, "{said}");
}
