//! The connections of a process with the others that serve one of its pipelines: a session each, and which of them leads to which role. A
//! [`Roster`] says who is there and whom to dial, a [`Directory`] what the roles of others are called here.

mod peers;
mod revisions;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use indexmap::IndexMap;
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxBuildHasher;
use spillgate_pipeline::id::{GatewayId, RequestId};
use spillgate_pipeline::time::Timestamp;
use spillgate_proto::link as pb;
use spillgate_protocol::membership::{
    Command, Directory, Event, MEMBERS_MAX, Member, MemberIds, MemberState, OwnIds,
    ROLES_KNOWN_MAX, Refusal, Roster,
};
use spillgate_protocol::message::{Address, Envelope};
use spillgate_protocol::session::rights::{LinkProcess, Rights};
use spillgate_protocol::session::{Greeting, Offset, Session, Side, Timing};
use spillgate_protocol::values::Peer;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::complaints::Complaints;
use crate::outlet::Outlet;
use crate::revisions::Revisions;
use crate::session::{End, How, Wire};
use crate::tls::LinkTls;
use crate::wire::{ItemOutputs, Packet, Parcel};

use peers::{Known, Peers, place, reached};
pub use peers::{PeerRoles, PeerSender, PeerView};

/// The process's clock.
pub type Now = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The roles of this process. They hear of one process after the other, and may call back to send messages.
pub trait Roles: Send + Sync {
    /// A process is one of the set: its roles have these ids from now on. It may be met, or not.
    fn joined(&self, member: &Arc<Member>, ids: &MemberIds);

    /// A process is none of the set any more. Its ids may be given to others.
    fn left(&self, member: &Arc<Member>, ids: &MemberIds);

    /// A process that joined greeted, and its clock is known.
    fn met(&self, peer: &PeerRoles);

    /// It is gone. What was under way may be lost.
    fn parted(&self, peer: &PeerRoles, cause: &str);

    /// It is silent or does not answer, or does again.
    fn doubted(&self, peer: &PeerRoles, is_suspected: bool);

    /// A role of it says something to a role of this process. Times are by this process's clock.
    fn heard(&self, peer: Peer, envelope: Envelope<Parcel>, brought: Vec<ItemOutputs>);

    /// Requests of its gateway have ended: what is kept for them is not needed any more.
    fn ended(&self, requests: Vec<RequestId>);

    /// It gives back requests of this process's gateway: it lacks values that their parcels name.
    fn lacking(&self, peer: Peer, roles: &PeerRoles, envelope: Envelope<Parcel>);
}

/// What links are built from.
pub struct PeerLinksConfig {
    /// What this process says about itself.
    pub me: Arc<Greeting>,
    /// The ids of its roles.
    pub own: OwnIds,
    /// The processes of a static topology. Others may register beside them.
    pub fixed: Vec<Arc<Member>>,
    /// When peers are suspected and lost.
    pub timing: Timing,
    /// Seed of the waits before dials. Processes have different ones.
    pub seed: u64,
    /// The clock.
    pub now: Now,
    /// The roles of this process.
    pub roles: Arc<dyn Roles>,
    /// Certificates on both sides; `None`: plain text, and peers are what they say they are.
    pub tls: Option<Arc<LinkTls>>,
    /// What is wrong with peers.
    pub complaints: Arc<Complaints>,
    /// The revisions of the pipeline; `None`: the process serves one, to its end.
    pub revisions: Option<Arc<dyn Revisions>>,
}

/// What follows from an event once the roster's commands are done.
#[derive(Default)]
struct Followed {
    /// The process that greeted is none of the set.
    refusal: Option<Refusal>,
    /// Lists for gateways.
    lists: Vec<(Arc<str>, Packet)>,
}

/// Where a process is dialled, and what ends that.
struct MemberDial {
    address: Arc<str>,
    ends: CancellationToken,
}

/// The connections of a process for one pipeline.
pub struct PeerLinks {
    pub(crate) config: PeerLinksConfig,
    n_sessions: AtomicU64,
    n_met: AtomicU64,
    directory: Arc<RwLock<Directory>>,
    peers: RwLock<Peers>,
    /// Held while roles hear of peers, so that they hear of one after the other.
    roster: Mutex<Roster>,
    /// The roster has another time at which it is to be woken.
    roster_changed: Notify,
    /// Of each process that the roster dials.
    dials: Mutex<IndexMap<Arc<str>, MemberDial, FxBuildHasher>>,
    /// The processes of the topology that are to be dialled once the links begin.
    first_dials: Mutex<Vec<Arc<Member>>>,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
}

