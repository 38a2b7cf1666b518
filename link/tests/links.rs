//! Links between processes, over real sockets. Each process of a test has its own clock.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use spillgate_link::links::{Links, LinksConfig, Roles};
use spillgate_link::serve;
use spillgate_link::wire::{Brought, Parcel};
use spillgate_pipeline::id::{ClientId, DeviceId, GatewayId, RequestId, WorkerId};
use spillgate_pipeline::message::{
    Address, Arrival, Envelope, Incarnation, Message, ToDevice, ToGateway,
};
use spillgate_pipeline::request::Request;
use spillgate_pipeline::schedule::Application;
use spillgate_pipeline::session::{Greeting, PipelineHash, Timing};
use spillgate_pipeline::time::Timestamp;
use spillgate_proto::link as pb;
use spillgate_proto::link::link_client::LinkClient;
use tokio::net::TcpListener;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::sync::CancellationToken;

const GATEWAY: Address = Address::Gateway(GatewayId(0));
const DEVICE: Address = Address::Device(DeviceId(0));
/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Roles that write down what they hear.
#[derive(Default)]
struct Heard {
    news: Mutex<Vec<String>>,
    /// Deadlines of requests, by this process's clock.
    deadlines: Mutex<Vec<Timestamp>>,
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

    fn heard(&self, envelope: Envelope<Parcel>, _: Vec<Brought>) {
        match envelope.message {
            Message::Device(ToDevice::Requests(arrivals)) => {
                let deadlines = arrivals.iter().map(|a| a.request.deadline);
                self.deadlines.lock().extend(deadlines);
            }
            message => self.note(&format!("{message:?}")),
        }
    }
}

impl Heard {
    fn note(&self, what: &str) {
        self.news.lock().push(what.to_owned());
    }

    fn has(&self, what: &str) -> bool {
        self.news.lock().iter().any(|n| n == what)
    }

