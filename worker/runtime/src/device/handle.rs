//! Reaches a device from other threads.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use spillgate_backend::job::Job;
use spillgate_pipeline::id::{GatewayId, WorkerId};
use spillgate_pipeline::message::{Address, ToDevice};
use spillgate_pipeline::predict::PredictionErrors;
use spillgate_pipeline::request::DropReason;
use spillgate_worker_policy::device::DeviceEvent;
use spillgate_worker_policy::weights::store::WeightStoreAccount;

use super::shared::Shared;

/// Reaches a device. Cheap to clone.
#[derive(Clone)]
pub struct DeviceHandle {
    pub(super) shared: Arc<Shared>,
}

impl DeviceHandle {
    /// Takes in a message.
    pub fn tell(&self, from: Address, mut message: ToDevice<Arc<Job>>) {
        self.shared.drive(match message {
            ToDevice::Requests(ref mut requests) => DeviceEvent::Arrivals(requests),
            ToDevice::Answer(answer) => match from {
                Address::Gateway(home) => DeviceEvent::Answer(home, answer),
                _ => return,
            },
            ToDevice::Cancel(worker, request) => DeviceEvent::Cancel(worker, request),
            ToDevice::Withdraw(worker, request, reason) => {
                DeviceEvent::Withdraw(worker, request, reason)
            }
            ToDevice::Guide(worker, guidance) => DeviceEvent::Guide(worker, guidance),
            ToDevice::Load(worker) => DeviceEvent::Load(worker),
            ToDevice::Unload(worker) => DeviceEvent::Unload(worker),
            ToDevice::Reassigned(application) => DeviceEvent::Reassigned(application),
        });
    }

    /// A gateway greets: it hears what the device says from now on.
    pub fn greet(&self, home: GatewayId) {
        self.shared.drive(DeviceEvent::Greeted(home));
    }

    /// A gateway is gone: its requests are forgotten.
    pub fn lose(&self, home: GatewayId) {
        self.shared.drive(DeviceEvent::Lost(home));
    }

    /// A gateway is silent: it is not waited for until it answers again.
    pub fn suspect(&self, home: GatewayId) {
        self.shared.drive(DeviceEvent::Suspected(home));
    }

    /// Takes no more requests, and finishes what it has and what is on its way.
    pub fn leave(&self) {
        self.shared.drive(DeviceEvent::Leave);
    }

    /// Whether nothing runs and nothing waits.
    pub fn has_no_work(&self) -> bool {
        self.shared.state.lock().policy.has_no_work()
    }

    /// Rejects what waits and what still comes.
    pub fn close(&self, reason: DropReason) {
        self.shared.drive(DeviceEvent::Close(reason));
    }

    /// By how much its predictions were wrong since it began.
    pub fn prediction_errors(&self) -> PredictionErrors {
        self.shared.state.lock().policy.prediction_errors().clone()
    }

    /// What became of weights, where they are not all there from the start; and the pages that they have, of all, where they give way.
    pub fn weights(&self) -> Option<(WeightStoreAccount, Option<(u32, u32)>)> {
        let state = self.shared.state.lock();
        let memory = state.policy.memory()?;
        Some((memory.account(), memory.pages()))
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
