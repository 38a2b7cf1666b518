//! `bench-overhead`: the cost of the framework itself. h2load drives chains of no-op modules and, in the same rounds, a
//! bare tonic echo of the same messages, on the cores that it shares with them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use lexopt::prelude::*;
use xtask::args::Args;
use xtask::process::{self, Daemon};
use xtask::setup;
use xtask::workspace::Workspace;

use crate::h2load::{self, Measured, median, message};
use spillgate_report::Table;

/// How long a server without models may take to be up.
const START_LIMIT: Duration = Duration::from_secs(30);
/// What it may take to end.
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// Requests in flight: one a connection, as the peers were measured.
const IN_FLIGHT: [u32; 3] = [1, 16, 64];
/// Payloads, bytes: a small record, and a picture of 224x224x3.
const PAYLOADS: [(&str, usize); 2] = [("1 KB", 1024), ("150 KB", 150 * 1024)];

struct Options {
    rounds: usize,
    seconds: u32,
    /// Another build of `spillgate`, measured in the same rounds.
    beside: Option<PathBuf>,
}

impl Options {
    fn parse(args: Args) -> Result<Options> {
        let mut options = Options {
            rounds: 3,
            seconds: 4,
            beside: None,
        };
        let mut parser = lexopt::Parser::from_args(args);
        while let Some(argument) = parser.next()? {
            match argument {
                Long("rounds") => options.rounds = parser.value()?.parse()?,
                Long("seconds") => options.seconds = parser.value()?.parse()?,
                Long("beside") => options.beside = Some(parser.value()?.into()),
                other => return Err(other.unexpected().into()),
            }
        }
        if options.rounds == 0 || options.seconds == 0 {
            bail!("--rounds and --seconds must be at least 1");
        }
        Ok(options)
    }
}

/// A server under load.
struct Subject {
    name: &'static str,
    pipeline: &'static str,
    address: String,
    daemon: Daemon,
}

/// One cell of the table.
struct Cell {
    subject: &'static str,
    payload: &'static str,
    in_flight: u32,
    rounds: Vec<Measured>,
}

/// `cargo xtask bench-overhead`.
pub(crate) fn command(workspace: &Workspace, args: Args) -> Result<()> {
    let options = Options::parse(args)?;
    h2load::require()?;
    setup::run(workspace)?;
    workspace.build(&[
        "--release",
        "-p",
        "spillgate",
        "--bin",
        "spillgate",
        "--example",
        "echo",
    ])?;
    workspace.build(&[
        "--release",
        "-p",
        "spillgate-telemetry",
        "--example",
        "otlp_sink",
    ])?;
    let release = workspace.target_dir()?.join("release");
    let out = workspace.path("out/overhead");
    std::fs::create_dir_all(&out)?;

    let (sink_address, sink) = start(
        workspace,
        "sink",
        &release.join("examples/otlp_sink"),
        &[],
        &out,
    )?;
    let mut subjects = start_subjects(workspace, &release, &sink_address, &out)?;
    if let Some(beside) = &options.beside {
        let args = ["--trace-sample", "0"];
        let (address, daemon) = start(workspace, "beside", beside, &args, &out)?;
        subjects.push(Subject {
            name: "the build beside, 2 modules",
            pipeline: "noop2",
            address,
            daemon,
        });
    }
    let mut cells: Vec<Cell> = Vec::new();
    for round in 0..options.rounds {
        for (payload, bytes) in PAYLOADS {
            for in_flight in IN_FLIGHT {
                for subject in &mut subjects {
                    if bytes > 100_000 && (in_flight == 64 || subject.name.contains('%')) {
                        continue;
                    }
                    let cpu_before = process::cpu_time(subject.daemon.id())?;
                    let mut measured = h2load::run(
                        &subject.address,
                        &message(subject.pipeline, bytes),
                        in_flight,
                        options.seconds,
                        &out,
                    )?;
                    // A gRPC error is an HTTP 200 too: only the echoed payload proves an answer.
                    if measured.data_bytes < measured.requests * bytes as u64 {
                        bail!("{}: answers did not carry the payload back", subject.name);
                    }
                    let cpu = process::cpu_time(subject.daemon.id())? - cpu_before;
                    measured.cpu_us = cpu.as_secs_f64() * 1e6 / measured.requests as f64;
                    record(&mut cells, subject.name, payload, in_flight, measured);
                }
            }
        }
        println!("overhead: round {} of {} done", round + 1, options.rounds);
    }
    for subject in subjects {
        subject.daemon.stop(STOP_LIMIT)?;
    }
    sink.stop(STOP_LIMIT)?;
    let table = render(&cells);
    println!("{table}");
    spillgate_output::write(out.join("overhead.md"), table.to_string())?;
    println!("written to out/overhead/overhead.md");
    Ok(())
}

