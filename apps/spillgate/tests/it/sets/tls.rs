//! Processes that show each other certificates.

use std::process::Command;

use nix::sys::signal::Signal;

use super::certificates::Authority;
use super::set::{self, Set, refused};

// Over five seconds: load for 6 and 2 s, and five starts of processes.
#[test]
fn a_set_with_certificates_serves_and_takes_new_ones_while_it_does() {
    let authority = Authority::new("serves");
    let mut set = Set::new("serves");
    for (name, role) in set::PROCESSES {
        // One knows a process by its role, the other one by its name.
        let names = [
            format!("{role}.spillgate"),
            format!("{name}.{role}.spillgate"),
        ];
        let one = names[usize::from(name == "a-0")].as_str();
        authority.certificate(name, &[one], |_| {});
        set.start(name, &authority.flags(name));
    }
    set.is_ready();
    let worker = set.address("a-0");
    let before = authority.shown_at(&worker);
    let report = set.bench(20, 6, |set| {
        authority.certificate("a-0", &["worker.spillgate"], |_| {});
        set.signal("a-0", Signal::SIGHUP);
        set.waits_for("a-0", "SIGHUP: certificates of links reloaded: 1 in");
        assert_ne!(authority.shown_at(&worker), before);
        // Half of a pair: what was there stays.
        let now = authority.shown_at(&worker);
        authority.certificate("other", &["worker.spillgate"], |_| {});
        authority.copy("other.key", "a-0.key");
        set.signal("a-0", Signal::SIGHUP);
        set.waits_for("a-0", "not reloaded, what was there stays: --link-key");
        assert_eq!(authority.shown_at(&worker), now);
    });
    report.completes_all();
    // A life of the gateway that knows nothing of the old certificate meets the worker with the new one.
    set.signal("gateway-0", Signal::SIGKILL);
    set.start("gateway-0", &authority.flags("gateway-0"));
    set.waits_for("a-0", "peer met peer=\"gateway-0\"");
    set.is_ready();
    set.bench(20, 2, |_| {}).completes_all();
}

// Over five seconds: load for 20 s, in which five processes start and are refused one after the other.
#[test]
fn what_does_not_belong_to_the_set_is_refused_by_both_sides_and_harms_nobody() {
    let (authority, stranger) = (Authority::new("belongs"), Authority::new("stranger"));
    let mut set = Set::new("belongs");
    for (name, role) in set::PROCESSES {
        authority.certificate(name, &[&format!("{role}.spillgate")], |_| {});
        if name != "a-1" {
            set.start(name, &authority.flags(name));
        }
    }
    set.is_ready();
    stranger.certificate("a-1", &["worker.spillgate"], |_| {});
    stranger.copy_from(&authority, "ca.pem");
    authority.certificate("old", &["worker.spillgate"], |params| {
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    });
    let report = set.bench(20, 20, |set| {
        let worker = set.address("a-1");
        let mut try_as = |flags: &[String], of_gateway: &str, of_worker: &str| {
            set.start("a-1", flags);
            set.waits_for_about("gateway-0", &worker, of_gateway);
            set.waits_for_about("a-1", "127.0.0.1", of_worker);
            set.signal("a-1", Signal::SIGKILL);
        };
        try_as(
            &stranger.flags("a-1"),
            "the peer's certificate is of no authority in --link-ca",
            "this process's certificate is of no authority in its --link-ca",
        );
        try_as(
            &authority.flags("old"),
            "the peer's certificate has expired",
            "this process's certificate has expired",
        );
        try_as(
            &authority.flags("controller"),
            "process a-1 should be a worker, its certificate is for controller.spillgate; give it a certificate \
             with the name worker.spillgate",
            "this process's certificate has not the names of its roles",
        );
        try_as(&[], "the peer does not speak TLS", "the peer speaks TLS");

        // A worker that claims to be the gateway: it dials the workers, and its certificate is a worker's.
        let claims = authority.flags("a-1");
        set.start_as("impostor", "gateway-0", "127.0.0.1:0", &claims);
        let why = "peer gateway-0 greets as gateway, its certificate is for worker.spillgate; give it a \
                   certificate with the name gateway.spillgate";
        set.waits_for_about("a-0", "127.0.0.1", why);
        let worker = set.address("a-0");
        let heard = format!("the peer refuses this process: {why}");
        set.waits_for_about("impostor", &worker, &heard);
        set.signal("impostor", Signal::SIGKILL);
    });
    report.completes_all();
    for (name, _) in set::PROCESSES {
        assert!(!set.has_said(name, "two processes have one name"), "{name}");
    }
    // The right certificate at last.
    set.start("a-1", &authority.flags("a-1"));
    set.waits_for("gateway-0", "peer met peer=\"a-1\"");
}

