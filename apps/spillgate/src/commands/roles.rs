//! `spillgate gateway`, `spillgate controller` and `spillgate worker`: one process of a set.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use crate::admin::{AdminPort, open_admin};
use crate::cores::Cores;
use crate::device_sharing::DeviceSharing;
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
use spillgate_process::account::Account;
use spillgate_process::clock::Clock;
use spillgate_protocol::session::rights::{Kind, SET_DEFAULT};
use spillgate_protocol::session::{NAME_BYTES_MAX, Timing};
use spillgate_telemetry::logging::{complain, say, tell_times};
use spillgate_telemetry::{Telemetry, TelemetryConfig};

use super::address::listen;
use super::cores::CoreArgs;
use super::device_sharing::DeviceSharingArgs;
use super::link_tls::LinkTlsArgs;
use super::models::ModelArgs;
use super::ranges::{duration, memory, number};
use super::scaler::ScalerArgs;
use super::serve::role_source::{Registration, RoleSource, SetSource};
use super::serve::signals::Signals;
use super::serve::start;
use super::serve::{self, DECODERS_MIN, DRAIN_MAX, OtlpArgs, ServeArgs, THREADS_MAX};

/// The longest silence after which a process is suspected.
const SUSPECT_MAX: Duration = Duration::from_secs(60);
/// How much longer it takes to lose a process than to suspect it.
const LOSE_PER_SUSPECT: u32 = 3;

/// Which process of which set.
#[derive(Args)]
pub(crate) struct RoleArgs {
    /// Addresses of the controllers, like control.example.org:7720: this process registers with each of them, and hears of the others
    #[arg(
        long,
        value_name = "ADDRESS",
        value_delimiter = ',',
        env = "SPILLGATE_CONTROLLERS",
        conflicts_with = "topology"
    )]
    controllers: Vec<String>,
    /// Where other processes reach this one [default: its link port, at the host from which it dials]
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "SPILLGATE_ADDRESS",
        conflicts_with = "topology"
    )]
    address: Option<String>,
    /// A silent process is suspected after this time, and lost after three times of it.
    #[arg(long, env = "SPILLGATE_SUSPECT", value_name = "DURATION", conflicts_with = "topology",
        value_parser = duration(SUSPECT_MAX, "requests wait for a process until it is suspected"))]
    suspect: Option<Duration>,
    /// In place of --controllers: a file that names all processes of one pipeline, and which roles each of them holds.
    #[arg(long, value_name = "FILE", env = "SPILLGATE_TOPOLOGY")]
    topology: Option<PathBuf>,
    /// Name of this process, which no other one of its set has [default: KIND-MACHINE-PID; with --topology, the name of this machine
    /// up to the first dot]
    #[arg(long, env = "SPILLGATE_NAME", value_parser = process_name)]
    name: Option<String>,
    /// Name of the set: processes of other sets are refused, and so are certificates for them
    #[arg(long, env = "SPILLGATE_SET", default_value = SET_DEFAULT, value_parser = set_name)]
    set: String,
    /// File of profiles, where it does not lie beside the pipeline. Of several pipelines: one for all, or one for each, in their order
    #[arg(long, value_name = "FILE", env = "SPILLGATE_PROFILES")]
    profiles: Vec<PathBuf>,
    /// Address to listen on for other processes [default: a free port for a worker, 127.0.0.1:7720 for a controller; with --topology,
    /// the address there, or its port on all interfaces where that is a name]
    #[arg(long, value_name = "ADDRESS", env = "SPILLGATE_LINK_LISTEN", value_parser = listen)]
    link_listen: Option<SocketAddr>,
    #[command(flatten)]
    tls: LinkTlsArgs,
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

    /// Reads the certificates: what is wrong with them is said before anything is loaded.
    fn source(
        &self,
        kind: Kind,
        modules: &[String],
        sharing: Option<DeviceSharing>,
    ) -> anyhow::Result<RoleSource> {
        let known = match &self.topology {
            Some(file) => {
                if !modules.is_empty() || sharing.is_some() {
                    bail!(
                        "--modules, --placement, --device, --fairness: a topology says these in its file (docs/processes.md)"
                    );
                }
                SetSource::File(file.clone())
            }
            None => {
                if self.controllers.is_empty() && kind != Kind::Controller {
                    bail!(
                        "--controllers: the address of a controller is missing; write --controllers 127.0.0.1:7720, or --topology FILE"
                    );
                }
                let usual = Timing::default();
                let timing = self
                    .suspect
                    .map(|suspect| usual.with_silence(suspect, LOSE_PER_SUSPECT * suspect));
                SetSource::Registers(Box::new(Registration {
                    kind,
                    controllers: self.controllers.clone(),
                    modules: modules.to_vec(),
                    address: self.address.clone(),
                    timing: timing.transpose().context("--suspect")?.unwrap_or(usual),
                    sharing,
                }))
            }
        };
        let name = self.name.clone().unwrap_or_else(|| match &known {
            SetSource::File(_) => machine(),
            SetSource::Registers(_) => format!("{kind}-{}-{}", machine(), std::process::id()),
        });
        let set: Arc<str> = self.set.as_str().into();
        Ok(RoleSource {
            known,
            name,
            set: self.set.clone(),
            profiles: self.profiles.clone(),
            link_listen: self.link_listen,
            link_tls: self.tls.read(set)?,
        })
    }
}

