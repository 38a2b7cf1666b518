//! Measures how long batches of each module take on a device, with the module's own example inputs.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use spillgate_backend::Backend;
use spillgate_backend::operator::{Inputs, Library, Operator, OperatorError};
use spillgate_backend::torch::TorchBackend;
use spillgate_pipeline::execution::ModuleExecution;
use spillgate_pipeline::id::{MemberId, WorkerId};
use spillgate_pipeline::pipeline::Module;
use spillgate_pipeline::profile::{
    BatchLatency, ModuleProfile, ProfileSet, batch_sizes, device_kind,
};
use spillgate_worker::confinement;
use spillgate_worker::operators::{WorkerSpec, build_operator, serving_operator};

use crate::deployment::Deployment;
use crate::device_name::resolve_device;

/// Loads of a model whose time is measured.
pub const LOADS_MEASURED: NonZeroUsize = NonZeroUsize::new(3).unwrap();

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Batches before the first that counts.
    pub warm_up: usize,
    /// Batches that count, for each size.
    pub rounds: usize,
    /// Objects a frame brings to modules that work on objects.
    pub objects: usize,
    /// How often the model is read, if the time of that is measured.
    pub loads: Option<NonZeroUsize>,
}

impl Effort {
    /// For a profile file.
    pub const FULL: Effort = Effort {
        warm_up: 5,
        rounds: 100,
        objects: 3,
        loads: Some(LOADS_MEASURED),
    };
    /// For a server that finds no profile file: good enough to start with.
    pub const QUICK: Effort = Effort {
        warm_up: 2,
        rounds: 7,
        objects: 3,
        loads: None,
    };
}

/// One module variant on one device that has no profile yet.
#[derive(Clone, Debug)]
pub struct Missing {
    /// Ordinal of the module in its pipeline.
    pub module: Module,
    /// Ordinal of the variant among the module's.
    pub variant: usize,
    /// Device to measure on.
    pub device: String,
}

/// Module variants of a deployment without a profile, on real devices. All variants, or only those that may serve.
pub fn missing(deployment: &Deployment, all_variants: bool) -> Vec<Missing> {
    let mut list: Vec<Missing> = Vec::new();
    for module in &deployment.pipeline.modules[1..] {
        for device in module.devices.iter().map(|d| resolve_device(d)) {
            let kind = device_kind(&device);
            if kind == "emulated" {
                continue;
            }
            let variants = 0..module.variants.len();
            let all = all_variants || deployment.pipeline.adapted() == Some(module.id);
            for variant in variants.filter(|v| all || *v == module.served()) {
                let key = module.profile_key(variant);
                let known = deployment.profiles.get(kind, &module.name, &key).is_some();
                let listed = list.iter().any(|m| {
                    m.module.id == module.id
                        && m.variant == variant
                        && device_kind(&m.device) == kind
                });
                if !known && !listed {
                    list.push(Missing {
                        module: module.clone(),
                        variant,
                        device: device.clone(),
                    });
                }
            }
        }
    }
    list
}

/// Measures one module variant on one device. `progress` is called after each batch size.
///
/// # Errors
/// When the device or model is missing, or the module fails on its own example.
pub fn measure(
    deployment: &Deployment,
    library: &Arc<Library>,
    what: &Missing,
    effort: Effort,
    mut progress: impl FnMut(u32) + Send,
) -> Result<ModuleProfile, OperatorError> {
    confinement::run(|| measure_here(deployment, library, what, effort, &mut progress))
}

fn measure_here(
    deployment: &Deployment,
    library: &Arc<Library>,
    what: &Missing,
    effort: Effort,
    progress: &mut dyn FnMut(u32),
) -> Result<ModuleProfile, OperatorError> {
    let mut backend = TorchBackend::new(&what.device)?;
    let spec = WorkerSpec {
        worker: WorkerId(0),
        pipeline: deployment.pipeline.clone(),
        base_dir: deployment.base_dir.clone(),
        module: what.module.id,
        execution: ModuleExecution::default(),
        from_start: true,
        members: None,
        load: None,
    };
    // One model of a family stands for all.
    let member = deployment.families.representative(what.module.id);
    let (mut operator, load) = match effort.loads {
        Some(loads) => {
            let (operator, load) = timed_load(&spec, member, library, &mut backend, loads)?;
            (operator, Some(load))
        }
        None => (build_operator(&spec, member, library, &mut backend)?, None),
    };
    let points = measure_sizes(&mut *operator, &what.module, what.variant, effort, progress)?;
    Ok(ModuleProfile { points, load })
}

