use std::time::Duration;

use proptest::prelude::*;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::*;
use spillgate_pipeline::testing::noop_pipeline;

fn successors(pipeline: &Pipeline) -> Vec<Vec<ModuleId>> {
    let ids = pipeline.modules.iter().map(|m| m.id);
    ids.map(|id| pipeline.successors(id)).collect()
}

fn estimated(pipeline: &Pipeline, from: u16, stages: &[Stage], waits: Waits) -> Vec<PathEstimate> {
    downstream(
        pipeline,
        &successors(pipeline),
        ModuleId(from),
        stages,
        waits,
        &mut ChaCha8Rng::seed_from_u64(7),
        &mut Scratch::default(),
    )
}

/// With equal executions and uniform waits the quantile of the sum is that of the Irwin-Hall distribution: for
/// n waits of at most d, x such that x^n / n! = 0.1 while x <= 1 (PARD §4.2 draws such waits).
#[test]
fn summed_uniform_waits_have_irwin_hall_quantiles() {
    let chain = noop_pipeline(Duration::from_secs(1), &[&[0], &[1], &[2], &[3]], &[]);
    let d = 0.04;
    let uniform: std::sync::Arc<[f32]> = (0..1000)
        .map(|i| d as f32 * (i as f32 + 0.5) / 1000.0)
        .collect();
    let stage = Stage {
        queueing: 0.0,
        execution: d,
        executions: [].into(),
        waits: uniform,
        probability: 1.0,
    };
    let stages = vec![stage; 5];
    for (from, expected) in [(1, 0.843), (2, 0.447), (3, 0.1)] {
        let paths = estimated(&chain, from, &stages, Waits::Quantile(0.1));
        let got = paths[0].waits / d;
        assert!(
            (got - expected).abs() < 0.02,
            "{} downstream: {got}",
            4 - from
        );
    }
    assert!(
        estimated(&chain, 4, &stages, Waits::Quantile(0.1)).is_empty(),
        "nothing comes after a sink"
    );
    let upper = estimated(&chain, 1, &stages, Waits::Full);
    assert!((upper[0].total() - 6.0 * d).abs() < 1e-9);
    let lower = estimated(&chain, 1, &stages, Waits::Zero);
    assert!((lower[0].total() - 3.0 * d).abs() < 1e-9);
}

#[test]
fn executions_that_stray_are_counted_by_their_mean_and_the_quantile_of_their_sum() {
    let chain = noop_pipeline(Duration::from_secs(1), &[&[0], &[1], &[2]], &[]);
    // Uniform from 20 to 60 ms, whatever the plan says.
    let spread: std::sync::Arc<[f32]> = (0..1000)
        .map(|i| 0.02 + 0.04 * (i as f32 + 0.5) / 1000.0)
        .collect();
    let stage = Stage {
        queueing: 0.0,
        execution: 0.5,
        executions: spread,
        waits: [].into(),
        probability: 1.0,
    };
    let stages = vec![stage; 4];
    // The sum of two is triangular from 40 to 120 ms: its 0.9 quantile is 120 - 80 sqrt(0.1 / 2).
    let paths = estimated(&chain, 1, &stages, Waits::Quantile(0.9));
    assert!((paths[0].execution - 0.08).abs() < 1e-6);
    let exact = 0.12 - 0.08 * 0.05f64.sqrt();
    let got = paths[0].total();
    assert!((got - exact).abs() < 0.001, "{got} instead of {exact}");
    let one = estimated(&chain, 2, &stages, Waits::Quantile(0.9));
    assert!((one[0].total() - 0.056).abs() < 0.001, "{:?}", one[0]);
    assert_eq!(estimated(&chain, 1, &stages, Waits::Zero)[0].waits, 0.0);
}

#[test]
fn a_branch_weighs_as_often_as_it_runs() {
    // Module 2 runs for a quarter of the requests; its branch is the longer one.
    let fork = noop_pipeline(
        Duration::from_secs(1),
        &[&[0], &[1], &[1]],
        &[None, Some(1), None],
    );
    let stage = |execution, probability| Stage {
        queueing: 0.0,
        execution,
        executions: [].into(),
        waits: [0.04f32].as_slice().into(),
        probability,
    };
    let stages = [
        stage(0.0, 1.0),
        stage(0.01, 1.0),
        stage(0.1, 0.25),
        stage(0.02, 1.0),
    ];
    let paths = estimated(&fork, 1, &stages, Waits::Quantile(0.5));
    assert_eq!(paths[0].modules, [ModuleId(3)]);
    assert!((paths[0].total() - 0.06).abs() < 1e-6);
    assert!((paths[1].execution - 0.025).abs() < 1e-9);
    assert_eq!(paths[1].waits, 0.0, "at the median it does not run");
    let often = estimated(&fork, 1, &stages, Waits::Quantile(0.9));
    assert_eq!(
        often[0].modules,
        [ModuleId(2)],
        "at the 0.9 quantile it does"
    );
}

/// Every path by walking the graph.
fn enumerate(successors: &[Vec<ModuleId>], from: ModuleId) -> Vec<Vec<ModuleId>> {
    let mut all = Vec::new();
    for &next in &successors[from.idx()] {
        let tails = enumerate(successors, next);
        if tails.is_empty() {
            all.push(vec![next]);
        }
        for mut tail in tails {
            tail.insert(0, next);
            all.push(tail);
        }
    }
    all
}

proptest! {
    /// L_sub on random graphs against the enumeration of all paths. Waits of one sample each make the quantile
    /// exact.
    #[test]
    fn the_heaviest_path_is_that_of_an_enumeration(
        reads in prop::collection::vec(prop::collection::btree_set(0u16..6, 1..3), 1..7),
        times in prop::collection::vec((0u32..50, 1u32..50, 0u32..50), 8),
    ) {
        let reads: Vec<Vec<u16>> = reads
            .iter()
            .enumerate()
            .map(|(i, r)| {
                let mut r: Vec<u16> = r.iter().map(|m| m % (i as u16 + 1)).collect();
                r.sort_unstable();
                r.dedup();
                r
            })
            .collect();
        let slices: Vec<&[u16]> = reads.iter().map(Vec::as_slice).collect();
        let pipeline = noop_pipeline(Duration::from_secs(1), &slices, &[]);
        let stages: Vec<Stage> = times[..pipeline.modules.len()]
            .iter()
            .map(|&(q, d, w)| Stage {
                queueing: f64::from(q) * 1e-3,
                execution: f64::from(d) * 1e-3,
                executions: [].into(),
                waits: [w as f32 * 1e-3].as_slice().into(),
                probability: 1.0,
            })
            .collect();
        for from in 0..pipeline.modules.len() as u16 {
            let all = enumerate(&successors(&pipeline), ModuleId(from));
            let weight = |path: &Vec<ModuleId>| -> f64 {
                path.iter()
                    .map(|m| {
                        let s = &stages[m.idx()];
                        s.queueing + s.execution + f64::from(s.waits[0])
                    })
                    .sum()
            };
            let slowest = all.iter().map(weight).fold(0.0, f64::max);
            let got = estimated(&pipeline, from, &stages, Waits::Quantile(0.5));
            prop_assert_eq!(got.len(), all.len().min(PATHS_MAX));
            let first = got.first().map_or(0.0, PathEstimate::total);
            prop_assert!((first - slowest).abs() < 1e-6, "{} against {}", first, slowest);
        }
    }
}
