//! A process of a test, with roles that write down what they hear.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use spillgate_link::links::{PeerLinks, PeerLinksConfig, Roles, Security};
use spillgate_link::serve;
use spillgate_link::tls::LinkTls;
use spillgate_link::wire::{ItemOutputs, Parcel};
use spillgate_pipeline::id::{DeviceId, GatewayId, Incarnation, ModuleId, RequestId};
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{Address, Envelope, Message, ToDevice};
use spillgate_protocol::session::rights::{LinkProcess, RoleHolder, Roster};
use spillgate_protocol::session::{Greeting, PipelineHash, Timing};
use spillgate_protocol::values::Peer;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) const GATEWAY: Address = Address::Gateway(GatewayId(0));
pub(crate) const CONTROLLER: Address = Address::Controller(ModuleId(0));
pub(crate) const DEVICE: Address = Address::Device(DeviceId(0));
/// How long anything may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The roles of the tests' topology.
fn roster() -> Roster {
    let seats = [
        (GATEWAY, "front", "gateway"),
        (CONTROLLER, "control", "controller of a"),
        (DEVICE, "a-1", "worker"),
    ];
    let seats = seats.map(|(role, process, what)| {
        let (process, what) = (process.into(), what.to_owned());
        (role, RoleHolder { process, what })
    });
    seats.into_iter().collect()
}

/// Roles that write down what they hear.
#[derive(Default)]
pub(crate) struct Heard {
    pub(crate) news: Mutex<Vec<String>>,
    /// Deadlines of requests, by this process's clock.
    pub(crate) deadlines: Mutex<Vec<Timestamp>>,
}

impl Roles for Heard {
    fn met(&self, peer: &Greeting) {
        self.note(&format!("met {}", peer.incarnation.0));
    }

    fn parted(&self, peer: &Greeting, _: &str) {
        self.note(&format!("parted {}", peer.incarnation.0));
    }

    fn doubted(&self, peer: &Greeting, is_suspected: bool) {
        let what = if is_suspected { "suspected" } else { "trusted" };
        self.note(&format!("{what} {}", peer.incarnation.0));
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

    fn ended(&self, peer: &Greeting, requests: Vec<RequestId>) {
        self.note(&format!("ended at {}: {requests:?}", peer.incarnation.0));
    }

    fn lacking(&self, _: Peer, greeting: &Greeting, envelope: Envelope<Parcel>) {
        let Message::Device(message) = envelope.message else {
            panic!("only requests are given back");
        };
        let requests = message.requests();
        self.note(&format!(
            "lacking at {}: {requests:?}",
            greeting.incarnation.0
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
}

/// A process with one role.
pub(crate) struct Process {
    pub(crate) heard: Arc<Heard>,
    pub(crate) links: Arc<PeerLinks>,
    began: Instant,
    ahead: Duration,
    pub(crate) life: Incarnation,
    stop: CancellationToken,
}

impl Process {
    pub(crate) fn new(role: Address, life: u64, ahead: Duration) -> Self {
        Self::of(role, life, ahead, PipelineHash::default())
    }

    pub(crate) fn of(role: Address, life: u64, ahead: Duration, pipeline: PipelineHash) -> Self {
        Self::with(role, life, ahead, pipeline, None)
    }

    /// One that shows certificates, or speaks plain text.
    pub(crate) fn secure(role: Address, life: u64, tls: Option<Arc<LinkTls>>) -> Self {
        let pipeline = PipelineHash::default();
        Self::with(role, life, Duration::ZERO, pipeline, tls)
    }

    fn with(
        role: Address,
        life: u64,
        ahead: Duration,
        pipeline: PipelineHash,
        tls: Option<Arc<LinkTls>>,
    ) -> Self {
        let (heard, began) = (Arc::new(Heard::default()), Instant::now());
        let life = Incarnation(life);
        let me = Greeting {
            addresses: vec![role],
            version: "test".to_owned(),
            pipeline,
            incarnation: life,
        };
        let links = PeerLinks::new(PeerLinksConfig {
            me: Arc::new(me),
            timing: Timing::default(),
            seed: life.0,
            now: Arc::new(move || Timestamp::ZERO + ahead + began.elapsed()),
            roles: heard.clone(),
            security: tls.map(|tls| Security {
                tls,
                roster: roster(),
            }),
        });
        Process {
            heard,
            links,
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
        let (links, stop) = (self.links.clone(), self.stop.clone());
        tokio::spawn(serve::serve(links, listener, stop.cancelled_owned()));
        address
    }

    /// Dials a process of which it knows the address alone.
    pub(crate) fn dials(&self, at: SocketAddr) {
        let peer = LinkProcess {
            name: "any".into(),
            kinds: Vec::new(),
        };
        self.links.dial(at.to_string(), peer);
    }

    pub(crate) async fn ends(&self) {
        self.stop.cancel();
        self.links.end().await;
    }
}

pub(crate) fn any() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}
