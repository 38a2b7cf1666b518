//! A greedy client without an SLO beside ordinary clients: these lose next to nothing, and it gets most of what is idle.

use std::sync::Arc;
use std::time::Duration;

use spillgate_controller_policy::plan::Planned;
use spillgate_pipeline::policy::DropPolicy;
use spillgate_pipeline::testing::noop_pipeline;
use spillgate_recipes::drops;
use spillgate_sim::clients::{ClientLoad, SimClient};
use spillgate_sim::{Report, Served, SimConfig, run};

const SECONDS: u64 = 60;
/// Devices of each module.
const DEVICES: u16 = 2;

/// Two modules, one after the other.
#[derive(Clone)]
struct Shape {
    slo: Duration,
    /// By batch size.
    execution: Vec<Duration>,
}

impl Shape {
    /// A batch of `n` takes `8 + 2 n` ms.
    fn batches() -> Self {
        Shape {
            slo: Duration::from_millis(100),
            execution: (1..=8).map(|n| Duration::from_millis(8 + 2 * n)).collect(),
        }
    }

    /// One request alone takes longer than a batch of requests without an SLO should.
    fn long() -> Self {
        Shape {
            slo: Duration::from_millis(200),
            execution: vec![Duration::from_millis(20)],
        }
    }

    fn batch(&self) -> u32 {
        self.execution.len() as u32
    }

    /// Requests a second that a module serves in full batches.
    fn capacity(&self) -> f64 {
        let full = self.execution[self.batch() as usize - 1];
        f64::from(u32::from(DEVICES) * self.batch()) / full.as_secs_f64()
    }
}

fn client(name: &str, rate: f64, background: bool) -> SimClient {
    SimClient {
        background,
        ..SimClient::new(name, rate)
    }
}

/// Ordinary clients ask for `load` times the capacity, and the last one, which has no SLO, for ten times.
fn report(shape: &Shape, policy: DropPolicy, gateways: usize, load: f64, greedy: bool) -> Report {
    let mut pipeline = noop_pipeline(shape.slo, &[&[0], &[1]], &[]);
    pipeline.policy.drop = policy;
    for module in &mut pipeline.modules[1..] {
        module.batch.max = shape.batch();
    }
    let duration = Duration::from_secs(SECONDS);
    let rate = load * shape.capacity();
    let mut clients = vec![
        client("a", 0.7 * rate, false),
        client("b", 0.3 * rate, false),
    ];
    if greedy {
        clients.push(client("nightly", 10.0 * shape.capacity(), true));
    }
    let (load, times) = ClientLoad::new(&clients, duration, 1, false);
    let served = Served {
        planned: Arc::new(Planned {
            batch: vec![1, shape.batch(), shape.batch()],
            execution: vec![vec![], shape.execution.clone(), shape.execution.clone()].into(),
            workers: vec![0, DEVICES.into(), DEVICES.into()],
            alone: true,
        }),
        workers: vec![
            vec![],
            (0..DEVICES).collect(),
            (DEVICES..2 * DEVICES).collect(),
        ],
        pipeline: Arc::new(pipeline),
        arrivals: times.into(),
        duration,
    };
    run(SimConfig {
        clients: Some(load),
        gateways: vec![1.0; gateways],
        apart: gateways > 1,
        ..SimConfig::undisturbed(served, 1)
    })
    .unwrap()
}

/// What ordinary clients may lose beside a greedy one without an SLO, of what they get alone: half a point. Several gateways, which learn of
/// each other's requests late, lose half a point on average, and up to one by chance.
fn may_lose(gateways: usize) -> f64 {
    match gateways {
        1 => 0.005,
        _ => 0.01,
    }
}

/// Ordinary clients lose no more than they may, and devices are busy.
fn check(shape: &Shape, policy: DropPolicy, gateways: usize, load: f64) {
    let alone = report(shape, policy, gateways, load, false);
    let beside = report(shape, policy, gateways, load, true);
    let background = beside.background.unwrap();
    let said = format!(
        "{} gateways {gateways} load {load}: in time {:.4} -> {:.4}, of the devices {:.3} -> {:.3} and {:.3} without an SLO",
        policy.name(),
        alone.finish_rate,
        beside.finish_rate,
        alone.utilisation,
        beside.utilisation,
        background.utilisation
    );
    println!("{said}");
    assert_eq!(alone.requests, beside.requests, "{said}");
    let least = alone.finish_rate - may_lose(gateways);
    assert!(beside.finish_rate > least, "{said}");
    assert!(beside.utilisation + background.utilisation > 0.95, "{said}");
    let nightly = beside.clients.last().unwrap();
    assert_eq!(nightly.good, background.completed, "{said}");
    assert!(background.completed > 0, "{said}");
}

// Over five seconds: eight simulated loads, each with and without the client.
#[test]
fn ordinary_clients_lose_nothing_at_a_usual_load() {
    for shape in [Shape::batches(), Shape::long()] {
        for gateways in [1, 3] {
            check(&shape, DropPolicy::SPILLGATE, gateways, 0.6);
        }
        check(&shape, DropPolicy::PARD, 1, 0.6);
        check(&shape, drops::PARD_HBF, 1, 0.6);
    }
}

// Over five seconds: eight simulated loads, each with and without the client.
#[test]
fn ordinary_clients_lose_nothing_under_overload() {
    for shape in [Shape::batches(), Shape::long()] {
        for gateways in [1, 3] {
            check(&shape, DropPolicy::SPILLGATE, gateways, 1.3);
        }
        check(&shape, DropPolicy::PARD, 1, 1.3);
        check(&shape, drops::PARD_HBF, 1, 1.3);
    }
}
