//! `live-prediction`: how far measured times are from what was expected. Each shipped network is served alone at a part of its capacity,
//! in batches of one. Beside it stands a bare loop of the same network in the same run: what no server can do better than.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use lexopt::ValueExt as _;
use nix::sched::{sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use serde_json::Value;
use xtask::args::Args;
use xtask::process;
use xtask::workspace::Workspace;

use super::server::Server;
use super::{machine, prepared, read_options};
use crate::observe::today;
use spillgate_report::{Page, Table};

/// Pipelines and logs of the last run.
const OUT: &str = "out/live-prediction";
/// Where `--write` puts the report.
const DOCUMENT: &str = "docs/evaluation/prediction.md";
/// Batches of the bare loop.
const ROUNDS: &str = "2000";
/// More requests a second than that would measure the way to the device.
const RATE_MAX: f64 = 200.0;

/// The shipped networks, and how each is served.
const NETWORKS: [(&str, &str); 4] = [
    (
        "road",
        "op: detector\n    model: MODELS/road.pt\n    input: 320",
    ),
    (
        "road-192",
        "op: detector\n    model: MODELS/road.pt\n    input: 192",
    ),
    (
        "face",
        "op: classifier\n    model: MODELS/face.pt\n    options: { size: [40, 40] }",
    ),
    (
        "light",
        "op: classifier\n    model: MODELS/light.pt\n    options: { size: [64, 64] }",
    ),
];

struct Options {
    common: super::Common,
    load: f64,
    /// Name of the device.
    device: String,
    /// The core that the device has for itself in a second run of each network.
    core: Option<usize>,
}

struct Row {
    network: &'static str,
    /// The device had a core for itself.
    has_core: bool,
    /// Of the bare loop, milliseconds: the median, and by how much the 99th percentile exceeds it.
    bare: [f64; 2],
    rate: f64,
    batches: f64,
    /// Mean execution while it served, milliseconds.
    execution: f64,
    /// 1st, 50th and 99th percentile of measured minus expected duration, milliseconds.
    durations: [f64; 3],
    /// 99th percentile of measured minus expected end.
    completion: f64,
    late_batches: f64,
    in_time: f64,
    machine: f64,
}

/// `cargo xtask live-prediction`.
pub(crate) fn command(workspace: &Workspace, args: Args) -> Result<()> {
    let mut options = Options {
        common: super::Common::new(20, &[1.0]),
        load: 0.8,
        device: "cpu:0".to_owned(),
        core: None,
    };
    let own = |options: &mut Options, name: &str, parser: &mut lexopt::Parser| {
        match name {
            "load" => options.load = parser.value()?.parse()?,
            "device" => options.device = parser.value()?.string()?,
            "core" => options.core = Some(parser.value()?.parse()?),
            _ => return Ok(false),
        }
        if !(0.05..=1.0).contains(&options.load) {
            bail!("--load must be from 0.05 to 1");
        }
        Ok(true)
    };
    read_options(args, &mut options, |o| &mut o.common, own)?;
    let (program, out) = prepared(workspace, options.common.spillgate.as_deref(), OUT)?;
    let machine = machine();
    let mut rows = Vec::new();
    for (network, of) in NETWORKS {
        let pipeline = pipeline(workspace, &out, network, of, &options.device)?;
        for core in std::iter::once(None).chain(options.core.map(Some)) {
            let of = (network, core);
            let measured = row(workspace, &program, &options, (&out, &pipeline), of)?;
            println!("{}", line(&measured));
            rows.push(measured);
        }
    }
    println!("\n{}", table(&rows));
    if options.common.write {
        let document = workspace.path(DOCUMENT);
        spillgate_output::write(&document, page(&options, &machine, &rows)?)?;
        println!("written to {DOCUMENT}");
    }
    Ok(())
}

fn pipeline(
    workspace: &Workspace,
    out: &Path,
    network: &str,
    of: &str,
    device: &str,
) -> Result<PathBuf> {
    let models = workspace.path("apps/modules/models");
    let of = of.replace("MODELS", models.to_str().context("the path is not UTF-8")?);
    let output = if network.starts_with("road") {
        "vehicles"
    } else {
        "labels"
    };
    let text = format!(
        "name: {network}\nslo: 400ms\nmodules:\n  net:\n    {of}\n    inputs: {{ image: $source.frame }}\n    \
         batch: {{ max: 1 }}\n    device: {device}\noutputs: {{ out: $net.{output} }}\n"
    );
    let path = out.join(format!("{network}.yaml"));
    spillgate_output::write(&path, text)?;
    Ok(path)
}

/// The median and the 99th percentile of a loop of the network alone, milliseconds, and the mean of all its steps.
fn bare(workspace: &Workspace, program: &Path, pipeline: &Path) -> Result<[f64; 3]> {
    let mut profile = workspace.program(program);
    profile
        .arg("profile")
        .arg(pipeline)
        .args(["--rounds", ROUNDS]);
    let said = process::capture(&mut profile)?;
    let number = |name: &str| -> Result<f64> {
        let rest = said.split_once(name).map(|(_, rest)| rest.trim_start());
        let word = rest.and_then(|rest| rest.split([' ', ',', '\n']).next());
        let number = word.and_then(|word| word.parse().ok());
        number.with_context(|| format!("the profile names no {name}: {said}"))
    };
    Ok([number("p50")?, number("p99")?, number("mean")?])
}

fn row(
    workspace: &Workspace,
    program: &Path,
    options: &Options,
    (out, pipeline): (&Path, &Path),
    (network, core): (&'static str, Option<usize>),
) -> Result<Row> {
    let [p50, p99, mean] = bare(workspace, program, pipeline)?;
    let rate = (options.load * 1e3 / mean).min(RATE_MAX);
    let device_name = options.device.as_str();
    let memory = format!("{device_name},memory=1GiB");
    let of_core = core.map(|core| format!("--core={device_name}={core}"));
    let arguments = ["--device", memory.as_str()].into_iter();
    let arguments: Vec<&str> = arguments.chain(of_core.as_deref()).collect();
    let mut server = Server::start_with(workspace, program, pipeline, out, &arguments)?;
    let (rate_text, seconds) = (rate.to_string(), format!("{}s", options.common.seconds));
    let load = ["--rate", &rate_text, "--poisson", "--duration", &seconds];
    let driven = kept_off(core, || server.drive(workspace, program, &load))??;
    let status = server.status(workspace, program)?;
    let mut devices = status["devices"].as_array().into_iter().flatten();
    let device = devices.find(|d| d["name"] == device_name);
    let device = device.context("the status names no device")?;
    let error = |of: &str, quantile: &str| -> f64 {
        let mut errors = device["errors"].as_array().into_iter().flatten();
        let row = errors.find(|e| e["action"] == "execute" && e["of"] == of);
        row.and_then(|e| e[quantile].as_f64()).unwrap_or(f64::NAN)
    };
    let weights = &device["weights"];
    let requests = driven.said["requests"].as_f64().unwrap_or(f64::NAN);
    let in_time = driven.said["outcomes"]["completed"].as_f64();
    let labels = [("device", device_name), ("cause", "late_batch")];
    let late_batches = server.value("spillgate_device_refused_actions_total", &labels)?;
    let row = Row {
        network,
        has_core: core.is_some(),
        bare: [p50, p99 - p50],
        rate,
        batches: weights["batches"].as_f64().unwrap_or(f64::NAN),
        execution: execution_ms(&driven.said)?,
        durations: ["p1_ms", "p50_ms", "p99_ms"].map(|q| error("duration", q)),
        completion: error("completion", "p99_ms"),
        late_batches,
        in_time: in_time.unwrap_or(f64::NAN) / requests,
        machine: driven.machine,
    };
    server.stop()?;
    Ok(row)
}

/// Runs what starts processes that are kept off a core.
fn kept_off<T>(core: Option<usize>, run: impl FnOnce() -> T) -> Result<T> {
    let Some(core) = core else { return Ok(run()) };
    let this = Pid::from_raw(0);
    let all = sched_getaffinity(this)?;
    let mut others = all;
    others.unset(core)?;
    sched_setaffinity(this, &others)?;
    let outcome = run();
    sched_setaffinity(this, &all)?;
    Ok(outcome)
}

/// The mean execution of the network, as answers say it.
fn execution_ms(said: &Value) -> Result<f64> {
    let mut modules = said["modules"].as_array().into_iter().flatten();
    let net = modules.find(|m| m["module"] == "net");
    let mean = net.and_then(|m| m["execution_ms"]["mean"].as_f64());
    mean.context("bench names no execution time")
}

fn line(row: &Row) -> String {
    let part = |ms: f64| 100.0 * ms / row.execution;
    format!(
        "live-prediction: {}{} at {:.0}/s: duration p99 {:+.3} ms ({:+.1}%), completion p99 {:+.3} ms; bare loop p99 {:+.3} ms",
        row.network,
        if row.has_core { ", own core," } else { "" },
        row.rate,
        row.durations[2],
        part(row.durations[2]),
        row.completion,
        row.bare[1]
    )
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new([
        "network",
        "own core",
        "bare loop p50",
        "its p99",
        "requests/s",
        "executes",
        "error p1",
        "p50",
        "p99",
        "p99 of execution",
        "completion p99",
        "refused late",
        "in time",
        "machine busy",
    ]);
    for row in rows {
        table.row([
            row.network.to_string(),
            (if row.has_core { "yes" } else { "no" }).to_string(),
            format!("{:.3}", row.bare[0]),
            format!(
                "{:+.3} ({:+.0}%)",
                row.bare[1],
                100.0 * row.bare[1] / row.bare[0]
            ),
            format!("{:.0}", row.rate),
            format!("{:.3}", row.execution),
            format!("{:+.3}", row.durations[0]),
            format!("{:+.3}", row.durations[1]),
            format!("{:+.3}", row.durations[2]),
            format!("{:+.1}%", 100.0 * row.durations[2] / row.execution),
            format!("{:+.3}", row.completion),
            format!("{:.2}%", 100.0 * row.late_batches / row.batches.max(1.0)),
            format!("{:.2}%", 100.0 * row.in_time),
            format!("{:.0}%", 100.0 * row.machine),
        ]);
    }
    table
}

fn page(options: &Options, machine: &str, rows: &[Row]) -> Result<String> {
    let (seconds, load, device) = (options.common.seconds, options.load, &options.device);
    let core = options
        .core
        .map(|core| format!(" --core {core}"))
        .unwrap_or_default();
    let mut page = Page::new("Errors of prediction");
    page.say(&format!(
        "`cargo xtask live-prediction --seconds {seconds} --load {load} --device {device}{core} --write`, {}, on {machine}",
        today()?
    ));
    page.say(&format!(
        "Each shipped network alone under the placement `spillgate`, in batches of one, with requests as a Poisson process at {load} of what a \
         loop of all its steps reaches, {RATE_MAX} a second at most. Times in ms. An error is measured minus expected, as the server \
         counts it; an expected time follows the last ones (exponentially weighted). The *bare loop* calls the same network {ROUNDS} times in a process \
         of its own with nothing else on the machine: `spillgate profile`, with preparing and finishing; its p99 stands there as the distance from its median. The completion of a batch \
         counts what was sent to the device before. With an *own core* the executing thread has a core on which neither another thread of the server (`--core`) nor the client runs. Clockwork's on a V100: 0.25 ms for the 99th percentile of durations, 1 ms for that of completions.",
    ));
    page.table(&table(rows));
    Ok(page.text(""))
}