impl PeerLinks {
    /// Links without connections. The roles hear of the processes of the topology.
    pub fn new(config: PeerLinksConfig) -> Arc<Self> {
        let me = &config.me.member;
        let mut commands = Vec::new();
        let roster = Roster::new(me.clone(), &config.fixed, (config.now)(), &mut commands);
        let mut directory = Directory::new(me, config.own.clone());
        let mut first_dials = Vec::new();
        for command in commands {
            match command {
                Command::Joined(member) => {
                    let ids = directory.admit(&member).clone();
                    config.roles.joined(&member, &ids);
                }
                Command::Dial(member) => first_dials.push(member),
                other => unreachable!("nothing has happened yet: {other:?}"),
            }
        }
        Arc::new(PeerLinks {
            config,
            n_sessions: AtomicU64::new(0),
            n_met: AtomicU64::new(0),
            directory: Arc::new(RwLock::new(directory)),
            peers: RwLock::default(),
            roster: Mutex::new(roster),
            roster_changed: Notify::new(),
            dials: Mutex::default(),
            first_dials: Mutex::new(first_dials),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        })
    }

    /// Begins: dials the processes of the topology that this one dials, and wakes the roster from now on.
    pub fn begin(self: &Arc<Self>) {
        for member in std::mem::take(&mut *self.first_dials.lock()) {
            self.dial_member(&member);
        }
        self.tasks.spawn(self.clone().wake_roster());
    }

    /// Registers with the controller at this address (host and port), which is looked up anew for each dial.
    pub fn register(self: &Arc<Self>, address: String) {
        self.dial(address, LinkProcess::controller());
    }

    /// Keeps a session with a process at this address.
    pub fn dial(self: &Arc<Self>, address: String, peer: LinkProcess) {
        let how = How::Dials(address, peer);
        self.open(Side::Dials, how, self.stop.clone());
    }

    fn dial_member(self: &Arc<Self>, member: &Member) {
        let Some(address) = &member.address else {
            return;
        };
        let ends = self.stop.child_token();
        self.hang_up(&member.name);
        let dial = MemberDial {
            address: address.clone(),
            ends: ends.clone(),
        };
        self.dials.lock().insert(member.name.clone(), dial);
        let how = How::Dials(address.to_string(), LinkProcess::of(member));
        self.open(Side::Dials, how, ends);
    }

    fn hang_up(&self, name: &str) {
        let dialled = self.dials.lock().swap_remove(name);
        if let Some(MemberDial { address, ends }) = dialled {
            ends.cancel();
            self.is_content(&address);
        }
    }

    /// A connection was accepted, and its peer has said this.
    pub(crate) fn accept(self: &Arc<Self>, wire: Wire, said: pb::Packets) {
        let how = How::Accepted(Box::new(wire), said);
        self.open(Side::Accepts, how, self.stop.clone());
    }

    fn open(self: &Arc<Self>, side: Side, how: How, ends: CancellationToken) {
        let (number, session) = self.session(side);
        let end = End::new(self.clone(), number, session, ends);
        self.tasks.spawn(end.run(how));
    }

