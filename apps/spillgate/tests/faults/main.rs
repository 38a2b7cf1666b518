//! What Spillgate promises when something fails (docs/failures.md), each promise held against real processes of the
//! program.
//!
//! `cargo xtask faults` says through the environment which cases run; a plain `cargo test` has nothing to run. A case starts a set
//! of processes with emulated devices, sends numbered requests to its gateways, breaks something, and counts how each
//! request ended.

mod cases;
mod client;
mod fault;
mod findings;
mod network;
mod pipelines;
mod preload;
mod set;
mod soak;
mod trial;
mod up;

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use cases::{CASES, Case};
use findings::{Findings, Row};
use tokio::runtime::Handle;

/// Names of cases, comma-separated, or `quick` or `all`.
const WHICH: &str = "SPILLGATE_FAULTS";
/// How often each case runs.
const ROUNDS: &str = "SPILLGATE_FAULT_ROUNDS";
/// Cases that run at a time. Their devices are emulated, so a set of processes takes a fifth of a core.
const LANES: usize = 3;

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    if let Ok(minutes) = std::env::var(soak::MINUTES) {
        return soak_for(runtime.handle(), &minutes);
    }
    let Ok(which) = std::env::var(WHICH) else {
        println!("{WHICH} is not set: no fault is tried (`cargo xtask faults`)");
        return ExitCode::SUCCESS;
    };
    let chosen = match choose(&which) {
        Ok(chosen) => chosen,
        Err(unknown) => {
            let names: Vec<&str> = CASES.iter().map(|case| case.name).collect();
            eprintln!("no fault named {unknown:?}; there are {}", names.join(", "));
            return ExitCode::from(2);
        }
    };
    let rounds = std::env::var(ROUNDS).ok();
    let rounds: usize = rounds.and_then(|n| n.parse().ok()).unwrap_or(1);
    let rows = run(runtime.handle(), &chosen, rounds);
    print!("\n{}", findings::table(&rows));
    let failed = rows.iter().filter(|row| !row.holds()).count();
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "test result: {verdict}. {} passed; {failed} failed;",
        rows.len() - failed
    );
    ExitCode::from(u8::from(failed > 0))
}

/// One set under load and random faults, instead of the cases.
fn soak_for(runtime: &Handle, minutes: &str) -> ExitCode {
    let seed = std::env::var(soak::SEED).unwrap_or_default();
    let (Ok(minutes), Ok(seed)) = (minutes.parse(), seed.parse()) else {
        eprintln!("{} and {} must be numbers", soak::MINUTES, soak::SEED);
        return ExitCode::from(2);
    };
    match soak::run(runtime, minutes, seed) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("soak: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the cases, a few at a time. Their rows, in the order of the cases.
fn run(runtime: &Handle, cases: &[&'static Case], rounds: usize) -> Vec<Row> {
    let next = AtomicUsize::new(0);
    let rows: Mutex<Vec<(usize, Row)>> = Mutex::default();
    // A process ends with the thread that started it, and a lane sees its cases to their end.
    let lane = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = cases.get(at) else {
                return;
            };
            let mut row = Row::new(case);
            for _ in 0..rounds {
                let findings = (case.run)(runtime);
                row.add(findings.unwrap_or_else(|error| Findings::broken(format!("{error:#}"))));
            }
            println!("{}", row.text());
            rows.lock().unwrap().push((at, row));
        }
    };
    std::thread::scope(|scope| {
        (0..LANES).for_each(|_| drop(scope.spawn(lane)));
    });
    let mut rows = rows.into_inner().unwrap();
    rows.sort_by_key(|(at, _)| *at);
    rows.into_iter().map(|(_, row)| row).collect()
}

fn choose(which: &str) -> Result<Vec<&'static Case>, String> {
    let all = CASES.iter();
    match which {
        "all" => return Ok(all.collect()),
        "quick" => return Ok(all.filter(|case| case.is_quick).collect()),
        _ => {}
    }
    let find = |name: &str| {
        let case = CASES.iter().find(|case| case.name == name);
        case.ok_or_else(|| name.to_owned())
    };
    which.split(',').map(find).collect()
}
