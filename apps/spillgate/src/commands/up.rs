//! `spillgate up`: all processes of a set on this machine, as children that are restarted when they die.

pub(crate) mod child;
mod folder;
mod publishing;
mod reload;
mod rolling;
mod scaling;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::device_name::resolve_device;
use crate::device_sharing::DeviceSharing;
use crate::ports::loopback;
use anyhow::{Context, bail};
use clap::Args;
use nix::sys::signal::Signal;
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::catalog::ValueType;
use spillgate_pipeline::id::ModuleId;
use spillgate_pipeline::pipeline::Module;
use spillgate_protocol::publication::Definition;
use spillgate_protocol::session::rights::Kind;
use spillgate_protocol::topology::pipeline_of;
use spillgate_telemetry::logging::{complain, say, tell_times};
use tokio::net::TcpSocket;

use super::device_sharing::DeviceSharingArgs;
use super::models::ModelArgs;
use super::ranges::number;
use super::serve::role_source::CONTROLLER_PORT;
use super::serve::signals::{Heard, Signals};
use super::serve::start;
use child::Child;
use folder::Folder;
use reload::{Found, SetReload};
use rolling::Rolling;
use scaling::{Scaled, Scaling};

/// Most processes of a kind.
pub(crate) const PROCESSES_MAX: usize = 64;
/// How often children are looked at.
const LOOK: Duration = Duration::from_millis(100);
/// A signal that comes again so soon is the same one.
const REPEATED: Duration = Duration::from_millis(500);
/// How long children may take to end.
pub(crate) const END_LIMIT: Duration = Duration::from_secs(15);

/// What to run.
#[derive(Args)]
pub(crate) struct UpArgs {
    /// Pipeline files.
    #[arg(required = true)]
    pipelines: Vec<PathBuf>,
    /// Gateways.
    #[arg(long, default_value_t = 1,
        value_parser = number(1, PROCESSES_MAX, "each is a process"))]
    gateways: usize,
    /// Worker processes by module, like detect=2,plates=1; one of each other module. PIPELINE/detect=2 where several pipelines have a
    /// detect
    #[arg(long, value_delimiter = ',', value_name = "MODULE=N", value_parser = workers_of)]
    workers: Vec<(String, usize)>,
    /// Let the workers of modules with `workers: { min, max }` follow the load: at once when more are wanted, after a while when fewer are
    #[arg(long)]
    scale: bool,
    /// Port of the first gateway; the others have the following ones. 0: free ones.
    #[arg(long, default_value_t = 7700)]
    port: u16,
    /// Port on which processes register, for workers that are added by hand [default: 7720; where --port is 0, a free one]
    #[arg(long, value_name = "PORT")]
    control: Option<u16>,
    /// Folder for the profiles and the logs of the processes [default: a new one among temporary files]
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
    let loaded = start::load(&args.pipelines, args.models.config(), None, None)?;
    let deployments = &loaded.revision.deployments;
    let pipelines: Vec<&Pipeline> = deployments.iter().map(|of| &*of.pipeline).collect();
    let mut plan = Plan::of(&pipelines, &args)?;
    let (folder, is_temporary) = match &args.folder {
        Some(folder) => (folder.clone(), false),
        None => {
            let name = format!("spillgate-up-{}", std::process::id());
            (std::env::temp_dir().join(name), true)
        }
    };
    let folder = Folder::new(&folder)?;
    let mut served = Vec::new();
    for (i, (file, deployment)) in args.pipelines.iter().zip(deployments).enumerate() {
        served.push(Served {
            pipeline: std::path::absolute(file)
                .with_context(|| format!("{} has no place", file.display()))?,
            profiles: folder.add(&profiles_file(i), reload::profiles(deployment))?,
        });
    }
    let folder = Rc::new(folder);
    let at = folder.path().display();
    tell_times();
    say(&format!("logs are in {at}"));
    let mut children = Vec::new();
    for process in std::mem::take(&mut plan.processes) {
        children.push(Child::new(process, &plan, &served, &folder));
    }
    let (by_hand, control) = (by_hand(&served, plan.controller), plan.controller);
    let files = served.iter().map(|of| of.pipeline.clone()).collect();
    let modules = plan.modules.clone();
    let controller = children.iter().find(|of| of.kind() == Kind::Controller);
    let admin = controller.map(Child::admin).filter(|_| args.scale);
    let (scaling, ports) = match admin {
        Some(admin) => (Some(Scaling::new(plan, served, &folder, admin)), None),
        None => (None, Some(plan.ports)),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let reload = SetReload::new(files, modules, loaded);
    let has_died = runtime.block_on(supervise(
        children,
        (reload, control),
        scaling,
        &folder,
        &by_hand,
    ))?;
    drop(ports);
    match is_temporary && !has_died {
        true => drop(std::fs::remove_dir_all(folder.path())),
        false => say(&format!("logs stay in {at}")),
    }
    Ok(ExitCode::SUCCESS)
}

