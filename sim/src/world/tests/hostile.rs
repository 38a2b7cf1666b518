use super::*;

/// Hostile clients leave the other clients at least 95% of the good answers that they have alone.
#[test]
fn hostile_clients_take_no_places() {
    let mut pipeline = noop_pipeline(200 * MS, &[&[0], &[1]], &[]);
    pipeline.policy.drop = DropPolicy::SPILLGATE;
    let duration = Duration::from_secs(10);
    let served = Served {
        planned: planned(3, vec![20 * MS]),
        workers: vec![vec![], vec![0], vec![1]],
        pipeline: Arc::new(pipeline),
        arrivals: arrivals(Arrivals::Constant, 40.0, duration, 1).into(),
        duration,
    };
    let alone = SimConfig::undisturbed(served, 1);
    let good = |kinds: &[HostileKind]| {
        let hostile = kinds.iter().map(|&kind| Hostile { kind, rate: 300.0 });
        let config = SimConfig {
            hostile: hostile.collect(),
            ..alone.clone()
        };
        let report = run(config).unwrap();
        let offered = alone.arrivals.len() as u64;
        assert_eq!(
            ended(&report),
            offered,
            "the workload is counted, and nothing else"
        );
        report.good
    };
    let all = good(&[]);
    assert_eq!(all, alone.arrivals.len() as u64);
    let hurry = HostileKind::Hurry(MS);
    let leave = HostileKind::Leave(5 * MS);
    for kinds in [
        &[hurry][..],
        &[HostileKind::Unreadable],
        &[leave],
        &[hurry, HostileKind::Unreadable, leave],
    ] {
        let good = good(kinds);
        assert!(good * 100 >= all * 95, "{kinds:?}: {good} of {all}");
    }
}
