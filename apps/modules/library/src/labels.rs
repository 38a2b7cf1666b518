//! Names of a model's classes: a text file with one name a line, by default beside the model
//! (`road.pt` has `road.labels`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use spillgate_backend::operator::OperatorError;
use spillgate_process::file;

use crate::models::Models;
use crate::options::Options;

/// Largest file of class names, in bytes: the largest vocabularies have some ten thousand names.
pub(crate) const LABELS_BYTES_MAX: usize = 4 << 20;

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

/// Reads the class names of each variant, from `file` or from the files beside the models. They are equal: a request must not get other
/// names because another variant serves it.
pub(crate) fn of_variants(
    options: &Options<'_>,
    models: &Models,
    file: Option<&Path>,
) -> Result<Vec<Arc<[Arc<str>]>>, OperatorError> {
    let mut all: Vec<Arc<[Arc<str>]>> = Vec::new();
    for i in 0..models.len() {
        let classes = read(models.path(i), file.map(Path::to_owned))?;
        if let Some(first) = all.first().filter(|first| **first != classes) {
            let (other, own) = (models.name(0), models.name(i));
            let at = first.iter().zip(&*classes).position(|(a, b)| a != b);
            let differ = match at {
                Some(at) => format!(
                    "class {at} is \"{}\" in {own} and \"{}\" in {other}",
                    classes[at], first[at]
                ),
                None => format!(
                    "{own} has {} classes and {other} has {}",
                    classes.len(),
                    first.len()
                ),
            };
            return Err(options.error(format_args!(
                "variants: {differ}; variants of a module name the same classes, in one order"
            )));
        }
        all.push(classes);
    }
    Ok(all)
}
