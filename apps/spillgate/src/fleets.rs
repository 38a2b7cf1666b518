//! Devices under a placement: which of them form a fleet, which models they serve, and how they are started.
//!
//! Devices of one kind whose workers serve the same modules form a fleet: any of them can run any of its models. Models are
//! told apart by what they are built from: the module's type and options, and its files.

mod host;
mod simulated;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use indexmap::IndexMap;
use spillgate_backend::Backend;
use spillgate_backend::operator::{Library, Operator, OperatorError};
use spillgate_backend::torch::TorchBackend;
use spillgate_controller_policy::fleet::{Fleet, FleetWorker};
use spillgate_controller_policy::placement::{
    DeviceSpec, Model, Placement, PlacementConfig, PlacementName,
};
use spillgate_controller_policy::plan::Planned;
use spillgate_pipeline::action::PAGE_BYTES;
use spillgate_pipeline::id::{DeviceId, MemberId, ModelId, ModuleId};
use spillgate_pipeline::pipeline::Pipeline;
use spillgate_pipeline::profile::{BatchLatency, ModuleProfile, batch_sizes, device_kind};
use spillgate_worker::clock::Clock;
use spillgate_worker::executor::{EXAMPLE_OBJECTS, WorkerSpec};
use spillgate_worker::placed::loader::{EmulatedLoader, ModelSpec, OperatorLoader};
use spillgate_worker::placed::{Loader, LoaderFactory, PlacedConfig, PlacedDevice, WorkerModules};
use spillgate_worker::timer::TimerThread;
use spillgate_worker_policy::actions::Actions;

use crate::embedded::StartError;
use crate::measure::{Effort, LOADS_MEASURED, measure_sizes, timed_load};
use crate::placement::Placed;
use crate::status::MeasuredStatus;
use crate::upstreams::Upstreams;
pub use host::FleetHost;
pub use simulated::{Weights, loads, simulated};

/// Architectures that are measured when a server starts; of others their module's profile is used.
const MEASURED_MAX: usize = 64;
/// Models of an architecture that are tried, while none can be measured.
const FAILURES_MAX: usize = 8;
/// Times that the steps of a model that is measured run.
const STEPS_MEASURED: usize = 5;
/// Bytes that are read a millisecond from a file of which nothing was measured.
const READ_A_MS: u64 = 100_000;
/// The least time of a load of which nothing was measured.
const LOAD_LEAST: Duration = Duration::from_millis(2);

/// How the devices of a server are shared by models.
#[derive(Clone, Debug)]
pub struct Placing {
    /// The placement.
    pub name: PlacementName,
    /// Models get fair shares of device time.
    pub is_fair: bool,
    /// Bytes for weights, by device: `cuda:0`, or `emulated` for each emulated one. Of a device that is not here all fit.
    pub memory: IndexMap<String, u64>,
}

impl Default for Placing {
    fn default() -> Self {
        Placing {
            name: PlacementName::Spillgate,
            is_fair: true,
            memory: IndexMap::new(),
        }
    }
}

impl Placing {
    /// A device that was given memory and serves nothing here, with what would be right.
    pub(crate) fn unknown<'n>(
        &self,
        devices: impl Iterator<Item = &'n str> + Clone,
    ) -> Option<StartError> {
        let is_here = |name: &String| devices.clone().any(|d| d == name || device_kind(d) == name);
        let unknown = self.memory.keys().find(|name| !is_here(name))?;
        let here: Vec<&str> = devices.collect();
        Some(StartError::Device {
            device: unknown.clone(),
            cause: OperatorError::Other(format!(
                "--device gives it memory, but no module runs on it; modules run on {}",
                here.join(", ")
            )),
        })
    }

    /// Pages of a device's cache.
    fn pages(&self, device: &str) -> u32 {
        let memory = self.memory.get(device);
        let memory = memory.or_else(|| self.memory.get(device_kind(device)));
        let pages = memory.map_or(u64::MAX, |bytes| bytes / PAGE_BYTES);
        // A sum of caches is counted in as many bits.
        u32::try_from(pages).unwrap_or(u32::MAX / 4)
    }
}

