//! Batches whose members share a part of their time, as those of the shipped networks do: `s longest + (1 - s) sum`.

use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spillgate_pipeline::distribution::{BatchForm, BatchTime};
use spillgate_pipeline::schedule::{Application, SchedulePolicy};
use spillgate_pipeline::time::Timestamp;
use spillgate_recipes::schedulers;
use spillgate_sim::dynamic::{Instance, Job, run};

use super::super::report::{Report, mean};
use super::OrlojArgs;
use crate::in_parallel;

const SHOWN: [SchedulePolicy; 5] = [
    SchedulePolicy::GOODPUT,
    SchedulePolicy::ORLOJ,
    schedulers::ORLOJ_SHARED,
    SchedulePolicy::EDF,
    SchedulePolicy::STATIC,
];
/// Arrival rate over the rate that the device finishes in full batches of random members.
const LOADS: [f64; 4] = [1.0, 1.3, 1.6, 2.0];
const SIZES: [u32; 4] = [1, 2, 4, 8];
/// Lengths known beforehand, of each application.
const HISTORY: usize = 500;
/// Batches from which the capacity is told.
const BATCHES: usize = 500;
/// Times of the shipped classifier by exit, ms, and how much they vary (docs/dynamic.md).
const EXITS: [f64; 3] = [0.57, 1.7, 2.9];
const VARY: (f64, f64) = (0.9, 1.1);

/// Two applications that share a module.
struct Workload {
    name: &'static str,
    /// Of a batch's time.
    shared: f64,
    slo_ms: f64,
    /// Length of a request of the first or the second, ms.
    length: fn(usize, &mut ChaCha8Rng) -> f64,
}

fn texts(application: usize, rng: &mut ChaCha8Rng) -> f64 {
    match application {
        0 => rng.random_range(0.3..1.4),
        _ => rng.random_range(3.5..5.5),
    }
}

/// The part of the requests of each application that has left at the first exit, and at the second.
fn exits(left: [[f64; 2]; 2], application: usize, rng: &mut ChaCha8Rng) -> f64 {
    let u: f64 = rng.random();
    let exit = left[application].iter().filter(|part| u >= **part).count();
    EXITS[exit] * rng.random_range(VARY.0..VARY.1)
}

fn cameras(application: usize, rng: &mut ChaCha8Rng) -> f64 {
    exits([[0.7, 0.9], [0.25, 0.6]], application, rng)
}

fn alike(application: usize, rng: &mut ChaCha8Rng) -> f64 {
    exits([[0.43, 0.69]; 2], application, rng)
}

/// SLOs around four and eight times the longest request's time.
const WORKLOADS: [Workload; 6] = [
    Workload {
        name: "short and long texts",
        shared: 0.95,
        slo_ms: 20.0,
        length: texts,
    },
    Workload {
        name: "short and long texts",
        shared: 0.95,
        slo_ms: 40.0,
        length: texts,
    },
    Workload {
        name: "short and long texts",
        shared: 0.6,
        slo_ms: 40.0,
        length: texts,
    },
    Workload {
        name: "exits, two cameras",
        shared: 0.4,
        slo_ms: 12.0,
        length: cameras,
    },
    Workload {
        name: "exits, two cameras",
        shared: 0.4,
        slo_ms: 24.0,
        length: cameras,
    },
    Workload {
        name: "exits, applications alike",
        shared: 0.4,
        slo_ms: 24.0,
        length: alike,
    },
];

/// Writes the section.
pub(super) fn section(args: &OrlojArgs, report: &mut Report) -> anyhow::Result<()> {
    report.say(
        "Batches whose members share a part of their time, as those of the shipped networks do: a batch takes `s \
         longest + (1 - s) sum` of its members' times alone. Sizes are 1, 2, 4, 8. Each of two applications sends \
         half of the requests. Load 1 is the rate that the device finishes in full batches of random members. Short \
         texts take 0.3 to 1.4 ms, long ones 3.5 to 5.5 ms. Requests with exits leave at 0.57, 1.7 or 2.9 ms: 70, 20 \
         and 10% of one camera's requests, 25, 35 and 40% of the other's. Where the applications are alike, it is \
         43, 26 and 31% of both.",
    );
    let cases: Vec<(&Workload, f64)> = WORKLOADS
        .iter()
        .flat_map(|workload| LOADS.map(|load| (workload, load)))
        .collect();
    let rates = in_parallel(&cases, |(workload, load)| {
        let mut rates = Vec::with_capacity(SHOWN.len());
        for name in SHOWN {
            let mut sum = 0.0;
            for seed in 0..args.seeds {
                let instance = instance(workload, *load, args.requests.max(4000), seed)?;
                sum += run(&instance, name)?.finish_rate;
            }
            rates.push(sum / args.seeds as f64);
        }
        Ok(rates)
    })?;
    let mut head = vec!["workload", "s", "SLO, ms", "load"];
    head.extend(SHOWN.map(SchedulePolicy::name));
    let mut rows = Vec::new();
    for ((workload, load), rates) in cases.iter().zip(&rates) {
        let mut row = vec![
            workload.name.to_owned(),
            workload.shared.to_string(),
            workload.slo_ms.to_string(),
            load.to_string(),
        ];
        row.extend(rates.iter().map(|rate| format!("{rate:.3}")));
        rows.push(row);
        for (name, rate) in SHOWN.iter().zip(rates) {
            let case = format!("{} s {}", workload.name, workload.shared);
            let rate = format!("{rate:.4}");
            report.line(&[&case, &0, &load, &workload.slo_ms, name, &rate]);
        }
    }
    let mut all = vec![
        "all".to_owned(),
        String::new(),
        String::new(),
        String::new(),
    ];
    let of = |i: usize| mean(rates.iter().map(|rates| rates[i]));
    all.extend((0..SHOWN.len()).map(|i| format!("{:.3}", of(i))));
    rows.push(all);
    report.table(&head, &rows);
    Ok(())
}

fn instance(
    workload: &Workload,
    load: f64,
    requests: usize,
    seed: u64,
) -> anyhow::Result<Instance> {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    let shared = workload.shared;
    let time = BatchTime::new(BatchForm::Shrinking, 0.0, shared, 1.0 - shared)?;
    let slo = Duration::from_secs_f64(workload.slo_ms / 1e3);
    let mut instance = Instance::new(time, SIZES.to_vec(), slo);
    for i in 0..2 * HISTORY {
        let length = (workload.length)(i % 2, rng);
        instance.history.push((Application((i % 2) as u16), length));
    }
    let full = SIZES[SIZES.len() - 1];
    let mut busy_ms = 0.0;
    for _ in 0..BATCHES {
        let members = (0..full).map(|_| (workload.length)(rng.random_range(0..2), rng));
        let (longest, sum) = members.fold((0.0f64, 0.0), |(longest, sum), length| {
            (longest.max(length), sum + length)
        });
        busy_ms += time.ms(full, longest, sum);
    }
    let rate_per_ms = load * (BATCHES * full as usize) as f64 / busy_ms;
    let mut at_ms = 0.0;
    for _ in 0..requests {
        at_ms -= f64::ln(1.0 - rng.random::<f64>()) / rate_per_ms;
        let application = rng.random_range(0..2);
        instance.jobs.push(Job {
            at: Timestamp::from_ns((at_ms * 1e6) as u64),
            application: Application(application as u16),
            length_ms: (workload.length)(application, rng),
        });
    }
    Ok(instance)
}
