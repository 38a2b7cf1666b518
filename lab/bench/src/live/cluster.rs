//! `live-cluster`: do separate processes do what the simulator says of a cluster? Both get the same arrivals, split over one, two and
//! four gateways, on emulated devices. Then two stages are offered more than they can serve, through separate
//! processes.

mod overload;
mod report;
mod set;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use xtask::args::Args;
use xtask::process::{self, Daemon};
use xtask::workspace::Workspace;

use super::emulated::{DEVICES, PIPELINE, Side, capacity, whole};
use super::{Common, arrivals, machine, prepared, read_options};
use crate::observe::{machine_time, today};
use report::Report;
use set::Set;

/// Pipelines, arrivals and logs of the last run.
const OUT: &str = "out/live-cluster";
/// Where `--write` puts the report.
const DOCUMENT: &str = "docs/evaluation/live_cluster.md";
/// Gateways beside each other.
const GATEWAYS: [usize; 3] = [1, 2, 4];
/// Connections of a client; few enough calls on each that none waits for another to end.
const CONNECTIONS: &str = "4";
/// All times of the pipeline are so many times those of the reference workload: its rate is as much lower, and two
/// cores are enough for all processes and their clients.
const SLOWER: u32 = 4;
/// The network of the simulated cluster: about that of loopback.
const NETWORK: &str = "network: { delay: 0.1ms, jitter: 0.05ms }\n";

/// How busy the machine was, and how late the clients sent.
struct Cost {
    /// 99th percentile, of the client that was latest.
    lag_p99_ms: f64,
    /// CPU time of the processes, in cores.
    cores: f64,
    /// Part of the machine that was busy, with any process.
    machine: f64,
}

/// So many gateways at a load, on both sides.
struct Cell {
    gateways: usize,
    load: f64,
    simulated: Side,
    live: Side,
    cost: Cost,
}

impl Cell {
    /// Live minus simulated goodput, in points of the requests.
    fn points(&self) -> f64 {
        100.0 * (self.simulated.dropped() - self.live.dropped())
    }

    /// The text for the terminal.
    fn line(&self) -> String {
        format!(
            "{} gateways at {}: in time {:.1}% simulated, {:.1}% live ({:+.1} points); client lag p99 {:.1} ms, processes {:.2} \
             cores, machine {:.0}% busy",
            self.gateways,
            self.load,
            100.0 * (1.0 - self.simulated.dropped()),
            100.0 * (1.0 - self.live.dropped()),
            self.points(),
            self.cost.lag_p99_ms,
            self.cost.cores,
            100.0 * self.cost.machine,
        )
    }
}

/// `cargo xtask live-cluster`.
pub(crate) fn command(workspace: &Workspace, args: Args) -> Result<()> {
    let mut options = Common::new(30, &[0.7, 0.9, 1.1]);
    read_options(args, &mut options, |options| options, |_, _, _| Ok(false))?;
    let (program, out) = prepared(workspace, options.spillgate.as_deref(), OUT)?;
    let machine = machine();
    let source = slower_pipeline(workspace, &out)?;
    let capacity = capacity(workspace, &program, &source)?;
    let shape = arrivals::shape(options.seconds, options.seed);
    let run = Run {
        workspace,
        program: &program,
        pipeline: &source,
        out: &out,
        seconds: options.seconds as f64,
    };
    let mut cells = Vec::new();
    for load in &options.loads {
        let times = arrivals::times(&shape, load * capacity, options.seed);
        for gateways in GATEWAYS {
            let cell = run.cell(gateways, *load, &times)?;
            println!("live-cluster: {}", cell.line());
            cells.push(cell);
        }
    }
    let overload = overload::run(workspace, &program, &out, options.seconds)?;
    let report = Report {
        command: format!("cargo xtask live-cluster {}", options.shown("")).replace("  ", " "),
        machine,
        date: today()?,
        seconds: options.seconds,
        capacity,
        variation: arrivals::variation(&shape),
        cells: &cells,
        overload: &overload,
    };
    println!("\n{}\n{}", report.table(), report.overload_table());
    if options.write {
        spillgate_output::write(workspace.path(DOCUMENT), report.document())?;
        println!("written to {DOCUMENT}");
    }
    Ok(())
}

/// The pipeline of the reference workload and its profile, with times that are [`SLOWER`].
fn slower_pipeline(workspace: &Workspace, out: &Path) -> Result<PathBuf> {
    for suffix in ["yaml", "profile.yaml"] {
        let name = format!("{PIPELINE}.{suffix}");
        let text = std::fs::read_to_string(workspace.path(&format!("apps/pipelines/{name}")))?;
        spillgate_output::write(out.join(name), slower(&text, SLOWER)?)?;
    }
    Ok(out.join(format!("{PIPELINE}.yaml")))
}

