//! Dynamic modules inside pipelines: dropping across the pipeline together with a batch scheduler.

use std::sync::Arc;
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spillgate_controller_policy::plan::{PlanName, Planned, plan_for_workers, sizes_for_workers};
use spillgate_pipeline::compile::compile;
use spillgate_pipeline::distribution::{BatchForm, BatchTime, WINDOW_DEFAULT};
use spillgate_pipeline::pipeline::Pipeline;
use spillgate_pipeline::policy::{DropPolicy, PolicyConfig};
use spillgate_pipeline::profile::batch_sizes;
use spillgate_pipeline::schedule::{Application, SchedulePolicy};
use spillgate_recipes::drops;
use spillgate_sim::workload::{Arrivals, arrivals};
use spillgate_sim::world::{DynamicModule, DynamicWork};
use spillgate_sim::{Served, SimConfig, run};
use spillgate_worker_policy::schedule::{SCHEDULED_MAX, SchedulerConfig, Scoring};

use super::super::report::{Report, mean};

/// Workers of each module.
const WORKERS: u16 = 4;
const LARGEST: u32 = 16;
/// Every module takes `C0 + C1 * size * length` ms; at static modules the length is the mean length.
const C0: f64 = 20.0;
const C1: f64 = 0.1;
const MEAN_MS: f64 = 55.0;
const SPAN: Duration = Duration::from_secs(60);
const LOADS: [f64; 2] = [0.9, 1.1];
const HISTORY: usize = 2000;

const CHAIN: &str = "
name: chain
slo: 400ms
source: { payload: bytes }
modules:
  a: { op: noop, inputs: { payload: $source.payload }, batch: { max: 16 }, queue: 65536 }
  b: { op: noop, inputs: { payload: $a.payload }, batch: { max: 16 }, queue: 65536 }
  c: { op: noop, inputs: { payload: $b.payload }, batch: { max: 16 }, queue: 65536 }
outputs: { payload: $c.payload }
limits: { in_flight: 65536 }
";

/// The drop policy of the pipeline, its gate if it is not the policy's own, and the scheduler of the dynamic modules.
const COMBINATIONS: [(DropPolicy, Option<f64>, SchedulePolicy); 9] = [
    (DropPolicy::PARD, None, SchedulePolicy::STATIC),
    (DropPolicy::PARD, None, SchedulePolicy::ORLOJ),
    (DropPolicy::NONE, None, SchedulePolicy::ORLOJ),
    (DropPolicy::NONE, None, SchedulePolicy::GOODPUT),
    (DropPolicy::SPILLGATE, None, SchedulePolicy::STATIC),
    (DropPolicy::SPILLGATE, None, SchedulePolicy::ORLOJ),
    (DropPolicy::SPILLGATE, None, SchedulePolicy::GOODPUT),
    (DropPolicy::SPILLGATE, Some(0.0), SchedulePolicy::GOODPUT),
    (drops::SPILLGATE_NODOOR, Some(0.0), SchedulePolicy::GOODPUT),
];

/// Half of the requests near 20 ms, half near 90 ms, in all dynamic modules alike.
fn lengths(n: usize, rng: &mut ChaCha8Rng) -> Vec<(Application, f64)> {
    let mut one = || {
        let long: bool = rng.random();
        let near = if long { 90.0 } else { 20.0 };
        let length = near + 30.0 * (rng.random::<f64>() - 0.5);
        (Application(u16::from(long)), length)
    };
    (0..n).map(|_| one()).collect()
}

