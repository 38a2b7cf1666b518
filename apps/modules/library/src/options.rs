//! Options of a module as values with defaults. The pipeline's check has proven their types; an option
//! of another type here is a broken invariant of the catalogue.

use std::path::{Path, PathBuf};

use spillgate_backend::operator::{BuildContext, OperatorError};
use spillgate_pipeline::pipeline::{Module, OptionValue};

/// The options of one module.
pub(crate) struct Options<'a> {
    module: &'a Module,
    base_dir: &'a Path,
}

impl<'a> Options<'a> {
    pub(crate) fn new(context: &BuildContext<'a>) -> Self {
        Options {
            module: context.module,
            base_dir: context.base_dir,
        }
    }

    fn get(&self, name: &str) -> Option<&'a OptionValue> {
        self.module.options.get(name)
    }

    /// Whether the user gave it.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// An error about this module: `modules.NAME: ...`.
    pub(crate) fn error(&self, what: impl std::fmt::Display) -> OperatorError {
        OperatorError::Other(format!("modules.{}: {what}", self.module.name))
    }

    fn mistyped(&self, name: &str, value: &OptionValue, right: &str) -> OperatorError {
        self.error(format_args!("options.{name}: {value:?} is no {right}"))
    }

    pub(crate) fn number(&self, name: &str, default: f32) -> Result<f32, OperatorError> {
        match self.get(name) {
            None => Ok(default),
            Some(OptionValue::Number(v)) => Ok(*v as f32),
            Some(OptionValue::Integer(v)) => Ok(*v as f32),
            Some(other) => Err(self.mistyped(name, other, "number")),
        }
    }

    pub(crate) fn count(&self, name: &str, default: usize) -> Result<usize, OperatorError> {
        match self.get(name) {
            None => Ok(default),
            Some(OptionValue::Integer(v)) if *v >= 0 => Ok(*v as usize),
            Some(other) => Err(self.mistyped(name, other, "whole number of at least 0")),
        }
    }

    pub(crate) fn text(&self, name: &str, default: &str) -> Result<String, OperatorError> {
        match self.get(name) {
            None => Ok(default.to_owned()),
            Some(OptionValue::Text(v)) => Ok(v.clone()),
            Some(other) => Err(self.mistyped(name, other, "text")),
        }
    }

    /// A word that the user gave.
    pub(crate) fn chosen(&self, name: &str) -> Result<Option<String>, OperatorError> {
        match self.has(name) {
            true => self.text(name, "").map(Some),
            false => Ok(None),
        }
    }

    pub(crate) fn texts(&self, name: &str, default: &[&str]) -> Result<Vec<String>, OperatorError> {
        match self.get(name) {
            None => Ok(default.iter().map(|t| (*t).to_owned()).collect()),
            Some(OptionValue::Texts(v)) => Ok(v.clone()),
            Some(other) => Err(self.mistyped(name, other, "list of texts")),
        }
    }

    /// Numbers by text, in the order of the file.
    pub(crate) fn numbers_by_text(&self, name: &str) -> Result<Vec<(&'a str, f32)>, OperatorError> {
        match self.get(name) {
            None => Ok(Vec::new()),
            Some(OptionValue::NumberByText(v)) => {
                Ok(v.iter().map(|(text, v)| (&**text, *v as f32)).collect())
            }
            Some(other) => Err(self.mistyped(name, other, "map of numbers")),
        }
    }

    /// Lists of texts by name, in the order of the file.
    pub(crate) fn groups(&self, name: &str) -> Result<Vec<(&'a str, &'a [String])>, OperatorError> {
        match self.get(name) {
            None => Ok(Vec::new()),
            Some(OptionValue::Groups(v)) => {
                Ok(v.iter().map(|(n, texts)| (&**n, &**texts)).collect())
            }
            Some(other) => Err(self.mistyped(name, other, "map of groups")),
        }
    }

    /// Exactly `N` numbers.
    pub(crate) fn numbers<const N: usize>(
        &self,
        name: &str,
        default: [f32; N],
    ) -> Result<[f32; N], OperatorError> {
        match self.get(name) {
            None => Ok(default),
            Some(OptionValue::Numbers(v)) if v.len() == N => {
                Ok(std::array::from_fn(|i| v[i] as f32))
            }
            Some(other) => Err(self.mistyped(name, other, &format!("list of {N} numbers"))),
        }
    }

    /// A file, found from the pipeline's folder.
    pub(crate) fn file(&self, name: &str) -> Result<Option<PathBuf>, OperatorError> {
        match self.get(name) {
            None => Ok(None),
            Some(OptionValue::Text(v)) => Ok(Some(self.base_dir.join(v))),
            Some(other) => Err(self.mistyped(name, other, "path")),
        }
    }

    /// A part of a box: left, top, right, bottom in fractions of its sides.
    pub(crate) fn part(&self, name: &str, default: [f32; 4]) -> Result<[f32; 4], OperatorError> {
        let part = self.numbers(name, default)?;
        if part[2] <= part[0] || part[3] <= part[1] {
            return Err(self.error(format_args!(
                "options.{name}: {part:?} has no area; write [left, top, right, bottom] in fractions \
                 of the box"
            )));
        }
        Ok(part)
    }

    /// Width and height in whole pixels, each 8 to 4096.
    pub(crate) fn size(
        &self,
        name: &str,
        default: [f32; 2],
    ) -> Result<(usize, usize), OperatorError> {
        let size = self.numbers(name, default)?;
        if size
            .iter()
            .any(|v| v.fract() != 0.0 || !(8.0..=4096.0).contains(v))
        {
            return Err(self.error(format_args!(
                "options.{name}: {size:?} is no size; write [width, height] in whole pixels, each 8 to 4096"
            )));
        }
        Ok((size[0] as usize, size[1] as usize))
    }
}
