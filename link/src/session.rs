//! One session: its state machine, and the connection that it drives.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use prost::Message as _;
use spillgate_pipeline::time::Timestamp;
use spillgate_proto::link as pb;
use spillgate_protocol::membership::Event as Register;
use spillgate_protocol::message::UnknownId;
use spillgate_protocol::publication::Publication;
use spillgate_protocol::session::rights::{LinkProcess, Rights};
use spillgate_protocol::session::{
    Command, Connection, Event, Frame, Greeting, News, Session, Side,
};
use spillgate_protocol::values::Peer;
use tokio_util::sync::CancellationToken;
use tonic::Streaming;

use crate::dial::dial;
use crate::links::{PeerLinks, PeerLinksConfig, PeerRoles};
use crate::outlet::Outlet;
use crate::revisions::publishes;
use crate::tls::LinkTls;
use crate::visit::ConnectionGuard;
use crate::wire::{self, ItemOutputs, Packet};

/// The largest write of a peer: a batch of results with large values.
pub(crate) const MESSAGE_MAX: usize = 256 << 20;
/// Bytes that a peer may send on a stream before they are read.
pub(crate) const WINDOW: u32 = 4 << 20;

/// How a session has its connections.
pub(crate) enum How {
    /// It dials this process at this address.
    Dials(String, LinkProcess),
    /// It has this one, on which the peer has said this.
    Accepted(Box<Wire>, pb::Packets),
}

/// A connection that stands.
pub(crate) struct Wire {
    /// Where the peer is.
    pub(crate) peer: String,
    pub(crate) outlet: Arc<Outlet>,
    pub(crate) inbound: Streaming<pb::Packets>,
    /// What the peer's certificate lets it be.
    pub(crate) rights: Option<Rights>,
    /// Of a connection that was accepted.
    pub(crate) seat: Option<ConnectionGuard>,
}

type Dialling = Pin<Box<dyn Future<Output = Result<Wire, String>> + Send>>;

/// One side of a session.
pub(crate) struct End {
    links: Arc<PeerLinks>,
    number: u64,
    session: Session,
    /// The process ends.
    stop: CancellationToken,
    /// Another process has the roles of the peer.
    replaced: CancellationToken,
    /// The address that is dialled, or the host from which the connection came.
    address: String,
    /// The process that is dialled.
    dials: Option<LinkProcess>,
    wire: Option<(Connection, Wire)>,
    dialling: Option<(Connection, Dialling)>,
    /// The roles know the peer.
    is_told: bool,
    /// In this meeting.
    met: Option<(Peer, Arc<PeerRoles>)>,
    commands: Vec<Command>,
}

/// What is brought to a session.
enum Brings {
    Event(Event),
    Packets(Connection, pb::Packets),
    End(&'static str),
}

impl End {
    pub(crate) fn new(
        links: Arc<PeerLinks>,
        number: u64,
        session: Session,
        stop: CancellationToken,
    ) -> Self {
        End {
            links,
            number,
            session,
            stop,
            replaced: CancellationToken::new(),
            address: String::new(),
            dials: None,
            wire: None,
            dialling: None,
            is_told: false,
            met: None,
            commands: Vec::new(),
        }
    }

    /// Drives the session until it has ended for good: of an address that is dialled, until the process ends.
    pub(crate) async fn run(mut self, how: How) {
        match how {
            How::Dials(address, peer) => {
                self.address = address;
                self.dials = Some(peer);
                self.bring(Event::Wakeup);
            }
            How::Accepted(wire, said) => {
                let connection = Connection(1);
                self.address.clone_from(&wire.peer);
                self.wire = Some((connection, *wire));
                self.bring(Event::Connected(connection));
                self.read(connection, said);
            }
        }
        self.drive().await;
        // The process at an address that is dialled may be another one some time.
        while self.dials.is_some() && self.pauses().await {
            let (number, session) = self.links.session(Side::Dials);
            (self.number, self.session) = (number, session);
            self.replaced = CancellationToken::new();
            self.bring(Event::Wakeup);
            self.drive().await;
        }
    }

