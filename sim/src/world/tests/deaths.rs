use super::*;

/// One of two workers dies with all it has and comes back: the other one serves what it had, and nothing fails.
#[test]
fn what_a_dead_worker_had_is_served_by_another() {
    let mut config = with(&config(&[&[0]], &[], 200.0, 1), DropPolicyName::Spillgate);
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
    let mut config = with(&config(&[&[0], &[1]], &[], 100.0, 2), DropPolicyName::Pard);
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
