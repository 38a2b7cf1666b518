//! The reference of the overhead benchmark: tonic's own server with the same API and the same messages. It answers each
//! call with its payload. The cost of Spillgate is its cost beyond this server's.
//!
//!     echo PORT_FILE

use std::collections::HashMap;
use std::path::Path;

use spillgate_proto::pb;
use spillgate_proto::pb::spillgate_server::{Spillgate, SpillgateServer};
use tonic::{Request, Response, Status, Streaming};

struct Echo;

#[tonic::async_trait]
impl Spillgate for Echo {
    async fn infer(
        &self,
        request: Request<pb::InferRequest>,
    ) -> Result<Response<pb::InferResponse>, Status> {
        let frame = request.into_inner().frame.unwrap_or_default();
        let value = pb::Value {
            value: Some(pb::value::Value::Data(frame.data)),
        };
        let result = pb::Result {
            number: frame.number,
            outcome: pb::Outcome::Completed as i32,
            outputs: HashMap::from([("payload".to_owned(), value)]),
            ..Default::default()
        };
        Ok(Response::new(pb::InferResponse {
            result: Some(result),
        }))
    }

    type StreamStream = tokio_stream::Empty<Result<pb::StreamResponse, Status>>;

    async fn stream(
        &self,
        _: Request<Streaming<pb::StreamRequest>>,
    ) -> Result<Response<Self::StreamStream>, Status> {
        Err(Status::unimplemented("the yardstick answers Infer only"))
    }

    async fn describe(
        &self,
        _: Request<pb::DescribeRequest>,
    ) -> Result<Response<pb::DescribeResponse>, Status> {
        Err(Status::unimplemented("the yardstick answers Infer only"))
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let port_file = std::env::args()
        .nth(1)
        .ok_or_else(|| anyhow::anyhow!("usage: echo PORT_FILE"))?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let partial = Path::new(&port_file).with_extension("partial");
    std::fs::write(&partial, format!("{address}\n"))?;
    std::fs::rename(&partial, &port_file)?;
    let incoming = tonic::transport::server::TcpIncoming::from(listener).with_nodelay(Some(true));
    tonic::transport::Server::builder()
        .initial_stream_window_size(4 << 20)
        .initial_connection_window_size(16 << 20)
        .max_frame_size(256 << 10)
        .add_service(SpillgateServer::new(Echo))
        .serve_with_incoming(incoming)
        .await?;
    Ok(())
}
