//! `live-cameras`: the traffic pipeline serves cameras on links that change, under each way to choose variants. Server and cameras are real
//! processes; accuracy is measured against what the scenes show, in the size that was sent.

pub(crate) mod overload;
mod report;
mod site;
mod told;
mod trace;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use lexopt::prelude::*;
use xtask::args::Args;
use xtask::workspace::Workspace;

use self::report::{Cell, Choice, Setting};
use self::site::{Site, in_parallel, stream};
use self::told::{Bounds, Told, bytes_of_side};
use self::trace::Trace;
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
        spillgate_output::write(&document, page.text(&before)?)?;
        std::fs::copy(runs.picture()?, workspace.path(PICTURE))?;
        println!("written to {DOCUMENT} and {PICTURE}");
    }
    Ok(())
}

struct Runs<'a> {
    site: Site<'a>,
    options: &'a Options,
    /// The fixed ones by rising size, then those that choose.
    choices: Vec<Choice>,
}

impl<'a> Runs<'a> {
    fn new(
        workspace: &'a Workspace,
        program: &'a Path,
        out: &'a Path,
        options: &'a Options,
    ) -> Result<Self> {
        let site = Site::new(workspace, program, out, (&options.slo, options.seed))?;
        let named = options.adapt.iter().cloned().map(Choice::Named);
        Ok(Runs {
            choices: site.fixed().chain(named).collect(),
            site,
            options,
        })
    }

    /// One camera, in all but its link. Under a fixed choice it sends one size whatever its link bears, as the fixed variants of Jellyfish's
    /// evaluation do.
    fn camera(&self, url: &str, n: usize, seconds: usize, choice: &Choice) -> Command {
        let mut stream = self.site.camera(url, n, (self.options.fps, seconds));
        if let Choice::Fixed { side, .. } = choice {
            stream.args(["--no-adapt", "--max-side", &side.to_string()]);
        }
        stream
    }

    /// By camera: bits a second of its frames in the largest size.
    fn needs(&self) -> Result<Vec<f64>> {
        let (largest, side) = (self.site.largest(), self.site.side());
        let mut server = self.site.start(&largest, None)?;
        let seconds = WARM_UP_S + self.options.seconds.min(MEASURED_S);
        let most = self.options.clients.iter().max().copied().unwrap_or(1);
        let url = server.url().to_owned();
        let mut needs = Vec::new();
        // A few at a time: what is measured is frames, which are the same under any load.
        for some in (0..most).collect::<Vec<usize>>().chunks(4) {
            let told = in_parallel(some, |n| {
                let results = self.site.out.join(format!("need-{n}.jsonl"));
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
        let name = format!("{trace}-{clients}-{}", choice.word());
        self.site.out.join(name)
    }

    /// One camera for each of the needs, all at once.
    fn cell(&self, name: &str, trace: &Trace, needs: &[f64], choice: &Choice) -> Result<Cell> {
        let folder = self.folder(name, needs.len(), choice);
        std::fs::create_dir_all(&folder)?;
        let mut server = self.site.start(choice, None)?;
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
            spillgate_output::write(file("csv"), link.csv())?;
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

#[cfg(test)]
mod tests;
