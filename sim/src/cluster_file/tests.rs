use expect_test::expect;

use super::*;
use crate::cluster::{Fault, Scripted};
use spillgate_pipeline::testing::noop_pipeline;

fn parse(text: &str, n_requests: usize) -> Result<Cluster, String> {
    let pipeline = noop_pipeline(Duration::from_millis(100), &[&[0], &[1]], &[]);
    let served = Served {
        pipeline: &pipeline,
        n_devices: 3,
        n_requests,
    };
    parse_cluster(text, "c.yaml", served).map_err(|problems| problems.to_string())
}

#[test]
fn a_cluster() {
    let text = "\
network: { delay: 0.5ms, jitter: 0.1ms }
nodes:
  - { name: edge-a, gateway: true }
  - { name: edge-b, gateway: true, share: 2, clock: { behind: 200ms, drift_ppm: -50 } }
  - { name: control, controllers: [source, m1] }
  - { name: machine, devices: [0, 2] }
links:
  - { between: [machine, edge-b], delay: 2ms }
faults:
  - { at: 1s, for: 2s, crash: machine, silent: true }
  - { at: 3s, for: 1s, one_way: [edge-a, control] }
  - { at: 3s, for: 1s, stall: control, pause: 200ms, every: 1s }
draw: { faults: 6, from: 5s, until: 9s }
";
    let cluster = parse(text, 100).unwrap();
    let names: Vec<&str> = cluster.nodes.iter().map(|n| n.name.as_str()).collect();
    let others = ["controller-m2", "device-1"];
    let written = ["edge-a", "edge-b", "control", "machine"];
    assert_eq!(names, [&written[..], &others].concat());
    assert_eq!(cluster.shares(), [1.0, 2.0]);
    let edge = &cluster.nodes[1];
    assert_eq!((edge.ahead_ns, edge.drift_ppm), (-200_000_000, -50));
    assert_eq!(cluster.links[0].between, [3, 1]);
    let s = Duration::from_secs;
    let fault = Fault::Crash {
        node: 3,
        silent: true,
    };
    let lasts = s(2);
    let at = s(1);
    assert_eq!(cluster.faults[0], Scripted { at, lasts, fault });
    let (from, to, both) = (0, 2, false);
    assert_eq!(cluster.faults[1].fault, Fault::Partition { from, to, both });
    assert_eq!(cluster.heals_at(), s(9));
    assert_eq!(cluster.undisturbed().heals_at(), Duration::ZERO);
}

