//! Folders of pictures, and small text files in them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use bytes::Bytes;
use spillgate_client::source::is_picture;
use spillgate_process::file::{self, FileError};

/// Most bytes of a file of labels: a hundred thousand objects.
const TEXT_BYTES_MAX: usize = 4 << 20;
/// Most bytes of a picture: hundreds of megapixels as JPEG.
const PICTURE_BYTES_MAX: usize = 64 << 20;

/// The file that names the classes of boxes.
pub(super) const CLASSES: &str = "classes.txt";

/// Whether a folder has pictures with YOLO labels, or is meant to have them.
pub(super) fn has_yolo(folder: &Path) -> Result<bool> {
    Ok(folder.join(CLASSES).exists() || !pictures(folder)?.is_empty())
}

/// The pictures right in a folder, in the order of their names.
pub(super) fn pictures(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = entries(folder)?;
    files.retain(|file| is_picture(file) && !file.is_dir());
    Ok(files)
}

/// The folders right in a folder, in the order of their names; without hidden ones.
pub(super) fn folders(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut folders = entries(folder)?;
    let is_hidden = |path: &Path| {
        let name = path.file_name().unwrap_or_default();
        name.to_string_lossy().starts_with('.')
    };
    folders.retain(|path| path.is_dir() && !is_hidden(path));
    Ok(folders)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let cannot = || format!("cannot read {}", folder.display());
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).with_context(cannot)? {
        all.push(entry.with_context(cannot)?.path());
    }
    all.sort();
    Ok(all)
}

/// Reads a small text file.
pub(super) fn text(path: &Path) -> Result<String, FileError> {
    file::read_text(path, TEXT_BYTES_MAX)
}

/// Reads the bytes of a picture. They are decoded where they are needed.
pub(super) fn picture(path: &Path) -> Result<Bytes> {
    let data = file::read(path, PICTURE_BYTES_MAX);
    let data = data.with_context(|| format!("cannot read {}", path.display()))?;
    Ok(data.into())
}
