//! The weights of a device: what is in memory, and how it is read. Policies say what is read and what gives way.

pub mod loader;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use indexmap::IndexMap;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use spillgate_backend::Copier;
use spillgate_backend::operator::{Operator, OperatorError, Prepare};
use spillgate_pipeline::id::WeightsId;

use crate::device::panic_text;

/// Reads weights into memory. It is built on the thread of the device that loads, and stays there.
pub trait Loader {
    /// Makes the models ready to run that run with weights: these are read, and each model has run. While the device serves, requests wait
    /// for it, so larger batches do not run.
    ///
    /// # Errors
    /// When a file is missing or does not fit.
    fn load(
        &mut self,
        weights: WeightsId,
        is_serving: bool,
    ) -> Result<Box<dyn Operator>, OperatorError>;

    /// What copies inputs to the device while it executes; `None` where models read the host's memory.
    fn copier(&self) -> Option<Arc<dyn Copier>> {
        None
    }
}

/// Makes the loader of a device on the device's own thread.
pub type LoaderFactory = Box<dyn FnOnce() -> Result<Box<dyn Loader>, OperatorError> + Send>;

/// Weights in memory.
pub(crate) struct InMemory {
    /// Runs the models that run with them, each as one of its variants.
    pub(crate) operator: Mutex<Box<dyn Operator>>,
    /// Prepares their inputs apart from the execution, where their type has that step.
    pub(crate) preparation: Option<Arc<dyn Prepare>>,
}

/// Weights that are there, or why they could not be read.
type Slot = Result<Arc<InMemory>, Arc<str>>;

/// What is in the memory of a device.
#[derive(Default)]
pub(crate) struct Slots(Mutex<IndexMap<WeightsId, Slot, FxBuildHasher>>);

impl Slots {
    /// The weights; else why they are not there, for the requests that need them.
    pub(crate) fn get(&self, weights: WeightsId) -> Slot {
        let slot = self.0.lock().get(&weights).cloned();
        slot.unwrap_or_else(|| Err("its weights are not in memory".into()))
    }

    /// Reads weights. What is there from the start is read before the device serves.
    ///
    /// # Errors
    /// When they cannot be read, which those hear, too, that ask for them.
    pub(crate) fn read(
        &self,
        loader: &mut dyn Loader,
        weights: WeightsId,
        is_serving: bool,
    ) -> Result<(), OperatorError> {
        let load = AssertUnwindSafe(|| {
            let operator = loader.load(weights, is_serving)?;
            Ok(InMemory {
                preparation: operator.preparation(),
                operator: Mutex::new(operator),
            })
        });
        let read = catch_unwind(load).unwrap_or_else(|panic| Err(loading_panicked(&*panic)));
        match read {
            Ok(read) => {
                self.put(weights, Ok(Arc::new(read)));
                Ok(())
            }
            Err(error) => {
                self.put(weights, Err(error.to_string().into()));
                Err(error)
            }
        }
    }

    /// Weights can never be there, for this reason.
    pub(crate) fn refuse(&self, weights: WeightsId, why: &str) {
        self.put(weights, Err(why.into()));
    }

    /// Gives back what weights hold.
    pub(crate) fn forget(&self, weights: WeightsId) {
        let gone = self.0.lock().swap_remove(&weights);
        give_back(gone);
    }

    fn put(&self, weights: WeightsId, slot: Slot) {
        let before = self.0.lock().insert(weights, slot);
        give_back(before);
    }
}

/// Without the lock: it takes a while. An operator that panics when it goes takes nobody down.
fn give_back(gone: Option<Slot>) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(gone))) {
        let cause = panic_text(&*panic);
        tracing::error!(cause, "an operator panicked when it was given back");
    }
}

/// A loader panicked.
pub(crate) fn loading_panicked(panic: &(dyn Any + Send)) -> OperatorError {
    OperatorError::Other(format!("loading panicked: {}", panic_text(panic)))
}
