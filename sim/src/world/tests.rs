use spillgate_pipeline::testing::noop_pipeline;

use super::*;
use crate::workload::{Arrivals, arrivals};

const SLO: Duration = Duration::from_millis(100);
const MS: Duration = Duration::from_millis(1);

/// Each module on a device of its own, `alpha + beta * batch` ms.
fn config(reads: &[&[u16]], when: &[Option<u16>], rate: f64, seed: u64) -> SimConfig {
    let pipeline = noop_pipeline(SLO, reads, when);
    let n = pipeline.modules.len();
    let duration = Duration::from_secs(10);
    SimConfig {
        drop: pipeline.policy.drop,
        execution: (0..n)
            .map(|_| (1..=8).map(|b| MS * (4 + 2 * b)).collect())
            .collect(),
        workers: (0..n)
            .map(|m| if m == 0 { vec![] } else { vec![m as u16 - 1] })
            .collect(),
        pipeline: Arc::new(pipeline),
        arrivals: arrivals(Arrivals::Poisson, rate, duration, seed),
        duration,
        hop: Duration::from_micros(500),
        noise: 0.2,
        when_probability: 0.6,
        cancelled: 0.0,
        seed,
    }
}

const CHAIN: &[&[u16]] = &[&[0], &[1], &[2]];
const DIAMOND: &[&[u16]] = &[&[0], &[1], &[1], &[2, 3]];
const MIXED: &[&[u16]] = &[&[0], &[0], &[1, 2], &[0]];

#[test]
fn equal_seeds_give_equal_runs() {
    let a = run(config(DIAMOND, &[], 300.0, 1)).unwrap();
    let b = run(config(DIAMOND, &[], 300.0, 1)).unwrap();
    let c = run(config(DIAMOND, &[], 300.0, 2)).unwrap();
    assert_eq!(a, b);
    assert_ne!(a.trace_hash, c.trace_hash);
}

#[test]
fn every_request_ends_once_in_every_shape() {
    for seed in 0..8 {
        for (reads, when) in [
            (CHAIN, &[][..]),
            (DIAMOND, &[][..]),
            (DIAMOND, &[None, Some(1), None][..]),
            (MIXED, &[None, None, Some(1)][..]),
        ] {
            for drop in [DropPolicyName::None, DropPolicyName::Deadline] {
                let rate = 100.0 + 40.0 * seed as f64;
                let cancelled = if seed % 2 == 0 { 0.1 } else { 0.0 };
                let config = SimConfig {
                    drop,
                    cancelled,
                    ..config(reads, when, rate, seed)
                };
                let n = config.arrivals.len() as u64;
                let report = run(config).unwrap_or_else(|v| panic!("seed {seed}: {v}"));
                assert_eq!(report.good + report.late + report.dropped, n, "seed {seed}");
            }
        }
    }
}

#[test]
fn modules_may_share_a_device() {
    let mut shared = config(CHAIN, &[], 80.0, 3);
    shared.workers = vec![vec![], vec![0], vec![0], vec![0]];
    let report = run(shared).unwrap();
    assert!(report.good > 0);
    assert!(
        report.batch_size_mean > 1.0,
        "a busy device batches what waits"
    );
}

/// `deadline` predicts nothing, so under lasting overload its goodput is no better than that of `none`
/// (each request runs at its last moment); but it runs no dead work: nothing starts after its deadline.
#[test]
fn deadline_runs_no_dead_work() {
    let base = config(CHAIN, &[], 900.0, 5);
    let none = run(SimConfig {
        drop: DropPolicyName::None,
        ..base.clone()
    })
    .unwrap();
    let deadline = run(SimConfig {
        drop: DropPolicyName::Deadline,
        ..base
    })
    .unwrap();
    let longest = 100.0 + 1.2 * 20.0;
    assert!(
        deadline.latency_ms_p99 <= longest,
        "{}",
        deadline.latency_ms_p99
    );
    assert!(none.latency_ms_p99 > longest, "{}", none.latency_ms_p99);
    assert!(
        deadline.drops.contains_key("m1/expired"),
        "{:?}",
        deadline.drops
    );
    assert!(
        none.drops.keys().all(|k| k.ends_with("queue_full")),
        "{:?}",
        none.drops
    );
}

#[test]
fn an_idle_pipeline_takes_its_execution_and_hops() {
    let mut quiet = config(CHAIN, &[], 1.0, 9);
    quiet.arrivals = vec![Timestamp::from_ns(0), Timestamp::from_ns(1_000_000_000)];
    quiet.noise = 0.0;
    let report = run(quiet).unwrap();
    assert_eq!(report.good, 2);
    // Three modules of 6 ms at batch 1, and two hops of 0.5 ms to each.
    assert!(
        (report.latency_ms_p50 - 21.0).abs() < 1e-6,
        "{}",
        report.latency_ms_p50
    );
}

/// One module, one worker, batch 1, deterministic service: the mean wait of M/D/1 is
/// rho / (2 mu (1 - rho)).
#[test]
fn mean_wait_of_m_d_1() {
    let mut queue = config(&[&[0]], &[], 70.0, 11);
    let mut pipeline = noop_pipeline(Duration::from_secs(1000), &[&[0]], &[]);
    pipeline.modules[1].batch.max = 1;
    pipeline.modules[1].queue = 100_000;
    pipeline.limits.in_flight = 100_000;
    queue.pipeline = Arc::new(pipeline);
    queue.execution = vec![vec![], vec![MS * 10]];
    queue.noise = 0.0;
    queue.hop = Duration::ZERO;
    queue.drop = DropPolicyName::None;
    queue.duration = Duration::from_secs(1000);
    queue.arrivals = arrivals(Arrivals::Poisson, 70.0, queue.duration, 11);
    let n = queue.arrivals.len() as f64;
    let mut world_latency = 0.0;
    let mut free_at = 0.0f64;
    for at in &queue.arrivals {
        free_at = free_at.max(at.as_secs_f64()) + 0.010;
        world_latency += free_at - at.as_secs_f64();
    }
    let closed_form = 0.010 + 0.7 / (2.0 * 100.0 * 0.3);
    assert!((world_latency / n - closed_form).abs() < 0.06 * closed_form);
    let report = run(queue).unwrap();
    assert!((report.latency_ms_mean / 1e3 - closed_form).abs() < 0.06 * closed_form);
}
