use std::time::Duration;

use expect_test::expect;

use super::*;
use spillgate_pipeline::testing::noop_pipeline;

fn parse(text: &str) -> Result<Topology, String> {
    let mut pipeline = noop_pipeline(Duration::from_millis(100), &[&[0], &[1]], &[]);
    pipeline.modules[2].devices = vec!["cpu:0".to_owned(), "cpu:1".to_owned()];
    parse_topology(text, "t.yaml", &pipeline).map_err(|problems| problems.to_string())
}

const WHOLE: &str = "\
processes:
  - { name: gateway-0, gateway: true }
  - { name: gateway-1, gateway: true }
  - { name: control-0, controllers: [source, m1], address: 127.0.0.1:7720 }
  - { name: control-1, controllers: [m2], address: control.example.org:7721 }
  - { name: worker-0, workers: { m1: [cuda:1], m2: 3 }, address: \"[::1]:7722\" }
";

#[test]
fn a_topology() {
    let topology = parse(WHOLE).unwrap();
    let worker = &topology.processes[4];
    let devices = |of: &[&str]| of.iter().map(|&d| d.to_owned()).collect::<Vec<_>>();
    assert_eq!(
        worker.workers,
        [
            (ModuleId(1), devices(&["cuda:1"])),
            (ModuleId(2), devices(&["cpu:0", "cpu:1", "cpu:0"]))
        ]
    );
    assert_eq!(topology.processes[1].gateway, Some(GatewayId(1)));
    assert_eq!(topology.n_gateways(), 2);
}

#[test]
fn each_problem_has_its_line() {
    let text = "\
processes:
  - { name: gateway-0, gateway: yes }
  - { name: gateway-0, gateway: true }
  - { name: control-0, controllers: [m1, m1, m9], address: 127.0.0.1:7720 }
  - { name: worker-0, workers: { m1: 0, m2: [1] }, address: 127.0.0.1 }
  - { name: worker-1, workers: { m1: 1 }, address: 127.0.0.1:7720 }
  - { name: worker-2, workers: { m1: 1 } }
  - { name: idle }
  - 7
";
    expect![[r#"
        error: t.yaml:2: processes[0].gateway: expected true or false, found "yes"
        error: t.yaml:2: processes[0]: a role is missing; write gateway: true, controllers: all or workers: { detect: 1 }
        error: t.yaml:3: processes[1].name: a process "gateway-0" is written already; write it once
        error: t.yaml:4: processes[2].controllers[1]: the controller of m1 (line 4) is written already; write it once
        error: t.yaml:4: processes[2].controllers[2]: no module named "m9"; did you mean "m1"?
        error: t.yaml:5: processes[3].address: expected a host and a port, like 10.0.0.7:7720 or detect-0.example.org:7720, found "127.0.0.1"
        error: t.yaml:5: processes[3].workers.m1: 0 is out of range; use 1 to 64
        error: t.yaml:5: processes[3].workers.m2[0]: expected a device, like cuda:0, found 1; quotes make it a text: "1"
        error: t.yaml:6: processes[4].address: the address of control-0 is written already; write it once
        error: t.yaml:7: processes[5]: address is missing; write address: 127.0.0.1:7720
        error: t.yaml:8: processes[6]: a role is missing; write gateway: true, controllers: all or workers: { detect: 1 }
        error: t.yaml:9: processes[7]: expected a process, like { name: gateway-0, gateway: true }, found a number"#]].assert_eq(&parse(text).unwrap_err());
}

#[test]
fn silence_is_a_setting() {
    let timing = |silence: &str| parse(&format!("{WHOLE}{silence}")).map(|t| t.timing);
    let times = |silence: &str| {
        let timing = timing(silence).unwrap();
        (timing.suspicion().as_millis(), timing.death().as_millis())
    };
    assert_eq!(times(""), (1000, 3000));
    assert_eq!(times("silence: { suspect: 200ms, lose: 5s }"), (200, 5000));
    assert_eq!(times("silence: { suspect: 2s }"), (2000, 6000));
    assert_eq!(times("silence: { lose: 600ms }"), (200, 600));
    expect![[r#"
        error: t.yaml:7: silence.wait: no field named "wait"; fields are suspect, lose
        error: t.yaml:7: silence.suspect: 10ms is out of range; use 50ms to 60s"#]]
    .assert_eq(&timing("silence: { suspect: 10ms, wait: 1s }").unwrap_err());
    expect!["error: t.yaml:7: silence.lose: 1500ms is out of range; use 2s to 600s"]
        .assert_eq(&timing("silence: { suspect: 1s, lose: 1500ms }").unwrap_err());
}

#[test]
fn devices_are_under_a_placement_where_one_is_named_or_memory_is_given() {
    let sharing = |more: &str, memory: &str| {
        let whole = WHOLE.replace("m2: 3 }", &format!("m2: 3 }}{memory}"));
        let topology = parse(&format!("{whole}{more}"))?;
        let memory = topology.processes[4].memory.clone();
        let sharing = topology.sharing;
        Ok::<_, String>((sharing.map(|s| (s.decider.name(), s.is_fair)), memory))
    };
    assert_eq!(sharing("", "").unwrap(), (None, vec![]));
    let lru = sharing("placement: lru\nfairness: off", "");
    assert_eq!(lru.unwrap(), (Some(("lru", false)), vec![]));
    let memory = sharing("", ", memory: { cuda:1: 12GiB, cpu: 640MiB }");
    let of = [("cuda:1", 12 << 30), ("cpu", 640 << 20)];
    let of = of.map(|(device, bytes)| (device.to_owned(), bytes));
    assert_eq!(
        memory.unwrap(),
        (Some(("spillgate", true)), of.to_vec()),
        "the default placement"
    );
    expect![[r#"
        error: t.yaml:7: placement: no placement named "lur"; did you mean "lru"?
        error: t.yaml:8: fairness: no fairness named "maybe"; choices are on, off"#]]
    .assert_eq(&sharing("placement: lur\nfairness: maybe", "").unwrap_err());
    expect!["error: t.yaml:7: fairness: placement is missing; write placement: spillgate"]
        .assert_eq(&sharing("fairness: off", "").unwrap_err());
    expect![[r#"error: t.yaml:6: processes[4].memory.cuda:1: expected memory, like 12GiB, found 12; quotes make it a text: "12""#]].assert_eq(&sharing("", ", memory: { cuda:1: 12 }").unwrap_err());
    let gateway = WHOLE.replacen("gateway: true", "gateway: true, memory: { cpu: 1GiB }", 1);
    expect!["error: t.yaml:2: processes[0].memory: workers is missing; write workers: { detect: [cuda:0] }"].assert_eq(&parse(&gateway).unwrap_err());
}

#[test]
fn each_module_has_a_controller_and_a_worker() {
    let text = "\
processes:
  - { name: control-0, controllers: [source, m1], address: 127.0.0.1:7720 }
  - { name: worker-0, workers: { m1: 1 }, address: 127.0.0.1:7721 }
";
    expect![[r#"
        error: t.yaml:1: processes: a gateway is missing; write { name: gateway-0, gateway: true }
        error: t.yaml:1: processes: the controller of m2 is missing; write { name: controller-0, controllers: [m2], address: 127.0.0.1:7720 }
        error: t.yaml:1: processes: a worker of m2 is missing; write { name: m2-0, workers: { m2: 1 }, address: 127.0.0.1:7720 }"#]].assert_eq(&parse(text).unwrap_err());
    expect!["error: t.yaml:1: the file is empty; write processes: [...]"]
        .assert_eq(&parse("").unwrap_err());
}
