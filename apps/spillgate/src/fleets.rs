//! Devices under a placement: which of them form a fleet, which models they serve, and how they are started.
//!
//! Devices of one kind whose workers serve the same modules form a fleet: any of them can run any of its models. Models are
//! told apart by what they are built from: the module's type and options, and the content of its files.

mod contents;
mod expected;
mod host;
mod simulated;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use spillgate_backend::Backend;
use spillgate_backend::operator::{Library, OperatorError};
use spillgate_backend::torch::TorchBackend;
use spillgate_controller_policy::fleet::{Fleet, FleetWorker};
use spillgate_controller_policy::placement::{DeviceSpec, Model, Placement, PlacementConfig};
use spillgate_controller_policy::plan::Planned;
use spillgate_pipeline::action::PAGE_BYTES;
use spillgate_pipeline::id::{DeviceId, MemberId, ModelId, ModuleId, VariantId};
use spillgate_pipeline::pipeline::Pipeline;
use spillgate_pipeline::placement::PlacementName;
use spillgate_pipeline::profile::{batch_sizes, device_kind};
use spillgate_worker::clock::Clock;
use spillgate_worker::executor::WorkerSpec;
use spillgate_worker::listed::ListedFile;
use spillgate_worker::placed::loader::{EmulatedLoader, ModelSpec, OperatorLoader, Source};
use spillgate_worker::placed::{Loader, LoaderFactory, PlacedConfig, PlacedDevice, WorkerModules};
use spillgate_worker::timer::TimerThread;
use spillgate_worker_policy::actions::Actions;

use crate::beside::option_files;
use crate::embedded::StartError;
use crate::placement::Placed;
use crate::upstreams::Upstreams;
use contents::{ContentId, Contents};
use expected::{Expected, guessed_load};
pub use host::FleetHost;
pub use simulated::{Weights, loads, simulated};

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
    pub fn unknown<'n>(
        &self,
        devices: impl Iterator<Item = &'n str> + Clone,
    ) -> Option<StartError> {
        let is_here = |name: &String| devices.clone().any(|d| d == name || device_kind(d) == name);
        let unknown = self.memory.keys().find(|name| !is_here(name))?;
        let here: Vec<&str> = devices.collect();
        Some(StartError::Device {
            device: unknown.clone(),
            cause: OperatorError::Other(format!(
                "memory for weights is given for it, but no module runs on it; modules run on {}",
                here.join(", ")
            )),
        })
    }

    /// Bytes for weights of a device; `None`: all that it is given fits.
    pub fn memory_of(&self, device: &str) -> Option<u64> {
        let memory = self.memory.get(device);
        memory
            .or_else(|| self.memory.get(device_kind(device)))
            .copied()
    }

    /// Pages of a device's cache.
    fn pages(&self, device: &str) -> u32 {
        let pages = self
            .memory_of(device)
            .map_or(u64::MAX, |bytes| bytes / PAGE_BYTES);
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
    /// By what they are built from.
    known: IndexMap<Built, ModelId>,
    /// The models of each module, by member.
    of_modules: IndexMap<(String, ModuleId), Vec<ModelId>>,
}

/// What a model is built from: type, options and bounds of a module, and the contents of its files.
type Built = (String, Vec<Vec<(String, ContentId)>>);

/// Which devices form fleets, in order.
pub(crate) fn plan<'p>(
    devices: impl Iterator<Item = (DeviceId, &'p str, &'p Vec<Placed>)>,
    planned: impl Fn(&Arc<Pipeline>) -> Arc<Planned>,
    library: &Library,
) -> Vec<FleetPlan> {
    type Key = (String, Vec<(String, ModuleId)>);
    let mut contents = Contents::default();
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
            of_modules: IndexMap::new(),
        });
        fleet.devices.push((id, name.to_owned()));
        for place in places {
            let spec = &place.spec;
            let downstream = downstream(&spec.pipeline, &planned(&spec.pipeline), spec.module);
            let models = fleet.models_of(spec, library, &mut contents);
            let worker = FleetWorker {
                worker: spec.worker,
                module: spec.module,
                models,
                by_variant: chooses_variants(spec),
                capacity: spec.pipeline.modules[spec.module.idx()].queue,
                background: spec.pipeline.limits.background(),
                downstream,
            };
            fleet.workers.push(worker);
        }
    }
    let n = contents.uncompared();
    if n > 0 {
        tracing::warn!(
            "{n} files of models may equal others, and are models of their own: too many or too large to be compared"
        );
    }
    fleets.into_values().collect()
}

/// Whether the variants of a worker's module are chosen request by request.
fn chooses_variants(spec: &WorkerSpec) -> bool {
    spec.pipeline.adapted() == Some(spec.module)
}

