//! From pipeline files to a server: read, checked, measured where profiles are missing, loaded.

use std::path::PathBuf;
use std::sync::Arc;

use spillgate::admin::AdminPort;
use spillgate::embedded::Deployment;
use spillgate::files::{self, LoadedPipeline};
use spillgate::measure::{self, Effort};
use spillgate::model_check::{CheckConfig, Checks};
use spillgate::server::{Server, ServerConfig};
use spillgate_backend::operator::Library;
use spillgate_telemetry::logging::say;

use super::Progress;

/// Starts the server beside its admin port, which shows how far it is. Call it on a thread that may block, inside of the
/// runtime.
///
/// # Errors
/// Bad files, ports in use, devices and models that are missing.
pub(super) fn start(
    pipelines: &[PathBuf],
    models: CheckConfig,
    config: ServerConfig,
    admin: Option<AdminPort>,
) -> anyhow::Result<Server> {
    let library = Arc::new(spillgate_modules::library());
    let tell = |what: &str| {
        if let Some(admin) = &admin {
            admin.starting(what);
        }
    };
    let mut deployments = Vec::new();
    tell("reading the pipeline files");
    let all = files::load_all(pipelines, &library.catalog())?;
    check(&all, models, &tell)?;
    for loaded in all {
        let base_dir = loaded.base_dir();
        let mut deployment = Deployment {
            pipeline: loaded.pipeline,
            base_dir,
            profiles: loaded.profiles,
        };
        measure_missing(&mut deployment, &library, &tell)?;
        deployments.push(deployment);
    }
    let start = Server::start_beside(admin, config, deployments, library);
    Ok(tokio::runtime::Handle::current().block_on(start)?)
}

/// Refuses what cannot be served, and lets this process load only models that were checked.
fn check(all: &[LoadedPipeline], models: CheckConfig, tell: &dyn Fn(&str)) -> anyhow::Result<()> {
    let mut checks = Checks::new(models)?;
    for loaded in all {
        loaded.warnings.iter().for_each(|warning| say(warning));
        loaded.check_models()?;
        loaded.check_profiles()?;
        let name = &loaded.pipeline.name;
        let tell =
            |module: &str| tell(&format!("pipeline {name}: checking the models of {module}"));
        for warning in checks.pipeline(loaded, &tell)? {
            say(&warning);
        }
    }
    if let Some(confined) = checks.confined() {
        say(&format!(
            "model files were checked in a process of their own: {confined}"
        ));
    }
    checks.guard_loading();
    Ok(())
}

fn measure_missing(
    deployment: &mut Deployment,
    library: &Arc<Library>,
    tell: &dyn Fn(&str),
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
