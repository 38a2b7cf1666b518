//! The port on which other processes reach this one, for all its pipelines. A connection has a place (`visit.rs`), then a handshake
//! where processes speak TLS, then one call, which carries its session. The first thing that the peer says is its greeting: the links of
//! the pipeline that it names have the session.

use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::RwLock;
use spillgate_pipeline::time::format_duration;
use spillgate_proto::link as pb;
use spillgate_proto::link::link_server::{Link, LinkServer};
use spillgate_protocol::publication::Operation;
use spillgate_protocol::session::rights::Rights;
use spillgate_protocol::session::{Frame, Greeting, Timing, pipeline_of};
use spillgate_tls::HANDSHAKE_LIMIT;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::codegen::Service;
use tonic::{Request, Response, Status, Streaming};

use crate::complaints::Complaints;
use crate::links::PeerLinks;
use crate::outlet::{Writes, outlet};
use crate::revisions::Revisions;
use crate::session::{LINGER, MESSAGE_MAX, WINDOW, Wire, linger};
use crate::tls::{LinkTls, SPEAKS_PLAIN, SPEAKS_TLS, TLS_ALERT};
use crate::visit::{ConnectionGuard, Leaves, Measured, Visit, Visits};
use crate::wire::{self, Packet};

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

/// What a port is made of.
pub struct LinkPortConfig {
    /// When a connection whose peer has not greeted ends.
    pub timing: Timing,
    /// Decides which of too many connections ends.
    pub seed: u64,
    /// Certificates on both sides; `None`: plain text.
    pub tls: Option<Arc<LinkTls>>,
    /// What is wrong with peers.
    pub complaints: Arc<Complaints>,
    /// Answers operators; `None`: they are refused.
    pub revisions: Option<Arc<dyn Revisions>>,
}

/// The port of a process. Pipelines are added and removed while it serves.
pub struct LinkPort {
    config: LinkPortConfig,
    /// Of each pipeline that is served.
    links: RwLock<Vec<Arc<PeerLinks>>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl LinkPort {
    /// A port of no pipeline.
    pub fn new(config: LinkPortConfig) -> Arc<Self> {
        Arc::new(LinkPort {
            config,
            links: RwLock::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        })
    }

    /// Peers reach these links from now on.
    pub fn add(&self, links: Arc<PeerLinks>) {
        self.links.write().push(links);
    }

    /// New connections reach these links no more. Their sessions stand until the links end.
    pub fn remove(&self, links: &Arc<PeerLinks>) {
        self.links.write().retain(|of| !Arc::ptr_eq(of, links));
    }

    /// Accepts the connections of other processes until `stop` is done. Those that stand end with their sessions, or with the port.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, stop: impl Future<Output = ()>) {
        let visits = Visits::new(self.config.seed);
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
                self.complain(peer, why);
                continue;
            };
            let visitor = Visitor {
                port: self.clone(),
                visit,
                peer,
                rights: None,
            };
            self.tasks.spawn(visitor.keep(stream));
        }
    }

    /// Ends all connections, and waits until peers can know. Links end before.
    pub async fn end(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn complain(&self, peer: IpAddr, why: &str) {
        self.config.complaints.make(&peer.to_string(), REFUSED, why);
    }

    /// The links that a peer means.
    fn links_of(&self, peer: &Greeting) -> Result<Arc<PeerLinks>, String> {
        let links = self.links.read();
        let served = links.iter().map(|links| &*links.config.me);
        Ok(links[pipeline_of(served, peer)?].clone())
    }

    /// Answers an operator. Nobody waits for an operator who has gone.
    async fn operate(&self, wire: Wire, peer: IpAddr, visit: &Visit, operation: Operation) {
        let Operation { set, what } = operation;
        let LinkPortConfig { tls, revisions, .. } = &self.config;
        let forbidden = || {
            let tls = tls.as_ref()?;
            let rights = wire.rights.clone().unwrap_or_else(|| tls.no_rights());
            rights.refuse_operator()
        };
        let other_set = || {
            let mine = self.links.read().first().map(|of| of.config.me.set.clone());
            let mine = mine.filter(|mine| *mine != set)?;
            Some(format!(
                "this process belongs to set {mine:?}, and the operator speaks of {set:?}; name the set with --set"
            ))
        };
        let operated = match (forbidden().or_else(other_set), revisions) {
            (Some(refusal), _) => Err(refusal),
            (None, None) => Err("this process takes no revisions".to_owned()),
            (None, Some(revisions)) => {
                visit.greets();
                tokio::select! {
                    biased;
                    () = visit.ends.cancelled() => return,
                    () = self.stop.cancelled() => return,
                    operated = revisions.clone().operate(what) => operated,
                }
            }
        };
        if let Err(why) = &operated {
            let why = format!("an operator was refused: {why}");
            self.complain(peer, &why);
        }
        let _ = wire.outlet.put(&Packet::Operated(operated));
        linger(wire);
    }

    /// Hands a connection to the links that its peer means, once the peer has greeted. A connection whose peer says nothing ends
    /// after a while (`talk`).
    async fn admit(self: Arc<Self>, mut wire: Wire, peer: IpAddr, visit: Arc<Visit>) {
        let said = tokio::select! {
            biased;
            () = visit.ends.cancelled() => return,
            () = self.stop.cancelled() => return,
            said = wire.inbound.message() => said,
        };
        let said = match said {
            Ok(Some(said)) => said,
            Ok(None) => {
                return self.complain(peer, "the peer closed the connection before it greeted");
            }
            Err(status) => {
                let why = format!("the connection broke: {}", status.message());
                return self.complain(peer, &why);
            }
        };
        let refusal = match first_of(&said) {
            Ok(First::Greeting(greeting)) => match self.links_of(&greeting) {
                Ok(links) => return links.accept(wire, said),
                Err(refusal) => refusal,
            },
            Ok(First::Operation(operation)) => {
                return self.operate(wire, peer, &visit, operation).await;
            }
            Err(why) => why,
        };
        self.complain(peer, &refusal);
        let _ = wire.outlet.put(&Packet::Refused(refusal));
        linger(wire);
    }
}

