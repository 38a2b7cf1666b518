//! The collector: OTLP over gRPC. The exporter of OpenTelemetry does not tell how many spans a collector rejected, so this calls the
//! generated client itself.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanData;
use spillgate_pipeline::printable::printable_line;
use tonic::transport::{Channel, Endpoint};

/// Most characters of a collector's own words in the log.
const SAID_MAX: usize = 200;

/// What a collector did not take of an export.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Rejected {
    pub(crate) spans: u64,
    /// Its reason, or a warning where it took all; may be empty.
    pub(crate) said: String,
}

/// A collector at its endpoint; it is dialled when something is sent.
pub(crate) struct Collector {
    client: TraceServiceClient<Channel>,
    resource: ResourceAttributesWithSchema,
}

impl Collector {
    /// Must be called on a runtime. Whether anything listens there is not checked: it may come up later.
    pub(crate) fn new(endpoint: &str, service: String, timeout: Duration) -> Result<Self, String> {
        let endpoint = Endpoint::from_shared(endpoint.to_owned());
        let endpoint = endpoint.map_err(|error| error.to_string())?;
        let channel = endpoint.connect_timeout(timeout).connect_lazy();
        let resource = Resource::builder_empty().with_service_name(service).build();
        Ok(Collector {
            client: TraceServiceClient::new(channel),
            resource: (&resource).into(),
        })
    }

    /// Sends spans once.
    pub(crate) async fn send(&mut self, spans: Vec<SpanData>) -> Result<Rejected, String> {
        let resource_spans = group_spans_by_resource_and_scope(spans, &self.resource);
        let answer = self
            .client
            .export(ExportTraceServiceRequest { resource_spans });
        let answer = answer
            .await
            .map_err(|status| format!("{:?}: {}", status.code(), said(status.message())))?;
        let partial = answer.into_inner().partial_success.unwrap_or_default();
        Ok(Rejected {
            spans: u64::try_from(partial.rejected_spans).unwrap_or(0),
            said: said(&partial.error_message),
        })
    }
}

fn said(text: &str) -> String {
    printable_line(text).chars().take(SAID_MAX).collect()
}
