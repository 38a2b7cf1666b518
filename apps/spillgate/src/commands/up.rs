//! `spillgate up`: all processes of a pipeline on this machine, as children that are restarted when they die.

pub(crate) mod child;
mod folder;
mod reload;
mod rolling;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use crate::device_name::resolve_device;
use crate::device_sharing::DeviceSharing;
use crate::files;
use anyhow::{Context, bail};
use clap::Args;
use nix::sys::signal::Signal;
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::catalog::ValueType;
use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::pipeline::Module;
use spillgate_telemetry::logging::{complain, say, tell_times};
use tokio::net::TcpSocket;

use super::device_sharing::DeviceSharingArgs;
use super::models::ModelArgs;
use super::ranges::number;
use super::serve::signals::{Heard, Signals};
use super::serve::start;
use child::{Child, Kind};
use folder::Folder;
use reload::{Restart, SetReload};
use rolling::Rolling;

/// Most processes of a kind.
pub(crate) const PROCESSES_MAX: usize = 64;
/// The file of profiles, in the folder of the set.
const PROFILES: &str = "profiles.yaml";
/// How often children are looked at.
const LOOK: Duration = Duration::from_millis(100);
/// A signal that comes again so soon is the same one.
const REPEATED: Duration = Duration::from_millis(500);
/// How long children may take to end.
pub(crate) const END_LIMIT: Duration = Duration::from_secs(15);

/// What to run.
#[derive(Args)]
pub(crate) struct UpArgs {
    /// The pipeline file.
    pipeline: PathBuf,
    /// Gateways.
    #[arg(long, default_value_t = 1,
        value_parser = number(1, PROCESSES_MAX, "each is a process"))]
    gateways: usize,
    /// Worker processes by module, like detect=2,plates=1; one of each other module.
    #[arg(long, value_delimiter = ',', value_name = "MODULE=N", value_parser = workers_of)]
    workers: Vec<(String, usize)>,
    /// Port of the first gateway; the others have the following ones. 0: free ones.
    #[arg(long, default_value_t = 7700)]
    port: u16,
    /// Folder for the topology file and the logs of the processes [default: a new one among temporary files]
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    #[command(flatten)]
    sharing: DeviceSharingArgs,
    #[command(flatten)]
    models: ModelArgs,
}

fn workers_of(text: &str) -> Result<(String, usize), String> {
    let wrong = || format!("expected a module and a number, like detect=2, found {text:?}");
    let (module, n) = text.split_once('=').ok_or_else(wrong)?;
    let n: usize = n.parse().map_err(|_| wrong())?;
    if !(1..=PROCESSES_MAX).contains(&n) {
        return Err(format!("{n} is out of range; use 1 to {PROCESSES_MAX}"));
    }
    Ok((module.to_owned(), n))
}

