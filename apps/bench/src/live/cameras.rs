//! `live-cameras`: the traffic pipeline serves cameras on links that change, under each way to choose variants. Server and cameras are real
//! processes; accuracy is measured against what the scenes show, in the size that was sent.

pub(crate) mod overload;
mod report;
mod told;
mod trace;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use lexopt::prelude::*;
use xtask::args::Args;
use xtask::process;
use xtask::workspace::Workspace;

use self::report::{Cell, Choice, Setting};
use self::told::{Bounds, Told, bytes_of_side};
use self::trace::Trace;
use super::real::{PIPELINE, profile_once};
use super::server::Server;
use super::{machine, names, prepared};
use crate::observe::machine_time;

/// Pipelines, traces, results and logs of the last run.
const OUT: &str = "out/live-cameras";
/// Where `--write` puts the report and the picture.
const DOCUMENT: &str = "docs/evaluation/live_cameras.md";
const PICTURE: &str = "docs/evaluation/live_cameras.svg";
/// The trace that needs no file.
const SYNTHETIC: &str = "synthetic";
/// Frames of the largest size need so many times the mean of each trace.
const NEED: f64 = 1.5;
/// Frames of the first seconds do not count: links and sizes are not known yet.
const WARM_UP_S: usize = 5;
/// So long frames are measured, at most.
const MEASURED_S: usize = 30;
/// A server knows its capacity once every module has published its state.
const SETTLES: Duration = Duration::from_secs(2);

struct Options {
    spillgate: Option<PathBuf>,
    network: Option<PathBuf>,
    seconds: usize,
    clients: Vec<usize>,
    traces: Vec<String>,
    adapt: Vec<String>,
    fps: f64,
    slo: String,
    round_trip: String,
    seed: u64,
    write: bool,
}

impl Options {
    fn parse(args: Args) -> Result<Options> {
        let mut options = Options {
            spillgate: None,
            network: None,
            seconds: 60,
            clients: vec![4, 8],
            traces: Vec::new(),
            adapt: ["greedy", "spillgate"].map(str::to_owned).to_vec(),
            fps: 10.0,
            slo: "400ms".to_owned(),
            round_trip: "20ms".to_owned(),
            seed: 1,
            write: false,
        };
        let mut parser = lexopt::Parser::from_args(args);
        while let Some(argument) = parser.next()? {
            let Long(name) = argument else {
                return Err(argument.unexpected().into());
            };
            match name {
                "spillgate" => options.spillgate = Some(parser.value()?.into()),
                "network" => options.network = Some(parser.value()?.into()),
                "seconds" => options.seconds = parser.value()?.parse()?,
                "clients" => options.clients = clients(&parser.value()?.string()?)?,
                "traces" => options.traces = names("--traces", &parser.value()?.string()?)?,
                "adapt" => options.adapt = names("--adapt", &parser.value()?.string()?)?,
                "fps" => options.fps = parser.value()?.parse()?,
                "slo" => options.slo = parser.value()?.string()?,
                "link-rtt" => options.round_trip = parser.value()?.string()?,
                "seed" => options.seed = parser.value()?.parse()?,
                "write" => options.write = true,
                _ => return Err(argument.unexpected().into()),
            }
        }
        if options.traces.is_empty() {
            options.traces.push(SYNTHETIC.to_owned());
            if options.network.is_some() {
                options.traces.extend(["wifi", "lte"].map(str::to_owned));
            }
        }
        options.check()?;
        Ok(options)
    }

    fn check(&self) -> Result<()> {
        if !(2..=3600).contains(&self.seconds) {
            bail!("--seconds must be from 2 to 3600");
        }
        if !(1.0..=100.0).contains(&self.fps) {
            bail!("--fps must be from 1 to 100");
        }
        milliseconds(&self.slo)?;
        if self.network.is_none()
            && let Some(name) = self.traces.iter().find(|name| *name != SYNTHETIC)
        {
            bail!("--traces: {name} needs --network FOLDER, which has {name}.csv");
        }
        Ok(())
    }

    /// The command that does the same again.
    fn shown(&self) -> String {
        let clients: Vec<String> = self.clients.iter().map(usize::to_string).collect();
        let network = match self.network {
            Some(_) => " --network FOLDER",
            None => "",
        };
        format!(
            "cargo xtask live-cameras{network} --seconds {} --clients {} --traces {} --adapt {} --fps {} --slo {} --link-rtt {} --seed {}",
            self.seconds,
            clients.join(","),
            self.traces.join(","),
            self.adapt.join(","),
            self.fps,
            self.slo,
            self.round_trip,
            self.seed
        )
    }

