//! `up --scale`: more workers as the load grows.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tokio::runtime::Handle;

use crate::client::{Counts, Load, Sheet};
use crate::findings::Findings;
use crate::pipelines::{MODULES, Pipeline, WORKER_RATE, WORKERS_MAX};
use crate::preload::Preload;
use crate::set::resident;
use crate::trial::GROWTH_MAX;
use crate::up::Up;

const GATEWAYS: usize = 2;
/// A pause of the test machine costs no request.
const SLO: &str = "2s";
/// What is sent before the step, as a part of what one worker serves. After it, [`WORKERS_MAX`] times as much.
const LOAD: f64 = 0.68;
const WARM_UP: Duration = Duration::from_secs(6);
/// How long requests go on after the step.
const AFTER: Duration = Duration::from_secs(25);
const SECOND: Duration = Duration::from_secs(1);
/// A second is good where less than this part of its requests is not completed.
const BAD: f64 = 0.02;
/// All seconds are good so many seconds after the step.
const GOOD_AFTER_MAX: f64 = 15.0;
/// Devices take 2 s to start, and processes are looked at now and then.
const START_MIN: Duration = Duration::from_millis(1800);
const LOOK: Duration = Duration::from_millis(50);

/// The load trebles, so that the first module needs three workers, whose devices take 2 s to start. The other modules have as many from the
/// start. `kills`: at that moment the controller is killed.
pub(super) fn follows(runtime: &Handle, kills: bool) -> anyhow::Result<Findings> {
    let late = Preload::build("late.c")?;
    let [_, others @ ..] = MODULES.map(|module| format!("{module}={WORKERS_MAX}"));
    let flags = [
        "--scale".to_owned(),
        format!("--gateways={GATEWAYS}"),
        format!("--workers={}", others.join(",")),
    ];
    let mut up = Up::start(
        Pipeline::Scaled,
        SLO,
        &flags,
        &[("LD_PRELOAD", late.path())],
    )?;
    let gateways = up.gateways().to_vec();
    let rate = LOAD * WORKER_RATE / GATEWAYS as f64;
    let mut load = Load::start(runtime, &gateways, rate);
    std::thread::sleep(WARM_UP);
    up.look()?;
    let before = workers(&up);
    let stepped_at = Instant::now();
    load.join(&gateways, (WORKERS_MAX - 1) as f64 * rate);
    if kills {
        let is_there = up.send("controller", Signal::SIGKILL);
        anyhow::ensure!(is_there, "the controller did not run");
    }
    let mut memory = Memory::default();
    let (mut wanted_at, mut first_at, mut all_at) = (None, None, None);
    while stepped_at.elapsed() < AFTER {
        std::thread::sleep(LOOK);
        up.look()?;
        memory.look(&up);
        if up.has_said(" wanted: ")? {
            wanted_at.get_or_insert_with(Instant::now);
        }
        let workers = workers(&up);
        if workers != before {
            first_at.get_or_insert_with(Instant::now);
        }
        if workers == WORKERS_MAX {
            all_at.get_or_insert_with(Instant::now);
        }
    }
    let sheets = load.finish();

    let mut findings = Findings::default();
    for (client, sheet) in sheets.iter().enumerate() {
        findings.count(client, sheet);
    }
    let mut all = Counts::default();
    sheets.iter().for_each(|sheet| all.add(&sheet.all()));
    let good_after = good_after(&sheets, stepped_at);
    let ready = all_at.map_or(f64::INFINITY, |at| (at - stepped_at).as_secs_f64());
    findings.at_most("good after", good_after, GOOD_AFTER_MAX, " s");
    findings.at_most("workers ready after", ready, GOOD_AFTER_MAX, " s");
    findings.at_most("failed", all.failed as f64, 0.0, "");
    findings.at_most("lost", all.lost as f64, 0.0, "");
    findings.at_most("growth of memory", memory.growth(), GROWTH_MAX, " MB");
    // One worker does not serve what comes after the step, and no other one was there before.
    findings.holds(before == 1, || format!("{before} workers before the step"));
    findings.holds(good_after >= START_MIN.as_secs_f64(), || {
        "one worker served all".to_owned()
    });
    if let (Some(wanted), Some(first)) = (wanted_at, first_at) {
        findings.holds(first - wanted >= START_MIN, || {
            format!("a worker started within {:?}", first - wanted)
        });
    }
    let broken = up.breaches().into_iter().chain(up.panics());
    let broken: Vec<String> = broken.collect();
    findings.holds(broken.is_empty(), || broken.join("; "));
    findings.holds(up.n_deaths() == usize::from(kills), || {
        format!("{} processes died", up.n_deaths())
    });
    up.stop()?;
    findings.holds(!up.has_said("did not end in time")?, || {
        "a process did not end in time".to_owned()
    });
    if std::env::var_os("SPILLGATE_FAULTS_KEEP").is_none() {
        up.remove_folder();
    }
    Ok(findings)
}

/// Workers of the first module that are ready.
fn workers(up: &Up) -> usize {
    let of = |name: &str| name.rsplit_once('-').is_some_and(|(m, _)| m == MODULES[0]);
    up.pids().filter(|(name, _)| of(name)).count()
}

/// How many seconds after `from` the first one begins from which on all are good.
fn good_after(sheets: &[Sheet], from: Instant) -> f64 {
    let is_good = |second: u32| {
        let mut counts = Counts::default();
        let at = from + second * SECOND;
        let of = sheets.iter().map(|sheet| sheet.between(at, at + SECOND));
        of.for_each(|of| counts.add(&of));
        (counts.bad() as f64) < BAD * counts.requests as f64
    };
    let seconds = AFTER.as_secs() as u32;
    let bad = (0..seconds).rev().find(|second| !is_good(*second));
    bad.map_or(0.0, |second| f64::from(second + 1))
}

/// Resident memory of processes in MB, when they were seen first and at most.
#[derive(Default)]
struct Memory(BTreeMap<u32, (f64, f64)>);

impl Memory {
    fn look(&mut self, up: &Up) {
        for (_, pid) in up.pids() {
            if let Some(now) = resident(pid) {
                let (_, most) = self.0.entry(pid).or_insert((now, now));
                *most = most.max(now);
            }
        }
    }

    fn growth(&self) -> f64 {
        let growth = self.0.values().map(|(first, most)| most - first);
        growth.fold(0.0, f64::max)
    }
}
