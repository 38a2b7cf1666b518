//! `spillgate serve`: everything in one process, until SIGTERM or Ctrl-C.

mod definitions;
pub(crate) mod descriptors;
pub(super) mod pipeline_files;
mod progress;
mod reload;
pub(crate) mod role_source;
pub(crate) mod signals;
pub(crate) mod start;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use crate::admin::{AdminPort, open_admin};
use crate::cores::Cores;
use crate::device_sharing::DeviceSharing;
use crate::process_context::ProcessContext;
use crate::reload::Reload;
use crate::rollout_flag;
use crate::security::{Security, SecurityError};
use crate::server::{ClientPort, Server};
use anyhow::Context;
use clap::Args;
use clap::builder::FalseyValueParser;
use spillgate_controller::convert::is_emulated;
use spillgate_controller::edge::TlsFiles;
use spillgate_controller_policy::rollout::RolloutConfig;
use spillgate_pipeline::address;
use spillgate_pipeline::time::format_duration;
use spillgate_process::account::Account;
use spillgate_process::clock::Clock;
use spillgate_telemetry::logging::{flush, say, tell_times};
use spillgate_telemetry::{Telemetry, TelemetryConfig, TelemetryError};

use super::address::listen;
use super::cores::CoreArgs;
use super::device_sharing::DeviceSharingArgs;
use super::models::ModelArgs;
use super::ranges::{duration, memory, number};
use super::scaler::ScalerArgs;
pub(crate) use progress::Progress;
use role_source::RoleSource;
use signals::{Signals, TERMINATE};
pub(crate) use start::not_confined;

/// Most connections: each holds a descriptor, and a process has some ten thousand of them.
const CONNECTIONS_MAX: usize = 65_536;
/// Most calls on one connection; HTTP/2 clients open a hundred or so.
const CALLS_MAX: u32 = 65_536;
/// Most threads that decode, or that serve connections: far more than machines have cores.
pub(crate) const THREADS_MAX: usize = 512;
/// Longest drain. A supervisor that waits for the process to end kills it sooner.
pub(crate) const DRAIN_MAX: Duration = Duration::from_secs(3600);
/// Least default number of decoders: while one decodes a large picture, the other can decode another.
pub(crate) const DECODERS_MIN: usize = 2;
/// Drain delay of a gateway of a set, where none is given: load balancers and clients look at its health every few
/// seconds.
const GATEWAY_DRAIN_DELAY: Duration = Duration::from_secs(5);
/// Longest idle time of a connection.
const IDLE_MAX: Duration = Duration::from_secs(24 * 3600);
/// Oldest age of a connection.
const AGE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long the last lines of the log may take.
const LOG_LIMIT: Duration = Duration::from_millis(300);

