//! The traffic pipeline with its models, on this machine: its capacity, and the part of it that is left at twice the
//! rate.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use xtask::process;
use xtask::workspace::Workspace;

use super::emulated::{Cost, Side, whole, with_policy};
use super::server::{Driven, Server};

/// What is served.
pub(super) const PIPELINE: &str = "traffic";
/// Enough in flight that no device waits for the client.
const CLOSED: &str = "8";
/// Rates offered in search of the capacity, as parts of the rate that a closed loop reached.
const RISING: [f64; 7] = [0.5, 0.7, 0.85, 1.0, 1.15, 1.3, 1.6];
/// Duration of each of these rates, seconds.
pub(super) const STEP: u32 = 10;
/// Sent first and not counted: models are slow until their memory is warm.
const WARM_UP: &str = "2s";

/// A load on the pipeline.
pub(super) struct Row {
    pub(super) policy: &'static str,
    pub(super) offered: f64,
    pub(super) goodput: f64,
    pub(super) side: Side,
    pub(super) late: u64,
    pub(super) dropped: u64,
    /// Refused at once, or failed.
    pub(super) refused: u64,
    /// Dropped while they were pictures yet.
    pub(super) undecoded: u64,
    pub(super) p99_ms: Option<f64>,
    /// Time of decoding for each offered frame, milliseconds.
    pub(super) decode_ms: f64,
    pub(super) cost: Cost,
}

/// All loads.
pub(super) struct Real {
    pub(super) closed_loop: f64,
    /// Offered ever more with our own policy.
    pub(super) rising: Vec<Row>,
    /// Offered twice the capacity.
    pub(super) twice: Vec<Row>,
}

impl Real {
    /// The highest goodput that was seen while the rate rose.
    pub(super) fn capacity(&self) -> f64 {
        self.rising
            .iter()
            .fold(0.0, |most, row| row.goodput.max(most))
    }
}

/// Measures them.
pub(super) fn run(workspace: &Workspace, program: &Path, out: &Path) -> Result<Real> {
    let pipeline = prepare(workspace, program, out, "spillgate")?;
    let mut server = Server::start(workspace, program, &pipeline, out)?;
    let duration = format!("{STEP}s");
    let args = ["--concurrency", CLOSED, "--duration", &duration];
    let args = [&args[..], &["--warmup", WARM_UP]].concat();
    let driven = server.drive(workspace, program, &args)?;
    let closed_loop = goodput(&driven)?;
    println!("live: {PIPELINE}, closed loop of {CLOSED}: {closed_loop:.1} good/s");
    let mut real = Real {
        closed_loop,
        rising: Vec::new(),
        twice: Vec::new(),
    };
    for part in RISING {
        let row = offer(
            workspace,
            program,
            &mut server,
            "spillgate",
            part * closed_loop,
        )?;
        real.rising.push(row);
    }
    server.stop()?;
    for policy in ["spillgate", "none"] {
        let pipeline = prepare(workspace, program, out, policy)?;
        let mut server = Server::start(workspace, program, &pipeline, out)?;
        let rate = 2.0 * real.capacity();
        let row = offer(workspace, program, &mut server, policy, rate)?;
        real.twice.push(row);
        server.stop()?;
    }
    Ok(real)
}

/// A copy of the pipeline with this policy, and with one profile for all: each server would measure its own, and
/// no two measurements are equal.
fn prepare(workspace: &Workspace, program: &Path, out: &Path, policy: &str) -> Result<PathBuf> {
    let source = workspace.path(&format!("apps/pipelines/{PIPELINE}.yaml"));
    let models = workspace.path("apps/modules/models");
    let models = models.to_str().context("the path is not UTF-8")?;
    let text =
        std::fs::read_to_string(source)?.replace("../modules/models/", &format!("{models}/"));
    let pipeline = out.join(format!("{PIPELINE}.yaml"));
    // The page compares drop policies: each of them serves the most accurate variant.
    let policy = format!("{policy}, adapt: fixed");
    spillgate_output::write(&pipeline, with_policy(&text, &policy)?)?;
    profile_once(workspace, program, &pipeline)?;
    Ok(pipeline)
}

