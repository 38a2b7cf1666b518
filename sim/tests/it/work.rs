//! Modules whose time depends on what requests bring, in the world of pipelines: every scheduler, alone and in a chain,
//! under faults, with every invariant checked at each step.

use std::sync::Arc;
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spillgate_controller_policy::plan::Planned;
use spillgate_pipeline::distribution::{BatchForm, BatchTime, WINDOW_DEFAULT};
use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::policy::DropPolicy;
use spillgate_pipeline::schedule::{Application, SchedulePolicy};
use spillgate_pipeline::testing::noop_pipeline;
use spillgate_pipeline::time::Timestamp;
use spillgate_recipes::schedulers;
use spillgate_sim::workload::{Arrivals, arrivals};
use spillgate_sim::world::{DynamicModule, DynamicWork};
use spillgate_sim::{Disturbance, Report, Served, SimConfig, run};
use spillgate_worker_policy::schedule::{SchedulerConfig, Scoring};

const SLO: Duration = Duration::from_millis(300);
const C0: f64 = 10.0;
const C1: f64 = 0.3;
const MEAN: f64 = 55.0;

/// Half of the requests are near 20 ms long, half near 90 ms; which half is in their application.
fn lengths(n: usize, seed: u64) -> Vec<(Application, f64)> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut one = || {
        let long: bool = rng.random();
        let near = if long { 90.0 } else { 20.0 };
        let length = near + 20.0 * (rng.random::<f64>() - 0.5);
        (Application(u16::from(long)), length)
    };
    (0..n).map(|_| one()).collect()
}

/// A chain of modules, of which those are dynamic, at that rate for ten seconds.
fn config(dynamic: &[bool], schedule: SchedulePolicy, drop: DropPolicy, rate: f64) -> SimConfig {
    let n = dynamic.len();
    let reads: Vec<Vec<u16>> = (0..n as u16).map(|m| vec![m]).collect();
    let reads: Vec<&[u16]> = reads.iter().map(Vec::as_slice).collect();
    let mut pipeline = noop_pipeline(SLO, &reads, &[]);
    pipeline.policy.drop = drop;
    let time = BatchTime::new(BatchForm::Padded, C0, C1, 0.0).unwrap();
    let ms = |k: u32| Duration::from_secs_f64(1e-3 * (C0 + C1 * MEAN * f64::from(k)));
    let mut execution = vec![vec![]];
    execution.extend((0..n).map(|_| (1..=8).map(ms).collect()));
    let module = DynamicModule {
        time,
        schedule: SchedulerConfig {
            policy: schedule,
            sizes: vec![1, 2, 4, 8],
            planned: 4,
            time,
            prior_ms: MEAN,
            window: WINDOW_DEFAULT,
            capacity: 64,
            scoring: Scoring::default(),
        },
    };
    let mut modules = vec![None];
    modules.extend(dynamic.iter().map(|is| is.then(|| module.clone())));
    let duration = Duration::from_secs(10);
    let arrivals: Arc<[Timestamp]> = arrivals(Arrivals::Poisson, rate, duration, 1).into();
    let work = DynamicWork {
        requests: lengths(arrivals.len(), 2).into(),
        names: vec!["short".to_owned(), "long".to_owned()],
        history: lengths(200, 3).into(),
        reruns: true,
        modules,
    };
    let served = Served {
        pipeline: Arc::new(pipeline),
        planned: Arc::new(Planned {
            batch: std::iter::once(0).chain((0..n).map(|_| 4)).collect(),
            execution: execution.into(),
            workers: vec![2; n + 1],
            alone: false,
        }),
        workers: std::iter::once(vec![])
            .chain((0..n as u16).map(|m| vec![2 * m, 2 * m + 1]))
            .collect(),
        arrivals,
        duration,
    };
    SimConfig {
        work: Some(work),
        ..SimConfig::undisturbed(served, 1)
    }
}

fn ended(report: &Report) -> u64 {
    report.good + report.late + report.dropped + report.failed
}

// Over five seconds: 27 simulated runs for each scheduler.
#[test]
fn every_scheduler_keeps_the_invariants_under_faults() {
    for schedule in schedulers::ALL {
        for drop in [DropPolicy::NONE, DropPolicy::SPILLGATE, DropPolicy::PARD] {
            for dynamic in [&[true][..], &[false, true], &[true, true, false]] {
                for rate in [1.0, 60.0, 400.0] {
                    let mut faulty = config(dynamic, schedule, drop, rate);
                    faulty.cancelled = 0.1;
                    faulty.noise = 0.2;
                    faulty.hurried = Some((0.2, 0.6));
                    let at = |s: u64| Timestamp::ZERO + Duration::from_secs(s);
                    faulty.disturbances = vec![
                        (at(2), Disturbance::Pace(ModuleId(1), 10.0)),
                        (at(4), Disturbance::Pace(ModuleId(1), 1.0)),
                        (at(5), Disturbance::Down(ModuleId(1), 0)),
                        (at(7), Disturbance::Up(ModuleId(1), 0)),
                    ];
                    let what = format!("{schedule} {drop:?} {dynamic:?} at {rate}");
                    let report = run(faulty.clone()).unwrap_or_else(|e| panic!("{what}: {e:?}"));
                    assert_eq!(ended(&report), report.requests, "{what}");
                    assert_eq!(report, run(faulty).unwrap(), "{what}: not the same again");
                }
            }
        }
    }
}

