//! Workers on their devices: makes the decisions of [`PlacedWorkers`] ready to be started.

use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use spillgate_controller_policy::plan::{PlacedWorkers, Planned};
use spillgate_controller_policy::scaling::ScalingConfig;
use spillgate_pipeline::execution::{ExecutionTimes, ModuleExecution};
use spillgate_pipeline::id::{DeviceId, ModuleId, WorkerId};
use spillgate_pipeline::pipeline::{Module, Pipeline};
use spillgate_pipeline::profile::{NoProfile, ProfileSet};
use spillgate_protocol::membership::{MemberDevice, MemberWorker};
use spillgate_protocol::message::Place;
use spillgate_protocol::topology::Process;
use spillgate_worker::operators::WorkerSpec;
use spillgate_worker_policy::broker::BrokerConfig;
use spillgate_worker_policy::schedule::SchedulerConfig;

use crate::deployment::Deployment;
use crate::device_name::resolve_device;
use crate::process_role::{KnownBy, ProcessRole};
use crate::start_error::PlacingError;

/// In a list of devices: one of the worker's own, in emulated time.
const EMULATED: &str = "emulated";

/// The execution times that a pipeline is planned with: of each module on its first device, where kinds of devices are
/// mixed.
///
/// # Errors
/// When no profile knows a variant that serves.
pub fn execution_times(
    pipeline: &Pipeline,
    profiles: &ProfileSet,
) -> Result<ExecutionTimes, NoProfile> {
    let first = |module: &Module| resolve_device(&module.devices[0]);
    ExecutionTimes::of(pipeline, profiles, first)
}

/// The workers of processes of a set, each with the number of its emulated devices so far. All serve from the start.
fn of_processes<'a>(
    pipeline: &Pipeline,
    processes: impl Iterator<Item = (&'a Process, usize)>,
) -> PlacedWorkers {
    let mut devices = vec![Vec::new(); pipeline.modules.len()];
    for (process, mut n_own) in processes {
        for (module, device) in workers_of(process, &mut n_own) {
            devices[module.idx()].push(device);
        }
    }
    PlacedWorkers {
        least: devices
            .iter()
            .map(|d: &Vec<String>| d.len() as u32)
            .collect(),
        devices,
    }
}

/// The workers of a process of a set, each with the name of its device there. `n_own`: of its emulated devices, of which each worker has
/// one.
fn workers_of(process: &Process, n_own: &mut usize) -> impl Iterator<Item = (ModuleId, String)> {
    let workers = process.workers.iter();
    let workers = workers.flat_map(|(module, of)| of.iter().map(move |device| (*module, device)));
    workers.map(move |(module, device)| {
        let device = match device.as_str() {
            EMULATED => {
                *n_own += 1;
                format!("emulated:own{}", *n_own - 1)
            }
            name => resolve_device(name),
        };
        (module, device)
    })
}

/// The devices of a process of a topology, as it will greet with them.
pub(crate) fn devices_of(process: &Process) -> Vec<MemberDevice> {
    let mut devices: IndexMap<String, Vec<MemberWorker>> = IndexMap::new();
    for (module, device) in workers_of(process, &mut 0) {
        devices.entry(device).or_default().push(module.into());
    }
    let devices = devices.into_iter();
    let devices = devices.map(|(name, workers)| MemberDevice {
        name: name.into(),
        workers,
    });
    devices.collect()
}

/// A worker on its device.
pub(crate) struct AssignedWorker {
    pub(crate) spec: WorkerSpec,
    /// Requests in a batch.
    pub(crate) batch: u32,
    /// Forms its batches, where the module names a scheduler.
    pub(crate) schedule: Option<SchedulerConfig>,
}

impl AssignedWorker {
    /// How the worker's requests wait and form batches.
    pub(crate) fn broker(&self) -> (WorkerId, BrokerConfig) {
        let (spec, schedule) = (&self.spec, self.schedule.clone());
        let execution = spec.execution.clone();
        let config = BrokerConfig::of(&spec.pipeline, spec.module, self.batch, execution, schedule);
        (spec.worker, config)
    }
}

/// All workers of a server.
#[derive(Default)]
pub(crate) struct WorkerAssignment {
    /// Device name -> its workers.
    pub(crate) devices: IndexMap<String, Vec<AssignedWorker>>,
    /// By pipeline.
    pub(crate) workers: Vec<Vec<Place>>,
    pub(crate) planned: Vec<Arc<Planned>>,
    pub(crate) scaling: Vec<Option<ScalingConfig>>,
    next_worker: u32,
}