/// Loads a model that many times, as a device does while it serves. Gives the last one, and the median time: the first load of a process also
/// makes libtorch ready.
///
/// # Errors
/// When its file is missing or does not fit.
pub(crate) fn timed_load(
    spec: &WorkerSpec,
    member: MemberId,
    library: &Arc<Library>,
    backend: &mut dyn Backend,
    loads: NonZeroUsize,
) -> Result<(Box<dyn Operator>, Duration), OperatorError> {
    let mut load = || {
        let start = Instant::now();
        let operator = serving_operator(spec, member, library, backend)?;
        Ok::<_, OperatorError>((operator, start.elapsed()))
    };
    let (mut operator, took) = load()?;
    let mut all = vec![took];
    for _ in 1..loads.get() {
        let (next, took) = load()?;
        operator = next;
        all.push(took);
    }
    all.sort_unstable();
    Ok((operator, all[all.len() / 2]))
}

/// Measures batches of each size on a built module.
///
/// # Errors
/// When the module fails on its own example.
pub(crate) fn measure_sizes(
    operator: &mut dyn Operator,
    module: &Module,
    variant: usize,
    effort: Effort,
    progress: &mut dyn FnMut(u32),
) -> Result<Vec<BatchLatency>, OperatorError> {
    let mut points = Vec::new();
    for batch in batch_sizes(module.batch.max) {
        let inputs: Vec<Inputs> = (0..batch)
            .map(|_| operator.example(effort.objects))
            .collect();
        let mut times = Vec::with_capacity(effort.rounds);
        for round in 0..effort.warm_up + effort.rounds {
            let start = Instant::now();
            run_examples(operator, module, variant, &inputs)?;
            if round >= effort.warm_up {
                times.push(start.elapsed());
            }
        }
        points.push(summarize(batch, times));
        progress(batch);
    }
    Ok(points)
}

/// Runs a batch of examples.
///
/// # Errors
/// When the module fails on them.
pub(crate) fn run_examples(
    operator: &mut dyn Operator,
    module: &Module,
    variant: usize,
    inputs: &[Inputs],
) -> Result<(), OperatorError> {
    let failed = operator
        .run(variant, inputs)
        .into_iter()
        .find_map(Result::err);
    failed.map_or(Ok(()), |error| {
        let name = &module.name;
        let why = format!("module {name} fails on its own example: {error}");
        Err(OperatorError::Other(why))
    })
}

fn summarize(batch: u32, mut times: Vec<Duration>) -> BatchLatency {
    times.sort_unstable();
    let quantile = |q: f64| times[((times.len() - 1) as f64 * q).round() as usize];
    let mean = times.iter().sum::<Duration>() / times.len() as u32;
    BatchLatency {
        batch,
        mean,
        p50: quantile(0.5),
        p99: quantile(0.99),
    }
}

/// Measures all that is missing and adds it to the deployment's profiles. `say` gets a line for people
/// before each module and the steps done of all.
///
/// # Errors
/// As [`measure`].
pub fn complete(
    deployment: &mut Deployment,
    library: &Arc<Library>,
    all_variants: bool,
    effort: Effort,
    mut say: impl FnMut(&Missing, usize, usize) + Send,
) -> Result<ProfileSet, OperatorError> {
    let list = missing(deployment, all_variants);
    let total: usize = list
        .iter()
        .map(|m| batch_sizes(m.module.batch.max).len())
        .sum();
    let mut done = 0;
    let mut measured = ProfileSet::default();
    for what in &list {
        say(what, done, total);
        let profile = measure(deployment, library, what, effort, |_| {
            done += 1;
            say(what, done, total);
        })?;
        let key = what.module.profile_key(what.variant);
        measured.insert(
            device_kind(&what.device),
            &what.module.name,
            &key,
            profile.clone(),
        );
        deployment
            .profiles
            .insert(device_kind(&what.device), &what.module.name, &key, profile);
    }
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_mean_and_quantiles() {
        let times = (1..=100).map(Duration::from_millis).collect();
        let point = summarize(4, times);
        assert_eq!(point.mean, Duration::from_micros(50_500));
        assert_eq!(point.p50, Duration::from_millis(51));
        assert_eq!(point.p99, Duration::from_millis(99));
    }
}
