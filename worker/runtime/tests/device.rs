//! A device whose brokers form its batches: workers that come and go, finished requests that run again.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use spillgate_backend::operator::{Inputs, Operator, OperatorError, Outputs};
use spillgate_picture::{Frame, FrameFormat};
use spillgate_pipeline::distribution::{BatchForm, BatchTime, WINDOW_DEFAULT};
use spillgate_pipeline::id::{
    DeviceId, GatewayId, ModelId, ModuleId, RequestId, WeightsId, WorkerId,
};
use spillgate_pipeline::policy::DropPolicy;
use spillgate_pipeline::request::Request;
use spillgate_pipeline::testing::noop_pipeline;
use spillgate_process::clock::{Clock, TestClock};
use spillgate_process::job::Job;
use spillgate_protocol::message::{Address, Arrival, ToDevice, ToGateway};
use spillgate_recipes::schedulers;
use spillgate_worker::device::brokers::{self, DeviceHandle, Upstream};
use spillgate_worker::device::{
    DeviceConfig, DeviceThreads, Models, ModelsConfig, RanBatch, WorkerModels,
};
use spillgate_worker::timer::TimerThread;
use spillgate_worker::weights::Loader;
use spillgate_worker_policy::broker::BrokerConfig;
use spillgate_worker_policy::device::Device;
use spillgate_worker_policy::schedule::{SchedulerConfig, Scoring};
use spillgate_worker_policy::weights::store::{
    ScaledWorker, WeightStore, WeightStoreConfig, WeightsSize, WorkerWeights,
};

/// It serves always.
const WORKER: WorkerId = WorkerId(0);
/// It comes and goes with the load.
const SCALED: WorkerId = WorkerId(1);
/// What that runs with.
const AWAY: WeightsId = WeightsId(1);
const HOME: Address = Address::Gateway(GatewayId(0));
const RUN: Duration = Duration::from_millis(20);

/// What happened, in order.
#[derive(Debug, PartialEq)]
enum Seen {
    Load,
    Unload,
    Run(usize),
    Reran,
    Loaded(bool),
    Down(String),
}

/// Reads two weights, each of a worker, and notes what happens to those of the second, which is away at first. Its first load fails if it is to.
struct Recorder {
    clock: Clock,
    seen: Arc<Mutex<Sender<Seen>>>,
    fails: bool,
    load_takes: Duration,
}

impl Loader for Recorder {
    fn load(&mut self, weights: WeightsId, _: bool) -> Result<Box<dyn Operator>, OperatorError> {
        let is_noted = weights == AWAY;
        if is_noted {
            self.clock.occupy(self.clock.now(), self.load_takes);
            self.seen.lock().send(Seen::Load).unwrap();
            assert!(!std::mem::take(&mut self.fails), "told to");
        }
        Ok(Box::new(Model {
            clock: self.clock.clone(),
            seen: self.seen.clone(),
            is_noted,
        }))
    }
}

struct Model {
    clock: Clock,
    seen: Arc<Mutex<Sender<Seen>>>,
    is_noted: bool,
}

impl Operator for Model {
    fn run(&mut self, _: usize, batch: &[Inputs]) -> Vec<Result<Outputs, OperatorError>> {
        self.clock.occupy(self.clock.now(), RUN);
        self.seen.lock().send(Seen::Run(batch.len())).unwrap();
        batch.iter().map(|_| Ok(vec![])).collect()
    }

    fn example(&self, _: usize) -> Inputs {
        Vec::new()
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        if self.is_noted {
            let _ = self.seen.lock().send(Seen::Unload);
        }
    }
}

struct Reports {
    seen: Arc<Mutex<Sender<Seen>>>,
    /// Panics when a batch ends, as a wrong part of ours would.
    is_wrong: bool,
}

impl Upstream for Reports {
    fn tell(&self, _: WorkerId, _: GatewayId, message: ToGateway) {
        if let ToGateway::Dropped { drop, .. } = message {
            panic!("nothing is to be dropped: {drop:?}");
        }
    }

    fn ran(&self, _: RanBatch) {
        assert!(!self.is_wrong, "told to");
    }

    fn reran(&self, worker: WorkerId, took: Duration) {
        assert_eq!((worker, took), (SCALED, RUN));
        self.seen.lock().send(Seen::Reran).unwrap();
    }

    fn loaded(&self, worker: WorkerId, result: Result<(), String>) {
        assert_eq!(worker, SCALED);
        if let Err(why) = &result {
            assert_eq!(why, "loading panicked: told to");
        }
        let seen = Seen::Loaded(result.is_ok());
        self.seen.lock().send(seen).unwrap();
    }

    fn down(&self, _: DeviceId, cause: &str) {
        assert!(self.is_wrong, "the device is to live: {cause}");
        let seen = Seen::Down(cause.to_owned());
        self.seen.lock().send(seen).unwrap();
    }
}

