//! Accepts connections and serves HTTP/2 on them until told to stop. Calls of the API go straight to their service;
//! health and reflection go through tonic's router.
//!
//! tonic's own server would enforce `grpc-timeout` itself and answer an expired call with CANCELLED; here the
//! deadline belongs to the pipeline, which answers with DEADLINE_EXCEEDED and the reason.

use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::HeaderName;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::metadata::MetadataValue;
use tonic::service::Routes;

use crate::api::Api;
use crate::convert;
use crate::edge::{
    Answers, Call, Connection, Edge, Leaves, Messages, Metered, TLS_BYTES, Taking, Tls, Why, sweep,
};

/// The header that says how messages of a call are packed, and that of an answer that says which ways are taken.
static GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const GRPC_ACCEPT_ENCODING: &str = "grpc-accept-encoding";
/// Largest HTTP/2 frame accepted: pictures come in fewer, larger pieces.
const HTTP_FRAME_MAX: u32 = 256 << 10;
/// Most bytes of a call's headers, as HTTP/2 counts them.
pub(crate) const HEADERS_MAX: u32 = 8 << 10;
/// A connection without traffic is probed after this time, so that the requests of a vanished client are dropped.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// A probe unanswered for this long ends the connection.
pub(crate) const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Time until HTTP/2's preface must have come. A connection without it holds a place that others may want.
pub(crate) const PREFACE_LIMIT: Duration = Duration::from_secs(3);

/// EMFILE and ENFILE: the process, or the system, has no descriptor left.
const NO_DESCRIPTOR: [i32; 2] = [24, 23];
/// After a connection could not be accepted: not long for who waits, and no busy loop.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// The services on each connection.
#[derive(Clone)]
pub struct Services {
    api: Arc<Api>,
    other: Routes,
}

impl Services {
    /// Other services, routed by tonic: health, reflection.
    pub fn new(api: Arc<Api>, other: Routes) -> Self {
        Services {
            api,
            other: other.prepare(),
        }
    }
}

/// The services on one connection.
struct Served {
    services: Services,
    connection: Arc<Connection>,
}

type Answered = Result<http::Response<Answers<Body>>, Infallible>;
/// The future answer of a tonic service.
type Asked = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

/// The future answer to a call.
enum Answer {
    /// The call is refused.
    Now(Option<Status>),
    /// It is no call of gRPC.
    NotGrpc,
    /// The call is with its service.
    Asked {
        answer: Asked,
        call: Arc<Call>,
        is_unary: bool,
        is_api: bool,
    },
}

impl Future for Answer {
    type Output = Answered;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answered> {
        match &mut *self {
            Answer::Now(status) => {
                let status = status
                    .take()
                    .unwrap_or_else(|| Status::unknown("asked again"));
                Poll::Ready(Ok(status.into_http().map(Answers::nothing)))
            }
            Answer::NotGrpc => {
                let mut answer = http::Response::new(Answers::nothing(Body::empty()));
                *answer.status_mut() = http::StatusCode::UNSUPPORTED_MEDIA_TYPE;
                Poll::Ready(Ok(answer))
            }
            Answer::Asked {
                answer,
                call,
                is_unary,
                is_api,
            } => {
                let (head, body) = ready!(answer.as_mut().poll(cx))?.into_parts();
                let mut answers = Answers::new(body, call.clone(), *is_unary);
                if !*is_api {
                    // The API ends its streams itself: what they took is answered first.
                    let call = call.clone();
                    answers = answers.until(async move { call.is_to_end().await });
                }
                if *is_unary {
                    answers.make(cx);
                }
                Poll::Ready(Ok(http::Response::from_parts(head, answers)))
            }
        }
    }
}

impl hyper::service::Service<http::Request<Incoming>> for Served {
    type Response = http::Response<Answers<Body>>;
    type Error = Infallible;
    type Future = Answer;

