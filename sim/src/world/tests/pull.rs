use spillgate_pipeline::policy::DispatchPolicyName;

use super::*;

/// Dispatch `pull` over so many gateways.
fn pulled(config: &SimConfig, gateways: usize) -> SimConfig {
    let mut pipeline = (*config.pipeline).clone();
    pipeline.policy.drop = DropPolicy::SPILLGATE;
    pipeline.policy.dispatch = Some(DispatchPolicyName::Pull);
    SimConfig {
        pipeline: Arc::new(pipeline),
        gateways: vec![1.0; gateways],
        apart: true,
        ..config.clone()
    }
}

/// Workers and gateways die, messages take their time, clients leave: the invariants hold and every request ends.
#[test]
fn invariants_hold_under_random_faults_when_requests_are_pulled() {
    for seed in 0..24u64 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let base = config(DIAMOND, &[None, Some(1), None], 300.0, seed);
        let n_gateways = rng.random_range(1..6u16);
        let mut config = pulled(&base, usize::from(n_gateways));
        // Some modules share a device.
        config.workers = match seed % 2 {
            0 => vec![vec![], vec![0, 1], vec![2], vec![3, 4], vec![5]],
            _ => vec![vec![], vec![0, 1], vec![1, 2], vec![2, 0], vec![3]],
        };
        config.jitter = [Duration::ZERO, MS][rng.random_range(0..2)];
        config.cancelled = 0.05;
        config.exchange_loss = 0.1;
        for second in 1..9u64 {
            let at = Timestamp::from_ns(second * 1_000_000_000 + rng.random_range(0..900_000_000));
            let back = at + MS * rng.random_range(1..800);
            let module = ModuleId(rng.random_range(1..5));
            let worker = rng.random_range(0..config.workers[module.idx()].len());
            let gateway = GatewayId(rng.random_range(0..n_gateways));
            let (first, then) = match rng.random_range(0..3) {
                0 => (
                    Disturbance::Down(module, worker),
                    Disturbance::Up(module, worker),
                ),
                1 => (
                    Disturbance::GatewayDown(gateway),
                    Disturbance::GatewayUp(gateway),
                ),
                _ => (
                    Disturbance::Pace(module, 3.0),
                    Disturbance::Pace(module, 1.0),
                ),
            };
            config.disturbances.push((at, first));
            config.disturbances.push((back, then));
        }
        let n = config.arrivals.len() as u64;
        let report = run(config).unwrap_or_else(|v| panic!("seed {seed}: {v}"));
        assert_eq!(ended(&report), n, "seed {seed}");
        assert!(report.good > n / 3, "seed {seed}: {report:?}");
    }
}

/// Under overload, what one gateway would do is what several do together.
#[test]
fn several_gateways_drop_hardly_more_than_one() {
    let mut base = config(&[&[0], &[1]], &[], 3600.0, 5);
    base.workers = vec![vec![], vec![0, 1, 2, 3], vec![4, 5, 6, 7]];
    base.noise = 0.0;
    let drops = |gateways| run(pulled(&base, gateways)).unwrap().drop_rate;
    let one = drops(1);
    assert!(one > 0.05, "more comes than can be served: {one}");
    for gateways in [4, 8] {
        let several = drops(gateways);
        assert!(several - one < 0.02, "{gateways}: {several}, {one}");
    }
}

/// A request that finds an idle worker is sent to it at once: it takes its hops and its executions, and waits at each worker
/// for what other gateways may have.
#[test]
fn a_request_that_finds_idle_workers_hardly_waits() {
    let mut base = config(&[&[0], &[1]], &[], 1.0, 7);
    base.noise = 0.0;
    base.handoff = Duration::ZERO;
    base.arrivals = (0..20u64)
        .map(|i| Timestamp::from_ns(i * 500_000_000))
        .collect();
    let report = run(pulled(&base, 4)).unwrap();
    assert_eq!(report.good, 20);
    // Two modules of 6 ms, four hops to each and back, and 0.2 ms at each worker.
    let hops = 4.0 * base.hop.as_secs_f64() * 1e3;
    let rest = report.latency_ms_p50 - 12.0 - hops;
    assert!((rest - 0.4).abs() < 0.1, "{report:?}");
}