    /// Drives the session until it has ended.
    async fn drive(&mut self) {
        while !self.session.is_idle() {
            match self.next().await {
                Brings::Event(event) => self.bring(event),
                Brings::Packets(connection, packets) => self.read(connection, packets),
                Brings::End(cause) => {
                    let cause = cause.to_owned();
                    self.bring(Event::End { cause });
                }
            }
        }
    }

    /// Waits before the address is dialled anew. False when the process ends.
    async fn pauses(&mut self) -> bool {
        let longest = self.links.config.timing.backoff_longest();
        tokio::select! {
            biased;
            () = self.stop.cancelled() => false,
            () = tokio::time::sleep(longest) => true,
        }
    }

    fn now(&self) -> Timestamp {
        (self.links.config.now)()
    }

    /// The next thing that happens. What has come goes before the time that has passed.
    async fn next(&mut self) -> Brings {
        let wakes_in = match self.session.next_wakeup() {
            Some(at) => at.since(self.now()),
            None => Duration::MAX,
        };
        let wire = &mut self.wire;
        let dialling = &mut self.dialling;
        let received = async {
            let Some((connection, wire)) = wire else {
                return pending().await;
            };
            let connection = *connection;
            let ended = |cause: &str| {
                let cause = cause.to_owned();
                Brings::Event(Event::Ended { connection, cause })
            };
            tokio::select! {
                biased;
                message = wire.inbound.message() => match message {
                    Ok(Some(packets)) => Brings::Packets(connection, packets),
                    Ok(None) => ended("the peer closed the connection"),
                    Err(status) => ended(&format!("the connection broke: {}", status.message())),
                },
                () = wire.outlet.overflowed() => ended("too much waits for the peer"),
            }
        };
        let dialled = async {
            let Some((connection, dial)) = dialling else {
                return pending().await;
            };
            (*connection, dial.await)
        };
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Brings::End("the peer is needed no more, or this process ends"),
            () = self.replaced.cancelled() => Brings::End("another process is in the peer's place"),
            brings = received => {
                if let Brings::Event(Event::Ended { cause, .. }) = &brings {
                    self.wire = None;
                    if self.session.peer().is_none() {
                        let what = "it ended the connection before a session began";
                        self.links.complain(&self.address, what, cause);
                    }
                }
                brings
            }
            (connection, dialled) = dialled => {
                self.dialling = None;
                Brings::Event(match dialled {
                    Ok(wire) => {
                        self.wire = Some((connection, wire));
                        Event::Connected(connection)
                    }
                    Err(cause) => {
                        self.links.complain(&self.address, "it cannot be reached", &cause);
                        Event::Ended { connection, cause }
                    }
                })
            }
            () = tokio::time::sleep(wakes_in) => Brings::Event(Event::Wakeup),
        }
    }

    fn bring(&mut self, event: Event) {
        let now = self.now();
        let is_answer = matches!(event, Event::Received(_, Frame::Answer(_)));
        let mut commands = std::mem::take(&mut self.commands);
        self.session.on_event(now, event, &mut commands);
        for command in commands.drain(..) {
            self.perform(command);
        }
        self.commands = commands;
        self.tell_if_known(now);
        if is_answer && self.is_told {
            self.links.see_clock(self.number, self.session.offset(now));
        }
    }

