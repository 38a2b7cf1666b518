//! A pipeline on emulated devices, served and simulated with the same arrivals.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use xtask::process;
use xtask::workspace::Workspace;

use super::Options;
use super::arrivals;
use super::server::{Driven, Server};

/// What is served: a chain of three modules.
pub(super) const PIPELINE: &str = "tm";
/// Emulated devices, as the pipeline file shares them out.
pub(super) const DEVICES: &str = "24";
/// Few enough calls on each that none waits for another to end.
const CONNECTIONS: &str = "8";

/// The results of the requests on one side.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Side {
    pub(super) requests: u64,
    pub(super) good: u64,
    /// Part of the device time that went to requests without an answer in time.
    pub(super) invalid: f64,
}

impl Side {
    /// Part of the requests without an answer in time.
    pub(super) fn dropped(&self) -> f64 {
        1.0 - self.good as f64 / self.requests.max(1) as f64
    }

    /// The results of a run of `simulate`.
    pub(super) fn simulated(said: &Value) -> Result<Side> {
        let run = &said["runs"][0];
        Ok(Side {
            requests: whole(run, "requests")?,
            good: whole(run, "good")?,
            invalid: run["invalid_rate"].as_f64().context("no invalid_rate")?,
        })
    }

    /// The results of a server: answers as the client counts them, device time as the server does.
    pub(super) fn live(driven: &Driven) -> Result<Side> {
        let all: f64 = driven.device_time.values().sum();
        let good = driven.device_time.get("completed").copied().unwrap_or(0.0);
        Ok(Side {
            requests: whole(&driven.said, "requests")?,
            good: whole(&driven.said["outcomes"], "completed")?,
            invalid: if all > 0.0 { 1.0 - good / all } else { 0.0 },
        })
    }
}

/// The cost of the measurement: results from a busy machine are not valid.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cost {
    /// How late the client sent, 99th percentile.
    pub(super) lag_p99_ms: f64,
    pub(super) client_cores: f64,
    pub(super) server_cores: f64,
    /// Part of the machine that was busy, with any process.
    pub(super) machine: f64,
}

impl Cost {
    pub(super) fn of(driven: &Driven) -> Result<Cost> {
        let number = |value: &Value| value.as_f64().context("what bench says lacks its own cost");
        Ok(Cost {
            lag_p99_ms: number(&driven.said["send_delay_ms"]["p99"])?,
            client_cores: number(&driven.said["generator_cpu"])?,
            server_cores: driven.server_cores,
            machine: driven.machine,
        })
    }
}

/// A policy at a load.
pub(super) struct Cell {
    pub(super) policy: String,
    pub(super) load: f64,
    pub(super) simulated: Side,
    pub(super) live: Side,
    pub(super) cost: Cost,
}

/// All policies at all loads.
pub(super) struct Emulated {
    /// Of the bottleneck, requests a second.
    pub(super) capacity: f64,
    /// Of the rates, second by second.
    pub(super) variation: f64,
    pub(super) cells: Vec<Cell>,
}

