//! Faults of a worker.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tokio::runtime::Handle;

use crate::client::{Counts, Sheet};
use crate::fault::Fault;
use crate::findings::Findings;
use crate::pipelines::WORKER_RATE;
use crate::set::Plan;
use crate::trial::{Served, Trial};

const VICTIM: &str = "worker-0";
/// A worker that is killed has hung for so long.
const HANGS: Duration = Duration::from_millis(150);
/// How long the fault lasts.
const FAULT: Duration = Duration::from_secs(5);
/// Peers dial again after at most 1 s, and the process needs a moment to start.
const MET_MAX: f64 = 2.5;
/// A gateway waits for an answer for a second after the deadline.
const WAIT_MAX: f64 = 2.5;
/// How long requests go on after it.
const AFTER: Duration = Duration::from_secs(4);

/// The other worker could serve all: what the worker had goes there. A deadline of some seconds leaves time to notice its silence.
pub(super) fn shelters(runtime: &Handle, fault: Fault) -> anyhow::Result<Findings> {
    let (slo, least_wait) = match fault {
        Fault::Killed => ("600ms", HANGS),
        Fault::Ended => ("600ms", Duration::ZERO),
        _ => ("6s", Duration::from_millis(900)),
    };
    let plan = Plan {
        slo,
        ..Plan::default()
    };
    sheltered(runtime, fault, &plan, least_wait)
}

/// The same with a short deadline, where silence is noticed soon.
pub(super) fn shelters_in_time(runtime: &Handle) -> anyhow::Result<Findings> {
    let plan = Plan {
        suspect: Some("200ms"),
        ..Plan::default()
    };
    sheltered(runtime, Fault::Stopped, &plan, Duration::from_millis(180))
}

/// There is no other worker: the same case has to find that requests fail, or it would find nothing.
pub(super) fn nowhere_to_go(runtime: &Handle) -> anyhow::Result<Findings> {
    let plan = Plan {
        workers: 1,
        ..Plan::default()
    };
    let found = sheltered(runtime, Fault::Killed, &plan, HANGS)?;
    let mut findings = Findings::default();
    findings.holds(found.is_broken(), || {
        "the only worker was killed, and nothing broke".to_owned()
    });
    Ok(findings)
}

fn sheltered(
    runtime: &Handle,
    fault: Fault,
    plan: &Plan,
    least_wait: Duration,
) -> anyhow::Result<Findings> {
    let rate = 0.8 * WORKER_RATE / plan.gateways as f64;
    let mut trial = Trial::start(runtime, plan, rate, Duration::from_secs(3))?;
    if fault == Fault::Killed {
        // It surely has requests when it dies.
        trial.set.send(VICTIM, Signal::SIGSTOP);
        std::thread::sleep(HANGS);
    }
    let when = trial.disturb(fault, VICTIM, Duration::from_secs(4))?;
    std::thread::sleep(Duration::from_secs(2));
    let mut served = trial.finish();
    let mut counts = Counts::default();
    let from = when.struck_at - Duration::from_secs(1);
    for sheet in &served.sheets {
        counts.add(&sheet.between(from, Instant::now()));
    }
    let wait = longest_wait(&served);
    let findings = &mut served.findings;
    findings.at_most("failed", counts.failed as f64, 0.0, "");
    findings.at_most("not completed", counts.bad() as f64, 2.0, "");
    findings.holds(wait >= least_wait, || {
        format!("no request waited at the worker: {wait:?} at most")
    });
    Ok(served.findings)
}

fn longest_wait(served: &Served) -> Duration {
    let waits = served.sheets.iter().map(Sheet::longest_wait);
    waits.max().unwrap_or_default()
}

/// All workers have more than they can do, so a second shows their capacity.
pub(super) fn comes_back(runtime: &Handle, fault: Fault) -> anyhow::Result<Findings> {
    let plan = Plan::default();
    let rate = 1.2 * WORKER_RATE * plan.workers as f64 / plan.gateways as f64;
    let warm_up = Duration::from_secs(6);
    let mut trial = Trial::start(runtime, &plan, rate, warm_up)?;
    let when = trial.disturb(fault, VICTIM, FAULT)?;
    std::thread::sleep(AFTER);
    let mut served = trial.finish();
    let before = served.rate(when.struck_at - Duration::from_secs(3), when.struck_at);
    let noticed = (when.noticed_at - when.struck_at).as_secs_f64();
    let surviving = before * (plan.workers - 1) as f64 / plan.workers as f64;
    let back = served.back_after(when.noticed_at, surviving);
    let met = (when.met_at - when.healed_at).as_secs_f64();
    let full = served.back_after(when.met_at, before);
    let failed: usize = served.sheets.iter().map(|s| s.all().failed).sum();
    let wait = longest_wait(&served);
    let findings = &mut served.findings;
    let least = 0.7 * WORKER_RATE * plan.workers as f64;
    findings.holds(before >= least, || {
        format!("{before:.1} a second before the fault, less than {least}")
    });
    let (noticed_max, failed_max) = match fault {
        Fault::Killed => (0.5, 0.0),
        // It finishes what it has.
        Fault::Ended => (1.5, 0.0),
        // Its peers hear it and send it what it asks for, until a heartbeat has waited too long for its answer.
        Fault::Deaf => (2.5, 30.0),
        // What it had is over when its silence is noticed.
        _ => (2.0, 12.0),
    };
    findings.at_most("noticed after", noticed, noticed_max, " s");
    findings.at_most("failed", failed as f64, failed_max, "");
    findings.at_most(
        "longest wait for an answer",
        wait.as_secs_f64(),
        WAIT_MAX,
        " s",
    );
    findings.at_most("surviving capacity after", back, 1.0, " s");
    findings.at_most("met again after", met, MET_MAX, " s");
    findings.at_most("full capacity after", full, 2.0, " s");
    Ok(served.findings)
}