/// Runs all processes until told to stop.
pub(crate) fn run(args: UpArgs) -> anyhow::Result<ExitCode> {
    let pipelines = std::slice::from_ref(&args.pipeline);
    let loaded = start::load(pipelines, args.models.config(), None, None)?;
    let deployment = &loaded.revision.deployments[0];
    let pipeline = &deployment.pipeline;
    let plan = Plan::of(pipeline, &args)?;
    let (folder, is_temporary) = match &args.folder {
        Some(folder) => (folder.clone(), false),
        None => {
            let name = format!("spillgate-up-{}", std::process::id());
            (std::env::temp_dir().join(name), true)
        }
    };
    let folder = Folder::new(&folder)?;
    let topology = folder.add("topology.yaml", plan.topology)?;
    // What is wrong is said once, here.
    files::load_topology(&topology, pipeline)?;
    let profiles = folder.add(PROFILES, reload::profiles(deployment))?;
    let folder = Rc::new(folder);
    let at = folder.path().display();
    tell_times();
    say(&format!("topology and logs are in {at}"));
    let pipeline_file = std::path::absolute(&args.pipeline)
        .with_context(|| format!("{} has no place", args.pipeline.display()))?;
    let mut children = Vec::new();
    for process in plan.processes {
        let files = [&pipeline_file, &topology, &profiles];
        children.push(Child::new(process, files, &folder));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let reload = SetReload::new(pipeline_file, topology, loaded);
    let has_died = runtime.block_on(supervise(children, reload, &folder))?;
    drop(plan.ports);
    match is_temporary && !has_died {
        true => drop(std::fs::remove_dir_all(folder.path())),
        false => say(&format!("topology and logs stay in {at}")),
    }
    Ok(ExitCode::SUCCESS)
}

/// A process of the set.
struct Planned {
    kind: Kind,
    name: String,
    /// Where clients reach it, if it is a gateway.
    clients: Option<SocketAddr>,
    admin: SocketAddr,
}

/// The processes of a topology.
struct Plan {
    topology: String,
    processes: Vec<Planned>,
    ports: Ports,
}

impl Plan {
    fn of(pipeline: &Pipeline, args: &UpArgs) -> anyhow::Result<Self> {
        let needs_source = pipeline.source.ty == ValueType::Image;
        let modules = pipeline.modules.iter();
        let modules = modules.filter(|m| m.id != ModuleId::SOURCE || needs_source);
        let known: Vec<&str> = modules.map(|m| m.name.as_str()).collect();
        let twice = |i: usize| args.workers[..i].iter().any(|w| w.0 == args.workers[i].0);
        if let Some(i) = (0..args.workers.len()).find(|i| twice(*i)) {
            bail!(
                "--workers: {} is written twice; write it once",
                args.workers[i].0
            );
        }
        if let Some((module, _)) = args.workers.iter().find(|(m, _)| !known.contains(&&**m)) {
            let known = known.join(", ");
            bail!("--workers: no module named {module:?}; the pipeline has {known}");
        }
        let placing = args.sharing.sharing();
        let devices: Vec<String> = pipeline.modules[1..].iter().map(first_device).collect();
        let devices_named = devices.iter().map(String::as_str);
        if let Some(error) = placing.as_ref().and_then(|p| p.unknown(devices_named)) {
            bail!("--device: {error}");
        }
        let mut plan = Plan {
            topology: format!(
                "# Made by `spillgate up`.\n{}processes:\n",
                placing.as_ref().map(sharing).unwrap_or_default()
            ),
            processes: Vec::new(),
            ports: Ports::default(),
        };
        for module in &known {
            let asked = args.workers.iter().find(|(m, _)| m == module);
            let of = pipeline.modules.iter().find(|m| m.name == *module);
            let of = of.filter(|m| m.id != ModuleId::SOURCE).map(first_device);
            let of = of.as_deref().zip(placing.as_ref());
            let memory = of.and_then(|(device, placing)| memory(device, placing));
            let memory = memory.unwrap_or_default();
            for i in 0..asked.map_or(1, |(_, n)| *n) {
                let (name, address) = (format!("{module}-{i}"), plan.ports.take_free()?);
                plan.topology += &format!(
                    "  - {{ name: {name}, workers: {{ {module}: 1 }}, address: \"{address}\"{memory} }}\n"
                );
                plan.add(Kind::Worker, name, None)?;
            }
        }
        let address = plan.ports.take_free()?;
        plan.topology +=
            &format!("  - {{ name: controller, controllers: all, address: \"{address}\" }}\n");
        plan.add(Kind::Controller, "controller".to_owned(), None)?;
        for i in 0..args.gateways {
            let name = format!("gateway-{i}");
            plan.topology += &format!("  - {{ name: {name}, gateway: true }}\n");
            let clients = match args.port {
                0 => plan.ports.take_free()?,
                first => plan.ports.take_following(first, i, &name)?,
            };
            plan.add(Kind::Gateway, name, Some(clients))?;
        }
        Ok(plan)
    }

    fn add(&mut self, kind: Kind, name: String, clients: Option<SocketAddr>) -> anyhow::Result<()> {
        let admin = self.ports.take_free()?;
        self.processes.push(Planned {
            kind,
            name,
            clients,
            admin,
        });
        Ok(())
    }
}

/// The device of a worker of the module, where each has a process of its own.
fn first_device(module: &Module) -> String {
    resolve_device(&module.devices[0])
}

/// The lines of a topology that name the placement.
fn sharing(placing: &DeviceSharing) -> String {
    let fairness = match placing.is_fair {
        true => "on",
        false => "off",
    };
    format!(
        "placement: {}\nfairness: {fairness}\n",
        placing.decider.name()
    )
}

/// The field of a process that says how much memory its device has for weights, if that is bounded.
fn memory(device: &str, placing: &DeviceSharing) -> Option<String> {
    let bytes = placing.memory_of(device)?;
    Some(format!(", memory: {{ \"{device}\": {bytes}B }}"))
}

/// The address of loopback: that of IPv6 where there is none of IPv4.
fn loopback() -> IpAddr {
    let v4 = IpAddr::from(Ipv4Addr::LOCALHOST);
    match std::net::UdpSocket::bind((v4, 0)) {
        Ok(_) => v4,
        Err(_) => Ipv6Addr::LOCALHOST.into(),
    }
}

/// Ports of loopback for the processes. Each is bound here, without listening, until all processes have ended: a process may listen
/// there at any time, and the system gives it to nobody else.
#[derive(Default)]
struct Ports(Vec<TcpSocket>);

impl Ports {
    fn take(&mut self, port: u16) -> std::io::Result<SocketAddr> {
        let loopback = loopback();
        let socket = match loopback {
            IpAddr::V4(_) => TcpSocket::new_v4()?,
            IpAddr::V6(_) => TcpSocket::new_v6()?,
        };
        socket.set_reuseaddr(true)?;
        socket.bind((loopback, port).into())?;
        let address = socket.local_addr()?;
        self.0.push(socket);
        Ok(address)
    }

    fn take_free(&mut self) -> anyhow::Result<SocketAddr> {
        self.take(0).context("no port is free")
    }

    /// The port of a gateway that has its number after the first one's.
    fn take_following(&mut self, first: u16, i: usize, name: &str) -> anyhow::Result<SocketAddr> {
        let port = u16::try_from(i).ok().and_then(|i| first.checked_add(i));
        let port = port.with_context(|| format!("--port {first}: no port is left for {name}"))?;
        self.take(port).with_context(|| {
            format!("port {port} for {name} cannot be had; choose another with --port")
        })
    }
}

/// Starts the children, restarts those that die, and ends all when told to stop. Returns whether one died before.
async fn supervise(
    mut children: Vec<Child>,
    mut reload: SetReload,
    folder: &Folder,
) -> anyhow::Result<bool> {
    let mut signals = Signals::new()?;
    let mut was_ready = false;
    let mut rolling = Rolling::default();
    let signal = loop {
        for child in &mut children {
            child.look().await;
        }
        rolling.look(&mut children);
        let is_ready = children.iter().all(Child::is_ready);
        if is_ready && !was_ready && !rolling.is_under_way() {
            let gateways = children.iter().filter_map(Child::clients);
            let gateways: Vec<String> = gateways.collect();
            say(&format!(
                "all processes are ready; clients: {}",
                gateways.join(", ")
            ));
            let gateway = children.iter().find(|c| c.kind() == Kind::Gateway);
            if let Some(gateway) = gateway {
                say(&format!(
                    "what they do: spillgate status --admin {}",
                    gateway.admin()
                ));
            }
        }
        was_ready = is_ready;
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            signal = signals.any() => match signal {
                Heard::Stop(signal) => break signal,
                Heard::HangUp if rolling.is_under_way() || reload.is_reading() => {
                    say("SIGHUP: the last one is not done with yet; send it again then");
                }
                Heard::HangUp => reload.begin(),
            },
            read = reload.read() => match write_read(read, folder) {
                Ok(Restart::Rolling) => {
                    say("SIGHUP: rolling restart");
                    rolling.begin(&children);
                }
                Ok(Restart::Together) => {
                    say(
                        "SIGHUP: the pipeline or a profile is another one, and processes that serve others do not talk: \
                         all restart at once; nobody is served until they are ready",
                    );
                    tokio::select! {
                        () = end(&mut children) => {}
                        signal = signals.stop() => break signal,
                    }
                    children.iter_mut().for_each(Child::start_again);
                }
                Err(error) => complain(&format!(
                    "SIGHUP: {error:#}; nothing was restarted, what was served is served on"
                )),
            },
        }
    };
    say(&format!("{signal}: ending {} processes", children.len()));
    let second = async {
        // A wrapper like timeout(1) passes on what the terminal sends to all.
        let _ = tokio::time::timeout(REPEATED, signals.stop()).await;
        signals.stop().await
    };
    tokio::select! {
        () = end(&mut children) => say("stopped"),
        // Children that are left are killed when they are dropped.
        again = second => say(&format!("{again}: killing what is left")),
    }
    Ok(children.iter().any(Child::has_died))
}

/// Writes what was read for the processes that start from now on.
fn write_read(
    read: anyhow::Result<(Restart, Option<String>)>,
    folder: &Folder,
) -> anyhow::Result<Restart> {
    let (restart, profiles) = read?;
    if let Some(profiles) = profiles {
        folder.add(PROFILES, profiles)?;
    }
    Ok(restart)
}

/// Ends all. Gateways first: they answer what is in flight while workers serve it.
async fn end(children: &mut [Child]) {
    for kind in [Kind::Gateway, Kind::Worker, Kind::Controller] {
        let mut of_kind: Vec<&mut Child> =
            children.iter_mut().filter(|c| c.kind() == kind).collect();
        // Nobody is to go elsewhere: without the delay of SIGTERM.
        of_kind
            .iter_mut()
            .for_each(|child| child.ask_to_end(Signal::SIGINT));
        for child in of_kind {
            child.end(END_LIMIT).await;
        }
    }
}