    fn call(&self, mut request: http::Request<Incoming>) -> Answer {
        // Checked before anything is read or answered, on every path.
        let token = match self.connection.edge().identify(request.headers()) {
            Ok(token) => token,
            Err(refusal) => {
                self.connection.turned_down();
                return Answer::Now(Some(convert::call_refused(&refusal)));
            }
        };
        if token.is_some() {
            // So that no later code can log it.
            request.headers_mut().remove(http::header::AUTHORIZATION);
        }
        if !is_grpc(request.headers()) {
            self.connection.turned_down();
            return Answer::NotGrpc;
        }
        let is_packed = match packing(request.headers()) {
            Ok(is_packed) => is_packed,
            Err(status) => {
                self.connection.turned_down();
                return Answer::Now(Some(status));
            }
        };
        if is_packed {
            // Messages are passed on unpacked.
            request.headers_mut().remove(&GRPC_ENCODING);
        }
        let n_headers = request.headers().len();
        let call = match self.connection.begin(token, n_headers) {
            Ok(call) => call,
            Err(full) => {
                let status = Status::resource_exhausted(format!("the call is not taken: {full}"));
                return Answer::Now(Some(status));
            }
        };
        let path = request.uri().path();
        let is_api = path.starts_with("/spillgate.v1.Spillgate/");
        let is_unary = !path.ends_with("/Stream") && !path.ends_with("/ServerReflectionInfo");
        let has_frames = is_api && !path.ends_with("/Describe");
        let limits = self.connection.edge().limits();
        let taking = Taking {
            bytes_max: limits.message_bytes,
            limit: limits.message,
            is_unary,
            has_frames,
            hands_over: has_frames && !is_unary,
            is_packed,
        };
        let mut request = request.map(|body| Messages::new(body, call.clone(), taking));
        let answer = if is_api {
            let api = self.services.api.serve(call.clone());
            api.max_decoding_message_size(limits.message_bytes)
                .call(request)
        } else {
            request.extensions_mut().insert(call.clone());
            let mut other = self.services.other.clone();
            Box::pin(async move { other.call(request.map(Body::new)).await })
        };
        Answer::Asked {
            answer,
            call,
            is_unary,
            is_api,
        }
    }
}

/// Whether a call says that it is gRPC's, with messages of protobuf. Of others the status is 415, as the protocol of gRPC asks.
fn is_grpc(headers: &http::HeaderMap) -> bool {
    let content = headers.get(http::header::CONTENT_TYPE);
    if content.is_some_and(|value| value == "application/grpc") {
        return true;
    }
    let content = content.and_then(|value| value.to_str().ok()).unwrap_or("");
    let (kind, _) = content.split_once(';').unwrap_or((content, ""));
    let kind = kind.trim();
    ["application/grpc", "application/grpc+proto"]
        .iter()
        .any(|known| kind.eq_ignore_ascii_case(known))
}

/// Whether messages of a call are packed with gzip.
///
/// # Errors
/// When they are packed otherwise.
fn packing(headers: &http::HeaderMap) -> Result<bool, Status> {
    let encoding = headers.get(&GRPC_ENCODING).map(|value| value.as_bytes());
    match encoding {
        None | Some(b"identity") => Ok(false),
        Some(b"gzip") => Ok(true),
        Some(other) => {
            let other = String::from_utf8_lossy(other);
            let text = format!(
                "messages packed with {other} are not taken; pack them with gzip, or not at all"
            );
            let mut status = Status::unimplemented(text);
            let taken = MetadataValue::from_static("identity,gzip");
            status.metadata_mut().insert(GRPC_ACCEPT_ENCODING, taken);
            Err(status)
        }
    }
}