/// Measures a pipeline's profile where it has none yet, so that all its servers go by the same.
pub(super) fn profile_once(workspace: &Workspace, program: &Path, pipeline: &Path) -> Result<()> {
    let profile = pipeline.with_extension("profile.yaml");
    if !profile.is_file() {
        println!(
            "live: measuring the profile of {} ...",
            pipeline.file_stem().unwrap_or_default().display()
        );
        let mut measure = workspace.program(program);
        measure.arg("profile").arg(pipeline).arg("--out");
        process::capture(measure.arg(&profile).args(["--rounds", "20"]))?;
    }
    Ok(())
}

/// Offers a Poisson process at that rate.
fn offer(
    workspace: &Workspace,
    program: &Path,
    server: &mut Server,
    policy: &'static str,
    rate: f64,
) -> Result<Row> {
    let duration = format!("{}s", STEP + 2);
    let rate_text = format!("{rate:.2}");
    let args = ["--rate", &rate_text, "--poisson", "--duration", &duration];
    let args = [&args[..], &["--warmup", WARM_UP, "--connections", "2"]].concat();
    let driven = server.drive(workspace, program, &args)?;
    let row = row(policy, rate, &driven).context("what bench says")?;
    println!(
        "live: {PIPELINE}, {policy}, {:.1} offered/s: {:.1} good/s",
        row.offered, row.goodput
    );
    Ok(row)
}

fn goodput(driven: &Driven) -> Result<f64> {
    driven.said["goodput_per_s"]
        .as_f64()
        .context("what bench says has no goodput")
}

fn row(policy: &'static str, rate: f64, driven: &Driven) -> Result<Row> {
    let causes = driven.said["causes"].as_array().context("no causes")?;
    let undecoded = causes
        .iter()
        .filter(|cause| cause["outcome"] == "dropped" && cause["module"] == "source")
        .filter_map(|cause| cause["requests"].as_u64())
        .sum();
    let decoded: f64 = driven
        .busy
        .iter()
        .filter(|(device, _)| device.starts_with("decode:"))
        .map(|(_, seconds)| seconds)
        .sum();
    let side = Side::live(driven)?;
    let outcome = |name| whole(&driven.said["outcomes"], name);
    Ok(Row {
        policy,
        // Chance makes it a little more or less than was asked for.
        offered: side.requests as f64 / f64::from(STEP),
        goodput: goodput(driven)?,
        side,
        late: outcome("late")?,
        dropped: outcome("dropped")?,
        refused: outcome("refused")? + outcome("failed")?,
        undecoded,
        p99_ms: driven.said["latency_ms"]["p99"].as_f64(),
        // The frames that warmed it up were decoded too.
        decode_ms: 1e3 * decoded / (rate * f64::from(STEP + 2)),
        cost: Cost::of(driven)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeMap;

    #[test]
    fn drops_before_decoding_are_counted_apart() {
        let driven = Driven {
            said: json!({
                "requests": 100, "goodput_per_s": 6.0,
                "outcomes": {"completed": 60, "late": 5, "dropped": 33, "refused": 1, "failed": 1},
                "latency_ms": {"p99": 380.0}, "send_delay_ms": {"p99": 1.0}, "generator_cpu": 0.1,
                "causes": [
                    {"outcome": "dropped", "module": "source", "requests": 20},
                    {"outcome": "dropped", "module": "detect", "requests": 15},
                    {"outcome": "late", "module": "source", "requests": 5},
                ],
            }),
            device_time: BTreeMap::from([("completed".to_owned(), 4.0)]),
            busy: BTreeMap::from([("decode:0".to_owned(), 1.2), ("cpu:0".to_owned(), 9.0)]),
            server_cores: 1.5,
            machine: 0.9,
        };
        let row = row("none", 10.0, &driven).unwrap();
        assert_eq!((row.undecoded, row.late, row.p99_ms), (20, 5, Some(380.0)));
        assert_eq!((row.offered, row.dropped, row.refused), (10.0, 33, 2));
        assert!((row.decode_ms - 10.0).abs() < 1e-9);
        assert_eq!((row.goodput, row.side.invalid), (6.0, 0.0));
    }
}