#[test]
fn each_problem_has_its_line() {
    let text = "\
network: { delay: 2s, jitter: .nan }
nodes:
  - { name: edge-a, gateway: true, share: 0 }
  - { name: edge-a, gateway: true, clock: { drift_ppm: 1000 } }
  - { name: control, controllers: [m1, m9] }
  - { name: machine, devices: [0, 0, 7], controllers: [m1] }
  - { name: nothing }
links:
  - { between: [edge-a, machne] }
  - { between: [edge-a], delay: 1ms }
faults:
  - { at: 1s, crash: nobody }
  - { for: 1s, slow: machine }
  - { at: 1s, for: 1s }
  - { at: 1s, for: 1s, lose: 2 }
  - { at: 1s, for: 1s, break: [machine, machine], crash: machine }
draw: { faults: 0, until: 9s }
";
    expect![[r#"
        error: c.yaml:1: network.delay: 2s is out of range; use 0ms to 1s
        error: c.yaml:1: network.jitter: ".nan" is not a duration; write a number with a unit, like 400ms or 1.5s
        error: c.yaml:3: nodes[0].share: 0 is out of range; use 0.000001 to 1000000
        error: c.yaml:4: nodes[1].name: a node "edge-a" is written already; write it once
        error: c.yaml:4: nodes[1].clock.drift_ppm: 1000 is out of range; use -100 to 100
        error: c.yaml:5: nodes[2].controllers[1]: no module named "m9"; did you mean "m1"?
        error: c.yaml:6: nodes[3].controllers[0]: the controller of m1 (line 5) is written already; write it once
        error: c.yaml:6: nodes[3].devices[1]: device 0 (line 6) is written already; write it once
        error: c.yaml:6: nodes[3].devices[2]: 7 is out of range; use 0 to 2
        error: c.yaml:7: nodes[4]: a role is missing; write gateway: true, controllers: all or devices: [0]
        error: c.yaml:9: links[0].between[1]: no node named "machne"; did you mean "machine"?
        error: c.yaml:10: links[1].between: expected two nodes, like [edge-a, machine-1], found a list
        error: c.yaml:12: faults[0]: for is missing; write for: 2s
        error: c.yaml:12: faults[0].crash: no node named "nobody"; choices are edge-a, edge-a, control, machine, nothing, controller-source, controller-m2, device-1, device-2
        error: c.yaml:13: faults[1]: at is missing; write at: 10s
        error: c.yaml:13: faults[1]: factor is missing; write factor: 3
        error: c.yaml:14: faults[2]: what goes wrong is missing; write one of break, partition, one_way, crash, away, impostor, slow, stall, lose, rogue, like crash: machine-1
        error: c.yaml:15: faults[3].lose: 2 is out of range; use 0 to 1
        error: c.yaml:16: faults[4].crash: what goes wrong (break) is written already; write it once
        error: c.yaml:16: faults[4].break: node machine is written already; write it once
        error: c.yaml:17: draw.faults: 0 is out of range; use 1 to 1000
    "#]]
    .assert_eq(&format!("{}\n", parse(text, 100).unwrap_err()));
    let gateways = "nodes:\n- { name: a, gateway: true }\n- { name: b, gateway: true }\n";
    expect![[r#"
        error: c.yaml:3: nodes: 2 gateways, for that number of requests, are more than the 1 possible; use fewer
    "#]]
    .assert_eq(&format!("{}\n", parse(gateways, 1).unwrap_err()));
    expect![[r#"
        error: c.yaml:1: nodes: a gateway is missing; write { name: edge-a, gateway: true }
    "#]]
    .assert_eq(&format!(
        "{}\n",
        parse("nodes: [{ name: a, devices: all }]", 9).unwrap_err()
    ));
    expect![[r#"
        error: c.yaml:1: the file is empty; write nodes: [...]
    "#]]
    .assert_eq(&format!("{}\n", parse("", 9).unwrap_err()));
}

#[test]
fn what_contradicts_itself_or_does_nothing_is_an_error() {
    let text = "\
nodes:
  - { name: edge-a, gateway: true, clock: { ahead: 1ms, behind: 1ms } }
  - { name: edge-b, gateway: true }
  - { name: machine, devices: [0], share: 2 }
  - { name: device-1, controllers: all }
links:
  - { between: [edge-a, machine], delay: 1ms }
  - { between: [machine, edge-a], delay: 2ms }
  - { between: [edge-a, edge-b], delay: 1ms }
faults:
  - { at: 10s, for: 5s, crash: machine }
  - { at: 15s, for: 5s, crash: machine }
  - { at: 14s, for: 2s, crash: machine, factor: 3 }
  - { at: 14s, for: 2s, slow: machine, factor: 3, silent: true }
  - { at: 1s, for: 2s, lose: 0.1 }
  - { at: 2s, for: 2s, lose: 0.2 }
  - { at: 1s, for: 9s, partition: [machine, device-2] }
";
    expect![[r#"
        error: c.yaml:2: nodes[0].clock.behind: how far the clock is off is written already; write it once
        error: c.yaml:4: nodes[2]: gateway is missing; write gateway: true
        error: c.yaml:5: nodes[3].name: device-1 stands for device 1, which no node has; use another name
        error: c.yaml:8: links[1].between: the link of machine and edge-a is written already; write it once
        error: c.yaml:9: links[2].between: edge-a and edge-b exchange no messages; name a gateway and a device, or a controller and another node
        error: c.yaml:13: faults[2].factor: no field named "factor"; fields are at, for, crash, silent
        error: c.yaml:13: faults[2]: crash: machine of line 11 goes on at that time; let one begin when the other is over
        error: c.yaml:14: faults[3].silent: no field named "silent"; fields are at, for, slow, factor
        error: c.yaml:16: faults[5]: lose of line 15 goes on at that time; let one begin when the other is over
        error: c.yaml:17: faults[6].partition: machine and device-2 exchange no messages; name a gateway and a device, or a controller and another node
    "#]].assert_eq(&format!("{}\n", parse(text, 100).unwrap_err()));
}

#[test]
fn shipped_clusters_are_valid() {
    let mut pipeline = noop_pipeline(Duration::from_millis(100), &[&[0], &[1]], &[]);
    pipeline.modules[1].name = "detect".to_owned();
    let served = Served {
        pipeline: &pipeline,
        n_devices: 24,
        n_requests: 1000,
    };
    for text in [
        include_str!("../../../apps/clusters/clocks.yaml"),
        include_str!("../../../apps/clusters/controller_dies.yaml"),
        include_str!("../../../apps/clusters/edge.yaml"),
        include_str!("../../../apps/clusters/gateway_dies.yaml"),
        include_str!("../../../apps/clusters/lost_messages.yaml"),
        include_str!("../../../apps/clusters/partition.yaml"),
        include_str!("../../../apps/clusters/slow_worker.yaml"),
        include_str!("../../../apps/clusters/stalls.yaml"),
        include_str!("../../../apps/clusters/undisturbed.yaml"),
        include_str!("../../../apps/clusters/worker_dies.yaml"),
        include_str!("../../../apps/clusters/worker_vanishes.yaml"),
    ] {
        parse_cluster(text, "a shipped cluster", served).unwrap_or_else(|e| panic!("{e}"));
    }
}
