//! The port on which other processes reach this one. A connection has a place (`visit.rs`), then a handshake
//! where processes speak TLS, then one call, which carries its session.

use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use spillgate_pipeline::time::format_duration;
use spillgate_proto::link as pb;
use spillgate_proto::link::link_server::{Link, LinkServer};
use spillgate_protocol::session::rights::Rights;
use spillgate_tls::HANDSHAKE_LIMIT;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tonic::codegen::Service;
use tonic::{Request, Response, Status, Streaming};

use crate::links::{PeerLinks, Security};
use crate::outlet::{Writes, outlet};
use crate::session::{LINGER, MESSAGE_MAX, WINDOW, Wire};
use crate::tls::{SPEAKS_PLAIN, SPEAKS_TLS, TLS_ALERT};
use crate::visit::{ConnectionGuard, Leaves, Measured, Visit, Visits};

/// Most bytes of a call's headers, as HTTP/2 counts them. A peer sends a few hundred.
const HEADERS_MAX: u32 = 8 << 10;
/// Most calls that a peer may begin and reset, or that this side resets, before the connection ends. A peer makes one call.
const RESETS_MAX: usize = 8;
/// How long nothing is accepted after an error: most likely no descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The first byte of TLS.
const TLS_HANDSHAKE: u8 = 0x16;
/// What a server of HTTP/2 says first. A peer that speaks TLS sees that this side does not.
const EMPTY_SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
/// A fatal alert of TLS: the version of the protocol. A peer that speaks plain text sees that this side does not.
const ALERT: [u8; 7] = [TLS_ALERT, 3, 3, 0, 2, 2, 70];
/// What is logged of a connection that became none.
const REFUSED: &str = "a connection of another process was refused";

/// The service on one connection.
#[derive(Clone)]
struct Port {
    links: Arc<PeerLinks>,
    visit: Arc<Visit>,
    /// The host of the peer. Its port says nothing.
    peer: IpAddr,
    /// What its certificate lets it be.
    rights: Option<Rights>,
}

#[tonic::async_trait]
impl Link for Port {
    type JoinStream = Results;

    async fn join(
        &self,
        request: Request<Streaming<pb::Packets>>,
    ) -> Result<Response<Results>, Status> {
        if !self.visit.joins() {
            let why = "a connection carries one session; make another connection";
            return Err(Status::failed_precondition(why));
        }
        let (outlet, writes) = outlet();
        self.links.accept(Wire {
            peer: self.peer.to_string(),
            outlet,
            inbound: request.into_inner(),
            rights: self.rights.clone(),
            seat: Some(ConnectionGuard(self.visit.clone())),
        });
        Ok(Response::new(Results(writes)))
    }
}

/// The answer of a call: all that is written to the peer.
pub(crate) struct Results(Writes);

impl tokio_stream::Stream for Results {
    type Item = Result<pb::Packets, Status>;

    fn poll_next(
        self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        let writes = std::pin::Pin::new(&mut self.get_mut().0);
        writes.poll_next(cx).map(|packets| packets.map(Ok))
    }
}

/// Accepts the connections of other processes until `stop` is done. Those that stand end with their sessions, or with the links.
pub async fn serve(links: Arc<PeerLinks>, listener: TcpListener, stop: impl Future<Output = ()>) {
    let visits = Visits::new(links.config.seed);
    tokio::pin!(stop);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => return,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection of another process could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let peer = peer.ip().to_canonical();
        let Some(visit) = visits.come(peer) else {
            let why = "all places for connections are with processes that have greeted";
            links.complain(&peer.to_string(), REFUSED, why);
            continue;
        };
        let port = Port {
            links: links.clone(),
            visit,
            peer,
            rights: None,
        };
        links.tasks.spawn(port.keep(stream));
    }
}

