//! Names of a model's classes: a text file with one name a line, by default beside the model
//! (`road.pt` has `road.labels`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use spillgate_backend::file;
use spillgate_backend::operator::OperatorError;

/// Largest file of class names, in bytes: the largest vocabularies have some ten thousand names.
const LABELS_BYTES_MAX: usize = 4 << 20;

/// Reads the class names of `model`, from `file` or from the file beside the model.
pub(crate) fn read(model: &Path, file: Option<PathBuf>) -> Result<Arc<[Arc<str>]>, OperatorError> {
    let given = file.is_some();
    let path = file.unwrap_or_else(|| model.with_extension("labels"));
    let text = file::read_text(&path, LABELS_BYTES_MAX).map_err(|error| {
        let hint = if given {
            String::new()
        } else {
            format!(
                "; {} needs it beside itself, or the option `labels`",
                model.display()
            )
        };
        OperatorError::Other(format!("{}: {error}{hint}", path.display()))
    })?;
    let labels: Arc<[Arc<str>]> = text
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty())
        .map(Arc::from)
        .collect();
    if labels.is_empty() {
        return Err(OperatorError::Other(format!(
            "{}: no class names in it; write one a line, in the model's order",
            path.display()
        )));
    }
    Ok(labels)
}
