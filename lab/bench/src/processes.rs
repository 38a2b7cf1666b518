//! `bench-processes`: the cost of separate processes. h2load drives a chain of two no-op modules as one process and as several, and in
//! the same rounds a bare tonic relay of the same hops, on the cores that it shares with them.

mod certificates;
mod report;
mod subject;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use lexopt::prelude::*;
use serde_json::Value;
use xtask::args::Args;
use xtask::process;
use xtask::setup;
use xtask::workspace::Workspace;

use crate::h2load::{self, message};
use crate::observe::today;
use crate::peers;

use report::{Cell, Open, Report};
use subject::{Kind, Subject};

/// Requests in flight, one a connection.
const IN_FLIGHT: [u32; 3] = [1, 16, 64];
/// Payloads, bytes: a small record, and a picture of 224x224x3.
const PAYLOADS: [(&str, usize); 2] = [("1 KB", 1024), ("150 KB", 150 * 1024)];
/// The open loop: requests a second, and seconds of them.
const OPEN_RATE: u32 = 1000;
const OPEN_SECONDS: u32 = 10;
/// Seconds of the open loop that are sent before and do not count.
const OPEN_WARM_UP: u32 = 2;
/// Addresses and logs of the last run.
const OUT: &str = "out/processes";
/// Where `--write` puts the report.
const DOCUMENT: &str = "docs/evaluation/processes.md";

struct Options {
    rounds: usize,
    seconds: u32,
    /// A program that was built before, with the example `echo` in the folder `examples` beside it.
    spillgate: Option<PathBuf>,
    write: bool,
}

impl Options {
    fn parse(args: Args) -> Result<Options> {
        let mut options = Options {
            rounds: 5,
            seconds: 4,
            spillgate: None,
            write: false,
        };
        let mut parser = lexopt::Parser::from_args(args);
        while let Some(argument) = parser.next()? {
            match argument {
                Long("rounds") => options.rounds = parser.value()?.parse()?,
                Long("seconds") => options.seconds = parser.value()?.parse()?,
                Long("spillgate") => options.spillgate = Some(parser.value()?.into()),
                Long("write") => options.write = true,
                other => return Err(other.unexpected().into()),
            }
        }
        if !(1..=100).contains(&options.rounds) || !(1..=60).contains(&options.seconds) {
            bail!("--rounds must be from 1 to 100, --seconds from 1 to 60");
        }
        Ok(options)
    }

    /// The command that does the same again.
    fn shown(&self) -> String {
        let Options {
            rounds, seconds, ..
        } = self;
        format!("cargo xtask bench-processes --rounds {rounds} --seconds {seconds}")
    }
}

/// `cargo xtask bench-processes`.
pub(crate) fn command(workspace: &Workspace, args: Args) -> Result<()> {
    let options = Options::parse(args)?;
    h2load::require()?;
    certificates::require()?;
    setup::run(workspace)?;
    let programs = match &options.spillgate {
        // Children run in the repository's root, wherever this was called.
        Some(program) => Programs::beside(std::path::absolute(program)?),
        None => {
            let programs = ["--bin", "spillgate", "--example", "echo"];
            workspace.build(&[&["--release", "-p", "spillgate"], &programs[..]].concat())?;
            Programs::beside(workspace.target_dir()?.join("release/spillgate"))
        }
    };
    let out = workspace.path(OUT);
    if out.exists() {
        std::fs::remove_dir_all(&out)?;
    }
    std::fs::create_dir_all(&out)?;
    let mut report = Report {
        command: options.shown(),
        machine: peers::machine(),
        date: today()?,
        rounds: options.rounds,
        seconds: options.seconds,
        cells: Vec::new(),
        open: Vec::new(),
    };
    let mut subjects = Vec::new();
    for kind in Kind::ALL {
        let subject = Subject::start(workspace, &programs, *kind, &out)?;
        subjects.push(subject);
    }
    for round in 0..options.rounds {
        for (payload, bytes) in PAYLOADS {
            for in_flight in IN_FLIGHT {
                for subject in &subjects {
                    let load = Load { bytes, in_flight };
                    let measured = drive(subject, &load, options.seconds, &out)?;
                    report.record(subject.kind, payload, in_flight, measured);
                }
            }
        }
        for subject in &subjects {
            if subject.kind != Kind::Relay {
                let open = open_loop(workspace, &programs.spillgate, subject)?;
                report.record_open(subject.kind, open);
            }
        }
        println!("processes: round {} of {} done", round + 1, options.rounds);
    }
    for subject in subjects {
        subject.stop()?;
    }
    println!(
        "\n{}\n{}\n{}",
        report.table(),
        report.open_table(),
        report.targets()
    );
    if options.write {
        spillgate_output::write(workspace.path(DOCUMENT), report.document())?;
        println!("written to {DOCUMENT}");
    }
    Ok(())
}