#[test]
fn our_scheduler_finishes_most_and_applications_are_told_apart() {
    let finish = |schedule| {
        let mut run_of = config(&[true], schedule, DropPolicy::NONE, 120.0);
        run_of.hop = Duration::ZERO;
        run(run_of).unwrap()
    };
    let ours = finish(SchedulePolicy::GOODPUT);
    for other in [
        SchedulePolicy::ORLOJ,
        SchedulePolicy::EDF,
        SchedulePolicy::CLOCKWORK,
    ] {
        let report = finish(other);
        assert!(
            ours.finish_rate > report.finish_rate,
            "{other}: {} against {}",
            report.finish_rate,
            ours.finish_rate
        );
    }
    let (short, long) = (&ours.applications["short"], &ours.applications["long"]);
    assert_eq!(short.requests + long.requests, ours.requests);
    assert_eq!(short.good + long.good, ours.good);
    assert!(
        short.finish_rate > long.finish_rate,
        "short ones cost less: {short:?} {long:?}"
    );
}

#[test]
fn lightly_loaded_nothing_is_dropped() {
    for schedule in schedulers::ALL {
        for dynamic in [&[true][..], &[true, false, true]] {
            let report = run(config(dynamic, schedule, DropPolicy::SPILLGATE, 5.0)).unwrap();
            assert_eq!(
                report.good, report.requests,
                "{schedule}: {:?}",
                report.drops
            );
        }
    }
}

/// A minute of a module with two workers at that rate, over seeds.
fn minutes(
    schedule: SchedulePolicy,
    rate: f64,
    n_history: usize,
    reruns: bool,
) -> impl Iterator<Item = Report> {
    (0..4).map(move |seed| {
        let mut config = config(&[true], schedule, DropPolicy::NONE, rate);
        config.hop = Duration::ZERO;
        config.duration = Duration::from_secs(60);
        config.arrivals = arrivals(Arrivals::Poisson, rate, config.duration, seed).into();
        let work = config.work.as_mut().unwrap();
        work.requests = lengths(config.arrivals.len(), seed + 100).into();
        work.history = lengths(n_history, 3).into();
        work.reruns = reruns;
        run(config).unwrap()
    })
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.collect();
    values.iter().sum::<f64>() / values.len() as f64
}

#[test]
fn finished_requests_run_again_on_idle_devices_and_latency_does_not_move() {
    for rate in [40.0, 60.0] {
        let with: Vec<Report> = minutes(SchedulePolicy::GOODPUT, rate, 0, true).collect();
        let without: Vec<Report> = minutes(SchedulePolicy::GOODPUT, rate, 0, false).collect();
        for report in &with {
            let idle = 1.0 - report.utilisation;
            let share = report.rerun_utilisation / idle;
            // What is kept at the end runs again after the minute.
            assert!(
                (0.005..0.035).contains(&share),
                "at {rate}: {share} of the idle time"
            );
        }
        let moved =
            |of: fn(&Report) -> f64| mean(with.iter().map(of)) / mean(without.iter().map(of)) - 1.0;
        let (mean, p99) = (moved(|r| r.latency_ms_mean), moved(|r| r.latency_ms_p99));
        assert!(mean.abs() < 0.015, "at {rate} the mean moved by {mean}");
        assert!(p99.abs() < 0.03, "at {rate} the p99 moved by {p99}");
    }
}

#[test]
fn a_scheduler_that_knows_nothing_finds_out_under_overload() {
    for (schedule, least) in [
        (SchedulePolicy::GOODPUT, 0.95),
        (SchedulePolicy::ORLOJ, 0.9),
        (schedulers::ORLOJ_SHARED, 0.9),
        (SchedulePolicy::EDF, 0.85),
    ] {
        let finished = |n_history| {
            let of_all = minutes(schedule, 120.0, n_history, true);
            mean(of_all.map(|report| report.finish_rate))
        };
        let (untaught, taught) = (finished(0), finished(200));
        assert!(
            untaught > least * taught,
            "{schedule} finishes {untaught} untaught, {taught} taught"
        );
    }
}
