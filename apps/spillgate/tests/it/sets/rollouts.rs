//! Another revision takes the place of the one that a set serves.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::certificates::Authority;
use super::set::{PATIENCE, Set, refused, run};

/// The pipeline of [`Set`], with one change.
fn changed(set: &Set, file: &str, from: &str, to: &str) -> String {
    let text = std::fs::read_to_string(set.path("one.yaml")).unwrap();
    let changed = text.replace(from, to);
    assert_ne!(text, changed, "{from}");
    let path = set.path(file);
    let profile = std::fs::read_to_string(set.path("one.profile.yaml")).unwrap();
    std::fs::write(
        path.with_extension("profile.yaml"),
        profile.replace(from, to),
    )
    .unwrap();
    std::fs::write(&path, changed).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A controller, a gateway and two workers that registered, and serve.
fn start(name: &str) -> Set {
    let mut set = Set::new(name);
    for process in ["controller", "gateway-0", "a-0", "a-1"] {
        set.registers(process, &[]);
    }
    set.is_ready();
    set
}

/// `spillgate rollout` to the controller of the set: its exit code and what it said.
fn rollout(set: &Set, arguments: &[&str]) -> (i32, String) {
    let to = ["--to".to_owned(), set.address("controller")];
    let arguments = ["rollout"].iter().chain(arguments).map(|&of| of.to_owned());
    refused(&arguments.chain(to).collect::<Vec<_>>())
}

/// Waits until `spillgate rollout status` is so.
fn status(set: &Set, is_so: impl Fn(&str) -> bool) -> String {
    let give_up = Instant::now() + PATIENCE;
    loop {
        let to = set.address("controller");
        let (_, shown) = run(&["rollout", "status", "--to", &to].map(str::to_owned));
        if is_so(&shown) {
            return shown;
        }
        assert!(Instant::now() < give_up, "{shown}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The lines of the processes, which are all stable.
fn all_stable(shown: &str, processes: usize) -> bool {
    let lines: Vec<&str> = shown
        .lines()
        .filter(|line| line.starts_with("  "))
        .collect();
    lines.len() == processes
        && lines
            .iter()
            .all(|line| line.contains(" stable") && !line.contains(';'))
}

// Over five seconds: four processes start, and load for 12 s.
#[test]
fn a_revision_takes_the_place_of_the_old_one_under_load_and_an_undo_brings_it_back() {
    let mut set = start("rollout");
    let new = changed(&set, "new.yaml", "slo: 1s", "slo: 2s");
    let report = set.bench(40, 12, |set| {
        let (code, said) = rollout(set, &[&new, "--how", "50%,watch=1s"]);
        assert_eq!(code, 0, "{said}");
        for line in [
            "generation 1",
            "moving 50%",
            "watching 100%",
            "stable 100%",
            "done",
        ] {
            assert!(said.contains(line), "{line}: {said}");
        }
        let shown = status(set, |shown| all_stable(shown, 4));
        assert!(shown.contains("generation 1"), "{shown}");
        let (code, said) = rollout(set, &["undo", "one", "--no-wait"]);
        assert_eq!(code, 0, "{said}");
        let shown = status(set, |shown| shown.contains("watching 100%"));
        assert!(shown.contains("generation 2"), "{shown}");
    });
    report.completes_all();
}

// Over five seconds: four processes start, and load for 8 s.
#[test]
fn a_revision_that_a_worker_cannot_serve_is_taken_back_by_all() {
    let mut set = Set::new("unable");
    for process in ["controller", "gateway-0", "a-0"] {
        set.registers(process, &[]);
    }
    // A variable of its environment has it read another revision than the others.
    let at = set.address("a-1");
    set.registers_in("a-1", "a-1", &at, &[], &[("SLO", "3s".into())]);
    set.is_ready();
    set.waits_for("gateway-0", "peer met peer=\"a-1\"");
    let new = changed(&set, "new.yaml", "slo: 1s", "slo: ${SLO:-2s}");
    let fails = |set: &Set, how: &str, generation: &str| {
        let (code, said) = rollout(set, &[&new, "--how", how]);
        assert_eq!(code, 1, "{said}");
        let why = "a-1: this process reads revision ";
        let back = said.lines().find(|line| line.contains("taken back"));
        assert!(back.is_some_and(|line| line.contains(why)), "{said}");
        let shown = status(set, |shown| shown.contains(generation));
        assert!(shown.contains("the one before was taken back: "), "{shown}");
        status(set, all_stable_but_taken_back);
    };
    let report = set.bench(40, 8, |set| fails(set, "at-once", "generation 2"));
    report.completes_all();
    // Where the old one ends first, the process has no session any more with gateways: controllers hear of it.
    fails(&set, "recreate", "generation 4");
    set.bench(40, 3, |_| ()).completes_all();
}

// Over five seconds: four processes start, and load for 12 s.
#[test]
fn a_worker_without_any_module_of_a_revision_is_there_for_the_next_one() {
    let mut set = Set::new("less");
    for process in ["controller", "gateway-0", "a-0"] {
        set.registers(process, &[]);
    }
    set.registers("a-1", &["--modules", "a"].map(str::to_owned));
    set.is_ready();
    set.waits_for("gateway-0", "peer met peer=\"a-1\"");
    // Another name for the module: one worker holds all modules, the other one a module of the old name.
    let new = changed(&set, "new.yaml", "a: {", "c: {");
    let text = std::fs::read_to_string(&new).unwrap();
    std::fs::write(&new, text.replace("$a.", "$c.")).unwrap();
    let first = revision_of(&set, "gateway-0");
    let report = set.bench(40, 12, |set| {
        let (code, said) = rollout(set, &[&new, "--how", "at-once,watch=1s"]);
        assert_eq!(code, 0, "{said}");
        status(set, |shown| all_stable(shown, 4));
        let second = revision_of(set, "a-1");
        assert_ne!(first, second);
        let old = set.path("one.yaml").to_str().unwrap().to_owned();
        let (code, said) = rollout(set, &[&old, "--how", "at-once,watch=1s"]);
        assert_eq!(code, 0, "{said}");
        status(set, |shown| all_stable(shown, 4));
        assert_eq!(revision_of(set, "a-1"), first);
    });
    report.completes_all();
    // It alone has workers now.
    set.signal("a-0", Signal::SIGTERM);
    set.waits_for("a-0", "stopped");
    set.bench(20, 3, |_| ()).completes_all();
    // An engine begins one with a module that comes later.
    let at = set.address("a-0");
    set.registers_as("later", "a-0", &at, &["--modules", "c?"].map(str::to_owned));
    set.waits_for("later", "so this process runs nothing of it until");
    status(&set, |shown| {
        all_stable(shown, 4) && shown.contains("  a-0")
    });
    let (code, said) = rollout(&set, &[&new, "--how", "at-once,watch=1s"]);
    assert_eq!(code, 0, "{said}");
    set.bench(20, 3, |_| ()).completes_all();
}

/// The only revision of a process, as `spillgate rollout status` shows it.
fn revision_of(set: &Set, process: &str) -> String {
    let shown = status(set, |shown| shown.contains(&format!("  {process}")));
    let line = shown.lines().find(|line| line.contains(process));
    let mut words = line.unwrap().split_whitespace().skip(1);
    words.next().unwrap().to_owned()
}

// Over five seconds: four processes start, and load for 3 s.
#[test]
fn what_cannot_be_rolled_out_is_refused_by_name_and_harms_nobody() {
    let mut set = start("misfits");
    let cases = [
        (changed(&set, "slo.yaml", "1s", "soon"), "one.yaml:3: slo: "),
        (
            changed(&set, "name.yaml", "name: one", "name: two"),
            "no pipeline of this set is named \"two\"; it serves one",
        ),
        (
            set.path("one.yaml").to_str().unwrap().to_owned(),
            "a model that changed needs another file name",
        ),
        (
            changed(&set, "source.yaml", "payload: bytes", "frame: bytes"),
            "streams that are open go on sending what they send",
        ),
        (
            changed(
                &set,
                "large.yaml",
                "slo: 1s",
                &format!("slo: 1s # {}", "x".repeat(1 << 16)),
            ),
            "at most 65536 are published",
        ),
        (
            set.path("gone.yaml").to_str().unwrap().to_owned(),
            "gone.yaml: cannot be read",
        ),
    ];
    let text = std::fs::read_to_string(&cases[3].0).unwrap();
    std::fs::write(
        &cases[3].0,
        text.replace("$source.payload", "$source.frame"),
    )
    .unwrap();
    for (file, why) in &cases {
        let (code, said) = rollout(&set, &[file]);
        assert!(code != 0 && said.contains(why), "{why}: {said}");
    }
    for (arguments, why) in [
        (
            &["undo", "one"][..],
            "nothing was published of pipeline one",
        ),
        (
            &["undo", "two"][..],
            "no pipeline of this set is named \"two\"",
        ),
        (
            &["status", "--set", "other"][..],
            "belongs to set \"spillgate\"",
        ),
    ] {
        let (code, said) = rollout(&set, arguments);
        assert!(code == 1 && said.contains(why), "{why}: {said}");
    }
    let (code, said) =
        refused(&["rollout", "status", "--to", &set.address("a-0")].map(str::to_owned));
    assert!(
        code == 1 && said.contains("this process holds no controller"),
        "{said}"
    );
    let shown = status(&set, |shown| all_stable(shown, 4));
    assert!(shown.contains("as the files say"), "{shown}");
    set.bench(20, 3, |_| ()).completes_all();
}

// Over five seconds: five processes start, and load for 12 s.
#[test]
fn processes_that_begin_anew_with_the_old_file_serve_what_is_published() {
    let mut set = start("stale");
    let new = changed(&set, "new.yaml", "slo: 1s", "slo: 2s");
    let report = set.bench(40, 12, |set| {
        let (code, said) = rollout(set, &[&new, "--how", "at-once,watch=0s"]);
        assert_eq!(code, 0, "{said}");
        status(set, |shown| all_stable(shown, 4));
        set.signal("controller", Signal::SIGKILL);
        set.registers("controller", &[]);
        let shown = status(set, |shown| all_stable(shown, 4));
        assert!(shown.contains("generation 1"), "{shown}");
        set.signal("a-1", Signal::SIGTERM);
        set.waits_for("a-1", "stopped");
        set.registers("a-1", &[]);
        status(set, |shown| all_stable(shown, 4) && shown.contains("  a-1"));
    });
    report.completes_all();
    let shown = status(&set, |shown| all_stable(shown, 4));
    let revision = shown
        .split("revision ")
        .nth(1)
        .unwrap()
        .split(',')
        .next()
        .unwrap();
    assert_eq!(shown.matches(revision).count(), 5, "{shown}");
}

// Over five seconds: four processes start, two of them twice, and a worker forgets after 10 s.
#[test]
fn where_gateways_and_controllers_begin_anew_together_workers_forget_what_was_published() {
    let mut set = start("forgotten");
    let new = changed(&set, "new.yaml", "slo: 1s", "slo: 2s");
    let (code, said) = rollout(&set, &[&new, "--how", "at-once,watch=0s"]);
    assert_eq!(code, 0, "{said}");
    status(&set, |shown| all_stable(shown, 4));
    for process in ["gateway-0", "controller"] {
        set.signal(process, Signal::SIGKILL);
    }
    for process in ["controller", "gateway-0"] {
        set.registers(process, &[]);
    }
    set.waits_for("a-0", "no controller knows what was published");
    let shown = status(&set, |shown| all_stable(shown, 4));
    assert!(shown.contains("as the files say"), "{shown}");
    // A gateway that began anew refuses until it has its workers.
    set.is_ready();
    set.bench(20, 3, |_| ()).completes_all();
}

// Over five seconds: four processes start, two of them load models twice, and load for 3 s.
#[test]
fn without_room_for_two_the_old_revision_ends_first() {
    let mut set = start("recreate");
    let new = changed(&set, "new.yaml", "slo: 1s", "slo: 2s");
    let (code, said) = rollout(&set, &[&new, "--how", "recreate,watch=0s"]);
    assert_eq!(code, 0, "{said}");
    let shown = status(&set, |shown| all_stable(shown, 4));
    assert!(shown.contains("generation 1"), "{shown}");
    set.bench(20, 3, |_| ()).completes_all();
}

// Over five seconds: three processes start, and load for 3 s.
#[test]
fn only_an_operator_of_the_set_publishes() {
    let authority = Authority::new("operator");
    for (file, name) in [
        ("controller", "controller.spillgate"),
        ("gateway", "gateway.spillgate"),
        ("worker", "worker.spillgate"),
        ("operator", "operator.spillgate"),
        ("stranger", "operator.test"),
    ] {
        authority.certificate(file, &[name], |_| {});
    }
    let mut set = Set::new("operator");
    for (process, file) in [
        ("controller", "controller"),
        ("gateway-0", "gateway"),
        ("a-0", "worker"),
    ] {
        set.registers(process, &authority.flags(file));
    }
    set.is_ready();
    let new = changed(&set, "new.yaml", "slo: 1s", "slo: 2s");
    let offer = |file: &str| {
        let flags = authority.flags(file);
        let flags = flags.iter().map(String::as_str);
        let arguments = [new.as_str(), "--how", "at-once,watch=0s"].into_iter();
        rollout(&set, &arguments.chain(flags).collect::<Vec<_>>())
    };
    for (file, of) in [
        ("worker", "worker.spillgate"),
        ("stranger", "operator.test"),
    ] {
        let (code, said) = offer(file);
        let why = "an operator's certificate has the DNS name operator.spillgate";
        assert!(
            code == 1 && said.contains(why) && said.contains(of),
            "{said}"
        );
    }
    let (code, said) = rollout(&set, &[&new]);
    assert!(code == 1 && said.contains("controller 127.0.0.1"), "{said}");
    let (code, said) = offer("operator");
    assert_eq!(code, 0, "{said}");
    set.bench(20, 3, |_| ()).completes_all();
}

/// A pipeline over pictures with a real model on the CPU. How fast the machine is at the moment costs no request: the objective is
/// long, and no gate counts on the profile.
fn pictures(model: &str) -> String {
    format!(
        "
name: one
slo: 30s
policy: {{ gate: 0 }}
modules:
  a: {{ op: classifier, model: {model}, inputs: {{ image: $source.frame }}, device: cpu, batch: {{ max: 1 }} }}
outputs: {{ a: $a.labels }}
"
    )
}

// Over five seconds: four processes start, load models and run them, and load for 8 s.
#[test]
fn another_model_takes_the_place_of_the_old_one_under_load() {
    let mut set = Set::new("model");
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../modules/models/light");
    for (file, model) in [("one", "light"), ("new", "retrained")] {
        for kind in ["pt", "labels"] {
            let to = set.path(&format!("{model}.{kind}"));
            std::fs::copy(format!("{shipped}.{kind}"), to).unwrap();
        }
        let model = &format!("{model}.pt");
        let profile =
            format!("cpu: {{ a: {{ {model}: {{ alpha: 20ms, beta: 5ms, max: 1 }} }} }}\n");
        std::fs::write(set.path(&format!("{file}.yaml")), pictures(model)).unwrap();
        std::fs::write(set.path(&format!("{file}.profile.yaml")), profile).unwrap();
    }
    for process in ["controller", "gateway-0", "a-0", "a-1"] {
        set.registers(process, &[]);
    }
    set.is_ready();
    let new = set.path("new.yaml").to_str().unwrap().to_owned();
    let report = set.bench(10, 8, |set| {
        let (code, said) = rollout(set, &[&new, "--how", "at-once,watch=1s"]);
        assert_eq!(code, 0, "{said}");
        status(set, |shown| all_stable(shown, 4));
        // A model that is not on the machines of the workers.
        let gone = changed(set, "gone.yaml", "light.pt", "gone.pt");
        let (code, said) = rollout(set, &[&gone]);
        assert!(code == 1 && said.contains("no model file"), "{said}");
        status(set, all_stable_but_taken_back);
    });
    report.completes_all();
}

/// All processes serve one revision again, and some say which one they could not serve.
fn all_stable_but_taken_back(shown: &str) -> bool {
    let mut lines = shown.lines().filter(|line| line.starts_with("  "));
    lines.all(|line| {
        line.contains(" stable") && !line.contains(" old") && !line.contains("starting")
    })
}
