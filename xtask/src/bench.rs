//! The benchmarks of running servers, which are those of the laboratory (lab/bench).

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Context, Result};
use xtask::args::Args;
use xtask::setup;
use xtask::workspace::Workspace;

/// `cargo xtask live`.
pub(crate) fn live(workspace: &Workspace, args: Args) -> Result<()> {
    run(workspace, "live", args)
}

/// `cargo xtask live-adapting`.
pub(crate) fn live_adapting(workspace: &Workspace, args: Args) -> Result<()> {
    run(workspace, "live-adapting", args)
}

/// `cargo xtask live-cameras`.
pub(crate) fn live_cameras(workspace: &Workspace, args: Args) -> Result<()> {
    run(workspace, "live-cameras", args)
}

/// `cargo xtask live-cluster`.
pub(crate) fn live_cluster(workspace: &Workspace, args: Args) -> Result<()> {
    run(workspace, "live-cluster", args)
}

/// `cargo xtask live-dynamic`.
pub(crate) fn live_dynamic(workspace: &Workspace, args: Args) -> Result<()> {
    run(workspace, "live-dynamic", args)
}

/// `cargo xtask live-models`.
pub(crate) fn live_models(workspace: &Workspace, args: Args) -> Result<()> {
    run(workspace, "live-models", args)
}

/// `cargo xtask live-prediction`.
pub(crate) fn live_prediction(workspace: &Workspace, args: Args) -> Result<()> {
    run(workspace, "live-prediction", args)
}

/// `cargo xtask live-shares`.
pub(crate) fn live_shares(workspace: &Workspace, args: Args) -> Result<()> {
    run(workspace, "live-shares", args)
}

/// `cargo xtask bench-peers`.
pub(crate) fn peers(workspace: &Workspace, args: Args) -> Result<()> {
    run(workspace, "bench-peers", args)
}

/// `cargo xtask bench-overhead`.
pub(crate) fn overhead(workspace: &Workspace, args: Args) -> Result<()> {
    run(workspace, "bench-overhead", args)
}

/// `cargo xtask bench-processes`.
pub(crate) fn processes(workspace: &Workspace, args: Args) -> Result<()> {
    run(workspace, "bench-processes", args)
}

/// Builds the program and becomes it: it ends what it starts by itself, and paths among its arguments are relative to
/// where we were called.
fn run(workspace: &Workspace, name: &str, args: Args) -> Result<()> {
    setup::run(workspace)?;
    workspace.build(&["-p", "spillgate-lab"])?;
    let program = workspace.target_dir()?.join("debug/spillgate-lab");
    let error = Command::new(program)
        .args(["bench", name])
        .args(args)
        .exec();
    Err(error).context("cannot start spillgate-lab")
}