type Started = (
    (DeviceHandle, DeviceThreads),
    Receiver<Seen>,
    TestClock,
    TimerThread,
);

fn start(fails: bool) -> Started {
    start_with(Start {
        fails,
        ..Start::default()
    })
}

#[derive(Default)]
struct Start {
    /// The first load does.
    fails: bool,
    /// For batches of up to four.
    schedule: Option<SchedulerConfig>,
    load_takes: Duration,
    is_wrong: bool,
}

fn start_with(start: Start) -> Started {
    let Start {
        fails,
        schedule,
        load_takes,
        is_wrong,
    } = start;
    let (seen, events) = channel();
    let seen = Arc::new(Mutex::new(seen));
    let broker = BrokerConfig {
        module: ModuleId(1),
        capacity: 10,
        batch: 1,
        execution: vec![RUN; if schedule.is_some() { 4 } else { 1 }].into(),
        recipe: DropPolicy::NONE.recipe(),
        pulls: false,
        is_family: false,
        is_adapted: false,
        background: 64,
        background_time: Duration::from_millis(10),
        schedule,
    };
    let workers = [(WORKER, WeightsId(0)), (SCALED, AWAY)];
    let weights = |(worker, weights)| {
        let (weights, by_variant) = (vec![weights], false);
        (
            worker,
            WorkerWeights {
                weights,
                by_variant,
            },
        )
    };
    let size = WeightsSize {
        pages: 1,
        load: load_takes,
    };
    let memory = WeightStore::new(WeightStoreConfig {
        pages: u32::MAX,
        weights: [size; 2].into(),
        workers: workers.map(weights).into(),
        resident: vec![WeightsId(0)],
        scaled: vec![ScaledWorker {
            worker: SCALED,
            needs: vec![AWAY],
            from_start: false,
        }],
    });
    let brokers = workers.map(|(worker, _)| (worker, broker.clone()));
    let policy = Device::new(brokers.into(), Duration::ZERO).with_weights(memory);
    let test = TestClock::default();
    let clock = test.clock();
    let timers = TimerThread::start(&clock, "timer").unwrap();
    let upstream = Arc::new(Reports {
        seen: seen.clone(),
        is_wrong,
    });
    let recorder = Recorder {
        clock: clock.clone(),
        seen,
        fails,
        load_takes,
    };
    let pipeline = Arc::new(noop_pipeline(RUN * 100, &[&[0]], &[]));
    let models = |(worker, weights): (WorkerId, WeightsId)| {
        let of = WorkerModels {
            pipeline: pipeline.clone(),
            module: ModuleId(1),
            models: vec![ModelId(weights.0)],
            by_variant: false,
        };
        (worker, of)
    };
    let config = DeviceConfig {
        id: DeviceId(0),
        name: "test".to_owned(),
        models: Models::Of(ModelsConfig {
            loader: Box::new(move || Ok(Box::new(recorder))),
            too_large: Vec::new(),
            resident: vec![WeightsId(0)],
            needed: vec![WeightsId(0)],
            models: workers.map(|(_, weights)| (weights, 0)).into(),
            workers: Arc::new(workers.map(models).into_iter().collect()),
        }),
        core: None,
    };
    let device = brokers::start(config, policy, &clock, &timers, upstream);
    (device.expect("it starts"), events, test, timers)
}

fn send(device: &DeviceHandle, clock: &TestClock, worker: WorkerId, id: u64) {
    send_together(device, clock, worker, id..id + 1);
}

fn send_together(device: &DeviceHandle, clock: &TestClock, worker: WorkerId, ids: Range<u64>) {
    let frame = Frame {
        format: FrameFormat::Bytes,
        width: 0,
        height: 0,
        data: Bytes::new(),
    };
    let now = clock.now();
    let arrival = |id| Arrival {
        worker,
        request: Request::new(RequestId(id), now, now + Duration::from_secs(60)),
        payload: Arc::new(Job::unaccounted(frame.clone(), 2)),
    };
    device.tell(HOME, ToDevice::Requests(ids.map(arrival).collect()));
}

/// The next things that happen; the clock moves on to them.
fn take(events: &Receiver<Seen>, clock: &TestClock, n: usize) -> Vec<Seen> {
    let mut seen = Vec::new();
    while seen.len() < n {
        clock.settle();
        match events.try_recv() {
            Ok(next) => seen.push(next),
            Err(_) => assert!(clock.step(), "nothing happens after {seen:?}"),
        }
    }
    seen
}

