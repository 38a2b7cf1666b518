//! Who may tell a device what. Gateways and controllers check their messages themselves; a device leaves it to its driver.

use super::{Address, Places, ToDevice};
use spillgate_pipeline::id::{RequestId, WorkerId};

impl<L> ToDevice<L> {
    /// Whether the message is its sender's to say: a gateway speaks for its own requests, a controller for the workers of its
    /// module. The driver of a device ignores other messages, and counts them.
    pub fn is_for(&self, from: Address, places: &Places) -> bool {
        let is_owner = |request: &RequestId| from == Address::Gateway(request.owner());
        let is_controller = |worker: &WorkerId| {
            let place = places.get(*worker);
            place.is_some_and(|place| from == Address::Controller(place.module))
        };
        match self {
            ToDevice::Requests(arrivals) => arrivals.iter().all(|a| is_owner(&a.request.id)),
            ToDevice::Answer(answer) => {
                matches!(from, Address::Gateway(_))
                    && answer.requests.iter().all(|o| is_owner(&o.request.id))
            }
            ToDevice::Cancel(_, request) | ToDevice::Withdraw(_, request, _) => is_owner(request),
            ToDevice::Reassigned(_) => matches!(from, Address::Gateway(_)),
            ToDevice::Guide(worker, _) | ToDevice::Load(worker) | ToDevice::Unload(worker) => {
                is_controller(worker)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Place;
    use spillgate_pipeline::id::{DeviceId, GatewayId, Incarnation, ModuleId};

    #[test]
    fn a_gateway_speaks_for_its_requests_and_a_controller_for_its_workers() {
        let place = Place {
            worker: WorkerId(0),
            module: ModuleId(1),
            device: DeviceId(0),
        };
        let places = Places::new(&[place]);
        let request = RequestId::at(GatewayId(1), Incarnation(0), 5);
        let cancel = ToDevice::<()>::Cancel(WorkerId(0), request);
        assert!(cancel.is_for(Address::Gateway(GatewayId(1)), &places));
        assert!(!cancel.is_for(Address::Gateway(GatewayId(0)), &places));
        let load = |worker| ToDevice::<()>::Load(WorkerId(worker));
        assert!(load(0).is_for(Address::Controller(ModuleId(1)), &places));
        assert!(!load(0).is_for(Address::Controller(ModuleId(2)), &places));
        assert!(!load(1).is_for(Address::Controller(ModuleId(1)), &places));
    }
}