/// A fleet before its devices are started.
pub(crate) struct FleetPlan {
    kind: String,
    devices: Vec<(DeviceId, String)>,
    workers: Vec<FleetWorker>,
    models: Vec<ModelSpec>,
    /// By model.
    bytes: Vec<u64>,
    /// Those that are loaded from the start, as far as they fit.
    resident: Vec<ModelId>,
    /// By key.
    known: IndexMap<String, ModelId>,
}

/// Which devices form fleets, in order.
pub(crate) fn plan<'p>(
    devices: impl Iterator<Item = (DeviceId, &'p String, &'p Vec<Placed>)>,
    planned: impl Fn(&Arc<Pipeline>) -> Arc<Planned>,
) -> Vec<FleetPlan> {
    type Key = (String, Vec<(String, ModuleId)>);
    let mut fleets: IndexMap<Key, FleetPlan> = IndexMap::new();
    for (id, name, places) in devices {
        let kind = device_kind(name).to_owned();
        let serves = places.iter().map(|p| &p.spec);
        let mut serves: Vec<_> = serves
            .map(|spec| (spec.pipeline.name.clone(), spec.module))
            .collect();
        serves.sort();
        let fleet = fleets.entry((kind.clone(), serves));
        let fleet = fleet.or_insert_with(|| FleetPlan {
            kind,
            devices: Vec::new(),
            workers: Vec::new(),
            models: Vec::new(),
            bytes: Vec::new(),
            resident: Vec::new(),
            known: IndexMap::new(),
        });
        fleet.devices.push((id, name.clone()));
        for place in places {
            let spec = &place.spec;
            let downstream = downstream(&spec.pipeline, &planned(&spec.pipeline), spec.module);
            let models = fleet.models_of(spec);
            let worker = FleetWorker {
                worker: spec.worker,
                module: spec.module,
                models,
                capacity: spec.pipeline.modules[spec.module.idx()].queue,
                background: spec.pipeline.limits.background(),
                downstream,
            };
            fleet.workers.push(worker);
        }
    }
    fleets.into_values().collect()
}

/// Execution time of the modules after one, alone, on the longest path.
fn downstream(pipeline: &Pipeline, planned: &Planned, module: ModuleId) -> Duration {
    let after = pipeline.successors(module).into_iter();
    let through = after.map(|next| {
        let own = planned.execution[next.idx()].first();
        own.copied().unwrap_or_default() + downstream(pipeline, planned, next)
    });
    through.max().unwrap_or_default()
}

impl FleetPlan {
    /// The models of a worker, by member.
    fn models_of(&mut self, spec: &WorkerSpec) -> Vec<ModelId> {
        let module = &spec.pipeline.modules[spec.module.idx()];
        let Some(family) = &module.family else {
            let files = module.variants.iter().map(|v| v.model.as_str());
            let model = self.model(spec, MemberId::default(), files.collect());
            if !self.resident.contains(&model) {
                self.resident.push(model);
            }
            return vec![model];
        };
        let ids = family.ids().zip(&family.members);
        let models = ids.map(|(id, member)| self.model(spec, id, vec![&member.file]));
        let models: Vec<ModelId> = models.collect();
        if let Some(default) = family.default {
            self.resident.push(models[default.idx()]);
        }
        models
    }

    fn model(&mut self, spec: &WorkerSpec, member: MemberId, files: Vec<&str>) -> ModelId {
        let module = &spec.pipeline.modules[spec.module.idx()];
        let paths: Vec<PathBuf> = files.iter().map(|f| real(&spec.base_dir.join(f))).collect();
        let key = format!(
            "{} {:?} {:?} {paths:?} {:?} {}",
            module.op,
            module.options,
            module.variants.iter().map(|v| v.input).collect::<Vec<_>>(),
            spec.pipeline.limits,
            module.served(),
        );
        if let Some(&known) = self.known.get(&key) {
            return known;
        }
        let id = ModelId(self.models.len() as u32);
        self.known.insert(key, id);
        let bytes = paths.iter().filter_map(|p| std::fs::metadata(p).ok());
        self.bytes.push(bytes.map(|m| m.len()).sum());
        self.models.push(ModelSpec {
            worker: spec.clone(),
            member,
        });
        id
    }

