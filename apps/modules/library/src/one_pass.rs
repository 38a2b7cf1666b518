//! Types whose batch is one forward pass.

use std::sync::Arc;

use spillgate_backend::operator::{Inputs, Operator, OperatorError, Outputs, Pass, Prepare};
use spillgate_backend::{Input, Output};

use crate::batch::all_fail;
use crate::models::Models;

/// What such a type knows beside its models.
pub(crate) trait OnePass: Prepare + 'static {
    /// Most outputs of the model that it reads.
    fn outputs(&self) -> usize {
        1
    }

    /// As of [`Operator`].
    fn example(&self, objects: usize) -> Inputs;
}

/// Runs its batches, as a whole or step by step.
pub(crate) struct OnePassOperator<T> {
    models: Models,
    of: Arc<T>,
}

impl<T: OnePass> OnePassOperator<T> {
    pub(crate) fn new(models: Models, of: T) -> Self {
        let of = Arc::new(of);
        OnePassOperator { models, of }
    }
}

impl<T: OnePass> Operator for OnePassOperator<T> {
    fn run(&mut self, variant: usize, batch: &[Inputs]) -> Vec<Result<Outputs, OperatorError>> {
        if let Err(error) = self.models.check(variant) {
            return all_fail(batch.len(), &error);
        }
        let mut pass: Pass = self.of.clone().prepare(variant, batch);
        pass.forward(|input| self.models.execute(variant, input, self.of.outputs()));
        pass.finish()
    }

    fn example(&self, objects: usize) -> Inputs {
        self.of.example(objects)
    }

    fn preparation(&self) -> Option<Arc<dyn Prepare>> {
        Some(self.of.clone())
    }

    fn forward(&mut self, variant: usize, input: &Input) -> Result<Output, OperatorError> {
        self.models.execute(variant, input, self.of.outputs())
    }
}
