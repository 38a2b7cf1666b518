//! What backends say of inputs that a model cannot take.

use std::path::Path;

use spillgate_process::value::Tensor;

use crate::BackendError;

/// Whether its numbers fill its shape.
pub(crate) fn check(input: &Tensor) -> Result<(), String> {
    let n: i64 = input.shape.iter().product();
    if n == input.data.len() as i64 {
        return Ok(());
    }
    let n_data = input.data.len();
    Err(format!(
        "{n_data} numbers do not fill the shape {:?}",
        input.shape
    ))
}

/// The error of a model on these inputs.
pub(crate) fn failed(path: &Path, inputs: &[Tensor], why: &str) -> BackendError {
    BackendError::Forward {
        shapes: shapes(inputs),
        detail: format!("{why} ({})", path.display()),
    }
}

fn shapes(inputs: &[Tensor]) -> String {
    if inputs.is_empty() {
        return "(none)".to_owned();
    }
    let all: Vec<String> = inputs.iter().map(|t| format!("{:?}", t.shape)).collect();
    all.join(", ")
}
