//! `swarm`: simulated clusters drawn from seeds, with faults. A seed that breaks is printed with the command that repeats it.

use anyhow::Result;
use lexopt::prelude::*;
use xtask::args::Args;
use xtask::process;
use xtask::workspace::Workspace;

/// Which seeds.
pub(crate) struct Options {
    first: u64,
    seeds: u64,
    /// Builds for speed: worth it for many seeds.
    is_release: bool,
}

impl Options {
    /// About a minute on one core, with what the tests built.
    pub(crate) const CI: Options = Options {
        first: 0,
        seeds: 500,
        is_release: false,
    };

    fn parse(args: Args) -> Result<Options> {
        let mut options = Options {
            seeds: 10_000,
            is_release: true,
            ..Options::CI
        };
        let mut parser = lexopt::Parser::from_args(args);
        while let Some(argument) = parser.next()? {
            match argument {
                Long("seeds") => options.seeds = parser.value()?.parse()?,
                Long("from") => options.first = parser.value()?.parse()?,
                Long("seed") => {
                    options.first = parser.value()?.parse()?;
                    options.seeds = 1;
                    options.is_release = false;
                }
                other => return Err(other.unexpected().into()),
            }
        }
        Ok(options)
    }
}

/// `cargo xtask swarm`.
pub(crate) fn command(workspace: &Workspace, args: Args) -> Result<()> {
    run(workspace, &Options::parse(args)?)
}

/// Runs the seeds, and fails when one breaks.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let mut cargo = workspace.cargo();
    cargo.args(["run", "-p", "spillgate-sim", "--example", "swarm"]);
    if options.is_release {
        cargo.arg("--release");
    }
    cargo.arg("--");
    cargo.args([options.first, options.seeds].map(|n| n.to_string()));
    process::run(&mut cargo)
}
