//! The bounds of the reference workload: `cargo run --release -p spillgate-sim --example bound_table -- TRACES SEED`,
//! where TRACES is a folder with tweet.csv, wiki.csv and azure_400fn.csv. Run it in the repository's root.
//!
//! One line for each pipeline and trace, and the mean over all: the least drop rates that the bounds leave.

// An example is a program: it reads files, takes arguments and looks at the clock, which the crate itself must not.
#![allow(clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::error::Error;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use spillgate_controller_policy::plan::{
    LARGER_SLACK, Planned, batch_sizes, reference_plan, workers_for_gpus,
};
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::execution::ExecutionTimes;
use spillgate_pipeline::testing::noop_pipeline;
use spillgate_sim::bound::Bounded;
use spillgate_sim::trace::{REFERENCE_WINDOWS, parse_trace, poisson_arrivals, scaled};

const GPUS: u32 = 24;
const HOP: Duration = Duration::from_micros(500);
const LOADS: [f64; 2] = [0.9, 1.1];
const COLUMNS: [&str; 3] = ["reference", "larger", "any plan"];

/// A pipeline and its execution times: modules as `(reads, alpha, beta)` in microseconds.
type Shape<'a> = (&'a str, u64, &'a [(&'a [u16], u64, u64)]);

const SHAPES: [Shape; 4] = [
    (
        "tm",
        400,
        &[
            (&[0], 12_000, 6_000),
            (&[1], 6_000, 2_500),
            (&[2], 8_000, 3_500),
        ],
    ),
    (
        "lv",
        500,
        &[
            (&[0], 12_000, 6_000),
            (&[1], 6_000, 2_500),
            (&[2], 5_000, 2_000),
            (&[3], 5_000, 1_800),
            (&[4], 10_000, 4_000),
        ],
    ),
    (
        "ga",
        600,
        &[
            (&[0], 12_000, 6_000),
            (&[1], 7_000, 3_000),
            (&[2], 6_000, 2_500),
            (&[3], 6_000, 2_200),
            (&[4], 8_000, 3_500),
        ],
    ),
    (
        "da",
        420,
        &[
            (&[0], 12_000, 6_000),
            (&[1], 10_000, 4_000),
            (&[1], 6_000, 2_500),
            (&[2, 3], 5_000, 2_000),
            (&[4], 5_000, 1_800),
        ],
    ),
];

fn build(shape: Shape) -> (Pipeline, ExecutionTimes) {
    let reads: Vec<&[u16]> = shape.2.iter().map(|m| m.0).collect();
    let mut pipeline = noop_pipeline(Duration::from_millis(shape.1), &reads, &[]);
    for module in &mut pipeline.modules {
        module.batch.max = 32;
    }
    let table = |m: &(&[u16], u64, u64)| {
        (1..=32)
            .map(|b| Duration::from_micros(m.1 + m.2 * b))
            .collect()
    };
    let execution = std::iter::once(vec![])
        .chain(shape.2.iter().map(table))
        .collect();
    (pipeline, execution)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let folder = args.next().ok_or("usage: bound_table TRACES [SEED]")?;
    let seed: u64 = args.next().map_or(Ok(1), |text| text.parse())?;
    let mut traces = BTreeMap::new();
    for reference in REFERENCE_WINDOWS {
        let text = std::fs::read_to_string(format!("{folder}/{}", reference.file))?;
        traces.insert(reference.file, parse_trace(&text)?);
    }
    let (mut sums, mut runs, mut slowest) = ([0.0; COLUMNS.len()], 0.0, [Duration::ZERO; 3]);
    println!("least drop rates, %: {COLUMNS:?}");
    for shape in SHAPES {
        let (pipeline, execution) = build(shape);
        let reference = reference_plan(&pipeline, &execution, &[], GPUS)?;
        let batch = batch_sizes(&pipeline, &execution, LARGER_SLACK)?;
        let workers = workers_for_gpus(&execution, &batch, &[], GPUS)?;
        let larger = Planned {
            batch,
            workers,
            ..reference.clone()
        };
        let capacity = reference.bottleneck(&[]);
        for window in REFERENCE_WINDOWS {
            for load in LOADS {
                let rates = scaled(&traces[window.file].rates(window.window)?, load * capacity)?;
                let arrivals = poisson_arrivals(&rates, &mut ChaCha8Rng::seed_from_u64(seed));
                let bounded = Bounded {
                    pipeline: &pipeline,
                    execution: &execution,
                    hop: HOP,
                    arrivals: &arrivals,
                    deadlines: None,
                };
                let mut line = String::new();
                for column in 0..COLUMNS.len() {
                    let start = Instant::now();
                    let good = match column {
                        0 => bounded.of_plan(&reference),
                        1 => bounded.of_plan(&larger),
                        _ => bounded.of_any_plan(GPUS)?,
                    };
                    slowest[column] = slowest[column].max(start.elapsed());
                    let dropped = 100.0 * (1.0 - good as f64 / arrivals.len() as f64);
                    sums[column] += dropped;
                    line += &format!(" {dropped:6.2}");
                }
                runs += 1.0;
                println!(
                    "{} {:5} {:5} {load}{line}",
                    shape.0, window.trace, window.window.offset
                );
            }
        }
    }
    let means = sums.map(|sum| format!("{:.2}", sum / runs));
    println!("mean {means:?}, slowest {slowest:?}");
    Ok(())
}
