//! A problem with its place: file, line and YAML path; and the list of all problems of a file.
//! `Display` gives the one line that users see.

use std::fmt;

use crate::problem::{Problem, one_line};

/// Whether a file with this problem can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// It cannot.
    Error,
    /// It can, but it probably does not do what its writer meant.
    Warning,
}

/// A problem and where it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// The file, as the caller named it.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The YAML path, like `modules.plates.inputs.boxes`; empty for the whole file.
    pub path: String,
    /// What is wrong and what would be right.
    pub problem: Problem,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, "{severity}: {}:{}: ", self.file, self.line)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        write!(f, "{}", self.problem)
    }
}

/// All problems of a file, sorted by line; one line each.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnostics {
    /// At least one.
    pub list: Vec<Diagnostic>,
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, diagnostic) in self.list.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{diagnostic}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}

/// A line and a YAML path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The line in the file, from 1.
    pub line: usize,
    /// The field, as `modules.detect.batch`; empty: the file.
    pub path: String,
}

impl Place {
    /// The whole file.
    pub fn root() -> Self {
        Place {
            line: 1,
            path: String::new(),
        }
    }

    /// A field of this map.
    pub fn field(&self, key: &str, line: usize) -> Place {
        let key = one_line(key);
        let path = if self.path.is_empty() {
            key
        } else {
            format!("{}.{key}", self.path)
        };
        Place { line, path }
    }

    /// An entry of this list.
    pub fn index(&self, i: usize, line: usize) -> Place {
        Place {
            line,
            path: format!("{}[{i}]", self.path),
        }
    }
}

/// Most problems kept of a file. Nobody reads more, and the bound keeps a malicious file cheap.
pub const PROBLEMS_MAX: usize = 1000;

/// Gathers the problems of a file.
pub struct Sink {
    file: String,
    errors: Vec<Diagnostic>,
    warnings: Vec<Diagnostic>,
}

impl Sink {
    /// An empty one for a file of that name.
    pub fn new(file: &str) -> Self {
        Sink {
            file: file.to_owned(),
            errors: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Adds an error, unless there are too many.
    pub fn error(&mut self, place: &Place, problem: Problem) {
        if !self.is_full() {
            self.errors
                .push(self.diagnostic(Severity::Error, place, problem));
        }
    }

    /// Adds a warning, unless there are too many.
    pub fn warn(&mut self, place: &Place, problem: Problem) {
        self.warnings
            .push(self.diagnostic(Severity::Warning, place, problem));
    }

    fn diagnostic(&self, severity: Severity, place: &Place, problem: Problem) -> Diagnostic {
        Diagnostic {
            severity,
            file: self.file.clone(),
            line: place.line,
            path: place.path.clone(),
            problem,
        }
    }

    /// No further error is kept.
    pub fn is_full(&self) -> bool {
        self.errors.len() >= PROBLEMS_MAX
    }

    /// Whether an error was added.
    pub fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    /// The warnings, or all errors. They are not mixed, since errors cause warnings of their own.
    pub fn finish(mut self) -> Result<Vec<Diagnostic>, Diagnostics> {
        self.errors.sort_by_key(|d| d.line);
        self.warnings.sort_by_key(|d| d.line);
        if self.errors.is_empty() {
            Ok(self.warnings)
        } else {
            Err(Diagnostics { list: self.errors })
        }
    }
}
