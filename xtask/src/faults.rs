//! `faults`: breaks real processes of the program, their network and what surrounds them, and counts how each request ends.
//! `apps/spillgate/tests/faults` has the cases.

use std::process::Command;

use anyhow::{Result, bail};
use lexopt::prelude::*;
use xtask::args::Args;
use xtask::workspace::Workspace;
use xtask::{process, setup};

/// Which cases, and how often.
pub(crate) struct Options {
    /// As the cases read it: names, or a word for several.
    which: String,
    rounds: u32,
}

impl Options {
    /// The cases that differ most, once each.
    pub(crate) fn quick() -> Self {
        Options {
            which: "quick".to_owned(),
            rounds: 1,
        }
    }

    fn parse(args: Args) -> Result<Options> {
        let mut is_quick = false;
        let mut rounds = None;
        let mut names: Vec<String> = Vec::new();
        let mut parser = lexopt::Parser::from_args(args);
        while let Some(argument) = parser.next()? {
            match argument {
                Long("quick") => is_quick = true,
                Long("rounds") => rounds = Some(parser.value()?.parse()?),
                Value(name) => names.push(name.string()?),
                other => return Err(other.unexpected().into()),
            }
        }
        let which = match (is_quick, names.is_empty()) {
            (true, true) => "quick".to_owned(),
            (false, true) => "all".to_owned(),
            (false, false) => names.join(","),
            (true, false) => bail!("--quick chooses the cases; leave it or the names away"),
        };
        // The median of five is one of them.
        let rounds = rounds.unwrap_or(if which == "all" { 5 } else { 1 });
        if !(1..=100).contains(&rounds) {
            bail!("--rounds must be from 1 to 100");
        }
        Ok(Options { which, rounds })
    }
}

/// `cargo xtask faults`.
pub(crate) fn command(workspace: &Workspace, args: Args) -> Result<()> {
    let options = Options::parse(args)?;
    setup::run(workspace)?;
    process::run(&mut test_command(workspace, &options))
}

/// The cases, with the programs that the tests built.
pub(crate) fn test_command(workspace: &Workspace, options: &Options) -> Command {
    let mut cargo = workspace.cargo();
    cargo
        .args(["test", "--workspace", "--test", "faults"])
        .env("SPILLGATE_FAULTS", &options.which)
        .env("SPILLGATE_FAULT_ROUNDS", options.rounds.to_string());
    cargo
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<(String, u32)> {
        let options = Options::parse(args.iter().map(Into::into).collect())?;
        Ok((options.which, options.rounds))
    }

    #[test]
    fn cases_are_chosen_by_name_or_by_a_switch() {
        assert_eq!(parse(&[]).unwrap(), ("all".to_owned(), 5));
        assert_eq!(parse(&["--quick"]).unwrap(), ("quick".to_owned(), 1));
        let some = parse(&["worker-killed", "log-full", "--rounds", "3"]);
        assert_eq!(some.unwrap(), ("worker-killed,log-full".to_owned(), 3));
        assert!(parse(&["--quick", "log-full"]).is_err());
        assert!(parse(&["--rounds", "0"]).is_err());
    }
}
