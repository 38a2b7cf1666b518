//! `spillgate simulate --scenario`: placements on the exact requests of a folder.

use std::fmt::Write;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use flate2::read::GzDecoder;
use serde::Serialize;
use spillgate_pipeline::family::MEMBERS_MAX;
use spillgate_pipeline::policy::DispatchPolicyName;
use spillgate_sim::placement::{self, Figures, Logged, REQUESTS_MIN, Scenario};
use spillgate_worker_policy::weights::placement::PlacementPolicy;

use crate::commands::ranges::number;

/// Largest file of a scenario, unpacked.
pub(crate) const BYTES_MAX: u64 = 1 << 30;

#[derive(Serialize)]
struct Run<'a> {
    scenario: &'a str,
    #[serde(flatten)]
    figures: Figures,
}

/// Processes that share the devices of a scenario.
#[derive(Args)]
pub(super) struct DividedArgs {
    /// Divide a scenario's devices among so many processes, each with a placement, as in a topology. Requests go by model, or by
    /// --dispatch.
    #[arg(long, requires = "scenario", conflicts_with = "actions", value_name = "N",
        value_parser = number(1, u16::MAX, "each has a device at least"))]
    processes: Option<u16>,
}

impl DividedArgs {
    /// How many, and by which policy requests go to them.
    pub(super) fn by(
        &self,
        dispatch: Option<&str>,
    ) -> anyhow::Result<Option<(u16, DispatchPolicyName)>> {
        anyhow::ensure!(
            dispatch.is_none() || self.processes.is_some(),
            "--dispatch: the devices of the scenario are in one process; give --processes, or leave it out"
        );
        let dispatch = dispatch.and_then(DispatchPolicyName::by_name);
        let dispatch = dispatch.unwrap_or(DispatchPolicyName::Affinity);
        anyhow::ensure!(
            dispatch != DispatchPolicyName::Pull,
            "--dispatch: a process under a placement asks for no requests; take affinity, or another one"
        );
        Ok(self.processes.map(|n| (n, dispatch)))
    }
}

/// Serves the scenario of a folder by each placement.
pub(super) fn run(
    folder: &Path,
    placements: &[String],
    is_fair: bool,
    processes: Option<(u16, DispatchPolicyName)>,
    actions: Option<&Path>,
    json: bool,
) -> anyhow::Result<()> {
    let scenario = read(folder)?;
    if let Some(file) = actions {
        spillgate_output::check(file).context("--actions")?;
    }
    anyhow::ensure!(
        placements
            .iter()
            .all(|p| PlacementPolicy::by_name(p).is_some()),
        "--placement brokers: a scenario has no pipeline file whose policies would serve; name a placement"
    );
    let mut named: Vec<PlacementPolicy> = placements
        .iter()
        .filter_map(|p| PlacementPolicy::by_name(p))
        .collect();
    if named.is_empty() {
        named.push(PlacementPolicy::SPILLGATE);
    }
    anyhow::ensure!(
        actions.is_none() || named.len() == 1,
        "--actions: the actions of {} placements go into one file; name one --placement",
        named.len()
    );
    if let Some((n, _)) = processes {
        let devices = scenario.system.gpus;
        anyhow::ensure!(
            n <= devices,
            "--processes: the scenario has {devices} devices for {n} processes; give at most {devices}"
        );
        let models = scenario.models.len();
        anyhow::ensure!(
            models <= MEMBERS_MAX,
            "--processes: the scenario has {models} models, and a family has at most {MEMBERS_MAX}"
        );
    }
    let mut runs = Vec::new();
    for name in named {
        let (figures, logged) = match processes {
            Some(by) => (placement::run_divided(&scenario, name, is_fair, by), vec![]),
            None => {
                let (figures, _, logged) =
                    placement::run(&scenario, name, is_fair, actions.is_some());
                (figures, logged)
            }
        };
        if let Some(file) = actions {
            spillgate_output::write(file, table(logged)).context("--actions")?;
        }
        let run = Run {
            scenario: &scenario.system.name,
            figures,
        };
        if !json {
            crate::commands::print(&text_of(&run)?)?;
        }
        runs.push(run);
    }
    if json {
        let text = serde_json::to_string_pretty(&serde_json::json!({ "runs": runs }))?;
        crate::commands::print(&format!("{text}\n"))?;
    }
    Ok(())
}

