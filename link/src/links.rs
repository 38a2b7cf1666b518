//! The connections of a process with the others of its cluster: a session each, and which of them leads to which role.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use indexmap::IndexMap;
use parking_lot::{Mutex, MutexGuard, RwLock};
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::id::{Incarnation, RequestId};
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{Address, Envelope};
use spillgate_protocol::session::rights::{LinkProcess, Rights, Roster};
use spillgate_protocol::session::{Greeting, Offset, Session, Side, Timing};
use spillgate_protocol::values::Peer;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::outlet::Outlet;
use crate::session::{End, How, Wire};
use crate::tls::LinkTls;
use crate::wire::{ItemOutputs, Packet, Parcel};

/// Complaints that are remembered, so that each is made once.
pub(crate) const COMPLAINTS_MAX: usize = 64;
/// Lives of processes whose roles others have taken over since. They may dial until they end.
pub(crate) const REPLACED_MAX: usize = 256;

/// A life of a process whose roles another one has taken over.
struct Replaced {
    life: Incarnation,
    /// The life of the other one. Once it is gone, the roles are free again.
    by: Incarnation,
}

/// The process's clock.
pub type Now = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The roles of this process. Called without locks that they may need; may call back.
pub trait Roles: Send + Sync {
    /// A process greeted, and its clock is known.
    fn met(&self, peer: &Greeting);

    /// It is gone. What was under way may be lost.
    fn parted(&self, peer: &Greeting, cause: &str);

    /// It is silent or does not answer, or does again.
    fn doubted(&self, peer: &Greeting, is_suspected: bool);

    /// A role of it says something to a role of this process. Times are by this process's clock.
    fn heard(&self, peer: Peer, envelope: Envelope<Parcel>, brought: Vec<ItemOutputs>);

    /// Requests of its gateway have ended: what is kept for them is not needed any more.
    fn ended(&self, peer: &Greeting, requests: Vec<RequestId>);

    /// It gives back requests of this process's gateway: it lacks values that their parcels name.
    fn lacking(&self, peer: Peer, greeting: &Greeting, envelope: Envelope<Parcel>);
}

/// What links are built from.
pub struct PeerLinksConfig {
    /// What this process says about itself.
    pub me: Arc<Greeting>,
    /// When peers are suspected and lost.
    pub timing: Timing,
    /// Seed of the waits before dials. Processes have different ones.
    pub seed: u64,
    /// The clock.
    pub now: Now,
    /// The roles of this process.
    pub roles: Arc<dyn Roles>,
    /// Certificates on both sides; `None`: plain text, and peers are what they say they are.
    pub security: Option<Security>,
}

/// How processes know each other.
pub struct Security {
    /// The certificates.
    pub tls: Arc<LinkTls>,
    /// The roles that processes may greet with.
    pub roster: Roster,
}

/// A peer that the roles know.
struct Known {
    /// The number of its session.
    session: u64,
    way: PeerSender,
    greeting: Arc<Greeting>,
    /// Ends its session.
    replaced: CancellationToken,
    /// Since when it is known.
    since: Timestamp,
    is_suspected: bool,
    clock: Option<Offset>,
}

/// A peer, for people.
#[derive(Clone, Debug)]
pub struct PeerView {
    /// What it said about itself.
    pub greeting: Arc<Greeting>,
    /// Since when it is known.
    pub since: Timestamp,
    /// It is silent.
    pub is_suspected: bool,
    /// Its clock.
    pub clock: Option<Offset>,
    /// Bytes that wait to be written to it.
    pub waiting: usize,
    /// Bytes that were written to it since then.
    pub sent: u64,
    /// Bytes that came from it since then.
    pub received: u64,
}

/// The way to a process, for as long as it is met.
#[derive(Clone)]
pub struct PeerSender {
    peer: Peer,
    outlet: Arc<Outlet>,
}

impl PeerSender {
    /// Which meeting it is.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// To be held while it is decided what a message carries, and until that is sent: what it refers to was sent before.
    pub fn turn(&self) -> MutexGuard<'_, ()> {
        self.outlet.turn()
    }

    /// Sends a message. It is lost where the process is gone.
    ///
    /// # Errors
    /// The message, where it brings requests and too many wait for the process already.
    pub fn send(
        &self,
        envelope: Envelope<Parcel>,
        brought: Vec<ItemOutputs>,
    ) -> Result<(), Envelope<Parcel>> {
        let packet = Packet::Message { envelope, brought };
        match packet {
            packet if self.outlet.put(&packet) => Ok(()),
            Packet::Message { envelope, .. } => Err(envelope),
            _ => Ok(()),
        }
    }
}

