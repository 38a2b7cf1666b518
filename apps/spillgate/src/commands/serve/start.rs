//! From pipeline files to a server: read, checked, measured where profiles are missing, loaded.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use crate::admin::AdminPort;
use crate::embedded::Deployment;
use crate::files::{self, LoadedPipeline};
use crate::measure::{self, Effort};
use crate::memory_limit::{Limit, Need};
use crate::model_check::{CheckConfig, Checks};
use crate::part::Part;
use crate::reload::Reload;
use crate::security::link_warnings;
use crate::server::{Server, ServerConfig};
use anyhow::bail;
use spillgate_backend::operator::Library;
use spillgate_link::tls::LinkTls;
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::Incarnation;
use spillgate_pipeline::pipeline::Module;
use spillgate_pipeline::placement::{Decider, ServedBy};
use spillgate_protocol::topology::{Addresses, Topology};
use spillgate_telemetry::logging::say;

use super::Progress;
use super::again::{Again, fingerprint};
use crate::commands;

/// Where a topology is written.
#[derive(Clone, Debug)]
pub(crate) enum TopologySource {
    /// In a file.
    File(PathBuf),
    /// In flags, or variables of the environment.
    Addresses {
        gateways: Vec<String>,
        controllers: Vec<String>,
        workers: Vec<String>,
    },
}

impl TopologySource {
    fn read(&self, pipeline: &Pipeline) -> anyhow::Result<Topology> {
        match self {
            TopologySource::File(file) => Ok(files::load_topology(file, pipeline)?),
            TopologySource::Addresses {
                gateways,
                controllers,
                workers,
            } => {
                let addresses = Addresses {
                    gateways,
                    controllers,
                    workers,
                };
                Ok(addresses.topology(pipeline)?)
            }
        }
    }
}

impl fmt::Display for TopologySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TopologySource::File(file) => write!(f, "{}", file.display()),
            TopologySource::Addresses { .. } => f.write_str("the topology by addresses"),
        }
    }
}

/// Where a process finds what it is in a topology.
#[derive(Clone, Debug)]
pub(crate) struct PartFile {
    /// The topology.
    pub(crate) topology: TopologySource,
    /// The name of the process.
    pub(crate) name: String,
    /// Profiles that are not in the file beside the pipeline.
    pub(crate) profiles: Option<PathBuf>,
    /// Where other processes reach it, if not at its address in the topology.
    pub(crate) link_listen: Option<SocketAddr>,
    /// Its certificates, if it shows one to other processes.
    pub(crate) link_tls: Option<Arc<LinkTls>>,
}

impl PartFile {
    /// Adds the topology's file: what changes there is told. Other processes know this one by what it began with.
    pub(crate) fn add_to(&self, reload: &mut Reload, loaded: &Loaded) {
        let (TopologySource::File(file), Some(part)) = (&self.topology, &loaded.part) else {
            return;
        };
        let (file, topology) = (file.clone(), part.topology.clone());
        let pipeline = loaded.deployments[0].pipeline.clone();
        reload.add("topology", vec![file.clone()], move || {
            let read = files::load_topology(&file, &pipeline);
            let read = read.map_err(|error| error.to_string())?;
            match read == *topology {
                true => Ok("nothing has changed".to_owned()),
                false => Err(format!(
                    "{} differs from what this process began with, and all processes need the same; restart them one after the other",
                    file.display()
                )),
            }
        });
    }

    /// Where the process listens for others; `None` where it is reached by none.
    pub(crate) fn listens(&self, part: &Part) -> Option<SocketAddr> {
        let written = part.topology.processes[part.process].address.as_deref();
        let by_name = || {
            // A name says on which port to listen, not where.
            let (_, port) = written?.rsplit_once(':')?;
            Some((Ipv6Addr::UNSPECIFIED, port.parse().ok()?).into())
        };
        let by_address = || written?.parse().ok();
        self.link_listen.or_else(by_address).or_else(by_name)
    }
}

