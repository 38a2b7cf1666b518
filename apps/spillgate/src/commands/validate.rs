//! `spillgate validate`: checks pipeline files, and profile files, without serving them.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::files::{self, LoadError, LoadedPipeline};
use crate::model_check::Checks;
use clap::Args;
use indexmap::IndexMap;
use spillgate_pipeline::profile::ProfileSet;
use spillgate_pipeline::time::format_duration;

use super::models::ModelArgs;
use crate::commands;

/// Which files, how strictly.
#[derive(Args)]
pub(crate) struct ValidateArgs {
    /// Pipeline files, or profile files (*.profile.yaml).
    #[arg(required = true)]
    pipelines: Vec<PathBuf>,
    /// Treat warnings as errors.
    #[arg(long)]
    deny_warnings: bool,
    #[command(flatten)]
    models: ModelArgs,
}

/// Checks all files, also after one that is bad.
pub(crate) fn run(args: &ValidateArgs) -> anyhow::Result<ExitCode> {
    let library = commands::library();
    let catalog = library.catalog();
    let mut checks = Checks::new(args.models.config(), library)?;
    let mut bad = false;
    for file in &args.pipelines {
        if files::is_profile(file) {
            match files::load_profiles(file) {
                Ok(profiles) => super::print(&profiles_line(file, &profiles))?,
                Err(error) => {
                    eprintln!("{error}");
                    bad = true;
                }
            }
            continue;
        }
        match files::load(file, &catalog) {
            Ok(loaded) => {
                for warning in &loaded.warnings {
                    eprintln!("{warning}");
                }
                bad |= args.deny_warnings && !loaded.warnings.is_empty();
                checks.allow(std::slice::from_ref(&loaded));
                match servable(&loaded, &mut checks) {
                    Ok(warnings) => {
                        for warning in &warnings {
                            eprintln!("{warning}");
                        }
                        bad |= args.deny_warnings && !warnings.is_empty();
                    }
                    Err(error) => {
                        eprintln!("{error}");
                        bad = true;
                        continue;
                    }
                }
                let p = &loaded.pipeline;
                super::print(&format!(
                    "{}: ok: pipeline {}, {} modules, slo {}\n",
                    file.display(),
                    p.name,
                    p.modules.len() - 1,
                    format_duration(p.slo)
                ))?;
            }
            Err(error) => {
                eprintln!("{error}");
                bad = true;
            }
        }
    }
    Ok(ExitCode::from(if bad { super::BAD_SPEC } else { 0 }))
}

/// The checks that `serve` makes before it starts, in its order; gives warnings.
fn servable(loaded: &LoadedPipeline, checks: &mut Checks) -> Result<Vec<String>, LoadError> {
    loaded.check_models(&|_| true)?;
    loaded.check_profiles()?;
    let (families, mut warnings) = checks.pipeline(loaded, &|_| true, &|_| {})?;
    let file = loaded.file.display();
    let of_families = families.check_all();
    warnings.extend(of_families.map(|(module, refused)| {
        let module = &loaded.pipeline.modules[module.idx()];
        let (line, name) = (module.line, &module.name);
        format!("warning: {file}:{line}: modules.{name}: {refused}")
    }));
    Ok(warnings)
}

fn profiles_line(file: &Path, profiles: &ProfileSet) -> String {
    let of_kind = |(kind, modules): (&String, &IndexMap<String, _>)| {
        let modules: Vec<&str> = modules.keys().map(String::as_str).collect();
        format!("{kind}: {}", modules.join(", "))
    };
    let kinds: Vec<String> = profiles.devices.iter().map(of_kind).collect();
    format!("{}: ok: profiles of {}\n", file.display(), kinds.join("; "))
}
