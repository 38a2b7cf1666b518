//! Names of a model's classes: of the option `labels`, else of the file beside the model (`road.pt` has `road.labels`), else those that the
//! model file itself says, else of a file `labels.txt` in its folder. Such files have one name a line.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use spillgate_backend::operator::OperatorError;
use spillgate_pipeline::problem::one_line;
use spillgate_process::file::{self, FileError};

use crate::facts::Facts;
use crate::models::Models;
use crate::options::Options;

/// Largest file of class names, in bytes: the largest vocabularies have some ten thousand names.
pub(crate) const LABELS_BYTES_MAX: usize = 4 << 20;

/// Most classes of a model that an error names.
const SHOWN_MAX: usize = 8;

type Names = Arc<[Arc<str>]>;

/// The class names of `model`.
///
/// # Errors
/// When there are none, with each place where they may be; or when a file cannot be read.
fn read(model: &Path, file: Option<&Path>, facts: &Facts) -> Result<Names, OperatorError> {
    if let Some(file) = file {
        return of_file(file).map_err(|error| wrong(file, &error));
    }
    let beside = model.with_extension("labels");
    match of_file(&beside) {
        Err(error) if error.is_missing() => {}
        found => return found.map_err(|error| wrong(&beside, &error)),
    }
    match &facts.names {
        Some(Ok(names)) => return Ok(Arc::clone(names)),
        Some(Err(why)) => {
            return Err(OperatorError::Other(format!("{}: {why}", model.display())));
        }
        None => {}
    }
    let for_all = model.with_file_name("labels.txt");
    match of_file(&for_all) {
        Err(error) if error.is_missing() => Err(OperatorError::Other(format!(
            "{} does not name its classes, and neither {} nor {} is there; write their names into one of these, one a line in the model's order, \
             or name a file with the option `labels`",
            model.display(),
            beside.display(),
            for_all.display()
        ))),
        found => found.map_err(|error| wrong(&for_all, &error)),
    }
}

fn wrong(file: &Path, error: &Unread) -> OperatorError {
    OperatorError::Other(format!("{}: {error}", file.display()))
}

/// Why there are no names in a file.
#[derive(Debug, thiserror::Error)]
enum Unread {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("no class names in it; write one a line, in the model's order")]
    Empty,
}

impl Unread {
    fn is_missing(&self) -> bool {
        matches!(self, Unread::File(FileError::Io(error)) if error.kind() == ErrorKind::NotFound)
    }
}

fn of_file(path: &Path) -> Result<Names, Unread> {
    let text = file::read_text(path, LABELS_BYTES_MAX)?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let labels: Names = lines.map(Arc::from).collect();
    match labels.is_empty() {
        true => Err(Unread::Empty),
        false => Ok(labels),
    }
}

/// Reads the class names of each variant, from `file` or from the files beside the models. They are equal: a request must not get other
/// names because another variant serves it.
pub(crate) fn of_variants(
    options: &Options<'_>,
    models: &Models,
    facts: &[Facts],
    file: Option<&Path>,
) -> Result<Vec<Names>, OperatorError> {
    let mut all: Vec<Names> = Vec::new();
    for (i, facts) in facts.iter().enumerate() {
        let classes = read(models.path(i), file, facts)?;
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

/// The error of a class that an option names and that the model does not have.
pub(crate) fn unknown(
    options: &Options<'_>,
    option: &str,
    class: &str,
    (model, classes): (&str, &[Arc<str>]),
) -> OperatorError {
    let class = one_line(class);
    let first = classes.iter().take(SHOWN_MAX);
    let first: Vec<String> = first.map(|class| one_line(class)).collect();
    let more = match classes.len() > SHOWN_MAX {
        true => format!(", ... ({} in all)", classes.len()),
        false => String::new(),
    };
    options.error(format_args!(
        "options.{option}: {model} has no class \"{class}\"; its classes are {}{more}",
        first.join(", ")
    ))
}
