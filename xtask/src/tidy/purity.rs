//! Policies decide and do nothing else: their crates, and the simulator that drives them in virtual
//! time, reach no clock, runtime, thread, file, socket or ambient randomness.
//! Clippy bans single methods; this looks at dependencies and at whatever a path can be written as.

use anyhow::Result;
use xtask::process;
use xtask::workspace::Workspace;

use super::SourceFile;
use super::rust_text;

/// The crates that must stay pure, with the simulator.
pub(crate) const PURE_CRATES: [&str; 6] = [
    "spillgate-pipeline",
    "spillgate-protocol",
    "spillgate-camera",
    "spillgate-controller-policy",
    "spillgate-worker-policy",
    "spillgate-sim",
];

/// Their folders.
const PURE_FOLDERS: [&str; 6] = [
    "pipeline/src/",
    "protocol/src/",
    "camera/src/",
    "controller/policy/src/",
    "worker/policy/src/",
    "sim/src/",
];

/// Crates that bring a runtime, a clock, threads, a socket, libtorch or the system's randomness.
const IMPURE_CRATES: [&str; 27] = [
    "async-std",
    "chrono",
    "clap",
    "crossbeam-channel",
    "fastrand",
    "getrandom",
    "hyper",
    "libtorch",
    "mio",
    "nix",
    "opentelemetry",
    "opentelemetry_sdk",
    "quanta",
    "rayon",
    "reqwest",
    "signal-hook",
    "smol",
    "socket2",
    "spillgate-backend",
    "spillgate-process",
    "tch",
    "time",
    "tokio",
    "tonic",
    "torch-sys",
    "tracing",
    "web-time",
];

/// Words that must not occur in shipped code, each a whole path segment sequence.
const IMPURE_PATHS: [&str; 17] = [
    "Instant",
    "SystemTime",
    "OsRng",
    "available_parallelism",
    "from_entropy",
    "from_os_rng",
    "rand::rng",
    "rand::random",
    "std::env",
    "std::fs",
    "std::io",
    "std::net",
    "std::process",
    "std::thread",
    "thread::spawn",
    "thread_rng",
    "thread_local",
];

/// Modules that must not be named in a `use std::{…}` list.
const IMPURE_STD: [&str; 6] = ["env", "fs", "io", "net", "process", "thread"];

/// What the pure crates depend on, as cargo resolves each of them alone.
pub(super) fn dependencies(workspace: &Workspace) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for package in PURE_CRATES {
        let mut cargo = workspace.cargo();
        cargo.args([
            "tree", "--quiet", "-p", package, "-e", "normal", "--prefix", "none",
        ]);
        cargo.args(["--format", "{p}"]);
        problems.extend(impure_dependencies(package, &process::capture(&mut cargo)?));
    }
    Ok(problems)
}

/// The banned crates in one listing of `cargo tree`, a `name version …` a line.
fn impure_dependencies(package: &str, tree: &str) -> Vec<String> {
    let mut found: Vec<&str> = tree
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| IMPURE_CRATES.contains(name))
        .collect();
    found.sort_unstable();
    found.dedup();
    found
        .iter()
        .map(|name| {
            format!(
                "{package} depends on {name}; see `cargo tree -p {package} -e normal -i {name}`"
            )
        })
        .collect()
}

/// Impure paths in the shipped code of the pure crates.
pub(super) fn sources(files: &[SourceFile]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in files {
        let pure = PURE_FOLDERS
            .iter()
            .any(|folder| file.path.starts_with(folder));
        if !pure || !file.path.ends_with(".rs") || is_test_file(&file.path) {
            continue;
        }
        let code = rust_text::shipped_code(&file.text);
        for (line, what) in impure_paths(&code) {
            problems.push(format!(
                "{}:{line}: {what} in a crate that must stay pure",
                file.path
            ));
        }
    }
    problems
}

/// True for `tests.rs`, `broker_tests.rs`, and whatever lies under `tests/`.
pub(super) fn is_test_file(path: &str) -> bool {
    path.split('/')
        .any(|part| part == "tests" || part == "tests.rs" || part.ends_with("_tests.rs"))
}

fn impure_paths(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in code.lines().enumerate() {
        for path in IMPURE_PATHS {
            if contains_path(line, path) {
                found.push((number + 1, path.to_owned()));
            }
        }
    }
    let mut from = 0;
    while let Some(at) = code[from..].find("std::{") {
        let open = from + at + "std::{".len();
        let number = code[..open].matches('\n').count() + 1;
        for name in first_names(&code[open..]) {
            if IMPURE_STD.contains(&name) {
                found.push((number, format!("std::{name}")));
            }
        }
        from = open;
    }
    found
}

/// True if the path occurs with no word or path before it and no word after it. A path of several
/// segments may follow another segment (`std::thread::spawn`).
fn contains_path(line: &str, path: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + path.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// The first segment of each entry of a `use` list whose opening brace has been passed.
fn first_names(list: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut depth = 0;
    let mut start = 0;
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                names.push(&list[start..at]);
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    names
        .into_iter()
        .map(|entry| entry.split("::").next().unwrap_or_default().trim())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    #[test]
    fn a_clock_in_a_policy_is_found_with_its_line() {
        let files = [file(
            "worker/policy/src/broker.rs",
            "//! Never calls Instant::now.\nfn f() -> Timestamp {\n    std::time::Instant::now().into()\n}\n",
        )];
        assert_eq!(
            sources(&files),
            ["worker/policy/src/broker.rs:3: Instant in a crate that must stay pure"]
        );
    }

    #[test]
    fn threads_files_and_randomness_are_found_however_they_are_imported() {
        let text = "use std::{collections::BTreeMap, fs::File,\n  sync::{Arc, Mutex}};\n\
                    fn f() { std::thread::spawn(g); rand::rng(); let x = env!(\"X\"); }";
        let problems = sources(&[file("sim/src/lib.rs", text)]).join("\n");
        for what in ["std::fs", "std::thread", "thread::spawn", "rand::rng"] {
            assert!(problems.contains(what), "{what} not in {problems}");
        }
        assert!(!problems.contains("std::env"), "{problems}");
    }

    #[test]
    fn tests_other_crates_and_longer_words_are_left_alone() {
        let clock = "fn f() { std::time::Instant::now(); }";
        let files = [
            file("sim/src/driver/tests.rs", clock),
            file("sim/tests/seeds.rs", clock),
            file(
                "sim/src/lib.rs",
                &format!("#[cfg(test)]\nmod tests {{ {clock} }}"),
            ),
            file("worker/runtime/src/lib.rs", clock),
            file(
                "sim/src/a.rs",
                "struct Instantaneous; fn rand::rng_core() {} // std::fs\n",
            ),
        ];
        assert!(sources(&files).is_empty(), "{:?}", sources(&files));
    }

    #[test]
    fn a_runtime_in_the_tree_is_found() {
        let bad = "spillgate-sim v0.1.0 (/x/sim)\nrand v0.9.5\ngetrandom v0.3.1\ntokio v1.54.0\ntokio v1.54.0 (*)";
        let problems = impure_dependencies("spillgate-sim", bad);
        assert_eq!(problems.len(), 2);
        assert!(problems[0].starts_with("spillgate-sim depends on getrandom"));
        assert!(impure_dependencies("spillgate-sim", "rand v0.9.5\nrand_core v0.9.5").is_empty());
    }
}