fn start_subjects(
    workspace: &Workspace,
    release: &Path,
    sink: &str,
    out: &Path,
) -> Result<Vec<Subject>> {
    let echo = release.join("examples/echo");
    let spillgate = release.join("spillgate");
    let otlp = format!("http://{sink}");
    let mut subjects = Vec::new();
    let (address, daemon) = start(workspace, "echo", &echo, &[], out)?;
    subjects.push(Subject {
        name: "bare tonic echo",
        pipeline: "noop2",
        address,
        daemon,
    });
    for (name, log, sample) in [
        ("spillgate, 2 modules", "off", None),
        ("spillgate, 2 modules, 1% traced", "1", Some("0.01")),
        ("spillgate, 2 modules, 100% traced", "100", Some("1")),
    ] {
        let mut args = vec!["--trace-sample", sample.unwrap_or("0")];
        if sample.is_some() {
            args.extend(["--otlp", &otlp]);
        }
        let (address, daemon) = start(workspace, log, &spillgate, &args, out)?;
        if sample.is_none() {
            let (address, daemon) = start(workspace, "three", &spillgate, &args, out)?;
            let name = "spillgate, 3 modules";
            subjects.push(Subject {
                name,
                pipeline: "noop3",
                address,
                daemon,
            });
        }
        subjects.push(Subject {
            name,
            pipeline: "noop2",
            address,
            daemon,
        });
    }
    Ok(subjects)
}

/// Starts a server and waits for its address.
fn start(
    workspace: &Workspace,
    name: &str,
    program: &Path,
    args: &[&str],
    out: &Path,
) -> Result<(String, Daemon)> {
    let port_file: PathBuf = out.join(format!("{name}.address"));
    let _ = std::fs::remove_file(&port_file);
    let mut command = workspace.program(program);
    if !program
        .parent()
        .is_some_and(|folder| folder.ends_with("examples"))
    {
        command.args([
            "serve",
            "apps/pipelines/noop2.yaml",
            "apps/pipelines/noop3.yaml",
        ]);
        command.args(["--listen", "127.0.0.1:0", "--no-admin", "--port-file"]);
    }
    command.arg(&port_file).args(args);
    let mut daemon = Daemon::start(name, &mut command, &out.join(format!("{name}.log")))?;
    let begun = Instant::now();
    loop {
        if let Ok(text) = std::fs::read_to_string(&port_file) {
            return Ok((text.trim().to_owned(), daemon));
        }
        if let Some(status) = daemon.ended()? {
            bail!("{name} ended ({status}):\n{}", daemon.tail(30));
        }
        if begun.elapsed() > START_LIMIT {
            bail!("{name} was not up within {START_LIMIT:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn record(
    cells: &mut Vec<Cell>,
    subject: &'static str,
    payload: &'static str,
    in_flight: u32,
    measured: Measured,
) {
    let cell = cells
        .iter_mut()
        .find(|c| c.subject == subject && c.payload == payload && c.in_flight == in_flight);
    match cell {
        Some(cell) => cell.rounds.push(measured),
        None => cells.push(Cell {
            subject,
            payload,
            in_flight,
            rounds: vec![measured],
        }),
    }
}

fn render(cells: &[Cell]) -> Table {
    let mut table = Table::new([
        "subject",
        "payload",
        "in flight",
        "req/s",
        "p50 ms",
        "p99 ms",
        "server CPU us/request",
        "req/s, ratio to echo",
        "failed",
    ]);
    for cell in cells {
        let rate = median(cell.rounds.iter().map(|m| m.rate));
        let echo = cells
            .iter()
            .find(|c| {
                c.subject == "bare tonic echo"
                    && c.payload == cell.payload
                    && c.in_flight == cell.in_flight
            })
            .map_or(f64::NAN, |c| median(c.rounds.iter().map(|m| m.rate)));
        let failed: u64 = cell.rounds.iter().map(|m| m.failed).sum();
        table.row([
            cell.subject.to_string(),
            cell.payload.to_string(),
            cell.in_flight.to_string(),
            format!("{:.0}", rate),
            format!("{:.3}", median(cell.rounds.iter().map(|m| m.p50_ms))),
            format!("{:.3}", median(cell.rounds.iter().map(|m| m.p99_ms))),
            format!("{:.1}", median(cell.rounds.iter().map(|m| m.cpu_us))),
            format!("{:.2}", rate / echo),
            failed.to_string(),
        ]);
    }
    table
}
