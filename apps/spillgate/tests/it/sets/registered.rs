//! Processes that register with a controller: no file names them.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use super::certificates::Authority;
use super::set::{PATIENCE, Set, refused, run};

/// Starts a controller and a gateway; the gateway's admin port.
fn start(set: &mut Set, flags: &[String]) -> String {
    let admin = set.port();
    let mut of_gateway = vec!["--admin".to_owned(), admin.clone()];
    of_gateway.extend_from_slice(flags);
    set.registers("controller", flags);
    set.registers("gateway-0", &of_gateway);
    admin
}

/// Waits until the peers of a process are so, as `spillgate status` shows them.
fn peers(admin: &str, what: &str, are_so: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let give_up = Instant::now() + PATIENCE;
    loop {
        let arguments = ["status", "--json", "--admin", admin].map(str::to_owned);
        let (_, text) = run(&arguments);
        let status: Value = serde_json::from_str(&text).unwrap_or_default();
        let peers = status["peers"].as_array().cloned().unwrap_or_default();
        if are_so(&peers) {
            return peers;
        }
        assert!(Instant::now() < give_up, "{what}: {text}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn is_there(peers: &[Value], name: &str) -> bool {
    peers
        .iter()
        .any(|peer| peer["process"] == name && peer["state"] == "met")
}

// Over five seconds: five processes start, and load for 8 s.
#[test]
fn workers_are_added_and_leave_under_load_and_nothing_is_lost() {
    let mut set = Set::new("registered");
    let admin = start(&mut set, &[]);
    set.registers("a-0", &[]);
    set.is_ready();
    let report = set.bench(40, 8, |set| {
        set.registers("a-1", &[]);
        let with = |peers: &[Value]| is_there(peers, "a-1");
        let known = peers(&admin, "it is met", with);
        let of = known.iter().find(|peer| peer["process"] == "a-1").unwrap();
        assert_eq!(of["address"], set.address("a-1"));
        assert_eq!(of["version"], env!("CARGO_PKG_VERSION"));
        // The one that was there first leaves, and comes back.
        set.signal("a-0", Signal::SIGTERM);
        peers(&admin, "it has left", |peers| {
            !peers.iter().any(|peer| peer["process"] == "a-0")
        });
        set.registers("a-0", &[]);
        peers(&admin, "it is back", |peers| is_there(peers, "a-0"));
    });
    report.completes_all();
}

// Over five seconds: five processes start, and load for 6 s.
#[test]
fn a_controller_that_begins_anew_knows_those_that_register_again() {
    let mut set = Set::new("anew");
    let admin = start(&mut set, &[]);
    set.registers("a-0", &[]);
    set.is_ready();
    let report = set.bench(40, 6, |set| {
        set.signal("controller", Signal::SIGKILL);
        peers(&admin, "it is gone", |peers| !is_there(peers, "controller"));
        assert!(is_there(&peers(&admin, "", |_| true), "a-0"));
        set.registers("controller", &[]);
        peers(&admin, "it is back", |peers| is_there(peers, "controller"));
        set.registers("a-1", &[]);
        peers(&admin, "its list is whole", |peers| is_there(peers, "a-1"));
    });
    report.completes_all();
}

// Over five seconds: four processes start, and load for 4 s.
#[test]
fn of_two_workers_with_one_name_both_sides_hear() {
    let mut set = Set::new("twins");
    start(&mut set, &[]);
    set.registers("a-0", &[]);
    set.is_ready();
    let report = set.bench(20, 4, |set| {
        set.registers_as("twin", "a-0", "127.0.0.1:0", &[]);
        set.waits_for("controller", "two processes have one name");
        let said =
            "another process has greeted by the name a-0 since; give this one another --name";
        set.waits_for("a-0", said);
    });
    report.completes_all();
}

// Over five seconds: four processes start, and load for 3 s.
#[test]
fn a_worker_that_plans_by_another_profile_is_named_on_both_sides() {
    let mut set = Set::new("profiles");
    let admin = set.port();
    set.registers("controller", &["--admin".to_owned(), admin.clone()]);
    set.registers("gateway-0", &[]);
    set.registers("a-0", &[]);
    set.is_ready();
    let other = set.path("other.yaml");
    let profile = "emulated: { a: { \"-\": { alpha: 9ms, beta: 1ms, max: 1 } } }";
    std::fs::write(&other, profile).unwrap();
    let other = other.to_str().unwrap().to_owned();
    set.registers("a-1", &["--profiles".to_owned(), other]);
    let why = "a-1 plans a on emulated by another profile than a-0; give both the same --profiles";
    for process in ["controller", "a-1"] {
        set.waits_for(process, why);
    }
    let (_, status) = run(&["status", "--admin", &admin].map(str::to_owned));
    assert!(status.contains(why), "{status}");
    set.bench(20, 3, |_| ()).completes_all();
}

// Over five seconds: three processes start, and one dials nobody.
#[test]
fn a_set_without_a_controller_and_a_worker_of_another_set_are_named() {
    let mut set = Set::new("alone");
    let admin = set.port();
    set.registers("gateway-0", &["--admin".to_owned(), admin.clone()]);
    let at = set.address("controller");
    set.waits_for_about("gateway-0", &at, "Connection refused");
    set.waits_for("gateway-0", "listening on http");
    let body = set.ready(&admin);
    assert!(body.contains("module a has no worker yet"), "{body}");
    set.registers("controller", &[]);
    set.waits_for("gateway-0", "peer met");
    set.registers("a-0", &["--set".to_owned(), "other".to_owned()]);
    let why = "start both with the same --set, or connect each with its own";
    set.waits_for_about("a-0", &at, why);
    set.waits_for_about("controller", "127.0.0.1", why);
}

// Over five seconds: five processes start, and load for 3 s.
#[test]
fn a_certificate_is_for_its_set_and_for_the_name_that_it_names() {
    let authority = Authority::new("registered");
    for (file, name) in [
        ("controller", "controller.prod"),
        ("gateway", "gateway.prod"),
        ("any", "worker.prod"),
        ("a-0", "a-0.worker.prod"),
        ("other", "worker.test"),
    ] {
        authority.certificate(file, &[name], |_| {});
    }
    let flags = |file: &str| {
        let mut flags = authority.flags(file);
        flags.extend(["--set".to_owned(), "prod".to_owned()]);
        flags
    };
    let mut set = Set::new("certified");
    set.registers("controller", &flags("controller"));
    set.registers("gateway-0", &flags("gateway"));
    set.registers("a-0", &flags("a-0"));
    set.is_ready();
    for (name, file, why) in [
        (
            "a-1",
            "a-0",
            "peer a-1 greets as worker, its certificate is for a-0.worker.prod",
        ),
        (
            "a-1",
            "other",
            "its certificate is for no role of set prod, but for worker.test",
        ),
    ] {
        set.registers(name, &flags(file));
        set.waits_for_about("controller", "127.0.0.1", why);
        set.waits_for(name, why);
        set.signal(name, Signal::SIGKILL);
    }
    set.registers("a-1", &flags("any"));
    set.waits_for("gateway-0", "peer met peer=\"a-1\"");
    set.bench(20, 3, |_| ()).completes_all();
}

#[test]
fn wrong_flags_are_named() {
    let set = Set::new("wrong");
    let pipeline = set.path("one.yaml").to_str().unwrap().to_owned();
    let run = |flags: &[&str]| {
        let arguments = [&["worker", &pipeline, "--no-admin"], flags].concat();
        refused(&arguments.into_iter().map(str::to_owned).collect::<Vec<_>>())
    };
    for (flags, code, expected) in [
        (
            &[][..],
            1,
            "--controllers: the address of a controller is missing",
        ),
        (&["--controllers", "here"], 1, "expected a host and a port"),
        (
            &["--controllers", "here:1", "--modules", "b"],
            1,
            "--modules: no module named \"b\"",
        ),
        (
            &["--controllers", "here:1", "--topology", "t.yaml"],
            2,
            "cannot be used with",
        ),
        (
            &["--controllers", "here:1", "--name", "a b"],
            2,
            "letters, digits",
        ),
        (
            &["--controllers", "here:1", "--set", "a..b"],
            2,
            "the name of a set",
        ),
    ] {
        let (was, said) = run(flags);
        assert!(
            was == code && said.contains(expected),
            "{flags:?}: {was}, {said}"
        );
    }
}

// Over five seconds: five processes start and stop.
#[test]
fn what_the_environment_says_of_another_set_does_not_reach_the_processes_of_up() {
    let mut set = Set::new("environment");
    let at = set.port();
    set.start_up(&[
        ("SPILLGATE_CONTROLLERS", "control-7:7720".into()),
        ("SPILLGATE_MODULES", "a=7".into()),
        ("SPILLGATE_ADDRESS", "a-7:7720".into()),
        ("SPILLGATE_LINK_LISTEN", at.into()),
        ("SPILLGATE_NO_ADMIN", "1".into()),
    ]);
    set.waits_for("up", "all processes are ready");
    set.signal("up", Signal::SIGINT);
    set.waits_for("up", "stopped");
}
