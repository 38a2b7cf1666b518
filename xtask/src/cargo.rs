//! The commands that are cargo's own with the project's arguments.
//!
//! Whatever is tested, linted or run end to end is chosen with `--workspace`: cargo unifies features
//! over the packages it is asked for, so a narrower choice would compile the same crates once more.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use xtask::args::{Args, no_args, only_switch};
use xtask::workspace::Workspace;
use xtask::{process, setup};

use crate::slowest;

/// Tests that print nothing for this long hang.
pub(crate) const SILENCE: Duration = Duration::from_secs(20 * 60);

/// What test programs read the number of their threads from.
const TEST_THREADS: &str = "RUST_TEST_THREADS";

/// `cargo xtask test`: the test command of the README.
pub(crate) fn test(workspace: &Workspace, args: Args) -> Result<()> {
    setup::run(workspace)?;
    let (asked, args): (Args, Args) = args.into_iter().partition(|arg| arg == "--slowest");
    if asked.is_empty() {
        return process::run(test_command(workspace).args(args));
    }
    slowest::run(workspace, &args, |_| {})
}

/// The tests themselves. A failure keeps no other crate's tests from running.
pub(crate) fn test_command(workspace: &Workspace) -> Command {
    let mut cargo = workspace.cargo();
    cargo.args(["test", "--workspace", "--no-fail-fast"]);
    // Tests of real processes mostly wait, so two at a time for each core.
    if std::env::var_os(TEST_THREADS).is_none() {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        cargo.env(TEST_THREADS, (2 * cores).to_string());
    }
    cargo
}

/// `cargo xtask train`.
pub(crate) fn train(workspace: &Workspace, args: Args) -> Result<()> {
    trainer(workspace, "train", args)
}

/// `cargo xtask eval`.
pub(crate) fn eval(workspace: &Workspace, args: Args) -> Result<()> {
    trainer(workspace, "eval", args)
}

fn trainer(workspace: &Workspace, verb: &str, args: Args) -> Result<()> {
    setup::run(workspace)?;
    let mut cargo = workspace.cargo();
    cargo
        .args(["run", "--release", "-p", "spillgate-lab", "--", verb])
        .args(args);
    process::run(&mut cargo)
}

/// `cargo xtask fmt`.
pub(crate) fn fmt(workspace: &Workspace, args: Args) -> Result<()> {
    let mut cargo = workspace.cargo();
    cargo.args(["fmt", "--all"]);
    if only_switch(args, "check")? {
        cargo.arg("--check");
    }
    process::run(&mut cargo)
}

/// `cargo xtask clippy`.
pub(crate) fn clippy(workspace: &Workspace, args: Args) -> Result<()> {
    no_args(args)?;
    setup::run(workspace)?;
    let mut cargo = workspace.cargo();
    cargo.args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]);
    process::run(&mut cargo)
}

/// `cargo xtask doc`.
pub(crate) fn doc(workspace: &Workspace, args: Args) -> Result<()> {
    no_args(args)?;
    setup::run(workspace)?;
    let mut cargo = workspace.cargo();
    cargo
        .args(["doc", "--workspace", "--no-deps"])
        .env("RUSTDOCFLAGS", "-D warnings");
    process::run(&mut cargo)
}

/// `cargo xtask sim-smoke`: what needs neither libtorch nor a network.
pub(crate) fn sim_smoke(workspace: &Workspace, args: Args) -> Result<()> {
    no_args(args)?;
    let mut cargo = workspace.cargo();
    cargo.arg("test");
    for package in crate::tidy::PURE_CRATES {
        cargo.args(["-p", package]);
    }
    process::run(&mut cargo)
}
