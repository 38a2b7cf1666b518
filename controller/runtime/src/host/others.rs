//! The workers of other processes. They join and leave while the host runs.

use std::collections::VecDeque;
use std::sync::Arc;

use spillgate_controller_policy::gateway::Event;
use spillgate_controller_policy::module::ControllerEvent;
use spillgate_pipeline::id::{DeviceId, WorkerId};
use spillgate_protocol::message::{Place, Places};

use super::outbox::Outbox;
use super::{Outgoing, PipelineHost};

/// Workers of other processes, and what is to be sent to their devices. Under the host's lock: so nothing is put into an outbox
/// after its device has left.
#[derive(Default)]
pub(super) struct Others {
    places: Places,
    /// By device. Those of this process have none here.
    outboxes: Vec<Option<Arc<Outbox>>>,
}

impl Others {
    /// Where a worker is.
    pub(super) fn place(&self, worker: WorkerId) -> Option<Place> {
        self.places.get(worker)
    }

    /// What is to be sent to a device; `None` where it has left.
    pub(super) fn outbox(&self, device: DeviceId) -> Option<&Arc<Outbox>> {
        self.outboxes.get(device.idx())?.as_ref()
    }

    fn join(&mut self, place: Place, outbox: impl FnOnce() -> Outbox) {
        self.places.join(place);
        let idx = place.device.idx();
        if self.outboxes.len() <= idx {
            self.outboxes.resize(idx + 1, None);
        }
        // A device with several workers has one.
        self.outboxes[idx].get_or_insert_with(|| Arc::new(outbox()));
    }

    /// A device leaves. Returns what it was not sent yet.
    fn forget(&mut self, device: DeviceId) -> VecDeque<Outgoing> {
        let on_it = self.places.iter().filter(|place| place.device == device);
        let workers: Vec<WorkerId> = on_it.map(|place| place.worker).collect();
        workers.into_iter().for_each(|w| self.places.leave(w));
        let outbox = self.outboxes.get_mut(device.idx()).and_then(Option::take);
        outbox.map_or_else(VecDeque::new, |outbox| outbox.empty())
    }
}

impl PipelineHost {
    /// Workers of another process join. To be called once the host is connected.
    pub fn join(&self, places: &[Place]) {
        self.act(|control, now, effects| {
            for &place in places {
                let elsewhere = &self.outboxes().elsewhere;
                control.others.join(place, || elsewhere.on_same_way());
            }
            self.drive_gateway(control, now, Event::Joined(places), effects);
            for &module in &self.roles.controllers {
                let joined = ControllerEvent::Joined(places.to_vec());
                self.drive_controller(control, now, module, joined, effects);
            }
        });
    }

    /// Devices of another process leave, with their workers. What waits for them is not sent any more, and what comes from them
    /// changes nothing. Their ids may be given to others from now on.
    pub fn forget(&self, devices: &[DeviceId]) {
        // The roles have given up what is in it. Freed without the host's lock.
        let mut unsent = Vec::new();
        self.act(|control, now, effects| {
            for &device in devices {
                self.drive_gateway(control, now, Event::Left(device), effects);
                for &module in &self.roles.controllers {
                    let left = ControllerEvent::Left(device);
                    self.drive_controller(control, now, module, left, effects);
                }
                unsent.extend(control.others.forget(device));
            }
        });
    }

    /// The workers of all processes, in order of id.
    pub fn all_workers(&self) -> Vec<Place> {
        let mut all: Vec<Place> = self.workers.iter().copied().collect();
        all.extend(self.control.lock().others.places.iter());
        all.sort_unstable_by_key(|place| place.worker);
        all
    }
}

#[cfg(test)]
mod tests;
