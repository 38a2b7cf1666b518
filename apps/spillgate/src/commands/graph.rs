//! `spillgate graph`: draws a pipeline.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::commands;
use crate::files;
use clap::{Args, ValueEnum};
use spillgate_pipeline::graph::{Format, render};

/// What to draw, and how.
#[derive(Args)]
pub(crate) struct GraphArgs {
    /// Pipeline file.
    pipeline: PathBuf,
    /// How to draw it.
    #[arg(long, value_enum, default_value = "dot")]
    format: FormatArg,
}

#[derive(Clone, Copy, ValueEnum)]
enum FormatArg {
    /// Graphviz.
    Dot,
    /// Mermaid, for Markdown.
    Mermaid,
    /// A picture.
    Svg,
}

/// Prints the drawing.
pub(crate) fn run(args: &GraphArgs) -> anyhow::Result<ExitCode> {
    let loaded = files::load(&args.pipeline, &commands::library().catalog())?;
    let format = match args.format {
        FormatArg::Dot => Format::Dot,
        FormatArg::Mermaid => Format::Mermaid,
        FormatArg::Svg => Format::Svg,
    };
    super::print(&format!(
        "{}\n",
        render(&loaded.pipeline, format).trim_end()
    ))?;
    Ok(ExitCode::SUCCESS)
}
