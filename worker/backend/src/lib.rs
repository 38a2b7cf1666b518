//! Backends and operators. A [`Backend`] loads model files and runs them on one device. An [`operator::Operator`] is
//! a module's code around a model (pre-processing, forward, post-processing); it belongs to the module library or to
//! the user. A [`Value`](spillgate_process::value::Value) flows between modules.
//!
//! One thread at a time has a backend or what it loaded, so nothing here needs a lock.

#[cfg(any(feature = "onnx", feature = "tch"))]
pub mod bounds;
#[cfg(feature = "tch")]
mod cuda;
pub mod description;
#[cfg(any(feature = "onnx", feature = "tch"))]
mod forward;
#[cfg(feature = "tch")]
pub mod model_file;
#[cfg(feature = "tch")]
mod native;
#[cfg(feature = "onnx")]
pub mod onnx;
pub mod operator;
#[cfg(feature = "tch")]
pub mod torch;

use std::any::Any;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use spillgate_process::value::Tensor;

use description::Description;

/// Loads and runs models on one device.
pub trait Backend {
    /// Kind of device as in profiles: `cpu`, `cuda`, `emulated`.
    fn device_kind(&self) -> &'static str;

    /// Loads a model file.
    ///
    /// # Errors
    /// When the file cannot be read or is no model.
    fn load(&mut self, path: &Path) -> Result<Box<dyn Model>, BackendError>;

    /// How often a batch size must have run until it takes as long as it will. The size 1 runs twice at least.
    fn first_runs(&self) -> usize {
        1
    }

    /// Whether the first runs take longer than later ones, of a model that was loaded since this was asked last.
    fn take_cold(&mut self) -> bool {
        true
    }

    /// Whether cores of the host are free while models run, so that several can prepare a batch.
    fn leaves_cores(&self) -> bool {
        false
    }

    /// Runs models on this thread, by `run`, and gives the most bytes of the device's memory that they took at the same time, beside their
    /// weights. `None` where that is not known.
    fn workspace(&mut self, run: &mut dyn FnMut()) -> Option<u64> {
        run();
        None
    }

    /// What copies inputs to the device while it executes; `None` where models read the host's memory.
    fn copier(&self) -> Option<Arc<dyn Copier>> {
        None
    }
}

/// Copies inputs of models to a device's own memory, from any thread.
pub trait Copier: Send + Sync {
    /// A copy. It is there when this returns.
    ///
    /// # Errors
    /// When the device has no memory for it, or fails.
    fn copy(&self, tensor: &Tensor) -> Result<OnDevice, BackendError>;
}

/// Numbers in a device's own memory, which the backend that made them can read.
pub type OnDevice = Box<dyn Any + Send>;

/// A loaded model.
pub trait Model: Send {
    /// One forward pass. Inputs and outputs lie in host memory, row-major.
    ///
    /// # Errors
    /// When the model rejects the shapes or fails.
    fn forward(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError>;

    /// The same for a single input that may have been copied before, up to where the device has computed the outputs. The first `n` are
    /// given, or as many as there are.
    ///
    /// # Errors
    /// As of [`Model::forward`].
    fn execute(&mut self, input: &Input, n: usize) -> Result<Output, BackendError> {
        let mut outputs = self.forward(std::slice::from_ref(&input.tensor))?;
        outputs.truncate(n);
        Ok(Output::Host(outputs))
    }

    /// What its file says of itself.
    fn description(&self) -> &Description {
        &description::NOTHING
    }
}

/// The input of an execution.
pub struct Input {
    /// In host memory.
    pub tensor: Tensor,
    /// The same in the device's memory, where it was copied before.
    pub copied: Option<OnDevice>,
}

impl From<Tensor> for Input {
    fn from(tensor: Tensor) -> Self {
        Input {
            tensor,
            copied: None,
        }
    }
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Input({:?})", self.tensor.shape)
    }
}

/// The outputs of an execution.
pub enum Output {
    /// In host memory.
    Host(Vec<Tensor>),
    /// In the device's memory.
    Device(Box<dyn Fetch>),
}

/// Outputs in the device's memory.
pub trait Fetch: Send {
    /// Copies them to host memory.
    ///
    /// # Errors
    /// When the device fails.
    fn fetch(self: Box<Self>) -> Result<Vec<Tensor>, BackendError>;
}

impl Output {
    /// The outputs in host memory.
    ///
    /// # Errors
    /// When the device fails.
    pub fn on_host(self) -> Result<Vec<Tensor>, BackendError> {
        match self {
            Output::Host(tensors) => Ok(tensors),
            Output::Device(outputs) => outputs.fetch(),
        }
    }
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
    /// The device failed beside an execution.
    #[error("a copy from or to the device failed: {detail}")]
    Copy {
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
