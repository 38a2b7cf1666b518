//! `spillgate profile`: measures modules and writes the profile file beside the pipeline. With `--accuracy` it measures how
//! accurate the variants of one module are, and writes nothing.

mod accuracy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use crate::deployment::Deployment;
use crate::files::{self, LoadedPipeline, profile_path};
use crate::measure::{self, Effort, LOADS_MEASURED};
use crate::model_check::{Checks, Families};
use clap::Args;
use spillgate_backend::operator::Library;
use spillgate_pipeline::pipeline::Module;
use spillgate_pipeline::profile::ProfileSet;
use spillgate_pipeline::profile_file::render_profiles;
use spillgate_pipeline::spec::OBJECTS_MAX;
use spillgate_telemetry::logging::say;

use super::models::ModelArgs;
use super::ranges::number;
use super::serve::{Progress, not_confined};
use crate::commands;

/// Most batches of a size: an hour of batches of 36 ms.
const ROUNDS_MAX: usize = 100_000;
/// Why.
const ROUNDS_WHY: &str = "each is a batch that runs, at each size";
/// Most frames of a scene: half an hour of a network that takes 20 ms.
pub(crate) const FRAMES_MAX: usize = 100_000;

/// What to measure, and how thoroughly.
#[derive(Args)]
pub(crate) struct ProfileArgs {
    /// Pipeline file.
    pipeline: PathBuf,
    /// Batches that count, for each batch size.
    #[arg(long, default_value_t = Effort::FULL.rounds, value_parser = number(1, ROUNDS_MAX, ROUNDS_WHY))]
    rounds: usize,
    /// Batches before those.
    #[arg(long, default_value_t = Effort::FULL.warm_up, value_parser = number(0, ROUNDS_MAX, ROUNDS_WHY))]
    warm_up: usize,
    /// Objects a frame brings to modules that work on objects.
    #[arg(long, default_value_t = Effort::FULL.objects,
        value_parser = number(0, OBJECTS_MAX as usize, "an example of more objects than a frame may bring measures nothing"))]
    objects: usize,
    /// Where to write it; beside the pipeline unless said. `-` is standard output: the file comes last, after a line `---`
    #[arg(long)]
    out: Option<PathBuf>,
    /// Measure how accurate each variant of a module is instead, and print `accuracy:` for the pipeline file; no file is
    /// written. On scene or scene:density=0.7, or on a folder: of pictures with YOLO labels (NAME.txt beside NAME.jpg, and
    /// classes.txt), or with a subfolder of pictures for each class
    #[arg(long, value_name = "SOURCE", conflicts_with_all = ["rounds", "warm_up", "objects", "out"])]
    accuracy: Option<String>,
    /// With --accuracy: the module [default: the first with several variants]
    #[arg(long, requires = "accuracy")]
    module: Option<String>,
    /// With --accuracy: frames of the scene, four of each street [default: 300]
    #[arg(long, requires = "accuracy", value_parser = number(1, FRAMES_MAX, "each is drawn, and runs with every variant"))]
    frames: Option<usize>,
    #[command(flatten)]
    models: ModelArgs,
}

/// Checks the models of these modules, and gives the families. From then on this process loads no others, and its threads that run them open no other files than
/// those of models and what lies in the folders `also`.
fn check(
    loaded: &LoadedPipeline,
    models: &ModelArgs,
    library: &Arc<Library>,
    runs: &dyn Fn(&Module) -> bool,
    also: &[PathBuf],
) -> anyhow::Result<Families> {
    loaded.check_models(runs)?;
    let mut checks = Checks::new(models.config(), library.clone())?;
    checks.allow(std::slice::from_ref(loaded));
    let (families, warnings) = checks.pipeline(loaded, runs, &|_| {})?;
    warnings.iter().for_each(|warning| say(warning));
    if let Err(why) = checks.guard_loading(also) {
        say(&not_confined(&why));
    }
    Ok(families)
}

/// Measures everything on this machine's devices. The file's profiles of other kinds of devices stay.
pub(crate) fn run(args: &ProfileArgs) -> anyhow::Result<ExitCode> {
    if let Some(source) = &args.accuracy {
        return accuracy::run(args, source);
    }
    let library = commands::library();
    let loaded = files::load(&args.pipeline, &library.catalog())?;
    let families = check(&loaded, &args.models, &library, &|_| true, &[])?;
    let out = args
        .out
        .clone()
        .unwrap_or_else(|| profile_path(&args.pipeline));
    let to_stdout = out == Path::new("-");
    if !to_stdout {
        spillgate_output::check(&out)?;
    }
    let base_dir = loaded.base_dir();
    let mut deployment = Deployment {
        pipeline: loaded.pipeline,
        base_dir,
        profiles: ProfileSet::default(),
        families,
    };
    let effort = Effort {
        warm_up: args.warm_up,
        rounds: args.rounds,
        objects: args.objects,
        ..Effort::FULL
    };
    let mut progress = Progress::new();
    let show = |what: &_, done, total| {
        progress.measuring(what, done, total);
    };
    let measured = measure::complete(&mut deployment, &library, true, effort, show)?;
    progress.finish();
    if measured.devices.is_empty() {
        super::print(
            "nothing to measure: no module runs a model on a real device; nothing written\n",
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut all = loaded.profiles;
    for (kind, modules) in &measured.devices {
        for (module, variants) in modules {
            for (variant, profile) in variants {
                all.insert(kind, module, variant, profile.clone());
                if let Some(load) = profile.load {
                    let load = load.as_secs_f64() * 1e3;
                    super::print(&format!("{kind} {module} {variant} load: {load:.2} ms\n"))?;
                }
                for p in &profile.points {
                    super::print(&format!(
                        "{kind} {module} {variant} batch {}: mean {:.2} ms, p50 {:.2}, p99 {:.2}\n",
                        p.batch,
                        p.mean.as_secs_f64() * 1e3,
                        p.p50.as_secs_f64() * 1e3,
                        p.p99.as_secs_f64() * 1e3
                    ))?;
                }
            }
        }
    }
    let header = format!(
        "Measured by `spillgate profile`: {} batches a size after {} to warm up, {} objects a frame where a module works on objects. A load \
         is the median of {LOADS_MEASURED}.",
        args.rounds, args.warm_up, args.objects
    );
    let text = render_profiles(&all, &header);
    if to_stdout {
        super::print(&format!("---\n{text}"))?;
        return Ok(ExitCode::SUCCESS);
    }
    spillgate_output::write(&out, text)?;
    super::print(&format!("written to {}\n", out.display()))?;
    Ok(ExitCode::SUCCESS)
}
