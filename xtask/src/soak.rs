//! `soak`: a set of processes under load for a long time, with a fault every 20 seconds. `apps/spillgate/tests/faults/soak.rs` does it.

use anyhow::{Result, bail};
use lexopt::prelude::*;
use xtask::args::Args;
use xtask::workspace::Workspace;
use xtask::{process, setup};

struct Options {
    minutes: f64,
    seed: u64,
}

impl Options {
    fn parse(args: Args) -> Result<Options> {
        let mut options = Options {
            minutes: 30.0,
            seed: 1,
        };
        let mut parser = lexopt::Parser::from_args(args);
        while let Some(argument) = parser.next()? {
            match argument {
                Long("minutes") => options.minutes = parser.value()?.parse()?,
                Long("seed") => options.seed = parser.value()?.parse()?,
                other => return Err(other.unexpected().into()),
            }
        }
        if !(1.0..=1440.0).contains(&options.minutes) {
            bail!("--minutes must be from 1 to 1440");
        }
        Ok(options)
    }
}

/// `cargo xtask soak`.
pub(crate) fn command(workspace: &Workspace, args: Args) -> Result<()> {
    let options = Options::parse(args)?;
    setup::run(workspace)?;
    let mut cargo = workspace.cargo();
    cargo
        .args(["test", "--workspace", "--test", "faults"])
        .env("SPILLGATE_SOAK_MINUTES", options.minutes.to_string())
        .env("SPILLGATE_SOAK_SEED", options.seed.to_string());
    process::run(&mut cargo)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_checked() {
        let parse = |args: &[&str]| Options::parse(args.iter().map(Into::into).collect());
        let options = parse(&["--minutes", "2.5", "--seed", "7"]).unwrap();
        assert_eq!((options.minutes, options.seed), (2.5, 7));
        assert_eq!(parse(&[]).unwrap().minutes, 30.0);
        assert!(parse(&["--minutes", "0"]).is_err());
        assert!(parse(&["--seconds", "9"]).is_err());
    }
}