/// Serves connections, over TLS if given, until `stop` is cancelled. Then no new connections are accepted, and open
/// ones take no new calls and finish those that they have. Streams end with UNAVAILABLE, each once what it took is
/// answered. `tracker` is empty once the last connection has ended.
pub async fn serve(
    listener: TcpListener,
    services: Services,
    edge: Arc<Edge>,
    tls: Option<Arc<Tls>>,
    stop: CancellationToken,
    tracker: TaskTracker,
) {
    tracker.spawn(sweep(edge.clone(), stop.clone()));
    loop {
        let (stream, peer) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    if NO_DESCRIPTOR.map(Some).contains(&error.raw_os_error()) {
                        edge.make_room();
                    }
                    // Also one that gives way takes a moment to end.
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                    continue;
                }
            },
            () = stop.cancelled() => return,
        };
        let Some(connection) = edge.welcome(peer.ip()) else {
            continue;
        };
        let (services, tls, stop) = (services.clone(), tls.clone(), stop.clone());
        let leaves = Leaves(connection.clone());
        let served = connection.clone();
        let task = tracker.spawn(async move {
            let _leaves = leaves;
            open_connection(stream, tls, services, served, stop).await;
        });
        connection.served_by(task.abort_handle());
    }
}

/// Serves one stream of bytes that was opened elsewhere, from `peer`, until it ends or `stop` is cancelled. Returns
/// at once where the edge has no place for it. The edge's sweeper does not close it: the task is the caller's. The
/// other limits of time hold.
pub async fn serve_stream(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: IpAddr,
    services: Services,
    edge: &Arc<Edge>,
    stop: CancellationToken,
) {
    if let Some(connection) = edge.welcome(peer) {
        let _leaves = Leaves(connection.clone());
        serve_connection(stream, services, connection, stop).await;
    }
}

async fn open_connection(
    stream: TcpStream,
    tls: Option<Arc<Tls>>,
    services: Services,
    connection: Arc<Connection>,
    stop: CancellationToken,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "no TCP_NODELAY");
    }
    let Some(tls) = tls else {
        return serve_connection(stream, services, connection, stop).await;
    };
    let _lease = match connection.holder().take_last(TLS_BYTES) {
        Ok(lease) => lease,
        Err(full) => {
            tracing::warn!(%full, "a connection was turned away");
            return;
        }
    };
    match tls.accept(stream).await {
        Ok(stream) => serve_connection(stream, services, connection, stop).await,
        Err(error) => {
            tracing::info!(address = %connection.peer(), %error, "no TLS with a client");
        }
    }
}

async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    services: Services,
    connection: Arc<Connection>,
    stop: CancellationToken,
) {
    let limits = *connection.edge().limits();
    let mut http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new())
        .initial_stream_window_size(connection.window())
        .initial_connection_window_size(connection.window())
        .max_frame_size(HTTP_FRAME_MAX.min(connection.window()))
        .max_concurrent_streams(limits.calls_per_connection)
        .max_header_list_size(HEADERS_MAX)
        .keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT);
    let stream = Metered::new(stream, connection.clone());
    let served = Served {
        services,
        connection: connection.clone(),
    };
    let http = http.serve_connection(TokioIo::new(stream), served);
    tokio::pin!(http);
    let greeting = tokio::time::timeout(PREFACE_LIMIT, connection.greeted());
    tokio::select! {
        ended = http.as_mut() => return ended_with(ended),
        greeted = greeting => if greeted.is_err() {
            tracing::debug!("a connection without a greeting was closed");
            return;
        },
    }
    let (mut departs, mut stops) = (false, false);
    loop {
        tokio::select! {
            ended = http.as_mut() => return ended_with(ended),
            () = connection.departs(), if !departs => {
                departs = true;
                // GOAWAY: calls that were on their way are served still.
                http.as_mut().graceful_shutdown();
            }
            () = stop.cancelled(), if !stops => {
                stops = true;
                connection.depart(Why::ServerEnds);
            }
        }
    }
}

fn ended_with(result: Result<(), hyper::Error>) {
    if let Err(error) = result {
        tracing::debug!(%error, "a connection ended with an error");
    }
}