impl Port {
    /// Keeps a connection until it ends.
    async fn keep(mut self, stream: TcpStream) {
        let _leaves = Leaves(self.visit.clone());
        let links = self.links.clone();
        let _ = stream.set_nodelay(true);
        match &links.config.security {
            None => {
                let begins = same_language(stream, false);
                if let Some(stream) = self.in_time(begins).await {
                    talk(stream, self).await;
                }
            }
            Some(Security { tls, .. }) => {
                let begins = async { tls.accept(same_language(stream, true).await?).await };
                if let Some((stream, rights)) = self.in_time(begins).await {
                    self.rights = Some(rights);
                    talk(stream, self).await;
                }
            }
        }
    }

    /// What comes before HTTP/2, unless it takes too long, or the connection is to end.
    async fn in_time<T>(&self, begins: impl Future<Output = Result<T, String>>) -> Option<T> {
        let begun = tokio::select! {
            biased;
            () = self.visit.ends.cancelled() => return None,
            () = self.links.stop.cancelled() => return None,
            begun = tokio::time::timeout(HANDSHAKE_LIMIT, begins) => begun,
        };
        match begun {
            Ok(Ok(begun)) => return Some(begun),
            Ok(Err(why)) => self.complain(&why),
            Err(_) => {
                let limit = format_duration(HANDSHAKE_LIMIT);
                self.complain(&format!("the peer did not begin within {limit}"));
            }
        }
        None
    }

    fn complain(&self, why: &str) {
        self.links.complain(&self.peer.to_string(), REFUSED, why);
    }
}

/// Turns a peer away that speaks TLS where this process does not, or the other way round, in words that its side understands.
async fn same_language(mut stream: TcpStream, is_tls: bool) -> Result<TcpStream, String> {
    let mut first = [0];
    let speaks_tls = match stream.peek(&mut first).await {
        Ok(1) => first[0] == TLS_HANDSHAKE,
        _ => return Err("the peer ended the connection before it said anything".to_owned()),
    };
    let (answer, why): (&[u8], _) = match (is_tls, speaks_tls) {
        (true, false) => (&ALERT, SPEAKS_PLAIN),
        (false, true) => (&EMPTY_SETTINGS, SPEAKS_TLS),
        _ => return Ok(stream),
    };
    let said = async {
        stream.write_all(answer).await?;
        stream.shutdown().await?;
        // What is not read would reset the connection, and the answer with it.
        let mut unread = [0; 1024];
        while stream.read(&mut unread).await? > 0 {}
        std::io::Result::Ok(())
    };
    let _ = tokio::time::timeout(LINGER, said).await;
    Err(why.to_owned())
}

/// Serves the one call of a connection.
async fn talk<S>(stream: S, port: Port)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (links, visit, peer) = (port.links.clone(), port.visit.clone(), port.peer);
    let service = LinkServer::new(port).max_decoding_message_size(MESSAGE_MAX);
    let measured = visit.clone();
    let service = hyper::service::service_fn(move |request: http::Request<Incoming>| {
        let (mut service, visit) = (service.clone(), measured.clone());
        async move {
            let request = request.map(|body| Measured::new(body, visit));
            service.call(request).await
        }
    });
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new())
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_concurrent_streams(1)
        .max_header_list_size(HEADERS_MAX)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_local_error_reset_streams(RESETS_MAX);
    let http = http.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(http);
    let limit = links.config.timing.death();
    let has_no_greeting = async {
        if tokio::time::timeout(limit, visit.greeted.cancelled())
            .await
            .is_ok()
        {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        _ = http.as_mut() => return,
        () = has_no_greeting => {
            let limit = format_duration(limit);
            let why = format!("the peer did not greet within {limit}");
            return links.complain(&peer.to_string(), REFUSED, &why);
        }
        () = visit.ends.cancelled() => {
            // It gave way to another one, and there is nobody who could have last words.
            if !visit.has_joined() {
                return;
            }
        }
        () = links.stop.cancelled() => {}
    }
    http.as_mut().graceful_shutdown();
    // What is broken now was to end.
    let _ = tokio::time::timeout(2 * LINGER, http).await;
}