/// The worker, had its module that variant alone.
fn with_variant(spec: &WorkerSpec, variant: VariantId) -> WorkerSpec {
    WorkerSpec {
        pipeline: Arc::new(spec.pipeline.with_variant(spec.module, variant)),
        execution: spec.execution.only(variant),
        ..spec.clone()
    }
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
    /// The models of a worker, by member or by variant.
    fn models_of(
        &mut self,
        spec: &WorkerSpec,
        library: &Library,
        contents: &mut Contents,
    ) -> Vec<ModelId> {
        let of = (spec.pipeline.name.clone(), spec.module);
        if let Some(known) = self.of_modules.get(&of) {
            return known.clone();
        }
        let module = &spec.pipeline.modules[spec.module.idx()];
        let mut model = |spec: &WorkerSpec, member, files: &[&str]| {
            self.model_of((spec, member), files, library, contents)
        };
        let alone = MemberId::default();
        let models: Vec<ModelId> = match &module.family {
            None if chooses_variants(spec) => (0..)
                .zip(&module.variants)
                .map(|(id, variant)| {
                    let spec = with_variant(spec, VariantId(id));
                    model(&spec, alone, &[&variant.model])
                })
                .collect(),
            None => {
                let files: Vec<&str> = module.variants.iter().map(|v| v.model.as_str()).collect();
                vec![model(spec, alone, &files)]
            }
            Some(family) => {
                let ids = family.ids().zip(&family.members);
                ids.map(|(id, member)| model(spec, id, &[&member.file]))
                    .collect()
            }
        };
        let resident: Vec<ModelId> = match &module.family {
            // The most accurate first, as far as they fit.
            None => models.iter().rev().copied().collect(),
            Some(family) => family.default.iter().map(|id| models[id.idx()]).collect(),
        };
        for model in resident {
            if !self.resident.contains(&model) {
                self.resident.push(model);
            }
        }
        self.of_modules.insert(of, models.clone());
        models
    }

    /// The model of these files that a worker serves.
    fn model_of(
        &mut self,
        (spec, member): (&WorkerSpec, MemberId),
        files: &[&str],
        library: &Library,
        contents: &mut Contents,
    ) -> ModelId {
        let mut listed = Vec::new();
        let kind = FleetPlan::kind_of(spec, library, contents, &mut listed);
        let paths = files.iter().map(|file| spec.base_dir.join(file));
        let paths: Vec<PathBuf> = paths.collect();
        let files = paths.iter();
        let files = files.map(|path| contents.of_model(path, &mut listed));
        let built = (kind, files.collect());
        let source = Source {
            worker: spec.clone(),
            member,
            files: listed,
        };
        self.model(built, source, &paths)
    }

    /// What the models of a worker are built from beside their files. `listed` gets the files that options name.
    fn kind_of(
        spec: &WorkerSpec,
        library: &Library,
        contents: &mut Contents,
        listed: &mut Vec<ListedFile>,
    ) -> String {
        let module = &spec.pipeline.modules[spec.module.idx()];
        let files = option_files(module, library);
        let options = module.options.iter().map(|(name, value)| {
            match files.iter().find(|(of, _)| of == name) {
                Some((_, file)) => {
                    let content = contents.of(spec.base_dir.join(file), listed);
                    format!("{name}: {content:?}")
                }
                None => format!("{name}: {value:?}"),
            }
        });
        let options: Vec<String> = options.collect();
        let inputs: Vec<_> = module.variants.iter().map(|v| v.input).collect();
        let (op, limits, served) = (&module.op, &spec.pipeline.limits, module.served());
        format!("{op} {options:?} {inputs:?} {limits:?} {served}")
    }

    /// The model that is built from this, of which that is one more source.
    fn model(&mut self, built: Built, source: Source, paths: &[PathBuf]) -> ModelId {
        if let Some(&known) = self.known.get(&built) {
            self.models[known.idx()].sources.push(source);
            return known;
        }
        let id = ModelId(self.models.len() as u32);
        self.known.insert(built, id);
        let bytes = paths.iter().filter_map(|p| std::fs::metadata(p).ok());
        self.bytes.push(bytes.map(|m| m.len()).sum());
        let sources = vec![source];
        self.models.push(ModelSpec { sources });
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

    /// Says that not all models that are to be there from the start fit on a device, and what would hold them.
    fn tell_left_out(&self, device: &str, fit: usize) {
        let (all, mib) = (self.resident.len(), PAGE_BYTES >> 20);
        if fit < all {
            let pages = self.resident.iter().map(|m| u64::from(self.pages(*m)));
            let needs = pages.sum::<u64>() * mib;
            tracing::warn!(
                device,
                "of {all} models and variants that serve by default {fit} fit into its memory; the others are loaded before they run, and give                  way to each other; --device {device},memory={needs}MiB holds all"
            );
        }
    }

    /// The models without which a module cannot serve: others of a family serve without one that does not.
    fn needed(&self) -> impl Iterator<Item = ModelId> {
        let is_needed = |model: &ModelId| self.models[model.idx()].needed_by().is_some();
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
        let spec = &self.models[model.idx()];
        let module = &spec.needed_by().unwrap_or(spec.first()).module().name;
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
        let largest = self
            .models
            .iter()
            .map(|m| m.first().module().batch.max)
            .max();
        let sizes = batch_sizes(largest.unwrap_or(1));
        let model = |(i, spec): (usize, &ModelSpec)| {
            let Expected {
                load,
                execution,
                prepare,
            } = &expected[i];
            let most = spec.first().module().batch.max as usize;
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
        let pipelines = self.models.iter().flat_map(|m| &m.sources);
        let background_time = pipelines.map(|s| s.worker.pipeline.background_time()).min();
        PlacementConfig {
            models: self.models.iter().enumerate().map(model).collect(),
            sizes,
            devices: self.devices.iter().map(device).collect(),
            travel: Duration::ZERO,
            is_fair: placing.is_fair,
            background_time: background_time.unwrap_or(Duration::MAX),
        }
    }
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
        mut self,
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
        let first = self.devices.first().map(|(_, name)| name.clone());
        let first = first.unwrap_or_default();
        loading(&first);
        let (expected, measured) = self.expected(library).map_err(failed(&first))?;
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
            self.tell_left_out(name, resident.len());
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
