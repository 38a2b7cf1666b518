//! An OTLP receiver: a gRPC server on a free port that keeps the spans it is sent.

use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, Span};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

/// How the receiver behaves.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Answers {
    AtOnce,
    Never,
    /// So many spans of each export are not taken.
    Rejecting(i64),
}

/// A running receiver; it ends with the test.
pub(crate) struct Receiver {
    pub(crate) endpoint: String,
    received: Arc<Mutex<Vec<ResourceSpans>>>,
    _runtime: tokio::runtime::Runtime,
}

impl Receiver {
    pub(crate) fn start(answers: Answers) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let received = Arc::new(Mutex::new(Vec::new()));
        let service = Service {
            answers,
            received: received.clone(),
        };
        runtime.spawn(
            tonic::transport::Server::builder()
                .add_service(TraceServiceServer::new(service))
                .serve_with_incoming(TcpListenerStream::new(listener)),
        );
        Receiver {
            endpoint,
            received,
            _runtime: runtime,
        }
    }

    /// All spans so far.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let received = self.received.lock().unwrap();
        let scopes = received.iter().flat_map(|resource| &resource.scope_spans);
        scopes.flat_map(|scope| scope.spans.clone()).collect()
    }

    /// The services that sent them.
    pub(crate) fn services(&self) -> Vec<String> {
        let received = self.received.lock().unwrap();
        let resources = received.iter().filter_map(|spans| spans.resource.as_ref());
        let mut names: Vec<String> = resources
            .map(|resource| attribute(&resource.attributes, "service.name"))
            .collect();
        names.dedup();
        names
    }
}

/// An attribute as text; empty when there is none.
pub(crate) fn attribute(attributes: &[KeyValue], key: &str) -> String {
    let value = attributes
        .iter()
        .find(|a| a.key == key)
        .and_then(|a| a.value.as_ref());
    match value.and_then(|v| v.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::DoubleValue(number)) => number.to_string(),
        _ => String::new(),
    }
}

struct Service {
    answers: Answers,
    received: Arc<Mutex<Vec<ResourceSpans>>>,
}

#[tonic::async_trait]
impl TraceService for Service {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        if self.answers == Answers::Never {
            std::future::pending::<()>().await;
        }
        self.received
            .lock()
            .unwrap()
            .extend(request.into_inner().resource_spans);
        let rejected = match self.answers {
            Answers::Rejecting(rejected_spans) => Some(ExportTracePartialSuccess {
                rejected_spans,
                error_message: "too large".to_owned(),
            }),
            _ => None,
        };
        Ok(Response::new(ExportTraceServiceResponse {
            partial_success: rejected,
        }))
    }
}
