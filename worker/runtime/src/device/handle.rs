//! Reaches a device from other threads.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use spillgate_backend::job::Job;
use spillgate_pipeline::id::WorkerId;
use spillgate_pipeline::message::ToDevice;
use spillgate_pipeline::request::DropReason;
use spillgate_worker_policy::device::Event;

use super::shared::Shared;

/// Reaches a device. Cheap to clone.
#[derive(Clone)]
pub struct DeviceHandle {
    pub(super) shared: Arc<Shared>,
}

impl DeviceHandle {
    /// Takes in a message.
    pub fn tell(&self, mut message: ToDevice<Arc<Job>>) {
        self.shared.drive(match message {
            ToDevice::Requests(ref mut requests) => Event::Arrivals(requests),
            ToDevice::Cancel(request) => Event::Cancel(request),
            ToDevice::Withdraw(request, reason) => Event::Withdraw(request, reason),
            ToDevice::Guide(worker, guidance) => Event::Guide(worker, guidance),
            ToDevice::Load(worker) => Event::Load(worker),
            ToDevice::Unload(worker) => Event::Unload(worker),
            ToDevice::Reassigned(application) => Event::Reassigned(application),
        });
    }

    /// Rejects what waits and what still comes.
    pub fn close(&self, reason: DropReason) {
        self.shared.drive(Event::Close(reason));
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
}
