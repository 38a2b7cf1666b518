//! Files as they were when a server listed them. One that was written anew since, or is gone, is not what was listed.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A file, and what changes when it is written anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedFile {
    path: PathBuf,
    /// `None`: it could not be had.
    stamp: Option<Stamp>,
}

/// Its length, and when it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp(u64, Option<SystemTime>);

impl ListedFile {
    /// The file as it is now.
    pub fn now(path: PathBuf) -> Self {
        let stamp = stamp(&path).ok();
        ListedFile { path, stamp }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it still is what was listed.
    ///
    /// # Errors
    /// It changed or is gone: a sentence that begins with `its file`.
    pub fn is_as_listed(&self) -> Result<(), String> {
        let path = self.path.display();
        match stamp(&self.path) {
            Err(error) => Err(format!("its file {path} cannot be had: {error}")),
            Ok(now) if Some(now) == self.stamp => Ok(()),
            Ok(_) => Err(format!(
                "its file {path} changed since it was listed; restart the server, or let it read its files again (SIGHUP)"
            )),
        }
    }
}

fn stamp(path: &Path) -> std::io::Result<Stamp> {
    let found = std::fs::metadata(path)?;
    Ok(Stamp(found.len(), found.modified().ok()))
}
