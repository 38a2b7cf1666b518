//! The health service. A pipeline that a caller may not use does not exist for that caller.

use std::sync::Arc;

use spillgate_controller::edge::{Call, Edge};
use spillgate_controller::host::PipelineHost;
use tonic::{Request, Response, Status};
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::Health;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_health::server::{HealthReporter, HealthService, WatchStream};

/// What stands before a pipeline's name; the rest names services of the API.
const PIPELINE: &str = "pipeline/";

/// The name by which the health of a pipeline is asked for.
pub(crate) fn service_of(pipeline: &str) -> String {
    format!("{PIPELINE}{pipeline}")
}

/// Sets the health of the server and of its pipelines.
pub(crate) async fn set_health(
    health: &HealthReporter,
    hosts: &[Arc<PipelineHost>],
    status: ServingStatus,
) {
    health.set_service_status("", status).await;
    health
        .set_service_status("spillgate.v1.Spillgate", status)
        .await;
    for host in hosts {
        health
            .set_service_status(service_of(&host.pipeline().name), status)
            .await;
    }
}

/// Why new clients should use another server.
pub(crate) fn full(edge: &Edge) -> Option<String> {
    let view = edge.view();
    view.is_full.then(|| {
        format!(
            "full: the last connection was turned away; {} of {} are in use, {} of {} MiB are held",
            view.connections,
            view.connections_max,
            view.held >> 20,
            view.budget >> 20
        )
    })
}

/// tonic's service behind the caller's rights.
pub(crate) struct GuardedHealth(HealthService);

impl GuardedHealth {
    /// Answers with the states that this reporter is given.
    pub(crate) fn new(reporter: HealthReporter) -> Self {
        GuardedHealth(HealthService::from_health_reporter(reporter))
    }
}

fn guarded(mut request: Request<HealthCheckRequest>) -> Request<HealthCheckRequest> {
    let call: Option<&Arc<Call>> = request.extensions().get();
    let allowed = match (request.get_ref().service.strip_prefix(PIPELINE), call) {
        (Some(pipeline), Some(call)) => call.allows(pipeline),
        _ => true,
    };
    if !allowed {
        // Every pipeline has a name: the answer for an empty one is that for an unknown name.
        request.get_mut().service = PIPELINE.to_owned();
    }
    request
}

#[tonic::async_trait]
impl Health for GuardedHealth {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        self.0.check(guarded(request)).await
    }

    type WatchStream = WatchStream;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<WatchStream>, Status> {
        self.0.watch(guarded(request)).await
    }
}
