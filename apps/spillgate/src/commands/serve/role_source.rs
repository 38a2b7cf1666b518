//! What a process is in its set: as a file says, or as it registers.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::bail;
use spillgate_link::tls::LinkTls;
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::id::{GatewayId, Incarnation};
use spillgate_pipeline::placement::ServedBy;
use spillgate_pipeline::problem::Problem;
use spillgate_protocol::membership::PIPELINES_MAX;
use spillgate_protocol::session::Timing;
use spillgate_protocol::session::rights::Kind;
use spillgate_protocol::topology::{
    Process, Topology, check_address, controllers_of, entries_by_pipeline, entries_for, workers_of,
};
use spillgate_telemetry::logging::say;

use super::start::Loaded;
use crate::device_name::resolve_device;
use crate::device_sharing::DeviceSharing;
use crate::files::{self, LoadedPipeline};
use crate::ports::{self, loopback};
use crate::process_role::{KnownBy, PipelineRole, ProcessRole};
use crate::reload::Reload;

/// The port of a controller that names none.
pub(crate) const CONTROLLER_PORT: u16 = 7720;

/// How a process finds the others of its set.
#[derive(Clone, Debug)]
pub(crate) enum SetSource {
    /// A file names all of them.
    File(PathBuf),
    /// It registers.
    Registers(Box<Registration>),
}

/// As what a process registers, and where.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    pub(crate) kind: Kind,
    /// Hosts and ports.
    pub(crate) controllers: Vec<String>,
    /// Of workers or controllers: which of them it holds.
    pub(crate) modules: Vec<String>,
    /// Where others reach it, if that is not where it listens.
    pub(crate) address: Option<String>,
    pub(crate) timing: Timing,
    pub(crate) sharing: Option<DeviceSharing>,
}

impl Registration {
    /// What serves its pipelines: any number of gateways may register.
    pub(super) fn served_by(&self) -> ServedBy {
        ServedBy {
            decider: self.sharing.as_ref().map(|sharing| sharing.decider),
            gateways: Some(ServedBy::ANY_GATEWAYS),
        }
    }

    /// The process as topologies of the pipelines would have it; `None` of one of which it holds nothing.
    fn processes(
        &self,
        name: &str,
        pipelines: &[&Pipeline],
    ) -> anyhow::Result<Vec<Option<Process>>> {
        for address in self.controllers.iter().chain(&self.address) {
            check_address(address)?;
        }
        let flag = |problem: Problem| anyhow::anyhow!("--modules: {problem}");
        let entries = entries_by_pipeline(&self.modules, pipelines).map_err(flag)?;
        let all = pipelines.iter().zip(entries);
        let all = all.map(|(pipeline, entries)| match entries {
            Some(entries) => {
                let process = self.process(name, pipeline, &entries, false);
                Ok(Some(process.map_err(flag)?))
            }
            None => Ok(None),
        });
        all.collect()
    }

    /// What the process is for a pipeline.
    fn role(&self, pipeline: String, process: Process) -> PipelineRole {
        let topology = Topology {
            processes: vec![process],
            timing: self.timing,
            sharing: None,
        };
        PipelineRole {
            pipeline,
            topology: Arc::new(topology),
            process: 0,
        }
    }

    /// The entries of `--modules` for each of these pipelines, of all of which it holds something.
    pub(super) fn entries(&self, pipelines: &[&Pipeline]) -> anyhow::Result<Vec<Vec<String>>> {
        let entries = entries_by_pipeline(&self.modules, pipelines);
        let entries = entries.map_err(|problem| anyhow::anyhow!("--modules: {problem}"))?;
        Ok(entries.into_iter().map(Option::unwrap_or_default).collect())
    }

    /// What the process is for another revision of a pipeline, with these entries of `--modules` for it.
    pub(super) fn role_for(
        &self,
        name: &str,
        pipeline: &Pipeline,
        entries: &[String],
    ) -> anyhow::Result<PipelineRole> {
        let process = self.process(name, pipeline, entries, true);
        let process = process.map_err(|problem| anyhow::anyhow!("--modules: {problem}"))?;
        Ok(self.role(pipeline.name.clone(), process))
    }