/// What to serve, where, within which bounds.
#[derive(Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct ServeArgs {
    /// Pipeline files.
    #[arg(required = true)]
    pub(crate) pipelines: Vec<PathBuf>,
    /// Address of the gRPC port; port 0 takes a free one.
    #[arg(long, env = "SPILLGATE_LISTEN", default_value = "127.0.0.1:7700", value_parser = listen)]
    listen: SocketAddr,
    /// Address of the admin port: /metrics, /livez, /readyz, /status.
    #[arg(long, env = "SPILLGATE_ADMIN", default_value = "127.0.0.1:7701", value_parser = listen)]
    admin: SocketAddr,
    /// No admin port.
    #[arg(long, env = "SPILLGATE_NO_ADMIN", value_parser = FalseyValueParser::new())]
    no_admin: bool,
    /// Once ready, write the gRPC address to this file.
    #[arg(long, env = "SPILLGATE_PORT_FILE")]
    port_file: Option<PathBuf>,
    /// Most connections at a time [default: 1024, or as many as there are descriptors for]
    #[arg(long, env = "SPILLGATE_CONNECTIONS",
        value_parser = number(1, CONNECTIONS_MAX, "with none no client is served, and each holds a descriptor of the process"))]
    connections: Option<usize>,
    /// Most connections from one address (of IPv6: from one /64) [default: half of --connections]
    #[arg(long, env = "SPILLGATE_CONNECTIONS_PER_ADDRESS",
        value_parser = number(1, CONNECTIONS_MAX, "with none no client is served"))]
    connections_per_address: Option<usize>,
    /// A connection that is not used for this long is closed.
    #[arg(long, env = "SPILLGATE_IDLE_TIMEOUT", default_value = "10m",
        value_parser = duration(IDLE_MAX, "a connection that is not used holds a place"))]
    idle_timeout: Duration,
    /// A connection takes no new calls at this age, give or take a tenth, and its streams end 10 s later; clients go on at
    /// another one, and find gateways that are new. 0s: never
    #[arg(long, env = "SPILLGATE_CONNECTION_AGE", default_value = "30m",
        value_parser = duration(AGE_MAX, "a connection that stays finds no new gateway; 0s is without a limit"))]
    connection_age: Duration,
    /// Memory for what clients send, what comes of it and answers not yet read, like 256MiB; models and the program
    /// itself come on top.
    #[arg(long, env = "SPILLGATE_MEMORY", default_value = "256MiB", value_parser = memory)]
    memory: u64,
    /// Speak TLS, with this certificate and the ones between it and its root (PEM).
    #[arg(
        long,
        value_name = "FILE",
        env = "SPILLGATE_TLS_CERT",
        requires = "tls_key"
    )]
    tls_cert: Option<PathBuf>,
    /// Private key of --tls-cert (PEM).
    #[arg(
        long,
        value_name = "FILE",
        env = "SPILLGATE_TLS_KEY",
        requires = "tls_cert"
    )]
    tls_key: Option<PathBuf>,
    /// Serve only clients with a certificate that one of these signed (PEM).
    #[arg(
        long,
        value_name = "FILE",
        env = "SPILLGATE_TLS_CLIENT_CA",
        requires = "tls_cert"
    )]
    tls_client_ca: Option<PathBuf>,
    /// Serve only holders of the tokens whose hashes are in this file (YAML); `spillgate token` makes them.
    #[arg(long, value_name = "FILE", env = "SPILLGATE_TOKENS")]
    tokens: Option<PathBuf>,
    /// Most concurrent calls on one connection.
    #[arg(long, env = "SPILLGATE_CALLS_PER_CONNECTION", default_value_t = 1024,
        value_parser = number(1, CALLS_MAX, "with none no client is served, and each holds memory"))]
    calls_per_connection: u32,
    /// Threads that decode frames [default: cores less one, at least two]
    #[arg(long, env = "SPILLGATE_DECODERS",
        value_parser = number(1, THREADS_MAX, "each is a thread, and more than the machine has cores bring nothing"))]
    decoders: Option<usize>,
    /// Threads that serve connections [default: the number of cores; in a set one less, so that links have less to wait for]
    #[arg(long, env = "SPILLGATE_THREADS",
        value_parser = number(1, THREADS_MAX, "more threads than the machine has cores bring nothing"))]
    threads: Option<usize>,
    #[command(flatten)]
    sharing: DeviceSharingArgs,
    #[command(flatten)]
    core: CoreArgs,
    /// How long requests in flight may take to end after SIGTERM.
    #[arg(long, env = "SPILLGATE_DRAIN", default_value = "10s",
        value_parser = duration(DRAIN_MAX, "a second SIGTERM ends a drain at any time"))]
    drain: Duration,
    /// How long to serve on after SIGTERM, while health and /readyz say that the server ends, so that clients go elsewhere
    /// first [default: 5s for a gateway of a set, 0s for `spillgate serve`]
    #[arg(long, env = "SPILLGATE_DRAIN_DELAY",
        value_parser = duration(DRAIN_MAX, "a second signal ends the delay at any time"))]
    drain_delay: Option<Duration>,
    /// How pipelines that changed (SIGHUP) take the place of the old ones: `at-once`; `5%` of the streams for one watch, then all;
    /// or `recreate`, where memory or devices do not hold both: the old ones end first, and meanwhile nothing is served. A watch
    /// judges the new ones; `,watch=0s` leaves it out [default: at-once,watch=1m]
    #[arg(long, env = "SPILLGATE_ROLLOUT", value_name = "HOW[,watch=TIME]", value_parser = rollout_flag::rollout)]
    rollout: Option<RolloutConfig>,
    #[command(flatten)]
    scaler: ScalerArgs,
    #[command(flatten)]
    otlp: OtlpArgs,
    /// Part of the frames that is traced, 0 to 1, when the client does not decide.
    #[arg(long, env = "SPILLGATE_TRACE_SAMPLE", default_value_t = 1.0,
        value_parser = number(0.0, 1.0, "it is a part of the frames"))]
    trace_sample: f64,
    #[command(flatten)]
    models: ModelArgs,
}

/// Where spans go.
#[derive(Args)]
pub(crate) struct OtlpArgs {
    /// Send traces there: OTLP over gRPC, like http://127.0.0.1:4317 [env: SPILLGATE_OTLP, OTEL_EXPORTER_OTLP_ENDPOINT]
    #[arg(long, env = "SPILLGATE_OTLP", hide_env = true)]
    otlp: Option<String>,
}