    fn perform(&mut self, command: Command) {
        match command {
            Command::Dial(connection) => {
                let Some(peer) = self.dials.clone() else {
                    return;
                };
                let tls = self.links.config.tls.clone();
                let limit = self.links.config.timing.death();
                let dialling = dial(self.address.clone(), peer, tls, limit);
                self.dialling = Some((connection, Box::pin(dialling)));
            }
            Command::Send(connection, frame) => {
                if let Some((on, wire)) = &self.wire
                    && *on == connection
                {
                    let frame = match frame {
                        Frame::Greeting(me) => Frame::Greeting(self.links.greeting(me)),
                        frame => frame,
                    };
                    let _ = wire.outlet.put(&Packet::Session(frame));
                }
            }
            Command::Close { connection, cause } => {
                tracing::debug!(session = self.number, cause, "connection closed");
                if let Some((_, wire)) = self.wire.take_if(|(of, _)| *of == connection) {
                    linger(wire);
                }
                self.dialling.take_if(|(of, _)| *of == connection);
            }
            Command::Tell(news) => self.tell(news),
        }
    }

    fn tell(&mut self, news: News) {
        match news {
            // Roles hear of a peer when its clock is known.
            News::Greeted(_) => {
                let wire = self.wire.as_ref().map(|(_, wire)| wire);
                if let Some(ConnectionGuard(visit)) = wire.and_then(|wire| wire.seat.as_ref()) {
                    visit.greets();
                }
            }
            News::Suspected | News::Trusted if !self.is_told => {}
            News::Suspected => self.links.doubt(self.number, true),
            News::Trusted => self.links.doubt(self.number, false),
            News::Lost { cause, .. } => {
                self.met = None;
                if std::mem::take(&mut self.is_told) {
                    self.links.part(self.number, &cause);
                }
            }
            News::Refused { reason } => {
                let what = "there is no session with this process";
                self.links.complain(&self.address, what, &reason);
            }
        }
    }

    fn tell_if_known(&mut self, now: Timestamp) {
        let (Some(peer), Some((connection, wire))) = (self.session.peer(), &self.wire) else {
            return;
        };
        if self.is_told || self.session.offset(now).is_none() {
            return;
        }
        self.is_told = true;
        let outlet = &wire.outlet;
        let reached = (&*self.address, outlet);
        match self.links.meet(self.number, peer, reached, &self.replaced) {
            Ok(met) => {
                self.links.config.complaints.forget(&self.address);
                self.met = Some(met);
            }
            Err(reason) => {
                let connection = *connection;
                let _ = outlet.put(&Packet::Refused(reason.clone()));
                self.bring(Event::Refused { connection, reason });
            }
        }
    }

    /// Why the peer may not be what it says it is. It hears it, too.
    fn refuses(&self, peer: &Greeting) -> Option<String> {
        let (_, wire) = self.wire.as_ref()?;
        let reason = self.links.forbids(peer, wire.rights.as_ref())?;
        let _ = wire.outlet.put(&Packet::Refused(reason.clone()));
        Some(reason)
    }

    fn read(&mut self, connection: Connection, packets: pb::Packets) {
        if let Some((_, wire)) = &self.wire {
            wire.outlet.receives(packets.encoded_len());
        }
        let mut is_traffic = false;
        for packet in packets.packets {
            let mut packet = match wire::decode(packet) {
                Ok(Some(packet)) => packet,
                // Programs of later releases say more.
                Ok(None) => continue,
                Err(error) => {
                    let cause = format!("the peer sent what cannot be read: {error}");
                    self.wire = None;
                    return self.bring(Event::Ended { connection, cause });
                }
            };
            if let Packet::Session(Frame::Greeting(peer)) = &packet {
                self.hear_published(peer, peer.published.as_ref());
            }
            let refused = match &packet {
                Packet::Refused(reason) => Some(format!("the peer refuses this process: {reason}")),
                Packet::Session(Frame::Greeting(peer)) => self.refuses(peer),
                _ => None,
            };
            if let Some(reason) = refused {
                return self.bring(Event::Refused { connection, reason });
            }
            if let Packet::Session(frame) = packet {
                self.bring(Event::Received(connection, frame));
                continue;
            }
            if let Packet::Published(said) = packet {
                if let Some(by) = self.session.peer() {
                    self.hear_published(by, Some(&said));
                }
                continue;
            }
            if !std::mem::replace(&mut is_traffic, true) {
                self.bring(Event::Traffic(connection));
            }
            let session = &self.session;
            packet.translate(|theirs| session.to_mine(theirs).unwrap_or(theirs));
            self.hear(connection, packet);
        }
    }

