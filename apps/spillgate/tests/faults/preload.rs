//! Libraries in C that change a process of the tests: `LD_PRELOAD` names them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;

/// A library, built from its source, that is removed when it is dropped.
pub(super) struct Preload(PathBuf);

impl Preload {
    /// Builds the library of a source of this folder.
    pub(super) fn build(source: &str) -> anyhow::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/faults");
        let name = format!("spillgate-{source}-{}-{n}.so", std::process::id());
        let library = Preload(std::env::temp_dir().join(name));
        let status = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(&library.0)
            .arg(folder.join(source))
            .status()
            .context("no C compiler (cc) was found")?;
        anyhow::ensure!(status.success(), "{source} does not compile");
        Ok(library)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Preload {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
