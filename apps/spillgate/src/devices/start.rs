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
use spillgate_worker::timer::TimerThread;
use spillgate_worker_policy::broker::BrokerConfig;
use spillgate_worker_policy::device;

use super::Device;
use super::fleets;
use crate::device_assignment::AssignedWorker;
use crate::device_reports::DeviceReports;
use crate::device_sharing::DeviceSharing;
use crate::process_context::ProcessContext;
use crate::start_error::StartError;

/// How long before a device is expected to be free its next batch is bound. The device's thread takes a bound batch
/// without a switch, so this covers only how late the timer thread may be.
pub(crate) const BIND_LEAD: Duration = Duration::from_micros(200);

/// A device of this process, to be started.
pub(crate) struct Assigned {
    pub(crate) id: DeviceId,
    /// As this process names it.
    pub(crate) name: String,
    pub(crate) workers: Vec<AssignedWorker>,
}

impl Assigned {
    /// Whether it decodes frames.
    fn decodes(&self) -> bool {
        device_kind(&self.name) == "decode"
    }

    pub(crate) fn brokers(&self) -> Vec<(WorkerId, BrokerConfig)> {
        self.workers.iter().map(AssignedWorker::broker).collect()
    }
}

/// What devices are started with.
#[derive(Clone, Copy)]
pub(crate) struct Starting<'a> {
    pub(crate) context: &'a ProcessContext,
    /// Wakes them.
    pub(crate) timers: &'a TimerThread,
    /// Hears what they report.
    pub(crate) upstream: &'a Arc<DeviceReports>,
}

/// What the start is doing while models of a device are loaded.
pub(crate) fn loading(device: &str) -> String {
    format!("loading what runs on {device}")
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
        starting: &Starting<'_>,
    ) -> Result<Self, StartError> {
        let context = starting.context;
        let sharing = context.sharing.as_ref();
        let mut all = Devices::default();
        let (decoders, serving): (Vec<&Assigned>, Vec<&Assigned>) =
            assigned.iter().partition(|device| device.decodes());
        let names = || serving.iter().map(|device| device.name.as_str());
        if let Some(error) = context.cores.unknown(names()) {
            return Err(error);
        }
        if let Some(error) = sharing.and_then(|sharing| sharing.unknown(names())) {
            return Err(error);
        }
        for device in decoders {
            all.decode(device, starting)?;
        }
        // Without a placement devices keep what they have read.
        let keeping = DeviceSharing {
            decider: Decider::Brokers,
            ..DeviceSharing::default()
        };
        let sharing = sharing.unwrap_or(&keeping);
        for plan in fleets::plan(&serving, planned, &context.library) {
            match sharing.decider.placement() {
                Some(name) => plan.place(name, sharing, starting, &mut all)?,
                None => plan.serve(&serving, sharing, starting, &mut all)?,
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

    fn decode(&mut self, device: &Assigned, starting: &Starting<'_>) -> Result<(), StartError> {
        let Assigned { id, name, workers } = device;
        let context = starting.context;
        (context.progress)(&loading(name));
        let sources = workers.iter().map(|w| &w.spec);
        let sources = sources.map(|spec| (spec.worker, spec.pipeline.clone()));
        let config = DeviceConfig {
            id: *id,
            name: name.clone(),
            models: Models::Decoder(sources.collect()),
            core: context.cores.of(name),
        };
        let policy = device::Device::new(device.brokers(), BIND_LEAD);
        let upstream = starting.upstream.clone();
        let started = brokers::start(config, policy, &context.clock, starting.timers, upstream);
        let (handle, threads) = started.map_err(|cause| StartError::Device {
            device: name.clone(),
            cause,
        })?;
        self.add((*id, name), Device::Own(handle, Arc::default()), threads);
        Ok(())
    }
}
