//! `spillgate profile --accuracy SOURCE`: how accurate the variants of a module are.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::accuracy::{self, labelled::Labelled};
use crate::deployment::Deployment;
use crate::files;
use spillgate_pipeline::pipeline::Module;
use spillgate_pipeline::profile::ProfileSet;
use spillgate_telemetry::logging::say;

use super::{ProfileArgs, Progress, check};
use crate::commands;

/// Measures one module and prints a line a variant, then the lines for the pipeline file.
pub(super) fn run(args: &ProfileArgs, source_name: &str) -> anyhow::Result<ExitCode> {
    let library = commands::library();
    let loaded = files::load(&args.pipeline, &library.catalog())?;
    let source = Labelled::open(source_name, args.frames)?;
    let what = accuracy::choose(&loaded.pipeline, args.module.as_deref(), source.kind())?;
    let runs = |module: &Module| module.id == what.module;
    // The pictures, where the source is a folder.
    let pictures = PathBuf::from(source_name);
    let families = check(&loaded, &args.models, &library, &runs, &[pictures])?;
    let deployment = Deployment {
        base_dir: loaded.base_dir(),
        pipeline: loaded.pipeline,
        profiles: ProfileSet::default(),
        families,
    };
    let mut progress = Progress::new();
    let name = &deployment.pipeline.modules[what.module.idx()].name;
    let text = format!("measuring the accuracy of {name} on {}", what.device);
    let count = source.count();
    let show = |done| {
        progress.show(text.clone(), done, count);
    };
    let measured = accuracy::measure(&deployment, &library, &what, &source, show)?;
    progress.finish();
    for warning in &measured.warnings {
        say(warning);
    }
    crate::commands::print(&measured.text())?;
    Ok(ExitCode::SUCCESS)
}
