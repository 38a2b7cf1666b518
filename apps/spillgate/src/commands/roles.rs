//! `spillgate gateway`, `spillgate controller` and `spillgate worker`: one process of a topology.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use crate::admin::{AdminPort, open_admin};
use crate::cores::Cores;
use crate::inner_process::InnerProcess;
use crate::process_context::ProcessContext;
use crate::reload::Reload;
use crate::security::link_warnings;
use anyhow::{Context, bail};
use clap::Args;
use clap::builder::FalseyValueParser;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, gethostname, getppid};
use spillgate_link::tls::{LinkTls, LinkTlsFiles};
use spillgate_process::account::Account;
use spillgate_process::clock::Clock;
use spillgate_telemetry::logging::{complain, say, tell_times};
use spillgate_telemetry::{Telemetry, TelemetryConfig};
use spillgate_tls::TlsError;

use super::address::listen;
use super::cores::CoreArgs;
use super::models::ModelArgs;
use super::ranges::{duration, memory, number};
use super::scaler::ScalerArgs;
use super::serve::signals::Signals;
use super::serve::start::{self, RoleSource, TopologySource};
use super::serve::{self, DECODERS_MIN, DRAIN_MAX, OtlpArgs, ServeArgs, THREADS_MAX};

/// Which process of which topology.
#[derive(Args)]
pub(crate) struct RoleArgs {
    /// File of the topology: the processes that serve the pipeline, and which roles each of them holds.
    #[arg(
        long,
        value_name = "FILE",
        env = "SPILLGATE_TOPOLOGY",
        required_unless_present_any = ["gateways", "controllers", "workers"],
        conflicts_with_all = ["gateways", "controllers", "workers"]
    )]
    topology: Option<PathBuf>,
    /// Without --topology: the names of the gateways, like gateway-0 or gateway-[0-3].
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        env = "SPILLGATE_GATEWAYS"
    )]
    gateways: Vec<String>,
    /// Without --topology: where controllers are reached: HOST:PORT for those of all modules, or MODULE=HOST:PORT,...
    #[arg(
        long,
        value_name = "ADDRESS",
        value_delimiter = ',',
        env = "SPILLGATE_CONTROLLERS"
    )]
    controllers: Vec<String>,
    /// Without --topology: where workers are reached, like detect=detect-[0-3].detect:7720,plates=plates-0.plates:7720.
    #[arg(
        long,
        value_name = "MODULE=ADDRESS",
        value_delimiter = ',',
        env = "SPILLGATE_WORKERS"
    )]
    workers: Vec<String>,
    /// Name of this process in the topology [default: the name of this machine up to the first dot]
    #[arg(long, env = "SPILLGATE_NAME")]
    name: Option<String>,
    /// File of profiles, where it does not lie beside the pipeline. All processes need the same profiles.
    #[arg(long, value_name = "FILE", env = "SPILLGATE_PROFILES")]
    profiles: Option<PathBuf>,
    /// Address on which other processes reach this one [default: its address in the topology; where that is a name, its port on
    /// all interfaces]
    #[arg(long, value_name = "ADDRESS", env = "SPILLGATE_LINK_LISTEN", value_parser = listen)]
    link_listen: Option<SocketAddr>,
    /// Speak TLS with other processes, and only with those whose certificates one of these authorities signed (PEM).
    #[arg(
        long,
        value_name = "FILE",
        env = "SPILLGATE_LINK_CA",
        requires_all = ["link_cert", "link_key"]
    )]
    link_ca: Option<PathBuf>,
    /// Certificate of this process for --link-ca; its DNS names say its roles, like worker.spillgate (PEM).
    #[arg(
        long,
        value_name = "FILE",
        env = "SPILLGATE_LINK_CERT",
        requires_all = ["link_ca", "link_key"]
    )]
    link_cert: Option<PathBuf>,
    /// Private key of --link-cert (PEM).
    #[arg(
        long,
        value_name = "FILE",
        env = "SPILLGATE_LINK_KEY",
        requires_all = ["link_ca", "link_cert"]
    )]
    link_key: Option<PathBuf>,
    /// The process ends with this one, which started it.
    #[arg(long, value_name = "PID", hide = true)]
    parent: Option<i32>,
}

