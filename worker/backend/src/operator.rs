//! A module's code around a model. The module library implements these traits for the shipped types. Users implement
//! them for their own types and pass them in a [`Library`].
//!
//! Where a batch is one forward pass, the type can offer what comes before and after the pass as steps of their own ([`Prepare`], [`Pass`]).
//! A device under a placement runs them beside the passes of other batches.

mod pass;

use std::path::Path;
use std::sync::Arc;

use spillgate_pipeline::Catalog;
use spillgate_pipeline::catalog::ModuleType;
use spillgate_pipeline::pipeline::{Limits, Module};

use crate::{Backend, BackendError, Input, Output};

pub use pass::{Pass, Prepare};
pub use spillgate_process::value::{Inputs, Outputs};

/// A module type, from which modules are built.
pub trait ModuleKind: Send + Sync {
    /// Its name, ports and options.
    fn module_type(&self) -> ModuleType;

    /// Builds a module for one device and loads its models. Called on a thread of the device.
    ///
    /// # Errors
    /// When a model or another file is missing or does not fit; the error names the file and the problem.
    fn build(&self, context: BuildContext<'_>) -> Result<Box<dyn Operator>, OperatorError>;
}

/// The inputs for building a module.
pub struct BuildContext<'a> {
    /// The checked module: variants, options.
    pub module: &'a Module,
    /// Folder of the pipeline file: paths in it are relative to this.
    pub base_dir: &'a Path,
    /// The pipeline's bounds, for instance the number of objects a frame may bring.
    pub limits: &'a Limits,
    /// The device.
    pub backend: &'a mut dyn Backend,
}

/// A built module on one device. One thread may build it and another one run it.
pub trait Operator: Send {
    /// Runs one batch at the given variant (an index into the module's `variants`; 0 without any).
    /// Returns one result a request, in order: a request that cannot be computed fails alone.
    fn run(&mut self, variant: usize, batch: &[Inputs]) -> Vec<Result<Outputs, OperatorError>>;

    /// Typical inputs for warm-up and profiling, with `objects` objects where the type works on objects.
    fn example(&self, objects: usize) -> Inputs;

    /// The step before the pass, where a batch is one forward pass. `None` for types that only run as a whole: they decide on the
    /// way how to go on, or have no model.
    fn preparation(&self) -> Option<Arc<dyn Prepare>> {
        None
    }

    /// The forward pass of a batch that [`Operator::preparation`] prepared.
    ///
    /// # Errors
    /// When the model fails; or when there is no such step.
    fn forward(&mut self, _variant: usize, _input: &Input) -> Result<Output, OperatorError> {
        let why = "this type only runs as a whole";
        Err(OperatorError::Other(why.to_owned()))
    }
}

/// Why a module could not be built or a request could not be computed.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// The backend failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// What the model gives does not fit the module, whatever it is given: a sentence that says where, what there is, and what is needed.
    #[error("{0}")]
    Unfit(String),
    /// Any other error: a sentence that says where, what is wrong, and what would be right.
    #[error("{0}")]
    Other(String),
}

impl OperatorError {
    /// The same error for another request.
    #[must_use]
    pub fn again(&self) -> Self {
        match self {
            OperatorError::Unfit(why) => OperatorError::Unfit(why.clone()),
            other => OperatorError::Other(other.to_string()),
        }
    }
}

/// The module types that a server offers.
#[derive(Default)]
pub struct Library {
    kinds: Vec<Box<dyn ModuleKind>>,
}

impl Library {
    /// An empty library.
    pub fn new() -> Self {
        Library::default()
    }

    /// Adds a type; it replaces an earlier one of the same name.
    pub fn register(&mut self, kind: impl ModuleKind + 'static) {
        self.kinds.push(Box::new(kind));
    }

    /// The types for `pipeline::compile`.
    pub fn catalog(&self) -> Catalog {
        let mut catalog = Catalog::new();
        for kind in &self.kinds {
            catalog.register(kind.module_type());
        }
        catalog
    }

    /// The type of that name.
    pub fn get(&self, name: &str) -> Option<&dyn ModuleKind> {
        self.kinds
            .iter()
            .rev()
            .find(|k| k.module_type().name == name)
            .map(|k| &**k)
    }
}
