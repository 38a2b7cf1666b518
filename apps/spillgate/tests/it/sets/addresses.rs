//! A set without a topology file.

use std::path::PathBuf;

use nix::sys::signal::Signal;

use super::set::{Set, refused};

// Over five seconds: four processes start, and load for 3 s.
#[test]
fn processes_find_each_other_by_addresses_in_the_environment() {
    let mut set = Set::new("addresses");
    let ports = ["a-0", "a-1", "controller"].map(|name| set.address(name));
    let named = ports.clone().map(|at| at.replace("127.0.0.1", "localhost"));
    let names = named.clone().map(|at| at.replace(':', "-"));
    let environment = |name: &str, listens: Option<&str>| {
        let mut variables = vec![
            ("SPILLGATE_GATEWAYS", "gateway-[0-0]".to_owned()),
            (
                "SPILLGATE_WORKERS",
                format!("a={},a={}", named[0], named[1]),
            ),
            ("SPILLGATE_CONTROLLERS", named[2].clone()),
            ("SPILLGATE_NAME", name.to_owned()),
            ("SPILLGATE_NO_ADMIN", "1".to_owned()),
        ];
        variables.extend(listens.map(|at| ("SPILLGATE_LINK_LISTEN", at.to_owned())));
        let each = variables.into_iter();
        let each = each.map(|(name, value)| (name, PathBuf::from(value)));
        each.collect::<Vec<_>>()
    };
    let pipeline = set.path("one.yaml").to_str().unwrap().to_owned();
    for (i, role) in ["worker", "worker", "controller"].into_iter().enumerate() {
        let arguments = [role.to_owned(), pipeline.clone()];
        let environment = environment(&names[i], Some(&ports[i]));
        set.run(&names[i], &arguments, &environment);
    }
    let listen = set.address("gateway-0");
    let arguments = ["gateway", &pipeline, "--listen", &listen].map(str::to_owned);
    set.run("gateway-0", &arguments, &environment("gateway-0", None));
    set.is_ready();
    set.bench(20, 3, |_| ()).completes_all();
}

#[test]
fn wrong_addresses_are_named_with_their_flag() {
    let set = Set::new("wrong");
    let pipeline = set.path("one.yaml").to_str().unwrap().to_owned();
    let run = |flags: &[&str]| {
        let arguments = [&["worker", &pipeline, "--no-admin"], flags].concat();
        refused(&arguments.into_iter().map(str::to_owned).collect::<Vec<_>>())
    };
    let whole = [
        "--gateways",
        "gateway-0",
        "--controllers",
        "control-0:7720",
        "--workers",
        "a=w-[0-1].pool:7720",
    ];
    let (code, said) = run(&whole[..4]);
    assert_eq!(code, 1, "{said}");
    let expected = "error: --workers: a worker of a is missing; write a=a-0:7720";
    assert!(said.contains(expected), "{said}");
    let (code, said) = run(&[&whole[..], &["--name", "w-7"]].concat());
    assert_eq!(code, 1, "{said}");
    let expected =
        "the topology by addresses has no process \"w-7\"; it has gateway-0, control-0, w-0, w-1";
    assert!(said.contains(expected), "{said}");
    let (code, said) = run(&[&whole[..], &["--topology", "t.yaml"]].concat());
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("cannot be used with"), "{said}");
    let (code, said) = run(&[]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("--topology <FILE>"), "{said}");
}

// Over five seconds: five processes start and stop.
#[test]
fn what_the_environment_says_of_another_set_does_not_reach_the_processes_of_up() {
    let mut set = Set::new("environment");
    let at = set.port();
    set.start_up(&[
        ("SPILLGATE_GATEWAYS", "gateway-7".into()),
        ("SPILLGATE_CONTROLLERS", "control-7:7720".into()),
        ("SPILLGATE_WORKERS", "a=a-7:7720".into()),
        ("SPILLGATE_LINK_LISTEN", at.into()),
        ("SPILLGATE_NO_ADMIN", "1".into()),
    ]);
    set.waits_for("up", "all processes are ready");
    set.signal("up", Signal::SIGINT);
    set.waits_for("up", "stopped");
}
