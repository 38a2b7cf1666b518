//! A set that serves several pipelines: each process holds something of one of them, or of several.

use std::time::Instant;

use super::set::{PATIENCE, Set, refused, run};

/// Another pipeline with a module of the same name, and one more.
const TWO: &str = "
name: two
slo: 1s
source: { payload: bytes }
modules:
  a: { op: noop, inputs: { payload: $source.payload }, device: emulated, batch: { max: 1 } }
  b: { op: noop, inputs: { payload: $a.payload }, device: emulated, batch: { max: 1 } }
outputs: { payload: $b.payload }
";
const PROFILE: &str = "
emulated:
  a: { \"-\": { alpha: 4ms, beta: 1ms, max: 1 } }
  b: { \"-\": { alpha: 2ms, beta: 1ms, max: 1 } }
";

/// A set that serves the pipeline of [`Set`] and [`TWO`], and has a file of a third one.
fn set(name: &str) -> Set {
    let set = Set::new(name);
    for (name, text) in [("two", TWO), ("three", &TWO.replace("two", "three"))] {
        std::fs::write(set.path(&format!("{name}.yaml")), text).unwrap();
        std::fs::write(set.path(&format!("{name}.profile.yaml")), PROFILE).unwrap();
    }
    set
}

/// The arguments of a process that serves these pipelines.
fn arguments(set: &Set, role: &str, name: &str, pipelines: &[&str], more: &[&str]) -> Vec<String> {
    let files = pipelines.iter().map(|of| set.path(&format!("{of}.yaml")));
    let files = files.map(|file| file.to_str().unwrap().to_owned());
    let role = std::iter::once(role.to_owned());
    let mut all: Vec<String> = role.chain(files).collect();
    all.extend(["--name".to_owned(), name.to_owned()]);
    all.extend(more.iter().map(|&of| of.to_owned()));
    if !more.contains(&"--admin") {
        all.push("--no-admin".to_owned());
    }
    all
}

// Over five seconds: five processes start, and load for 3 s of each pipeline, two of them at a time.
#[test]
fn a_worker_holds_modules_of_two_pipelines_and_another_one_of_one() {
    let mut set = set("several");
    let [control, admin] = [(); 2].map(|()| set.port());
    let at = set.address("gateway-0");
    let both = ["one", "two"];
    let listen = ["--link-listen", &control];
    set.run(
        "controller",
        &arguments(&set, "controller", "controller", &both, &listen),
        &[],
    );
    let registers = |more: &[&'static str]| {
        let mut all = vec!["--controllers".to_owned(), control.clone()];
        all.extend(more.iter().map(|&of| of.to_owned()));
        all
    };
    for (name, modules) in [("both", "one/a,two/a=2"), ("b-0", "b")] {
        let more = registers(&["--modules", modules]);
        let more: Vec<&str> = more.iter().map(String::as_str).collect();
        set.run(name, &arguments(&set, "worker", name, &both, &more), &[]);
    }
    set.waits_for("b-0", "pipeline one: --modules names none of its modules");
    let more = registers(&[]);
    let mut more: Vec<&str> = more.iter().map(String::as_str).collect();
    more.extend(["--listen", &at, "--admin", &admin]);
    set.run(
        "gateway-0",
        &arguments(&set, "gateway", "gateway-0", &both, &more),
        &[],
    );
    set.waits_for("gateway-0", "listening on http");
    let give_up = Instant::now() + PATIENCE;
    while !set.ready(&admin).contains(" 200 ") {
        assert!(Instant::now() < give_up, "{}", set.ready(&admin));
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let report = set.bench_with(20, 3, &["--pipeline", "one"], |set| {
        let two = set.bench_with(20, 2, &["--pipeline", "two"], |_| ());
        two.completes(0.9);
    });
    report.completes(0.9);
    let status = ["status", "--admin", &admin].map(str::to_owned);
    let (_, text) = run(&status);
    for what in [
        "worker of one/a on emulated:own0",
        "worker of two/a on emulated:own1",
        "worker of two/a on emulated:own2",
        "worker of two/b on emulated:own0",
        "controller of one/a",
        "controller of two/b",
    ] {
        assert!(text.contains(what), "{what:?} is not in {text}");
    }
    // A process has a row, however many pipelines it serves.
    let rows = text
        .lines()
        .filter(|line| line.trim_start().starts_with("controller "));
    assert_eq!(rows.count(), 1, "{text}");
    // Another revision of one of them. The other one is not touched.
    let two = std::fs::read_to_string(set.path("two.yaml")).unwrap();
    std::fs::write(set.path("new.yaml"), two.replace("slo: 1s", "slo: 2s")).unwrap();
    std::fs::write(set.path("new.profile.yaml"), PROFILE).unwrap();
    let new = set.path("new.yaml").to_str().unwrap().to_owned();
    let rollout = [
        "rollout",
        &new,
        "--to",
        &control,
        "--how",
        "at-once,watch=1s",
    ];
    let one = set.bench_with(20, 5, &["--pipeline", "one"], |set| {
        let two = set.bench_with(20, 5, &["--pipeline", "two"], |_| {
            let (code, said) = refused(&rollout.map(str::to_owned));
            assert!(code == 0 && said.contains("pipeline two: done"), "{said}");
        });
        two.completes(0.9);
    });
    one.completes(0.9);
    let (_, shown) = run(&["rollout", "status", "--to", &control].map(str::to_owned));
    assert!(
        shown.contains("pipeline one: revision") && shown.contains("as the files say"),
        "{shown}"
    );
    assert!(
        shown.contains("pipeline two: revision") && shown.contains("generation 1"),
        "{shown}"
    );
}

#[test]
fn a_pipeline_that_a_process_does_not_serve_is_named_on_both_sides() {
    let mut set = set("unserved");
    let control = set.port();
    let both = ["one", "two"];
    let listen = ["--link-listen", &control];
    set.run(
        "controller",
        &arguments(&set, "controller", "controller", &both, &listen),
        &[],
    );
    set.waits_for("controller", "reached by other processes");
    let more = ["--controllers", &control];
    set.run(
        "third",
        &arguments(&set, "worker", "third", &["three"], &more),
        &[],
    );
    let why = "third serves pipeline \\\"three\\\"; this process serves one, two";
    set.waits_for_about("controller", "127.0.0.1", why);
    set.waits_for_about("third", &control, why);
}

#[test]
fn what_is_wrong_with_several_pipelines_is_said() {
    let set = set("wrong");
    let both = ["one", "two"];
    let registers = ["--controllers", "127.0.0.1:1"];
    let says = |pipelines: &[&str], more: &[&str], what: &str| {
        let more: Vec<&str> = registers.iter().chain(more).copied().collect();
        let (code, said) = refused(&arguments(&set, "worker", "w", pipelines, &more));
        assert!(code != 0 && said.contains(what), "{code}: {said}");
    };
    says(
        &both,
        &["--modules", "a=2"],
        "--modules: expected the pipeline, too, like one/a: one and two both have it, found a=2",
    );
    says(
        &both,
        &["--modules", "three/a"],
        "--modules: no pipeline named \"three\"; choices are one, two",
    );
    says(
        &both,
        &["--modules", "two/c"],
        "--modules: no module named \"c\"",
    );
    says(&["one", "one"], &[], "the name \"one\" is taken by");
    let topology = set.path("topology.yaml");
    let file = topology.to_str().unwrap();
    let all = arguments(&set, "worker", "a-0", &both, &["--topology", file]);
    let (code, said) = refused(&all);
    let what = "--topology: a topology is of one pipeline, and 2 are given";
    assert!(code != 0 && said.contains(what), "{code}: {said}");
}
