//! `spillgate serve`: everything in one process, until SIGTERM or Ctrl-C.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use spillgate::embedded::Deployment;
use spillgate::files;
use spillgate::measure::{self, Effort, Missing};
use spillgate::server::{Server, ServerConfig};
use spillgate_controller::convert::is_emulated;
use spillgate_pipeline::time::{format_duration, parse_duration};
use spillgate_telemetry::TelemetryConfig;
use tokio::signal::unix::{SignalKind, signal};

/// What to serve, where, within which bounds.
#[derive(Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct ServeArgs {
    /// Pipeline files.
    #[arg(required = true)]
    pipelines: Vec<PathBuf>,
    /// Address of the gRPC port; port 0 takes a free one.
    #[arg(long, env = "SPILLGATE_LISTEN", default_value = "127.0.0.1:7700")]
    listen: SocketAddr,
    /// Address of the admin port: /metrics, /livez, /readyz.
    #[arg(long, env = "SPILLGATE_ADMIN", default_value = "127.0.0.1:7701")]
    admin: SocketAddr,
    /// No admin port.
    #[arg(long, conflicts_with = "admin")]
    no_admin: bool,
    /// Once ready, write the gRPC address to this file.
    #[arg(long)]
    port_file: Option<PathBuf>,
    /// Most connections at a time.
    #[arg(long, default_value_t = 1024)]
    connections: usize,
    /// Most connections from one address (of IPv6: from one /64) [default: half of --connections]
    #[arg(long)]
    connections_per_address: Option<usize>,
    /// A connection that is not used for this long is closed.
    #[arg(long, default_value = "10m", value_parser = parse_duration)]
    idle_timeout: Duration,
    /// Memory for what clients send, what comes of it and answers not yet read, like 256MiB; models and the program
    /// itself come on top.
    #[arg(long, env = "SPILLGATE_MEMORY", default_value = "256MiB", value_parser = parse_memory)]
    memory: u64,
    /// Most concurrent calls on one connection.
    #[arg(long, default_value_t = 1024)]
    calls_per_connection: u32,
    /// Threads that decode frames [default: cores less one, at least one]
    #[arg(long)]
    decoders: Option<usize>,
    /// Threads that serve connections [default: the number of cores]
    #[arg(long)]
    threads: Option<usize>,
    /// How long requests in flight may take to end after SIGTERM.
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    drain: Duration,
    /// Send traces there: OTLP over gRPC, like http://127.0.0.1:4317.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT")]
    otlp: Option<String>,
    /// Part of the frames that is traced, 0 to 1, when the client does not decide.
    #[arg(long, env = "SPILLGATE_TRACE_SAMPLE", default_value_t = 1.0)]
    trace_sample: f64,
}

