//! The parts that `cargo xtask` and the benchmarks of running servers share: paths, the check of installed programs,
//! and child processes that never outlive the program that started them.
//!
//! It is no part of the product: it depends on no other crate of the workspace, and fetches libtorch before anything
//! that links with it is compiled.

pub mod address;
pub mod args;
pub mod process;
pub mod setup;
pub mod tools;
pub mod workspace;

use std::process::ExitCode;

use anyhow::Result;

/// A failure that the command has reported itself.
#[derive(Debug)]
pub struct AlreadyTold;

impl std::fmt::Display for AlreadyTold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("failed, as reported above")
    }
}

impl std::error::Error for AlreadyTold {}

/// How a program ends: it says what went wrong, and 130 is for those that were interrupted.
pub fn exit_code(result: Result<ExitCode>) -> ExitCode {
    match result {
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
