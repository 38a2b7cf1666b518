//! `cargo xtask COMMAND`: set-up, checks, the demo, releases and the steps of CI.
//!
//! It stands outside the product: it depends on no other crate of the workspace, fetches libtorch
//! before anything that links with it is compiled, and starts everything else (cargo, the server, the
//! training program, Go, Python) as a child process that never outlives it.

mod cargo;
mod ci;
mod commands;
mod demo;
mod dist;
mod e2e;
mod hostile;
mod live;
mod overhead;
mod peers;
mod process;
mod setup;
mod tally;
mod tidy;
mod tools;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;

/// A failure that the command has reported itself.
#[derive(Debug)]
struct AlreadyTold;

impl std::fmt::Display for AlreadyTold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("failed, as reported above")
    }
}

impl std::error::Error for AlreadyTold {}

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            if !error.is::<AlreadyTold>() {
                eprintln!("error: {error:#}");
            }
            if process::interrupted() {
                ExitCode::from(130)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

fn run() -> Result<ExitCode> {
    process::watch_signals()?;
    let mut args = std::env::args_os().skip(1);
    let name = args.next().map(|name| name.to_string_lossy().into_owned());
    match name.as_deref() {
        None | Some("help" | "--help" | "-h") => {
            print!("{}", commands::help());
            Ok(ExitCode::SUCCESS)
        }
        Some(name) => match commands::find(name) {
            Some(command) => {
                let workspace = workspace::Workspace::locate()?;
                (command.run)(&workspace, args.collect())?;
                Ok(ExitCode::SUCCESS)
            }
            None => {
                eprint!("error: no command named {name:?}\n\n{}", commands::help());
                Ok(ExitCode::from(2))
            }
        },
    }
}