impl RoleArgs {
    /// Ends this process when its parent dies, if it has one to end with.
    fn follow_parent(&self) -> anyhow::Result<()> {
        let Some(parent) = self.parent else {
            return Ok(());
        };
        prctl::set_pdeathsig(Signal::SIGTERM).context("the parent's death cannot be heard of")?;
        if getppid() != Pid::from_raw(parent) {
            bail!("process {parent}, which started this one, has ended");
        }
        Ok(())
    }

    fn link_tls(&self) -> Option<LinkTlsFiles> {
        Some(LinkTlsFiles {
            ca: self.link_ca.clone()?,
            cert: self.link_cert.clone()?,
            key: self.link_key.clone()?,
        })
    }

    /// Reads the certificates: what is wrong with them is said before anything is loaded.
    fn source(&self) -> Result<RoleSource, TlsError> {
        let topology = match &self.topology {
            Some(file) => TopologySource::File(file.clone()),
            None => TopologySource::Addresses {
                gateways: self.gateways.clone(),
                controllers: self.controllers.clone(),
                workers: self.workers.clone(),
            },
        };
        Ok(RoleSource {
            topology,
            name: self.name.clone().unwrap_or_else(machine),
            profiles: self.profiles.clone(),
            link_listen: self.link_listen,
            link_tls: self.link_tls().map(LinkTls::new).transpose()?.map(Arc::new),
        })
    }
}

/// The name of this machine up to the first dot.
fn machine() -> String {
    let name = gethostname().unwrap_or_default();
    let name = name.to_string_lossy();
    name.split('.').next().unwrap_or_default().to_owned()
}

/// A gateway: what it serves, where, within which bounds.
#[derive(Args)]
pub(crate) struct GatewayArgs {
    #[command(flatten)]
    role: RoleArgs,
    #[command(flatten)]
    serve: ServeArgs,
}

/// A controller or worker.
#[derive(Args)]
pub(crate) struct InnerArgs {
    /// The pipeline file.
    pipeline: PathBuf,
    #[command(flatten)]
    role: RoleArgs,
    /// Address of the admin port: /metrics, /livez, /readyz, /status.
    #[arg(long, env = "SPILLGATE_ADMIN", default_value = "127.0.0.1:7701", value_parser = listen)]
    admin: SocketAddr,
    /// No admin port.
    #[arg(long, env = "SPILLGATE_NO_ADMIN", value_parser = FalseyValueParser::new())]
    no_admin: bool,
    /// Threads that serve connections. One answers a request soonest; more carry more bytes, where messages are large and many.
    #[arg(long, env = "SPILLGATE_THREADS", default_value_t = 1,
        value_parser = number(1, THREADS_MAX, "more threads than the machine has cores bring nothing"))]
    threads: usize,
    /// Memory for what gateways send and what is kept for them, like 256MiB; models and the program itself come on top.
    #[arg(long, env = "SPILLGATE_MEMORY", default_value = "256MiB", value_parser = memory)]
    memory: u64,
    /// How long what its workers have may take to be served after SIGTERM.
    #[arg(long, env = "SPILLGATE_DRAIN", default_value = "10s",
        value_parser = duration(DRAIN_MAX, "a second SIGTERM ends a drain at any time"))]
    drain: Duration,
    #[command(flatten)]
    core: CoreArgs,
    #[command(flatten)]
    scaler: ScalerArgs,
    #[command(flatten)]
    otlp: OtlpArgs,
    #[command(flatten)]
    models: ModelArgs,
}

/// Runs a gateway until told to stop.
pub(crate) fn gateway(args: GatewayArgs) -> anyhow::Result<ExitCode> {
    args.role.follow_parent()?;
    serve::run_as(args.serve, Some(args.role.source()?))
}

/// What a process without a gateway is started for.
#[derive(Clone, Copy)]
pub(crate) enum Holds {
    Controllers,
    Workers,
}

/// Runs a controller or worker until told to stop.
pub(crate) fn inner(args: InnerArgs, holds: Holds) -> anyhow::Result<ExitCode> {
    args.role.follow_parent()?;
    let source = args.role.source()?;
    let cores = args.core.reserve()?;
    let runtime = serve::runtime(args.threads)?;
    runtime.block_on(run(args, source, cores, holds))
}

