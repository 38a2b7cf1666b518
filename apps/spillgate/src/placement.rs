//! Which workers there are, and on which devices.
//!
//! A module's workers are spread over its devices in turn. `auto` is the first GPU, else the CPU; `emulated`
//! is an emulated device of its own for each worker, `emulated:N` one that is shared. Frames are decoded on
//! devices of their own, `decode:N`, whose worker is the module `source`.
//!
//! Workers beyond `workers: min`, up to `max`, start when the load asks for them. Each of them is on a device of its
//! own: a second one on the same device would bring nothing.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use spillgate_backend::torch;
use spillgate_controller::host::Worker;
use spillgate_controller_policy::planner::Planned;
use spillgate_controller_policy::scaling::{COOL_DOWN_DEFAULT, ScalingConfig};
use spillgate_pipeline::catalog::ValueType;
use spillgate_pipeline::id::{ModuleId, WorkerId};
use spillgate_pipeline::pipeline::Module;
use spillgate_worker::executor::WorkerSpec;
use spillgate_worker_policy::schedule::SchedulerConfig;

use crate::embedded::Deployment;
use crate::planning::{self, NoProfile, NoSchedule};

/// The resolved name of a device: `auto`, `cpu` and `cuda` get their ordinal.
pub fn resolve_device(name: &str) -> String {
    match name {
        "auto" => torch::auto(),
        "cpu" => "cpu:0".to_owned(),
        "cuda" => "cuda:0".to_owned(),
        other => other.to_owned(),
    }
}

/// The devices of a module's workers, the first `workers: min` of which serve from the start. `n_emulated` counts the
/// emulated devices that belong to one worker.
pub fn worker_devices(module: &Module, n_emulated: &mut usize) -> Vec<String> {
    let mut devices: Vec<String> = Vec::new();
    for i in 0..module.workers.max as usize {
        let device = match module.devices[i % module.devices.len()].as_str() {
            "emulated" => {
                *n_emulated += 1;
                format!("emulated:own{}", *n_emulated - 1)
            }
            name => resolve_device(name),
        };
        if i < module.workers.min as usize || !devices.contains(&device) {
            devices.push(device);
        }
    }
    devices
}

/// How a pipeline's workers follow the load between `workers: min` and as many as there are, by module; `None` when
/// there are no more than that.
pub fn scaling(planned: &Planned, least: Vec<u32>, most: Vec<u32>) -> Option<ScalingConfig> {
    let throughput = |module: usize| {
        let execution = planned.duration(ModuleId(module as u16));
        f64::from(planned.batch[module]) / execution.as_secs_f64()
    };
    (least != most).then(|| ScalingConfig {
        throughput: (0..most.len()).map(throughput).collect(),
        least,
        most,
        cool_down: COOL_DOWN_DEFAULT,
    })
}

/// Whether no two modules share a device: modules and devices of workers.
pub fn alone<D: Eq + Hash>(mut workers: impl Iterator<Item = (usize, D)>) -> bool {
    let mut of_device: HashMap<D, usize> = HashMap::new();
    workers.all(|(module, device)| *of_device.entry(device).or_insert(module) == module)
}

