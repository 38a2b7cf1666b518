//! `spillgate status`: what processes are, do and expect.

use std::process::ExitCode;
use std::time::Duration;

use crate::status::Status;
use anyhow::{Context, bail};
use clap::Args;
use serde_json::Value;
use spillgate_pipeline::address;
use spillgate_pipeline::printable::printable_line;
use spillgate_telemetry::logging::complain;

/// How long a process may take to answer.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);
/// Most bytes of an answer: thousands of workers.
pub(crate) const BYTES_MAX: u64 = 16 << 20;

/// Which processes.
#[derive(Args)]
pub(crate) struct StatusArgs {
    /// Admin ports of the processes, with commas between them. A gateway's shows all workers and controllers.
    #[arg(
        long,
        env = "SPILLGATE_ADMIN",
        value_delimiter = ',',
        default_value = "127.0.0.1:7701",
        value_name = "ADDRESS"
    )]
    admin: Vec<String>,
    /// One JSON object a process, each on a line.
    #[arg(long)]
    json: bool,
}

/// Prints the state of each process. Ends with an error when one does not answer.
pub(crate) fn run(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for (i, address) in args.admin.iter().enumerate() {
        let answer = fetch(address).and_then(|json| {
            let status = read(&json).with_context(|| {
                format!("{address} answers what this version cannot read; use the version that serves there")
            })?;
            Ok((json, status))
        });
        match answer {
            Ok((json, _)) if args.json => super::print(&format!("{json}\n"))?,
            Ok((_, status)) => {
                let gap = if i > 0 { "\n" } else { "" };
                super::print(&format!("{gap}{}", status.to_text()))?;
            }
            Err(error) => {
                complain(&format!("error: {error:#}"));
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}

/// The state of the process with that admin port.
///
/// # Errors
/// When none answers there, or not with a state.
pub(super) fn of(address: &str) -> anyhow::Result<Status> {
    Ok(read(&fetch(address)?)?)
}

/// The state, all of whose texts are lines.
fn read(json: &str) -> serde_json::Result<Status> {
    fn lines(value: &mut Value) {
        match value {
            Value::String(text) => *text = printable_line(text).into_owned(),
            Value::Array(all) => all.iter_mut().for_each(lines),
            Value::Object(all) => all.values_mut().for_each(lines),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    let mut value = serde_json::from_str(json)?;
    lines(&mut value);
    serde_json::from_value(value)
}

fn fetch(address: &str) -> anyhow::Result<String> {
    let url = format!("{}/status", address::url(address));
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(LIMIT))
        .http_status_as_error(false)
        .build()
        .into();
    let answer = agent.get(&url).call();
    let mut answer = answer.with_context(|| {
        format!("no process answers on {address}; --admin names the admin port that it says at its start")
    })?;
    let status = answer.status().as_u16();
    let body = answer.body_mut().with_config().limit(BYTES_MAX);
    let body = body.read_to_string().with_context(|| url.clone())?;
    match status {
        200 => Ok(body),
        503 => bail!(
            "{address} does not serve yet: {}",
            printable_line(body.trim_end())
        ),
        404 => bail!("{address} has no /status: it is no process of this version of spillgate"),
        other => bail!("{url} answers {other}: {}", printable_line(body.trim_end())),
    }
}
