//! `bench-peers`: the test that users of other servers know. Two modules of 20 ms in a chain, a deadline, and
//! more requests than fit; Spillgate beside servers that install from PyPI, in one run, with one client and the
//! same times of arrival.

mod arrivals;
mod report;
mod servers;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use lexopt::prelude::*;
use serde_json::Value;
use xtask::args::Args;
use xtask::process;
use xtask::setup::{self, Prerequisite, VENV, require};
use xtask::tools;
use xtask::workspace::Workspace;

use report::{Cell, Measured, Report};
use servers::{Peer, Running, SETTINGS, Setting};

/// The client gives up then.
const DEADLINE: Duration = Duration::from_millis(200);
/// Time of each module for a request, as in `stage.py` and the pipeline's profile.
const SPAN: Duration = Duration::from_millis(20);
/// Logs, and what is needed for the time of a run.
const OUT: &str = "out/peers";
/// Where `--write` puts the report.
const DOCUMENT: &str = "docs/evaluation/two_stage.md";

const PYTHON: Prerequisite = Prerequisite {
    name: "Python 3.11 or later",
    any_of: &[(
        "python3",
        &["-c", "import sys; sys.exit(sys.version_info < (3, 11))"],
    )],
    used_for: "for the load client and the other servers",
    install: "apt-get install python3 python3-venv",
};

struct Options {
    seconds: f64,
    rates: Vec<u32>,
    seed: u64,
    only: Vec<Peer>,
    spillgate: Option<PathBuf>,
    write: bool,
}

impl Options {
    fn parse(args: Args) -> Result<Options> {
        let mut options = Options {
            seconds: 10.0,
            rates: vec![30, 60, 100],
            seed: 1,
            only: Peer::ALL.to_vec(),
            spillgate: None,
            write: false,
        };
        let mut parser = lexopt::Parser::from_args(args);
        while let Some(argument) = parser.next()? {
            match argument {
                Long("seconds") => options.seconds = parser.value()?.parse()?,
                Long("rates") => options.rates = rates(&parser.value()?.string()?)?,
                Long("seed") => options.seed = parser.value()?.parse()?,
                Long("only") => options.only = peers(&parser.value()?.string()?)?,
                Long("spillgate") => options.spillgate = Some(parser.value()?.into()),
                Long("write") => options.write = true,
                other => return Err(other.unexpected().into()),
            }
        }
        if !(1.0..=600.0).contains(&options.seconds) {
            bail!("--seconds must be from 1 to 600");
        }
        Ok(options)
    }

    /// The command that does the same again.
    fn shown(&self) -> String {
        let rates: Vec<String> = self.rates.iter().map(u32::to_string).collect();
        let mut command = format!(
            "cargo xtask bench-peers --seconds {} --rates {} --seed {}",
            self.seconds,
            rates.join(","),
            self.seed
        );
        if self.only != Peer::ALL {
            let names: Vec<&str> = self.only.iter().map(|peer| peer.name()).collect();
            command.push_str(" --only ");
            command.push_str(&names.join(","));
        }
        command
    }
}

fn rates(text: &str) -> Result<Vec<u32>> {
    text.split(',')
        .map(|word| match word.trim().parse() {
            // The client is Python: at higher rates the client itself would be measured.
            Ok(rate @ 1..=300) => Ok(rate),
            _ => bail!("--rates: {word:?} is not a whole number from 1 to 300"),
        })
        .collect()
}

fn peers(text: &str) -> Result<Vec<Peer>> {
    let mut chosen = Vec::new();
    for word in text.split(',') {
        match Peer::ALL.iter().find(|peer| peer.name() == word.trim()) {
            Some(peer) => chosen.push(*peer),
            None => {
                let known: Vec<&str> = Peer::ALL.iter().map(|peer| peer.name()).collect();
                bail!("--only: no server {word:?}; there are {}", known.join(", "));
            }
        }
    }
    // In the order of the table, each once.
    Ok(Peer::ALL
        .iter()
        .filter(|peer| chosen.contains(peer))
        .copied()
        .collect())
}

