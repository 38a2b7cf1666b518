//! The three steps of a batch that is one forward pass: its inputs become the model's input, the model runs, and its output
//! becomes results.

use std::fmt;
use std::sync::Arc;

use super::{Inputs, OperatorError, Outputs};
use crate::value::Tensor;

/// The step before the forward pass.
pub trait Prepare: Send + Sync {
    /// Prepares a batch for a variant (an index into the module's `variants`; 0 without any). Several threads may prepare at the same time.
    fn prepare(self: Arc<Self>, variant: usize, batch: &[Inputs]) -> Pass;
}

type Results = Vec<Result<Outputs, OperatorError>>;
type Finish = dyn FnOnce(Option<(Tensor, Result<Tensor, OperatorError>)>) -> Results + Send;

/// A batch on its way through a model: [`Pass::forward`], then [`Pass::finish`].
pub struct Pass {
    input: Option<Tensor>,
    output: Option<Result<Tensor, OperatorError>>,
    finish: Box<Finish>,
}

impl Pass {
    /// A batch with this input for its model; `None` where no request of it needs the model. `finish` gets the input back with what
    /// came of it, and returns one result a request, in order.
    pub fn new(
        input: Option<Tensor>,
        finish: impl FnOnce(Option<(Tensor, Result<Tensor, OperatorError>)>) -> Results + Send + 'static,
    ) -> Self {
        Pass {
            input,
            output: None,
            finish: Box::new(finish),
        }
    }

    /// Runs the model on the input, if there is one.
    pub fn forward(&mut self, model: impl FnOnce(&Tensor) -> Result<Tensor, OperatorError>) {
        self.output = self.input.as_ref().map(model);
    }

    /// One result a request, in order.
    pub fn finish(self) -> Results {
        let not_run = || Err(OperatorError::Other("the model did not run".to_owned()));
        let output = self.output.unwrap_or_else(not_run);
        (self.finish)(self.input.map(|input| (input, output)))
    }
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut pass = f.debug_struct("Pass");
        pass.field("input", &self.input.as_ref().map(|i| &i.shape));
        pass.finish_non_exhaustive()
    }
}
