//! How long models are expected to take, from what is measured when a server starts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use indexmap::IndexMap;
use spillgate_backend::Backend;
use spillgate_backend::operator::{Library, Operator, OperatorError};
use spillgate_backend::torch::TorchBackend;
use spillgate_pipeline::id::{ModelId, ModuleId};
use spillgate_pipeline::profile::{BatchLatency, ModuleProfile};
use spillgate_worker::executor::EXAMPLE_OBJECTS;
use spillgate_worker::placed::loader::{ModelSpec, Source};

use super::FleetPlan;
use crate::measure::{Effort, LOADS_MEASURED, measure_sizes, timed_load};
use crate::status::MeasuredStatus;

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

/// How long a model is expected to take.
#[derive(Clone)]
pub(super) struct Expected {
    pub(super) load: Duration,
    /// By batch size, from 1.
    pub(super) execution: Vec<Duration>,
    /// To prepare the input of a request, where that is a step apart from the execution.
    pub(super) prepare: Duration,
}

impl FleetPlan {
    /// How long each model is expected to take, by its architecture. One model of each is measured; emulated devices go by
    /// profiles. The default of a family that cannot be loaded is not loaded from the start, as the others of the family serve without it.
    pub(super) fn expected(
        &mut self,
        library: &Arc<Library>,
    ) -> Result<(Vec<Expected>, Vec<MeasuredStatus>), OperatorError> {
        let guess = |(spec, &bytes): (&ModelSpec, &u64)| {
            let worker = &spec.first().worker;
            Expected {
                load: worker.load.unwrap_or_else(|| guessed_load(bytes)),
                execution: worker.execution.served().to_vec(),
                prepare: Duration::ZERO,
            }
        };
        let mut expected: Vec<Expected> = self.models.iter().zip(&self.bytes).map(guess).collect();
        if self.kind == "emulated" {
            return Ok((expected, Vec::new()));
        }
        let mut said = Vec::new();
        let mut sound: Vec<ModelId> = Vec::new();
        let mut backend = TorchBackend::new(&self.devices[0].1)?;
        let mut measured: IndexMap<Architecture, Expected> = IndexMap::new();
        let mut failures: IndexMap<Architecture, usize> = IndexMap::new();
        let architectures: Vec<Architecture> = self.models.iter().map(architecture).collect();
        for (i, (spec, architecture)) in self.models.iter().zip(&architectures).enumerate() {
            let failed = failures.get(architecture).copied().unwrap_or(0);
            let is_known = measured.contains_key(architecture) || failed == FAILURES_MAX;
            if !is_known && measured.len() + failures.len() < MEASURED_MAX {
                let of = measured_of(spec, library, &mut backend);
                let (module, model) = (&spec.first().module().name, spec.first().name());
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
                        sound.push(ModelId(i as u32));
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
        let models = &self.models;
        self.resident.retain(|model| {
            let spec = &models[model.idx()];
            if spec.needed_by().is_some() || sound.contains(model) {
                return true;
            }
            let built = spec.build(library, &mut backend);
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

fn architecture(spec: &ModelSpec) -> Architecture {
    let Source { worker, member, .. } = spec.first();
    let form = worker
        .members
        .as_ref()
        .and_then(|members| members.form(*member));
    let variants = spec.first().module().variants.iter();
    let variants = variants.map(|v| (v.model.clone(), v.input)).collect();
    (worker.pipeline.name.clone(), worker.module, variants, form)
}

/// Loads and runs a model.
fn measured_of(
    spec: &ModelSpec,
    library: &Arc<Library>,
    backend: &mut dyn Backend,
) -> Result<Expected, OperatorError> {
    let source = spec.first();
    let Source { worker, member, .. } = source;
    if let Some(members) = &worker.members {
        members.check(*member).map_err(OperatorError::Other)?;
    }
    let module = source.module();
    let (mut operator, load) = timed_load(worker, *member, library, backend, LOADS_MEASURED)?;
    let mut execution = worker.execution.served().to_vec();
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
