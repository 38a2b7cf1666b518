//! `e2e`: the end-to-end suite, `apps/spillgate/tests/e2e.rs`, against real foreign programs.
//!
//! The suite finds them through the environment and starts and stops them itself. A plain `cargo test`
//! leaves it out.

use std::process::Command;

use anyhow::Result;
use xtask::args::{Args, no_args};
use xtask::workspace::Workspace;
use xtask::{process, setup, tools};

/// `cargo xtask e2e`.
pub(crate) fn command(workspace: &Workspace, args: Args) -> Result<()> {
    no_args(args)?;
    setup::run(workspace)?;
    process::run(&mut test_command(workspace)?)
}

/// The suite, with every tool built.
pub(crate) fn test_command(workspace: &Workspace) -> Result<Command> {
    let python = tools::build_python(workspace)?;
    let grpcurl = tools::build_grpcurl(workspace)?;
    let jaeger = tools::build_jaeger(workspace)?;
    let mut cargo = workspace.cargo();
    cargo
        .args(["test", "--workspace", "--test", "e2e"])
        .env("SPILLGATE_JAEGER", jaeger)
        .env(
            "SPILLGATE_JAEGER_CONFIG",
            workspace.path("deploy/jaeger/config.yaml"),
        )
        .env("SPILLGATE_GRPCURL", grpcurl)
        .env("SPILLGATE_PYTHON", python);
    Ok(cargo)
}