#[derive(Default)]
struct Peers {
    known: Vec<Known>,
    /// The way to each of their roles.
    ways: IndexMap<Address, PeerSender, FxBuildHasher>,
}

impl Peers {
    fn of(&mut self, session: u64) -> Option<&mut Known> {
        self.known.iter_mut().find(|k| k.session == session)
    }

    fn take(&mut self, is_meant: impl Fn(&Known) -> bool) -> Vec<Known> {
        let taken: Vec<Known> = self.known.extract_if(.., |k| is_meant(k)).collect();
        for known in &taken {
            for address in &known.greeting.addresses {
                self.ways.swap_remove(address);
            }
        }
        taken
    }
}

/// The connections of a process.
pub struct PeerLinks {
    pub(crate) config: PeerLinksConfig,
    n_sessions: AtomicU64,
    n_met: AtomicU64,
    peers: RwLock<Peers>,
    /// Held while roles hear of peers, so that they hear of one after the other.
    telling: Mutex<VecDeque<Replaced>>,
    /// What was complained of: peer and complaint, the oldest first.
    complaints: Mutex<VecDeque<(String, String)>>,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
}

impl PeerLinks {
    /// PeerLinks without connections.
    pub fn new(config: PeerLinksConfig) -> Arc<Self> {
        Arc::new(PeerLinks {
            config,
            n_sessions: AtomicU64::new(0),
            n_met: AtomicU64::new(0),
            peers: RwLock::default(),
            telling: Mutex::default(),
            complaints: Mutex::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        })
    }

    /// Keeps a session with the process that is this member of the topology, at this address (host and port), which is looked up
    /// anew for each dial.
    pub fn dial(self: &Arc<Self>, address: String, peer: LinkProcess) {
        self.begin(Side::Dials, How::Dials(address, peer));
    }

    /// A connection was accepted.
    pub(crate) fn accept(self: &Arc<Self>, wire: Wire) {
        self.begin(Side::Accepts, How::Accepted(Box::new(wire)));
    }

    fn begin(self: &Arc<Self>, side: Side, how: How) {
        let (number, session) = self.session(side);
        let end = End::new(self.clone(), number, session, self.stop.clone());
        self.tasks.spawn(end.run(how));
    }

    /// A new session with its number.
    pub(crate) fn session(&self, side: Side) -> (u64, Session) {
        let number = self.n_sessions.fetch_add(1, Ordering::Relaxed);
        let PeerLinksConfig {
            me, timing, seed, ..
        } = &self.config;
        let now = (self.config.now)();
        let session = Session::new(*timing, me.clone(), side, seed ^ number << 32, now);
        (number, session)
    }

    /// Sends a message to a role of another process. It is lost where there is no session with one that has the role.
    ///
    /// # Errors
    /// The message, where it brings requests and too many wait for the process already.
    pub fn send(
        &self,
        envelope: Envelope<Parcel>,
        brought: Vec<ItemOutputs>,
    ) -> Result<(), Envelope<Parcel>> {
        match self.way(envelope.to) {
            Some(way) => way.send(envelope, brought),
            None => Ok(()),
        }
    }

    /// The way to the process that has a role; `None` where there is no session with one.
    pub fn way(&self, to: Address) -> Option<PeerSender> {
        let way = self.peers.read().ways.get(&to).cloned();
        if way.is_none() {
            tracing::debug!(?to, "there is no session with the receiver");
        }
        way
    }

    /// Tells a process that requests of this process's gateway have ended.
    pub fn tell_ended(&self, peer: Peer, requests: Vec<RequestId>) {
        self.put(peer, &Packet::Ended(requests));
    }

    /// Gives requests of a process's gateway back to it. Their parcels stay here.
    pub fn give_back(&self, peer: Peer, envelope: Envelope<Parcel>) {
        self.put(peer, &Packet::Lacking(envelope));
    }

    /// It is lost where the process is not met any more.
    fn put(&self, peer: Peer, packet: &Packet) {
        let peers = self.peers.read();
        let mut known = peers.known.iter();
        let way = known.find(|known| known.way.peer == peer);
        let outlet = way.map(|known| known.way.outlet.clone());
        drop(peers);
        if let Some(outlet) = outlet {
            // Only what brings requests may find no room.
            let _ = outlet.put(packet);
        }
    }

    /// Whether some process that is known has the role.
    pub fn reaches(&self, role: Address) -> bool {
        self.peers.read().ways.contains_key(&role)
    }

