//! How long models are expected to take, from what is measured when a server starts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use indexmap::{IndexMap, IndexSet};
use spillgate_backend::Backend;
use spillgate_backend::operator::{Inputs, Library, Operator, OperatorError};
use spillgate_backend::torch::TorchBackend;
use spillgate_pipeline::id::{ModuleId, VariantId, WeightsId};
use spillgate_pipeline::profile::{BatchLatency, ModuleProfile};
use spillgate_worker::confinement;
use spillgate_worker::operators::EXAMPLE_OBJECTS;
use spillgate_worker::weights::loader::{Source, WeightsSpec};

use super::{FleetPlan, PlannedModel};
use crate::devices::measured::MeasuredStatus;
use crate::measure::{Effort, LOADS_MEASURED, measure_sizes, run_examples, timed_load};

/// Architectures that are measured when a server starts. The placement learns what others take while they serve; until then it goes by their
/// module's profile.
pub(crate) const MEASURED_MAX: usize = 64;
/// No further one is measured when so much time has passed since the first was: the server is to start in seconds. The first one of a process
/// also makes libtorch ready.
pub(crate) const MEASURED_WITHIN: Duration = Duration::from_secs(5);
/// Weights of an architecture that are tried, while none can be measured.
pub(crate) const FAILURES_MAX: usize = 8;
/// Times that the steps of a model that is measured run.
const STEPS_MEASURED: usize = 5;
/// Bytes that are read a millisecond from a file of which nothing was measured.
const READ_A_MS: u64 = 100_000;
/// The least time of a load of which nothing was measured.
const LOAD_LEAST: Duration = Duration::from_millis(2);

/// How long models are expected to take.
pub(super) struct Expected {
    /// By weights.
    pub(super) loads: Vec<Duration>,
    /// By model.
    pub(super) runs: Vec<ExpectedRun>,
    /// Bytes of a device's memory that a batch takes while it runs, of the model that needs most, as far as it was measured.
    pub(super) workspace: Option<u64>,
}

/// How long a model is expected to run.
#[derive(Clone)]
pub(super) struct ExpectedRun {
    /// By batch size, from 1.
    pub(super) execution: Vec<Duration>,
    /// To prepare the input of a request, where that is a step apart from the execution.
    pub(super) prepare: Duration,
}

/// What was measured of weights.
struct Measured {
    load: Duration,
    /// By the variant of their operator.
    runs: IndexMap<usize, MeasuredRun>,
}

/// What was measured of a model.
struct MeasuredRun {
    takes: ExpectedRun,
    /// Bytes of a device's memory that its largest batch takes while it runs, beside the weights.
    workspace: Option<u64>,
}

impl FleetPlan {
    /// How long each model is expected to take, by the profiles, with loads of that time.
    pub(super) fn profiled(&self, load: impl Fn(u64, Option<Duration>) -> Duration) -> Expected {
        let loads = self.weights.iter().zip(&self.bytes);
        let loads = loads.map(|(spec, &bytes)| load(bytes, spec.first().known_load()));
        let run = |of: &PlannedModel| {
            let worker = &self.weights[of.weights.idx()].first().worker;
            let times = worker.execution.of_variant(VariantId(of.variant as u16));
            ExpectedRun {
                execution: times.to_vec(),
                prepare: Duration::ZERO,
            }
        };
        Expected {
            loads: loads.collect(),
            runs: self.models.iter().map(run).collect(),
            workspace: None,
        }
    }

    /// The same, with loads that are guessed where nothing is known of them.
    pub(super) fn unmeasured(&self) -> Expected {
        self.profiled(|bytes, known| known.unwrap_or_else(|| guessed_load(bytes)))
    }