/// Measures them, a fresh server for each cell.
pub(super) fn run(
    workspace: &Workspace,
    program: &Path,
    options: &Options,
    out: &Path,
) -> Result<Emulated> {
    let source = workspace.path(&format!("apps/pipelines/{PIPELINE}.yaml"));
    let capacity = capacity(workspace, program, &source)?;
    let shape = arrivals::shape(options.common.seconds, options.common.seed);
    let text = std::fs::read_to_string(&source)?;
    let profile = format!("{PIPELINE}.profile.yaml");
    std::fs::copy(
        workspace.path(&format!("apps/pipelines/{profile}")),
        out.join(&profile),
    )?;
    let pipeline = out.join(format!("{PIPELINE}.yaml"));
    let mut cells = Vec::new();
    for policy in &options.policies {
        spillgate_output::write(&pipeline, with_policy(&text, policy)?)?;
        for load in &options.common.loads {
            let times = arrivals::times(&shape, load * capacity, options.common.seed);
            let lines = out.join("arrivals.txt");
            spillgate_output::write(&lines, arrivals::lines(&times))?;
            let trace = out.join("arrivals.csv");
            spillgate_output::write(
                &trace,
                arrivals::trace(&times, options.common.seconds as f64),
            )?;
            let mut simulate = workspace.program(program);
            simulate.arg("simulate").arg(&pipeline).arg("--arrivals");
            simulate
                .arg(&lines)
                .args(["--policy", policy, "--seed", "1", "--json"]);
            let said: Value = serde_json::from_str(&process::capture(&mut simulate)?)?;
            let simulated = Side::simulated(&said).context("what simulate says")?;

            let mut server = Server::start(workspace, program, &pipeline, out)?;
            let trace = trace.to_str().context("the path is not UTF-8")?;
            let args = ["--trace", trace, "--payload-bytes", "64"];
            let args = [&args[..], &["--connections", CONNECTIONS]].concat();
            let driven = server.drive(workspace, program, &args)?;
            server.stop()?;
            let live = Side::live(&driven).context("what bench says")?;
            if live.requests.abs_diff(simulated.requests) > 1 {
                bail!(
                    "{} requests were sent where {} were simulated",
                    live.requests,
                    simulated.requests
                );
            }
            let cell = Cell {
                policy: policy.clone(),
                load: *load,
                simulated,
                live,
                cost: Cost::of(&driven)?,
            };
            println!("live: {}", cell.line());
            cells.push(cell);
        }
    }
    Ok(Emulated {
        capacity,
        variation: arrivals::variation(&shape),
        cells,
    })
}

impl Cell {
    /// The text for the terminal.
    fn line(&self) -> String {
        format!(
            "{} at {}: dropped or late {:.1}% simulated, {:.1}% live; invalid {:.1}%, {:.1}%; client lag p99 {:.1} ms, \
             machine {:.0}% busy",
            self.policy,
            self.load,
            100.0 * self.simulated.dropped(),
            100.0 * self.live.dropped(),
            100.0 * self.simulated.invalid,
            100.0 * self.live.invalid,
            self.cost.lag_p99_ms,
            100.0 * self.cost.machine,
        )
    }
}

/// The pipeline file, with this policy and the defaults that belong to it.
pub(super) fn with_policy(text: &str, policy: &str) -> Result<String> {
    if text.lines().any(|line| line.starts_with("policy:")) {
        bail!("the pipeline file names a policy already");
    }
    Ok(format!(
        "{}\npolicy: {{ drop: {policy} }}\n",
        text.trim_end()
    ))
}

/// The capacity of the bottleneck under the reference plan, in requests a second.
pub(super) fn capacity(workspace: &Workspace, program: &Path, pipeline: &Path) -> Result<f64> {
    let mut plan = workspace.program(program);
    plan.arg("plan").arg(pipeline);
    plan.args(["--gpus", DEVICES, "--plan", "reference", "--json"]);
    let said: Value = serde_json::from_str(&process::capture(&mut plan)?)?;
    said["throughput"]
        .as_f64()
        .context("the plan names no throughput")
}

pub(super) fn whole(value: &Value, key: &str) -> Result<u64> {
    value[key]
        .as_u64()
        .with_context(|| format!("there is no {key}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeMap;

    #[test]
    fn both_sides_are_read() {
        let said = json!({"runs": [{"requests": 200, "good": 150, "invalid_rate": 0.125}]});
        let side = Side::simulated(&said).unwrap();
        assert_eq!((side.dropped(), side.invalid), (0.25, 0.125));
        assert!(Side::simulated(&json!({"runs": []})).is_err());

        let times = [("completed", 3.0), ("late", 0.5), ("dropped", 0.5)];
        let driven = Driven {
            said: json!({"requests": 10, "outcomes": {"completed": 9},
                         "send_delay_ms": {"p99": 1.5}, "generator_cpu": 0.1}),
            device_time: BTreeMap::from(times.map(|(name, s)| (name.to_owned(), s))),
            busy: BTreeMap::new(),
            server_cores: 0.2,
            machine: 0.3,
        };
        let side = Side::live(&driven).unwrap();
        assert_eq!((side.requests, side.good, side.invalid), (10, 9, 0.25));
        assert_eq!(Cost::of(&driven).unwrap().client_cores, 0.1);
    }

    #[test]
    fn a_policy_is_added_once() {
        let text = with_policy("name: tm\n\n", "clipper++").unwrap();
        assert_eq!(text, "name: tm\npolicy: { drop: clipper++ }\n");
        assert!(with_policy(&text, "none").is_err());
    }
}
