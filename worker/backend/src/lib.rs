//! Backends and operators. A [`Backend`] loads model files and runs them on one device. An [`operator::Operator`] is
//! a module's code around a model (pre-processing, forward, post-processing); it belongs to the module library or to
//! the user. A [`value::Value`] flows between modules.
//!
//! One thread at a time has a backend or what it loaded, so nothing here needs a lock.

pub mod account;
pub mod emulated;
pub mod file;
pub mod job;
pub mod operator;
pub mod picture;
#[cfg(feature = "tch")]
pub mod torch;
pub mod value;

use std::path::{Path, PathBuf};

use crate::value::Tensor;

/// Loads and runs models on one device.
pub trait Backend {
    /// Kind of device as in profiles: `cpu`, `cuda`, `emulated`.
    fn device_kind(&self) -> &'static str;

    /// Loads a model file.
    ///
    /// # Errors
    /// When the file cannot be read or is no model.
    fn load(&mut self, path: &Path) -> Result<Box<dyn Model>, BackendError>;
}

/// A loaded model.
pub trait Model: Send {
    /// One forward pass. Inputs and outputs lie in host memory, row-major.
    ///
    /// # Errors
    /// When the model rejects the shapes or fails.
    fn forward(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError>;
}

/// Why a model could not be loaded or run.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The file is missing, unreadable or no model.
    #[error("{}: {detail}", path.display())]
    Load {
        /// The file.
        path: PathBuf,
        /// The library's message, on one line.
        detail: String,
    },
    /// The model failed on this input.
    #[error("the model failed on input {shapes}: {detail}")]
    Forward {
        /// Shapes given.
        shapes: String,
        /// The library's message, on one line.
        detail: String,
    },
    /// There is no such device here.
    #[error("no device \"{device}\" here: {detail}")]
    Device {
        /// Its name.
        device: String,
        /// Why, and what would be right.
        detail: String,
    },
}