#[test]
fn a_worker_is_loaded_beside_a_batch_and_unloaded_when_it_has_no_more_requests() {
    let ((device, threads), events, clock, _timers) = start_with(Start {
        load_takes: RUN / 2,
        ..Start::default()
    });
    send(&device, &clock, WORKER, 0);
    device.tell(HOME, ToDevice::Load(SCALED));
    let seen = take(&events, &clock, 3);
    assert_eq!(seen, [Seen::Load, Seen::Loaded(true), Seen::Run(1)]);
    for id in 1..4 {
        send(&device, &clock, SCALED, id);
    }
    device.tell(HOME, ToDevice::Unload(SCALED));
    device.tell(HOME, ToDevice::Unload(SCALED));
    let run = || Seen::Run(1);
    assert_eq!(
        take(&events, &clock, 4),
        [run(), run(), run(), Seen::Unload]
    );
    assert!(threads.stop(Duration::from_secs(5)));
    assert!(events.try_recv().is_err(), "unloaded once");
}

#[test]
fn a_worker_that_is_wanted_again_is_not_unloaded() {
    let ((device, threads), events, clock, _timers) = start(false);
    device.tell(HOME, ToDevice::Load(SCALED));
    assert_eq!(take(&events, &clock, 2), [Seen::Load, Seen::Loaded(true)]);
    send(&device, &clock, SCALED, 0);
    device.tell(HOME, ToDevice::Unload(SCALED));
    device.tell(HOME, ToDevice::Load(SCALED));
    assert_eq!(take(&events, &clock, 2), [Seen::Loaded(true), Seen::Run(1)]);
    clock.advance(RUN);
    assert!(events.try_recv().is_err());
    assert!(threads.stop(Duration::from_secs(5)));
}

#[test]
fn a_request_whose_worker_is_gone_is_served() {
    let ((device, threads), events, clock, _timers) = start(false);
    send(&device, &clock, SCALED, 0);
    let seen = take(&events, &clock, 3);
    assert_eq!(seen, [Seen::Load, Seen::Run(1), Seen::Unload]);
    assert!(threads.stop(Duration::from_secs(5)));
}

#[test]
fn a_load_that_panics_is_reported_and_the_device_lives() {
    let ((device, threads), events, clock, _timers) = start(true);
    device.tell(HOME, ToDevice::Load(SCALED));
    assert_eq!(take(&events, &clock, 2), [Seen::Load, Seen::Loaded(false)]);
    device.tell(HOME, ToDevice::Load(SCALED));
    assert_eq!(take(&events, &clock, 2), [Seen::Load, Seen::Loaded(true)]);
    send(&device, &clock, SCALED, 0);
    assert_eq!(take(&events, &clock, 1), [Seen::Run(1)]);
    assert!(threads.stop(Duration::from_secs(5)));
}

fn schedule() -> SchedulerConfig {
    SchedulerConfig {
        // The profile's batch, whatever it knows.
        policy: schedulers::NEXUS,
        sizes: vec![1, 2, 4],
        planned: 4,
        time: BatchTime::new(BatchForm::Padded, 1.0, 0.1, 0.0).unwrap(),
        prior_ms: 10.0,
        scoring: Scoring::default(),
        window: WINDOW_DEFAULT,
        capacity: 10,
    }
}

#[test]
fn a_finished_request_runs_again_when_nothing_else_does_and_not_after_its_worker_is_gone() {
    let ((device, threads), events, clock, _timers) = start_with(Start {
        schedule: Some(schedule()),
        ..Start::default()
    });
    device.tell(HOME, ToDevice::Load(SCALED));
    assert_eq!(take(&events, &clock, 2), [Seen::Load, Seen::Loaded(true)]);
    send_together(&device, &clock, SCALED, 0..4);
    assert_eq!(take(&events, &clock, 1), [Seen::Run(4)]);
    assert_eq!(take(&events, &clock, 2), [Seen::Run(1), Seen::Reran]);
    // Once only; the next one is due when a second has paid for the first, and would be.
    send_together(&device, &clock, SCALED, 4..8);
    assert_eq!(take(&events, &clock, 1), [Seen::Run(4)]);
    device.tell(HOME, ToDevice::Unload(SCALED));
    assert_eq!(take(&events, &clock, 1), [Seen::Unload]);
    clock.advance(RUN * 60);
    assert!(events.try_recv().is_err());
    assert!(threads.stop(Duration::from_secs(5)));
}

#[test]
fn a_device_that_panics_takes_its_workers_down() {
    let ((device, threads), events, clock, _timers) = start_with(Start {
        is_wrong: true,
        ..Start::default()
    });
    send(&device, &clock, WORKER, 0);
    let down = "the device panicked: told to".to_owned();
    assert_eq!(take(&events, &clock, 2), [Seen::Run(1), Seen::Down(down)]);
    assert!(!device.is_alive());
    assert!(threads.stop(Duration::from_secs(5)));
}
