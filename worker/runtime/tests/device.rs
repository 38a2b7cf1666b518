//! A device's thread: workers that are loaded and unloaded while it serves, finished requests that run again.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use bytes::Bytes;
use spillgate_backend::clock::{Clock, TestClock};
use spillgate_backend::job::{Job, Ran};
use spillgate_backend::operator::OperatorError;
use spillgate_picture::{Frame, FrameFormat};
use spillgate_pipeline::distribution::{BatchForm, BatchTime, WINDOW_DEFAULT};
use spillgate_pipeline::id::{DeviceId, GatewayId, ModuleId, RequestId, WorkerId};
use spillgate_pipeline::message::{Address, Arrival, ToDevice, ToGateway};
use spillgate_pipeline::policy::DropPolicy;
use spillgate_pipeline::request::{ModelChoice, Request};
use spillgate_recipes::schedulers;
use spillgate_worker::device::{DeviceConfig, DeviceHandle, DeviceThread, Finished, Upstream};
use spillgate_worker::executor::Executor;
use spillgate_worker::timer::TimerThread;
use spillgate_worker_policy::broker::BrokerConfig;
use spillgate_worker_policy::device::Device;
use spillgate_worker_policy::schedule::{SchedulerConfig, Scoring};

const WORKER: WorkerId = WorkerId(0);
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

/// Notes what it is told. Its first load fails if it is to.
struct Recorder {
    clock: Clock,
    seen: Sender<Seen>,
    fails: bool,
    load_takes: Duration,
}

impl Executor for Recorder {
    fn execute(&mut self, _: WorkerId, _: ModelChoice, jobs: &[&Job]) -> Vec<Ran> {
        self.clock.occupy(self.clock.now(), RUN);
        self.seen.send(Seen::Run(jobs.len())).unwrap();
        jobs.iter().map(|_| Ok(vec![])).collect()
    }

    fn load(&mut self, _: WorkerId) -> Result<(), OperatorError> {
        self.clock.occupy(self.clock.now(), self.load_takes);
        self.seen.send(Seen::Load).unwrap();
        assert!(!std::mem::take(&mut self.fails), "told to");
        Ok(())
    }

    fn unload(&mut self, _: WorkerId) {
        self.seen.send(Seen::Unload).unwrap();
    }
}

struct Reports {
    seen: parking_lot::Mutex<Sender<Seen>>,
    /// Panics when a batch ends, as a wrong part of ours would.
    is_wrong: bool,
}

impl Upstream for Reports {
    fn tell(&self, _: WorkerId, _: GatewayId, message: ToGateway) {
        if let ToGateway::Dropped { drop, .. } = message {
            panic!("nothing is to be dropped: {drop:?}");
        }
    }

    fn finished(&self, finished: Finished) {
        assert!(!self.is_wrong, "told to");
        assert_eq!(finished.load, None);
    }

    fn reran(&self, worker: WorkerId, took: Duration) {
        assert_eq!(worker, WORKER);
        assert_eq!(took, RUN);
        self.seen.lock().send(Seen::Reran).unwrap();
    }

    fn loaded(&self, worker: WorkerId, result: Result<(), OperatorError>) {
        assert_eq!(worker, WORKER);
        let seen = Seen::Loaded(result.is_ok());
        self.seen.lock().send(seen).unwrap();
    }

    fn down(&self, _: DeviceId, cause: &str) {
        assert!(self.is_wrong, "the device is to live: {cause}");
        let seen = Seen::Down(cause.to_owned());
        self.seen.lock().send(seen).unwrap();
    }
}

