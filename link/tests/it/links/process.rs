//! A process of a test, with roles that write down what they hear.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use spillgate_link::Complaints;
use spillgate_link::links::{PeerLinks, PeerLinksConfig, PeerRoles, Roles};
use spillgate_link::serve::{LinkPort, LinkPortConfig};
use spillgate_link::tls::LinkTls;
use spillgate_link::wire::{ItemOutputs, Parcel};
use spillgate_pipeline::id::{DeviceId, GatewayId, Incarnation, ModuleId, RequestId};
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::membership::{Member, MemberDevice, MemberIds, OwnIds};
use spillgate_protocol::message::{Address, Envelope, Message, ToDevice};
use spillgate_protocol::session::rights::SET_DEFAULT;
use spillgate_protocol::session::{Greeting, PipelineHash, Timing, WireVersions};
use spillgate_protocol::values::Peer;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) const GATEWAY: Address = Address::Gateway(GatewayId(0));
pub(crate) const CONTROLLER: Address = Address::Controller(ModuleId(0));
pub(crate) const DEVICE: Address = Address::Device(DeviceId(0));
/// How long anything may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A process with this role alone.
fn member(role: Address, life: Incarnation) -> Member {
    let mut member = Member {
        name: "front".into(),
        incarnation: life,
        version: "test".into(),
        address: None,
        is_gateway: false,
        controllers: Vec::new(),
        devices: Vec::new(),
    };
    match role {
        Address::Gateway(_) => member.is_gateway = true,
        Address::Controller(module) => {
            member.name = "control".into();
            member.controllers.push(module);
        }
        Address::Device(id) => {
            member.name = format!("a-{}", id.0 + 1).into();
            member.devices.push(MemberDevice {
                name: "cpu:0".into(),
                workers: vec![ModuleId(0).into()],
            });
        }
    }
    member
}

/// Roles that write down what they hear.
#[derive(Default)]
pub(crate) struct Heard {
    pub(crate) news: Mutex<Vec<String>>,
    /// Who joined and left.
    pub(crate) members: Mutex<Vec<String>>,
    /// Deadlines of requests, by this process's clock.
    pub(crate) deadlines: Mutex<Vec<Timestamp>>,
}

impl Roles for Heard {
    fn joined(&self, member: &Arc<Member>, _: &MemberIds) {
        self.members.lock().push(format!("{} joined", member.name));
    }

    fn left(&self, member: &Arc<Member>, _: &MemberIds) {
        self.members.lock().push(format!("{} left", member.name));
    }

    fn met(&self, peer: &PeerRoles) {
        self.note(&format!("met {}", peer.member().incarnation.0));
    }

    fn parted(&self, peer: &PeerRoles, _: &str) {
        self.note(&format!("parted {}", peer.member().incarnation.0));
    }

    fn doubted(&self, peer: &PeerRoles, is_suspected: bool) {
        let what = if is_suspected { "suspected" } else { "trusted" };
        self.note(&format!("{what} {}", peer.member().incarnation.0));
    }

    fn heard(&self, _: Peer, envelope: Envelope<Parcel>, _: Vec<ItemOutputs>) {
        match envelope.message {
            Message::Device(ToDevice::Requests(arrivals)) => {
                let deadlines = arrivals.iter().map(|a| a.request.deadline);
                self.deadlines.lock().extend(deadlines);
            }
            message => self.note(&format!("{message:?}")),
        }
    }

    fn ended(&self, requests: Vec<RequestId>) {
        self.note(&format!("ended: {requests:?}"));
    }

    fn lacking(&self, _: Peer, peer: &PeerRoles, envelope: Envelope<Parcel>) {
        let Message::Device(message) = envelope.message else {
            panic!("only requests are given back");
        };
        let requests = message.requests();
        self.note(&format!(
            "lacking at {}: {requests:?}",
            peer.member().incarnation.0
        ));
    }
}

impl Heard {
    fn note(&self, what: &str) {
        self.news.lock().push(what.to_owned());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.news.lock().is_empty()
    }

    pub(crate) fn has(&self, what: &str) -> bool {
        self.news.lock().iter().any(|n| n == what)
    }