/// `cargo xtask bench-peers`.
pub(crate) fn command(workspace: &Workspace, args: Args) -> Result<()> {
    let options = Options::parse(args)?;
    require(&[&PYTHON, &VENV])?;
    let out = workspace.path(OUT);
    std::fs::create_dir_all(&out)?;
    let client = tools::build_venv(
        workspace,
        "peers/client",
        "lab/bench/peers/client.requirements.txt",
    )
    .context("the load client cannot be installed")?;

    let mut report = Report::new(options.shown(), options.seconds, &options.rates);
    let mut loads = Vec::new();
    for rate in &options.rates {
        let times = arrivals::poisson(f64::from(*rate), options.seconds, options.seed);
        let file = out.join(format!("arrivals-{rate}.txt"));
        spillgate_output::write(&file, arrivals::lines(&times))?;
        report.offer(times.len(), arrivals::ideal(&times, SPAN, DEADLINE));
        loads.push((*rate, file));
    }
    for peer in &options.only {
        let program = match peer.install(workspace, options.spillgate.as_deref()) {
            Ok(program) => Ok(program),
            Err(error) if process::interrupted() => return Err(error),
            Err(error) => Err(report::reason(&error, "", workspace.root())),
        };
        report.version(peer.version(workspace, options.spillgate.is_some())?);
        for setting in SETTINGS.iter().filter(|setting| setting.peer == *peer) {
            let label = format!("{}, {}", peer.title(), setting.label);
            let mut cells = Vec::new();
            for (rate, arrivals) in &loads {
                let cell = match &program {
                    Ok(program) => cell(workspace, setting, program, &client, arrivals)?,
                    Err(reason) => Cell::Failed(reason.clone()),
                };
                println!(
                    "peers: {label}, {rate} req/s: {}",
                    cell.line(options.seconds)
                );
                cells.push(cell);
            }
            report.row(label, cells);
        }
    }
    println!("\n{}", report.table());
    if options.write {
        let document = workspace.path(DOCUMENT);
        std::fs::create_dir_all(document.parent().unwrap_or(Path::new(".")))?;
        spillgate_output::write(&document, report.document())?;
        println!("written to {DOCUMENT}");
    }
    Ok(())
}

/// One load on a fresh server. Only an interruption is an error: what fails otherwise is a result.
fn cell(
    workspace: &Workspace,
    setting: &Setting,
    program: &Path,
    client: &Path,
    arrivals: &Path,
) -> Result<Cell> {
    let mut server = None;
    let measured = Running::start(workspace, setting, program, &workspace.path(OUT))
        .and_then(|running| measure(workspace, client, server.insert(running), arrivals));
    match measured {
        Ok(measured) => Ok(Cell::Measured(measured)),
        Err(error) if process::interrupted() => Err(error),
        Err(error) => {
            let log = server.map_or_else(String::new, |server| server.last_words());
            let reason = report::reason(&error, &log, workspace.root());
            Ok(Cell::Failed(reason))
        }
    }
}

/// Drives a server, once it is up, and takes the result.
fn measure(
    workspace: &Workspace,
    client: &Path,
    server: &mut Running,
    arrivals: &Path,
) -> Result<Measured> {
    server.wait_until_open()?;
    let mut load = workspace.program(client);
    load.arg(workspace.path("lab/bench/peers/load.py"))
        .args(["--arrivals".as_ref(), arrivals.as_os_str()])
        .args(["--deadline-ms", &DEADLINE.as_millis().to_string()])
        .args(server.client_args());
    let said = process::capture(load.env("PYTHONDONTWRITEBYTECODE", "1"))?;
    let said: Value = serde_json::from_str(said.trim()).context("the load client's result")?;
    let measured = Measured::read(&said)?;
    // A server that died on the way answered the rest with refused connections: that is no measurement.
    server.check_alive()?;
    Ok(measured)
}

/// This machine in words, at this moment.
pub(crate) fn machine() -> String {
    report::machine_now()
}

/// Spillgate, built unless it is given.
pub(crate) fn build_spillgate(workspace: &Workspace, given: Option<&Path>) -> Result<PathBuf> {
    if let Some(program) = given {
        return Ok(program.to_path_buf());
    }
    setup::run(workspace)?;
    workspace.build(&["--release", "-p", "spillgate", "--bin", "spillgate"])?;
    Ok(workspace.target_dir()?.join("release/spillgate"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_shown() {
        let options = Options::parse(vec![]).unwrap();
        assert_eq!(options.rates, [30, 60, 100]);
        assert_eq!(
            options.shown(),
            "cargo xtask bench-peers --seconds 10 --rates 30,60,100 --seed 1"
        );
        let args = [
            "--seconds",
            "2.5",
            "--rates",
            "5,7",
            "--only",
            "mosec,spillgate",
            "--write",
        ];
        let options = Options::parse(args.map(Into::into).to_vec()).unwrap();
        assert!(options.write && options.only == [Peer::Spillgate, Peer::Mosec]);
        assert_eq!(
            options.shown(),
            "cargo xtask bench-peers --seconds 2.5 --rates 5,7 --seed 1 --only spillgate,mosec"
        );
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        let said = |args: &[&str]| {
            let args = args.iter().map(Into::into).collect();
            Options::parse(args).err().unwrap().to_string()
        };
        assert!(said(&["--rates", "30,0"]).contains("\"0\""));
        assert!(said(&["--seconds", "0"]).contains("--seconds"));
        assert!(said(&["--only", "mosek"]).contains("spillgate, mosec, ray, triton"));
    }
}
