//! `ci`: everything, ordered so that the quickest checks run first.
//!
//! Foreign tools build in the background meanwhile. The last line is the sum of all the tests that ran.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use xtask::args::{Args, no_args};
use xtask::process::{self, Daemon};
use xtask::workspace::Workspace;
use xtask::{setup, tools};

use crate::profile::Profile;
use crate::tally::Tally;
use crate::{cargo, demo, dist, e2e, faults, hostile, slowest, swarm, tidy};

/// The steps so far.
#[derive(Default)]
struct Run {
    tally: Tally,
    done: Vec<(&'static str, Duration)>,
}

impl Run {
    fn step(
        &mut self,
        name: &'static str,
        work: impl FnOnce(&mut Tally) -> Result<()>,
    ) -> Result<()> {
        println!("\n=== {name}");
        let begun = Instant::now();
        let result = work(&mut self.tally);
        let took = begun.elapsed();
        let verdict = if result.is_ok() { "ok" } else { "FAILED" };
        println!("=== {name}: {verdict}, {:.1} s", took.as_secs_f64());
        self.done.push((name, took));
        result.with_context(|| format!("step {name}"))
    }

    fn summary(&self) -> String {
        let steps: Vec<String> = self
            .done
            .iter()
            .map(|(name, took)| format!("{name} {:.0} s", took.as_secs_f64()))
            .collect();
        format!("ran: {}", steps.join(", "))
    }
}

/// `cargo xtask ci`.
pub(crate) fn command(workspace: &Workspace, args: Args) -> Result<()> {
    no_args(args)?;
    let begun = Instant::now();
    let mut run = Run::default();
    let result = steps(workspace, &mut run);
    println!(
        "\n{} (all: {:.0} s)",
        run.summary(),
        begun.elapsed().as_secs_f64()
    );
    if let Err(error) = &result {
        println!("ci failed: {error:#}");
        run.tally.note_failure();
    }
    println!("{}", run.tally);
    // The sum stays the last line.
    result.map_err(|_| xtask::AlreadyTold.into())
}

fn steps(workspace: &Workspace, run: &mut Run) -> Result<()> {
    run.step("fmt", |_| cargo::fmt(workspace, vec!["--check".into()]))?;
    run.step("tidy sources", |_| tidy::sources(workspace))?;
    let foreign_tools = build_tools(workspace)?;
    run.step("setup", |_| setup::run(workspace))?;
    run.step("clippy", |_| cargo::clippy(workspace, vec![]))?;
    // Users build the program alone, whose dependencies then have fewer features than in the workspace.
    run.step("check alone", |_| {
        process::run(workspace.cargo().args(["check", "-p", "spillgate"]))
    })?;
    // Apart from the tests, whose silence has a limit.
    run.step("build tests", |_| {
        process::run(cargo::test_command(workspace).arg("--no-run"))
    })?;
    run.step("test", |tally| {
        slowest::run(workspace, &[], |line| tally.read(line))?;
        if tally.is_empty() {
            bail!("no test ran")
        } else {
            Ok(())
        }
    })?;
    // The quick simulation suite, built with the tests.
    run.step("swarm", |_| swarm::run(workspace, &swarm::Options::CI))?;
    run.step("tidy pipelines", |_| tidy::built_pipelines(workspace))?;
    run.step("doc", |_| cargo::doc(workspace, vec![]))?;
    run.step("foreign tools", |_| foreign_tools.join())?;
    run.step("deny", |_| tools::deny(workspace, vec![]))?;
    run.step("e2e", |tally| {
        counted(&mut e2e::test_command(workspace)?, tally)
    })?;
    run.step("faults", |tally| {
        let mut command = faults::test_command(workspace, &faults::Options::quick());
        counted(&mut command, tally)
    })?;
    // These three run what the tests were built from, not a release build.
    // Long enough for every part of the README's first command to run, and no longer.
    run.step("demo", |_| {
        demo::run(
            workspace,
            &demo::Options {
                frames: 30,
                fps: 10,
                profile: Profile::Tests,
            },
        )
    })?;
    run.step("dist", |_| dist::run(workspace, Profile::Tests, false))?;
    run.step("hostile", |_| {
        hostile::run(workspace, &hostile::Options::CI)
    })
}

/// Runs tests and adds their results.
fn counted(command: &mut std::process::Command, tally: &mut Tally) -> Result<()> {
    process::run_lines(command, cargo::SILENCE, |line| tally.read(line))
}

/// `cargo xtask tools` beside everything else, at the lowest priority.
fn build_tools(workspace: &Workspace) -> Result<Daemon> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut nice = workspace.program("nice");
    nice.args(["-n", "10"]).arg(program).arg("tools");
    // The child finds the repository as this process did.
    nice.env("CARGO_MANIFEST_DIR", workspace.path("xtask"));
    Daemon::start(
        "building the foreign tools",
        &mut nice,
        &workspace.path("out/ci/tools.log"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_step_is_named_and_kept_in_the_summary() {
        let mut run = Run::default();
        run.step("first", |tally| {
            tally.read("test result: ok. 2 passed; 0 failed");
            Ok(())
        })
        .unwrap();
        let error = run.step("second", |_| bail!("broken")).unwrap_err();
        assert_eq!(format!("{error:#}"), "step second: broken");
        assert_eq!(run.summary(), "ran: first 0 s, second 0 s");
        assert_eq!(run.tally.to_string(), "2 passed, 0 failed");
    }
}
