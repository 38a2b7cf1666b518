//! Faults of one of two gateways.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::Value;
use tokio::runtime::Handle;

use crate::fault::Fault;
use crate::findings::Findings;
use crate::pipelines::{Pipeline, WORKER_RATE};
use crate::set::{Plan, Set};
use crate::trial::Trial;

const VICTIM: &str = "gateway-0";
/// How long the fault lasts.
const FAULT: Duration = Duration::from_secs(5);
/// The other one may lose less than a point by a fault.
const COST_MAX: f64 = 0.99;
/// Percent of the requests of a gateway that came back. The controller divides the capacity among gateways by what they reported, and
/// a part that is too small for a moment refuses some.
const RETURN_MAX: f64 = 10.0;

/// The workers could serve all; the other gateway is not to notice anything.
pub(super) fn alone(runtime: &Handle, fault: Fault) -> anyhow::Result<Findings> {
    let plan = Plan {
        slo: "1s",
        ..Plan::default()
    };
    let rate = 0.7 * WORKER_RATE * plan.workers as f64 / plan.gateways as f64;
    let mut trial = Trial::start(runtime, &plan, rate, Duration::from_secs(4))?;
    let when = trial.disturb(fault, VICTIM, FAULT)?;
    std::thread::sleep(Duration::from_secs(5));
    let mut served = trial.finish();
    let end = Instant::now();
    let before = Duration::from_secs(3);
    let [own, other] = &served.sheets[..] else {
        anyhow::bail!("two gateways were planned");
    };
    let slo = Duration::from_secs(1);
    let in_flight = own.between(when.struck_at - slo, when.struck_at);
    let own_before = own.between(when.struck_at - before, when.struck_at);
    let own_after = own.between(when.healed_at + Duration::from_secs(2), end);
    let others_before = other.between(when.struck_at - before, when.struck_at);
    let others_during = other.between(when.struck_at, end);
    let cost = others_before.goodput() - others_during.goodput();
    let findings = &mut served.findings;
    findings.at_most("cost at the other gateway", cost, COST_MAX, " points");
    let lost = own_before.bad() as f64;
    match fault {
        // What was in flight is lost with it.
        Fault::Killed => findings.at_most("lost with it", lost, in_flight.requests as f64, ""),
        // It ends what it has accepted.
        Fault::Ended => findings.at_most("lost with it", lost, 0.0, ""),
        _ => findings.at_most("lost at it", lost, in_flight.requests as f64, ""),
    }
    let good = own_after.goodput();
    findings.at_most("not completed 2 s after", 100.0 - good, RETURN_MAX, "%");
    Ok(served.findings)
}

/// Frames that `spillgate stream` sends, and how many a second.
const FRAMES: u64 = 100;
const FRAME_RATE: u64 = 10;
/// How long the gateway is away: `stream` tries to reach it again within twice that time.
const AWAY: Duration = Duration::from_secs(1);

/// `spillgate stream --reconnect` while its gateway is killed and started again.
pub(super) fn stream(runtime: &Handle) -> anyhow::Result<Findings> {
    let plan = Plan {
        pipeline: Pipeline::Pictures,
        slo: "1s",
        gateways: 1,
        workers: 1,
        ..Plan::default()
    };
    let mut set = Set::start(runtime, &plan)?;
    let results = set.file("results.json");
    let mut stream = Command::new(env!("CARGO_BIN_EXE_spillgate"))
        .args(["stream", "scene:size=64x64", "--quiet", "--reconnect"])
        .arg(format!("--server=http://{}", set.gateways[0]))
        .arg(format!("--frames={FRAMES}"))
        .arg(format!("--fps={FRAME_RATE}"))
        .arg(format!("--results={}", results.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    std::thread::sleep(Duration::from_secs(3));
    Fault::Killed.strike(&mut set, VICTIM)?;
    std::thread::sleep(AWAY);
    Fault::Killed.heal(&mut set, VICTIM)?;
    let status = stream.wait()?;
    let mut findings = Findings::default();
    findings.holds(status.success(), || format!("stream ended with {status}"));
    let text = std::fs::read_to_string(results)?;
    let lines: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
    let mut frames: Vec<(u64, bool)> = Vec::new();
    for line in lines? {
        let frame = line["frame"].as_u64().context("a result without a frame")?;
        frames.push((frame, line["outcome"] == "completed"));
    }
    frames.sort_unstable();
    let numbers: Vec<u64> = frames.iter().map(|(frame, _)| *frame).collect();
    findings.holds(numbers == (0..FRAMES).collect::<Vec<_>>(), || {
        format!("not one result a frame: {numbers:?}")
    });
    // What was due while nobody was there is lost, in one piece.
    let failed: Vec<u64> = frames
        .iter()
        .filter(|(_, good)| !good)
        .map(|(f, _)| *f)
        .collect();
    let piece = failed
        .first()
        .map_or(0..0, |first| *first..first + failed.len() as u64);
    findings.holds(failed.iter().copied().eq(piece), || {
        format!("frames failed in several pieces: {failed:?}")
    });
    findings.at_most("frames lost", failed.len() as f64, FRAMES as f64 / 2.0, "");
    let (wrong, _) = set.stop();
    findings.holds(wrong.is_empty(), || wrong.join("; "));
    Ok(findings)
}
