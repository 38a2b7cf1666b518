//! `cargo xtask COMMAND`: set-up, checks, the demo, releases and the steps of CI.
//!
//! It starts everything else (cargo, the server, the benchmarks, the training program, Go, Python) as a child process
//! that never outlives it.

mod bench;
mod cargo;
mod ci;
mod commands;
mod demo;
mod dist;
mod e2e;
mod faults;
mod hostile;
mod image;
mod kubernetes;
mod profile;
mod slowest;
mod soak;
mod swarm;
mod tally;
mod tidy;

use std::process::ExitCode;

use anyhow::Result;
use xtask::process;
use xtask::workspace::Workspace;

fn main() -> ExitCode {
    xtask::exit_code(run())
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
                let workspace = Workspace::locate()?;
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