    /// Pages of a model's weights.
    fn pages(&self, model: ModelId) -> u32 {
        let pages = self.bytes[model.idx()].div_ceil(PAGE_BYTES);
        u32::try_from(pages).unwrap_or(u32::MAX)
    }

    /// What is loaded from the start: as much as fits.
    fn resident(&self, cache: u32) -> Vec<ModelId> {
        let mut free = cache;
        let fits = self.resident.iter().copied().filter(|&model| {
            let pages = self.pages(model);
            let fits = pages <= free;
            free -= if fits { pages } else { 0 };
            fits
        });
        fits.collect()
    }

    /// The models without which a module cannot serve: others of a family serve without one that does not.
    fn needed(&self) -> impl Iterator<Item = ModelId> {
        let is_needed = |model: &ModelId| self.models[model.idx()].module().family.is_none();
        self.resident.iter().copied().filter(is_needed)
    }

    /// One of these models that fits on no device.
    fn too_large(
        &self,
        placing: &Placing,
        mut models: impl Iterator<Item = ModelId>,
    ) -> Option<StartError> {
        let (_, largest) = self
            .devices
            .iter()
            .map(|(_, name)| (placing.pages(name), name))
            .max()?;
        let most = placing.pages(largest);
        let model = models.find(|model| self.pages(*model) > most)?;
        let module = &self.models[model.idx()].module().name;
        let (needs, mib) = (self.pages(model), PAGE_BYTES >> 20);
        Some(StartError::Device {
            device: largest.clone(),
            cause: OperatorError::Other(format!(
                "the model of module {module} takes {needs} pages of {mib} MiB, and the device has {most} for weights; \
                 give it at least {} MiB: --device {largest},memory={}MiB",
                u64::from(needs) * mib,
                u64::from(needs) * mib,
            )),
        })
    }

    /// What a placement on its devices serves, where models take so long.
    fn config(&self, placing: &Placing, expected: &[Expected]) -> PlacementConfig {
        let largest = self.models.iter().map(|m| m.module().batch.max).max();
        let sizes = batch_sizes(largest.unwrap_or(1));
        let model = |(i, spec): (usize, &ModelSpec)| {
            let Expected {
                load,
                execution,
                prepare,
            } = &expected[i];
            let most = spec.module().batch.max as usize;
            let sizes = sizes
                .iter()
                .take_while(|s| **s as usize <= most.min(execution.len()));
            Model {
                pages: self.pages(ModelId(i as u32)),
                load: *load,
                execution: sizes.map(|s| execution[*s as usize - 1]).collect(),
                input: *prepare,
            }
        };
        let device = |(_, name): &(DeviceId, String)| {
            let pages = placing.pages(name);
            let resident = self.resident(pages);
            DeviceSpec { pages, resident }
        };
        PlacementConfig {
            models: self.models.iter().enumerate().map(model).collect(),
            sizes,
            devices: self.devices.iter().map(device).collect(),
            travel: Duration::ZERO,
            is_fair: placing.is_fair,
        }
    }

