//! `hostile`: attacks a build of the server as hostile clients would, with a polite one beside.

use std::path::PathBuf;

use anyhow::{Result, bail};
use lexopt::prelude::*;
use xtask::args::Args;
use xtask::process;
use xtask::setup;
use xtask::workspace::Workspace;

use crate::profile::Profile;

/// What is attacked, and for how long.
pub(crate) struct Options {
    pub(crate) spillgate: Option<PathBuf>,
    /// Which build attacks, and is attacked unless `spillgate` names another program.
    pub(crate) profile: Profile,
    pub(crate) only: Option<String>,
    /// Seconds of each attack.
    pub(crate) seconds: u64,
    /// Seconds of the soak.
    pub(crate) soak: u64,
}

impl Options {
    /// Long enough for each attack to show, and no longer.
    pub(crate) const CI: Options = Options {
        spillgate: None,
        profile: Profile::Tests,
        only: None,
        seconds: 2,
        soak: 30,
    };

    fn parse(args: Args) -> Result<Options> {
        let mut options = Options {
            seconds: 10,
            soak: 60,
            profile: Profile::Release,
            ..Options::CI
        };
        let mut parser = lexopt::Parser::from_args(args);
        while let Some(argument) = parser.next()? {
            match argument {
                Long("spillgate") => options.spillgate = Some(parser.value()?.into()),
                Long("only") => options.only = Some(parser.value()?.string()?),
                Long("seconds") => options.seconds = parser.value()?.parse()?,
                Long("soak") => options.soak = parser.value()?.parse()?,
                other => return Err(other.unexpected().into()),
            }
        }
        if !(1..=600).contains(&options.seconds) || options.soak > 3600 {
            bail!("--seconds must be from 1 to 600, --soak at most 3600");
        }
        Ok(options)
    }
}

/// `cargo xtask hostile`.
pub(crate) fn command(workspace: &Workspace, args: Args) -> Result<()> {
    run(workspace, &Options::parse(args)?)
}

/// Attacks, and fails when something did not hold.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    setup::run(workspace)?;
    let served = match &options.spillgate {
        Some(program) => program.clone(),
        None => options.profile.program(workspace, "spillgate")?,
    };
    let attacks = options.profile.program(workspace, "spillgate-lab")?;
    let mut hostile = workspace.program(attacks);
    hostile
        .args(["hostile", "--spillgate"])
        .arg(served)
        .arg("--pipelines")
        .arg(workspace.path("apps/pipelines"))
        .args(["--seconds", &options.seconds.to_string()])
        .args(["--soak", &options.soak.to_string()]);
    if let Some(only) = &options.only {
        hostile.args(["--only", only]);
    }
    process::run(&mut hostile)
}
