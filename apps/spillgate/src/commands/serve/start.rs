//! From pipeline files to a server: read, checked, measured where profiles are missing, loaded.

use std::path::PathBuf;
use std::sync::Arc;

use spillgate::admin::AdminPort;
use spillgate::embedded::Deployment;
use spillgate::files;
use spillgate::measure::{self, Effort};
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
    for loaded in files::load_all(pipelines, &library.catalog())? {
        for warning in &loaded.warnings {
            say(warning);
        }
        loaded.check_models()?;
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