    /// A worker process of whose modules the pipeline has none holds nothing of it, and is there for another revision.
    fn process(
        &self,
        name: &str,
        pipeline: &Pipeline,
        modules: &[String],
        of_other_revision: bool,
    ) -> Result<Process, Problem> {
        let (mut controllers, mut workers) = (Vec::new(), Vec::new());
        let left = entries_for(modules, pipeline, of_other_revision);
        let has_nothing = left.is_empty() && !modules.is_empty();
        match self.kind {
            Kind::Gateway => {}
            // One that plans for nothing would be a worker, which its certificate does not cover.
            Kind::Controller if has_nothing => controllers = controllers_of(modules, pipeline)?,
            Kind::Controller => controllers = controllers_of(&left, pipeline)?,
            // An empty list would mean all modules.
            Kind::Worker if has_nothing => {}
            Kind::Worker => workers = workers_of(&left, pipeline)?,
        }
        Ok(Process {
            name: name.into(),
            address: None,
            gateway: (self.kind == Kind::Gateway).then_some(GatewayId(0)),
            controllers,
            workers,
            memory: Vec::new(),
        })
    }

    /// Where it listens if nothing else is said: for this machine alone where the controllers are on it, else for all.
    fn listens(&self) -> Option<SocketAddr> {
        let is_here = |address: &String| {
            let host = address.rsplit_once(':').map_or("", |(host, _)| host);
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let ip = host.parse::<IpAddr>();
            host == "localhost" || ip.is_ok_and(|ip| ip.to_canonical().is_loopback())
        };
        let here = loopback();
        match self.kind {
            Kind::Gateway => None,
            Kind::Controller => Some((here, CONTROLLER_PORT).into()),
            Kind::Worker if self.controllers.iter().all(is_here) => Some((here, 0).into()),
            Kind::Worker => Some((Ipv6Addr::UNSPECIFIED, 0).into()),
        }
    }
}

/// Where a process finds what it is in a set.
#[derive(Clone, Debug)]
pub(crate) struct RoleSource {
    pub(crate) known: SetSource,
    /// The name of the process.
    pub(crate) name: String,
    /// The name of the set.
    pub(crate) set: String,
    /// Profiles that are not in the files beside the pipelines: a file for all of them, or one for each.
    pub(crate) profiles: Vec<PathBuf>,
    /// Where it listens for other processes, if that is said.
    pub(crate) link_listen: Option<SocketAddr>,
    /// Its certificates, if it shows one to other processes.
    pub(crate) link_tls: Option<Arc<LinkTls>>,
}

impl RoleSource {
    /// As what the process registers.
    ///
    /// # Errors
    /// A file names all processes.
    pub(super) fn registration(&self) -> anyhow::Result<&Registration> {
        match &self.known {
            SetSource::Registers(registration) => Ok(registration),
            SetSource::File(_) => bail!("the processes of a topology serve what their files say"),
        }
    }

    /// Adds the topology's file: what changes there is told. Other processes know this one by what it began with.
    pub(crate) fn add_to(&self, reload: &mut Reload, loaded: &Loaded) {
        let (SetSource::File(file), Some(role)) = (&self.known, &loaded.role) else {
            return;
        };
        let (file, topology) = (file.clone(), role.pipelines[0].topology.clone());
        let pipeline = loaded.revision.deployments[0].pipeline.clone();
        reload.add("topology", vec![file.clone()], move || {
            let read = files::load_topology(&file, &pipeline);
            let read = read.map_err(|error| error.to_string())?;
            match read == *topology {
                true => Ok("nothing has changed".to_owned()),
                false => Err(format!(
                    "{} differs from what this process began with; restart the processes that it names otherwise, one after the other",
                    file.display()
                )),
            }
        });
    }

    /// Reads the profiles that are given.
    pub(super) fn read_profiles(&self, all: &mut [LoadedPipeline]) -> anyhow::Result<()> {
        match self.profiles.as_slice() {
            [] => {}
            [file] => {
                let profiles = files::load_profiles(file)?;
                all.iter_mut().for_each(|of| of.profiles = profiles.clone());
            }
            each if each.len() == all.len() => {
                for (loaded, file) in all.iter_mut().zip(each) {
                    loaded.profiles = files::load_profiles(file)?;
                }
            }
            some => bail!(
                "--profiles: {} files for {} pipelines; give one for all, or one for each, in their order",
                some.len(),
                all.len()
            ),
        }
        Ok(())
    }