fn start(fails: bool) -> (DeviceThread, Receiver<Seen>, TestClock, TimerThread) {
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

fn start_with(start: Start) -> (DeviceThread, Receiver<Seen>, TestClock, TimerThread) {
    let Start {
        fails,
        schedule,
        load_takes,
        is_wrong,
    } = start;
    let (seen, events) = channel();
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
    let config = DeviceConfig {
        id: DeviceId(0),
        name: "test".to_owned(),
        policy: Device::new(vec![(WORKER, broker)], Duration::ZERO),
        core: None,
    };
    let test = TestClock::default();
    let clock = test.clock();
    let timers = TimerThread::start(&clock, "timer").unwrap();
    let upstream = Arc::new(Reports {
        seen: parking_lot::Mutex::new(seen.clone()),
        is_wrong,
    });
    let recorder = Recorder {
        clock: clock.clone(),
        seen,
        fails,
        load_takes,
    };
    let executor =
        Box::new(
            move || Ok::<_, std::convert::Infallible>(Box::new(recorder) as Box<dyn Executor>),
        );
    let Ok(device) = DeviceThread::start(config, &clock, &timers, upstream, executor);
    (device, events, test, timers)
}

fn send(device: &DeviceHandle, clock: &TestClock, id: u64) {
    send_together(device, clock, id..id + 1);
}

fn send_together(device: &DeviceHandle, clock: &TestClock, ids: Range<u64>) {
    let frame = Frame {
        format: FrameFormat::Bytes,
        width: 0,
        height: 0,
        data: Bytes::new(),
    };
    let now = clock.now();
    let arrival = |id| Arrival {
        worker: WORKER,
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
fn a_worker_is_unloaded_only_when_it_has_no_more_requests() {
    let (device, events, clock, _timers) = start(false);
    let handle = device.handle();
    handle.tell(HOME, ToDevice::Load(WORKER));
    assert_eq!(take(&events, &clock, 2), [Seen::Load, Seen::Loaded(true)]);
    for id in 0..3 {
        send(&handle, &clock, id);
    }
    handle.tell(HOME, ToDevice::Unload(WORKER));
    handle.tell(HOME, ToDevice::Unload(WORKER));
    let run = || Seen::Run(1);
    assert_eq!(
        take(&events, &clock, 4),
        [run(), run(), run(), Seen::Unload]
    );
    assert!(device.stop(Duration::from_secs(5)));
    assert!(events.try_recv().is_err(), "unloaded once");
}

#[test]
fn a_worker_that_is_wanted_again_is_not_unloaded() {
    let (device, events, clock, _timers) = start(false);
    let handle = device.handle();
    send(&handle, &clock, 0);
    handle.tell(HOME, ToDevice::Unload(WORKER));
    handle.tell(HOME, ToDevice::Load(WORKER));
    let mut seen = take(&events, &clock, 3);
    // Whether the batch or the load comes first is a race of threads.
    seen.retain(|s| *s != Seen::Run(1));
    assert_eq!(seen, [Seen::Load, Seen::Loaded(true)]);
    assert!(device.stop(Duration::from_secs(5)));
    assert!(events.try_recv().is_err());
}

#[test]
fn a_load_that_panics_is_reported_and_the_device_lives() {
    let (device, events, clock, _timers) = start(true);
    let handle = device.handle();
    handle.tell(HOME, ToDevice::Load(WORKER));
    assert_eq!(take(&events, &clock, 2), [Seen::Load, Seen::Loaded(false)]);
    handle.tell(HOME, ToDevice::Load(WORKER));
    assert_eq!(take(&events, &clock, 2), [Seen::Load, Seen::Loaded(true)]);
    send(&handle, &clock, 0);
    assert_eq!(take(&events, &clock, 1), [Seen::Run(1)]);
    assert!(device.stop(Duration::from_secs(5)));
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
fn what_came_during_a_load_runs_before_a_rerun() {
    let (device, events, clock, _timers) = start_with(Start {
        schedule: Some(schedule()),
        load_takes: 8 * RUN,
        ..Start::default()
    });
    let handle = device.handle();
    send_together(&handle, &clock, 0..4);
    assert_eq!(take(&events, &clock, 1), [Seen::Run(4)]);
    // The device is busy with it when the rerun would be due.
    handle.tell(HOME, ToDevice::Load(WORKER));
    clock.advance(4 * RUN);
    send(&handle, &clock, 4);
    assert_eq!(take(&events, &clock, 2), [Seen::Load, Seen::Loaded(true)]);
    assert_eq!(
        take(&events, &clock, 3),
        [Seen::Run(1), Seen::Run(1), Seen::Reran]
    );
    assert!(device.stop(Duration::from_secs(5)));
}

#[test]
fn a_finished_request_runs_again_when_nothing_else_does_and_not_after_its_worker_is_gone() {
    let (device, events, clock, _timers) = start_with(Start {
        schedule: Some(schedule()),
        ..Start::default()
    });
    let handle = device.handle();
    send_together(&handle, &clock, 0..4);
    assert_eq!(take(&events, &clock, 1), [Seen::Run(4)]);
    assert_eq!(take(&events, &clock, 2), [Seen::Run(1), Seen::Reran]);
    // Once only; the next one is due when a second has paid for the first, and would be.
    send_together(&handle, &clock, 4..8);
    assert_eq!(take(&events, &clock, 1), [Seen::Run(4)]);
    handle.tell(HOME, ToDevice::Unload(WORKER));
    assert_eq!(take(&events, &clock, 1), [Seen::Unload]);
    clock.advance(RUN * 60);
    assert!(events.try_recv().is_err());
    assert!(device.stop(Duration::from_secs(5)));
}

#[test]
fn a_device_that_panics_takes_its_workers_down() {
    let (device, events, clock, _timers) = start_with(Start {
        is_wrong: true,
        ..Start::default()
    });
    send(&device.handle(), &clock, 0);
    let down = "the device panicked: told to".to_owned();
    assert_eq!(take(&events, &clock, 2), [Seen::Run(1), Seen::Down(down)]);
    assert!(device.stop(Duration::from_secs(5)));
}