    fn trace(&self, name: &str) -> Result<Trace> {
        match &self.network {
            Some(folder) if name != SYNTHETIC => Trace::read(&folder.join(format!("{name}.csv"))),
            _ => Ok(Trace::synthetic(self.seconds as f64)),
        }
    }
}

fn clients(text: &str) -> Result<Vec<usize>> {
    let each = text.split(',').map(|word| match word.trim().parse() {
        Ok(n) if (1..=64).contains(&n) => Ok(n),
        _ => bail!("--clients: {word:?} is not a number from 1 to 64"),
    });
    each.collect()
}

/// A time like 400ms or 1.5s.
fn milliseconds(text: &str) -> Result<f64> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1.0),
        None => (text.strip_suffix('s').unwrap_or_default(), 1e3),
    };
    match number.parse::<f64>() {
        Ok(number) if number > 0.0 => Ok(number * unit),
        _ => bail!("--slo: {text:?} is no time like 400ms or 1.5s"),
    }
}

/// `cargo xtask live-cameras`.
pub(crate) fn command(workspace: &Workspace, args: Args) -> Result<()> {
    let options = Options::parse(args)?;
    let traces = options.traces.iter().map(|name| options.trace(name));
    let traces = traces.collect::<Result<Vec<Trace>>>()?;
    let (program, out) = prepared(workspace, options.spillgate.as_deref(), OUT)?;
    let machine = machine();
    let runs = Runs::new(workspace, &program, &out, &options)?;
    let needs = runs.needs()?;
    let mut settings = Vec::new();
    for (name, trace) in options.traces.iter().zip(&traces) {
        for &clients in &options.clients {
            let mut setting = Setting {
                trace: name.clone(),
                clients,
                cells: Vec::new(),
            };
            for choice in &runs.choices {
                let cell = runs.cell(name, trace, &needs[..clients], choice)?;
                println!("live: {name}, {clients} clients, {}", cell.line());
                setting.cells.push(cell);
            }
            println!("\n{}", setting.table());
            settings.push(setting);
        }
    }
    if options.write {
        let document = workspace.path(DOCUMENT);
        let before = std::fs::read_to_string(&document).unwrap_or_default();
        let page = report::Page {
            command: &options.shown(),
            machine: &machine,
            slo: &options.slo,
            fps: options.fps,
            seconds: options.seconds,
            needs: &needs,
            settings: &settings,
            pictured: &runs.pictured()?,
        };
        std::fs::write(&document, page.text(&before)?)?;
        std::fs::copy(runs.picture()?, workspace.path(PICTURE))?;
        println!("written to {DOCUMENT} and {PICTURE}");
    }
    Ok(())
}

struct Runs<'a> {
    workspace: &'a Workspace,
    program: &'a Path,
    out: &'a Path,
    options: &'a Options,
    /// The pipeline's file as it is shipped.
    shipped: String,
    /// The fixed ones by rising size, then those that choose.
    choices: Vec<Choice>,
    /// Number of variants, and the side of the largest one's input.
    inputs: usize,
    largest: u64,
}

impl<'a> Runs<'a> {
    fn new(
        workspace: &'a Workspace,
        program: &'a Path,
        out: &'a Path,
        options: &'a Options,
    ) -> Result<Self> {
        let shipped = workspace.path(&format!("apps/pipelines/{PIPELINE}.yaml"));
        let shipped = std::fs::read_to_string(shipped)?;
        let inputs = inputs(&shipped)?;
        let fixed = (0..)
            .zip(&inputs)
            .map(|(idx, side)| Choice::Fixed { idx, side: *side });
        let named = options.adapt.iter().cloned().map(Choice::Named);
        let choices = fixed.chain(named).collect();
        let runs = Runs {
            workspace,
            program,
            out,
            options,
            shipped,
            choices,
            inputs: inputs.len(),
            largest: inputs.last().copied().unwrap_or_default(),
        };
        profile_once(workspace, program, &runs.prepare(&runs.choices[0])?)?;
        Ok(runs)
    }