    /// How long each model is expected to take, by its architecture. One model of each is measured; emulated devices go by
    /// profiles.
    fn expected(
        &self,
        library: &Arc<Library>,
    ) -> Result<(Vec<Expected>, Vec<MeasuredStatus>), OperatorError> {
        let guess = |(spec, &bytes): (&ModelSpec, &u64)| Expected {
            load: spec.worker.load.unwrap_or_else(|| guessed_load(bytes)),
            execution: spec.worker.execution.clone(),
            prepare: Duration::ZERO,
        };
        let mut expected: Vec<Expected> = self.models.iter().zip(&self.bytes).map(guess).collect();
        if self.kind == "emulated" {
            return Ok((expected, Vec::new()));
        }
        let mut said = Vec::new();
        let mut backend = TorchBackend::new(&self.devices[0].1)?;
        let mut measured: IndexMap<Architecture, Expected> = IndexMap::new();
        let mut failures: IndexMap<Architecture, usize> = IndexMap::new();
        let architectures: Vec<Architecture> = self.models.iter().map(architecture).collect();
        for (spec, architecture) in self.models.iter().zip(&architectures) {
            let failed = failures.get(architecture).copied().unwrap_or(0);
            let is_known = measured.contains_key(architecture) || failed == FAILURES_MAX;
            if !is_known && measured.len() + failures.len() < MEASURED_MAX {
                let of = measured_of(spec, library, &mut backend);
                let (module, model) = (&spec.module().name, spec.name());
                match of {
                    Ok(of) => {
                        let Expected {
                            load, execution, ..
                        } = &of;
                        let ms = |time: &Duration| time.as_secs_f64() * 1e3;
                        said.push(MeasuredStatus {
                            module: module.clone(),
                            model: model.to_owned(),
                            load_ms: ms(load),
                            execution_ms: execution.iter().map(ms).collect(),
                        });
                        tracing::info!(module, model, "measured: one of its architecture");
                        failures.swap_remove(architecture);
                        measured.insert(architecture.clone(), of);
                    }
                    // The file may be damaged: another one of its architecture is measured.
                    Err(error) => {
                        tracing::warn!(module, model, %error, "cannot be measured");
                        failures.insert(architecture.clone(), failed + 1);
                    }
                }
            }
        }
        for (expected, architecture) in expected.iter_mut().zip(&architectures) {
            if let Some(of) = measured.get(architecture) {
                expected.clone_from(of);
            }
        }
        Ok((expected, said))
    }
}

/// How long reading so many bytes is expected to take.
fn guessed_load(bytes: u64) -> Duration {
    LOAD_LEAST + Duration::from_millis(bytes / READ_A_MS)
}

/// How long a model is expected to take.
#[derive(Clone)]
struct Expected {
    load: Duration,
    /// By batch size, from 1.
    execution: Vec<Duration>,
    /// To prepare the input of a request, where that is a step apart from the execution.
    prepare: Duration,
}

/// A module, and of a family the form of the file.
type Architecture = (String, ModuleId, Option<[u8; 32]>);

fn architecture(spec: &ModelSpec) -> Architecture {
    let ModelSpec { worker, member } = spec;
    let form = worker
        .members
        .as_ref()
        .and_then(|members| members.form(*member));
    (worker.pipeline.name.clone(), worker.module, form)
}

/// Loads and runs a model.
fn measured_of(
    spec: &ModelSpec,
    library: &Arc<Library>,
    backend: &mut dyn Backend,
) -> Result<Expected, OperatorError> {
    let ModelSpec { worker, member } = spec;
    if let Some(members) = &worker.members {
        members.check(*member).map_err(OperatorError::Other)?;
    }
    let module = spec.module();
    let (mut operator, load) = timed_load(worker, *member, library, backend, LOADS_MEASURED)?;
    let mut execution = worker.execution.clone();
    if module.family.is_some() {
        let effort = Effort::QUICK;
        let points = measure_sizes(&mut *operator, module, module.served(), effort, &mut |_| {})?;
        // A single batch that was disturbed must not decide.
        let typical = points
            .into_iter()
            .map(|p| BatchLatency { mean: p.p50, ..p });
        let profile = ModuleProfile {
            points: typical.collect(),
            load: None,
        };
        execution = (1..=module.batch.max).map(|n| profile.mean(n)).collect();
    }
    let (prepare, finish) = steps(&mut *operator, module.served());
    for (i, execution) in execution.iter_mut().enumerate() {
        // What was measured has all steps. A profile may come from another machine, so the steps are not taken for most of it.
        let steps = (prepare + finish) * (i as u32 + 1);
        *execution -= steps.min(*execution * 3 / 4);
    }
    Ok(Expected {
        load,
        execution,
        prepare,
    })
}

/// Typical times to prepare the input of a request and to make its outputs; 0 where these are no steps apart.
fn steps(operator: &mut dyn Operator, variant: usize) -> (Duration, Duration) {
    let Some(by) = operator.preparation() else {
        return (Duration::ZERO, Duration::ZERO);
    };
    let inputs = [operator.example(EXAMPLE_OBJECTS)];
    let (mut prepares, mut finishes) = (Vec::new(), Vec::new());
    for _ in 0..STEPS_MEASURED {
        let start = Instant::now();
        let mut pass = Arc::clone(&by).prepare(variant, &inputs);
        prepares.push(start.elapsed());
        pass.forward(|input| operator.forward(variant, input));
        let start = Instant::now();
        let _ = pass.finish();
        finishes.push(start.elapsed());
    }
    prepares.sort_unstable();
    finishes.sort_unstable();
    (prepares[STEPS_MEASURED / 2], finishes[STEPS_MEASURED / 2])
}

