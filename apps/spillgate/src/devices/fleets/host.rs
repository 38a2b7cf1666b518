//! Drives a fleet: the policy behind a lock, its devices, and who is told.

use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};
use spillgate_pipeline::action::Done;
use spillgate_pipeline::id::{DeviceId, GatewayId, WorkerId};
use spillgate_pipeline::request::DropReason;
use spillgate_pipeline::time::Timestamp;
use spillgate_process::clock::Clock;
use spillgate_process::job::Job;
use spillgate_protocol::message::{ToDevice, ToGateway};
use spillgate_worker::device::RanBatch;
use spillgate_worker::device::actions::{PlacedHandle, Reports};
use spillgate_worker::device::brokers::Upstream;
use spillgate_worker::timer::{Alarm, Sleeper, TimerThread};
use spillgate_worker_policy::weights::fleet::{DeviceAccount, Fleet, FleetCommand, FleetEvent};

use crate::device_reports::DeviceReports;
use crate::devices::measured::MeasuredStatus;

/// A fleet and its devices.
pub struct FleetHost {
    fleet: Mutex<State>,
    devices: OnceLock<Vec<PlacedHandle>>,
    clock: Clock,
    upstream: Arc<DeviceReports>,
    alarm: OnceLock<Alarm>,
    measured: Vec<MeasuredStatus>,
}

struct State {
    fleet: Fleet<Arc<Job>>,
    commands: Vec<FleetCommand<Arc<Job>>>,
    refused: Vec<Done>,
}

/// What a gateway is to hear, without the lock.
type Report = (WorkerId, GatewayId, ToGateway);

impl FleetHost {
    pub(super) fn new(
        fleet: Fleet<Arc<Job>>,
        measured: Vec<MeasuredStatus>,
        upstream: Arc<DeviceReports>,
        clock: &Clock,
        timers: &TimerThread,
    ) -> Arc<Self> {
        let host = Arc::new(FleetHost {
            fleet: Mutex::new(State {
                fleet,
                commands: Vec::new(),
                refused: Vec::new(),
            }),
            devices: OnceLock::new(),
            clock: clock.clone(),
            upstream,
            alarm: OnceLock::new(),
            measured,
        });
        let _ = host.alarm.set(timers.add(host.clone()));
        host
    }

    /// Gives its devices, by id; once.
    pub(super) fn connect(&self, devices: Vec<PlacedHandle>) {
        let first = self.devices.set(devices).is_ok();
        assert!(first, "a fleet is connected once");
        self.drive(FleetEvent::Wakeup);
    }

    /// Takes in a message to one of its devices.
    pub(crate) fn tell(&self, message: ToDevice<Arc<Job>>) {
        match message {
            ToDevice::Requests(mut requests) => self.drive(FleetEvent::Arrivals(&mut requests)),
            ToDevice::Cancel(worker, request) => self.drive(FleetEvent::Cancel(worker, request)),
            ToDevice::Withdraw(worker, request, reason) => {
                self.drive(FleetEvent::Withdraw(worker, request, reason));
            }
            ToDevice::Guide(worker, guidance) => self.drive(FleetEvent::Guide(worker, guidance)),
            // Its worker is always ready: weights come and go with the requests.
            ToDevice::Load(worker) => self.upstream.loaded(worker, Ok(())),
            // A worker here asks for nothing and learns nothing of applications.
            ToDevice::Answer(_) | ToDevice::Unload(_) | ToDevice::Reassigned(_) => {}
        }
    }

    /// A gateway greets.
    pub(crate) fn greet(&self, home: GatewayId) {
        self.drive(FleetEvent::Greeted(home));
    }

    /// Takes no more requests, and finishes what it has and what is on its way.
    pub(crate) fn leave(&self) {
        self.drive(FleetEvent::Leave);
    }

    /// A gateway is gone.
    pub(crate) fn lose(&self, home: GatewayId) {
        self.drive(FleetEvent::Lost(home));
    }

    /// Rejects what waits and what still comes.
    pub(crate) fn close(&self, reason: DropReason) {
        self.drive(FleetEvent::Close(reason));
    }

    /// Whether nothing runs and nothing waits.
    pub(crate) fn has_no_work(&self) -> bool {
        self.fleet.lock().fleet.has_no_work()
    }

    /// Requests that wait at a worker.
    pub(crate) fn waiting(&self, worker: WorkerId) -> usize {
        self.fleet.lock().fleet.waiting(worker)
    }

    /// What a device did, and its pages: those taken, and all.
    pub(crate) fn account(&self, device: DeviceId) -> (DeviceAccount, (u32, u32)) {
        let fleet = &self.fleet.lock().fleet;
        (fleet.account(device).clone(), fleet.pages(device))
    }

    /// What its models take, as measured when it started.
    pub(crate) fn measured(&self) -> &[MeasuredStatus] {
        &self.measured
    }

    fn drive(&self, mut event: FleetEvent<'_, Arc<Job>>) {
        let mut reports = Vec::new();
        let mut wakeup = None;
        let mut state = self.fleet.lock();
        // A look at each device at most: what follows at once need not wait for the timer.
        for _ in 0..=self.devices.get().map_or(0, Vec::len) {
            let State {
                fleet,
                commands,
                refused,
            } = &mut *state;
            // Devices get their actions under the lock, in the order in which they were decided.
            fleet.on_event(self.clock.now(), event, commands);
            self.carry_out(fleet, commands, refused, &mut reports);
            wakeup = fleet.next_wakeup(self.clock.now());
            if wakeup.is_none_or(|at| at > self.clock.now()) {
                break;
            }
            event = FleetEvent::Wakeup;
            MutexGuard::bump(&mut state);
        }
        drop(state);
        if let (Some(at), Some(alarm)) = (wakeup, self.alarm.get()) {
            alarm.arm(at);
        }
        for (worker, home, message) in reports {
            self.upstream.tell(worker, home, message);
        }
    }

    fn carry_out(
        &self,
        fleet: &mut Fleet<Arc<Job>>,
        commands: &mut Vec<FleetCommand<Arc<Job>>>,
        refused: &mut Vec<Done>,
        reports: &mut Vec<Report>,
    ) {
        let devices = self.devices.get().map_or(&[][..], Vec::as_slice);
        while !commands.is_empty() {
            let mut answers = Vec::new();
            for command in commands.drain(..) {
                match command {
                    FleetCommand::Do { device, action } => {
                        devices[device.idx()].receive(action, refused);
                        answers.extend(refused.drain(..).map(|done| (device, done)));
                    }
                    FleetCommand::Tell {
                        worker,
                        gateway,
                        message,
                    } => reports.push((worker, gateway, message)),
                }
            }
            for (device, done) in answers {
                fleet.on_event(self.clock.now(), FleetEvent::Done(device, done), commands);
            }
        }
    }
}

impl Reports for FleetHost {
    fn ran(&self, batch: RanBatch) {
        self.upstream.ran(batch);
    }

    fn done(&self, device: DeviceId, done: Done) {
        self.drive(FleetEvent::Done(device, done));
    }
}

impl Sleeper for FleetHost {
    fn wake(&self, _now: Timestamp) -> Option<Timestamp> {
        self.drive(FleetEvent::Wakeup);
        // It has armed itself.
        None
    }
}