    /// The pipeline as a choice serves it. All share one profile.
    fn prepare(&self, choice: &Choice) -> Result<PathBuf> {
        let models = self.workspace.path("apps/modules/models");
        let models = models.to_str().context("the path is not UTF-8")?;
        let text = prepared_text(&self.shipped, models, &self.options.slo, (choice, None))?;
        let pipeline = self.out.join(format!("{PIPELINE}.yaml"));
        std::fs::write(&pipeline, text)?;
        Ok(pipeline)
    }

    fn start(&self, choice: &Choice) -> Result<Server> {
        let pipeline = self.prepare(choice)?;
        let server = Server::start(self.workspace, self.program, &pipeline, self.out)?;
        std::thread::sleep(SETTLES);
        Ok(server)
    }

    /// `spillgate stream` of one camera, in all but its link. Under a fixed choice the camera sends one size whatever its link bears, as the
    /// fixed variants of Jellyfish's evaluation do.
    fn camera(&self, url: &str, n: usize, seconds: usize, choice: &Choice) -> Command {
        let mut stream = self.workspace.program(self.program);
        let seed = self.options.seed + n as u64;
        stream.args(["stream", &format!("scene:seed={seed}"), "--quiet"]);
        stream.args(["--server", url, "--name", &format!("camera-{n}")]);
        stream.args(["--fps", &self.options.fps.to_string()]);
        stream.args(["--duration", &format!("{seconds}s")]);
        if let Choice::Fixed { side, .. } = choice {
            stream.args(["--no-adapt", "--max-side", &side.to_string()]);
        }
        stream
    }

    /// By camera: bits a second of its frames in the largest size.
    fn needs(&self) -> Result<Vec<f64>> {
        let (idx, side) = (self.inputs - 1, self.largest);
        let largest = Choice::Fixed { idx, side };
        let mut server = self.start(&largest)?;
        let seconds = WARM_UP_S + self.options.seconds.min(MEASURED_S);
        let most = self.options.clients.iter().max().copied().unwrap_or(1);
        let url = server.url().to_owned();
        let mut needs = Vec::new();
        // A few at a time: what is measured is frames, which are the same under any load.
        for some in (0..most).collect::<Vec<usize>>().chunks(4) {
            let told = in_parallel(some, |n| {
                let results = self.out.join(format!("need-{n}.jsonl"));
                let mut camera = self.camera(&url, n, seconds, &largest);
                stream(camera.arg("--results").arg(&results))?;
                Ok(std::fs::read_to_string(&results)?)
            })?;
            for (n, text) in some.iter().zip(told) {
                let bytes = bytes_of_side(&text, side);
                let bytes = bytes.with_context(|| format!("camera {n} sent no frame of {side}"))?;
                needs.push(bytes * 8.0 * self.options.fps);
            }
        }
        server.alive()?;
        server.stop()?;
        let mbps: Vec<String> = needs.iter().map(|n| format!("{:.2}", n / 1e6)).collect();
        println!(
            "live: frames of {side} pixels need {} Mbit/s",
            mbps.join(", ")
        );
        Ok(needs)
    }

    fn folder(&self, trace: &str, clients: usize, choice: &Choice) -> PathBuf {
        self.out
            .join(format!("{trace}-{clients}-{}", choice.word()))
    }