    async fn wake_roster(self: Arc<Self>) {
        loop {
            let at = self.roster.lock().next_wakeup();
            let due = async {
                match at {
                    Some(at) => tokio::time::sleep(at.since((self.config.now)())).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = self.roster_changed.notified() => {}
                () = due => self.register_event(Event::Wakeup),
            }
        }
    }

    /// What a process says of processes, or the time.
    pub(crate) fn register_event(self: &Arc<Self>, event: Event) {
        let mut roster = self.roster.lock();
        let followed = self.follow(&mut roster, event);
        self.publish(followed.lists);
    }

    /// Does what the roster says.
    fn follow(self: &Arc<Self>, roster: &mut Roster, event: Event) -> Followed {
        let roles = &self.config.roles;
        let mut commands = Vec::new();
        roster.on_event((self.config.now)(), event, &mut commands);
        let mut followed = Followed::default();
        for command in commands {
            match command {
                Command::Joined(member) => {
                    let ids = self.directory.write().admit(&member).clone();
                    roles.joined(&member, &ids);
                }
                Command::Left(member) => {
                    let ids = self.directory.read().ids(&member.name).cloned();
                    roles.left(&member, &ids.unwrap_or_default());
                    self.directory.write().forget(&member.name);
                }
                Command::Dial(member) => self.dial_member(&member),
                Command::HangUp(name) => self.hang_up(&name),
                Command::Publish(name, list) => {
                    followed.lists.push((name, Packet::Members(list)));
                }
                Command::Replaced(name, _, by) => self.replace(&name, &by),
                Command::Refuse(_, _, refusal) => followed.refusal = Some(refusal),
            }
        }
        self.roster_changed.notify_one();
        followed
    }

    /// Another process takes the place of one, which hears so.
    fn replace(&self, name: &str, by: &str) {
        let taken = self.peers.write().take(|known| *known.way.name == *name);
        for other in taken {
            let place = place(other.roles.member());
            let (what, why, said) = if name == by {
                (
                    "two processes have one name, and the one that greeted last counts",
                    format!(
                        "{name} {place} was there before; give each process a --name of its own"
                    ),
                    format!(
                        "another process has greeted by the name {name} since; give this one another --name"
                    ),
                )
            } else {
                (
                    "two processes hold the controller of one module, and the one with the lower name counts",
                    format!("{name} {place} stands by while {by} is there"),
                    format!("{by} holds the controller of a module that this process holds, too"),
                )
            };
            self.complain(name, what, &why);
            let _ = other.way.outlet.put(&Packet::Refused(said));
            other.replaced.cancel();
            let cause = "another process is in its place now";
            self.config.roles.parted(&other.roles, cause);
        }
    }

    fn publish(&self, lists: Vec<(Arc<str>, Packet)>) {
        let peers = self.peers.read();
        for (name, list) in lists {
            if let Some(known) = peers.named(&name) {
                // Only what brings requests may find no room.
                let _ = known.way.outlet.put(&list);
            }
        }
    }

    /// Tells all that are met that this process ends what it has, and then goes.
    pub fn leave(&self) {
        for known in &self.peers.read().known {
            let _ = known.way.outlet.put(&Packet::Leaves);
        }
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
    pub fn tell_ended(&self, peer: Peer, mut requests: Vec<RequestId>) {
        for request in &mut requests {
            *request = request.with_owner(GatewayId(0));
        }
        if let Some(way) = self.way_to(peer) {
            let _ = way.outlet.put(&Packet::Ended(requests));
        }
    }

    /// Gives requests of a process's gateway back to it. Their parcels stay here.
    pub fn give_back(&self, peer: Peer, mut envelope: Envelope<Parcel>) {
        let Some(way) = self.way_to(peer) else {
            return;
        };
        let known = self
            .directory
            .read()
            .outward_again(&way.name, &mut envelope);
        if known.is_ok() {
            let _ = way.outlet.put(&Packet::Lacking(envelope));
        }
    }

    /// The way to a process, while it is met.
    fn way_to(&self, peer: Peer) -> Option<PeerSender> {
        let peers = self.peers.read();
        let known = peers.known.iter().find(|known| known.way.peer == peer);
        known.map(|known| known.way.clone())
    }

    /// Whether some process that is known has the role.
    pub fn reaches(&self, role: Address) -> bool {
        self.peers.read().ways.contains_key(&role)
    }

    /// A peer's clock is known: the roles hear of it. `host`: from where it dials, or where it was dialled.
    ///
    /// # Errors
    /// Why the process is none of the set: what is wrong, and what would be right.
    pub(crate) fn meet(
        self: &Arc<Self>,
        session: u64,
        greeting: &Arc<Greeting>,
        (host, outlet): (&str, &Arc<Outlet>),
        replaced: &CancellationToken,
    ) -> Result<(Peer, Arc<PeerRoles>), String> {
        let greeting = reached(greeting, host);
        let name = greeting.member.name.clone();
        let mut roster = self.roster.lock();
        // The session before ends later than this one begins, where both ends of a connection found out at different times.
        let former = self.peers.write().take(|k| {
            let of = k.roles.member();
            of.name == name && of.incarnation == greeting.member.incarnation
        });
        for former in former {
            former.replaced.cancel();
            let roles = &self.config.roles;
            roles.parted(&former.roles, "it made another connection");
        }
        let followed = self.follow(&mut roster, Event::Greeted(greeting.member.clone()));
        match followed.refusal {
            None => {}
            Some(Refusal::Full) => {
                return Err(format!(
                    "there is no room for {name}: {MEMBERS_MAX} processes or {ROLES_KNOWN_MAX} roles and workers are known already; \
                     serve with fewer, or in several sets"
                ));
            }
            Some(Refusal::Own) => {
                return Err(format!(
                    "two processes have the name {name}, and they dial each other; give each process a --name of its own"
                ));
            }
            Some(Refusal::Holds(other)) => {
                return Err(format!(
                    "{other} holds the controller of a module that {name} holds, too; {name} stands by while {other} is there"
                ));
            }
            Some(Refusal::Replaced) => {
                return Err(format!(
                    "another process has greeted by the name {name} since; give each process a --name of its own"
                ));
            }
        }
        let peer = Peer(self.n_met.fetch_add(1, Ordering::Relaxed));
        let way = PeerSender {
            peer,
            name: name.clone(),
            outlet: outlet.clone(),
            directory: self.directory.clone(),
        };
        let addresses = self.directory.read().roles(&name);
        let roles = Arc::new(PeerRoles {
            greeting,
            addresses,
        });
        {
            let mut peers = self.peers.write();
            for &address in &roles.addresses {
                // Several processes may hold one controller, of which the last that greeted counts.
                peers.ways.insert(address, way.clone());
            }
            peers.known.push(Known {
                session,
                way,
                roles: roles.clone(),
                replaced: replaced.clone(),
                since: (self.config.now)(),
                is_suspected: false,
                clock: None,
            });
        }
        self.config.roles.met(&roles);
        self.publish(followed.lists);
        self.say_latest(outlet);
        self.report_to(&roles, outlet);
        Ok((peer, roles))
    }

    /// The connection of a session ended: the roles hear of it, if they knew the peer.
    pub(crate) fn part(self: &Arc<Self>, session: u64, cause: &str) {
        let mut roster = self.roster.lock();
        let known = self.peers.write().take(|known| known.session == session);
        for known in known {
            self.config.roles.parted(&known.roles, cause);
            let member = known.roles.member();
            let lost = Event::Lost(member.name.clone(), member.incarnation);
            let followed = self.follow(&mut roster, lost);
            self.publish(followed.lists);
        }
    }

    /// The peer of a session is silent, or speaks again: the roles hear of it, if they know the peer.
    pub(crate) fn doubt(self: &Arc<Self>, session: u64, is_suspected: bool) {
        let mut roster = self.roster.lock();
        let mut peers = self.peers.write();
        let peer = peers.of(session).map(|known| {
            known.is_suspected = is_suspected;
            known.roles.clone()
        });
        drop(peers);
        let Some(peer) = peer else { return };
        self.config.roles.doubted(&peer, is_suspected);
        let name = peer.member().name.clone();
        let event = match is_suspected {
            true => Event::Suspected(name),
            false => Event::Trusted(name),
        };
        let followed = self.follow(&mut roster, event);
        self.publish(followed.lists);
    }

    /// The directory of this process.
    pub(crate) fn directory(&self) -> &RwLock<Directory> {
        &self.directory
    }

    /// Whether this process and another one have anything to say to each other.
    pub fn speaks_to(&self, other: &Member) -> bool {
        self.config.me.member.speaks_to(other)
    }

    /// Says what is wrong with a peer that is met, once until something else is wrong; `None`: nothing is. The peer hears it, too, if
    /// it is to.
    pub fn find(&self, peer: &str, wrong: Option<&str>, is_told: bool) {
        self.config.complaints.find(peer, wrong);
        let told = wrong.filter(|_| is_told);
        if let (Some(why), Some(known)) = (told, self.peers.read().named(peer)) {
            let _ = known.way.outlet.put(&Packet::Notice(why.to_owned()));
        }
    }

    /// All processes of the set that this one knows, and what they do as far as it knows.
    pub fn members(&self) -> Vec<(Arc<Member>, MemberState)> {
        let roster = self.roster.lock();
        roster
            .list()
            .map(|(member, state)| (member.clone(), state))
            .collect()
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
                greeting: known.roles.greeting.clone(),
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
        let tls = self.config.tls.as_ref()?;
        // What cannot be a peer is refused by the session, which says why.
        if self.config.me.refuses(peer).is_some() {
            return None;
        }
        match rights {
            Some(rights) => rights.refuse_peer(&peer.member),
            None => tls.no_rights().refuse_peer(&peer.member),
        }
    }

    /// Says what is wrong with a peer.
    pub(crate) fn complain(&self, peer: &str, what: &str, why: &str) {
        self.config.complaints.make(peer, what, why);
    }

    /// There is a session with a peer: what was wrong with it may be said again.
    pub(crate) fn is_content(&self, peer: &str) {
        self.config.complaints.forget(peer);
    }

    /// Ends all sessions, and waits until peers can know.
    pub async fn end(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}
