//! Unary calls directly on HTTP/2: a request is encoded once, and a call costs only its frames. (A call through the
//! generated client costs three to four times the CPU.)
//!
//! A connection that breaks is made again, every [`RECONNECT_PAUSE`]; meanwhile its calls fail at once. One that its
//! server retires is replaced by another one, and calls that the server did not take wait for that.
//! Compression is not supported.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use h2::client::{ResponseFuture, SendRequest};
use h2::{Ping, RecvStream};
use http::HeaderMap;
use prost::Message;
use spillgate_proto::pb;
use spillgate_proto::pb::Outcome;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tonic::{Code, Status};

use crate::connect::{CONNECT_TIME_MAX, Connection, Server, Upload};

const METHOD: &str = "/spillgate.v1.Spillgate/Infer";
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);
/// How often a call that a server did not take is made on another connection.
pub(crate) const MOVES_MAX: usize = 8;
const WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 32 << 20;
/// The prefix of each gRPC message: a flag and the length.
const PREFIX_BYTES: usize = 5;

/// The module named for requests that the server did not answer.
pub(crate) const CLIENT: &str = "client";
/// The reason of a request whose connection broke, or was not there.
pub(crate) const CONNECTION_LOST: &str = "connection_lost";
/// The reason of a request that was not answered in time.
pub(crate) const NO_ANSWER: &str = "no_answer";

type Sender = SendRequest<Bytes>;

/// A connection on which calls are made.
#[derive(Clone)]
struct Live {
    sender: Sender,
    /// Its server takes no more calls on it.
    retired: Arc<Notify>,
}

/// Connections, used in turn.
pub(crate) struct Connections {
    senders: Vec<watch::Receiver<Option<Live>>>,
    request: http::Request<()>,
    bodies: Vec<Bytes>,
    next: usize,
    /// Tasks that keep the connections up; they end with this.
    _keepers: JoinSet<()>,
}

impl Connections {
    /// Connects `n` times to `server`, for calls with these requests.
    pub(crate) async fn open(
        server: &Server,
        n: usize,
        requests: impl Iterator<Item = pb::InferRequest>,
    ) -> Result<Self> {
        let mut keepers = JoinSet::new();
        let mut senders = Vec::with_capacity(n);
        for _ in 0..n {
            let (sender, receiver) = watch::channel(None);
            keepers.spawn(keep(server.clone(), sender));
            senders.push(receiver);
        }
        for sender in &mut senders {
            timeout(CONNECT_TIME_MAX, sender.wait_for(Option::is_some))
                .await
                .map_err(|_| {
                    anyhow!("cannot reach {} within {CONNECT_TIME_MAX:?}", server.url)
                })??;
        }
        let mut head = http::Request::post(format!("{}{METHOD}", server.origin))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        if let Some(token) = server.authorization() {
            head = head.header(http::header::AUTHORIZATION, token);
        }
        let head = head
            .body(())
            .context("the server's address makes no request")?;
        Ok(Connections {
            senders,
            request: head,
            bodies: requests.map(|request| framed(&request)).collect(),
            next: 0,
            _keepers: keepers,
        })
    }

    /// Number of prepared requests.
    pub(crate) fn requests(&self) -> usize {
        self.bodies.len()
    }

    /// A call with the request of this index. It is sent when it is first polled.
    pub(crate) fn call(&mut self, request: usize) -> impl Future<Output = Reply> + Send + 'static {
        let live = self.senders[self.next].clone();
        self.next = (self.next + 1) % self.senders.len();
        let (request, body) = (self.request.clone(), self.bodies[request].clone());
        async move {
            let mut reply = Reply {
                sent: None,
                result: pb::Result::default(),
            };
            reply.result = match exchange(live, request, body, &mut reply.sent).await {
                Ok(Ok(result)) => result,
                Ok(Err(status)) => refused(&status),
                Err(error) => client_failure(CONNECTION_LOST, &format!("{error:#}")),
            };
            reply
        }
    }
}

/// How a call ended.
pub(crate) struct Reply {
    /// When the request was written to the connection.
    pub(crate) sent: Option<Instant>,
    pub(crate) result: pb::Result,
}

async fn exchange(
    mut live: watch::Receiver<Option<Live>>,
    request: http::Request<()>,
    body: Bytes,
    sent: &mut Option<Instant>,
) -> Result<Result<pb::Result, Status>> {
    let mut moves = 0;
    loop {
        let on = live.borrow_and_update().clone().context("not connected")?;
        let answered = attempt(on.sender, request.clone(), body.clone(), sent).await;
        match answered {
            Err(error) if moves < MOVES_MAX && is_not_taken(&error) => {
                moves += 1;
                on.retired.notify_one();
                timeout(CONNECT_TIME_MAX, live.changed()).await??;
            }
            answered => return answered,
        }
    }
}

/// Whether the server says that it did not take the call, so that it may be made again.
fn is_not_taken(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<h2::Error>();
    error.is_some_and(|error| match error.reason() {
        Some(h2::Reason::NO_ERROR) => error.is_go_away() && error.is_remote(),
        reason => reason == Some(h2::Reason::REFUSED_STREAM),
    })
}

async fn attempt(
    sender: Sender,
    request: http::Request<()>,
    body: Bytes,
    sent: &mut Option<Instant>,
) -> Result<Result<pb::Result, Status>> {
    let mut sender = sender.ready().await?;
    *sent = Some(Instant::now());
    let (response, mut stream) = sender.send_request(request, false)?;
    stream.send_data(body, true)?;
    receive(response).await
}