/// Why workers cannot be placed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlacingError {
    /// A module that would run for an unknown time.
    #[error(
        "{0}; an emulated device needs one in the profile file beside the pipeline; for real devices \
         `spillgate profile` measures it"
    )]
    NoProfile(#[from] NoProfile),
    /// A scheduler that cannot be had.
    #[error(transparent)]
    NoSchedule(#[from] NoSchedule),
}

/// A worker on its device.
pub(crate) struct Place {
    pub(crate) spec: WorkerSpec,
    /// Requests in a batch.
    pub(crate) batch: u32,
    /// Forms its batches, where the module names a scheduler.
    pub(crate) schedule: Option<SchedulerConfig>,
}

/// All workers of a server.
#[derive(Default)]
pub(crate) struct Placement {
    /// Device name -> its workers.
    pub(crate) devices: IndexMap<String, Vec<Place>>,
    /// By pipeline.
    pub(crate) workers: Vec<Vec<Worker>>,
    pub(crate) planned: Vec<Arc<Planned>>,
    pub(crate) scaling: Vec<Option<ScalingConfig>>,
    next_worker: u32,
}

/// A worker to be: its module, its device, its execution times, and whether it serves from the start.
struct Wanted {
    module: ModuleId,
    device: String,
    execution: Vec<Duration>,
    from_start: bool,
}

/// Places the workers of all pipelines.
///
/// # Errors
/// When a module has no execution times.
pub(crate) fn place(
    deployments: &[Deployment],
    n_decoders: usize,
) -> Result<Placement, PlacingError> {
    let mut placement = Placement::default();
    let mut n_emulated = 0;
    for deployment in deployments {
        let pipeline = &deployment.pipeline;
        let mut execution = vec![planning::source_execution(pipeline)];
        let mut wanted: Vec<Wanted> = Vec::new();
        let (mut least, mut most) = (vec![0], vec![0]);
        if pipeline.source.ty == ValueType::Image {
            wanted.extend((0..n_decoders).map(|i| Wanted {
                module: ModuleId::SOURCE,
                device: format!("decode:{i}"),
                execution: execution[ModuleId::SOURCE.idx()].clone(),
                from_start: true,
            }));
            let n_decoders = n_decoders as u32;
            (least[0], most[0]) = (n_decoders, n_decoders);
        }
        for module in &pipeline.modules[1..] {
            let devices = worker_devices(module, &mut n_emulated);
            if devices.len() < module.workers.max as usize {
                tracing::info!(
                    module = module.name,
                    "never gets more workers than {} of its workers.max {}: list more under device: for more",
                    devices.len(),
                    module.workers.max
                );
            }
            least.push(module.workers.min);
            most.push(devices.len() as u32);
            for (i, device) in devices.into_iter().enumerate() {
                let times = planning::execution_times(module, &device, &deployment.profiles)?;
                if i == 0 {
                    // One plan a module: by its first worker, where kinds of devices are mixed.
                    execution.push(times.clone());
                }
                wanted.push(Wanted {
                    module: module.id,
                    device,
                    execution: times,
                    from_start: i < module.workers.min as usize,
                });
            }
        }
        let modules = wanted.iter().filter(|w| w.from_start);
        let workers =
            alone(modules.map(|w| (w.module.idx(), w.device.as_str()))).then(|| least.clone());
        let name = pipeline.policy.drop.recipe().plan;
        let (planned, problem) = planning::planned(pipeline, execution, name, workers);
        if let Some(problem) = problem {
            tracing::warn!(pipeline = pipeline.name, %problem, "requests will be late or dropped");
        }
        let mut workers = Vec::new();
        for wanted in wanted {
            let batch = planned.batch[wanted.module.idx()];
            let module = &pipeline.modules[wanted.module.idx()];
            let schedule = planning::scheduler(module, &wanted.execution, batch)?;
            workers.push(placement.add(deployment, wanted, batch, schedule));
        }
        placement.workers.push(workers);
        placement.scaling.push(scaling(&planned, least, most));
        placement.planned.push(Arc::new(planned));
    }
    Ok(placement)
}

impl Placement {
    fn add(
        &mut self,
        deployment: &Deployment,
        wanted: Wanted,
        batch: u32,
        schedule: Option<SchedulerConfig>,
    ) -> Worker {
        let worker = WorkerId(self.next_worker);
        self.next_worker += 1;
        let spec = WorkerSpec {
            worker,
            pipeline: deployment.pipeline.clone(),
            base_dir: deployment.base_dir.clone(),
            module: wanted.module,
            execution: wanted.execution,
            from_start: wanted.from_start,
        };
        let known = self.devices.get_index_of(&wanted.device);
        let link = known.unwrap_or(self.devices.len());
        let place = Place {
            spec,
            batch,
            schedule,
        };
        self.devices.entry(wanted.device).or_default().push(place);
        Worker {
            id: worker,
            module: wanted.module,
            link,
        }
    }
}