    /// One camera for each of the needs, all at once.
    fn cell(&self, name: &str, trace: &Trace, needs: &[f64], choice: &Choice) -> Result<Cell> {
        let folder = self.folder(name, needs.len(), choice);
        std::fs::create_dir_all(&folder)?;
        let mut server = self.start(choice)?;
        let url = server.url().to_owned();
        let (cpu, machine, begun) = (server.cpu_time()?, machine_time()?, Instant::now());
        let bounds = Bounds {
            warm_up_ms: 1e3 * WARM_UP_S as f64,
            slo_ms: milliseconds(&self.options.slo)?,
        };
        let all: Vec<usize> = (0..needs.len()).collect();
        let told = in_parallel(&all, |n| {
            let file = |end: &str| folder.join(format!("{n}.{end}"));
            let link = trace.scaled(needs[n] / NEED / 1e6);
            let link = link.begun_at(n as f64 / needs.len() as f64);
            std::fs::write(file("csv"), link.csv())?;
            let results = file("jsonl");
            let seconds = WARM_UP_S + self.options.seconds;
            let mut camera = self.camera(&url, n, seconds, choice);
            camera.arg("--results").arg(&results);
            camera.arg("--link").arg(file("csv"));
            camera.args(["--link-rtt", &self.options.round_trip]);
            camera.arg("--plot").arg(file("svg"));
            stream(&mut camera)?;
            Told::read(&std::fs::read_to_string(&results)?, bounds)
        })?;
        let took = begun.elapsed();
        let cpu = server.cpu_time()? - cpu;
        let (busy, whole) = machine_time()?;
        server.alive()?;
        server.stop()?;
        let mut sum = Told::default();
        told.iter().for_each(|one| sum.add(one));
        let due = self.options.fps * self.options.seconds as f64 * needs.len() as f64;
        Ok(Cell {
            choice: choice.clone(),
            made: sum.frames as f64 / due,
            switches: sum.switches() as f64 * 60.0 / (self.options.seconds * needs.len()) as f64,
            told: sum,
            server_cores: cpu.as_secs_f64() / took.as_secs_f64(),
            machine: (busy - machine.0) as f64 / (whole - machine.1).max(1) as f64,
        })
    }

    /// Whose run is shown: the first setting, under our own choice where it took part.
    fn pictured(&self) -> Result<(String, usize, Choice)> {
        let own = |choice: &&Choice| choice.word() == "spillgate";
        let choice = self.choices.iter().find(own).or(self.choices.last());
        let trace = self.options.traces.first().context("no traces")?;
        let clients = self.options.clients.first().context("no clients")?;
        Ok((
            trace.clone(),
            *clients,
            choice.context("no choices")?.clone(),
        ))
    }

    fn picture(&self) -> Result<PathBuf> {
        let (trace, clients, choice) = self.pictured()?;
        Ok(self.folder(&trace, clients, &choice).join("0.svg"))
    }
}

/// Runs a camera to its end.
fn stream(camera: &mut Command) -> Result<()> {
    // 1 without a word on why: nothing was served. That is a result too.
    process::capture_unless(camera, |status| !matches!(status.code(), Some(0 | 1))).map(drop)
}

/// The result of each, all at the same time.
fn in_parallel<T: Send>(each: &[usize], run: impl Fn(usize) -> Result<T> + Sync) -> Result<Vec<T>> {
    std::thread::scope(|scope| {
        let run = &run;
        let running: Vec<_> = each.iter().map(|n| scope.spawn(move || run(*n))).collect();
        let ended = running
            .into_iter()
            .map(|t| t.join().expect("it does not panic"));
        ended.collect()
    })
}

/// The inputs of the variants in a pipeline's file, as they are written there: by rising accuracy.
fn inputs(text: &str) -> Result<Vec<u64>> {
    let of = |line: &str| {
        let (_, rest) = line.split_once("input: ")?;
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse().ok()
    };
    let inputs: Vec<u64> = text.lines().filter_map(of).collect();
    match inputs.len() >= 2 && inputs.is_sorted() {
        true => Ok(inputs),
        false => bail!("the pipeline file names no variants by rising input"),
    }
}

/// The pipeline with these models, this SLO, this choice, and this drop policy in place of the usual one, where frames may be as small as the
/// smallest variant.
fn prepared_text(
    text: &str,
    models: &str,
    slo: &str,
    (choice, drop): (&Choice, Option<&str>),
) -> Result<String> {
    let (mut has_slo, mut has_least) = (false, false);
    let mut copy = String::new();
    for line in text.lines() {
        let word = line.trim_start();
        if word.starts_with("frame_min:") {
            has_least = true;
            continue;
        }
        match line.starts_with("slo:") {
            true => copy.push_str(&format!("slo: {slo}\n")),
            false => copy.push_str(&format!("{}\n", line.replace("../modules/models", models))),
        }
        has_slo |= line.starts_with("slo:");
        if line.starts_with("policy:") {
            bail!("the pipeline file names a policy already");
        }
    }
    if !has_slo || !has_least {
        bail!("the pipeline file has no slo: or no frame_min: in lines of their own");
    }
    let drop = drop.map_or_else(String::new, |drop| format!(", drop: {drop}"));
    copy.push_str(&format!("policy: {{ adapt: {}{drop} }}\n", choice.yaml()));
    Ok(copy)
}

#[cfg(test)]
mod tests;
