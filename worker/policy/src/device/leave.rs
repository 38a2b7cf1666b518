//! How a device ends: its process is about to end, or rejects everything.

use spillgate_pipeline::id::GatewayId;
use spillgate_pipeline::request::DropReason;
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::ToGateway;

use super::{Device, DeviceCommand, drain_rejected};

impl<T> Device<T> {
    pub(super) fn depart(&mut self, out: &mut Vec<DeviceCommand<T>>) {
        self.is_leaving = true;
        self.profiler.clear();
        self.loads.clear();
        for gateway in self.gateways.ids() {
            self.say_leave(gateway, out);
        }
    }

    pub(super) fn say_leave(&self, gateway: GatewayId, out: &mut Vec<DeviceCommand<T>>) {
        let workers = self.workers.keys();
        let known = workers.filter(|worker| self.gateways.knows(gateway, **worker));
        out.extend(known.map(|&worker| DeviceCommand::Tell {
            worker,
            gateway,
            message: ToGateway::Leaves(worker),
        }));
    }

    pub(super) fn close(
        &mut self,
        now: Timestamp,
        reason: DropReason,
        out: &mut Vec<DeviceCommand<T>>,
    ) {
        self.closed = Some(reason);
        self.profiler.clear();
        self.loads.clear();
        for (&worker, broker) in &mut self.workers {
            broker.reject_all(now, reason, &mut self.rejected);
            drain_rejected(worker, &mut self.rejected, out);
        }
    }
}
