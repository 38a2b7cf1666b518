//! The three steps of a batch that is one forward pass: its inputs become the model's input, the model runs, and its output
//! becomes results.

use std::fmt;
use std::sync::Arc;

use super::{Inputs, OperatorError, Outputs};
use crate::{BackendError, Copier, Input, Output};
use spillgate_process::value::Tensor;

/// The step before the forward pass.
pub trait Prepare: Send + Sync {
    /// Prepares a batch for a variant (an index into the module's `variants`; 0 without any). Several threads may prepare at the same time.
    fn prepare(self: Arc<Self>, variant: usize, batch: &[Inputs]) -> Pass;
}

/// The outputs of a pass in host memory.
type Passed = Result<Vec<Tensor>, OperatorError>;
type Results = Vec<Result<Outputs, OperatorError>>;
type Finish = dyn FnOnce(Option<(Tensor, Passed)>) -> Results + Send;

/// A batch on its way through a model: [`Pass::copy`] where the device has its own memory, [`Pass::forward`], then [`Pass::finish`].
pub struct Pass {
    input: Option<Input>,
    output: Option<Result<Output, OperatorError>>,
    finish: Box<Finish>,
}

impl Pass {
    /// A batch with this input for its model; `None` where no request of it needs the model. `finish` gets the input back with what
    /// came of it, and returns one result a request, in order.
    pub fn new(
        input: Option<Tensor>,
        finish: impl FnOnce(Option<(Tensor, Passed)>) -> Results + Send + 'static,
    ) -> Self {
        Pass {
            input: input.map(Input::from),
            output: None,
            finish: Box::new(finish),
        }
    }

    /// Copies the input to the device, if there is one.
    ///
    /// # Errors
    /// As of [`Copier::copy`]. The batch can still run: then the copy is part of its execution.
    pub fn copy(&mut self, copier: &dyn Copier) -> Result<(), BackendError> {
        if let Some(input) = &mut self.input {
            input.copied = Some(copier.copy(&input.tensor)?);
        }
        Ok(())
    }

    /// Runs the model on the input, if there is one.
    pub fn forward(&mut self, model: impl FnOnce(&Input) -> Result<Output, OperatorError>) {
        self.output = self.input.as_ref().map(model);
    }

    /// One result a request, in order.
    pub fn finish(self) -> Results {
        let not_run = || Err(OperatorError::Other("the model did not run".to_owned()));
        let output = self.output.unwrap_or_else(not_run);
        (self.finish)(self.input.map(|input| {
            // The device's copy is not needed any more.
            let Input { tensor, copied: _ } = input;
            (tensor, output.and_then(|o| Ok(o.on_host()?)))
        }))
    }
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut pass = f.debug_struct("Pass");
        pass.field("input", &self.input);
        pass.finish_non_exhaustive()
    }
}
