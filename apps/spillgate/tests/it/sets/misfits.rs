//! Processes that do not fit into their set: both sides say why, `status` shows it, and nobody else is harmed.

use std::time::{Duration, Instant};

use super::set::{PATIENCE, PROCESSES, Set, refused, run};

/// Starts all but the second worker; the address of the gateway's admin port.
fn start_without_a_1(set: &mut Set) -> String {
    let admin = set.port();
    for (name, role) in PROCESSES {
        let flags = ["--admin".to_owned(), admin.clone()];
        match role {
            "gateway" => set.start(name, &flags),
            _ if name != "a-1" => set.start(name, &[]),
            _ => {}
        }
    }
    set.is_ready();
    admin
}

/// Waits until `spillgate status` shows this.
fn status_shows(admin: &str, what: &str) {
    let give_up = Instant::now() + PATIENCE;
    loop {
        let arguments = ["status", "--admin", admin].map(str::to_owned);
        let (_, text) = run(&arguments);
        if text.contains(what) {
            return;
        }
        assert!(Instant::now() < give_up, "{what:?} is not in {text}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

// Over five seconds: four processes start, and load for 5 s.
#[test]
fn a_worker_with_another_pipeline_is_named_on_both_sides() {
    let mut set = Set::new("pipeline");
    let admin = start_without_a_1(&mut set);
    let file = set.path("one.yaml");
    let ours = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, ours.replace("slo: 1s", "slo: 2s")).unwrap();
    let report = set.bench(20, 5, |set| {
        set.start("a-1", &[]);
        let at = set.address("a-1");
        let remedy = "give both the same pipeline file";
        set.waits_for_about("gateway-0", &at, remedy);
        set.waits_for_about("a-1", "127.0.0.1", remedy);
        status_shows(&admin, remedy);
    });
    report.completes_all();
}

// Over five seconds: three processes start, look up a name that does not exist, and load for 3 s.
#[test]
fn an_address_that_cannot_be_looked_up_is_named() {
    let mut set = Set::new("lookup");
    let mut addresses = PROCESSES.map(|(name, _)| (name, set.address(name)));
    addresses[1].1 = "nowhere.invalid:7720".to_owned();
    set.topology(&addresses.into());
    let admin = start_without_a_1(&mut set);
    let why = "the address cannot be looked up";
    set.waits_for_about("gateway-0", "nowhere.invalid:7720", why);
    status_shows(&admin, why);
    set.bench(20, 3, |_| ()).completes_all();
}

// Over five seconds: two processes start, and load for 2 s.
#[test]
fn a_module_without_workers_is_named_by_the_gateway() {
    let mut set = Set::new("without");
    let admin = set.port();
    let flags = ["--admin".to_owned(), admin.clone()];
    set.start("controller", &[]);
    set.start("gateway-0", &flags);
    set.waits_for("gateway-0", "listening on http");
    let body = set.ready(&admin);
    let why = "pipeline one: module a has no worker yet";
    assert!(body.contains(why), "{body}");
    // Its requests end at once, not at their deadline.
    let report = set.bench(20, 2, |_| ());
    assert_eq!(report.completed, 0);
    assert_eq!(report.ended(), report.requests());
}

#[test]
fn a_topology_that_contradicts_itself_is_refused() {
    let set = Set::new("contradicts");
    let text = "processes:
  - { name: gateway-0, gateway: true }
  - { name: a-0, workers: { a: 1 }, controllers: all, address: 10.0.0.1:7720 }
  - { name: controller, controllers: [a], address: 10.0.0.1:7720 }
";
    std::fs::write(set.path("topology.yaml"), text).unwrap();
    let (code, said) = refused(&set.arguments("controller", "controller", &[]));
    assert_eq!(code, 78, "{said}");
    for line in [
        "topology.yaml:4: processes[2].controllers[0]: the controller of a (line 3) is written already",
        "topology.yaml:4: processes[2].address: the address of a-0 is written already",
    ] {
        assert!(said.contains(line), "{said}");
    }
}