/// The commands of docs/processes.md that make certificates.
fn documented() -> String {
    let page = include_str!("../../../../../docs/processes.md");
    let (_, section) = page.split_once("\n## TLS between processes\n").unwrap();
    let (_, block) = section.split_once("```sh\n").unwrap();
    block.split_once("```").unwrap().0.to_owned()
}

#[test]
fn the_documented_commands_make_certificates_that_serve() {
    let mut set = Set::new("documented");
    let listed = "gateway-0.gateway control.controller detect-0.worker rest.worker";
    let commands = documented();
    assert!(commands.contains(listed), "{commands}");
    let processes = set::PROCESSES.map(|(name, role)| format!("{name}.{role}"));
    let commands = commands.replace(listed, &processes.join(" "));
    let made = Command::new("bash")
        .args(["-ec", &commands])
        .current_dir(set.path(""))
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    for (name, _) in set::PROCESSES {
        let of = |file: &str| set.path(file).to_str().unwrap().to_owned();
        let (cert, key) = (format!("{name}.pem"), format!("{name}.key"));
        let files = [
            ("--link-ca", "link-ca.pem"),
            ("--link-cert", &cert),
            ("--link-key", &key),
        ];
        let flags = files.into_iter();
        let flags: Vec<String> = flags
            .flat_map(|(flag, file)| [flag.to_owned(), of(file)])
            .collect();
        set.start(name, &flags);
    }
    set.is_ready();
    for (name, _) in set::PROCESSES {
        assert!(!set.has_said(name, "warning"), "{name} warns");
    }
}

#[test]
fn up_passes_certificates_on_to_its_processes() {
    let authority = Authority::new("up");
    let kinds = [
        "gateway.spillgate",
        "controller.spillgate",
        "worker.spillgate",
    ];
    authority.certificate("all", &kinds, |_| {});
    let mut set = Set::new("up");
    set.start_up(&[
        ("SPILLGATE_LINK_CA", authority.path("ca.pem")),
        ("SPILLGATE_LINK_CERT", authority.path("all.pem")),
        ("SPILLGATE_LINK_KEY", authority.path("all.key")),
    ]);
    set.waits_for("up", "all processes are ready");
    let address = |name: &str| {
        let log = std::fs::read_to_string(set.path(&format!("up/{name}.log"))).unwrap();
        let (_, at) = log.split_once("reached by other processes on ").unwrap();
        at.lines().next().unwrap().to_owned()
    };
    let shown = ["a-0", "controller"].map(|name| authority.shown_at(&address(name)));
    assert_eq!(shown[0], shown[1]);
    set.signal("up", Signal::SIGINT);
    set.waits_for("up", "stopped");
}

#[test]
fn flags_and_files_that_are_wrong_are_named() {
    let authority = Authority::new("flags");
    authority.certificate("a-0", &["worker.spillgate"], |_| {});
    let set = Set::new("flags");
    let all = authority.flags("a-0");
    let run = |link: &[String]| refused(&set.arguments("worker", "a-0", link));
    let (code, said) = run(&all[..4]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("--link-key"), "{said}");
    authority.certificate("other", &["worker.spillgate"], |_| {});
    authority.copy("other.key", "a-0.key");
    let (code, said) = run(&all);
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains("error: --link-key ") && said.contains("not the key of"),
        "{said}"
    );
    authority.remove("a-0.pem");
    let (code, said) = run(&all);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("error: --link-cert "), "{said}");
}

#[test]
fn what_peers_will_refuse_and_what_others_can_reach_warns() {
    let authority = Authority::new("warns");
    authority.certificate("a-0", &["gateway.spillgate"], |_| {});
    let mut set = Set::new("warns");
    set.start_as("secure", "a-0", "127.0.0.1:0", &authority.flags("a-0"));
    set.waits_for("secure", "warning: --link-cert ");
    assert!(set.has_said("secure", "process a-0 should be a worker"));
    set.start_as("plain", "a-1", "0.0.0.0:0", &[]);
    set.waits_for(
        "plain",
        "can be reached by others, and whoever reaches it can take any role: no --link-cert",
    );
    // A process whose roles nobody may reload anything for says so, and lives on.
    set.waits_for("plain", "reached by other processes on");
    set.signal("plain", Signal::SIGHUP);
    set.waits_for("plain", "SIGHUP: topology reloaded: nothing has changed");
    assert!(set.lives("plain"));
}
