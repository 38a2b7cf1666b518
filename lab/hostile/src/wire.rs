//! HTTP/2 below gRPC, to send frames that no honest client would send.

use std::future::poll_fn;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use h2::SendStream;
use h2::client::{ResponseFuture, SendRequest};
use prost::Message;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;

/// A connection; it ends when this is dropped.
pub(crate) struct Connection {
    pub(crate) requests: SendRequest<Bytes>,
    task: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Connects. Answers take up to `window` bytes each before they are read.
pub(crate) async fn connect(address: SocketAddr, window: u32) -> anyhow::Result<Connection> {
    over(TcpStream::connect(address).await?, window).await
}

/// The same from this address of the machine.
pub(crate) async fn connect_from(
    local: IpAddr,
    address: SocketAddr,
    window: u32,
) -> anyhow::Result<Connection> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(local, 0))?;
    over(socket.connect(address).await?, window).await
}

async fn over(stream: TcpStream, window: u32) -> anyhow::Result<Connection> {
    stream.set_nodelay(true)?;
    let (requests, connection) = h2::client::Builder::new()
        .initial_window_size(window)
        .initial_connection_window_size(1 << 30)
        .max_concurrent_reset_streams(1 << 16)
        .handshake(stream)
        .await?;
    let task = tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(Connection { requests, task })
}

/// Begins a call.
pub(crate) async fn call(
    connection: &Connection,
    address: SocketAddr,
    method: &str,
) -> anyhow::Result<(ResponseFuture, SendStream<Bytes>)> {
    call_with(connection, address, method, "identity").await
}

/// Begins a call whose messages are packed in this way.
pub(crate) async fn call_with(
    connection: &Connection,
    address: SocketAddr,
    method: &str,
    encoding: &str,
) -> anyhow::Result<(ResponseFuture, SendStream<Bytes>)> {
    let request = http::Request::post(format!("http://{address}/spillgate.v1.Spillgate/{method}"))
        .header("content-type", "application/grpc")
        .header("grpc-encoding", encoding)
        .header("te", "trailers")
        .body(())?;
    let mut requests = connection.requests.clone().ready().await?;
    Ok(requests.send_request(request, false)?)
}

/// Sends as the server takes it; ends early when it takes nothing more for that long, or has enough. How much was sent.
pub(crate) async fn send(
    stream: &mut SendStream<Bytes>,
    mut data: Bytes,
    patience: Duration,
) -> usize {
    let mut sent = 0;
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        let capacity = tokio::time::timeout(patience, poll_fn(|cx| stream.poll_capacity(cx))).await;
        let Ok(Some(Ok(n))) = capacity else { break };
        let piece = data.split_to(n.min(data.len()));
        sent += piece.len();
        if stream.send_data(piece, false).is_err() {
            break;
        }
    }
    sent
}

/// A whole gRPC message.
pub(crate) fn message(message: &impl Message) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u8(0);
    out.put_u32(message.encoded_len() as u32);
    message.encode(&mut out).expect("there is room");
    out.freeze()
}

/// A whole gRPC message, packed with gzip.
pub(crate) fn packed(message: &impl Message) -> anyhow::Result<Bytes> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(&message.encode_to_vec())?;
    let packed = encoder.finish()?;
    let mut out = BytesMut::new();
    out.put_u8(1);
    out.put_u32(packed.len() as u32);
    out.extend_from_slice(&packed);
    Ok(out.freeze())
}

/// The header of a message that claims a length.
pub(crate) fn claim(length: u32) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u8(0);
    out.put_u32(length);
    out.freeze()
}
