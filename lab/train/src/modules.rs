//! Modules of the library over the torch backend, as serving builds them.

use std::path::Path;

use anyhow::{Context, anyhow};
use spillgate_backend::Backend;
use spillgate_backend::operator::{BuildContext, Inputs, Operator};
use spillgate_process::value::Value;

/// Builds the module `name` of the pipeline `text` with the models of a folder.
pub(crate) fn build(
    text: &str,
    name: &str,
    models: &Path,
    backend: &mut dyn Backend,
) -> anyhow::Result<Box<dyn Operator>> {
    let library = spillgate_modules::library();
    let compiled = spillgate_pipeline::compile(text, "measure", &library.catalog(), None)
        .map_err(|problems| anyhow!("{problems}"))?;
    let pipeline = compiled.pipeline;
    let module = pipeline
        .module(name)
        .with_context(|| format!("no module {name}"))?;
    let kind = library
        .get(&module.op)
        .with_context(|| format!("no type {}", module.op))?;
    let context = BuildContext {
        module,
        base_dir: models,
        limits: &pipeline.limits,
        backend,
    };
    Ok(kind.build(context)?)
}

/// Runs one request.
pub(crate) fn run(
    operator: &mut dyn Operator,
    variant: usize,
    inputs: Inputs,
) -> anyhow::Result<Vec<Value>> {
    let mut results = operator.run(variant, &[inputs]);
    Ok(results.pop().context("one result a request")??)
}
