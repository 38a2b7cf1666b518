//! Benchmarks of running servers: `live`, `live-adapting`, `live-cameras`, `live-cluster`, `live-dynamic`, `live-models`, `live-prediction`, `live-shares`,
//! `bench-peers`, `bench-overhead` and `bench-processes` of `cargo xtask`, which builds and starts the laboratory. They reach servers as users do:
//! as processes, over ports and metrics.

mod h2load;
mod live;
mod observe;
mod overhead;
mod peers;
mod processes;
mod up;

use std::process::ExitCode;

use anyhow::{Result, bail};
use xtask::args::Args;
use xtask::process;
use xtask::workspace::Workspace;

/// Runs the benchmark of that name.
///
/// # Errors
/// When there is none, its arguments are wrong, or something that it starts fails.
pub fn run(name: &str, args: Args) -> Result<ExitCode> {
    process::watch_signals()?;
    let command: fn(&Workspace, Args) -> Result<()> = match name {
        "live" => live::command,
        "live-adapting" => live::cameras::overload::command,
        "live-cameras" => live::cameras::command,
        "live-cluster" => live::cluster::command,
        "live-dynamic" => live::dynamic::command,
        "live-models" => live::models::command,
        "live-prediction" => live::prediction::command,
        "live-shares" => live::shares::command,
        "bench-peers" => peers::command,
        "bench-overhead" => overhead::command,
        "bench-processes" => processes::command,
        _ => bail!("no benchmark named {name:?}; start them with cargo xtask"),
    };
    command(&Workspace::locate()?, args)?;
    Ok(ExitCode::SUCCESS)
}