fn read(folder: &Path) -> anyhow::Result<Scenario> {
    let system = text_of_file(&folder.join("system.json"))?;
    let system = serde_json::from_str(&system).map_err(|e| {
        let file = folder.join("system.json");
        anyhow::anyhow!("{}:{}: {e}", file.display(), e.line())
    })?;
    let models = text_of_file(&folder.join("models.csv"))?;
    let arrivals = arrivals(folder)?;
    let clients = text_of_file(&folder.join("clients.csv"))?;
    Scenario::parse(system, &models, &arrivals, &clients)
        .map_err(|e| anyhow::anyhow!("{}", folder.join(e.to_string()).display()))
}

/// The requests of a folder, packed or not.
fn arrivals(folder: &Path) -> anyhow::Result<String> {
    let packed = folder.join("arrivals.csv.gz");
    match File::open(&packed) {
        Ok(file) => text(&packed, GzDecoder::new(file)),
        Err(e) if e.kind() == ErrorKind::NotFound => text_of_file(&folder.join("arrivals.csv")),
        Err(e) => Err(e).with_context(|| format!("cannot read {}", packed.display())),
    }
}

fn text_of_file(path: &PathBuf) -> anyhow::Result<String> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    text(path, file)
}

fn text(path: &Path, file: impl Read) -> anyhow::Result<String> {
    let mut text = String::new();
    file.take(BYTES_MAX + 1)
        .read_to_string(&mut text)
        .with_context(|| format!("cannot read {}", path.display()))?;
    anyhow::ensure!(
        text.len() as u64 <= BYTES_MAX,
        "{} is larger than {BYTES_MAX} bytes; give a shorter list",
        path.display()
    );
    Ok(text)
}

/// A run for people to read.
fn text_of(run: &Run<'_>) -> Result<String, std::fmt::Error> {
    let f = &run.figures;
    let mut text = String::new();
    writeln!(
        text,
        "{} on {}: EMULATED; {} of {} requests in time ({:.5}), {:.1}/s; {} late, {} cancelled, {} refused",
        f.placement,
        run.scenario,
        f.in_time,
        f.requests,
        f.share,
        f.goodput,
        f.late,
        f.cancelled,
        f.refused
    )?;
    let ms = |value: Option<f64>| value.map_or("-".to_owned(), |ms| format!("{ms:.3}"));
    writeln!(
        text,
        "  latency p50 {} ms, p99 {} ms, p99.99 {} ms; mean batch {:.3}; {} loads; devices execute {:.1}% and links carry \
         weights {:.1}% of the time",
        ms(f.p50_ms),
        ms(f.p99_ms),
        ms(f.p9999_ms),
        f.mean_batch,
        f.loads,
        f.exec_utilisation * 100.0,
        f.link_utilisation * 100.0
    )?;
    writeln!(
        text,
        "  durations off by p1 {} ms, p99 {} ms; completions by p99 {} ms; {} actions refused",
        ms(f.error_p01_ms),
        ms(f.error_p99_ms),
        ms(f.completion_p99_ms),
        f.refused_actions
    )?;
    if f.background > 0 {
        writeln!(text, "  {} answers to clients without an SLO", f.background)?;
    }
    if let Some(least) = f.least_share {
        writeln!(
            text,
            "  each model with {REQUESTS_MIN} requests or more got at least {least:.3} of its fair share of device time"
        )?;
    }
    Ok(text)
}

/// The actions in order of time, as CSV.
fn table(mut logged: Vec<Logged>) -> String {
    logged.sort_by_key(|l| l.at);
    let mut text =
        "time_ns,gpu,event,model,batch,earliest_ns,latest_ns,predicted_end_ns\n".to_owned();
    for l in logged {
        let line = format!(
            "{},{},{},{},{},{},{},{}\n",
            l.at.as_ns(),
            l.device,
            l.event,
            l.model.0,
            l.size,
            l.window.earliest.as_ns(),
            l.window.latest.as_ns(),
            l.expected_end.as_ns()
        );
        text.push_str(&line);
    }
    text
}
