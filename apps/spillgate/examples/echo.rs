//! The reference of the benchmarks of overhead: tonic's own server with the same API and the same messages. It answers
//! each call, and each frame of a stream, with its payload. The cost of Spillgate is its cost beyond this server's.
//!
//!     echo PORT_FILE [ADDRESS...]
//!
//! Where there are addresses, other echoes listen there. A call then goes through each of them in turn before it is
//! answered, over one stream to each that stays open: what a gateway does with a chain of workers, without anything
//! else that a gateway does.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use spillgate_proto::pb;
use spillgate_proto::pb::spillgate_client::SpillgateClient;
use spillgate_proto::pb::spillgate_server::{Spillgate, SpillgateServer};
use spillgate_proto::pb::stream_request::Message as Ask;
use spillgate_proto::pb::stream_response::Message as Said;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;
use tonic::{Request, Response, Status, Streaming};

/// Bytes that may be sent on a stream, and on a connection, before they are read.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;
/// Messages that wait for a stream to take them.
const WAITING: usize = 1024;

/// Frames that another echo has, with the calls that wait for them.
type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<pb::Result>>>>;

/// Another echo.
struct Hop {
    frames: mpsc::Sender<pb::StreamRequest>,
    waiting: Waiting,
}

impl Hop {
    async fn connect(address: &str) -> anyhow::Result<Self> {
        let endpoint = Endpoint::from_shared(format!("http://{address}"))?
            .tcp_nodelay(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW);
        let mut client = SpillgateClient::new(endpoint.connect().await?);
        let (frames, sent) = mpsc::channel(WAITING);
        let mut answers = client.stream(ReceiverStream::new(sent)).await?.into_inner();
        let waiting = Waiting::default();
        let calls = waiting.clone();
        tokio::spawn(async move {
            while let Some(Ok(answer)) = answers.next().await {
                let Some(Said::Result(result)) = answer.message else {
                    continue;
                };
                let mut calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(call) = calls.remove(&result.number) {
                    let _ = call.send(result);
                }
            }
        });
        Ok(Hop { frames, waiting })
    }

    /// Sends a frame there, and waits until it is back.
    async fn pass(&self, frame: pb::Frame) -> Result<pb::Result, Status> {
        let gone = || Status::unavailable("the next echo has gone");
        let (call, back) = oneshot::channel();
        self.waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(frame.number, call);
        let message = Some(Ask::Frame(frame));
        let sent = self.frames.send(pb::StreamRequest { message }).await;
        sent.map_err(|_| gone())?;
        back.await.map_err(|_| gone())
    }
}

#[derive(Default)]
struct Echo {
    hops: Vec<Hop>,
    n_calls: AtomicU64,
}

/// The frame as its result.
fn back(frame: pb::Frame) -> pb::Result {
    let value = pb::Value {
        value: Some(pb::value::Value::Data(frame.data)),
    };
    pb::Result {
        number: frame.number,
        outcome: pb::Outcome::Completed as i32,
        outputs: HashMap::from([("payload".to_owned(), value)]),
        ..Default::default()
    }
}

/// The result as the next frame.
fn onward(mut result: pb::Result) -> pb::Frame {
    let payload = result.outputs.remove("payload").and_then(|v| v.value);
    let data = match payload {
        Some(pb::value::Value::Data(data)) => data,
        _ => Default::default(),
    };
    pb::Frame {
        number: result.number,
        data,
        ..Default::default()
    }
}

#[tonic::async_trait]
impl Spillgate for Echo {
    async fn infer(
        &self,
        request: Request<pb::InferRequest>,
    ) -> Result<Response<pb::InferResponse>, Status> {
        let frame = request.into_inner().frame.unwrap_or_default();
        let number = frame.number;
        let mut frame = pb::Frame {
            number: self.n_calls.fetch_add(1, Ordering::Relaxed),
            ..frame
        };
        for hop in &self.hops {
            frame = onward(hop.pass(frame).await?);
        }
        frame.number = number;
        let result = Some(back(frame));
        Ok(Response::new(pb::InferResponse { result }))
    }

    type StreamStream = ReceiverStream<Result<pb::StreamResponse, Status>>;

    async fn stream(
        &self,
        request: Request<Streaming<pb::StreamRequest>>,
    ) -> Result<Response<Self::StreamStream>, Status> {
        let mut frames = request.into_inner();
        let (answers, written) = mpsc::channel(WAITING);
        tokio::spawn(async move {
            while let Some(Ok(asked)) = frames.next().await {
                let Some(Ask::Frame(frame)) = asked.message else {
                    continue;
                };
                let message = Some(Said::Result(back(frame)));
                let sent = answers.send(Ok(pb::StreamResponse { message })).await;
                if sent.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(written)))
    }

    async fn describe(
        &self,
        _: Request<pb::DescribeRequest>,
    ) -> Result<Response<pb::DescribeResponse>, Status> {
        Err(Status::unimplemented("an echo has nothing to describe"))
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let port_file = arguments.next();
    let port_file =
        port_file.ok_or_else(|| anyhow::anyhow!("usage: echo PORT_FILE [ADDRESS...]"))?;
    let mut echo = Echo::default();
    for address in arguments {
        echo.hops.push(Hop::connect(&address).await?);
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let partial = Path::new(&port_file).with_extension("partial");
    std::fs::write(&partial, format!("{address}\n"))?;
    std::fs::rename(&partial, &port_file)?;
    let incoming = tonic::transport::server::TcpIncoming::from(listener).with_nodelay(Some(true));
    tonic::transport::Server::builder()
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(256 << 10)
        .add_service(SpillgateServer::new(echo))
        .serve_with_incoming(incoming)
        .await?;
    Ok(())
}
