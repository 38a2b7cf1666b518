//! The devices of a process, whether they decide themselves or are under a placement.

pub mod fleets;
pub(crate) mod measured;
pub(crate) mod start;

use std::sync::Arc;

use spillgate_pipeline::id::{GatewayId, WorkerId};
use spillgate_pipeline::predict::{ActionKind, ErrorSummary};
use spillgate_pipeline::request::DropReason;
use spillgate_process::job::Job;
use spillgate_protocol::message::{Address, ToDevice};
use spillgate_telemetry::metrics::{DeviceReading, ErrorReading, RefusedReading, WeightsReading};
use spillgate_worker::device::actions::PlacedHandle;
use spillgate_worker::device::brokers::DeviceHandle;

use fleets::FleetHost;
use measured::MeasuredStatus;

/// Reaches a device. Cheap to clone.
#[derive(Clone)]
pub enum Device {
    /// Its own policy forms batches. Where weights give way to each other: how long its models take, as measured when it started.
    Own(DeviceHandle, Arc<[MeasuredStatus]>),
    /// A placement sends it actions.
    Placed(PlacedHandle, Arc<FleetHost>),
}

impl Device {
    /// Takes in a message.
    pub(crate) fn tell(&self, from: Address, message: ToDevice<Arc<Job>>) {
        match self {
            Device::Own(device, _) => device.tell(from, message),
            Device::Placed(_, fleet) => fleet.tell(message),
        }
    }

    /// A gateway greets: it hears what the device says of these workers, those of its pipeline, from now on. What a fleet says to one of
    /// the workers of others goes nowhere.
    pub(crate) fn greet(&self, home: GatewayId, workers: &[WorkerId]) {
        match self {
            Device::Own(device, _) => device.greet(home, workers),
            Device::Placed(_, fleet) => fleet.greet(home),
        }
    }

    /// A gateway is gone: its requests are forgotten.
    pub(crate) fn lose(&self, home: GatewayId) {
        match self {
            Device::Own(device, _) => device.lose(home),
            Device::Placed(_, fleet) => fleet.lose(home),
        }
    }

    /// A gateway is silent: it is not waited for until it answers again. A fleet waits for none.
    pub(crate) fn suspect(&self, home: GatewayId) {
        if let Device::Own(device, _) = self {
            device.suspect(home);
        }
    }

    /// Takes no more requests, and finishes what it has and what is on its way.
    pub(crate) fn leave(&self) {
        match self {
            Device::Own(device, _) => device.leave(),
            Device::Placed(_, fleet) => fleet.leave(),
        }
    }

    /// Rejects what waits and what still comes, because the process ends.
    pub(crate) fn close(&self) {
        match self {
            Device::Own(device, _) => device.close(DropReason::Draining),
            Device::Placed(_, fleet) => fleet.close(DropReason::Draining),
        }
    }

    /// Whether nothing runs and nothing waits.
    pub(crate) fn has_no_work(&self) -> bool {
        match self {
            Device::Own(device, _) => device.has_no_work(),
            Device::Placed(_, fleet) => fleet.has_no_work(),
        }
    }

    /// Whether its threads live.
    pub fn is_alive(&self) -> bool {
        match self {
            Device::Own(device, _) => device.is_alive(),
            Device::Placed(device, _) => device.is_alive(),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Device::Own(device, _) => device.name(),
            Device::Placed(device, _) => device.name(),
        }
    }

    /// What its models take, as measured when it started, where memory holds some of them.
    pub(crate) fn measured(&self) -> &[MeasuredStatus] {
        match self {
            Device::Own(_, measured) => measured,
            Device::Placed(_, fleet) => fleet.measured(),
        }
    }

    /// What it did since it began, for metrics and its status.
    pub(crate) fn reading(&self) -> DeviceReading {
        let workspaces = self.measured().iter().map(|of| of.workspace_bytes);
        let workspace = workspaces.max().flatten();
        let (weights, errors) = match self {
            Device::Own(device, _) => {
                let weights = device.weights().map(|(account, pages)| WeightsReading {
                    pages: pages.map(|(taken, _)| taken),
                    pages_limit: pages.map(|(_, all)| all),
                    workspace,
                    batches: account.batches,
                    cold: account.cold,
                    loads: account.loads,
                    failed_loads: account.failed_loads,
                    unloads: account.unloads,
                    refused: RefusedReading::default(),
                });
                (weights, device.prediction_errors())
            }
            Device::Placed(device, fleet) => {
                let (account, (pages, pages_limit)) = fleet.account(device.id());
                let refused = account.refused;
                let weights = WeightsReading {
                    pages: Some(pages),
                    pages_limit: Some(pages_limit),
                    workspace,
                    batches: account.batches,
                    cold: account.cold,
                    loads: account.loads,
                    failed_loads: account.failed_loads,
                    unloads: account.unloads,
                    refused: RefusedReading {
                        late_batches: refused.late_batches,
                        late_loads: refused.late_loads,
                        not_loaded: refused.not_loaded,
                        no_pages: refused.no_pages,
                    },
                };
                (Some(weights), account.errors)
            }
        };
        let of = |action: ActionKind| {
            let name = action.name();
            let [duration, completion] = [errors.durations(action), errors.completions(action)];
            [
                duration.map(|summary| reading(name, "duration", &summary)),
                completion.map(|summary| reading(name, "completion", &summary)),
            ]
        };
        let errors = ActionKind::ALL.into_iter().flat_map(of).flatten();
        DeviceReading {
            device: self.name().to_owned(),
            weights,
            errors: errors.collect(),
        }
    }

    /// Requests that wait at a worker.
    pub(crate) fn waiting(&self, worker: WorkerId) -> usize {
        match self {
            Device::Own(device, _) => device.waiting(worker),
            Device::Placed(_, fleet) => fleet.waiting(worker),
        }
    }
}

fn reading(action: &'static str, of: &'static str, errors: &ErrorSummary) -> ErrorReading {
    let seconds = |ns: i64| ns as f64 / 1e9;
    ErrorReading {
        action,
        of,
        quantiles: [
            ("0.01", seconds(errors.p1_ns)),
            ("0.5", seconds(errors.p50_ns)),
            ("0.99", seconds(errors.p99_ns)),
        ],
    }
}