async fn run(
    args: InnerArgs,
    source: RoleSource,
    cores: Cores,
    holds: Holds,
) -> anyhow::Result<ExitCode> {
    tell_times();
    let mut signals = Signals::new()?;
    let reload = Reload::default();
    let admin = open_admin((!args.no_admin).then_some(args.admin)).await?;
    if let Some(admin) = &admin {
        say(&format!(
            "admin on http://{} (/metrics, /livez, /readyz, /status)",
            admin.address
        ));
    }
    let scaler = args.scaler.open().await?;
    let clock = Clock::start();
    let telemetry = TelemetryConfig {
        otlp_endpoint: args.otlp.endpoint(),
        seed: rand::random(),
        ..TelemetryConfig::default()
    };
    let telemetry = serve::observed_by(telemetry, &clock)?;
    let context = ProcessContext {
        account: Account::new(args.memory),
        decoders: DECODERS_MIN,
        cores,
        drain: args.drain,
        progress: serve::progress_on(&admin),
        ..ProcessContext::new(clock, super::library(), telemetry.clone())
    };
    let starting = move || begin(&args, &source, (context, telemetry), (holds, admin), reload);
    let starting = tokio::task::spawn_blocking(starting);
    let (process, mut reload) = tokio::select! {
        process = starting => process.context("the start failed")??,
        signal = signals.stop() => {
            say(&format!("{signal} while starting: ended, nothing was served"));
            serve::end(0);
        }
    };
    say(&format!("devices: {}", process.devices().join(", ")));
    if let Some(address) = process.address {
        say(&format!("reached by other processes on {address}"));
    }
    if let Some(scaler) = scaler {
        process.serve_scaler(scaler);
    }
    process.add_to(&mut reload);
    let reload = Arc::new(reload);
    let signal = tokio::select! {
        signal = signals.stop_or_reload(&reload) => signal,
        why = process.failed() => {
            complain(&format!("{why}: ended, so that requests go to other processes"));
            serve::end(1);
        }
    };
    say(&format!("{signal}: taking no more requests"));
    let ended = tokio::select! {
        ended = process.stop() => ended,
        again = signals.stop() => {
            say(&format!("{again} while draining: ending at once"));
            serve::end(1);
        }
    };
    if !ended.is_drained {
        say("what its workers had was not served in time, and goes to others");
    }
    for device in &ended.busy_devices {
        say(&format!("device {device} was still busy"));
    }
    say("stopped");
    serve::end(i32::from(!ended.busy_devices.is_empty()));
}

fn begin(
    args: &InnerArgs,
    source: &RoleSource,
    (context, telemetry): (ProcessContext, Arc<Telemetry>),
    (holds, admin): (Holds, Option<AdminPort>),
    mut reload: Reload,
) -> anyhow::Result<(InnerProcess, Reload)> {
    let pipelines = std::slice::from_ref(&args.pipeline);
    let loaded = start::load(
        pipelines,
        args.models.config(),
        Some(source),
        Some(&context),
    )?;
    source.add_to(&mut reload, &loaded);
    let role = loaded
        .role
        .context("a process of a topology has a role in it")?;
    let (process, name) = (role.process(), role.name());
    if process.gateway.is_some() {
        bail!("process {name:?} of the topology is a gateway: start it with `spillgate gateway`");
    }
    let (is_there, what, command) = match holds {
        Holds::Controllers => (!process.controllers.is_empty(), "controller", "worker"),
        Holds::Workers => (!process.workers.is_empty(), "worker", "controller"),
    };
    if !is_there {
        bail!(
            "process {name:?} of the topology has no {what}: start it with `spillgate {command}`"
        );
    }
    if process.controllers.is_empty() && args.scaler.is_given() {
        bail!(
            "--scaler-listen: process {name:?} holds no controller, which knows how many workers are wanted; give it to the one that does"
        );
    }
    if role.listen.is_none() {
        bail!("process {name:?} has no address in the topology");
    }
    link_warnings(&role).iter().for_each(|line| say(line));
    let inner = InnerProcess::start(context, telemetry, role, admin, loaded.revision);
    let inner = tokio::runtime::Handle::current().block_on(inner)?;
    Ok((inner, reload))
}