/// Serves until told to stop.
pub(crate) fn run(args: ServeArgs) -> anyhow::Result<ExitCode> {
    let library = Arc::new(spillgate_modules::library());
    let mut deployments = Vec::new();
    for loaded in files::load_all(&args.pipelines, &library.catalog())? {
        for warning in &loaded.warnings {
            eprintln!("{warning}");
        }
        loaded.check_models()?;
        let base_dir = loaded.base_dir();
        let mut deployment = Deployment {
            pipeline: loaded.pipeline,
            base_dir,
            profiles: loaded.profiles,
        };
        measure_missing(&mut deployment, &library)?;
        deployments.push(deployment);
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(args.threads.unwrap_or(cores).max(1))
        .thread_name("async")
        .enable_all()
        .build()?;
    let code = runtime.block_on(serve(args, deployments, library, cores))?;
    runtime.shutdown_timeout(Duration::from_millis(200));
    Ok(code)
}

async fn serve(
    args: ServeArgs,
    deployments: Vec<Deployment>,
    library: Arc<spillgate_backend::operator::Library>,
    cores: usize,
) -> anyhow::Result<ExitCode> {
    // Before the ports are open, so that no signal is missed.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let config = ServerConfig {
        listen: args.listen,
        admin: (!args.no_admin).then_some(args.admin),
        connections: args.connections,
        connections_per_address: args
            .connections_per_address
            .unwrap_or(args.connections / 2)
            .max(1),
        calls_per_connection: args.calls_per_connection,
        memory: args.memory,
        idle: args.idle_timeout,
        decoders: args.decoders.unwrap_or(cores.saturating_sub(1)).max(1),
        drain: args.drain,
        telemetry: TelemetryConfig {
            otlp_endpoint: args.otlp.clone(),
            // Without a receiver nothing is sampled, and results name no trace that nobody has.
            sample_ratio: if args.otlp.is_some() {
                args.trace_sample
            } else {
                0.0
            },
            seed: rand::random(),
            ..TelemetryConfig::default()
        },
    };
    let server = Server::start(config, deployments, library).await?;
    announce(&server, &args);
    if let Some(file) = &args.port_file {
        // Renamed into place, so that whoever waits for the file never reads half of it.
        let partial = file.with_extension("partial");
        std::fs::write(&partial, format!("{}\n", server.address))
            .and_then(|()| std::fs::rename(&partial, file))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    tokio::select! {
        _ = terminate.recv() => eprintln!("SIGTERM: draining"),
        _ = interrupt.recv() => eprintln!("interrupted: draining"),
    }
    let ended = tokio::select! {
        ended = server.stop() => ended,
        _ = interrupt.recv() => {
            eprintln!("interrupted again: ending at once");
            return Ok(ExitCode::from(1));
        }
    };
    if ended.aborted > 0 {
        eprintln!(
            "{} requests did not end in time and were dropped",
            ended.aborted
        );
    }
    for device in &ended.busy_devices {
        eprintln!("device {device} was still busy");
    }
    eprintln!("stopped");
    let graceful = ended.aborted == 0 && ended.busy_devices.is_empty();
    Ok(ExitCode::from(u8::from(!graceful)))
}

/// Least memory that a server runs with: a few frames and connections.
const MEMORY_MIN: u64 = 16 << 20;

/// Bytes, like `256MiB` or `1GiB`.
fn parse_memory(text: &str) -> Result<u64, String> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let shift = match unit.trim() {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" | "MB" | "M" => 20,
        "GiB" | "GB" | "G" => 30,
        _ => {
            return Err(format!(
                "the unit \"{unit}\" is unknown; give MiB or GiB, like 256MiB"
            ));
        }
    };
    let number: u64 = number
        .parse()
        .map_err(|_| "give a number and a unit, like 256MiB")?;
    match number.checked_mul(1 << shift) {
        Some(bytes) if (MEMORY_MIN..=1 << 50).contains(&bytes) => Ok(bytes),
        _ => Err("give at least 16MiB and at most 1048576GiB".to_owned()),
    }
}

fn announce(server: &Server, args: &ServeArgs) {
    for host in server.hosts() {
        let p = host.pipeline();
        let names: Vec<&str> = p.modules[1..].iter().map(|m| m.name.as_str()).collect();
        let emulated = p.modules.iter().any(is_emulated);
        eprintln!(
            "pipeline {}: {}; slo {}{}",
            p.name,
            names.join(", "),
            format_duration(p.slo),
            if emulated {
                "; EMULATED devices: no model runs on them"
            } else {
                ""
            }
        );
    }
    eprintln!("devices: {}", server.devices().join(", "));
    if let Some(otlp) = &args.otlp {
        eprintln!("traces to {otlp}, {}% of frames", args.trace_sample * 100.0);
    }
    if let Some(admin) = server.admin_address {
        eprintln!("admin on http://{admin} (/metrics, /livez, /readyz)");
    }
    eprintln!("listening on http://{}", server.address);
}

fn measure_missing(
    deployment: &mut Deployment,
    library: &Arc<spillgate_backend::operator::Library>,
) -> anyhow::Result<()> {
    if measure::missing(deployment, false).is_empty() {
        return Ok(());
    }
    eprintln!(
        "pipeline {}: some profiles are missing and are measured now; `spillgate profile` keeps them",
        deployment.pipeline.name
    );
    let bar = progress_bar();
    measure::complete(
        deployment,
        library,
        false,
        Effort::QUICK,
        |m, done, total| {
            show_progress(&bar, m, done, total);
        },
    )?;
    bar.finish_and_clear();
    Ok(())
}

/// The progress bar of measurements.
pub(crate) fn progress_bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}")
        .expect("the template is well-formed");
    ProgressBar::new(0).with_style(style)
}

/// Shows what is measured now.
pub(crate) fn show_progress(bar: &ProgressBar, what: &Missing, done: usize, total: usize) {
    bar.set_length(total as u64);
    bar.set_position(done as u64);
    bar.set_message(format!("measuring {} on {}", what.module.name, what.device));
}
