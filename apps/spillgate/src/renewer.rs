//! Puts other definitions in the place of what a server serves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use spillgate_controller::api::Api;
use spillgate_controller::host::PipelineHost;
use spillgate_telemetry::Telemetry;
use tokio::sync::OwnedSemaphorePermit;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::deployment::Deployment;
use crate::embedded::{Embedded, STOP_LIMIT};
use crate::freed_memory;
use crate::health::service_of;
use crate::process_context::ProcessContext;
use crate::serving::Serving;
use crate::start_error::StartError;

/// How long the old definition had no request when it ends: a stream that read a frame just before the change has submitted it by
/// then.
const SETTLES: Duration = Duration::from_secs(1);
/// How often is looked whether it has any.
const LOOK: Duration = Duration::from_millis(20);

/// Why another definition cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum RenewError {
    /// Frames could become larger than connections take.
    #[error(
        "limits.frame_bytes of {pipeline} is {bytes}, and connections take {limit} at most since the start; restart to raise it"
    )]
    FrameBytes {
        /// The pipeline.
        pipeline: String,
        /// What it asks for.
        bytes: usize,
        /// What connections take.
        limit: usize,
    },
    /// Devices or models.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The server ends.
    #[error("the server ends")]
    Ends,
}

/// Replaces what a server serves.
#[derive(Clone)]
pub struct Renewer {
    pub(crate) context: ProcessContext,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) serving: Serving,
    pub(crate) api: Arc<Api>,
    pub(crate) health: HealthReporter,
    /// Largest frame that connections take.
    pub(crate) frame_bytes: usize,
}

impl Renewer {
    /// Serves these pipelines from now on. Returns once they serve; what was served ends in the background. To be called in a
    /// runtime, on a thread that may block.
    ///
    /// # Errors
    /// When they cannot be served. Then nothing changes.
    pub fn renew(&self, deployments: &[Deployment]) -> Result<(), RenewError> {
        for pipeline in deployments.iter().map(|d| &d.pipeline) {
            let bytes = pipeline.limits.frame_bytes;
            if bytes > self.frame_bytes {
                return Err(RenewError::FrameBytes {
                    pipeline: pipeline.name.clone(),
                    bytes,
                    limit: self.frame_bytes,
                });
            }
            self.telemetry.register_pipeline(pipeline);
        }
        let runtime = tokio::runtime::Handle::current();
        let place = runtime
            .block_on(self.serving.place_to_end())
            .map_err(|_| RenewError::Ends)?;
        let new = Embedded::start(&self.context, deployments, Some(&self.serving.now()))?;
        for (id, name) in new.device_names() {
            self.telemetry.register_device(*id, name);
        }
        let hosts = new.hosts.clone();
        let old = self.serving.replace(new).map_err(|new| {
            new.stop(STOP_LIMIT);
            RenewError::Ends
        })?;
        self.api.replace(hosts.clone());
        runtime.block_on(self.tell_health(&old, &hosts));
        runtime.spawn(end(self.serving.clone(), old, self.context.drain, place));
        Ok(())
    }

    async fn tell_health(&self, old: &Embedded, hosts: &[Arc<PipelineHost>]) {
        let name_of = |host: &Arc<PipelineHost>| service_of(&host.pipeline().name);
        for host in hosts {
            let serving = ServingStatus::Serving;
            self.health.set_service_status(name_of(host), serving).await;
        }
        let mut health = self.health.clone();
        let kept: Vec<String> = hosts.iter().map(name_of).collect();
        for gone in old
            .hosts
            .iter()
            .map(name_of)
            .filter(|name| !kept.contains(name))
        {
            health.clear_service_status(&gone).await;
        }
    }
}

/// Ends what was served before, once it has no request any more.
async fn end(serving: Serving, old: Arc<Embedded>, drain: Duration, place: OwnedSemaphorePermit) {
    let in_flight = || old.hosts.iter().map(|host| host.in_flight()).sum::<usize>();
    let began = Instant::now();
    let mut idle_since = Instant::now();
    while idle_since.elapsed() < SETTLES && began.elapsed() < drain.max(SETTLES) {
        tokio::time::sleep(LOOK).await;
        if in_flight() > 0 {
            idle_since = Instant::now();
        }
    }
    let aborted = in_flight();
    if aborted > 0 {
        tracing::warn!(
            aborted,
            "requests of the old definition did not end in time and were dropped"
        );
    }
    for host in &old.hosts {
        host.drain();
        host.abort();
    }
    serving.forget(&old);
    let stopped = tokio::task::spawn_blocking(move || {
        let busy = old.stop(STOP_LIMIT);
        drop(old);
        // Models and queues of one definition are megabytes, and the next one has taken its own already.
        freed_memory::give_back();
        drop(place);
        busy
    });
    for device in stopped.await.unwrap_or_default() {
        tracing::warn!(device, "a device of the old definition was still busy");
    }
}
