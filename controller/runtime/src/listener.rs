//! Accepts connections and serves HTTP/2 on them, until told to stop. The API's own calls go straight to
//! their service; health and reflection go through tonic's router.
//!
//! tonic's own server would enforce `grpc-timeout` itself and answer an expired call with CANCELLED; here the
//! deadline belongs to the pipeline, which answers with DEADLINE_EXCEEDED and the reason.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use spillgate_proto::pb::spillgate_server::SpillgateServer;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::service::Routes;

use crate::edge::{Answers, Connection, Edge, EdgeLimits, Leaves, Messages, Metered, sweep};
use crate::gateway::Gateway;

/// Largest HTTP/2 frame taken in: fewer, larger pieces for pictures.
const HTTP_FRAME_MAX: u32 = 256 << 10;
/// A connection without traffic is probed after this long, so that a vanished client's work is freed.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// A probe unanswered for this long ends the connection.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// A client that says nothing for this long after connecting is no client: it holds one of the
/// connections that others may want.
const PREFACE_LIMIT: Duration = Duration::from_secs(3);
/// How often an incomplete greeting is looked at again.
const PREFACE_POLL: Duration = Duration::from_millis(10);
/// Length of HTTP/2's greeting.
const PREFACE_BYTES: usize = 24;

/// What is served on each connection.
#[derive(Clone)]
pub struct Services {
    api: SpillgateServer<Gateway>,
    other: Routes,
}

impl Services {
    /// The API and whatever else tonic routes: health, reflection.
    pub fn new(gateway: Gateway, other: Routes, limits: &EdgeLimits) -> Self {
        let api = SpillgateServer::new(gateway).max_decoding_message_size(limits.message_bytes);
        Services {
            api,
            other: other.prepare(),
        }
    }
}

/// What is served on one connection.
struct Served {
    services: Services,
    connection: Arc<Connection>,
}

type Answer =
    Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send + 'static>>;

impl hyper::service::Service<http::Request<Incoming>> for Served {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn call(&self, request: http::Request<Incoming>) -> Answer {
        let call = match self.connection.begin() {
            Ok(call) => call,
            Err(full) => {
                let status = Status::resource_exhausted(format!("the call is not taken: {full}"));
                return Box::pin(std::future::ready(Ok(status.into_http())));
            }
        };
        let path = request.uri().path();
        let is_api = path.starts_with("/spillgate.v1.Spillgate/");
        let is_unary = is_api && !path.ends_with("/Stream");
        let limits = self.connection.edge().limits();
        let mut request = request.map(|body| {
            let (bytes_max, limit) = (limits.message_bytes, limits.message);
            Messages::new(body, call.clone(), is_unary, bytes_max, limit)
        });
        request.extensions_mut().insert(call.clone());
        if is_api {
            let answer = self.services.api.clone().call(request);
            Box::pin(async move {
                let (head, body) = answer.await?.into_parts();
                let mut answers = Answers::new(body, call);
                if is_unary {
                    answers.make().await;
                }
                Ok(http::Response::from_parts(head, Body::new(answers)))
            })
        } else {
            let mut other = self.services.other.clone();
            Box::pin(async move {
                let answer = other.call(request.map(Body::new)).await?;
                Ok(answer.map(|body| Body::new(Answers::new(body, call))))
            })
        }
    }
}

/// Serves connections until `stop` is cancelled; then no new ones are taken, those that are open finish their
/// calls, and `tracker` is empty once the last has ended.
pub async fn serve(
    listener: TcpListener,
    services: Services,
    edge: Arc<Edge>,
    stop: CancellationToken,
    tracker: TaskTracker,
) {
    tracker.spawn(sweep(edge.clone(), stop.clone()));
    loop {
        let (stream, peer) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file descriptors, most likely: let some connections end.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
            () = stop.cancelled() => return,
        };
        let Some(connection) = edge.welcome(peer.ip()) else {
            continue;
        };
        let (services, stop) = (services.clone(), stop.clone());
        tracker.spawn(async move {
            let leaves = Leaves(connection.clone());
            let closing = connection.clone();
            tokio::select! {
                () = serve_connection(stream, services, connection, stop) => {}
                () = closing.closing() => {}
            }
            drop(leaves);
        });
    }
}

async fn serve_connection(
    stream: TcpStream,
    services: Services,
    connection: Arc<Connection>,
    stop: CancellationToken,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "no TCP_NODELAY");
    }
    if !matches!(
        tokio::time::timeout(PREFACE_LIMIT, greeted(&stream)).await,
        Ok(true)
    ) {
        tracing::debug!("a connection without a greeting was closed");
        return;
    }
    let limits = *connection.edge().limits();
    let mut http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new())
        .initial_stream_window_size(connection.window())
        .initial_connection_window_size(connection.window())
        .max_frame_size(HTTP_FRAME_MAX.min(connection.window()))
        .max_concurrent_streams(limits.calls_per_connection)
        .keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT);
    let stream = Metered::new(stream, connection.clone());
    let served = Served {
        services,
        connection,
    };
    let http = http.serve_connection(TokioIo::new(stream), served);
    tokio::pin!(http);
    let result = tokio::select! {
        result = http.as_mut() => result,
        () = stop.cancelled() => {
            http.as_mut().graceful_shutdown();
            http.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "a connection ended with an error");
    }
}

/// Waits for a whole greeting, without taking it; false when the connection ends before.
async fn greeted(stream: &TcpStream) -> bool {
    let mut greeting = [0; PREFACE_BYTES];
    loop {
        match stream.peek(&mut greeting).await {
            Ok(0) | Err(_) => return false,
            Ok(PREFACE_BYTES) => return true,
            Ok(_) => tokio::time::sleep(PREFACE_POLL).await,
        }
    }
}
