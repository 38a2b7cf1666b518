//! `live-models`: many models share one device. A family of real TorchScript files of three architectures is served from a weight
//! cache that holds a part of them, under each placement and with everything in memory; the simulator serves the same requests.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use xtask::args::Args;
use xtask::process;
use xtask::workspace::Workspace;

use super::arrivals::Random;
use super::server::Server;
use super::{machine, names, prepared, read_options};
use crate::observe::today;
use spillgate_report::{Page, Table};

/// Models, requests and logs of the last run.
const OUT: &str = "out/live-models";
/// Where `--write` puts the report.
const DOCUMENT: &str = "docs/evaluation/live_models.md";
/// The module of the pipeline, which has the family.
const MODULE: &str = "cameras";
/// Size of a page of a weight cache.
const PAGE_MIB: usize = 16;
/// The objective of each request.
const SLO_MS: f64 = 100.0;
/// Popularity falls with the rank to this power.
const SKEW: f64 = 0.9;
/// Of the most popular models one a second changes places with another.
const POPULAR: usize = 40;
/// Requests of the first seconds do not count.
const WARM_UP_S: usize = 5;
/// Everything fits.
const RESIDENT: &str = "all resident";
/// The placement under which devices form batches from their brokers.
const BROKERS: &str = "brokers";

struct Options {
    common: super::Common,
    models: usize,
    cache: usize,
    rates: Vec<f64>,
    placements: Vec<String>,
    /// Name of the device.
    device: String,
}

impl Options {
    fn parse(args: Args) -> Result<Options> {
        let mut options = Options {
            common: super::Common::new(30, &[1.0]),
            models: 200,
            cache: 40,
            rates: vec![50.0, 100.0, 150.0],
            placements: ["spillgate", "clockwork", "lru"]
                .map(str::to_owned)
                .to_vec(),
            device: "cpu:0".to_owned(),
        };
        let own = |options: &mut Options, name: &str, parser: &mut lexopt::Parser| {
            match name {
                "models" => options.models = parser.value()?.parse()?,
                "device" => options.device = parser.value()?.string()?,
                "cache" => options.cache = parser.value()?.parse()?,
                "rates" => options.rates = rates(&parser.value()?.string()?)?,
                "placements" => {
                    options.placements = names("--placements", &parser.value()?.string()?)?;
                }
                _ => return Ok(false),
            }
            Ok(true)
        };
        use lexopt::prelude::*;
        read_options(args, &mut options, |options| &mut options.common, own)?;
        if !(1..=1000).contains(&options.models) || options.cache == 0 {
            bail!("--models must be from 1 to 1000, and --cache at least 1");
        }
        if options.common.seconds <= WARM_UP_S {
            bail!("--seconds must be more than the {WARM_UP_S} that do not count");
        }
        Ok(options)
    }

    fn shown(&self) -> String {
        let rates: Vec<String> = self.rates.iter().map(f64::to_string).collect();
        format!(
            "cargo xtask live-models --seconds {} --models {} --cache {} --rates {} --placements {} --device {} --seed {}",
            self.common.seconds,
            self.models,
            self.cache,
            rates.join(","),
            self.placements.join(","),
            self.device,
            self.common.seed
        )
    }
}

fn rates(text: &str) -> Result<Vec<f64>> {
    let each = text.split(',').map(|word| match word.trim().parse() {
        Ok(rate) if (1.0..=10_000.0).contains(&rate) => Ok(rate),
        _ => bail!("--rates: {word:?} is not a number from 1 to 10000"),
    });
    each.collect()
}

/// What came of one placement at one rate.
struct Row {
    rate: f64,
    placement: String,
    live: f64,
    /// `None` under `brokers`: a scenario has no pipeline file, whose policies would serve.
    simulated: Option<f64>,
    p99_ms: f64,
    cold: f64,
    loads: f64,
    late_batches: f64,
    late_loads: f64,
    batches: f64,
    /// 1st, 50th and 99th percentile of measured minus expected duration of a batch, milliseconds.
    errors: [f64; 3],
    /// 99th percentile of measured minus expected end of a batch, milliseconds.
    completion: f64,
}

