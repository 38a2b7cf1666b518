//! Weights that lie in files beside an ONNX model: in its folder or below, and nowhere else.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use super::graph::{Described, External, WEIGHTS_BYTES_MAX, shown};

/// Most files with weights of a model: exporters write one, or one for each tensor.
const FILES_MAX: usize = 4096;

/// A file with weights of a model.
#[derive(Debug, PartialEq)]
pub(super) struct ExternalFile {
    /// As the model names it.
    pub(super) location: String,
    /// Its path by the model's folder.
    pub(super) named: PathBuf,
    /// Its true path.
    pub(super) path: PathBuf,
    /// Bytes of it that the model needs, from its beginning.
    pub(super) least: u64,
}

/// The files with weights of a model that lies at this path.
///
/// # Errors
/// A file that is not there, or lies elsewhere.
pub(super) fn files(path: &Path, described: &Described) -> Result<Vec<ExternalFile>, String> {
    let mut ends: BTreeMap<&str, (u64, &str)> = BTreeMap::new();
    for External {
        name,
        location,
        offset,
        bytes,
    } in &described.externals
    {
        let end = offset
            .checked_add(*bytes)
            .ok_or_else(|| format!("it is damaged: the tensor {:?} ends nowhere", shown(name)))?;
        let known = ends.entry(location).or_insert((0, name));
        if end > known.0 {
            *known = (end, name);
        }
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if ends.len() > FILES_MAX {
        return Err(format!(
            "its weights lie in {} files, and {FILES_MAX} are taken at most; save them in one: onnx.save(model, FILE, \
             save_as_external_data=True, all_tensors_to_one_file=True)",
            ends.len()
        ));
    }
    let mut all = 0u64;
    let mut files = Vec::new();
    for (location, (least, tensor)) in ends {
        let file = ExternalFile {
            location: location.to_owned(),
            named: path.with_file_name(location),
            path: inside(folder, location, tensor)?,
            least,
        };
        // They are read to their end.
        all = all.saturating_add(length(&file.path)?);
        if all > WEIGHTS_BYTES_MAX {
            return Err(format!(
                "the files with its weights have more than the {WEIGHTS_BYTES_MAX} bytes that a model may have"
            ));
        }
        files.push(file);
    }
    Ok(files)
}

/// Bytes of a file.
fn length(path: &Path) -> Result<u64, String> {
    let shown = path.display();
    let metadata = path.metadata().map_err(|e| format!("{shown}: {e}"))?;
    match metadata.is_file() {
        true => Ok(metadata.len()),
        false => Err(format!("{shown} is no file; copy the one with the model")),
    }
}

/// The true path of a file that a model names.
fn inside(folder: &Path, location: &str, tensor: &str) -> Result<PathBuf, String> {
    let of = format!(
        "weights of its tensor {:?} are to lie in {:?}",
        shown(tensor),
        shown(location)
    );
    let outside =
        || format!("{of}, outside of the model's folder; put them there, and export it again");
    let mut parts = Path::new(location).components();
    let is_below = parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    // To ONNX Runtime such a name is an address in its own memory.
    let is_address = location.starts_with("*/");
    if !is_below || location.is_empty() || is_address {
        return Err(outside());
    }
    // One file has one name: each is read for itself.
    if location.split('/').any(|part| matches!(part, "" | ".")) {
        return Err(format!(
            "{of}; write the file's name, or FOLDER/NAME, without . and empty folders: export it again"
        ));
    }
    let file = folder.join(location);
    let true_path = file.canonicalize();
    let true_path = true_path
        .map_err(|e| format!("{of}, which cannot be read: {e}; copy that file with the model"))?;
    let folder = folder.canonicalize().map_err(|e| e.to_string())?;
    match true_path.starts_with(folder) {
        true => Ok(true_path),
        false => Err(outside()),
    }
}
