//! From pipeline files to a server: read, checked, measured where profiles are missing, loaded.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use crate::admin::AdminPort;
use crate::deployment::{Deployment, Revision};
use crate::files::{self, LoadedPipeline};
use crate::measure::{self, Effort};
use crate::memory_limit::{Limit, Need};
use crate::model_check::{CheckConfig, Checks, Families};
use crate::process_context::ProcessContext;
use crate::process_role::ProcessRole;
use crate::reload::Reload;
use crate::security::link_warnings;
use crate::server::{ClientPort, Server};
use anyhow::bail;
use spillgate_backend::operator::Library;
use spillgate_link::tls::LinkTls;
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::Incarnation;
use spillgate_pipeline::pipeline::Module;
use spillgate_pipeline::placement::ServedBy;
use spillgate_protocol::topology::{Addresses, Process, Topology};
use spillgate_telemetry::Telemetry;
use spillgate_telemetry::logging::say;

use super::Progress;
use super::pipeline_files::{PipelineFiles, revision_of};
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
pub(crate) struct RoleSource {
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

impl RoleSource {
    /// Adds the topology's file: what changes there is told. Other processes know this one by what it began with.
    pub(crate) fn add_to(&self, reload: &mut Reload, loaded: &Loaded) {
        let (TopologySource::File(file), Some(role)) = (&self.topology, &loaded.role) else {
            return;
        };
        let (file, topology) = (file.clone(), role.topology.clone());
        let pipeline = loaded.revision.deployments[0].pipeline.clone();
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

    /// Where a process listens for others; `None` where it is reached by none.
    fn listens(&self, process: &Process) -> Option<SocketAddr> {
        let written = process.address.as_deref();
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
    pub(crate) revision: Revision,
    pub(crate) library: Arc<Library>,
    pub(crate) role: Option<ProcessRole>,
    pub(super) checks: Checks,
}

/// Starts the server beside its admin port, which shows how far it is. Call it on a thread that may block, inside of the
/// runtime.
///
/// # Errors
/// Bad files, ports in use, devices and models that are missing.
pub(super) fn start(
    pipelines: &[PathBuf],
    models: CheckConfig,
    source: Option<&RoleSource>,
    (context, telemetry): (ProcessContext, Arc<Telemetry>),
    port: ClientPort,
    admin: Option<AdminPort>,
    mut reload: Reload,
) -> anyhow::Result<(Server, Option<PipelineFiles>, Reload)> {
    let loaded = load(pipelines, models, source, Some(&context))?;
    if let Some(role) = &loaded.role
        && role.process().gateway.is_none()
    {
        bail!(
            "process {:?} of the topology is no gateway: start it with `spillgate controller` or \
             `spillgate worker`",
            role.name()
        );
    }
    if let Some(source) = source {
        source.add_to(&mut reload, &loaded);
    }
    if let Some(role) = &loaded.role {
        link_warnings(role).iter().for_each(|line| say(line));
    }
    let context = match loaded.role.clone() {
        Some(role) => context.of_topology(role),
        None => context,
    };
    let revision = loaded.revision.clone();
    // The processes of a topology are restarted instead: all of them need the same files.
    let again = context.role.is_none().then(|| {
        let decider = context.sharing.as_ref().map(|placing| placing.decider);
        PipelineFiles::new(pipelines.to_vec(), ServedBy::one_process(decider), loaded)
    });
    let start = Server::start(context, telemetry, port, admin, revision);
    let server = tokio::runtime::Handle::current().block_on(start)?;
    Ok((server, again, reload))
}

/// Reads and checks what is to be served: in this process, where its context is given. It blocks.
///
/// # Errors
/// Bad files, models and profiles that are missing.
pub(crate) fn load(
    pipelines: &[PathBuf],
    models: CheckConfig,
    source: Option<&RoleSource>,
    context: Option<&ProcessContext>,
) -> anyhow::Result<Loaded> {
    let library = context.map_or_else(commands::library, |context| context.library.clone());
    let tell = |what: &str| {
        if let Some(context) = context {
            (context.progress)(what);
        }
    };
    tell("reading the pipeline files");
    let mut all = files::load_all(pipelines, &library.catalog())?;
    if let Some(file) = source.and_then(|source| source.profiles.as_ref()) {
        for loaded in &mut all {
            loaded.profiles = files::load_profiles(file)?;
        }
    }
    let placing = context.and_then(|context| context.sharing.as_ref());
    let role = match source {
        Some(source) => Some(read_role(source, &mut all)?),
        None => {
            let by = ServedBy::one_process(placing.map(|placing| placing.decider));
            all.iter_mut().for_each(|loaded| loaded.served_by(by));
            None
        }
    };
    let runs = |module: &Module| role.as_ref().is_none_or(|role| role.runs(module.id));
    if let Some(context) = context {
        let placed = all.iter().any(|of| of.pipeline.policy.decider.is_some());
        let need = Need::of(&all, &runs, placed, context.account.budget());
        say(&need
            .judge(Limit::of_process().as_ref())
            .map_err(anyhow::Error::msg)?);
    }
    let mut checks = Checks::new(models, library.clone())?;
    checks.allow(&all);
    let families = check(&all, &mut checks, &runs, &tell)?;
    if let Some(confined) = checks.confined() {
        say(&format!(
            "model files were checked in a process of their own: {confined}"
        ));
    }
    if let Err(why) = checks.guard_loading(&[]) {
        say(&not_confined(&why));
    }
    let id = revision_of(&all, &library);
    let deployments = complete(all, families, &library, role.is_none(), &tell)?;
    Ok(Loaded {
        revision: Revision { id, deployments },
        library,
        role,
        checks,
    })
}

/// What is said where threads that run models can open what the process can.
pub(crate) fn not_confined(why: &str) -> String {
    format!(
        "warning: threads that run models and decode pictures are not confined to the files of models ({why}); only the list of \
         operators keeps models from opening others"
    )
}

/// What is served, of pipelines with their families, with the profiles that are missing, if they may be measured here.
pub(super) fn complete(
    all: Vec<LoadedPipeline>,
    families: Vec<Families>,
    library: &Arc<Library>,
    measures: bool,
    tell: &(dyn Fn(&str) + Sync),
) -> anyhow::Result<Vec<Deployment>> {
    let mut deployments = Vec::new();
    for (loaded, families) in all.into_iter().zip(families) {
        let base_dir = loaded.base_dir();
        let mut deployment = Deployment {
            pipeline: loaded.pipeline,
            base_dir,
            profiles: loaded.profiles,
            families,
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
fn read_role(source: &RoleSource, all: &mut [LoadedPipeline]) -> anyhow::Result<ProcessRole> {
    let [loaded] = all else {
        bail!(
            "the processes of one topology serve one pipeline, and {} are given",
            all.len()
        );
    };
    let topology = source.topology.read(&loaded.pipeline)?;
    let Some(process) = topology.position(&source.name) else {
        let names = topology.processes.iter().map(|p| &*p.name);
        let names: Vec<&str> = names.collect();
        bail!(
            "{} has no process {:?}; it has {}",
            source.topology,
            source.name,
            names.join(", ")
        );
    };
    loaded.served_by(ServedBy {
        decider: topology.sharing.map(|sharing| sharing.decider),
        gateways: Some(topology.n_gateways()),
    });
    Ok(ProcessRole {
        listen: source.listens(&topology.processes[process]),
        topology: Arc::new(topology),
        process,
        incarnation: Incarnation(rand::random()),
        tls: source.link_tls.clone(),
    })
}

/// Refuses what cannot be served, and gives the families of each pipeline. Of models, those of the modules that this process `runs` are checked, and may be loaded then.
pub(super) fn check(
    all: &[LoadedPipeline],
    checks: &mut Checks,
    runs: &dyn Fn(&Module) -> bool,
    tell: &dyn Fn(&str),
) -> anyhow::Result<Vec<Families>> {
    let mut families = Vec::new();
    for loaded in all {
        loaded.warnings.iter().for_each(|warning| say(warning));
        loaded.check_models(runs)?;
        loaded.check_profiles()?;
        let name = loaded.pipeline.name.clone();
        let tell =
            |module: &str| tell(&format!("pipeline {name}: checking the models of {module}"));
        let (of_it, warnings) = checks.pipeline(loaded, runs, &tell)?;
        warnings.iter().for_each(|warning| say(warning));
        families.push(of_it);
    }
    Ok(families)
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
