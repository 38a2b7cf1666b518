use std::time::Duration;

use expect_test::expect;
use proptest::prelude::*;

use super::*;
use crate::topology::parse_topology;
use spillgate_pipeline::testing::noop_pipeline;

fn pipeline() -> Pipeline {
    let mut pipeline = noop_pipeline(Duration::from_millis(100), &[&[0], &[1]], &[]);
    pipeline.modules[2].devices = vec!["cpu:0".to_owned(), "cpu:1".to_owned()];
    pipeline
}

/// Three lists with commas, as they are written on a command line.
fn read(gateways: &str, controllers: &str, workers: &str) -> Result<Topology, String> {
    let list = |text: &str| -> Vec<String> {
        let entries = text.split(',').filter(|entry| !entry.is_empty());
        entries.map(str::to_owned).collect()
    };
    let addresses = Addresses {
        gateways: &list(gateways),
        controllers: &list(controllers),
        workers: &list(workers),
    };
    let topology = addresses.topology(&pipeline());
    topology.map_err(|error| error.to_string())
}

#[test]
fn addresses_make_the_topology_that_a_file_makes() {
    let by_flags = read(
        "gateway-[0-1]",
        "control-0.control:7720",
        "m1=detect-[08-10].detect:7721,m2=detect-10.detect:7721,m2=10.0.0.7:7721,m2=[::1]:7,m1=localhost:9",
    );
    let text = "\
processes:
  - { name: gateway-0, gateway: true }
  - { name: gateway-1, gateway: true }
  - { name: control-0, controllers: all, address: control-0.control:7720 }
  - { name: detect-08, workers: { m1: 1 }, address: detect-08.detect:7721 }
  - { name: detect-09, workers: { m1: 1 }, address: detect-09.detect:7721 }
  - { name: detect-10, workers: { m1: 1, m2: 1 }, address: detect-10.detect:7721 }
  - { name: host-10-0-0-7-7721, workers: { m2: 1 }, address: 10.0.0.7:7721 }
  - { name: host---1-7, workers: { m2: 1 }, address: \"[::1]:7\" }
  - { name: localhost-9, workers: { m1: 1 }, address: localhost:9 }
";
    let by_file = parse_topology(text, "t.yaml", &pipeline()).unwrap();
    assert_eq!(by_flags.unwrap(), by_file);
}

#[test]
fn each_module_may_have_a_controller_of_its_own() {
    let topology = read("g", "source=a:1,m1=a:1,m2=b:1", "m1=c:1,m2=c:1").unwrap();
    let controllers = topology.processes.iter().map(|p| p.controllers.len());
    assert_eq!(controllers.collect::<Vec<_>>(), [0, 2, 1, 0]);
}

#[test]
fn what_is_wrong_is_named_with_its_flag() {
    let whole = ("gateway-0", "control-0:7720", "m1=a-0:1,m2=a-0:1");
    let mut said = String::new();
    let mut say = |gateways: &str, controllers: &str, workers: &str| {
        said += &read(gateways, controllers, workers).unwrap_err();
        said.push('\n');
    };
    for gateways in [
        "",
        "7",
        "g-0,g-0",
        "g:7700",
        "g-[3-1]",
        "g-[a]",
        "g-[0-4294967295]",
    ] {
        say(gateways, whole.1, whole.2);
    }
    for controllers in [
        "",
        "m1=c:1",
        "c:1,c:1",
        "c:1,m1=d:1",
        "c",
        "m9=c:1",
        "gateway-0:1",
    ] {
        say(whole.0, controllers, whole.2);
    }
    for workers in [
        "",
        "m1=a-0:1",
        "a-0:1",
        "m3=a-0:1",
        "m1=a-0:0",
        "m1=a:1,m1=a:1",
        "m1=a:1,m2=a.b:1",
    ] {
        say(whole.0, whole.1, workers);
    }
    say("g-[0-600],h-[0-600]", whole.1, whole.2);
    expect![[r#"
        --gateways: a gateway is missing; write gateway-0
        --gateways: "7" is no name; use letters, digits, _ and -, a letter first, 64 characters at most
        --gateways: a process named "g-0" (hosts need names that differ up to the first dot) is written already; write it once
        --gateways: "g:7700" is no name; use letters, digits, _ and -, a letter first, 64 characters at most
        --gateways: expected a range like [0-3], of at most 1024 numbers, found "[3-1]"
        --gateways: expected a range like [0-3], of at most 1024 numbers, found "[a]"
        --gateways: expected a range like [0-3], of at most 1024 numbers, found "[0-4294967295]"
        --controllers: the controller of source is missing; write source=control-0:7720, or control-0:7720 for all modules
        --controllers: the controller of source is missing; write source=control-0:7720, or control-0:7720 for all modules
        --controllers: the controller of source is written already; write it once
        --controllers: the controller of m1 is written already; write it once
        --controllers: expected a host and a port, like detect-0.detect:7720, found "c"
        --controllers: no module named "m9"; did you mean "m1"?
        --controllers: a process named "gateway-0" (hosts need names that differ up to the first dot) is written already; write it once
        --workers: a worker of m1 is missing; write m1=m1-0:7720
        --workers: a worker of m2 is missing; write m2=m2-0:7720
        --workers: expected MODULE=HOST:PORT, found "a-0:1"
        --workers: no module named "m3"; did you mean "m1"?
        --workers: expected a host and a port, like detect-0.detect:7720, found "a-0:0"
        --workers: the worker of m1 at a:1 is written already; write it once
        --workers: a process named "a" (hosts need names that differ up to the first dot) is written already; write it once
        --gateways: 1025 processes are more than the 1024 possible; use fewer
    "#]].assert_eq(&said);
}

proptest! {
    /// Whatever is written, it is read or refused, and what is read is whole.
    #[test]
    fn any_text_is_read_or_refused(
        gateways in prop::collection::vec("[a-z0-9\\[\\]:.=-]{0,12}", 0..3),
        controllers in prop::collection::vec("(m[0-3]=)?[a-z0-9\\[\\]:.=-]{0,12}(:[0-9]{1,5})?", 0..3),
        workers in prop::collection::vec("(m[0-3]=)?[a-z0-9\\[\\]:.=-]{0,12}(:[0-9]{1,5})?", 0..3),
    ) {
        let addresses = Addresses { gateways: &gateways, controllers: &controllers, workers: &workers };
        if let Ok(topology) = addresses.topology(&pipeline()) {
            prop_assert!(topology.n_gateways() > 0);
            prop_assert_eq!(topology.without_controller(&pipeline()).count(), 0);
            prop_assert_eq!(topology.without_worker(&pipeline()).count(), 0);
            for (i, process) in topology.processes.iter().enumerate() {
                prop_assert_eq!(topology.position(&process.name), Some(i));
            }
        }
    }
}
