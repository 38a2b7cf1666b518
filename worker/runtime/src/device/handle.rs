//! Reaches a device from other threads.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use spillgate_backend::job::Job;
use spillgate_pipeline::id::WorkerId;
use spillgate_pipeline::message::ToDevice;
use spillgate_pipeline::request::DropReason;
use spillgate_worker_policy::device::Event;

use super::shared::Shared;
use crate::timer::Alarm;

/// Reaches a device. Cheap to clone.
#[derive(Clone)]
pub struct DeviceHandle {
    pub(super) shared: Arc<Shared>,
    pub(super) alarm: Alarm,
}

impl DeviceHandle {
    /// Takes in a message.
    pub fn tell(&self, message: ToDevice<Arc<Job>>) {
        match message {
            ToDevice::Requests(mut requests) => self.drive(Event::Arrivals(&mut requests)),
            ToDevice::Cancel(request) => self.drive(Event::Cancel(request)),
            ToDevice::Withdraw(request, reason) => self.drive(Event::Withdraw(request, reason)),
            ToDevice::Guide(worker, guidance) => self.drive(Event::Guide(worker, guidance)),
            ToDevice::Load(worker) => self.drive(Event::Load(worker)),
            ToDevice::Unload(worker) => self.drive(Event::Unload(worker)),
            ToDevice::Reassigned(application) => self.drive(Event::Reassigned(application)),
        }
    }

    /// Rejects what waits and what still comes.
    pub fn close(&self, reason: DropReason) {
        self.drive(Event::Close(reason));
    }

    /// Whether its thread lives.
    pub fn is_alive(&self) -> bool {
        self.shared.alive.load(Ordering::Acquire)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Requests that wait at a worker.
    pub fn waiting(&self, worker: WorkerId) -> usize {
        self.shared.state.lock().policy.waiting(worker)
    }

    fn drive(&self, event: Event<'_, Arc<Job>>) {
        let (reports, wakeup) = self.shared.drive(event);
        if let Some(at) = wakeup {
            self.alarm.arm(at);
        }
        self.shared.report(reports);
    }
}