/// The text with so many times each number of ms.
fn slower(text: &str, times: u32) -> Result<String> {
    let mut slower = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("ms") {
        let words = before.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        slower += words;
        // A word that ends like this has no number before it.
        if words.len() < before.len() {
            let ms: f64 = before[words.len()..].parse().context("a time in ms")?;
            slower += &(ms * f64::from(times)).to_string();
        }
        slower += "ms";
        rest = after;
    }
    slower += rest;
    Ok(slower)
}

/// What all cells share.
struct Run<'a> {
    workspace: &'a Workspace,
    program: &'a Path,
    pipeline: &'a Path,
    out: &'a Path,
    seconds: f64,
}

impl Run<'_> {
    fn cell(&self, gateways: usize, load: f64, times: &[f64]) -> Result<Cell> {
        let simulated = self.simulate(gateways, times)?;
        let set = Set::start(
            self.workspace,
            self.program,
            self.pipeline,
            self.out,
            gateways,
        )?;
        let (live, cost) = self.drive(&set, times)?;
        set.stop()?;
        if live.requests.abs_diff(simulated.requests) > gateways as u64 {
            bail!(
                "{} requests were sent where {} were simulated",
                live.requests,
                simulated.requests
            );
        }
        Ok(Cell {
            gateways,
            load,
            simulated,
            live,
            cost,
        })
    }

    fn simulate(&self, gateways: usize, times: &[f64]) -> Result<Side> {
        let lines = self.out.join("arrivals.txt");
        spillgate_output::write(&lines, arrivals::lines(times))?;
        let nodes: String = (0..gateways)
            .map(|i| format!("  - {{ name: gateway-{i}, gateway: true }}\n"))
            .collect();
        let cluster = self.out.join("cluster.yaml");
        spillgate_output::write(&cluster, format!("{NETWORK}nodes:\n{nodes}"))?;
        let mut simulate = self.workspace.program(self.program);
        simulate.arg("simulate").arg(self.pipeline);
        simulate.arg("--arrivals").arg(&lines);
        simulate.arg("--cluster").arg(&cluster);
        simulate.args(["--seed", "1", "--json"]);
        let said: Value = serde_json::from_str(&process::capture(&mut simulate)?)?;
        Side::simulated(&said).context("what simulate says")
    }

    /// Each gateway has a client of its own, which sends its part of the requests.
    fn drive(&self, set: &Set, times: &[f64]) -> Result<(Side, Cost)> {
        let n = set.gateways().len();
        let mut traces = Vec::new();
        for i in 0..n {
            let own: Vec<f64> = times.iter().copied().skip(i).step_by(n).collect();
            let trace = self.out.join(format!("arrivals-{i}.csv"));
            spillgate_output::write(&trace, arrivals::trace(&own, self.seconds))?;
            traces.push(trace);
        }
        let before = (set.cpu_time()?, machine_time()?);
        let begun = Instant::now();
        let mut clients = Vec::new();
        for (i, (gateway, trace)) in set.gateways().iter().zip(&traces).enumerate() {
            let mut bench = self.workspace.program(self.program);
            bench.args(["bench", "--quiet", "--server", &format!("http://{gateway}")]);
            bench.arg("--trace").arg(trace);
            bench.args(["--payload-bytes", "64", "--connections", CONNECTIONS]);
            let json = self.out.join(format!("client-{i}.json"));
            bench.arg("--json").arg(&json);
            let name = format!("client-{i}");
            let log = self.out.join(format!("{name}.log"));
            clients.push((Daemon::start(&name, &mut bench, &log)?, json));
        }
        let mut side = Side {
            requests: 0,
            good: 0,
            invalid: 0.0,
        };
        let mut lag_p99_ms = 0.0_f64;
        for (client, json) in clients {
            client.join()?;
            let said: Value = serde_json::from_str(&std::fs::read_to_string(json)?)?;
            side.requests += whole(&said, "requests")?;
            side.good += whole(&said["outcomes"], "completed")?;
            let lag = said["send_delay_ms"]["p99"].as_f64();
            lag_p99_ms = lag_p99_ms.max(lag.context("bench does not say how late it sent")?);
        }
        let took = begun.elapsed().as_secs_f64();
        let after = (set.cpu_time()?, machine_time()?);
        let (busy, all) = (after.1.0 - before.1.0, after.1.1 - before.1.1);
        let cost = Cost {
            lag_p99_ms,
            cores: (after.0 - before.0).as_secs_f64() / took,
            machine: busy as f64 / all.max(1) as f64,
        };
        Ok((side, cost))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_times_are_made_longer() {
        let text = "name: items 5\nslo: 400ms\na: { alpha: 2.5ms, beta: 6ms, max: 32 }\n";
        let expected = "name: items 5\nslo: 1600ms\na: { alpha: 10ms, beta: 24ms, max: 32 }\n";
        assert_eq!(slower(text, 4).unwrap(), expected);
        assert!(slower("1.2.3ms", 2).is_err());
    }
}
