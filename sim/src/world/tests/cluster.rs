use crate::cluster::{Cluster, Fault, Node, Scripted, Travel};
use spillgate_pipeline::id::DeviceId;
use spillgate_protocol::message::Address;

use super::*;

/// Nodes of [`clustered`].
const GATEWAYS: [usize; 2] = [0, 1];
const CONTROLLERS: usize = 2;
const DEVICES: [usize; 4] = [3, 4, 5, 6];

/// Two modules with two workers each under two gateways: a process for each gateway and device, and one for both controllers.
fn clustered(rate: f64, seed: u64) -> SimConfig {
    let mut config = with(
        &config(&[&[0], &[1]], &[], rate, seed),
        DropPolicy::SPILLGATE,
    );
    config.workers = vec![vec![], vec![0, 1], vec![2, 3]];
    let mut nodes: Vec<Node> = GATEWAYS
        .map(|i| {
            Node::new(
                format!("gateway-{i}"),
                vec![Address::Gateway(GatewayId(i as u16))],
            )
        })
        .into();
    // The source has a controller, too.
    let controllers = [0, 1, 2].map(|m| Address::Controller(ModuleId(m)));
    nodes.push(Node::new("controllers".to_owned(), controllers.into()));
    let device = |d| Node::new(format!("device-{d}"), vec![Address::Device(DeviceId(d))]);
    nodes.extend((0..4).map(device));
    let cluster = Cluster {
        nodes,
        travel: Travel {
            delay: MS / 2,
            jitter: MS / 5,
        },
        ..Cluster::default()
    };
    config.gateways = cluster.shares();
    config.cluster = Some(Arc::new(cluster));
    config
}

/// The same with these faults: second, duration in milliseconds.
fn disturbed(config: &SimConfig, faults: &[(f64, u32, Fault)]) -> SimConfig {
    let scripted = |&(at, lasts, fault): &(f64, u32, Fault)| Scripted {
        at: Duration::from_secs_f64(at),
        lasts: MS * lasts,
        fault,
    };
    let cluster = Cluster {
        faults: faults.iter().map(scripted).collect(),
        ..(**config.cluster.as_ref().unwrap()).clone()
    };
    SimConfig {
        cluster: Some(Arc::new(cluster)),
        ..config.clone()
    }
}

fn report(config: SimConfig) -> Report {
    let report = run(config).unwrap_or_else(|v| panic!("{v}"));
    assert_eq!(ended(&report), report.requests);
    report
}

#[test]
fn processes_serve_as_roles_that_hear_of_each_other_at_once() {
    let config = clustered(400.0, 1);
    let apart = SimConfig {
        cluster: None,
        apart: true,
        hop: MS / 2,
        jitter: MS / 5,
        ..config.clone()
    };
    let (cluster, apart) = (report(config), report(apart));
    assert!(
        (cluster.drop_rate - apart.drop_rate).abs() < 0.005,
        "{cluster:?} {apart:?}"
    );
}

#[test]
fn clocks_that_are_off_and_drift_cost_nothing() {
    let config = clustered(400.0, 1);
    let mut cluster = (**config.cluster.as_ref().unwrap()).clone();
    for (i, node) in cluster.nodes.iter_mut().enumerate() {
        let sign = [1, -1][i % 2];
        (node.ahead_ns, node.drift_ppm) = (sign * 200_000_000, sign * 50);
    }
    let skewed = SimConfig {
        cluster: Some(Arc::new(cluster)),
        ..config.clone()
    };
    let (skewed, plain) = (report(skewed), report(config));
    assert!(
        skewed.drop_rate < plain.drop_rate + 0.003,
        "{} {}",
        skewed.drop_rate,
        plain.drop_rate
    );
}

/// Whatever breaks between processes: each request ends, and some seconds after it is over all is as it was.
#[test]
fn each_fault_heals() {
    let plain = clustered(300.0, 1);
    let undisturbed = report(plain.clone());
    let [gateway, _] = GATEWAYS;
    let [device, other, ..] = DEVICES;
    let between = [gateway, device];
    let pause = MS * 200;
    for fault in [
        Fault::Break {
            between,
            late: false,
            twice: false,
        },
        Fault::Break {
            between,
            late: true,
            twice: true,
        },
        Fault::Partition {
            from: gateway,
            to: device,
            both: true,
        },
        Fault::Partition {
            from: device,
            to: gateway,
            both: false,
        },
        Fault::Partition {
            from: CONTROLLERS,
            to: gateway,
            both: true,
        },
        Fault::Crash {
            node: gateway,
            silent: false,
        },
        Fault::Crash {
            node: CONTROLLERS,
            silent: true,
        },
        Fault::Crash {
            node: device,
            silent: true,
        },
        Fault::Crash {
            node: other,
            silent: false,
        },
        Fault::Slow {
            node: device,
            factor: 3.0,
        },
        Fault::Stall {
            node: gateway,
            pause,
            every: MS * 1000,
        },
        Fault::Stall {
            node: device,
            pause,
            every: MS * 1000,
        },
        Fault::Loss { part: 0.1 },
        Fault::Rogue {
            node: device,
            rate: 300.0,
        },
        Fault::Rogue {
            node: gateway,
            rate: 300.0,
        },
    ] {
        let config = disturbed(&plain, &[(1.0, 2000, fault)]);
        let report = report(config);
        let good = |of: &Report| of.good_by_second[8..10].iter().sum::<u32>();
        let counts = report.cluster.unwrap();
        println!(
            "{fault:?}: {} good of {}, {} failed, {counts:?}",
            report.good, undisturbed.good, report.failed
        );
        let is_rogue = matches!(fault, Fault::Rogue { .. });
        assert_eq!(
            counts.rogue > 0 && counts.ignored > 0,
            is_rogue,
            "{fault:?}"
        );
        assert!(
            f64::from(good(&report)) >= 0.98 * f64::from(good(&undisturbed)),
            "{fault:?}: {} {}",
            good(&report),
            good(&undisturbed)
        );
    }
}

/// The same where processes register.
fn registering(config: &SimConfig) -> SimConfig {
    let cluster = Cluster {
        registers: true,
        ..(**config.cluster.as_ref().unwrap()).clone()
    };
    SimConfig {
        cluster: Some(Arc::new(cluster)),
        ..config.clone()
    }
}

#[test]
fn processes_that_register_serve_as_those_that_know_each_other() {
    let known = clustered(400.0, 1);
    let (registered, known) = (report(registering(&known)), report(known));
    assert!(
        (registered.drop_rate - known.drop_rate).abs() < 0.005,
        "{registered:?} {known:?}"
    );
}

/// Whoever leaves loses nothing, and whoever comes is used, by the name that it had or another one.
#[test]
fn processes_leave_and_join() {
    let plain = registering(&clustered(300.0, 1));
    let undisturbed = report(plain.clone());
    for node in [GATEWAYS[0], CONTROLLERS, DEVICES[0], DEVICES[3]] {
        for (leaves, renamed) in [(true, true), (true, false), (false, true), (false, false)] {
            let away = Fault::Away {
                node,
                leaves,
                renamed,
            };
            let report = report(disturbed(&plain, &[(1.0, 2000, away)]));
            println!("{away:?}: {} good of {}", report.good, undisturbed.good);
            if leaves {
                assert_eq!(report.failed, 0, "{away:?}");
            }
            let good = |of: &Report| of.good_by_second[8..10].iter().sum::<u32>();
            assert!(
                f64::from(good(&report)) >= 0.98 * f64::from(good(&undisturbed)),
                "{away:?}: {} {}",
                good(&report),
                good(&undisturbed)
            );
        }
    }
}
