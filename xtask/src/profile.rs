//! Which build of a program a command runs.

use std::path::PathBuf;

use anyhow::Result;
use xtask::workspace::Workspace;

/// A profile of cargo.
#[derive(Clone, Copy)]
pub(crate) enum Profile {
    /// That of the tests. CI runs these: the release profile would compile every dependency once more.
    Tests,
    /// The same with the features of the package alone: with those of the workspace each program links libtorch.
    Alone,
    /// What users run.
    Release,
}

impl Profile {
    /// The program of a package, which has its name. It is built if need be.
    pub(crate) fn program(self, workspace: &Workspace, package: &str) -> Result<PathBuf> {
        let (folder, args) = match self {
            // With the features of the whole workspace and its tests, as these are built: others would compile dependencies once more.
            Profile::Tests => ("debug", vec!["--workspace", "--tests", "--bin", package]),
            Profile::Alone => ("debug", vec!["-p", package]),
            Profile::Release => ("release", vec!["--release", "-p", package]),
        };
        workspace.build(&args)?;
        Ok(workspace.target_dir()?.join(folder).join(package))
    }
}
