//! What is known of a pipeline before it runs: execution times from its profiles, and the batch sizes planned with
//! them.

use std::time::Duration;

use spillgate_controller_policy::plan::{self, PlanError, PlanName};
use spillgate_controller_policy::planner::Planned;
use spillgate_pipeline::catalog::ValueType;
use spillgate_pipeline::distribution::{BatchForm, BatchTime, FitError};
use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::pipeline::{Module, Pipeline};
use spillgate_pipeline::profile::{BatchLatency, ModuleProfile, ProfileSet, device_kind};
use spillgate_pipeline::schedule::SCHEDULED_BATCH_MAX;
use spillgate_worker_policy::schedule::{SIZE_MAX, SIZES_MAX, SchedulerConfig, Scoring};

// A pipeline that compiles gets its scheduler.
const _: () = assert!(SCHEDULED_BATCH_MAX <= SIZE_MAX);

/// Requests that a scheduler forms batches from at most; the rest wait in the broker's queue.
pub const SCHEDULED_MAX: usize = 1024;
/// A module that takes no time is scheduled as if a request took this long.
const USUAL_MIN: Duration = Duration::from_micros(1);

/// Expected time to decode a frame, until batches show it: a 720p JPEG on one core.
pub const DECODE_TIME: Duration = Duration::from_millis(5);

/// A module that would run for an unknown time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("module {module}: no profile for \"{variant}\" on {kind}")]
pub struct NoProfile {
    /// The module.
    pub module: String,
    /// The variant's key.
    pub variant: String,
    /// The kind of device.
    pub kind: String,
}

/// The variant of a module that is served until variants are adapted: the most accurate, which is last.
pub fn served_variant_key(module: &Module) -> String {
    module
        .variants
        .last()
        .map_or_else(|| "-".to_owned(), |v| v.profile_key())
}

/// The profile of a module on a device; `None` for types without a model, which take no time of their own.
///
/// # Errors
/// When the profiles do not know it.
pub fn profile_of<'a>(
    module: &Module,
    device: &str,
    profiles: &'a ProfileSet,
) -> Result<Option<&'a ModuleProfile>, NoProfile> {
    let kind = device_kind(device);
    let variant = served_variant_key(module);
    match profiles.get(kind, &module.name, &variant) {
        Some(profile) => Ok(Some(profile)),
        None if module.variants.is_empty() => Ok(None),
        None => Err(NoProfile {
            module: module.name.clone(),
            variant,
            kind: kind.to_owned(),
        }),
    }
}

/// Expected execution time of a module on a device, by batch size from 1.
///
/// # Errors
/// When the profiles do not know it.
pub fn execution_times(
    module: &Module,
    device: &str,
    profiles: &ProfileSet,
) -> Result<Vec<Duration>, NoProfile> {
    let time =
        |n| profile_of(module, device, profiles).map(|p| p.map_or(Duration::ZERO, |p| p.mean(n)));
    (1..=module.batch.max).map(time).collect()
}

/// A module's execution times are none that a scheduler could go by.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("module {module}: its profile is no c0 + c1 * batch, which schedule: goes by: {cause}")]
pub struct NoSchedule {
    /// The module.
    pub module: String,
    /// Why.
    pub cause: FitError,
}

/// What the scheduler of a module is built from, if it names one. A request's length is its time alone, and a batch takes
/// `c1 * longest + c2 * sum`: c1 is the share of a single request's time that a batch pays once, as the execution times by
/// batch size show it, c2 the share that each member adds. For equal members this is the profile. The shipped modules are
/// all of this kind: batches shrink as members exit, and objects are worked on together (docs/dynamic.md).
///
/// # Errors
/// When the execution times are no such law.
pub fn scheduler(
    module: &Module,
    execution: &[Duration],
    planned: u32,
) -> Result<Option<SchedulerConfig>, NoSchedule> {
    let Some(name) = module.schedule else {
        return Ok(None);
    };
    let point = |(batch, mean): (u32, Duration)| {
        let mean = mean.max(USUAL_MIN);
        BatchLatency {
            batch,
            mean,
            p50: mean,
            p99: mean,
        }
    };
    let mut points: Vec<BatchLatency> = (1..).zip(execution.iter().copied()).map(point).collect();
    if let [one] = points.as_slice() {
        // Batches of one only: nothing is shared, a second member would take as long again.
        points.push(point((2, 2 * one.mean)));
    }
    let profile = ModuleProfile { points };
    let usual = execution.first().map_or(USUAL_MIN, |d| (*d).max(USUAL_MIN));
    let usual_ms = usual.as_secs_f64() * 1e3;
    let fit = BatchTime::from_profile(&profile, usual_ms).map_err(|cause| NoSchedule {
        module: module.name.clone(),
        cause,
    })?;
    let [once, each, _] = fit.time.constants();
    let time = BatchTime::new(BatchForm::Shrinking, 0.0, once / usual_ms, each);
    let time = time.map_err(|cause| NoSchedule {
        module: module.name.clone(),
        cause,
    })?;
    let sizes = sizes(module.batch.max.min(execution.len() as u32));
    let largest = *sizes.last().unwrap_or(&1);
    Ok(Some(SchedulerConfig {
        name,
        planned: planned.clamp(1, largest),
        sizes,
        time,
        prior_ms: usual_ms,
        window: module.window,
        capacity: SCHEDULED_MAX,
        scoring: Scoring::default(),
    }))
}

/// Sizes that a scheduler chooses from: powers of two, and the largest.
pub fn sizes(max: u32) -> Vec<u32> {
    let doubled = std::iter::successors(Some(1u32), |size| size.checked_mul(2));
    let mut sizes: Vec<u32> = doubled
        .take_while(|size| *size < max)
        .take(SIZES_MAX - 1)
        .collect();
    sizes.push(max.max(1));
    sizes
}

