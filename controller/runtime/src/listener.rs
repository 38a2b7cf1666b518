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
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::service::Routes;

use crate::gateway::Gateway;

/// Bytes that a client may send on one stream before it must wait for the server to read: holds a few
/// frames, so that large ones are not cut into round trips.
const STREAM_WINDOW: u32 = 4 << 20;
/// The same for all streams of one connection.
const CONNECTION_WINDOW: u32 = 16 << 20;
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

/// Bounds of the listener.
#[derive(Clone, Copy, Debug)]
pub struct ListenerLimits {
    /// Most connections at a time; more wait in the kernel's backlog.
    pub connections: usize,
    /// Most concurrent calls on one connection.
    pub calls_per_connection: u32,
    /// Most bytes of one message.
    pub message_bytes: usize,
}

/// What is served on each connection.
#[derive(Clone)]
pub struct Services {
    api: SpillgateServer<Gateway>,
    other: Routes,
}

impl Services {
    /// The API and whatever else tonic routes: health, reflection.
    pub fn new(gateway: Gateway, other: Routes, limits: &ListenerLimits) -> Self {
        let api = SpillgateServer::new(gateway).max_decoding_message_size(limits.message_bytes);
        Services {
            api,
            other: other.prepare(),
        }
    }
}

type Answer =
    Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send + 'static>>;

impl hyper::service::Service<http::Request<Incoming>> for Services {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn call(&self, request: http::Request<Incoming>) -> Answer {
        if request.uri().path().starts_with("/spillgate.v1.Spillgate/") {
            self.api.clone().call(request)
        } else {
            let mut other = self.other.clone();
            Box::pin(async move { other.call(request.map(Body::new)).await })
        }
    }
}

/// Serves connections until `stop` is cancelled; then no new ones are taken, those that are open finish their
/// calls, and `tracker` is empty once the last has ended.
pub async fn serve(
    listener: TcpListener,
    services: Services,
    limits: ListenerLimits,
    stop: CancellationToken,
    tracker: TaskTracker,
) {
    let places = Arc::new(Semaphore::new(limits.connections));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of file descriptors, most likely: let some connections end.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
            () = stop.cancelled() => return,
        };
        let (services, stop) = (services.clone(), stop.clone());
        tracker.spawn(async move {
            connection(stream, services, limits, stop).await;
            drop(place);
        });
    }
}

async fn connection(
    stream: TcpStream,
    services: Services,
    limits: ListenerLimits,
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
    let mut http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(HTTP_FRAME_MAX)
        .max_concurrent_streams(limits.calls_per_connection)
        .keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT);
    let connection = http.serve_connection(TokioIo::new(stream), services);
    tokio::pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
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
