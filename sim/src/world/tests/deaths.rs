use super::*;

/// One of two workers dies with all it has and comes back: the other one serves what it had, and nothing fails.
#[test]
fn what_a_dead_worker_had_is_served_by_another() {
    let mut config = with(&config(&[&[0]], &[], 200.0, 1), DropPolicy::SPILLGATE);
    config.workers = vec![vec![], vec![0, 1]];
    let at = |ms: u32| Timestamp::ZERO + MS * ms;
    let first = ModuleId(1);
    config.disturbances = vec![
        (at(3_003), Disturbance::Down(first, 0)),
        (at(6_000), Disturbance::Up(first, 0)),
    ];
    let report = run(config.clone()).unwrap();
    assert_eq!(report.failed, 0);
    assert!(report.drop_rate < 0.005, "{}", report.drop_rate);
    // Alone there is nobody else to serve it.
    config.workers = vec![vec![], vec![0]];
    assert!(run(config).unwrap().failed > 0);
}

/// The device of two modules dies: what it had of either is answered.
#[test]
fn a_shared_device_that_dies_takes_no_request_with_it_unanswered() {
    let mut config = with(&config(&[&[0], &[1]], &[], 100.0, 2), DropPolicy::PARD);
    config.workers = vec![vec![], vec![0, 1], vec![0, 1]];
    let at = |ms: u32| Timestamp::ZERO + MS * ms;
    config.disturbances = vec![
        (at(2_000), Disturbance::Down(ModuleId(2), 0)),
        (at(4_000), Disturbance::Up(ModuleId(2), 0)),
        (at(6_000), Disturbance::Down(ModuleId(1), 1)),
    ];
    let n = config.arrivals.len() as u64;
    let report = run(config).unwrap();
    assert_eq!((ended(&report), report.failed), (n, 0));
}

/// Two modules with two workers each, under two gateways.
fn two_gateways(rate: f64) -> SimConfig {
    let mut config = with(&config(&[&[0], &[1]], &[], rate, 3), DropPolicy::SPILLGATE);
    config.workers = vec![vec![], vec![0, 1], vec![2, 3]];
    config.gateways = vec![1.0; 2];
    config.apart = true;
    config
}

/// A gateway that crashes costs its own open requests only, and serves again when it is back.
#[test]
fn a_gateway_that_crashes_costs_its_own_requests_only() {
    let mut config = two_gateways(300.0);
    let at = |ms: u32| Timestamp::ZERO + MS * ms;
    config.disturbances = vec![
        (at(3_000), Disturbance::GatewayDown(GatewayId(1))),
        (at(6_000), Disturbance::GatewayUp(GatewayId(1))),
    ];
    let undisturbed = run(two_gateways(300.0)).unwrap();
    let report = run(config).unwrap();
    assert_eq!(ended(&report), report.requests);
    // Half of what is open at one moment, at 300 a second and less than 60 ms.
    assert!(report.good + 10 >= undisturbed.good, "{report:?}");
}

/// While a controller is away its gateways and workers go on with what it said last.
#[test]
fn a_controller_that_crashes_costs_little() {
    let at = |ms: u32| Timestamp::ZERO + MS * ms;
    for module in [1, 2].map(ModuleId) {
        let mut config = two_gateways(600.0);
        config.disturbances = vec![
            (at(3_000), Disturbance::ControllerDown(module)),
            (at(6_000), Disturbance::ControllerUp(module)),
        ];
        let undisturbed = run(two_gateways(600.0)).unwrap();
        let report = run(config).unwrap();
        assert_eq!(ended(&report), report.requests);
        let lost = report.drop_rate - undisturbed.drop_rate;
        assert!(
            lost < 0.01,
            "{} {}",
            report.drop_rate,
            undisturbed.drop_rate
        );
    }
}
