//! The models of one module: one a variant, a file loaded once even when several variants (input
//! sizes) share it. A model may come in several parts, each a file of its own: `who.pt`, `who.2.pt`.

use std::path::{Path, PathBuf};

use spillgate_backend::operator::{BuildContext, OperatorError};
use spillgate_backend::{Input, Model, Output};
use spillgate_process::value::Tensor;

use crate::facts::Facts;

/// Loaded models by variant.
pub(crate) struct Models {
    variants: Vec<Variant>,
    loaded: Vec<(PathBuf, Box<dyn Model>)>,
}

/// One variant of a module.
struct Variant {
    /// At least one, in the order of the work.
    parts: Vec<Part>,
    input: Option<u32>,
}

/// One file of a variant.
struct Part {
    /// Index into the loaded models.
    model: usize,
    /// As in the pipeline file.
    name: String,
}

impl Models {
    /// Loads all models of a module, each of one part.
    pub(crate) fn load(context: &mut BuildContext<'_>) -> Result<Self, OperatorError> {
        Models::load_parts(context, &[], "")
    }

    /// Loads all models of a module with the further parts that lie beside each: for `who.pt` and the word
    /// `2` that is `who.2.pt`. `why` ends the error for one that cannot be loaded.
    pub(crate) fn load_parts(
        context: &mut BuildContext<'_>,
        further: &[String],
        why: &str,
    ) -> Result<Self, OperatorError> {
        let mut models = Models {
            variants: Vec::new(),
            loaded: Vec::new(),
        };
        for variant in &context.module.variants {
            let mut parts = vec![models.part(context, variant.model.clone())?];
            for word in further {
                let part = models
                    .part(context, beside(&variant.model, word))
                    .map_err(|error| OperatorError::Other(format!("{error}; {why}")))?;
                parts.push(part);
            }
            models.variants.push(Variant {
                parts,
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

    /// The part of that name, loaded unless it is already.
    fn part(
        &mut self,
        context: &mut BuildContext<'_>,
        name: String,
    ) -> Result<Part, OperatorError> {
        let path = context.base_dir.join(&name);
        let model = match self.loaded.iter().position(|(p, _)| *p == path) {
            Some(idx) => idx,
            None => {
                let model = context.backend.load(&path)?;
                self.loaded.push((path, model));
                self.loaded.len() - 1
            }
        };
        Ok(Part { model, name })
    }

    /// Number of variants.
    pub(crate) fn len(&self) -> usize {
        self.variants.len()
    }

    /// File of a variant's model; its first part.
    pub(crate) fn path(&self, variant: usize) -> &Path {
        &self.loaded[self.variants[variant].parts[0].model].0
    }

    /// Name of a variant's model for messages.
    pub(crate) fn name(&self, variant: usize) -> &str {
        &self.variants[variant].parts[0].name
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

    /// What the file of each variant says of itself, of its first part.
    ///
    /// # Errors
    /// The first that contradicts itself.
    pub(crate) fn facts(&self) -> Result<Vec<Facts>, OperatorError> {
        let of = |variant: &Variant| {
            let Part { model, name } = &variant.parts[0];
            let facts = Facts::of(self.loaded[*model].1.description());
            facts.map_err(|error| OperatorError::Other(format!("{name}: {error}")))
        };
        self.variants.iter().map(of).collect()
    }

    /// One forward pass; the model's first `n` outputs, or as many as it has.
    pub(crate) fn execute(
        &mut self,
        variant: usize,
        input: &Input,
        n: usize,
    ) -> Result<Output, OperatorError> {
        let Part { model, name } = &self.variants[variant].parts[0];
        let output = self.loaded[*model].1.execute(input, n);
        output.map_err(|error| OperatorError::Other(format!("{name}: {error}")))
    }

    /// One forward pass of one part; its first output.
    pub(crate) fn forward_part(
        &mut self,
        variant: usize,
        part: usize,
        inputs: &[Tensor],
    ) -> Result<Tensor, OperatorError> {
        let Part { model, name } = &self.variants[variant].parts[part];
        let outputs = self.loaded[*model]
            .1
            .forward(inputs)
            .map_err(|error| OperatorError::Other(format!("{name}: {error}")))?;
        outputs.into_iter().next().ok_or_else(|| no_output(name))
    }

    /// The error for an output of a wrong shape of one part.
    pub(crate) fn wrong_shape_of(
        &self,
        variant: usize,
        part: usize,
        expected: impl std::fmt::Display,
        got: &[i64],
    ) -> OperatorError {
        wrong_shape(&self.variants[variant].parts[part].name, expected, got)
    }
}

fn no_output(model: &str) -> OperatorError {
    OperatorError::Other(format!(
        "{model}: the model gave no output; one tensor is needed"
    ))
}

/// The error for an output of a wrong shape of that model.
pub(crate) fn wrong_shape(
    model: &str,
    expected: impl std::fmt::Display,
    got: &[i64],
) -> OperatorError {
    OperatorError::Unfit(format!(
        "{model}: expected an output of shape {expected}, got {got:?}"
    ))
}

/// Name of the part `word` of a model: `2` of `who.pt` is `who.2.pt`.
fn beside(model: &str, word: &str) -> String {
    let path = Path::new(model);
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("pt");
    path.with_extension(format!("{word}.{extension}"))
        .to_string_lossy()
        .into_owned()
}