/// What a peer says first.
enum First {
    Greeting(Arc<Greeting>),
    Operation(Operation),
}

fn first_of(said: &pb::Packets) -> Result<First, String> {
    let first = said.packets.first().cloned();
    match first.map(wire::decode).transpose() {
        Ok(Some(Some(Packet::Session(Frame::Greeting(greeting))))) => Ok(First::Greeting(greeting)),
        Ok(Some(Some(Packet::Operation(operation)))) => Ok(First::Operation(operation)),
        Ok(_) => Err("the peer sent something else before its greeting".to_owned()),
        Err(error) => Err(format!("the peer sent what cannot be read: {error}")),
    }
}

/// A connection: the service on it.
#[derive(Clone)]
struct Visitor {
    port: Arc<LinkPort>,
    visit: Arc<Visit>,
    /// The host of the peer. Its port says nothing.
    peer: IpAddr,
    /// What its certificate lets it be.
    rights: Option<Rights>,
}

#[tonic::async_trait]
impl Link for Visitor {
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
        let wire = Wire {
            peer: self.peer.to_string(),
            outlet,
            inbound: request.into_inner(),
            rights: self.rights.clone(),
            seat: Some(ConnectionGuard(self.visit.clone())),
        };
        let admitted = (self.port.clone()).admit(wire, self.peer, self.visit.clone());
        self.port.tasks.spawn(admitted);
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

impl Visitor {
    /// Keeps a connection until it ends.
    async fn keep(mut self, stream: TcpStream) {
        let _leaves = Leaves(self.visit.clone());
        let port = self.port.clone();
        let _ = stream.set_nodelay(true);
        match &port.config.tls {
            None => {
                let begins = same_language(stream, false);
                if let Some(stream) = self.in_time(begins).await {
                    talk(stream, self).await;
                }
            }
            Some(tls) => {
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
            () = self.port.stop.cancelled() => return None,
            begun = tokio::time::timeout(HANDSHAKE_LIMIT, begins) => begun,
        };
        match begun {
            Ok(Ok(begun)) => return Some(begun),
            Ok(Err(why)) => self.port.complain(self.peer, &why),
            Err(_) => {
                let limit = format_duration(HANDSHAKE_LIMIT);
                let why = format!("the peer did not begin within {limit}");
                self.port.complain(self.peer, &why);
            }
        }
        None
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
async fn talk<S>(stream: S, visitor: Visitor)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (port, visit, peer) = (visitor.port.clone(), visitor.visit.clone(), visitor.peer);
    let service = LinkServer::new(visitor).max_decoding_message_size(MESSAGE_MAX);
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
    let limit = port.config.timing.death();
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
            return port.complain(peer, &why);
        }
        () = visit.ends.cancelled() => {
            // It gave way to another one, and there is nobody who could have last words.
            if !visit.has_joined() {
                return;
            }
        }
        () = port.stop.cancelled() => {}
    }
    http.as_mut().graceful_shutdown();
    // What is broken now was to end.
    let _ = tokio::time::timeout(2 * LINGER, http).await;
}
