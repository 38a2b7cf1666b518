//! Starts the devices of a process: decoders, devices whose brokers form the batches, and devices under a placement.

use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use spillgate_controller_policy::plan::Planned;
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::{DeviceId, WorkerId};
use spillgate_pipeline::placement::Decider;
use spillgate_pipeline::profile::device_kind;
use spillgate_worker::device::{DeviceConfig, DeviceThreads, Models, brokers};
use spillgate_worker_policy::broker::BrokerConfig;
use spillgate_worker_policy::device;

use super::Device;
use crate::device_assignment::Placed;
use crate::embedded::StartError;
use crate::fleets::{self, Around, Placing};

/// How long before a device is expected to be free its next batch is bound. The device's thread takes a bound batch
/// without a switch, so this covers only how late the timer thread may be.
pub(crate) const BIND_LEAD: Duration = Duration::from_micros(200);

/// A device of this process, to be started.
pub(crate) struct Assigned {
    pub(crate) id: DeviceId,
    /// As this process names it.
    pub(crate) name: String,
    pub(crate) workers: Vec<Placed>,
}

impl Assigned {
    /// Whether it decodes frames.
    fn decodes(&self) -> bool {
        device_kind(&self.name) == "decode"
    }

    pub(crate) fn brokers(&self) -> Vec<(WorkerId, BrokerConfig)> {
        self.workers.iter().map(Placed::broker).collect()
    }
}

/// The devices of a process, running.
#[derive(Default)]
pub(crate) struct Devices {
    pub(crate) devices: IndexMap<DeviceId, Device, FxBuildHasher>,
    /// By name.
    pub(crate) threads: Vec<(String, DeviceThreads)>,
}

impl Devices {
    /// Starts devices. Returns once what is to be there from the start is loaded.
    ///
    /// # Errors
    /// When a device, model or file is missing or does not fit.
    pub(crate) fn start(
        assigned: &[Assigned],
        planned: impl Fn(&Arc<Pipeline>) -> Arc<Planned>,
        placing: Option<&Placing>,
        around: &Around<'_>,
    ) -> Result<Self, StartError> {
        let mut all = Devices::default();
        let (decoders, serving): (Vec<&Assigned>, Vec<&Assigned>) =
            assigned.iter().partition(|device| device.decodes());
        let names = || serving.iter().map(|device| device.name.as_str());
        if let Some(error) = around.cores.unknown(names()) {
            return Err(error);
        }
        if let Some(error) = placing.and_then(|placing| placing.unknown(names())) {
            return Err(error);
        }
        for device in decoders {
            all.decode(device, around)?;
        }
        // Without a placement devices keep what they have read.
        let keeping = Placing {
            decider: Decider::Brokers,
            ..Placing::default()
        };
        let placing = placing.unwrap_or(&keeping);
        for plan in fleets::plan(&serving, planned, around.library) {
            match placing.decider.placement() {
                Some(name) => plan.place(name, placing, around, &mut all)?,
                None => plan.serve(&serving, placing, around, &mut all)?,
            }
        }
        all.devices.sort_unstable_keys();
        Ok(all)
    }

    pub(crate) fn add(
        &mut self,
        (id, name): (DeviceId, &str),
        device: Device,
        threads: DeviceThreads,
    ) {
        self.devices.insert(id, device);
        self.threads.push((name.to_owned(), threads));
    }

    fn decode(&mut self, device: &Assigned, around: &Around<'_>) -> Result<(), StartError> {
        let Assigned { id, name, workers } = device;
        (around.loading)(name);
        let sources = workers.iter().map(|w| &w.spec);
        let sources = sources.map(|spec| (spec.worker, spec.pipeline.clone()));
        let config = DeviceConfig {
            id: *id,
            name: name.clone(),
            models: Models::Decoder(sources.collect()),
            core: around.cores.of(name),
        };
        let policy = device::Device::new(device.brokers(), BIND_LEAD);
        let upstream = around.upstream.clone();
        let started = brokers::start(config, policy, around.clock, around.timers, upstream);
        let (handle, threads) = started.map_err(|cause| StartError::Device {
            device: name.clone(),
            cause,
        })?;
        self.add((*id, name), Device::Own(handle, Arc::default()), threads);
        Ok(())
    }
}
