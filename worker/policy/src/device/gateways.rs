//! The gateways that a device knows, each with the workers that it hears of. Where workers of several pipelines share the device, a
//! gateway knows those of its own.

use spillgate_pipeline::id::{GatewayId, WorkerId};

/// The gateways that are there, in the order in which they greeted.
#[derive(Debug, Default)]
pub(super) struct Gateways(Vec<(GatewayId, Vec<WorkerId>)>);

impl Gateways {
    /// A gateway greets. False where it has before.
    pub(super) fn greet(&mut self, gateway: GatewayId, workers: &[WorkerId]) -> bool {
        let is_new = self.ids().all(|of| of != gateway);
        if is_new {
            self.0.push((gateway, workers.to_vec()));
        }
        is_new
    }

    pub(super) fn lose(&mut self, gateway: GatewayId) {
        self.0.retain(|(of, _)| *of != gateway);
    }

    pub(super) fn ids(&self) -> impl ExactSizeIterator<Item = GatewayId> {
        self.0.iter().map(|(gateway, _)| *gateway)
    }

    /// Whether a gateway is there and hears of a worker.
    pub(super) fn knows(&self, gateway: GatewayId, worker: WorkerId) -> bool {
        self.of(worker).any(|of| of == gateway)
    }

    /// Those that hear of a worker.
    pub(super) fn of(&self, worker: WorkerId) -> impl Iterator<Item = GatewayId> {
        let of = self
            .0
            .iter()
            .filter(move |(_, workers)| workers.contains(&worker));
        of.map(|(gateway, _)| *gateway)
    }
}