impl Row {
    /// What the simulator says, and the points by which the server is above it.
    fn beside(&self) -> Option<(f64, f64)> {
        let simulated = self.simulated?;
        Some((100.0 * simulated, 100.0 * (self.live - simulated)))
    }
}

/// `cargo xtask live-models`.
pub(crate) fn command(workspace: &Workspace, args: Args) -> Result<()> {
    let options = Options::parse(args)?;
    let (program, out) = prepared(workspace, options.common.spillgate.as_deref(), OUT)?;
    let machine = machine();
    let mut train = workspace.cargo();
    train.args([
        "run",
        "--release",
        "-q",
        "-p",
        "spillgate-lab",
        "--",
        "family",
    ]);
    train.arg("--out").arg(&out);
    train.args(["--count", &options.models.to_string()]);
    process::run(&mut train)?;
    let pipeline = pipeline(&out, &options.device)?;
    let mut rows = Vec::new();
    for &rate in &options.rates {
        for placement in options
            .placements
            .iter()
            .map(String::as_str)
            .chain([RESIDENT])
        {
            let row = row(
                workspace,
                &program,
                &options,
                (&out, &pipeline),
                rate,
                placement,
            )?;
            println!("{}", line(&row));
            rows.push(row);
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

fn pipeline(out: &Path, device: &str) -> Result<PathBuf> {
    let text = format!(
        "name: models\nslo: {SLO_MS}ms\nmodules:\n  {MODULE}:\n    op: classifier\n    models: models/*.pt\n    \
         options: {{ size: [64, 64], labels: classes.labels }}\n    \
         inputs: {{ image: $source.frame }}\n    batch: {{ max: 8 }}\n    device: {device}\n\
         outputs: {{ labels: ${MODULE}.labels }}\n"
    );
    let path = out.join("models.yaml");
    spillgate_output::write(&path, text)?;
    Ok(path)
}

fn row(
    workspace: &Workspace,
    program: &Path,
    options: &Options,
    (out, pipeline): (&Path, &Path),
    rate: f64,
    placement: &str,
) -> Result<Row> {
    let (name, pages) = match placement {
        RESIDENT => ("spillgate", options.models + 1),
        name => (name, options.cache),
    };
    let device_name = options.device.as_str();
    let memory = format!("{device_name},memory={}MiB", pages * PAGE_MIB);
    let arguments = ["--placement", name, "--device", &memory];
    let mut server = Server::start_with(workspace, program, pipeline, out, &arguments)?;
    let scenario = out.join("scenario");
    let status = server.status(workspace, program)?;
    let device = |status: &Value| -> Result<Value> {
        let mut devices = status["devices"].as_array().into_iter().flatten();
        let of = devices.find(|d| d["name"] == device_name);
        of.cloned()
            .with_context(|| format!("the status names no {device_name}"))
    };
    let architectures = device(&status)?["measured"].take();
    write_scenario(&scenario, out, options, rate, pages, &architectures)?;
    let folder = scenario.to_str().context("the path is not UTF-8")?;
    let warm_up = format!("{WARM_UP_S}s");
    let driven = server.drive(
        workspace,
        program,
        &[
            "--scenario",
            folder,
            "--family",
            MODULE,
            "--warmup",
            &warm_up,
        ],
    )?;
    let said = &driven.said;
    let count = |key: &str| said["outcomes"][key].as_f64().unwrap_or(0.0);
    let requests = said["requests"]
        .as_f64()
        .context("bench counts no requests")?;
    let counted = |name: &str| -> Result<f64> { server.value(name, &[("device", device_name)]) };
    let late = |cause: &str| -> Result<f64> {
        let labels = [("device", device_name), ("cause", cause)];
        server.value("spillgate_device_refused_actions_total", &labels)
    };
    let error = |of: &str, quantile: &str| -> Result<f64> {
        let labels = [
            ("device", device_name),
            ("action", "execute"),
            ("of", of),
            ("quantile", quantile),
        ];
        Ok(1e3 * server.value("spillgate_device_prediction_error_seconds", &labels)?)
    };
    let mut row = Row {
        rate,
        placement: placement.to_owned(),
        live: count("completed") / requests.max(1.0),
        simulated: None,
        p99_ms: said["latency_ms"]["p99"].as_f64().unwrap_or(f64::NAN),
        cold: counted("spillgate_device_cold_requests_total")?,
        loads: counted("spillgate_device_loads_total")?,
        late_batches: late("late_batch")?,
        late_loads: late("late_load")?,
        batches: device(&server.status(workspace, program)?)?["weights"]["batches"]
            .as_f64()
            .unwrap_or(0.0),
        errors: [
            error("duration", "0.01")?,
            error("duration", "0.5")?,
            error("duration", "0.99")?,
        ],
        completion: error("completion", "0.99")?,
    };
    server.stop()?;
    if name == BROKERS {
        return Ok(row);
    }
    let mut simulate = workspace.program(program);
    simulate.args([
        "simulate",
        "--scenario",
        folder,
        "--placement",
        name,
        "--json",
    ]);
    let said: Value = serde_json::from_str(&process::capture(&mut simulate)?)?;
    let share = said["runs"][0]["share"].as_f64();
    row.simulated = Some(share.context("simulate gives no share")?);
    Ok(row)
}

/// Writes the folder that `simulate --scenario` and `bench --scenario` read.
fn write_scenario(
    folder: &Path,
    out: &Path,
    options: &Options,
    rate: f64,
    pages: usize,
    architectures: &Value,
) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    let mut names = Vec::new();
    for entry in std::fs::read_dir(out.join("models"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        names.push(name.trim_end_matches(".pt").to_owned());
    }
    names.sort();
    let kind = |name: &str| name.split('-').next().unwrap_or_default().to_owned();
    let known = architectures
        .as_array()
        .context("the status names no architectures")?;
    let sizes = [1, 2, 4, 8];
    let header: Vec<String> = sizes.iter().map(|n| format!("exec_ms_b{n}")).collect();
    let mut models = format!(
        "id,name,weights_mb,pages,load_ms,input_kb,output_kb,{}\n",
        header.join(",")
    );
    for (id, name) in names.iter().enumerate() {
        let of = |a: &&Value| kind(a["model"].as_str().unwrap_or_default()) == kind(name);
        let of = known
            .iter()
            .find(of)
            .with_context(|| format!("{name} was not measured"))?;
        let times = sizes.map(|n: usize| of["execution_ms"][n - 1].to_string());
        let _ = writeln!(
            models,
            "{id},{name},0,1,{},0,0,{}",
            of["load_ms"],
            times.join(",")
        );
    }
    spillgate_output::write(folder.join("models.csv"), models)?;
    spillgate_output::write(folder.join("clients.csv"), "model,concurrency,slo_ms\n")?;
    let seconds = options.common.seconds as f64;
    let arrivals = arrivals(names.len(), rate, seconds, options.common.seed);
    spillgate_output::write(folder.join("arrivals.csv"), arrivals)?;
    let system = json!({
        "name": "live-models", "gpus": 1, "pages_per_gpu": pages, "page_mb": PAGE_MIB, "link_mb_per_ms": 1000.0,
        "net_ms": 0.0, "warm_s": WARM_UP_S, "end_s": seconds, "noise_sigma": 0.0, "noise_jitter_p": 0.0,
        "noise_jitter_ms": 0.0, "noise_spike_p": 0.0, "noise_spike_ms": 0.0, "noise_seed": 1, "initial": [""],
    });
    spillgate_output::write(folder.join("system.json"), system.to_string())?;
    Ok(())
}

/// A Poisson process over models whose popularity is skewed and drifts.
fn arrivals(models: usize, rate: f64, seconds: f64, seed: u64) -> String {
    let mut random = Random::new(seed);
    let mut by_rank: Vec<usize> = (0..models).collect();
    let below = |random: &mut Random, n: usize| (random.uniform() * n as f64) as usize;
    for i in (1..models).rev() {
        by_rank.swap(i, below(&mut random, i + 1));
    }
    let mut cumulated = Vec::with_capacity(models);
    let mut sum = 0.0;
    for rank in 0..models {
        sum += 1.0 / (rank as f64 + 1.0).powf(SKEW);
        cumulated.push(sum);
    }
    let mut text = String::from("time_s,model,slo_ms\n");
    let (mut at, mut second) = (0.0, 0.0);
    loop {
        at -= (1.0 - random.uniform()).ln() / rate;
        if at >= seconds {
            return text;
        }
        while second + 1.0 < at {
            second += 1.0;
            let (a, b) = (
                below(&mut random, POPULAR.min(models)),
                below(&mut random, models),
            );
            by_rank.swap(a, b);
        }
        let drawn = random.uniform() * sum;
        let rank = cumulated.partition_point(|c| *c <= drawn).min(models - 1);
        let _ = writeln!(text, "{at:.6},{},{SLO_MS}", by_rank[rank]);
    }
}

fn line(row: &Row) -> String {
    let simulated = row.beside().map_or_else(String::new, |(share, points)| {
        format!(", {share:.1}% simulated ({points:+.1} points)")
    });
    format!(
        "live: {} at {}/s: in time {:.1}% live{simulated}; {} loads, {} cold requests",
        row.placement,
        row.rate,
        100.0 * row.live,
        row.loads,
        row.cold
    )
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new([
        "requests/s",
        "placement",
        "in time, live",
        "simulated",
        "points",
        "p99 ms",
        "loads",
        "cold requests",
        "late: batches, loads",
        "error of a batch, p1 / p50 / p99 ms",
        "of its end, p99 ms",
    ]);
    for row in rows {
        let [p1, p50, p99] = row.errors;
        let [simulated, points] = row.beside().map_or_else(
            || ["-", "-"].map(str::to_owned),
            |(share, points)| [format!("{share:.1}%"), format!("{points:+.1}")],
        );
        let part = |late: f64, ran: f64| 100.0 * late / (late + ran).max(1.0);
        table.row([
            row.rate.to_string(),
            row.placement.to_string(),
            format!("{:.1}%", 100.0 * row.live),
            simulated.to_string(),
            points.to_string(),
            format!("{:.1}", row.p99_ms),
            row.loads.to_string(),
            row.cold.to_string(),
            format!(
                "{:.2}%, {:.2}%",
                part(row.late_batches, row.batches),
                part(row.late_loads, row.loads)
            ),
            format!("{p1:+.2} / {p50:+.2} / {p99:+.2}"),
            format!("{:+.2}", row.completion),
        ]);
    }
    table
}

fn page(options: &Options, machine: &str, rows: &[Row]) -> Result<String> {
    let mut page = Page::new("Many models on one device, live");
    page.say(&format!(
        "{} models of three architectures, real TorchScript files of up to 13 MB with random weights, share one device that has memory for {} of \
         them. Popularity falls with the rank to the power of {SKEW}, and one of the {POPULAR} most popular models a second changes places with \
         another. Each request has {SLO_MS} ms. The simulator serves the same requests, with the times of loads and batches that the server \
         measured when it started, and without noise. The first {WARM_UP_S} s do not count. \"{RESIDENT}\" is the placement \
         `spillgate` with memory for all models: each is loaded once.",
        options.models, options.cache,
    ));
    page.say(&format!("On {}, {machine}:", today()?));
    page.made_by(&options.shown());
    page.table(&table(rows));
    page.say(
        "Server and client share the machine: loads, batches, decoding and the client take each other's time, which the simulator does not \
         know.",
    );
    Ok(page.text(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_skewed_drift_and_follow_the_rate() {
        let text = arrivals(50, 200.0, 20.0, 1);
        let rows: Vec<(f64, usize)> = text
            .lines()
            .skip(1)
            .map(|line| {
                let mut fields = line.split(',');
                let mut next = || fields.next().unwrap();
                (next().parse().unwrap(), next().parse().unwrap())
            })
            .collect();
        assert!((3600..4400).contains(&rows.len()), "{}", rows.len());
        assert!(rows.is_sorted_by(|a, b| a.0 <= b.0));
        let favourite = |from: f64| {
            let mut counts = [0; 50];
            let of = rows
                .iter()
                .filter(|(at, _)| (from..from + 5.0).contains(at));
            of.for_each(|(_, model)| counts[*model] += 1);
            counts.iter().copied().max().unwrap()
        };
        assert!(
            favourite(0.0) > 100,
            "1 of 50 gets far more than 20 of 1000"
        );
        assert_eq!(text, arrivals(50, 200.0, 20.0, 1));
    }
}
