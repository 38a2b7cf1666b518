//! A set under `spillgate up` that is loaded for a long time while something happens to one of its processes again and
//! again:
//! `cargo xtask soak`. What happens follows from a seed.
//!
//! Each request has one answer; no process grows, panics or breaks an invariant; at the end all serve.

mod lives;
mod plan;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tokio::runtime::Handle;

use crate::client::{Counts, Load, Sheet};
use crate::findings::counts_text;
use crate::pipelines::{MODULES, Pipeline, WORKER_RATE};
use crate::up::Up;
use lives::Lives;
use plan::{Plan, What};

/// How long the soak lasts, in minutes.
pub(super) const MINUTES: &str = "SPILLGATE_SOAK_MINUTES";
/// What it draws faults from.
pub(super) const SEED: &str = "SPILLGATE_SOAK_SEED";

/// Worker processes of each module.
const WORKERS: usize = 2;
const GATEWAYS: usize = 2;
const SLO: &str = "600ms";
/// Part of the capacity that is asked for.
const LOAD: f64 = 0.8;
/// A process that is stopped goes on after this long.
const STOPPED: Duration = Duration::from_secs(5);
/// How often the processes are looked at.
const LOOK: Duration = Duration::from_millis(200);
const MINUTE: Duration = Duration::from_secs(60);
/// After the last fault the set has this long to recover.
const RECOVERS: Duration = Duration::from_secs(20);
/// Then this part of the requests is completed, over this long.
const SERVED_MIN: f64 = 0.95;
const SERVED_OVER: Duration = Duration::from_secs(10);

/// Runs it. Prints what it does and finds. Whether all holds.
pub(super) fn run(runtime: &Handle, minutes: f64, seed: u64) -> anyhow::Result<bool> {
    let duration = Duration::from_secs_f64(60.0 * minutes);
    let names = names();
    let plan = Plan::draw(seed, duration, &names);
    println!(
        "soak: seed {seed}, {minutes} minutes, {} faults, {} processes",
        plan.faults.len(),
        names.len()
    );
    let workers = MODULES.map(|module| format!("{module}={WORKERS}"));
    let flags = [
        format!("--gateways={GATEWAYS}"),
        format!("--workers={}", workers.join(",")),
    ];
    let mut up = Up::start(Pipeline::Branches, SLO, &flags, &[])?;
    println!("soak: files and logs are in {}", up.folder().display());
    let rate = LOAD * WORKERS as f64 * WORKER_RATE / GATEWAYS as f64;
    let load = Load::start(runtime, up.gateways(), rate);
    let mut lives = Lives::new(duration);
    let mut done: BTreeMap<&str, usize> = BTreeMap::new();
    let mut stopped = None;
    let begun = Instant::now();
    let mut faults = plan.faults.iter().peekable();
    while begun.elapsed() < duration {
        up.look()?;
        lives.look(up.pids());
        if let Some((name, _)) = stopped.take_if(|(_, until)| Instant::now() >= *until) {
            up.send(name, Signal::SIGCONT);
        }
        if let Some(fault) = faults.next_if(|fault| begun.elapsed() >= fault.at) {
            let is_there = match fault.what {
                What::Rolls => up.hang_up(),
                What::Dies => up.send(&fault.name, Signal::SIGKILL),
                What::Ends => up.send(&fault.name, Signal::SIGTERM),
                What::Stops => {
                    stopped = Some((&*fault.name, Instant::now() + STOPPED));
                    up.send(&fault.name, Signal::SIGSTOP)
                }
            };
            let at = begun.elapsed().as_secs();
            let also = if is_there { "" } else { " (it was not there)" };
            println!("soak: {at} s: {}{also}", fault.text());
            *done.entry(fault.what.text()).or_default() += usize::from(is_there);
        }
        std::thread::sleep(LOOK);
    }
    if let Some((name, _)) = stopped {
        up.send(name, Signal::SIGCONT);
    }
    let mut broken = Vec::new();
    broken.extend(up.waits_ready().err().map(|error| format!("{error:#}")));
    lives.look(up.pids());
    std::thread::sleep(RECOVERS);
    let settled = Instant::now();
    std::thread::sleep(SERVED_OVER);
    let served_until = Instant::now();
    let pace = up.pace();
    let sheets = load.finish();
    lives.look(up.pids());
    broken.extend(of_requests(&sheets, settled, served_until));
    let (table, grown) = lives.judge();
    broken.extend(grown);
    broken.extend(up.breaches());
    broken.extend(up.panics());
    let deaths = done.get(What::Dies.text()).copied().unwrap_or(0);
    broken.extend(up.deaths_beyond(deaths));
    broken.extend(up.stop().err().map(|error| format!("{error:#}")));

    let done: Vec<String> = done.iter().map(|(what, n)| format!("{what} {n}")).collect();
    println!("soak: faults: {}", done.join(", "));
    for (gateway, sheet) in sheets.iter().enumerate() {
        println!("soak: gateway-{gateway}: {}", counts_text(&sheet.all()));
    }
    let mut from = begun;
    for minute in 0.. {
        let mut counts = Counts::default();
        let to = from + MINUTE;
        sheets.iter().for_each(|s| counts.add(&s.between(from, to)));
        if counts.requests == 0 {
            break;
        }
        println!("soak: minute {minute}: {}", counts_text(&counts));
        from = to;
    }
    // Far above 1, the machine had no time for the devices: what is late then is not the set's fault.
    println!(
        "soak: batches took {pace:.2} times as long as planned at the end, in the slowest module"
    );
    println!("{table}");
    for what in &broken {
        println!("soak: BROKEN: {what}");
    }
    match broken.is_empty() {
        true => up.remove_folder(),
        false => println!("soak: files and logs stay in {}", up.folder().display()),
    }
    println!("soak: {}", if broken.is_empty() { "ok" } else { "BROKEN" });
    Ok(broken.is_empty())
}

/// The processes: workers, the controller and gateways, as `up` names them.
fn names() -> Vec<String> {
    let workers = MODULES
        .iter()
        .flat_map(|module| (0..WORKERS).map(move |i| format!("{module}-{i}")));
    let gateways = (0..GATEWAYS).map(|i| format!("gateway-{i}"));
    let controller = std::iter::once("controller".to_owned());
    workers.chain(controller).chain(gateways).collect()
}

/// What does not hold of the requests.
fn of_requests(sheets: &[Sheet], from: Instant, to: Instant) -> Vec<String> {
    let mut broken = Vec::new();
    let mut last = Counts::default();
    for (gateway, sheet) in sheets.iter().enumerate() {
        let all = sheet.all();
        let kinds = [
            all.completed,
            all.late,
            all.dropped,
            all.failed,
            all.refused,
            all.lost,
        ];
        let ended: usize = kinds.iter().sum();
        let wrong = [
            (all.requests.abs_diff(ended), "have no end"),
            (all.twice, "have two answers"),
            (all.wrong, "have a wrong result"),
        ];
        for (n, what) in wrong.iter().filter(|(n, _)| *n > 0) {
            broken.push(format!("{n} requests of gateway-{gateway} {what}"));
        }
        last.add(&sheet.between(from, to));
    }
    if (last.completed as f64) < SERVED_MIN * last.requests as f64 || last.requests == 0 {
        let found = counts_text(&last);
        broken.push(format!("the set does not serve at the end: {found}"));
    }
    broken
}