/// What is to be served.
pub(crate) struct Loaded {
    pub(crate) deployments: Vec<Deployment>,
    pub(crate) library: Arc<Library>,
    pub(crate) part: Option<Part>,
    pub(super) checks: Checks,
    pub(super) fingerprint: String,
}

/// Starts the server beside its admin port, which shows how far it is. Call it on a thread that may block, inside of the
/// runtime.
///
/// # Errors
/// Bad files, ports in use, devices and models that are missing.
pub(super) fn start(
    pipelines: &[PathBuf],
    models: CheckConfig,
    part: Option<&PartFile>,
    config: ServerConfig,
    admin: Option<AdminPort>,
    mut reload: Reload,
) -> anyhow::Result<(Server, Option<Again>, Reload)> {
    let held = Held {
        clients: config.memory,
        decider: config.placing.as_ref().map(|placing| placing.decider),
    };
    let loaded = load(pipelines, models, part, admin.as_ref(), Some(held))?;
    if let Some(part) = &loaded.part
        && part.topology.processes[part.process].gateway.is_none()
    {
        bail!(
            "process {:?} of the topology is no gateway: start it with `spillgate controller` or \
             `spillgate worker`",
            part.name()
        );
    }
    if let Some(file) = part {
        file.add_to(&mut reload, &loaded);
    }
    let link_listen = part
        .zip(loaded.part.as_ref())
        .and_then(|(file, part)| file.listens(part));
    if let Some(part) = &loaded.part {
        let lines = link_warnings(part, link_listen);
        lines.iter().for_each(|line| say(line));
    }
    let config = ServerConfig {
        placing: match &loaded.part {
            Some(part) => part.placing(),
            None => config.placing,
        },
        link_listen,
        part: loaded.part.clone(),
        ..config
    };
    let served_by = ServedBy::one_process(config.placing.as_ref().map(|p| p.decider));
    let (deployments, library) = (loaded.deployments.clone(), loaded.library.clone());
    // The processes of a topology are restarted instead: all of them need the same files.
    let again = (config.part.is_none()).then(|| Again::new(pipelines.to_vec(), served_by, loaded));
    let start = Server::start_beside(admin, config, deployments, library);
    let server = tokio::runtime::Handle::current().block_on(start)?;
    Ok((server, again, reload))
}

/// What a process takes beside what its pipelines need.
pub(crate) struct Held {
    /// Bytes for clients, or for gateways.
    pub(crate) clients: u64,
    /// Decides about the models of its devices, outside of a topology, where not all stay that were read.
    pub(crate) decider: Option<Decider>,
}

/// Reads and checks what is to be served: in this process, where it says what it has for that. It blocks.
///
/// # Errors
/// Bad files, models and profiles that are missing.
pub(crate) fn load(
    pipelines: &[PathBuf],
    models: CheckConfig,
    part: Option<&PartFile>,
    admin: Option<&AdminPort>,
    held: Option<Held>,
) -> anyhow::Result<Loaded> {
    let library = commands::library();
    let tell = |what: &str| {
        if let Some(admin) = admin {
            admin.starting(what);
        }
    };
    tell("reading the pipeline files");
    let mut all = files::load_all(pipelines, &library.catalog())?;
    if let Some(file) = part.and_then(|part| part.profiles.as_ref()) {
        for loaded in &mut all {
            loaded.profiles = files::load_profiles(file)?;
        }
    }
    let part = match part {
        Some(part) => Some(read_part(part, &mut all)?),
        None => {
            let by = ServedBy::one_process(held.as_ref().and_then(|held| held.decider));
            all.iter_mut().for_each(|loaded| loaded.served_by(by));
            None
        }
    };
    let runs = |module: &Module| part.as_ref().is_none_or(|part| part.runs(module.id));
    if let Some(Held { clients, .. }) = held {
        let placed = all.iter().any(|of| of.pipeline.policy.decider.is_some());
        let need = Need::of(&all, &runs, placed, clients);
        say(&need
            .judge(Limit::of_process().as_ref())
            .map_err(anyhow::Error::msg)?);
    }
    let mut checks = Checks::new(models, library.clone())?;
    checks.allow(&all);
    check(&mut all, &mut checks, &runs, &tell)?;
    if let Some(confined) = checks.confined() {
        say(&format!(
            "model files were checked in a process of their own: {confined}"
        ));
    }
    if let Err(why) = checks.guard_loading(&[]) {
        say(&not_confined(&why));
    }
    let fingerprint = fingerprint(&all, &library);
    let deployments = complete(all, &library, part.is_none(), &tell)?;
    Ok(Loaded {
        deployments,
        library,
        part,
        checks,
        fingerprint,
    })
}

