//! Takes in traces and discards them: the receiver of the overhead benchmark, which measures the cost of the export for
//! Spillgate and not the work of a collector.
//!
//!     otlp_sink PORT_FILE

use std::path::Path;

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use tonic::{Request, Response, Status};

/// Exports of 100% sampling hold many spans.
const MESSAGE_MAX: usize = 64 << 20;

struct Sink;

#[tonic::async_trait]
impl TraceService for Sink {
    async fn export(
        &self,
        _: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let port_file = std::env::args()
        .nth(1)
        .ok_or("usage: otlp_sink PORT_FILE")?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let partial = Path::new(&port_file).with_extension("partial");
    std::fs::write(&partial, format!("{}\n", listener.local_addr()?))?;
    std::fs::rename(&partial, &port_file)?;
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    let service = TraceServiceServer::new(Sink).max_decoding_message_size(MESSAGE_MAX);
    tonic::transport::Server::builder()
        .add_service(service)
        .serve_with_incoming(incoming)
        .await?;
    Ok(())
}