impl OtlpArgs {
    pub(crate) fn endpoint(&self) -> Option<String> {
        let otel = || {
            let given = std::env::var("OTEL_EXPORTER_OTLP_ENDPOINT").ok();
            given.filter(|endpoint| !endpoint.is_empty())
        };
        let given = self.otlp.clone().or_else(otel);
        given.map(|endpoint| address::url(&endpoint))
    }
}

impl ServeArgs {
    /// How models share devices, if that is said.
    pub(super) fn sharing(&self) -> Option<DeviceSharing> {
        self.sharing.sharing()
    }

    fn tls(&self) -> Option<TlsFiles> {
        Some(TlsFiles {
            cert: self.tls_cert.clone()?,
            key: self.tls_key.clone()?,
            client_ca: self.tls_client_ca.clone(),
        })
    }
}

/// Serves until told to stop.
pub(crate) fn run(args: ServeArgs) -> anyhow::Result<ExitCode> {
    run_as(args, None)
}

/// The same for the gateway of a set.
pub(crate) fn run_as(args: ServeArgs, source: Option<RoleSource>) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(
        source.is_none() || !args.scaler.is_given(),
        "--scaler-listen: a gateway does not know how many workers are wanted; give it to `spillgate controller`"
    );
    anyhow::ensure!(
        source.is_none() || args.rollout.is_none(),
        "--rollout: this is for `spillgate serve`; of a set `spillgate rollout --how` says how a revision takes its place"
    );
    let reserved = args.core.reserve()?;
    // Those that are left for the other threads.
    let n_cores = std::thread::available_parallelism().map_or(1, usize::from);
    // Of the threads of a runtime each wakes others that look for work, on the way of a request through the links.
    let spared = usize::from(source.is_some());
    let n_threads = args
        .threads
        .unwrap_or(n_cores.saturating_sub(spared).max(1));
    let runtime = runtime(n_threads)?;
    let code = runtime.block_on(serve(args, source, n_cores, reserved));
    runtime.shutdown_timeout(Duration::from_millis(200));
    code
}

/// The threads that serve connections.
pub(crate) fn runtime(n_threads: usize) -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(n_threads)
        .thread_name("async")
        .enable_all()
        .build()
}

/// The traces and metrics of a process with that clock.
pub(crate) fn observed_by(
    config: TelemetryConfig,
    clock: &Clock,
) -> Result<Arc<Telemetry>, TelemetryError> {
    let clock = clock.clone();
    Telemetry::new(config, move || clock.epoch_wall()).map(Arc::new)
}

/// Shows on the admin port, where there is one, what the start is doing.
pub(crate) fn progress_on(admin: &Option<AdminPort>) -> Arc<dyn Fn(&str) + Send + Sync> {
    let admin = admin.clone();
    Arc::new(move |what| admin.iter().for_each(|admin| admin.starting(what)))
}

