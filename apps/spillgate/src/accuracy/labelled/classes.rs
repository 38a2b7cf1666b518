//! A folder with a subfolder of pictures for each class: the name of the subfolder is that of the class.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{Sample, Truth, folder};

/// A picture and its class.
#[derive(Debug)]
pub(super) struct Picture {
    path: PathBuf,
    class: usize,
}

impl Picture {
    pub(super) fn read(&self) -> Result<Sample> {
        Ok(Sample {
            name: self.path.display().to_string(),
            picture: folder::picture(&self.path)?,
            truth: Truth::Class(self.class),
        })
    }
}

/// The classes that have pictures, and all pictures.
pub(super) fn open(folder: &Path) -> Result<(Vec<String>, Vec<Picture>)> {
    let (mut classes, mut pictures) = (Vec::new(), Vec::new());
    for path in folder::folders(folder)? {
        let files = folder::pictures(&path)?;
        if files.is_empty() {
            continue;
        }
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.with_context(|| {
            format!(
                "{}: the name is no text, so it names no class",
                path.display()
            )
        })?;
        let class = classes.len();
        classes.push(name.to_owned());
        pictures.extend(files.into_iter().map(|path| Picture { path, class }));
    }
    Ok((classes, pictures))
}