/// Execution times of the source: pictures are decoded one by one, bytes pass as they are.
pub fn source_execution(pipeline: &Pipeline) -> Vec<Duration> {
    match pipeline.source.ty {
        ValueType::Image => vec![DECODE_TIME],
        _ => Vec::new(),
    }
}

/// Plans batch sizes from execution times by module and batch size: the reference's by its rule, ours for the
/// `workers` that there are by module, where each has a device of its own (`None`: modules share devices). Where the SLO
/// cannot hold even batches of one, those are planned, and the second value says so.
///
/// # Panics
/// When a module after the source has no execution times: [`execution_times`] gives them.
pub fn planned(
    pipeline: &Pipeline,
    execution: Vec<Vec<Duration>>,
    name: PlanName,
    workers: Option<Vec<u32>>,
) -> (Planned, Option<PlanError>) {
    let (mut batch, problem) = match plan::batch_sizes(pipeline, &execution, name.slack()) {
        Ok(batch) => (batch, None),
        Err(problem @ PlanError::SloTooShort { .. }) => {
            (vec![1; pipeline.modules.len()], Some(problem))
        }
        Err(problem) => panic!("{problem}"),
    };
    if let (PlanName::Spillgate, Some(workers)) = (name, &workers) {
        let capacity = |m: usize, size: u32| {
            let time = execution[m][size as usize - 1];
            f64::from(workers[m]) * f64::from(size) / time.as_secs_f64()
        };
        if let Some(sizes) = plan::sizes_for_workers(pipeline, &execution, capacity, name.slack()) {
            batch = sizes;
        }
    }
    for module in &pipeline.modules[1..] {
        // What takes no time gains nothing in batches by the rule, but costs nothing either.
        if execution[module.id.idx()].iter().all(Duration::is_zero) {
            batch[module.id.idx()] = module.batch.max;
        }
    }
    batch[ModuleId::SOURCE.idx()] = 1;
    let planned = Planned {
        batch,
        execution,
        workers,
    };
    (planned, problem)
}

#[cfg(test)]
mod tests {
    use spillgate_pipeline::compile::compile;

    use super::*;

    const CHAIN: &str = r#"
name: chain
slo: 100ms
source: { payload: bytes }
modules:
  a: { op: noop, inputs: { payload: $source.payload }, batch: { max: 16 } }
  b: { op: noop, inputs: { payload: $a.payload }, batch: { max: 16 } }
outputs: { payload: $b.payload }
"#;

    /// Batch sizes when `a` takes no time and `b` that long, and whether the SLO was too short.
    fn plan_of(b: impl Fn(u64) -> Duration) -> (Vec<u32>, bool) {
        let catalog = spillgate_modules::library().catalog();
        let compiled =
            compile(CHAIN, "chain.yaml", &catalog, None).unwrap_or_else(|e| panic!("{e}"));
        let execution = vec![
            source_execution(&compiled.pipeline),
            vec![Duration::ZERO; 16],
            (1..=16).map(b).collect(),
        ];
        let (planned, problem) = planned(&compiled.pipeline, execution, PlanName::Reference, None);
        (planned.batch, problem.is_some())
    }

    #[test]
    fn batches_fill_the_slo_and_what_takes_no_time_takes_all() {
        let (batch, too_short) = plan_of(|n| Duration::from_millis(10 + 5 * n));
        assert_eq!((batch, too_short), (vec![1, 16, 8], false));
    }

    #[test]
    fn a_scheduler_counts_equal_members_by_the_profile() {
        let catalog = spillgate_modules::library().catalog();
        let text = CHAIN.replace("b: { op: noop,", "b: { schedule: goodput, op: noop,");
        let compiled =
            compile(&text, "chain.yaml", &catalog, None).unwrap_or_else(|e| panic!("{e}"));
        let module = &compiled.pipeline.modules[2];
        // 12 ms for a batch and 3 ms for a member; and a batch that takes 20 ms whatever its size.
        for (once, each) in [(12, 3), (20, 0)] {
            let execution: Vec<Duration> = (1..=16)
                .map(|n| Duration::from_millis(once + each * n))
                .collect();
            let config = scheduler(module, &execution, 8)
                .unwrap()
                .expect("it names one");
            assert_eq!(config.sizes, [1, 2, 4, 8, 16]);
            let alone = (once + each) as f64;
            for size in [1u32, 4, 16] {
                let ms = config.time.ms(size, alone, alone * f64::from(size));
                let expected = (once + each * u64::from(size)) as f64;
                assert!(
                    (ms - expected).abs() < 0.01,
                    "{size}: {ms} against {expected}"
                );
            }
            // One long member among short ones, and its time alone.
            assert!((config.time.alone_ms(40.0) - 40.0).abs() < 0.01);
        }
        let single = scheduler(module, &[Duration::from_millis(10)], 1);
        let single = single.unwrap().expect("batches of one are scheduled, too");
        assert!((single.time.alone_ms(10.0) - 10.0).abs() < 0.01);
        let free = scheduler(module, &[Duration::ZERO; 8], 8).unwrap();
        assert!(free.is_some(), "what takes no time is scheduled, too");
        assert!(
            scheduler(&compiled.pipeline.modules[1], &[Duration::ZERO], 1)
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn an_slo_that_holds_no_batch_of_one_is_served_all_the_same() {
        let (batch, too_short) = plan_of(|n| Duration::from_millis(150 * n));
        assert_eq!((batch, too_short), (vec![1, 16, 1], true));
    }
}