async fn serve(
    args: ServeArgs,
    source: Option<RoleSource>,
    n_cores: usize,
    cores: Cores,
) -> anyhow::Result<ExitCode> {
    tell_times();
    // Before anything else, so that no signal is missed.
    let mut signals = Signals::new()?;
    let reload = Reload::default();
    let security = Security::read(args.tls(), args.tokens.clone());
    let security = security.map_err(|error| match error {
        SecurityError::Tokens(bad) => anyhow::Error::from(bad),
        SecurityError::Tls(bad) => bad.into(),
    })?;
    security
        .warnings(args.listen)
        .iter()
        .for_each(|line| say(line));
    let limit = descriptors::raise()?;
    let connections = descriptors::connections(args.connections, limit)?;
    if args.connections.is_none() && connections < descriptors::CONNECTIONS {
        say(&format!(
            "warning: at most {connections} connections: this process may have {limit} descriptors (ulimit -Hn)"
        ));
    }
    let drain_delay = args.drain_delay.unwrap_or(match &source {
        Some(_) => GATEWAY_DRAIN_DELAY,
        None => Duration::ZERO,
    });
    let port = ClientPort {
        listen: args.listen,
        connections,
        connections_per_address: args
            .connections_per_address
            .unwrap_or(connections / 2)
            .max(1),
        calls_per_connection: args.calls_per_connection,
        security: security.clone(),
        idle: args.idle_timeout,
        connection_age: Some(args.connection_age).filter(|age| !age.is_zero()),
        seed: rand::random(),
    };
    if let Some(file) = &args.port_file {
        spillgate_output::check(file)?;
    }
    // First of all, so that probes are answered while models are loaded and measured.
    let admin = open_admin((!args.no_admin).then_some(args.admin)).await?;
    if let Some(admin) = &admin {
        let address = admin.address;
        say(&format!(
            "admin on http://{address} (/metrics, /livez, /readyz, /status)"
        ));
    }
    let scaler = args.scaler.open().await?;
    let clock = Clock::start();
    let telemetry = TelemetryConfig {
        otlp_endpoint: args.otlp.endpoint(),
        // Without a receiver nothing is sampled, so results name no trace that does not exist.
        sample_ratio: if args.otlp.endpoint().is_some() {
            args.trace_sample
        } else {
            0.0
        },
        seed: rand::random(),
        ..TelemetryConfig::default()
    };
    let telemetry = observed_by(telemetry, &clock)?;
    let default_decoders = n_cores.saturating_sub(1).max(DECODERS_MIN);
    let context = ProcessContext {
        account: Account::new(args.memory),
        decoders: args.decoders.unwrap_or(default_decoders),
        cores,
        sharing: args.sharing.sharing(),
        drain: args.drain,
        rollout: args.rollout.unwrap_or_default(),
        progress: progress_on(&admin),
        ..ProcessContext::new(clock, super::library(), telemetry.clone())
    };
    let (pipelines, models) = (args.pipelines.clone(), args.models.config());
    // Loading takes long and blocks, so it does not run on a thread that serves the admin port.
    let starting = move || {
        start::start(
            &pipelines,
            models,
            source.as_ref(),
            (context, telemetry),
            port,
            admin,
            reload,
        )
    };
    let starting = tokio::task::spawn_blocking(starting);
    let (server, again, mut reload) = tokio::select! {
        started = starting => started.context("the start failed")??,
        signal = signals.stop() => {
            say(&format!("{signal} while starting: ended, nothing was served"));
            end(0);
        }
    };
    announce(&server, &args, &security);
    if let Some(scaler) = scaler {
        server.serve_scaler(scaler);
    }
    if let Some(file) = &args.port_file {
        spillgate_output::write(file, format!("{}\n", server.address))?;
    }
    server.add_to(&mut reload);
    if let Some(again) = again {
        let renewer = server.renewers()[0].clone();
        // Not watched: whoever changes a pipeline and its models says when all is there.
        reload.add("pipelines", Vec::new(), move || {
            reload::pipelines(&again, &renewer).map_err(|error| format!("{error:#}"))
        });
    }
    let mut signal = signals.stop_or_reload(&Arc::new(reload)).await;
    if signal == TERMINATE && !drain_delay.is_zero() {
        server.leave().await;
        say(&format!(
            "{signal}: not ready any more; serving on for {} (--drain-delay)",
            format_duration(drain_delay)
        ));
        if let Ok(again) = tokio::time::timeout(drain_delay, signals.stop()).await {
            signal = again;
        }
    }
    let unanswered = server.in_flight();
    say(&format!(
        "{signal}: draining; {} requests in flight",
        unanswered()
    ));
    let ended = tokio::select! {
        ended = server.stop() => ended,
        again = signals.stop() => {
            let n = unanswered();
            say(&format!("{again} while draining: ending at once; {n} requests are unanswered"));
            end(1);
        }
    };
    if ended.aborted > 0 {
        say(&format!(
            "{} requests did not end in time and were dropped",
            ended.aborted
        ));
    }
    for device in &ended.busy_devices {
        say(&format!("device {device} was still busy"));
    }
    say("stopped");
    // A reload that was under way may measure models still.
    end(i32::from(
        !ended.busy_devices.is_empty() || ended.aborted > 0,
    ))
}

/// Ends the process while its threads run. A normal end would first destroy state that these threads may use,
/// libtorch's above all.
pub(crate) fn end(code: i32) -> ! {
    flush(LOG_LIMIT);
    signal_hook::low_level::exit(code)
}

fn announce(server: &Server, args: &ServeArgs, security: &Security) {
    let hosts = server.hosts();
    let names: Vec<&str> = hosts
        .iter()
        .map(|host| host.pipeline().name.as_str())
        .collect();
    security.strangers(&names).iter().for_each(|line| say(line));
    for host in server.hosts() {
        let p = host.pipeline();
        let names: Vec<&str> = p.modules[1..].iter().map(|m| m.name.as_str()).collect();
        let emulated = if p.modules.iter().any(is_emulated) {
            "; EMULATED devices: no model runs on them"
        } else {
            ""
        };
        let (names, slo) = (names.join(", "), format_duration(p.slo));
        say(&format!(
            "pipeline {}: {names}; slo {slo}{emulated}",
            p.name
        ));
    }
    say(&format!("devices: {}", server.devices().join(", ")));
    if let Some(otlp) = args.otlp.endpoint() {
        say(&format!(
            "traces to {otlp}, {}% of frames",
            args.trace_sample * 100.0
        ));
    }
    let scheme = if security.has_tls() { "https" } else { "http" };
    say(&format!("listening on {scheme}://{}", server.address));
}
