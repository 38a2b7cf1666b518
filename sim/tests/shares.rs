//! Fair shares in the world of pipelines: polite clients beside greedy ones, at one gateway and at several.

use std::sync::Arc;
use std::time::Duration;

use spillgate_controller_policy::plan::Planned;
use spillgate_pipeline::policy::DropPolicyName;
use spillgate_pipeline::testing::noop_pipeline;
use spillgate_sim::clients::{ClientLoad, Sends, SimClient};
use spillgate_sim::{Report, Served, SimConfig, run};

const SLO: Duration = Duration::from_millis(200);
const SECONDS: u64 = 60;

fn client(name: &str, rate: f64) -> SimClient {
    SimClient {
        name: name.to_owned(),
        count: 1,
        sends: Sends::Poisson,
        rate,
        streams: 1,
        weight: 1.0,
        class: 0,
    }
}

/// Two modules, one after the other, which take that long for each request.
fn config(execution: Duration, clients: &[SimClient], as_one: bool) -> SimConfig {
    let mut pipeline = noop_pipeline(SLO, &[&[0], &[1]], &[]);
    pipeline.policy.drop = DropPolicyName::Spillgate;
    let duration = Duration::from_secs(SECONDS);
    let (load, times) = ClientLoad::new(clients, duration, 1, as_one);
    let served = Served {
        planned: Arc::new(Planned {
            batch: vec![1; 3],
            execution: vec![vec![], vec![execution], vec![execution]].into(),
            workers: vec![0, 1, 1],
            alone: false,
        }),
        workers: vec![vec![], vec![0], vec![1]],
        pipeline: Arc::new(pipeline),
        arrivals: times.into(),
        duration,
    };
    SimConfig {
        clients: Some(load),
        ..SimConfig::undisturbed(served, 1)
    }
}

fn good(report: &Report, name: &str) -> f64 {
    let of = report.clients.iter().filter(|c| c.name.starts_with(name));
    of.map(|c| c.good as f64).sum()
}

/// What polite clients get of what they get alone, and all of what they get without shares.
fn parts(execution: Duration, clients: &[SimClient], gateways: usize) -> (f64, f64, Option<f64>) {
    let run = |clients: &[SimClient], as_one| {
        let config = SimConfig {
            gateways: vec![1.0; gateways],
            apart: gateways > 1,
            ..config(execution, clients, as_one)
        };
        run(config).unwrap()
    };
    let (alone, without, with) = (
        run(&clients[..1], false),
        run(clients, true),
        run(clients, false),
    );
    let polite = good(&with, "polite") / good(&alone, "polite");
    (polite, with.good as f64 / without.good as f64, with.jain)
}

#[test]
fn a_polite_client_is_served_as_if_alone() {
    for rate in [100.0, 500.0, 2500.0] {
        let clients = [client("polite", 10.0), client("greedy", rate)];
        let (polite, total, _) = parts(Duration::from_millis(20), &clients, 1);
        assert!(polite >= 0.95 && total >= 0.99, "{rate}: {polite}, {total}");
    }
}

#[test]
fn shares_hold_over_several_gateways() {
    let clients = [
        client("polite", 50.0),
        client("one", 1000.0),
        client("other", 3000.0),
    ];
    let (polite, total, jain) = parts(Duration::from_millis(1), &clients, 4);
    assert!(polite >= 0.95 && total >= 0.99, "{polite}, {total}");
    assert!(jain.unwrap() >= 0.98, "{jain:?}");
}

/// One client whose requests the entry can tell from none: every event is the same.
#[test]
fn a_client_alone_changes_nothing() {
    let clients = [client("only", 120.0)];
    let known = config(Duration::from_millis(20), &clients, false);
    let unknown = SimConfig {
        clients: None,
        ..known.clone()
    };
    let hashes = [known, unknown].map(|config| run(config).unwrap().trace_hash);
    assert_eq!(hashes[0], hashes[1]);
}

#[test]
fn ten_thousand_clients_share() {
    let mut many = client("many", 0.3);
    many.count = 10_000;
    let clients = [client("polite", 0.3), many, client("greedy", 2000.0)];
    let (_, total, _) = parts(Duration::from_millis(1), &clients, 1);
    assert!(total >= 0.99, "{total}");
    let report = run(config(Duration::from_millis(1), &clients, false)).unwrap();
    // Each of the many asks for more than the tenth of a request a second that is its share; so does the greedy one, which
    // is one of them.
    let greedy = good(&report, "greedy");
    assert!(
        greedy < 0.1 * report.good as f64,
        "{greedy} of {}",
        report.good
    );
}
