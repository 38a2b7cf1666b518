//! Fair shares in the world of pipelines: polite clients beside greedy ones, at one gateway and at several.

use std::sync::Arc;
use std::time::Duration;

use spillgate_controller_policy::plan::Planned;
use spillgate_pipeline::clients::Rights;
use spillgate_pipeline::id::{DeviceId, GatewayId, ModuleId};
use spillgate_pipeline::policy::DropPolicy;
use spillgate_pipeline::testing::noop_pipeline;
use spillgate_protocol::message::Address;
use spillgate_sim::clients::{ClientLoad, Sends, SimClient};
use spillgate_sim::cluster::{Cluster, Node};
use spillgate_sim::{Report, Served, SimConfig, run};

const SLO: Duration = Duration::from_millis(200);
const SECONDS: u64 = 60;

/// Two modules, one after the other, which take that long for each request.
fn config(execution: Duration, clients: &[SimClient], as_one: bool) -> SimConfig {
    let mut pipeline = noop_pipeline(SLO, &[&[0], &[1]], &[]);
    pipeline.policy.drop = DropPolicy::SPILLGATE;
    let duration = Duration::from_secs(SECONDS);
    let (load, times) = ClientLoad::new(clients, duration, 1, as_one);
    let served = Served {
        planned: Arc::new(Planned {
            batch: vec![1; 3],
            execution: vec![vec![], vec![execution], vec![execution]].into(),
            workers: vec![0, 1, 1],
            alone: true,
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
    for rate in [45.0, 100.0, 500.0, 2500.0] {
        let clients = [
            SimClient::new("polite", 10.0),
            SimClient::new("greedy", rate),
        ];
        let (polite, total, _) = parts(Duration::from_millis(20), &clients, 1);
        assert!(polite >= 0.95 && total >= 0.99, "{rate}: {polite}, {total}");
    }
}

#[test]
fn a_client_that_alternates_takes_nothing_from_a_polite_one() {
    let greedy = SimClient {
        sends: Sends::Alternating,
        ..SimClient::new("greedy", 100.0)
    };
    let clients = [SimClient::new("polite", 10.0), greedy];
    let (polite, total, _) = parts(Duration::from_millis(20), &clients, 1);
    assert!(polite >= 0.95 && total >= 0.99, "{polite}, {total}");
}

/// The gate of each gateway holds two tokens.
#[test]
fn a_polite_client_is_served_at_small_gates() {
    let clients = [
        SimClient::new("polite", 10.0),
        SimClient::new("greedy", 500.0),
    ];
    let (polite, total, _) = parts(Duration::from_millis(20), &clients, 4);
    assert!(polite >= 0.95 && total >= 0.99, "{polite}, {total}");
}

/// Gateways of a cluster number their requests each for itself, and clients are told apart all the same.
#[test]
fn a_polite_client_is_served_in_a_cluster() {
    let clients = [
        SimClient::new("polite", 10.0),
        SimClient::new("greedy", 500.0),
    ];
    let plain = config(Duration::from_millis(20), &clients, false);
    let node = |role| Node::new(format!("{role:?}"), vec![role]);
    let gateways = [0, 1].map(|id| node(Address::Gateway(GatewayId(id))));
    let controllers = [0, 1, 2].map(|module| node(Address::Controller(ModuleId(module))));
    let devices = [0, 1].map(|id| node(Address::Device(DeviceId(id))));
    let cluster = Cluster {
        nodes: gateways
            .into_iter()
            .chain(controllers)
            .chain(devices)
            .collect(),
        ..Cluster::default()
    };
    let clustered = SimConfig {
        gateways: cluster.shares(),
        cluster: Some(Arc::new(cluster)),
        ..plain
    };
    let polite = good(&run(clustered).unwrap(), "polite");
    assert!(polite >= 0.95 * 10.0 * SECONDS as f64, "{polite}");
}

#[test]
fn shares_hold_over_several_gateways() {
    let clients = [
        SimClient::new("polite", 50.0),
        SimClient::new("one", 1000.0),
        SimClient::new("other", 3000.0),
    ];
    let (polite, total, jain) = parts(Duration::from_millis(1), &clients, 4);
    assert!(polite >= 0.95 && total >= 0.99, "{polite}, {total}");
    assert!(jain.unwrap() >= 0.98, "{jain:?}");
}

/// One client whose requests the entry can tell from none: every event is the same.
#[test]
fn a_client_alone_changes_nothing() {
    let clients = [SimClient::new("only", 120.0)];
    let known = config(Duration::from_millis(20), &clients, false);
    let unknown = SimConfig {
        clients: None,
        ..known.clone()
    };
    let hashes = [known, unknown].map(|config| run(config).unwrap().trace_hash);
    assert_eq!(hashes[0], hashes[1]);
}

// Over five seconds: four simulated runs with 10,000 clients.
#[test]
fn ten_thousand_clients_share() {
    let mut many = SimClient::new("many", 0.3);
    many.count = 10_000;
    let clients = [
        SimClient::new("polite", 0.3),
        many,
        SimClient::new("greedy", 2000.0),
    ];
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

/// Clients share the time of the devices: a client whose requests take three times as long gets a third as many, whether it
/// names an application of its own or that of the others.
#[test]
fn device_time_is_shared_whatever_application_a_client_names() {
    for named in ["long", "short"] {
        let mut short = SimClient::new("short", 100.0);
        short.application = "short".to_owned();
        let long = SimClient {
            application: named.to_owned(),
            takes: 3.0,
            ..SimClient::new("long", 100.0)
        };
        let report = run(config(Duration::from_millis(10), &[short, long], false)).unwrap();
        let ratio = good(&report, "short") / good(&report, "long") / 3.0;
        assert!((0.9..1.1).contains(&ratio), "{named}: {ratio}");
    }
}

/// `rate` and `in_flight` of a client hold over all gateways together, also while it moves from gateway to gateway.
#[test]
fn limits_hold_over_several_gateways() {
    let clients = [SimClient::new("fast", 200.0), SimClient::new("other", 20.0)];
    let limited = |rate: Option<f64>, in_flight: Option<u32>| {
        let mut config = SimConfig {
            gateways: vec![1.0, 1.0, 2.0, 4.0],
            apart: true,
            ..config(Duration::from_millis(1), &clients, false)
        };
        let rights = Rights {
            rate,
            in_flight,
            ..Rights::EQUAL
        };
        let of = &mut Arc::make_mut(&mut config.pipeline).clients.named;
        of.insert("fast".to_owned(), rights);
        let report = run(config).unwrap();
        assert!(good(&report, "other") >= 0.99 * 20.0 * SECONDS as f64 * 0.95);
        good(&report, "fast") / SECONDS as f64
    };
    let rate = limited(Some(40.0), None);
    assert!((38.0..=42.0).contains(&rate), "{rate}");
    assert!(limited(None, None) > 190.0);
    // Each takes about 4 ms, so that eight in flight are more than the client ever has, and one at each gateway fewer.
    let (eight, one) = (limited(None, Some(8)), limited(None, Some(1)));
    assert!(eight > 150.0 && one < eight, "{eight}, {one}");
}