struct Load {
    bytes: usize,
    in_flight: u32,
}

/// One load on a subject.
fn drive(subject: &Subject, load: &Load, seconds: u32, out: &Path) -> Result<Cell> {
    let before = subject.reading()?;
    let message = message("noop2", load.bytes);
    let mut run = h2load::run(subject.address(), &message, load.in_flight, seconds, out)?;
    let after = subject.reading()?;
    // A gRPC error is an HTTP 200 too: only the payload proves an answer.
    if run.data_bytes < run.requests * load.bytes as u64 {
        bail!(
            "{}: answers did not carry the payload back",
            subject.kind.name()
        );
    }
    let requests = run.requests.max(1) as f64;
    run.cpu_us = (after.cpu - before.cpu).as_secs_f64() * 1e6 / requests;
    run.failed += (after.unserved - before.unserved) as u64;
    let written = after.written - before.written;
    Ok(Cell {
        // Each request has two hops, and each hop a message there and one back.
        bytes_a_message: (written > 0.0).then_some(written / requests / 4.0),
        run,
    })
}

/// Requests that are due at equal distances, whether or not earlier ones were answered.
fn open_loop(workspace: &Workspace, program: &Path, subject: &Subject) -> Result<Open> {
    let mut bench = workspace.program(program);
    bench.args(["bench", "--json", "-", "--server"]);
    bench.arg(format!("http://{}", subject.address()));
    bench.args(["--rate", &OPEN_RATE.to_string()]);
    bench.args(["--warmup", &format!("{OPEN_WARM_UP}s")]);
    bench.args(["--duration", &format!("{}s", OPEN_WARM_UP + OPEN_SECONDS)]);
    bench.args(["--payload-bytes", &PAYLOADS[0].1.to_string()]);
    let said: Value = serde_json::from_str(&process::capture(&mut bench)?)?;
    let number = |value: &Value| value.as_f64().context("what bench says lacks a number");
    Ok(Open {
        p50_ms: number(&said["latency_ms"]["p50"])?,
        p99_ms: number(&said["latency_ms"]["p99"])?,
        lag_p99_ms: number(&said["send_delay_ms"]["p99"])?,
        unserved: number(&said["requests"])? - number(&said["outcomes"]["completed"])?,
    })
}

/// What all subjects consist of.
struct Programs {
    spillgate: PathBuf,
    echo: PathBuf,
}

impl Programs {
    /// The program, and the example where cargo puts it.
    fn beside(spillgate: PathBuf) -> Self {
        Programs {
            echo: spillgate.with_file_name("examples").join("echo"),
            spillgate,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Options> {
        Options::parse(words.iter().map(Into::into).collect())
    }

    #[test]
    fn options_are_read_and_shown() {
        let shown = parse(&["--rounds", "2", "--write"]).unwrap().shown();
        assert_eq!(shown, "cargo xtask bench-processes --rounds 2 --seconds 4");
        for wrong in [&["--rounds", "0"], &["--seconds", "61"], &["--rate", "1"]] {
            assert!(parse(wrong).is_err());
        }
    }
}
