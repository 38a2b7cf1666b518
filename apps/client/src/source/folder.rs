//! A folder of JPEG, PNG and WebP files in the order of their names, or one such file. Files are sent unchanged.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use bytes::Bytes;

use super::{Content, Source, SourceFrame};
use crate::picture;

pub(crate) struct FolderSource {
    files: Vec<PathBuf>,
    next: usize,
}

impl FolderSource {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let mut files = Vec::new();
        if path.is_dir() {
            let entries =
                fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
            for entry in entries {
                let file = entry
                    .with_context(|| format!("cannot read {}", path.display()))?
                    .path();
                if is_picture(&file) {
                    files.push(file);
                }
            }
            files.sort();
        } else {
            files.push(path.to_owned());
        }
        if files.is_empty() {
            bail!("{} has no .jpg, .jpeg, .png or .webp files", path.display());
        }
        Ok(FolderSource { files, next: 0 })
    }
}

/// Whether a file is a JPEG, PNG or WebP, by its name.
pub fn is_picture(path: &Path) -> bool {
    path.extension().is_some_and(|e| {
        let e = e.to_string_lossy().to_lowercase();
        matches!(e.as_str(), "jpg" | "jpeg" | "png" | "webp")
    })
}

impl Source for FolderSource {
    fn next_frame(&mut self) -> Result<Option<SourceFrame>> {
        let Some(path) = self.files.get(self.next) else {
            return Ok(None);
        };
        self.next += 1;
        let data = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let data = Bytes::from(data);
        // Only the header is read: the server decodes.
        picture::size(&data).with_context(|| path.display().to_string())?;
        let content = Content::File {
            data,
            path: path.clone(),
        };
        Ok(Some(SourceFrame {
            content,
            truth: None,
            media: None,
            number: self.next as u64 - 1,
        }))
    }

    fn frame_count(&self) -> Option<u64> {
        Some(self.files.len() as u64)
    }
}
