//! Whether a process can serve.

use std::sync::Arc;
use std::time::Duration;

use spillgate_controller::host::PipelineHost;
use tokio_util::sync::CancellationToken;

use crate::serving::Serving;

/// How often readiness looks at the device threads.
pub(crate) const READINESS_INTERVAL: Duration = Duration::from_millis(100);

/// Why nothing is served between two revisions, or after both have failed.
const NOT_SERVED: &str =
    "the pipelines are being replaced: one revision has ended, and the next one is not ready";

/// Why a process cannot serve: it ends, nothing is served between two revisions, or a thread has died without which it cannot.
pub(crate) fn not_ready(serving: &Serving, stop: &CancellationToken) -> Option<String> {
    if stop.is_cancelled() {
        return Some("shutting down".to_owned());
    }
    let (_, is_whole) = serving.running();
    let gap = || (!is_whole).then(|| NOT_SERVED.to_owned());
    dead(serving).or_else(gap)
}

/// The thread that has died without which the process cannot serve. It does not come back.
pub(crate) fn dead(serving: &Serving) -> Option<String> {
    let (running, _) = serving.running();
    running.iter().find_map(|embedded| embedded.dead())
}

/// The pipeline that no request can go through.
pub(crate) fn without_workers(hosts: &[Arc<PipelineHost>]) -> Option<String> {
    let mut unserved = hosts
        .iter()
        .filter_map(|host| Some((host, host.unserved()?)));
    let (host, module) = unserved.next()?;
    let name = &host.pipeline().name;
    Some(format!(
        "pipeline {name}: module {module} has no worker yet, or has lost all of them"
    ))
}
