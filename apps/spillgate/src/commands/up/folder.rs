//! The folder of a set: the files that its processes read when they start, and their logs.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// Something may delete the folder while the set runs, as programs do that clean a folder of temporary files. Each start of a process
/// puts back what is missing.
pub(super) struct Folder {
    /// Absolute: it is the same when the folder in which `up` was started is gone.
    path: PathBuf,
    files: RefCell<BTreeMap<PathBuf, String>>,
}

impl Folder {
    pub(super) fn new(path: &Path) -> anyhow::Result<Self> {
        Ok(Folder {
            path: std::path::absolute(path)
                .with_context(|| format!("the folder {} has no place", path.display()))?,
            files: RefCell::default(),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file, in place of one of that name, and keeps it. Returns its path.
    pub(super) fn add(&self, name: &str, text: String) -> anyhow::Result<PathBuf> {
        let path = self.path.join(name);
        self.make()?;
        spillgate_output::write(&path, &text)?;
        self.files.borrow_mut().insert(path.clone(), text);
        Ok(path)
    }

    /// The log of a process, to which it appends, after files that are gone were written anew.
    pub(super) fn log(&self, path: &Path) -> anyhow::Result<File> {
        self.make()?;
        let files = self.files.borrow();
        for (file, text) in files.iter().filter(|(file, _)| !file.exists()) {
            spillgate_output::write(file, text)?;
        }
        let log = File::options().create(true).append(true).open(path);
        log.with_context(|| format!("cannot write {}", path.display()))
    }

    fn make(&self) -> anyhow::Result<()> {
        std::fs::create_dir_all(&self.path)
            .with_context(|| format!("cannot make the folder {}", self.path.display()))
    }
}