    async fn waits_for(&self, what: &str) {
        let give_up = Instant::now() + PATIENCE;
        while !self.has(what) {
            let news = self.news.lock().join(", ");
            assert!(Instant::now() < give_up, "{what} is not heard: {news}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// A process with one role.
struct Process {
    heard: Arc<Heard>,
    links: Arc<Links>,
    began: Instant,
    ahead: Duration,
    life: Incarnation,
    stop: CancellationToken,
}

impl Process {
    fn new(role: Address, life: u64, ahead: Duration) -> Self {
        Self::of(role, life, ahead, PipelineHash::default())
    }

    fn of(role: Address, life: u64, ahead: Duration, pipeline: PipelineHash) -> Self {
        let (heard, began) = (Arc::new(Heard::default()), Instant::now());
        let life = Incarnation(life);
        let me = Greeting {
            addresses: vec![role],
            version: "test".to_owned(),
            pipeline,
            incarnation: life,
        };
        let links = Links::new(LinksConfig {
            me: Arc::new(me),
            timing: Timing::default(),
            seed: life.0,
            now: Arc::new(move || Timestamp::ZERO + ahead + began.elapsed()),
            roles: heard.clone(),
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

    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.ahead + self.began.elapsed()
    }

    /// Listens at that address. Port 0 is any.
    async fn listens(&self, at: SocketAddr) -> SocketAddr {
        let listener = TcpListener::bind(at).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (links, stop) = (self.links.clone(), self.stop.clone());
        tokio::spawn(serve::serve(links, listener, stop.cancelled_owned()));
        address
    }

    async fn ends(&self) {
        self.stop.cancel();
        self.links.end().await;
    }
}

fn any() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn requests(from: &Process, deadline: Timestamp) -> Envelope<Parcel> {
    let request = Request {
        id: RequestId::at(GatewayId(0), from.life, 7),
        sent_at: from.now(),
        deadline,
        application: Application::default(),
        client: ClientId(0),
        decoding_us: 0,
        rank: 0,
    };
    Envelope {
        from: GATEWAY,
        incarnation: from.life,
        to: DEVICE,
        message: Message::Device(ToDevice::Requests(vec![Arrival {
            worker: WorkerId(0),
            request,
            payload: Parcel::default(),
        }])),
    }
}

#[tokio::test]
async fn messages_travel_both_ways_and_deadlines_hold_on_either_clock() {
    let gateway = Process::new(GATEWAY, 1, Duration::from_secs(7200));
    let device = Process::new(DEVICE, 2, Duration::from_secs(100));
    gateway.links.dial(device.listens(any()).await.to_string());
    gateway.heard.waits_for("met 2").await;
    device.heard.waits_for("met 1").await;
    let left = Duration::from_secs(30);
    let message = requests(&gateway, gateway.now() + left);
    gateway.links.send(message, Vec::new()).unwrap();
    let withdrawn = ToGateway::Withdrawn(WorkerId(0), 5);
    let answer = Envelope {
        from: DEVICE,
        incarnation: device.life,
        to: GATEWAY,
        message: Message::Gateway(withdrawn.clone()),
    };
    device.links.send(answer, Vec::new()).unwrap();
    let heard = format!("{:?}", Message::<Parcel>::Gateway(withdrawn));
    gateway.heard.waits_for(&heard).await;
    let give_up = Instant::now() + PATIENCE;
    while device.heard.deadlines.lock().is_empty() {
        assert!(Instant::now() < give_up, "the request does not come");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let deadline = device.heard.deadlines.lock()[0];
    let left_there = deadline.since(device.now());
    assert!(
        left_there <= left + Duration::from_millis(50),
        "{left_there:?}"
    );
    assert!(left_there >= left / 2, "{left_there:?}");
}

#[tokio::test]
async fn a_process_that_ends_is_lost_at_once_and_its_next_life_is_met() {
    let gateway = Process::new(GATEWAY, 1, Duration::ZERO);
    let device = Process::new(DEVICE, 2, Duration::ZERO);
    let at = device.listens(any()).await;
    gateway.links.dial(at.to_string());
    gateway.heard.waits_for("met 2").await;
    let ended = Instant::now();
    device.ends().await;
    gateway.heard.waits_for("parted 2").await;
    // Far less than the silence after which a peer is suspected.
    assert!(ended.elapsed() < Duration::from_millis(900));
    assert!(!gateway.links.reaches(DEVICE));
    assert!(!gateway.heard.has("suspected 2"));
    let next = Process::new(DEVICE, 3, Duration::ZERO);
    next.listens(at).await;
    gateway.heard.waits_for("met 3").await;
}

#[tokio::test]
async fn of_two_processes_with_one_role_the_last_that_greeted_counts() {
    let gateway = Process::new(GATEWAY, 1, Duration::ZERO);
    let [old, new] = [2, 3].map(|life| Process::new(DEVICE, life, Duration::ZERO));
    gateway.links.dial(old.listens(any()).await.to_string());
    gateway.heard.waits_for("met 2").await;
    gateway.links.dial(new.listens(any()).await.to_string());
    gateway.heard.waits_for("met 3").await;
    let news = gateway.heard.news.lock().join(", ");
    assert_eq!(news, "met 2, parted 2, met 3");
    // The old one lives on, and is not met again.
    old.heard.waits_for("parted 1").await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(gateway.heard.news.lock().join(", "), news);
    assert!(gateway.links.reaches(DEVICE));
}

#[tokio::test]
async fn a_replaced_process_is_met_again_when_the_other_one_is_gone() {
    let gateway = Process::new(GATEWAY, 1, Duration::ZERO);
    let [right, wrong] = [2, 3].map(|life| Process::new(DEVICE, life, Duration::ZERO));
    gateway.links.dial(right.listens(any()).await.to_string());
    gateway.heard.waits_for("met 2").await;
    gateway.links.dial(wrong.listens(any()).await.to_string());
    gateway.heard.waits_for("met 3").await;
    wrong.ends().await;
    gateway.heard.waits_for("parted 3").await;
    let give_up = Instant::now() + PATIENCE;
    while !gateway.links.reaches(DEVICE) {
        assert!(
            Instant::now() < give_up,
            "the right process is not met again"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(gateway.heard.news.lock().last().unwrap(), "met 2");
}

#[tokio::test]
async fn a_process_with_another_pipeline_is_not_met() {
    let gateway = Process::new(GATEWAY, 1, Duration::ZERO);
    let device = Process::of(DEVICE, 2, Duration::ZERO, PipelineHash([7; 32]));
    let other = Process::new(Address::Device(DeviceId(1)), 3, Duration::ZERO);
    gateway.links.dial(device.listens(any()).await.to_string());
    gateway.links.dial(other.listens(any()).await.to_string());
    gateway.heard.waits_for("met 3").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!gateway.heard.has("met 2"));
    assert!(device.heard.news.lock().is_empty());
}

#[tokio::test]
async fn what_cannot_be_read_ends_its_connection_alone() {
    let gateway = Process::new(GATEWAY, 1, Duration::ZERO);
    let device = Process::new(DEVICE, 2, Duration::ZERO);
    let at = device.listens(any()).await;
    gateway.links.dial(at.to_string());
    gateway.heard.waits_for("met 2").await;
    for packet in [
        // Without content.
        pb::Packet { content: None },
        // Before a greeting.
        pb::Packet {
            content: Some(pb::packet::Content::Heartbeat(pb::Heartbeat::default())),
        },
    ] {
        let mut client = LinkClient::connect(format!("http://{at}")).await.unwrap();
        let (say, said) = tokio::sync::mpsc::unbounded_channel();
        let packets = vec![packet];
        say.send(pb::Packets { packets }).unwrap();
        let joined = client.join(UnboundedReceiverStream::new(said)).await;
        let mut answers = joined.unwrap().into_inner();
        let give_up = Instant::now() + PATIENCE;
        // The device greets, and then closes the connection.
        while let Ok(Some(_)) = answers.message().await {
            assert!(Instant::now() < give_up, "the connection stands");
        }
    }
    let message = requests(&gateway, gateway.now() + PATIENCE);
    gateway.links.send(message, Vec::new()).unwrap();
    let give_up = Instant::now() + PATIENCE;
    while device.heard.deadlines.lock().is_empty() {
        assert!(Instant::now() < give_up, "the request does not come");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert!(!gateway.heard.has("parted 2"));
}

#[tokio::test]
async fn a_peer_that_answers_nothing_is_not_met() {
    let device = Process::new(DEVICE, 2, Duration::ZERO);
    let at = device.listens(any()).await;
    // A gateway that greets, answers heartbeats of nobody, and never reads.
    let mut client = LinkClient::connect(format!("http://{at}")).await.unwrap();
    let (say, said) = tokio::sync::mpsc::unbounded_channel();
    let greeting = pb::packet::Content::Greeting(pb::Greeting {
        addresses: vec![pb::Address {
            role: Some(pb::address::Role::Gateway(0)),
        }],
        version: "test".to_owned(),
        pipeline: vec![0; 32].into(),
        incarnation: 9,
    });
    let packets = vec![pb::Packet {
        content: Some(greeting),
    }];
    say.send(pb::Packets { packets }).unwrap();
    let _unread = client.join(UnboundedReceiverStream::new(said)).await;
    // Its clock never becomes known, so no role hears of it; the session ends after the silence that means death.
    tokio::time::sleep(Timing::default().death() + Duration::from_millis(500)).await;
    assert!(device.heard.news.lock().is_empty());
    assert!(!device.links.reaches(GATEWAY));
    assert!(say.is_closed(), "the connection is closed");
}
