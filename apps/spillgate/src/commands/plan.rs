//! `spillgate plan`: batch sizes and workers for a rate or a number of GPUs.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::commands;
use crate::device_assignment::execution_times;
use crate::files;
use clap::Args;
use clap::builder::PossibleValuesParser;
use spillgate_controller_policy::plan::{self, PlanName};
use spillgate_pipeline::time::format_duration;
use spillgate_sim::DEVICES_MAX;

/// Plans of which a smaller part than this is in time say so.
const IN_TIME: f64 = 0.98;

/// What to plan.
#[derive(Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct PlanArgs {
    /// Pipeline file with its profile file.
    pipeline: PathBuf,
    /// The least devices for this rate, in requests a second.
    #[arg(long, conflicts_with = "gpus")]
    rate: Option<f64>,
    /// The highest rate on this many devices.
    #[arg(long, value_parser = super::gpus())]
    gpus: Option<u32>,
    /// How batch sizes are chosen [default: that of the pipeline's drop policy]
    #[arg(long, value_parser = PossibleValuesParser::new(PlanName::ALL.map(PlanName::name)))]
    plan: Option<String>,
    /// Part of the requests that run a module behind a `when:`.
    #[arg(long, default_value_t = 1.0)]
    when: f64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Prints the plan.
pub(crate) fn run(args: &PlanArgs) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(
        args.rate.is_some() || args.gpus.is_some(),
        "nothing to plan for: give --rate or --gpus"
    );
    let rate_fits = args.rate.is_none_or(|r| r.is_finite() && r > 0.0);
    anyhow::ensure!(rate_fits, "--rate must be above 0");
    anyhow::ensure!(
        args.when > 0.0 && args.when <= 1.0,
        "--when lies above 0, up to 1"
    );
    let loaded = files::load(&args.pipeline, &commands::library().catalog())?;
    for warning in &loaded.warnings {
        eprintln!("{warning}");
    }
    let pipeline = &loaded.pipeline;
    let execution = execution_times(pipeline, &loaded.profiles)
        .map_err(|missing| super::unprofiled(&loaded, &missing))?;
    let name = args.plan.as_deref().and_then(PlanName::by_name);
    let name = name.unwrap_or(pipeline.policy.recipe().plan);
    let share: Vec<f64> = pipeline
        .modules
        .iter()
        .map(|m| if m.when.is_some() { args.when } else { 1.0 })
        .collect();
    let plan = match (args.gpus, args.rate) {
        (Some(gpus), _) => plan::plan_for_gpus(name, pipeline, &execution, &share, gpus)?,
        (None, rate) => {
            let rate = rate.unwrap_or_default();
            plan::plan_for_rate(name, pipeline, &execution, &share, rate)?
        }
    };
    let devices: u64 = plan.workers.iter().map(|n| u64::from(*n)).sum();
    anyhow::ensure!(
        devices <= u64::from(DEVICES_MAX),
        "that rate needs {devices} devices; at most {} are planned",
        DEVICES_MAX
    );
    let bottleneck = plan.bottleneck(&share);
    let rate = args.rate.unwrap_or(bottleneck);
    let in_time = plan.in_time(pipeline, &share, rate);
    let text = if args.json {
        let modules: Vec<_> = pipeline.modules[1..]
            .iter()
            .map(|m| {
                serde_json::json!({
                    "module": m.name,
                    "batch": plan.batch[m.id.idx()],
                    "workers": plan.workers[m.id.idx()],
                    "throughput": plan.throughput(m.id.idx()),
                })
            })
            .collect();
        let all = serde_json::json!({
            "plan": name.name(),
            "gpus": devices,
            "throughput": bottleneck,
            "rate": rate,
            "in_time": in_time,
            "modules": modules,
        });
        format!("{}\n", serde_json::to_string_pretty(&all)?)
    } else {
        let mut text = format!(
            "{} plan of {}: {} devices, {bottleneck:.1} requests/s\n{:<20} {:>6} {:>8} {:>12} {:>14}\n",
            name.name(),
            pipeline.name,
            devices,
            "module",
            "batch",
            "workers",
            "execution",
            "throughput/s"
        );
        for module in &pipeline.modules[1..] {
            let idx = module.id.idx();
            writeln!(
                text,
                "{:<20} {:>6} {:>8} {:>12} {:>14.1}",
                module.name,
                plan.batch[idx],
                plan.workers[idx],
                format_duration(plan.duration(module.id)),
                plan.throughput(idx)
            )?;
        }
        if in_time < IN_TIME * rate {
            writeln!(
                text,
                "note: batches take most of the slo: of {rate:.1} requests/s that come at random moments about {in_time:.0} \
                 are in time; for more, add workers or lengthen slo:"
            )?;
        }
        text
    };
    super::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