/// Writes the section: dropped or late, %, with one, two and all three modules dynamic.
pub(super) fn section(seeds: u64, report: &mut Report) -> anyhow::Result<()> {
    report.say(&format!(
        "In a pipeline: a chain of three modules with {WORKERS} workers each and an SLO of 400 ms. A batch takes 20 \
         ms + 0.1 * size * longest. At dynamic modules half of the requests are near 20 ms long, half near 90 ms; at \
         static modules all have the mean length of 55 ms. Loads 0.9 and 1.1, Poisson arrivals, {} s. The figures \
         are requests dropped or late, %, and in brackets device time spent in vain, %.",
        SPAN.as_secs()
    ));
    let catalog = spillgate_modules::library().catalog();
    let compiled = compile(CHAIN, "chain.yaml", &catalog, None)?;
    let time = BatchTime::new(BatchForm::Padded, C0, C1, 0.0)?;
    let mut rows = Vec::new();
    for (drop, gate, schedule) in COMBINATIONS {
        let without = if gate.is_some() { " without gate" } else { "" };
        let mut row = vec![format!("`{}`{without} + `{schedule}`", drop.name())];
        for dynamic in [
            &[false, true, false],
            &[true, true, false],
            &[true, true, true],
        ] {
            let (mut dropped, mut invalid) = (Vec::new(), Vec::new());
            for load in LOADS {
                for seed in 0..seeds {
                    let policy = PolicyConfig {
                        drop,
                        gate,
                        ..compiled.pipeline.policy.clone()
                    };
                    let config = config(
                        &compiled.pipeline,
                        time,
                        policy,
                        schedule,
                        dynamic,
                        load,
                        seed,
                    );
                    let run = run(config).map_err(|e| anyhow::anyhow!("{e:?}"))?;
                    dropped.push(100.0 * run.drop_rate);
                    invalid.push(100.0 * run.invalid_rate);
                }
            }
            row.push(format!("{:.1} ({:.1})", mean(dropped), mean(invalid)));
        }
        rows.push(row);
    }
    report.table(
        &["drops + batches", "one dynamic", "two", "all three"],
        &rows,
    );
    Ok(())
}

fn config(
    pipeline: &Pipeline,
    time: BatchTime,
    policy: PolicyConfig,
    schedule: SchedulePolicy,
    dynamic: &[bool; 3],
    load: f64,
    seed: u64,
) -> SimConfig {
    let mut pipeline = pipeline.clone();
    let ms = |size: u32| {
        let ms = time.ms(size, MEAN_MS, MEAN_MS * f64::from(size));
        Duration::from_nanos((ms * 1e6) as u64)
    };
    let table: Vec<Duration> = (1..=LARGEST).map(ms).collect();
    let execution = vec![vec![], table.clone(), table.clone(), table].into();
    let workers = vec![
        0,
        u32::from(WORKERS),
        u32::from(WORKERS),
        u32::from(WORKERS),
    ];
    let plan = policy.recipe().plan;
    pipeline.policy = policy;
    // All have the same capacity, so load is of any.
    let capacity =
        |_: usize, size: u32| f64::from(WORKERS) * f64::from(size) / ms(size).as_secs_f64();
    let reference = sizes_for_workers(&pipeline, &execution, capacity, PlanName::Reference.slack());
    let reference = reference.map_or(1, |sizes| sizes[1]);
    let rate = load * capacity(1, reference);
    let (planned, _) = plan_for_workers(plan, &pipeline, execution, workers, true);
    let arrivals = arrivals(Arrivals::Poisson, rate, SPAN, seed);
    let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x5eed);
    let module = |m: usize| DynamicModule {
        time,
        schedule: SchedulerConfig {
            policy: schedule,
            sizes: batch_sizes(LARGEST),
            planned: planned.batch[m],
            time,
            prior_ms: MEAN_MS,
            window: WINDOW_DEFAULT,
            capacity: SCHEDULED_MAX,
            scoring: Scoring::default(),
        },
    };
    let mut modules = vec![None];
    modules.extend((1..4).map(|m| dynamic[m - 1].then(|| module(m))));
    let work = DynamicWork {
        requests: lengths(arrivals.len(), &mut rng).into(),
        names: vec!["short".to_owned(), "long".to_owned()],
        history: lengths(HISTORY, &mut rng).into(),
        reruns: true,
        modules,
    };
    let served = Served {
        planned: Arc::new(Planned {
            alone: false,
            ..planned
        }),
        pipeline: Arc::new(pipeline),
        workers: (0..4u16)
            .map(|m| {
                (0..WORKERS)
                    .filter(|_| m > 0)
                    .map(|w| (m - 1) * WORKERS + w)
                    .collect()
            })
            .collect(),
        arrivals: arrivals.into(),
        duration: SPAN,
    };
    SimConfig {
        work: Some(work),
        ..SimConfig::undisturbed(served, seed)
    }
}