/// The file that a path leads to, so that two paths to one file are one model.
fn real(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// A fleet that serves.
pub(crate) struct StartedFleet {
    pub(crate) host: Arc<FleetHost>,
    /// Its devices, as the process numbers and names them.
    pub(crate) devices: Vec<(DeviceId, String, PlacedDevice)>,
}

/// What fleets are started in.
pub(crate) struct Around<'a> {
    pub(crate) clock: Clock,
    pub(crate) timers: &'a TimerThread,
    pub(crate) library: &'a Arc<Library>,
    pub(crate) upstream: &'a Arc<Upstreams>,
    /// The pipeline and module of each worker.
    pub(crate) modules: &'a WorkerModules,
    /// Hears the name of each device before its models are loaded.
    pub(crate) loading: &'a dyn Fn(&str),
}

impl FleetPlan {
    /// Starts the devices and what decides for them.
    ///
    /// # Errors
    /// When a device is missing, or a model that is to be there from the start cannot be loaded or fits nowhere.
    pub(crate) fn start(
        self,
        placing: &Placing,
        around: &Around<'_>,
    ) -> Result<StartedFleet, StartError> {
        if let Some(error) = self.too_large(placing, self.needed()) {
            return Err(error);
        }
        let Around {
            clock,
            timers,
            library,
            upstream,
            modules,
            loading,
        } = around;
        let failed = |device: &str| {
            let device = device.to_owned();
            move |cause| StartError::Device { device, cause }
        };
        let first = self.devices.first().map_or("", |(_, name)| name.as_str());
        loading(first);
        let (expected, measured) = self.expected(library).map_err(failed(first))?;
        let models: Arc<[ModelSpec]> = self.models.clone().into();
        let config = self.config(placing, &expected);
        let fleet = Fleet::new(Placement::new(placing.name, config), self.workers.clone());
        let host = FleetHost::new(fleet, measured, Arc::clone(upstream), *clock, timers);
        let pages: Vec<u32> = (0..models.len() as u32)
            .map(|i| self.pages(ModelId(i)))
            .collect();
        let mut started = Vec::new();
        for (i, (id, name)) in self.devices.iter().enumerate() {
            loading(name);
            let cache = placing.pages(name);
            let resident = self.resident(cache);
            let config = PlacedConfig {
                id: DeviceId(i as u16),
                name: name.clone(),
                actions: Actions::new(cache, pages.clone(), &resident),
                resident,
                modules: (*modules).clone(),
            };
            let loader = loader(&self.kind, name.clone(), library, &models, &expected);
            let device = PlacedDevice::start(config, *clock, timers, host.clone(), loader)
                .map_err(failed(name))?;
            started.push((*id, name.clone(), device));
        }
        host.connect(
            started
                .iter()
                .map(|(_, _, device)| device.handle())
                .collect(),
        );
        Ok(StartedFleet {
            host,
            devices: started,
        })
    }
}

fn loader(
    kind: &str,
    name: String,
    library: &Arc<Library>,
    models: &Arc<[ModelSpec]>,
    expected: &[Expected],
) -> LoaderFactory {
    let (library, models) = (library.clone(), models.clone());
    if kind == "emulated" {
        let loads: Arc<[Duration]> = expected.iter().map(|e| e.load).collect();
        return Box::new(move || {
            Ok(Box::new(EmulatedLoader::new(library, models, loads)) as Box<dyn Loader>)
        });
    }
    let backend =
        Box::new(move || TorchBackend::new(&name).map(|b| Box::new(b) as Box<dyn Backend>));
    Box::new(move || {
        let loader = OperatorLoader::new(backend, library, models)?;
        Ok(Box::new(loader) as Box<dyn Loader>)
    })
}