/// The files of a pipeline.
struct Served {
    pipeline: PathBuf,
    profiles: PathBuf,
}

/// What is said of a worker more, which a user may start.
fn by_hand(served: &[Served], controller: SocketAddr) -> String {
    let all = |of: fn(&Served) -> String| served.iter().map(of).collect::<String>();
    let pipelines = all(|of| format!(" {}", of.pipeline.display()));
    let profiles = all(|of| format!(" --profiles {}", of.profiles.display()));
    format!(
        "another worker: spillgate worker{pipelines} --controllers {controller}{profiles} --no-admin"
    )
}

/// The file of profiles of the pipeline at that position, in the folder of the set.
fn profiles_file(position: usize) -> String {
    match position {
        0 => "profiles.yaml".to_owned(),
        i => format!("profiles-{i}.yaml"),
    }
}

/// A process of the set.
struct Planned {
    kind: Kind,
    name: String,
    /// The position of the pipeline of its worker, and the module, if it is one. Other processes serve all pipelines.
    module: Option<(usize, String)>,
    /// The flag that says how much memory its device has for weights.
    memory: Option<String>,
    /// Where other processes reach it, unless it is a gateway.
    link: Option<SocketAddr>,
    /// Where clients reach it, if it is a gateway.
    clients: Option<SocketAddr>,
    admin: SocketAddr,
}

/// The processes of a set.
struct Plan {
    /// Where they register.
    controller: SocketAddr,
    /// How models share their devices, as flags.
    sharing: Vec<String>,
    processes: Vec<Planned>,
    /// By pipeline: the modules that have workers.
    modules: Vec<Vec<String>>,
    /// The modules whose workers may follow the load.
    scaled: Vec<Scaled>,
    ports: Ports,
}

impl Plan {
    fn of(pipelines: &[&Pipeline], args: &UpArgs) -> anyhow::Result<Self> {
        let modules = |of: &&Pipeline| with_workers(of).map(str::to_owned).collect();
        let modules: Vec<Vec<String>> = pipelines.iter().map(modules).collect();
        let asked = asked(&modules, pipelines, &args.workers)?;
        let placing = args.sharing.sharing();
        let devices = pipelines.iter().flat_map(|of| &of.modules[1..]);
        let devices: Vec<String> = devices.map(first_device).collect();
        let devices_named = devices.iter().map(String::as_str);
        if let Some(error) = placing.as_ref().and_then(|p| p.unknown(devices_named)) {
            bail!("--device: {error}");
        }
        let mut ports = Ports::default();
        let control = match args.control.unwrap_or(match args.port {
            0 => 0,
            _ => CONTROLLER_PORT,
        }) {
            0 => ports.take_free()?,
            port => ports.take(port).with_context(|| {
                format!("port {port}, on which processes register, cannot be had; choose another with --control")
            })?,
        };
        let mut plan = Plan {
            controller: control,
            sharing: placing.as_ref().map(sharing).unwrap_or_default(),
            processes: Vec::new(),
            modules,
            scaled: Vec::new(),
            ports,
        };
        for (i, module) in plan.with_modules() {
            let pipeline = pipelines[i];
            let n = asked.iter().find(|of| (of.0, &of.1) == (i, &module));
            let mut of = pipeline.modules.iter().skip(1);
            let memory = of.find(|m| m.name == module).zip(placing.as_ref());
            let memory = memory.and_then(|(module, placing)| memory_of(module, placing));
            let scaled = Scaled {
                prefix: match pipelines.len() {
                    1 => module.clone(),
                    _ => format!("{}-{module}", pipeline.name),
                },
                pipeline: (i, pipeline.name.clone()),
                module,
                memory,
            };
            for number in 0..n.map_or(1, |(_, _, n)| *n) {
                let worker = plan.worker(&scaled, number)?;
                plan.processes.push(worker);
            }
            plan.scaled.push(scaled);
        }
        let controller = Planned {
            link: Some(control),
            ..plan.process(Kind::Controller, "controller".to_owned())?
        };
        plan.processes.push(controller);
        for i in 0..args.gateways {
            let name = format!("gateway-{i}");
            let clients = match args.port {
                0 => plan.ports.take_free()?,
                first => plan.ports.take_following(first, i, &name)?,
            };
            let gateway = Planned {
                clients: Some(clients),
                ..plan.process(Kind::Gateway, name)?
            };
            plan.processes.push(gateway);
        }
        let mut names: Vec<&str> = plan.processes.iter().map(|of| &*of.name).collect();
        names.sort_unstable();
        if let Some(two) = names.windows(2).find(|two| two[0] == two[1]) {
            bail!(
                "two processes would have the name {}: processes are called PIPELINE-MODULE-NUMBER; give a pipeline or a module another name",
                two[0]
            );
        }
        Ok(plan)
    }

