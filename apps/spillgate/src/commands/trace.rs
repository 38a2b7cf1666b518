//! `spillgate trace`: shows a trace as a waterfall.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use spillgate_telemetry::waterfall;

/// Columns of the drawing where the terminal does not say how many it has.
const COLUMNS_DEFAULT: usize = 110;

/// Which trace, from where.
#[derive(Args)]
pub(crate) struct TraceArgs {
    /// Trace id in hex, as results carry it.
    id: String,
    /// Jaeger's query API.
    #[arg(
        long,
        env = "SPILLGATE_JAEGER_QUERY",
        default_value = "http://127.0.0.1:26686"
    )]
    jaeger: String,
    /// Draw it to this file, too.
    #[arg(long)]
    svg: Option<PathBuf>,
}

/// Prints the waterfall.
pub(crate) fn run(args: &TraceArgs) -> anyhow::Result<ExitCode> {
    if let Some(file) = &args.svg {
        spillgate_output::check(file)?;
    }
    let trace = waterfall::fetch(&args.jaeger, &args.id)?;
    let columns = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok());
    super::print(&trace.to_text(columns.unwrap_or(COLUMNS_DEFAULT)))?;
    if let Some(file) = &args.svg {
        spillgate_output::write(file, trace.to_svg())?;
    }
    Ok(ExitCode::SUCCESS)
}