/// Places the workers of all pipelines.
///
/// # Errors
/// When a module has no execution times.
pub(crate) fn place(
    deployments: &[Deployment],
    n_decoders: usize,
    role: Option<&ProcessRole>,
) -> Result<WorkerAssignment, PlacingError> {
    let mut placement = WorkerAssignment::default();
    let mut n_emulated = 0;
    for deployment in deployments {
        let pipeline = &deployment.pipeline;
        // Those that the plan counts on.
        let of = role.and_then(|role| Some((&role.known_by, role.of(&pipeline.name)?)));
        let counted = match of {
            Some((KnownBy::Topology, of)) => {
                of_processes(pipeline, of.topology.processes.iter().map(|of| (of, 0)))
            }
            // Workers come and go. The pipeline file says how many there should be.
            Some((KnownBy::Controllers(_), _)) => {
                PlacedWorkers::of(pipeline, 1, resolve_device, &mut 0)
            }
            None => {
                let workers =
                    PlacedWorkers::of(pipeline, n_decoders, resolve_device, &mut n_emulated);
                tell_shortage(pipeline, &workers);
                workers
            }
        };
        let workers = of.map(|(_, of)| {
            let here = of.process();
            let workers = of_processes(pipeline, std::iter::once((here, n_emulated)));
            let own = here.workers.iter().flat_map(|(_, devices)| devices);
            n_emulated += own.filter(|device| *device == EMULATED).count();
            workers
        });
        let workers = workers.as_ref().unwrap_or(&counted);
        let first = |module: &Module| {
            let own = workers.devices[module.id.idx()].first();
            let device = own.or_else(|| counted.devices[module.id.idx()].first());
            device.map_or_else(|| resolve_device(&module.devices[0]), String::clone)
        };
        let execution = ExecutionTimes::of(pipeline, &deployment.profiles, first)?;
        let execution = execution.with_decoding(pipeline);
        let name = pipeline.policy.recipe().plan;
        let (planned, problem) = counted.plan(name, pipeline, execution);
        if let Some(problem) = problem {
            tracing::warn!(pipeline = pipeline.name, %problem, "requests will be late or dropped");
        }
        let mut places = Vec::new();
        for (module, devices) in pipeline.modules.iter().zip(&workers.devices) {
            for (i, device) in devices.iter().enumerate() {
                let execution = match module.id {
                    ModuleId::SOURCE => planned.execution.of_module(ModuleId::SOURCE).clone(),
                    _ => ModuleExecution::of(module, device, &deployment.profiles)?,
                };
                let batch = planned.batch[module.id.idx()];
                let schedule = SchedulerConfig::of(module, execution.served(), batch)?;
                let spec = WorkerSpec {
                    worker: WorkerId(placement.next_worker),
                    pipeline: pipeline.clone(),
                    base_dir: deployment.base_dir.clone(),
                    module: module.id,
                    execution,
                    from_start: i < workers.least[module.id.idx()] as usize,
                    members: deployment.families.members(module.id),
                    load: load(module, device, &deployment.profiles),
                };
                let placed = AssignedWorker {
                    spec,
                    batch,
                    schedule,
                };
                places.push(placement.add(device, placed));
            }
        }
        placement.workers.push(places);
        placement
            .scaling
            .push(match role.map(|role| &role.known_by) {
                Some(KnownBy::Controllers(_)) => {
                    Some(PlacedWorkers::scaling_of_registered(pipeline, &planned))
                }
                Some(KnownBy::Topology) => counted.scaling_of_topology(pipeline, &planned),
                None => counted.scaling(&planned),
            });
        placement.planned.push(Arc::new(planned));
    }
    Ok(placement)
}

/// How long reading a model of that module takes, where its profile says so.
pub(crate) fn load(module: &Module, device: &str, profiles: &ProfileSet) -> Option<Duration> {
    let profile = profiles.of(module, module.served(), device).ok()??;
    profile.load
}

/// Says which modules can never get the workers that their file allows.
fn tell_shortage(pipeline: &Pipeline, workers: &PlacedWorkers) {
    for (module, most) in pipeline.modules.iter().zip(workers.most()).skip(1) {
        if most < module.workers.max {
            tracing::info!(
                module = module.name,
                "never gets more workers than {most} of its workers.max {}: list more under device: for more",
                module.workers.max
            );
        }
    }
}

impl WorkerAssignment {
    /// Puts the next worker on a device.
    fn add(&mut self, device: &str, placed: AssignedWorker) -> Place {
        self.next_worker += 1;
        let (worker, module) = (placed.spec.worker, placed.spec.module);
        let known = self.devices.get_index_of(device);
        let ordinal = known.unwrap_or(self.devices.len());
        self.devices
            .entry(device.to_owned())
            .or_default()
            .push(placed);
        Place {
            worker,
            module,
            device: DeviceId(ordinal as u16),
        }
    }
}
