//! `spillgate schema`: the JSON Schema of pipeline files.

use crate::commands;
use std::process::ExitCode;

/// Prints the schema.
pub(crate) fn run() -> anyhow::Result<ExitCode> {
    let schema = spillgate_pipeline::schema::json_schema(&commands::library().catalog());
    super::print(&format!("{}\n", serde_json::to_string_pretty(&schema)?))?;
    Ok(ExitCode::SUCCESS)
}