/// The name of a process: a certificate names it, and so do logs and traces.
fn process_name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    match (1..=NAME_BYTES_MAX).contains(&text.len()) && text.chars().all(is_plain) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "a name has 1 to {NAME_BYTES_MAX} letters, digits, - and _"
        )),
    }
}

/// The name of a set. It may have dots: names of certificates end with it.
pub(crate) fn set_name(text: &str) -> Result<String, String> {
    let labels = || text.split('.');
    match labels().all(|label| process_name(label).is_ok()) && text.len() <= NAME_BYTES_MAX {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "the name of a set has 1 to {NAME_BYTES_MAX} letters, digits, -, _ and dots between them"
        )),
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
    /// Pipeline files.
    #[arg(required = true)]
    pipelines: Vec<PathBuf>,
    #[command(flatten)]
    role: RoleArgs,
    /// What this process holds, by commas [default: each module once]. Of a worker: detect, detect=2 or detect=cuda:1. Of a
    /// controller: names of modules. PIPELINE/detect where several pipelines have a detect; detect? where the pipeline may lack it
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "MODULE",
        env = "SPILLGATE_MODULES"
    )]
    modules: Vec<String>,
    #[command(flatten)]
    sharing: DeviceSharingArgs,
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
    let source = args.role.source(Kind::Gateway, &[], args.serve.sharing())?;
    serve::run_as(args.serve, Some(source))
}

/// Runs a controller or worker until told to stop.
pub(crate) fn inner(args: InnerArgs, kind: Kind) -> anyhow::Result<ExitCode> {
    args.role.follow_parent()?;
    let sharing = args.sharing.sharing();
    let source = args.role.source(kind, &args.modules, sharing)?;
    let cores = args.core.reserve()?;
    let runtime = serve::runtime(args.threads)?;
    runtime.block_on(run(args, source, cores, kind))
}

async fn run(
    args: InnerArgs,
    source: RoleSource,
    cores: Cores,
    kind: Kind,
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
    let starting = move || begin(&args, &source, (context, telemetry), (kind, admin), reload);
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
    (kind, admin): (Kind, Option<AdminPort>),
    mut reload: Reload,
) -> anyhow::Result<(InnerProcess, Reload)> {
    let loaded = start::load(
        &args.pipelines,
        args.models.config(),
        Some(source),
        Some(&context),
    )?;
    source.add_to(&mut reload, &loaded);
    let role = loaded.role.clone();
    let role = role.context("a process of a set has a role in it")?;
    let name = &role.name;
    if role.is(Kind::Gateway) {
        bail!("process {name:?} of the topology is a gateway: start it with `spillgate gateway`");
    }
    if !role.is(kind) {
        let command = match kind {
            Kind::Controller => Kind::Worker,
            Kind::Gateway | Kind::Worker => Kind::Controller,
        };
        bail!(
            "process {name:?} of the topology has no {kind}: start it with `spillgate {command}`"
        );
    }
    if !role.is(Kind::Controller) && args.scaler.is_given() {
        bail!(
            "--scaler-listen: process {name:?} holds no controller, which knows how many workers are wanted; give it to the one that does"
        );
    }
    if role.listener.is_none() {
        bail!("process {name:?} has no address in the topology");
    }
    link_warnings(&role).iter().for_each(|line| say(line));
    let (context, revision) = loaded.into_set(context, role, source)?;
    let inner = InnerProcess::start(context, telemetry, admin, revision);
    let inner = tokio::runtime::Handle::current().block_on(inner)?;
    Ok((inner, reload))
}
