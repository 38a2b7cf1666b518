//! The arguments of a command.

use std::ffi::OsString;

use anyhow::Result;
use lexopt::prelude::*;

/// The arguments after the command's name.
pub type Args = Vec<OsString>;

/// Refuses arguments, for a command that takes none.
pub fn no_args(args: Args) -> Result<()> {
    match lexopt::Parser::from_args(args).next()? {
        None => Ok(()),
        Some(argument) => Err(argument.unexpected().into()),
    }
}

/// True if the one switch was given; anything else is refused.
pub fn only_switch(args: Args, switch: &str) -> Result<bool> {
    let mut parser = lexopt::Parser::from_args(args);
    let mut given = false;
    while let Some(argument) = parser.next()? {
        match argument {
            Long(name) if name == switch => given = true,
            other => return Err(other.unexpected().into()),
        }
    }
    Ok(given)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_are_strict() {
        assert!(!only_switch(vec![], "check").unwrap());
        assert!(only_switch(vec!["--check".into()], "check").unwrap());
        assert!(only_switch(vec!["--chekc".into()], "check").is_err());
        assert!(no_args(vec!["extra".into()]).is_err());
    }
}