    /// Where a process of a topology listens for others; `None` where it is reached by none.
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

/// What the process is in its set. Where nothing else is written, the dispatch policy is the one for so many gateways; of
/// gateways that register there may be any number. Pipelines of which the process holds nothing are left out.
pub(super) fn read_role(
    source: &RoleSource,
    all: &mut Vec<LoadedPipeline>,
) -> anyhow::Result<ProcessRole> {
    let role = |pipelines: Vec<PipelineRole>, timing| ProcessRole {
        name: source.name.as_str().into(),
        pipelines,
        timing,
        known_by: KnownBy::Topology,
        set: source.set.as_str().into(),
        incarnation: Incarnation(rand::random()),
        listener: None,
        address: None,
        sharing: None,
        tls: source.link_tls.clone(),
    };
    match &source.known {
        SetSource::File(file) => {
            let [loaded] = all.as_mut_slice() else {
                bail!(
                    "--topology: a topology is of one pipeline, and {} are given; for several, have the processes register (--controllers)",
                    all.len()
                );
            };
            let topology = files::load_topology(file, &loaded.pipeline)?;
            let Some(process) = topology.position(&source.name) else {
                let names = topology.processes.iter().map(|p| &*p.name);
                let names: Vec<&str> = names.collect();
                bail!(
                    "{} has no process {:?}; it has {}",
                    file.display(),
                    source.name,
                    names.join(", ")
                );
            };
            loaded.served_by(ServedBy {
                decider: topology.sharing.map(|sharing| sharing.decider),
                gateways: Some(topology.n_gateways()),
            });
            let listen = source.listens(&topology.processes[process]);
            let address = topology.processes[process].address.clone();
            let (sharing, timing) = (sharing_of(&topology, process), topology.timing);
            let of = PipelineRole {
                pipeline: loaded.pipeline.name.clone(),
                topology: Arc::new(topology),
                process,
            };
            Ok(ProcessRole {
                sharing,
                listener: listen.map(link_listener).transpose()?,
                address,
                ..role(vec![of], timing)
            })
        }
        SetSource::Registers(registration) => {
            let roles = registered(source, registration, all)?;
            let sharing = registration.sharing.clone();
            for loaded in all {
                loaded.served_by(registration.served_by());
            }
            let listen = source.link_listen.or_else(|| registration.listens());
            let listener = listen.map(link_listener).transpose()?;
            let bound = listener.as_ref().and_then(|of| of.local_addr().ok());
            let address = registration.address.clone();
            let address = address.or_else(|| bound.map(|at| format!(":{}", at.port())));
            Ok(ProcessRole {
                known_by: KnownBy::Controllers(registration.controllers.clone()),
                sharing,
                listener,
                address,
                ..role(roles, registration.timing)
            })
        }
    }
}

/// What a process that registers is for each pipeline. Those of which it holds nothing are taken out.
fn registered(
    source: &RoleSource,
    registration: &Registration,
    all: &mut Vec<LoadedPipeline>,
) -> anyhow::Result<Vec<PipelineRole>> {
    if all.len() > PIPELINES_MAX {
        bail!(
            "{} pipelines are given; a process of a set serves at most {PIPELINES_MAX}: divide them among several",
            all.len()
        );
    }
    let pipelines: Vec<&Pipeline> = all.iter().map(|loaded| &*loaded.pipeline).collect();
    let processes = registration.processes(&source.name, &pipelines)?;
    let mut roles = Vec::new();
    for (loaded, process) in std::mem::take(all).into_iter().zip(processes) {
        let pipeline = loaded.pipeline.name.clone();
        let Some(process) = process else {
            say(&format!(
                "pipeline {pipeline}: --modules names none of its modules, so this process serves nothing of it"
            ));
            continue;
        };
        if registration.kind == Kind::Worker && process.workers.is_empty() {
            say(&format!(
                "pipeline {pipeline} has none of the modules of --modules, so this process runs nothing of it until another revision has one"
            ));
        }
        roles.push(registration.role(pipeline, process));
        all.push(loaded);
    }
    Ok(roles)
}

/// The port on which other processes reach this one. It is taken before models are loaded, and answers once they are.
fn link_listener(at: SocketAddr) -> anyhow::Result<Arc<TcpListener>> {
    let listener = ports::bind_now(at, "--link-listen")?;
    listener.set_nonblocking(true)?;
    Ok(Arc::new(listener))
}

/// The placement of the devices of a process, as its topology says.
fn sharing_of(topology: &Topology, process: usize) -> Option<DeviceSharing> {
    let sharing = topology.sharing?;
    let memory = topology.processes[process].memory.iter();
    Some(DeviceSharing {
        decider: sharing.decider,
        is_fair: sharing.is_fair,
        memory: memory
            .map(|(device, bytes)| (resolve_device(device), *bytes))
            .collect(),
    })
}
