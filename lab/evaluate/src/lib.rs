//! `spillgate-lab evaluate`: the evaluations of PARD, ORLOJ, Clockwork and Jellyfish in the simulator, with every published policy beside ours;
//! `spillgate-lab constants`: what the numbers of our own rules change; `spillgate-lab scale`: what grows with the number of processes.

mod clockwork;
mod constants;
mod grid;
mod jellyfish;
mod orloj;
mod report;
mod scale;
mod sections;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use spillgate_process::file;
use spillgate_sim::DEVICES_MAX;
use spillgate_sim::trace::TABLE_BYTES_MAX;

pub use constants::ConstantsArgs;
use grid::Grid;
use report::Report;
pub use scale::ScaleArgs;

/// What to evaluate.
#[derive(Args)]
pub struct EvaluateArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// The reference workload: four pipelines on 24 devices under three traces.
    Pard(PardArgs),
    /// Many models on few devices under every placement, on the workloads of Clockwork's evaluation.
    Clockwork(clockwork::ClockworkArgs),
    /// One dynamic module under every batch scheduler, on the workloads of ORLOJ's evaluation.
    Orloj(orloj::OrlojArgs),
    /// Cameras over links that change, under every way to choose variants, on the settings of Jellyfish's evaluation.
    Jellyfish(jellyfish::JellyfishArgs),
}

#[derive(Args)]
struct PardArgs {
    /// Folder with tweet.csv, wiki.csv and azure_400fn.csv; without it, generated traces of stated burstiness.
    #[arg(long)]
    traces: Option<PathBuf>,
    /// Devices.
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=i64::from(DEVICES_MAX)))]
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

/// Where pages are printed.
pub type Print = fn(&str) -> std::io::Result<()>;

/// Runs the evaluation, writes its pages, plots and tables, and prints the pages.
///
/// # Errors
/// Files that cannot be read or written, and invariants that did not hold.
pub fn run(args: &EvaluateArgs, print: Print) -> anyhow::Result<()> {
    match &args.what {
        What::Pard(args) => pard(args, print),
        What::Clockwork(args) => clockwork::run_all(args, print),
        What::Orloj(args) => orloj::run_all(args, print),
        What::Jellyfish(args) => jellyfish::run_all(args, print),
    }
}

/// Runs the table of constants, writes its page and prints it.
///
/// # Errors
/// As [`run`].
pub fn constants(args: &ConstantsArgs, print: Print) -> anyhow::Result<()> {
    constants::run_all(args, print)
}

/// Runs clusters of growing size, writes the page and prints it.
///
/// # Errors
/// As [`run`].
pub fn scale(args: &ScaleArgs, print: Print) -> anyhow::Result<()> {
    scale::run_all(args, print)
}

/// Reads a trace or a table.
fn read_table(path: &Path) -> anyhow::Result<String> {
    let text = file::read_text(path, TABLE_BYTES_MAX);
    text.with_context(|| format!("{} cannot be read", path.display()))
}

/// A command as its page shows it: `base`, and the flags that it was given.
fn command(base: &str, has_traces: bool, sections: &[impl ValueEnum]) -> String {
    let mut command = base.to_owned();
    if has_traces {
        command.push_str(" --traces FOLDER");
    }
    for section in sections.iter().filter_map(ValueEnum::to_possible_value) {
        command.push_str(" --section ");
        command.push_str(section.get_name());
    }
    command
}

/// The result of `run` for each, in order, on all cores.
fn in_parallel<T: Sync, R: Send>(
    todo: &[T],
    run: impl Fn(&T) -> anyhow::Result<R> + Sync,
) -> anyhow::Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, anyhow::Result<R>)>> = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(each) = todo.get(i) else { return };
                    let result = run(each);
                    done.lock().expect("no run panics").push((i, result));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("all threads have ended");
    done.sort_by_key(|result| result.0);
    done.into_iter().map(|result| result.1).collect()
}

fn pard(args: &PardArgs, print: Print) -> anyhow::Result<()> {
    for name in &args.section {
        anyhow::ensure!(
            sections::ALL.iter().any(|s| s.name == name),
            "no section \"{name}\"; sections are {}",
            sections::ALL.map(|s| s.name).join(", ")
        );
    }
    let grid = Grid::new(args.traces.as_deref(), args.gpus, args.quick)?;
    for section in sections::ALL {
        if !args.section.is_empty() && !args.section.iter().any(|s| s == section.name) {
            continue;
        }
        report::prepare(&args.out, section.name)?;
        eprintln!("{}: {}", section.name, section.title);
        let mut report = Report::new(section.name, section.title);
        report.say(&grid.describe());
        (section.run)(&grid, &mut report)?;
        report.write(&args.out, print)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The smallest grid, generated traces: every pipeline file compiles, sections run and say what they are.
    // Over five seconds: 87 simulated runs.
    #[test]
    fn sections_run_on_generated_traces() {
        let grid = Grid::new(None, 24, true).unwrap();
        let folder =
            std::env::temp_dir().join(format!("spillgate-evaluate-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        // Name, number of runs, and texts of its page.
        let expected: [(&str, usize, &[&str]); 2] = [
            (
                "modules",
                3 * 5,
                &["| spillgate |", "| tm | source | detect |"],
            ),
            (
                "reference",
                2 * 3 * 12,
                &[
                    "| nexus | 49.80 | 27.90 |",
                    "| *upper bound* | 10.30 |",
                    "points less than `pard`",
                ],
            ),
        ];
        for (name, runs, parts) in expected {
            let section = sections::ALL.iter().find(|s| s.name == name).unwrap();
            let mut report = Report::new(section.name, section.title);
            report.say(&grid.describe());
            (section.run)(&grid, &mut report).unwrap();
            report.write(&folder, |_| Ok(())).unwrap();
            let page = std::fs::read_to_string(folder.join(format!("{name}.md"))).unwrap();
            for part in parts.iter().chain(&["generated traces"]) {
                assert!(page.contains(part), "{part}: {page}");
            }
            let csv = std::fs::read_to_string(folder.join(format!("{name}.csv"))).unwrap();
            assert_eq!(csv.lines().count(), 1 + runs, "a line a run");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
