//! `spillgate-lab`: what those need who develop Spillgate or check what it claims. The server links nothing of it.

mod adapt;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use spillgate_evaluate::{ConstantsArgs, EvaluateArgs, ScaleArgs};

/// Evaluates policies, benchmarks and attacks running servers, and trains the shipped models.
#[derive(Parser)]
#[command(version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Evaluate policies in the simulator and write tables and plots.
    Evaluate(EvaluateArgs),
    /// Halve and double each constant of our own policies, leave its rule out, and write what that changes.
    Constants(ConstantsArgs),
    /// Simulate clusters of growing size and write what travels in them and what their decisions cost.
    Scale(ScaleArgs),
    /// Map clients to variants of a model and to workers, for one instance file.
    Adapt(adapt::AdaptArgs),
    /// Run a benchmark of running servers; `cargo xtask help` lists them, and `cargo xtask NAME` starts them.
    Bench(BenchArgs),
    /// Attack a real server as hostile clients would, beside a polite one.
    Hostile(spillgate_hostile::HostileArgs),
    #[command(flatten)]
    Models(spillgate_train::Command),
}

#[derive(Args)]
struct BenchArgs {
    /// Its name.
    name: String,
    /// Its own arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Evaluate(args) => {
            spillgate_evaluate::run(&args, spillgate_client::print).map(|()| ExitCode::SUCCESS)
        }
        Command::Constants(args) => spillgate_evaluate::constants(&args, spillgate_client::print)
            .map(|()| ExitCode::SUCCESS),
        Command::Scale(args) => {
            spillgate_evaluate::scale(&args, spillgate_client::print).map(|()| ExitCode::SUCCESS)
        }
        Command::Adapt(args) => adapt::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Bench(BenchArgs { name, args }) => spillgate_bench::run(&name, args),
        Command::Hostile(args) => spillgate_hostile::run(args),
        Command::Models(command) => spillgate_train::run(command).map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(1)
    })
}
