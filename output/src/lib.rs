//! Files that are written whole or not at all. A profile that `spillgate profile` measures for minutes must not replace a good one
//! by a part of itself when the disk is full.
//!
//! Everything is written to a file beside, `.NAME.XXXXXX` in the same folder. [`Output::finish`] syncs it, renames it into place and
//! syncs the folder. Until then the old file is what readers find, and an output that is dropped takes its file beside with it.
//!
//! A path whose file is no regular one, like `/dev/null` or a pipe, is written straight to: there is nothing to replace.

use std::fs::{File, Permissions};
use std::io::{ErrorKind, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// Rights of a file that was not there before; the umask takes from them.
const RIGHTS: u32 = 0o666;

/// Why a file could not be written. Its text names the file.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// A folder is there.
    #[error("cannot write {}: it is a folder; name a file in it", .path.display())]
    Folder {
        /// The path that was given.
        path: PathBuf,
    },
    /// The file there may not be written.
    #[error("cannot write {}: {why}", .path.display())]
    File {
        /// The path that was given.
        path: PathBuf,
        /// The system's error.
        #[source]
        why: std::io::Error,
    },
    /// No file can be made beside it, or it cannot be renamed into place.
    #[error(
        "cannot write {}: it is written beside, in {}, and then renamed: {why}", .path.display(), .folder.display()
    )]
    Beside {
        /// The path that was given.
        path: PathBuf,
        /// The folder in which it would lie.
        folder: PathBuf,
        /// The system's error.
        #[source]
        why: std::io::Error,
    },
}

enum Target {
    /// The file beside, and where it goes.
    Beside(NamedTempFile, PathBuf),
    /// No regular file.
    Straight(File),
}

/// A file in the making.
pub struct Output {
    /// As it was given, for messages.
    path: PathBuf,
    target: Target,
}

impl Output {
    /// Begins a file, so that one that cannot be written is found before the work whose results it gets.
    ///
    /// # Errors
    /// When the path is a folder, is a file without the right to write, or its folder takes no file.
    pub fn begin(path: &Path) -> Result<Self, OutputError> {
        let file = |why| OutputError::File {
            path: path.to_owned(),
            why,
        };
        let found = match path.metadata() {
            Ok(found) => Some(found),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(file(error)),
        };
        let mut rights = None;
        if let Some(found) = found {
            if found.is_dir() {
                return Err(OutputError::Folder {
                    path: path.to_owned(),
                });
            }
            // Who may not write a file may not replace it either.
            let there = File::options().write(true).open(path).map_err(file)?;
            // By its path as it was given: /dev/stdout leads to a pipe, which has no other name.
            if !found.is_file() {
                return Ok(Output {
                    path: path.to_owned(),
                    target: Target::Straight(there),
                });
            }
            rights = Some(found.permissions());
        }
        // A link stays; what it leads to is replaced.
        let place = match path.is_symlink() {
            true => path.canonicalize().map_err(file)?,
            false => path.to_owned(),
        };
        let folder = folder_of(&place);
        let beside = |why| OutputError::Beside {
            path: path.to_owned(),
            folder: folder.to_owned(),
            why,
        };
        let name = place.file_name().unwrap_or_default().to_string_lossy();
        let made = tempfile::Builder::new()
            .prefix(&format!(".{name}."))
            .permissions(Permissions::from_mode(RIGHTS))
            .tempfile_in(folder)
            .map_err(beside)?;
        if let Some(rights) = rights {
            made.as_file().set_permissions(rights).map_err(beside)?;
        }
        Ok(Output {
            path: path.to_owned(),
            target: Target::Beside(made, place),
        })
    }

    /// Completes the file: what was written is on the disk and at its path, or an error says why it is not.
    ///
    /// # Errors
    /// When the system cannot sync or rename it. What was at the path before is still there.
    pub fn finish(self) -> Result<(), OutputError> {
        let Output { path, target } = self;
        match target {
            Target::Straight(mut file) => {
                file.flush().map_err(|why| OutputError::File { path, why })
            }
            Target::Beside(made, place) => {
                let folder = folder_of(&place);
                let put = || {
                    made.as_file().sync_all()?;
                    made.persist(&place).map_err(|e| e.error)?;
                    sync_folder(folder)
                };
                put().map_err(|why| OutputError::Beside {
                    path,
                    folder: folder.to_owned(),
                    why,
                })
            }
        }
    }

    /// An error of writing, with the file's name.
    pub fn error(&self, why: std::io::Error) -> OutputError {
        OutputError::File {
            path: self.path.clone(),
            why,
        }
    }

    /// Where the bytes go until it is complete: for libraries that write to a path.
    pub fn beside(&self) -> &Path {
        match &self.target {
            Target::Beside(made, _) => made.path(),
            Target::Straight(_) => &self.path,
        }
    }

    fn file(&mut self) -> &mut File {
        match &mut self.target {
            Target::Beside(made, _) => made.as_file_mut(),
            Target::Straight(file) => file,
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.file().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file().flush()
    }
}

impl Seek for Output {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.file().seek(to)
    }
}

/// Writes a file, whole or not at all.
///
/// # Errors
/// When it cannot be written. What was at the path before is still there.
pub fn write(path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Result<(), OutputError> {
    let mut output = Output::begin(path.as_ref())?;
    let written = output.write_all(content.as_ref());
    written.map_err(|why| output.error(why))?;
    output.finish()
}

/// Says before the work whether its result can be written. Nothing is changed, and nothing stays beside while the work goes on.
///
/// # Errors
/// As [`Output::begin`].
pub fn check(path: &Path) -> Result<(), OutputError> {
    Output::begin(path).map(drop)
}

fn folder_of(place: &Path) -> &Path {
    match place.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// So that the new name is there after a loss of power, too.
fn sync_folder(folder: &Path) -> std::io::Result<()> {
    match File::open(folder)?.sync_all() {
        // File systems without names to sync, such as some network ones, say so.
        Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}

#[cfg(test)]
mod tests;