    pub(crate) async fn waits_for(&self, what: &str) {
        let give_up = Instant::now() + PATIENCE;
        while !self.has(what) {
            let news = self.news.lock().join(", ");
            assert!(Instant::now() < give_up, "{what} is not heard: {news}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Waits until this is what was heard last.
    pub(crate) async fn waits_for_last(&self, what: &str) {
        let is_last = || self.news.lock().last().is_some_and(|last| last == what);
        until(&format!("{what} is heard last"), is_last).await;
    }
}

pub(crate) async fn until(what: &str, is_so: impl Fn() -> bool) {
    let give_up = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < give_up, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A process with one role.
pub(crate) struct Process {
    pub(crate) heard: Arc<Heard>,
    pub(crate) links: Arc<PeerLinks>,
    /// That of [`Process::listens`].
    pub(crate) port: Arc<LinkPort>,
    pub(crate) complaints: Arc<Complaints>,
    began: Instant,
    ahead: Duration,
    pub(crate) life: Incarnation,
    stop: CancellationToken,
}

impl Process {
    pub(crate) fn new(role: Address, life: u64, ahead: Duration) -> Self {
        Self::of(role, life, ahead, PipelineHash::default())
    }

    pub(crate) fn of(role: Address, life: u64, ahead: Duration, hash: PipelineHash) -> Self {
        Self::with(member(role, Incarnation(life)), ahead, hash, None)
    }

    /// One that has another name.
    pub(crate) fn named(role: Address, life: u64, name: &str) -> Self {
        let mut member = member(role, Incarnation(life));
        member.name = name.into();
        Self::with(member, Duration::ZERO, PipelineHash::default(), None)
    }

    /// One that serves that pipeline.
    pub(crate) fn serving(role: Address, life: u64, pipeline: &str) -> Self {
        let member = member(role, Incarnation(life));
        let hash = PipelineHash::default();
        Self::for_pipeline(pipeline, member, Duration::ZERO, hash, None)
    }

    /// One that listens at any port, and says at which.
    pub(crate) async fn listening(role: Address, life: u64) -> Self {
        let listener = TcpListener::bind(any()).await.unwrap();
        let mut member = member(role, Incarnation(life));
        member.address = Some(format!(":{}", listener.local_addr().unwrap().port()).into());
        let process = Self::with(member, Duration::ZERO, PipelineHash::default(), None);
        process.serves(listener);
        process
    }

    /// One that shows certificates, or speaks plain text.
    pub(crate) fn secure(role: Address, life: u64, tls: Option<Arc<LinkTls>>) -> Self {
        let (member, hash) = (member(role, Incarnation(life)), PipelineHash::default());
        Self::with(member, Duration::ZERO, hash, tls)
    }

    fn with(
        member: Member,
        ahead: Duration,
        hash: PipelineHash,
        tls: Option<Arc<LinkTls>>,
    ) -> Self {
        Self::for_pipeline("one", member, ahead, hash, tls)
    }

    fn for_pipeline(
        pipeline: &str,
        member: Member,
        ahead: Duration,
        hash: PipelineHash,
        tls: Option<Arc<LinkTls>>,
    ) -> Self {
        let (heard, began) = (Arc::new(Heard::default()), Instant::now());
        let life = member.incarnation;
        let me = Greeting {
            member: Arc::new(member),
            set: SET_DEFAULT.into(),
            pipeline: pipeline.into(),
            hash,
            wire: WireVersions::OWN,
            published: None,
        };
        let (complaints, timing) = (Arc::new(Complaints::default()), Timing::default());
        let port = LinkPort::new(LinkPortConfig {
            timing,
            seed: life.0,
            tls: tls.clone(),
            complaints: complaints.clone(),
            revisions: None,
        });
        let links = PeerLinks::new(PeerLinksConfig {
            own: OwnIds::alone(&me.member),
            me: Arc::new(me),
            fixed: Vec::new(),
            timing,
            seed: life.0,
            now: Arc::new(move || Timestamp::ZERO + ahead + began.elapsed()),
            roles: heard.clone(),
            tls,
            complaints: complaints.clone(),
            revisions: None,
        });
        port.add(links.clone());
        links.begin();
        Process {
            heard,
            links,
            port,
            complaints,
            began,
            ahead,
            life,
            stop: CancellationToken::new(),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.ahead + self.began.elapsed()
    }

    /// Listens at that address. Port 0 is any.
    pub(crate) async fn listens(&self, at: SocketAddr) -> SocketAddr {
        let listener = TcpListener::bind(at).await.unwrap();
        let address = listener.local_addr().unwrap();
        self.serves(listener);
        address
    }

    fn serves(&self, listener: TcpListener) {
        let (port, stop) = (self.port.clone(), self.stop.clone());
        tokio::spawn(port.serve(listener, stop.cancelled_owned()));
    }

    /// Dials a process of which it knows the address alone. Without certificates it may be any.
    pub(crate) fn dials(&self, at: SocketAddr) {
        self.links.register(at.to_string());
    }

    pub(crate) async fn ends(&self) {
        self.stop.cancel();
        self.links.end().await;
        self.port.end().await;
    }
}

pub(crate) fn any() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}
