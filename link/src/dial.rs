//! Makes a connection with a process that listens.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use spillgate_pipeline::time::format_duration;
use spillgate_proto::link::link_client::LinkClient;
use spillgate_protocol::session::rights::{LinkProcess, Rights};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, lookup_host};
use tonic::codegen::Service;
use tonic::transport::Endpoint;

use crate::outlet::outlet;
use crate::session::{MESSAGE_MAX, WINDOW, Wire};
use crate::tls::{LinkTls, SPEAKS_TLS, TLS_ALERT, in_words};

/// Why reading failed, in words. HTTP/2 keeps the text of an error only.
type Why = Arc<OnceLock<String>>;

/// Dials a process, which may take so long.
pub(crate) async fn dial(
    address: String,
    peer: LinkProcess,
    tls: Option<Arc<LinkTls>>,
    limit: Duration,
) -> Result<Wire, String> {
    // A bit less than the session waits, so that the address that did not answer is named.
    let limit = limit.mul_f64(0.95);
    let why = Why::default();
    let made = tokio::time::timeout(limit, make(&address, peer, tls, limit, &why)).await;
    let made = made.unwrap_or_else(|_| {
        let limit = format_duration(limit);
        Err(format!("no connection was made within {limit}"))
    });
    made.map_err(|cause| why.get().cloned().unwrap_or(cause))
}

async fn make(
    address: &str,
    peer: LinkProcess,
    tls: Option<Arc<LinkTls>>,
    limit: Duration,
    why: &Why,
) -> Result<Wire, String> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"));
    let endpoint = endpoint.map_err(|error| error.to_string())?;
    let stream = connect(address, limit).await?;
    let _ = stream.set_nodelay(true);
    match tls {
        None => join(Watched::new(stream, why, true), endpoint, address, None).await,
        Some(tls) => {
            let (stream, rights) = tls.connect(stream, &peer).await?;
            let stream = Watched::new(stream, why, false);
            join(stream, endpoint, address, Some(rights)).await
        }
    }
}

/// A connection with one of the addresses of a host.
async fn connect(address: &str, limit: Duration) -> Result<TcpStream, String> {
    let found = lookup_host(address).await;
    let found = found.map_err(|error| format!("the address cannot be looked up: {error}"))?;
    let found: Vec<_> = found.collect();
    let mut cause = "the name has no address".to_owned();
    for one in &found {
        let part = limit / found.len() as u32;
        match tokio::time::timeout(part, TcpStream::connect(one)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => cause = error.to_string(),
            Err(_) => cause = format!("no answer within {}", format_duration(part)),
        }
    }
    Err(cause)
}

async fn join<S>(
    stream: S,
    endpoint: Endpoint,
    address: &str,
    rights: Option<Rights>,
) -> Result<Wire, String>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let endpoint = endpoint
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW);
    let channel = endpoint.connect_with_connector(Once(Some(stream))).await;
    let channel = channel.map_err(|error| chain(&error))?;
    let mut client = LinkClient::new(channel).max_decoding_message_size(MESSAGE_MAX);
    let (outlet, writes) = outlet();
    let joined = client.join(writes).await;
    let inbound = joined.map_err(|status| status.message().to_owned())?;
    Ok(Wire {
        peer: address.to_owned(),
        outlet,
        inbound: inbound.into_inner(),
        rights,
        seat: None,
    })
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// Gives the one stream that it has.
struct Once<S>(Option<S>);

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Service<http::Uri> for Once<S> {
    type Response = TokioIo<S>;
    type Error = io::Error;
    type Future = std::future::Ready<io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Uri) -> Self::Future {
        let stream = self.0.take();
        let stream = stream.ok_or_else(|| io::Error::other("the connection ended"));
        std::future::ready(stream.map(TokioIo::new))
    }
}

/// A stream that keeps in words why it could not be read.
struct Watched<S> {
    stream: S,
    why: Why,
    /// It is plain text, of which nothing has been read.
    is_unread: bool,
}

impl<S> Watched<S> {
    fn new(stream: S, why: &Why, is_plain: bool) -> Self {
        Watched {
            stream,
            why: why.clone(),
            is_unread: is_plain,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let read = ready!(Pin::new(&mut this.stream).poll_read(cx, buf));
        if let Err(error) = &read {
            let _ = this.why.set(in_words(error));
        }
        let first = buf.filled().get(before).copied();
        if first.is_some() && std::mem::take(&mut this.is_unread) && first == Some(TLS_ALERT) {
            let _ = this.why.set(SPEAKS_TLS.to_owned());
            return Poll::Ready(Err(io::Error::other(SPEAKS_TLS)));
        }
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
