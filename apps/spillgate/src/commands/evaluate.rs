//! `spillgate evaluate pard`: PARD's evaluation in the simulator, with every published policy beside ours.

mod chart;
mod grid;
mod report;
mod sections;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};

use grid::Grid;
use report::Report;

/// What to evaluate.
#[derive(Args)]
pub(crate) struct EvaluateArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// The reference workload: four pipelines on 24 devices under three traces.
    Pard(PardArgs),
}

#[derive(Args)]
struct PardArgs {
    /// Folder with tweet.csv, wiki.csv and azure_400fn.csv; without it, generated traces of stated burstiness.
    #[arg(long)]
    traces: Option<PathBuf>,
    /// Devices.
    #[arg(long, default_value_t = 24)]
    gpus: u32,
    /// Only these sections; repeat it.
    #[arg(long)]
    section: Vec<String>,
    /// Where tables and plots go.
    #[arg(long, default_value = "docs/evaluation")]
    out: PathBuf,
    /// One pipeline, one window a trace, 30 s of it: to see that all works.
    #[arg(long)]
    quick: bool,
}

/// Runs the evaluation and writes what it showed.
pub(crate) fn run(args: &EvaluateArgs) -> anyhow::Result<ExitCode> {
    let What::Pard(args) = &args.what;
    for name in &args.section {
        anyhow::ensure!(
            sections::ALL.iter().any(|s| s.name == name),
            "no section \"{name}\"; sections are {}",
            sections::ALL.map(|s| s.name).join(", ")
        );
    }
    std::fs::create_dir_all(&args.out)
        .with_context(|| format!("{} cannot be made", args.out.display()))?;
    let grid = Grid::new(args.traces.as_deref(), args.gpus, args.quick)?;
    for section in sections::ALL {
        if !args.section.is_empty() && !args.section.iter().any(|s| s == section.name) {
            continue;
        }
        eprintln!("{}: {}", section.name, section.title);
        let mut report = Report::new(section.name, section.title);
        report.say(&grid.describe());
        (section.run)(&grid, &mut report)?;
        report.write(&args.out)?;
    }
    Ok(ExitCode::SUCCESS)
}