    /// The worker of a module with that number.
    fn worker(&mut self, of: &Scaled, number: usize) -> anyhow::Result<Planned> {
        Ok(Planned {
            module: Some((of.pipeline.0, of.module.clone())),
            memory: of.memory.clone(),
            link: Some(self.ports.take_free()?),
            ..self.process(Kind::Worker, format!("{}-{number}", of.prefix))?
        })
    }

    /// The modules that have workers, each with the position of its pipeline.
    fn with_modules(&self) -> Vec<(usize, String)> {
        let all = self.modules.iter().enumerate();
        let all = all.flat_map(|(i, of)| of.iter().map(move |module| (i, module.clone())));
        all.collect()
    }

    fn process(&mut self, kind: Kind, name: String) -> anyhow::Result<Planned> {
        Ok(Planned {
            kind,
            name,
            module: None,
            memory: None,
            link: None,
            clients: None,
            admin: self.ports.take_free()?,
        })
    }
}

/// How many workers are asked for: of which pipeline, by its position, which module, and how many.
fn asked(
    modules: &[Vec<String>],
    pipelines: &[&Pipeline],
    flags: &[(String, usize)],
) -> anyhow::Result<Vec<(usize, String, usize)>> {
    let mut asked: Vec<(usize, String, usize)> = Vec::new();
    for (name, n) in flags {
        let (of, module) = pipeline_of(name, pipelines)
            .map_err(|problem| anyhow::anyhow!("--workers: {problem}"))?;
        if !modules[of].iter().any(|known| known == module) {
            let known = modules[of].join(", ");
            bail!("--workers: no module named {module:?}; the pipeline has {known}");
        }
        if asked
            .iter()
            .any(|known| (known.0, &*known.1) == (of, module))
        {
            bail!("--workers: {name} is written twice; write it once");
        }
        asked.push((of, module.to_owned(), *n));
    }
    Ok(asked)
}

/// The modules that have workers. Only pictures are decoded.
fn with_workers(pipeline: &Pipeline) -> impl Iterator<Item = &str> {
    let needs_source = pipeline.source.ty == ValueType::Image;
    let modules = pipeline.modules.iter();
    let modules = modules.filter(move |m| m.id != ModuleId::SOURCE || needs_source);
    modules.map(|module| module.name.as_str())
}

/// The device of a worker of the module, where each has a process of its own.
fn first_device(module: &Module) -> String {
    resolve_device(&module.devices[0])
}

/// The flags that name the placement.
fn sharing(placing: &DeviceSharing) -> Vec<String> {
    let fairness = match placing.is_fair {
        true => "on",
        false => "off",
    };
    vec![
        format!("--placement={}", placing.decider.name()),
        format!("--fairness={fairness}"),
    ]
}

/// The flag that says how much memory the device of a module's worker has for weights, if that is bounded.
fn memory_of(module: &Module, placing: &DeviceSharing) -> Option<String> {
    let device = first_device(module);
    let bytes = placing.memory_of(&device)?;
    Some(format!("--device={device},memory={bytes}B"))
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
    (mut reload, controller): (SetReload, SocketAddr),
    mut scaling: Option<Scaling>,
    folder: &Folder,
    by_hand: &str,
) -> anyhow::Result<bool> {
    let mut signals = Signals::new()?;
    let (mut was_ready, mut is_announced) = (false, false);
    let mut rolling = Rolling::default();
    let signal = loop {
        for child in &mut children {
            child.look().await;
        }
        rolling.look(&mut children);
        if let Some(scaling) = scaling.as_mut().filter(|_| !rolling.is_under_way()) {
            scaling.look(&mut children).await;
        }
        let is_ready = children.iter().all(Child::is_ready);
        if is_ready && !was_ready && !rolling.is_under_way() {
            let gateways = children.iter().filter_map(Child::clients);
            let gateways: Vec<String> = gateways.collect();
            say(&format!(
                "all processes are ready; clients: {}",
                gateways.join(", ")
            ));
            let gateway = children.iter().find(|c| c.kind() == Kind::Gateway);
            if let Some(gateway) = gateway.filter(|_| !is_announced) {
                say(&format!(
                    "what they do: spillgate status --admin {}",
                    gateway.admin()
                ));
                say(by_hand);
                is_announced = true;
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
                Ok(definitions) if definitions.is_empty() => {
                    say("SIGHUP: rolling restart");
                    rolling.begin(&children);
                }
                Ok(definitions) => drop(tokio::spawn(publishing::publish(controller, definitions))),
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

/// Writes what was read for the processes that start from now on. Returns the definitions of the pipelines that state something else.
fn write_read(
    read: anyhow::Result<Found>,
    folder: &Folder,
) -> anyhow::Result<Vec<Arc<Definition>>> {
    let Found {
        profiles,
        definitions,
        ..
    } = read?;
    for (i, profiles) in profiles.into_iter().enumerate() {
        folder.add(&profiles_file(i), profiles)?;
    }
    Ok(definitions)
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