    /// A peer's clock is known: the roles hear of it. Of several processes with one role the last that greeted counts. `None` for a
    /// process whose roles another one has taken over.
    pub(crate) fn meet(
        &self,
        session: u64,
        greeting: &Arc<Greeting>,
        outlet: &Arc<Outlet>,
        replaced_token: &CancellationToken,
    ) -> Option<Peer> {
        let mut replaced = self.telling.lock();
        let by = greeting.incarnation;
        if replaced.iter().any(|replaced| replaced.life == by) {
            return None;
        }
        let shares = |known: &Known| {
            let theirs = &known.greeting.addresses;
            theirs.iter().any(|a| greeting.addresses.contains(a))
        };
        let others = self.peers.write().take(shares);
        for other in others {
            let life = other.greeting.incarnation;
            if life != by {
                tracing::warn!(
                    roles = ?greeting.addresses, old = life.0, new = by.0,
                    "two processes claim the same roles; the one that greeted last counts"
                );
                if replaced.len() == REPLACED_MAX {
                    replaced.pop_front();
                }
                replaced.push_back(Replaced { life, by });
            }
            other.replaced.cancel();
            let roles = &self.config.roles;
            roles.parted(&other.greeting, "another process has its roles now");
        }
        let peer = Peer(self.n_met.fetch_add(1, Ordering::Relaxed));
        let way = PeerSender {
            peer,
            outlet: outlet.clone(),
        };
        {
            let mut peers = self.peers.write();
            for &address in &greeting.addresses {
                peers.ways.insert(address, way.clone());
            }
            peers.known.push(Known {
                session,
                way,
                greeting: greeting.clone(),
                replaced: replaced_token.clone(),
                since: (self.config.now)(),
                is_suspected: false,
                clock: None,
            });
        }
        self.config.roles.met(greeting);
        Some(peer)
    }

    /// The connection of a session ended: the roles hear of it, if they knew the peer.
    pub(crate) fn part(&self, session: u64, cause: &str) {
        let mut replaced = self.telling.lock();
        let known = self.peers.write().take(|known| known.session == session);
        for known in known {
            replaced.retain(|replaced| replaced.by != known.greeting.incarnation);
            self.config.roles.parted(&known.greeting, cause);
        }
    }

    /// The peer of a session is silent, or speaks again: the roles hear of it, if they know the peer.
    pub(crate) fn doubt(&self, session: u64, is_suspected: bool) {
        let _turn = self.telling.lock();
        let mut peers = self.peers.write();
        let peer = peers.of(session).map(|known| {
            known.is_suspected = is_suspected;
            known.greeting.clone()
        });
        drop(peers);
        if let Some(peer) = peer {
            self.config.roles.doubted(&peer, is_suspected);
        }
    }

    /// The clock of a session's peer was compared anew.
    pub(crate) fn see_clock(&self, session: u64, clock: Option<Offset>) {
        if let Some(known) = self.peers.write().of(session) {
            known.clock = clock;
        }
    }

    /// The peers that the roles know.
    pub fn peers(&self) -> Vec<PeerView> {
        let peers = self.peers.read();
        let view = |known: &Known| {
            let outlet = &known.way.outlet;
            PeerView {
                greeting: known.greeting.clone(),
                since: known.since,
                is_suspected: known.is_suspected,
                clock: known.clock,
                waiting: outlet.waiting(),
                sent: outlet.written(),
                received: outlet.received(),
            }
        };
        peers.known.iter().map(view).collect()
    }

    /// Why a peer may not be what it says it is.
    pub(crate) fn forbids(&self, peer: &Greeting, rights: Option<&Rights>) -> Option<String> {
        let PeerLinksConfig { me, security, .. } = &self.config;
        let Security { roster, .. } = security.as_ref()?;
        // Roles mean nothing where the topologies differ, and the session says that they do.
        if me.refuses(peer).is_some() {
            return None;
        }
        match rights {
            Some(rights) => rights.refuse_peer(peer, roster),
            None => Rights::default().refuse_peer(peer, roster),
        }
    }

    /// Says what is wrong with a peer, once until something else is wrong: peers are dialled again and again.
    pub(crate) fn complain(&self, peer: &str, what: &str, why: &str) {
        let complaint = (peer.to_owned(), format!("{what}: {why}"));
        let mut complaints = self.complaints.lock();
        if complaints.contains(&complaint) {
            return;
        }
        tracing::warn!(peer, why, "{what}");
        if complaints.len() == COMPLAINTS_MAX {
            complaints.pop_front();
        }
        complaints.push_back(complaint);
    }

    /// What is wrong with peers: the address that is dialled, or the host of those that dial, and why. The newest last.
    pub fn complaints(&self) -> Vec<(String, String)> {
        self.complaints.lock().iter().cloned().collect()
    }

    /// There is a session with a peer: what was wrong with it may be said again.
    pub(crate) fn is_content(&self, peer: &str) {
        self.complaints.lock().retain(|(of, _)| of != peer);
    }

    /// Ends all sessions, and waits until peers can know.
    pub async fn end(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}
