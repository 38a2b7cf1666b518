//! The paths of the workspace, and calls of its tools.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::process;

/// The checked-out repository.
pub struct Workspace {
    root: PathBuf,
}

impl Workspace {
    /// The repository that this program was built from.
    pub fn locate() -> Result<Workspace> {
        // Not the compile-time path alone: a target folder may be shared by several checkouts.
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = manifest
            .ancestors()
            .find(|folder| folder.join("Cargo.lock").is_file())
            .context("this program was built from no workspace")?;
        Ok(Workspace {
            root: root.to_path_buf(),
        })
    }

    /// A workspace at a given place, for tests.
    pub fn at(root: &Path) -> Workspace {
        Workspace {
            root: root.to_path_buf(),
        }
    }

    /// The repository root.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A path below the root.
    pub fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    /// Where libtorch is put when the user brings none.
    pub fn own_libtorch(&self) -> PathBuf {
        self.path("third_party/libtorch")
    }

    /// Where ONNX Runtime is put.
    pub fn own_onnxruntime(&self) -> PathBuf {
        self.path("third_party/onnxruntime")
    }

    /// Where foreign tools are put. `SPILLGATE_TOOLS` moves it, so that several checkouts may share it.
    pub fn tools(&self) -> PathBuf {
        let folder = std::env::var_os("SPILLGATE_TOOLS");
        self.root
            .join(folder.unwrap_or_else(|| "third_party/tools".into()))
    }

    /// A program that runs in the repository root.
    pub fn program(&self, name: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(name);
        command.current_dir(&self.root);
        // `cargo run` describes this package to us; its children are not this package.
        for (key, _) in std::env::vars_os() {
            let key_text = key.to_string_lossy();
            if key_text.starts_with("CARGO_PKG_") || key_text.starts_with("CARGO_MANIFEST_") {
                command.env_remove(&key);
            }
        }
        command
    }

    /// Cargo, the same that runs us.
    pub fn cargo(&self) -> Command {
        self.program(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
    }

    /// `cargo build` with these arguments.
    ///
    /// # Errors
    /// When it fails, which cargo explains itself.
    pub fn build(&self, args: &[&str]) -> Result<()> {
        process::run(self.cargo().args(["build", "--quiet"]).args(args))
    }

    /// What `cargo metadata` says, with the dependency graph left out.
    pub fn metadata(&self) -> Result<Value> {
        let mut cargo = self.cargo();
        cargo.args(["metadata", "--format-version=1", "--no-deps"]);
        serde_json::from_str(&process::capture(&mut cargo)?).context("cargo metadata is not JSON")
    }

    /// Where cargo builds.
    pub fn target_dir(&self) -> Result<PathBuf> {
        let metadata = self.metadata()?;
        let dir = metadata["target_directory"]
            .as_str()
            .context("metadata has no target folder")?;
        Ok(PathBuf::from(dir))
    }

    /// Every text file that is or could be committed, relative to the root.
    pub fn files(&self) -> Result<Vec<String>> {
        let mut git = self.program("git");
        git.args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ]);
        let listing = process::capture(&mut git)?;
        let mut files: Vec<String> = listing
            .split('\0')
            .filter(|path| !path.is_empty() && self.root.join(path).is_file())
            .map(str::to_owned)
            .collect();
        files.sort();
        files.dedup();
        Ok(files)
    }
}
