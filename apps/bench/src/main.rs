//! Benchmarks of running servers: `live`, `live-adapting`, `live-cameras`, `live-cluster`, `live-dynamic`, `live-models`, `live-prediction`, `live-shares`,
//! `bench-peers`, `bench-overhead` and `bench-processes` of `cargo xtask`, which builds and starts this program. They reach servers as users do:
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

fn main() -> ExitCode {
    xtask::exit_code(run())
}

fn run() -> Result<ExitCode> {
    process::watch_signals()?;
    let mut args = std::env::args_os().skip(1);
    let name = args.next().unwrap_or_default();
    let command: fn(&Workspace, Args) -> Result<()> = match name.to_str() {
        Some("live") => live::command,
        Some("live-adapting") => live::cameras::overload::command,
        Some("live-cameras") => live::cameras::command,
        Some("live-cluster") => live::cluster::command,
        Some("live-dynamic") => live::dynamic::command,
        Some("live-models") => live::models::command,
        Some("live-prediction") => live::prediction::command,
        Some("live-shares") => live::shares::command,
        Some("bench-peers") => peers::command,
        Some("bench-overhead") => overhead::command,
        Some("bench-processes") => processes::command,
        _ => bail!("no benchmark named {name:?}; start them with cargo xtask"),
    };
    command(&Workspace::locate()?, args.collect())?;
    Ok(ExitCode::SUCCESS)
}