/// What is said where threads that run models can open what the process can.
pub(crate) fn not_confined(why: &str) -> String {
    format!(
        "warning: threads that run models and decode pictures are not confined to the files of models ({why}); only the list of \
         operators keeps models from opening others"
    )
}

/// What is served, with the profiles that are missing, if they may be measured here.
pub(super) fn complete(
    all: Vec<LoadedPipeline>,
    library: &Arc<Library>,
    measures: bool,
    tell: &(dyn Fn(&str) + Sync),
) -> anyhow::Result<Vec<Deployment>> {
    let mut deployments = Vec::new();
    for loaded in all {
        let base_dir = loaded.base_dir();
        let mut deployment = Deployment {
            pipeline: loaded.pipeline,
            base_dir,
            profiles: loaded.profiles,
            families: loaded.families,
        };
        if measures {
            measure_missing(&mut deployment, library, tell)?;
        }
        deployment.families.check_rest();
        deployments.push(deployment);
    }
    Ok(deployments)
}

/// What the process is in its topology. Where nothing else is written, the dispatch policy is the one for so many gateways.
fn read_part(file: &PartFile, all: &mut [LoadedPipeline]) -> anyhow::Result<Part> {
    let [loaded] = all else {
        bail!(
            "the processes of one topology serve one pipeline, and {} are given",
            all.len()
        );
    };
    let topology = file.topology.read(&loaded.pipeline)?;
    let Some(process) = topology.position(&file.name) else {
        let names = topology.processes.iter().map(|p| &*p.name);
        let names: Vec<&str> = names.collect();
        bail!(
            "{} has no process {:?}; it has {}",
            file.topology,
            file.name,
            names.join(", ")
        );
    };
    loaded.served_by(ServedBy {
        decider: topology.sharing.map(|sharing| sharing.decider),
        gateways: Some(topology.n_gateways()),
    });
    Ok(Part {
        topology: Arc::new(topology),
        process,
        incarnation: Incarnation(rand::random()),
        tls: file.link_tls.clone(),
    })
}

/// Refuses what cannot be served. Of models, those of the modules that this process `runs` are checked, and may be loaded then.
pub(super) fn check(
    all: &mut [LoadedPipeline],
    checks: &mut Checks,
    runs: &dyn Fn(&Module) -> bool,
    tell: &dyn Fn(&str),
) -> anyhow::Result<()> {
    for loaded in all {
        loaded.warnings.iter().for_each(|warning| say(warning));
        loaded.check_models(runs)?;
        loaded.check_profiles()?;
        let name = loaded.pipeline.name.clone();
        let tell =
            |module: &str| tell(&format!("pipeline {name}: checking the models of {module}"));
        for warning in checks.pipeline(loaded, runs, &tell)? {
            say(&warning);
        }
    }
    Ok(())
}

fn measure_missing(
    deployment: &mut Deployment,
    library: &Arc<Library>,
    tell: &(dyn Fn(&str) + Sync),
) -> anyhow::Result<()> {
    if measure::missing(deployment, false).is_empty() {
        return Ok(());
    }
    let name = deployment.pipeline.name.clone();
    say(&format!(
        "pipeline {name}: some profiles are missing and are measured now; `spillgate profile` keeps them"
    ));
    let mut progress = Progress::new();
    let show = |what: &_, done, total| {
        let at = progress.measuring(what, done, total);
        tell(&format!("pipeline {name}: {at}"));
    };
    measure::complete(deployment, library, false, Effort::QUICK, show)?;
    progress.finish();
    Ok(())
}
