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
    build: Build,
}

/// Which build of the program runs.
#[derive(Clone, Copy, PartialEq)]
enum Build {
    /// The one of the tests, which were built before.
    Tests,
    /// One that is quickly made: for a single seed.
    Quick,
    /// One for speed: worth it for many seeds.
    Release,
}

impl Options {
    /// About a minute on one core.
    pub(crate) const CI: Options = Options {
        first: 0,
        seeds: 500,
        build: Build::Tests,
    };

    fn parse(args: Args) -> Result<Options> {
        let mut options = Options {
            seeds: 10_000,
            build: Build::Release,
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
                    options.build = Build::Quick;
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
    let mut swarm = match options.build {
        // Cargo would compile what the simulator depends on once more, with the features that it alone asks for.
        Build::Tests => workspace.program(workspace.target_dir()?.join("debug/examples/swarm")),
        Build::Quick | Build::Release => {
            let mut cargo = workspace.cargo();
            cargo.args(["run", "-p", "spillgate-sim", "--example", "swarm"]);
            if options.build == Build::Release {
                cargo.arg("--release");
            }
            cargo.arg("--");
            cargo
        }
    };
    swarm.args([options.first, options.seeds].map(|n| n.to_string()));
    process::run(&mut swarm)
}
