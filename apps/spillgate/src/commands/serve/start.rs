//! From pipeline files to a server: read, checked, measured where profiles are missing, loaded.

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
use spillgate_pipeline::Pipeline;
use spillgate_pipeline::pipeline::Module;
use spillgate_pipeline::placement::ServedBy;
use spillgate_protocol::session::rights::Kind;
use spillgate_telemetry::Telemetry;
use spillgate_telemetry::logging::say;

use super::Progress;
use super::definitions::FileTexts;
use super::pipeline_files::{PipelineFiles, revision_of};
use super::role_source::{RoleSource, SetSource, read_role};
use crate::commands;

/// What is to be served.
pub(crate) struct Loaded {
    pub(crate) revision: Revision,
    pub(crate) library: Arc<Library>,
    pub(crate) role: Option<ProcessRole>,
    pub(super) checks: Checks,
    texts: FileTexts,
}

impl Loaded {
    /// The context of a process of a set that serves this, and what it serves.
    pub(crate) fn into_set(
        self,
        context: ProcessContext,
        role: ProcessRole,
        source: &RoleSource,
    ) -> anyhow::Result<(ProcessContext, Revision)> {
        let Loaded {
            revision,
            library,
            checks,
            texts,
            ..
        } = self;
        let definitions = match &source.known {
            SetSource::File(_) => None,
            SetSource::Registers(_) => {
                Some(texts.definitions(&revision, source.clone(), library, checks)?)
            }
        };
        Ok((context.of_set(role, definitions), revision))
    }
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
        && !role.is(Kind::Gateway)
    {
        bail!(
            "process {:?} of the topology is no gateway: start it with `spillgate controller` or \
             `spillgate worker`",
            role.name
        );
    }
    if let Some(source) = source {
        source.add_to(&mut reload, &loaded);
    }
    if let Some(role) = &loaded.role {
        link_warnings(role).iter().for_each(|line| say(line));
    }
    let (context, revision, again) = match (loaded.role.clone(), source) {
        (Some(role), Some(source)) => {
            let (context, revision) = loaded.into_set(context, role, source)?;
            // What is published is served instead.
            (context, revision, None)
        }
        _ => {
            let decider = context.sharing.as_ref().map(|placing| placing.decider);
            let revision = loaded.revision.clone();
            let served_by = ServedBy::one_process(decider);
            let again = PipelineFiles::new(pipelines.to_vec(), served_by, loaded);
            (context, revision, Some(again))
        }
    };
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
    if let Some(source) = source {
        source.read_profiles(&mut all)?;
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
    let runs = |pipeline: &Pipeline, module: &Module| {
        let role = role.as_ref();
        role.is_none_or(|role| role.runs(&pipeline.name, module.id))
    };
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
    let (id, texts) = (revision_of(&all, &library), FileTexts::of(&all));
    let deployments = complete(all, families, &library, role.is_none(), &tell)?;
    let roles = role
        .as_ref()
        .map_or_else(Vec::new, |role| role.pipelines.clone());
    Ok(Loaded {
        revision: Revision {
            id,
            deployments,
            roles,
        },
        library,
        role,
        checks,
        texts,
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

/// Refuses what cannot be served, and gives the families of each pipeline. Of models, those of the modules that this process `runs` are checked, and may be loaded then.
pub(super) fn check(
    all: &[LoadedPipeline],
    checks: &mut Checks,
    runs: &dyn Fn(&Pipeline, &Module) -> bool,
    tell: &dyn Fn(&str),
) -> anyhow::Result<Vec<Families>> {
    let mut families = Vec::new();
    for loaded in all {
        loaded.warnings.iter().for_each(|warning| say(warning));
        let runs = |module: &Module| runs(&loaded.pipeline, module);
        loaded.check_models(&runs)?;
        loaded.check_profiles()?;
        let name = loaded.pipeline.name.clone();
        let tell =
            |module: &str| tell(&format!("pipeline {name}: checking the models of {module}"));
        let (of_it, warnings) = checks.pipeline(loaded, &runs, &tell)?;
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