    /// How long each model is expected to take, by its architecture. The weights of one of each are measured; emulated devices go by
    /// profiles. The default of a family that cannot be loaded is not loaded from the start, as the others of the family serve without it.
    pub(super) fn expected(
        &mut self,
        library: &Arc<Library>,
    ) -> Result<(Expected, Vec<MeasuredStatus>), OperatorError> {
        let mut expected = self.unmeasured();
        if self.kind == "emulated" {
            return Ok((expected, Vec::new()));
        }
        let mut said = Vec::new();
        let mut sound: Vec<WeightsId> = Vec::new();
        let mut backend = TorchBackend::new(&self.devices[0].1)?;
        let mut measured: IndexMap<Architecture, Measured> = IndexMap::new();
        let mut failures: IndexMap<Architecture, usize> = IndexMap::new();
        let architectures: Vec<Architecture> = self.weights.iter().map(architecture).collect();
        let mut first_at: Option<Instant> = None;
        let mut left_out: IndexSet<&Architecture> = IndexSet::new();
        // Those that serve from the start come first.
        let all = (0..self.weights.len() as u32).map(WeightsId);
        let order: IndexSet<WeightsId> = self.resident.iter().copied().chain(all).collect();
        for weights in order {
            let (spec, architecture) =
                (&self.weights[weights.idx()], &architectures[weights.idx()]);
            let failed = failures.get(architecture).copied().unwrap_or(0);
            let is_known = measured.contains_key(architecture) || failed == FAILURES_MAX;
            let is_time = first_at.is_none_or(|at| at.elapsed() < MEASURED_WITHIN);
            let measures = is_time && measured.len() + failures.len() < MEASURED_MAX;
            if !is_known && !measures {
                left_out.insert(architecture);
            } else if !is_known {
                let with = self.models.iter().filter(|m| m.weights == weights);
                let variants: Vec<usize> = with.map(|m| m.variant).collect();
                let of = measured_of(spec, &variants, library, &mut backend);
                let (module, model) = (&spec.first().module().name, spec.first().name());
                match of {
                    Ok(of) => {
                        let Measured { load, runs } = &of;
                        let ms = |time: &Duration| time.as_secs_f64() * 1e3;
                        said.extend(runs.iter().map(|(variant, run)| MeasuredStatus {
                            module: module.clone(),
                            model: match runs.len() {
                                1 => model.to_owned(),
                                _ => spec.first().module().profile_key(*variant),
                            },
                            load_ms: ms(load),
                            execution_ms: run.takes.execution.iter().map(ms).collect(),
                            workspace_bytes: run.workspace,
                        }));
                        tracing::info!(module, model, "measured: one of its architecture");
                        sound.push(weights);
                        first_at.get_or_insert_with(Instant::now);
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
        if !left_out.is_empty() {
            tracing::info!(
                "{} architectures are measured, and {} are not: what these take is learnt while they serve",
                measured.len(),
                left_out.len()
            );
        }
        for (load, architecture) in expected.loads.iter_mut().zip(&architectures) {
            if let Some(of) = measured.get(architecture) {
                *load = of.load;
            }
        }
        for (run, model) in expected.runs.iter_mut().zip(&self.models) {
            let of = measured.get(&architectures[model.weights.idx()]);
            if let Some(of) = of.and_then(|of| of.runs.get(&model.variant)) {
                run.clone_from(&of.takes);
            }
        }
        expected.workspace = said.iter().filter_map(|of| of.workspace_bytes).max();
        let all = &self.weights;
        self.resident.retain(|weights| {
            let spec = &all[weights.idx()];
            if spec.needed_by().is_some() || sound.contains(weights) {
                return true;
            }
            let built = confinement::run(|| spec.build(library, &mut backend, false).map(drop));
            if let Err(error) = &built {
                tracing::warn!(%error, "the default of a family cannot be loaded");
            }
            built.is_ok()
        });
        Ok((expected, said))
    }
}

/// How long reading so many bytes is expected to take.
pub(super) fn guessed_load(bytes: u64) -> Duration {
    LOAD_LEAST + Duration::from_millis(bytes / READ_A_MS)
}

/// A module with the files and inputs of its variants, and of a family the form of the file.
type Architecture = (
    String,
    ModuleId,
    Vec<(String, Option<u32>)>,
    Option<[u8; 32]>,
);

fn architecture(spec: &WeightsSpec) -> Architecture {
    let Source { worker, member, .. } = spec.first();
    let form = worker
        .members
        .as_ref()
        .and_then(|members| members.form(*member));
    let variants = spec.first().module().variants.iter();
    let variants = variants.map(|v| (v.model.clone(), v.input)).collect();
    (worker.pipeline.name.clone(), worker.module, variants, form)
}

/// Loads weights, and runs these variants with them.
fn measured_of(
    spec: &WeightsSpec,
    variants: &[usize],
    library: &Arc<Library>,
    backend: &mut TorchBackend,
) -> Result<Measured, OperatorError> {
    let source = spec.first();
    let Source { worker, member, .. } = source;
    if let Some(members) = &worker.members {
        members.check(*member).map_err(OperatorError::Other)?;
    }
    confinement::run(|| measured_here(source, variants, library, backend))
}

fn measured_here(
    source: &Source,
    variants: &[usize],
    library: &Arc<Library>,
    backend: &mut dyn Backend,
) -> Result<Measured, OperatorError> {
    let Source { worker, member, .. } = source;
    let (mut operator, load) = timed_load(worker, *member, library, backend, LOADS_MEASURED)?;
    let mut runs = IndexMap::new();
    for &variant in variants {
        // The largest batch runs first: what libtorch keeps from a first run on belongs to it.
        let run = MeasuredRun {
            workspace: workspace(source, variant, &mut *operator, backend)?,
            takes: measured_run(source, variant, &mut *operator)?,
        };
        runs.insert(variant, run);
    }
    Ok(Measured { load, runs })
}

/// Runs the largest batch of one variant. Gives the bytes of the device's memory that it takes.
fn workspace(
    source: &Source,
    variant: usize,
    operator: &mut dyn Operator,
    backend: &mut dyn Backend,
) -> Result<Option<u64>, OperatorError> {
    let module = source.module();
    let inputs = (0..module.batch.max).map(|_| operator.example(EXAMPLE_OBJECTS));
    let inputs: Vec<Inputs> = inputs.collect();
    let mut ran = Ok(());
    let bytes = backend.workspace(&mut || ran = run_examples(operator, module, variant, &inputs));
    ran.map(|()| bytes)
}

/// Runs one variant.
fn measured_run(
    source: &Source,
    variant: usize,
    operator: &mut dyn Operator,
) -> Result<ExpectedRun, OperatorError> {
    let module = source.module();
    let profiled = &source.worker.execution;
    let mut execution = profiled.of_variant(VariantId(variant as u16)).to_vec();
    if module.family.is_some() {
        let points = measure_sizes(operator, module, variant, Effort::QUICK, &mut |_| {})?;
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
    let (prepare, finish) = steps(operator, variant);
    for (i, execution) in execution.iter_mut().enumerate() {
        // What was measured has all steps. A profile may come from another machine, so the steps are not taken for most of it.
        let steps = (prepare + finish) * (i as u32 + 1);
        *execution -= steps.min(*execution * 3 / 4);
    }
    Ok(ExpectedRun { execution, prepare })
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