    /// What a gateway or controller says is published. It counts also where the peer serves another revision, and so is refused: that
    /// may be the revision that is published.
    fn hear_published(&self, by: &Greeting, said: Option<&Arc<Publication>>) {
        let PeerLinksConfig {
            me, tls, revisions, ..
        } = &self.links.config;
        let rights = self.wire.as_ref().and_then(|(_, wire)| wire.rights.clone());
        let is_allowed = |tls: &Arc<LinkTls>| {
            let rights = rights.unwrap_or_else(|| tls.no_rights());
            rights.refuse_peer(&by.member).is_none()
        };
        if let Some(revisions) = revisions
            && publishes(&by.member)
            && (&by.set, &by.pipeline) == (&me.set, &me.pipeline)
            && said.is_none_or(|said| said.pipeline == me.pipeline)
            && tls.as_ref().is_none_or(is_allowed)
        {
            revisions.greeted(&me.pipeline, said.map_or(0, |said| said.generation));
            if let Some(said) = said {
                revisions.heard(said.clone());
            }
        }
    }

    /// Tells the roles what the peer says, as far as it may say so.
    fn hear(&self, connection: Connection, packet: Packet) {
        let PeerLinksConfig { me, roles, .. } = &self.links.config;
        let Some((peer, of)) = &self.met else { return };
        let name = &of.member().name;
        let directory = self.links.directory();
        match packet {
            Packet::Message {
                mut envelope,
                mut brought,
                listed,
            } => {
                if !self.session.admits(connection, envelope.incarnation) {
                    return;
                }
                let directory = directory.read();
                let known = directory.inward(name, listed.as_deref(), &mut envelope);
                for ItemOutputs { times, .. } in &mut brought {
                    let worker = directory.worker_inward(name, times.worker);
                    times.worker = worker.unwrap_or(times.worker);
                }
                drop(directory);
                match known {
                    Ok(()) => roles.heard(*peer, envelope, brought),
                    Err(UnknownId) => {
                        tracing::debug!(peer = &**name, "a message speaks of what is not there");
                    }
                }
            }
            Packet::Ended(mut requests) => {
                let ids = directory.read().ids(name).and_then(|ids| ids.gateway);
                if let Some(gateway) = ids {
                    for request in &mut requests {
                        *request = request.with_owner(gateway);
                    }
                    roles.ended(requests);
                }
            }
            // This process sent them in this life, to a role of the peer.
            Packet::Lacking(mut envelope) => {
                let is_own = me.member.incarnation == envelope.incarnation;
                let known = is_own.then(|| directory.read().inward_again(name, &mut envelope));
                if known == Some(Ok(())) {
                    roles.lacking(*peer, of, envelope);
                }
            }
            Packet::Members(list) => {
                self.links
                    .register_event(Register::List(name.clone(), list));
            }
            Packet::Leaves => self.links.register_event(Register::Leaves(name.clone())),
            Packet::Notice(text) => self.links.complain(name, NOTICE, &text),
            Packet::Revisions(reports) => {
                if let Some(revisions) = &self.links.config.revisions {
                    revisions.seen(&me.pipeline, of.member(), reports);
                }
            }
            Packet::Session(_)
            | Packet::Refused(_)
            | Packet::Published(_)
            | Packet::Operation(_)
            | Packet::Operated(_) => {}
        }
    }
}

/// What is logged of what a peer says about this process.
const NOTICE: &str = "a peer says that something is wrong with this process";

/// How long a connection that is closed stands on, so that the peer has what was said last.
pub(crate) const LINGER: Duration = Duration::from_millis(200);

/// Closes a connection once its last words were written.
pub(crate) fn linger(wire: Wire) {
    tokio::spawn(async move {
        tokio::time::sleep(LINGER).await;
        drop(wire);
    });
}
