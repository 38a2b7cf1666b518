//! What is slow: networks and workers.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tokio::runtime::Handle;

use crate::client::{Counts, Sheet};
use crate::fault::Fault;
use crate::findings::Findings;
use crate::pipelines::WORKER_RATE;
use crate::preload::Preload;
use crate::set::Plan;
use crate::trial::{Served, Trial};

/// Workers that do without the slow one.
const BESIDE: usize = 2;
/// A module that takes three times 40 ms.
const SLOW_RUN: Duration = Duration::from_millis(115);
/// How long the two sets are compared.
const SLOW_SPAN: Duration = Duration::from_secs(10);
/// A worker stands still for so long, so often.
const STALL: Duration = Duration::from_millis(200);
const STALL_PERIOD: Duration = Duration::from_millis(1700);

/// The connections of a process take 50 ms in each direction, and lose 1% of the segments.
pub(super) fn far(runtime: &Handle, name: &str) -> anyhow::Result<Findings> {
    let plan = Plan {
        slo: "1500ms",
        ..Plan::default()
    };
    // Two modules one after the other: to the worker and back, and 40 ms there. Requests do not pass the controller.
    let least_wait = match name {
        "controller" => Duration::ZERO,
        _ => Duration::from_millis(280),
    };
    let rate = 0.4 * WORKER_RATE * plan.workers as f64 / plan.gateways as f64;
    let mut trial = Trial::start(runtime, &plan, rate, Duration::from_secs(3))?;
    let when = trial.disturb(Fault::Slow, name, Duration::from_secs(8))?;
    let mut served = trial.finish();
    let mut during = Counts::default();
    for sheet in &served.sheets {
        during.add(&sheet.between(when.struck_at, when.healed_at));
    }
    let bad = 100.0 - during.goodput();
    let waits = served.sheets.iter().map(Sheet::longest_wait);
    let wait = waits.max().unwrap_or_default();
    served.findings.at_most("not completed", bad, 5.0, "%");
    served.findings.holds(wait >= least_wait, || {
        format!("no request was slow: {wait:?} at most")
    });
    Ok(served.findings)
}

/// One more worker than are needed, which takes three times as long for each batch.
pub(super) fn third(runtime: &Handle) -> anyhow::Result<Findings> {
    let shim = Preload::build("slow.c")?;
    let plan = Plan {
        workers: BESIDE + 1,
        of_first_worker: vec![("LD_PRELOAD".to_owned(), shim.path().display().to_string())],
        ..Plan::default()
    };
    let mut served = beside(runtime, &plan, |_| {})?;
    let runs = served.sheets.iter().map(Sheet::longest_run);
    let longest = runs.max().unwrap_or_default();
    served.findings.holds(longest >= SLOW_RUN, || {
        format!("no module took three times as long: {longest:?} at most")
    });
    Ok(served.findings)
}

/// One more worker than are needed, which stands still for 200 ms now and then.
pub(super) fn stalls(runtime: &Handle) -> anyhow::Result<Findings> {
    let plan = Plan {
        workers: BESIDE + 1,
        ..Plan::default()
    };
    let served = beside(runtime, &plan, |trial| {
        trial.set.send("worker-0", Signal::SIGSTOP);
        std::thread::sleep(STALL);
        trial.set.send("worker-0", Signal::SIGCONT);
    });
    Ok(served?.findings)
}

/// Serves with a slow worker, and beside that without it: the same rate, at the same time.
fn beside(
    runtime: &Handle,
    plan: &Plan,
    mut disturb: impl FnMut(&Trial),
) -> anyhow::Result<Served> {
    let without = Plan {
        workers: BESIDE,
        ..Plan::default()
    };
    let rate = 0.8 * WORKER_RATE * BESIDE as f64 / plan.gateways as f64;
    let undisturbed = Trial::start(runtime, &without, rate, Duration::ZERO)?;
    let trial = Trial::start(runtime, plan, rate, Duration::from_secs(3))?;
    let from = Instant::now();
    while from.elapsed() < SLOW_SPAN {
        std::thread::sleep(STALL_PERIOD - STALL);
        disturb(&trial);
    }
    let until = Instant::now();
    let mut served = trial.finish();
    let [with, without] = [&served, &undisturbed.finish()].map(|served| {
        let mut counts = Counts::default();
        for sheet in &served.sheets {
            counts.add(&sheet.between(from, until));
        }
        counts.goodput()
    });
    served
        .findings
        .at_most("not completed without it", 100.0 - without, 5.0, "%");
    served
        .findings
        .at_most("cost", without - with, 3.0, " points");
    Ok(served)
}
