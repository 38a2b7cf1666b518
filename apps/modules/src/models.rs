//! The models of one module: one a variant, a file loaded once even when several variants (input
//! sizes) share it.

use std::path::PathBuf;

use spillgate_backend::Model;
use spillgate_backend::operator::{BuildContext, OperatorError};
use spillgate_backend::value::Tensor;

/// Loaded models by variant.
pub(crate) struct Models {
    variants: Vec<Variant>,
    loaded: Vec<(PathBuf, Box<dyn Model>)>,
}

/// One variant of a module.
struct Variant {
    /// Index into the loaded models.
    model: usize,
    /// As in the pipeline file.
    name: String,
    input: Option<u32>,
}

impl Models {
    /// Loads all models of a module.
    pub(crate) fn load(context: &mut BuildContext<'_>) -> Result<Self, OperatorError> {
        let mut models = Models {
            variants: Vec::new(),
            loaded: Vec::new(),
        };
        for variant in &context.module.variants {
            let path = context.base_dir.join(&variant.model);
            let model = match models.loaded.iter().position(|(p, _)| *p == path) {
                Some(idx) => idx,
                None => {
                    let model = context.backend.load(&path)?;
                    models.loaded.push((path, model));
                    models.loaded.len() - 1
                }
            };
            models.variants.push(Variant {
                model,
                name: variant.model.clone(),
                input: variant.input,
            });
        }
        if models.variants.is_empty() {
            return Err(OperatorError::Other(format!(
                "modules.{}: no model; name one with `model:` or `variants:`",
                context.module.name
            )));
        }
        Ok(models)
    }

    /// Number of variants.
    pub(crate) fn len(&self) -> usize {
        self.variants.len()
    }

    /// File of a variant's model.
    pub(crate) fn path(&self, variant: usize) -> &std::path::Path {
        &self.loaded[self.variants[variant].model].0
    }

    /// Name of a variant's model for messages.
    pub(crate) fn name(&self, variant: usize) -> &str {
        &self.variants[variant].name
    }

    /// Side of the square input of a variant, where stated.
    pub(crate) fn input(&self, variant: usize) -> Option<usize> {
        self.variants[variant].input.map(|v| v as usize)
    }

    /// Whether there is such a variant; else an error that says how many there are.
    pub(crate) fn check(&self, variant: usize) -> Result<(), OperatorError> {
        if variant < self.len() {
            return Ok(());
        }
        Err(OperatorError::Other(format!(
            "no variant {variant}: this module has {}, counted from 0",
            self.len()
        )))
    }

    /// One forward pass; the model's first output.
    pub(crate) fn forward(
        &mut self,
        variant: usize,
        input: &Tensor,
    ) -> Result<Tensor, OperatorError> {
        let Variant { model, name, .. } = &self.variants[variant];
        let outputs = self.loaded[*model]
            .1
            .forward(std::slice::from_ref(input))
            .map_err(|error| OperatorError::Other(format!("{name}: {error}")))?;
        outputs.into_iter().next().ok_or_else(|| {
            OperatorError::Other(format!(
                "{name}: the model gave no output; one tensor is needed"
            ))
        })
    }

    /// The error for an output of a wrong shape.
    pub(crate) fn wrong_shape(
        &self,
        variant: usize,
        expected: impl std::fmt::Display,
        got: &[i64],
    ) -> OperatorError {
        OperatorError::Other(format!(
            "{}: expected an output of shape {expected}, got {got:?}",
            self.name(variant)
        ))
    }
}
