//! Logs to standard error: lines for people, or one JSON object a line for machines.

use std::error::Error;
use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// What is logged when the environment does not say otherwise.
const DEFAULT_FILTER: &str = "info";

/// Sends `tracing` events to standard error. `RUST_LOG` chooses what; without it, `info` and above.
///
/// # Errors
/// When logging was set up before.
pub fn init_logging(json: bool) -> Result<(), Box<dyn Error + Send + Sync>> {
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(DEFAULT_FILTER));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr as fn() -> _);
    if json {
        builder.json().flatten_event(true).try_init()
    } else {
        builder
            .with_ansi(std::io::stderr().is_terminal())
            .try_init()
    }
}
