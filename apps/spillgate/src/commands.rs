//! The subcommands, one file each, and what they share.

pub(crate) mod address;
pub(crate) mod cores;
pub(crate) mod device_sharing;
pub(crate) mod graph;
pub(crate) mod link_tls;
pub(crate) mod model_files;
pub(crate) mod models;
pub(crate) mod modules;
pub(crate) mod offered;
pub(crate) mod plan;
pub(crate) mod profile;
pub(crate) mod ranges;
pub(crate) mod roles;
pub(crate) mod rollout;
pub(crate) mod scaler;
pub(crate) mod schema;
pub(crate) mod serve;
pub(crate) mod simulate;
pub(crate) mod status;
pub(crate) mod token;
pub(crate) mod trace;
pub(crate) mod up;
pub(crate) mod validate;

use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use crate::files::{self, LoadError, LoadedPipeline};
use spillgate_backend::operator::Library;
use spillgate_client::ExitSummary;
pub(crate) use spillgate_client::print;
use spillgate_pipeline::profile::NoProfile;
use spillgate_sim::DEVICES_MAX;
use spillgate_telemetry::logging::complain;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::signals;

/// The module types of this program: it has one library, from its first line on.
static LIBRARY: OnceLock<Arc<Library>> = OnceLock::new();

/// Says which module types there are.
pub(crate) fn set_library(library: Library) {
    LIBRARY.get_or_init(|| Arc::new(library));
}

/// The module types of this program.
pub(crate) fn library() -> Arc<Library> {
    let library = LIBRARY.get();
    library
        .expect("the program begins with its library")
        .clone()
}

/// Exit code of a bad pipeline file (EX_CONFIG).
const BAD_SPEC: u8 = 78;

/// Where a command is that is the laboratory's.
pub(crate) fn in_laboratory(command: &str) -> anyhow::Result<ExitCode> {
    complain(&format!(
        "error: {command} is a command of the laboratory: cargo run --release -p spillgate-lab -- {command}"
    ));
    Ok(ExitCode::from(2))
}

/// Reads a number of devices.
pub(crate) fn gpus() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(DEVICES_MAX))
}

/// A profile that is missing: which, where it was looked for, and how it gets there.
pub(crate) fn unprofiled(loaded: &LoadedPipeline, missing: &NoProfile) -> anyhow::Error {
    let file = loaded.file.display();
    anyhow::anyhow!(
        "{missing} in {}; `spillgate profile {file}` measures real devices, for emulated ones write it by hand",
        files::profile_path(&loaded.file).display()
    )
}

/// Prints an error and chooses the exit code.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    if let Some(bad) = error.downcast_ref::<LoadError>() {
        complain(&bad.to_string());
        return ExitCode::from(BAD_SPEC);
    }
    complain(&format!("error: {error:#}"));
    ExitCode::from(1)
}

/// Runs a client command on a runtime of its own. A signal that ends processes cancels the token, and the command ends in order,
/// with its summary and whole files; a second one ends the process at once.
pub(crate) fn client<F>(run: impl FnOnce(CancellationToken) -> F) -> anyhow::Result<ExitCode>
where
    F: Future<Output = anyhow::Result<ExitSummary>>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let stop = CancellationToken::new();
    let entered = runtime.enter();
    for ending in signals::not_ignored() {
        let mut heard = signal(SignalKind::from_raw(ending as i32))?;
        let stop = stop.clone();
        runtime.spawn(async move {
            heard.recv().await;
            signals::end_at_once();
            stop.cancel();
        });
    }
    signals::are_heeded();
    drop(entered);
    let summary = runtime.block_on(async { run(stop).await })?;
    Ok(ExitCode::from(summary.exit_code()))
}