async fn receive(response: ResponseFuture) -> Result<Result<pb::Result, Status>> {
    let (head, mut body) = response.await?.into_parts();
    // An error without a message comes with the first headers.
    if let Some(status) = Status::from_header_map(&head.headers)
        && status.code() != Code::Ok
    {
        return Ok(Err(status));
    }
    let mut message = BytesMut::new();
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        message.extend_from_slice(&data);
    }
    let trailers: HeaderMap = trailers(&mut body).await?;
    match Status::from_header_map(&trailers) {
        Some(status) if status.code() != Code::Ok => return Ok(Err(status)),
        _ => {}
    }
    if message.len() < PREFIX_BYTES {
        return Err(anyhow!("an answer without a message"));
    }
    message.advance(PREFIX_BYTES);
    let response = pb::InferResponse::decode(message.freeze())?;
    Ok(Ok(response.result.unwrap_or_default()))
}

async fn trailers(body: &mut RecvStream) -> Result<HeaderMap> {
    Ok(body.trailers().await?.unwrap_or_default())
}

fn framed(request: &pb::InferRequest) -> Bytes {
    let length = request.encoded_len();
    let mut body = BytesMut::with_capacity(PREFIX_BYTES + length);
    body.put_u8(0);
    body.put_u32(length as u32);
    body.put(request.encode_to_vec().as_slice());
    body.freeze()
}

async fn keep(server: Server, live: watch::Sender<Option<Live>>) {
    // Their last calls end on them.
    let mut retired = JoinSet::new();
    loop {
        while retired.try_join_next().is_some() {}
        let began = Instant::now();
        if let Ok((sender, mut connection)) = connect(&server).await {
            let on = Live {
                sender,
                retired: Arc::default(),
            };
            live.send_replace(Some(on.clone()));
            tokio::select! {
                ended = &mut connection => if ended.is_err() {
                    // The calls on it see how it ended.
                    live.send_replace(None);
                },
                () = on.retired.notified() => {
                    retired.spawn(connection);
                }
            }
        }
        // At once, unless the server ends each connection.
        sleep(RECONNECT_PAUSE.saturating_sub(began.elapsed())).await;
    }
}

async fn connect(server: &Server) -> Result<(Sender, h2::client::Connection<Connection, Bytes>)> {
    let stream = server.dial(Upload::default()).await?;
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(WINDOW_BYTES);
    builder.initial_connection_window_size(CONNECTION_WINDOW_BYTES);
    builder.enable_push(false);
    let (sender, mut connection) = builder.handshake(stream).await?;
    // A server that ends just now may never look at a connection that the system has taken for it.
    let mut pings = connection.ping_pong().context("the first to ping")?;
    let answered = async {
        tokio::select! {
            ended = &mut connection => Err(ended.map_or_else(Into::into, |()| anyhow!("it was closed"))),
            answer = pings.ping(Ping::opaque()) => answer.map(drop).map_err(Into::into),
        }
    };
    timeout(CONNECT_TIME_MAX, answered).await??;
    Ok((sender, connection))
}

/// The result of a call that ended with a status: from its details, or from the code.
pub(crate) fn refused(status: &Status) -> pb::Result {
    if let Some(result) = result_in_details(status.details()) {
        return result;
    }
    let outcome = match status.code() {
        Code::DeadlineExceeded => Outcome::Dropped,
        Code::InvalidArgument
        | Code::NotFound
        | Code::ResourceExhausted
        | Code::Unimplemented
        | Code::OutOfRange => Outcome::Refused,
        _ => Outcome::Failed,
    };
    pb::Result {
        outcome: outcome.into(),
        code: status.code().into(),
        module: "server".to_owned(),
        reason: format!("{:?}", status.code()).to_lowercase(),
        detail: status.message().to_owned(),
        ..Default::default()
    }
}

/// `google.rpc.Status`, the usual content of gRPC's status details.
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<RpcDetail>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
struct RpcDetail {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

/// The result that a server puts into the details of a status.
fn result_in_details(details: &[u8]) -> Option<pb::Result> {
    let status = RpcStatus::decode(details).ok()?;
    let is_result = |detail: &&RpcDetail| detail.type_url.ends_with("/spillgate.v1.Result");
    let detail = status.details.iter().find(is_result)?;
    pb::Result::decode(detail.value.clone()).ok()
}

/// A result for a request that never reached the server, or came back without one.
pub(crate) fn client_failure(reason: &str, detail: &str) -> pb::Result {
    pb::Result {
        outcome: Outcome::Failed.into(),
        code: Code::Unavailable.into(),
        module: CLIENT.to_owned(),
        reason: reason.to_owned(),
        detail: detail.to_owned(),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dropped() -> pb::Result {
        pb::Result {
            number: 3,
            outcome: Outcome::Dropped.into(),
            code: Code::DeadlineExceeded.into(),
            module: "plates".into(),
            reason: "estimate".into(),
            ..Default::default()
        }
    }

    #[test]
    fn the_result_in_the_details_is_found() {
        let wrapped = RpcStatus {
            code: 4,
            message: "dropped at plates".into(),
            details: vec![RpcDetail {
                type_url: "type.googleapis.com/spillgate.v1.Result".into(),
                value: dropped().encode_to_vec().into(),
            }],
        };
        assert_eq!(result_in_details(&wrapped.encode_to_vec()), Some(dropped()));
        assert_eq!(result_in_details(b""), None);
        assert_eq!(result_in_details(b"\xff\xff"), None);
    }

    #[test]
    fn a_bare_status_is_sorted_by_its_code() {
        for (code, outcome) in [
            (Code::DeadlineExceeded, Outcome::Dropped),
            (Code::ResourceExhausted, Outcome::Refused),
            (Code::Internal, Outcome::Failed),
        ] {
            assert_eq!(refused(&Status::new(code, "")).outcome(), outcome);
        }
    }
}
