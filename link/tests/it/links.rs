//! PeerLinks between processes, over real sockets. Each process of a test has its own clock, on the runtime's time: that goes on only while all
//! of them wait.

mod certificates;
mod logs;
mod members;
mod pipelines;
pub(crate) mod process;
mod secure;

use std::time::Duration;

use spillgate_link::STRANGER_BYTES_MAX;
use spillgate_link::wire::Parcel;
use spillgate_pipeline::id::{DeviceId, GatewayId, RequestId, WorkerId};
use spillgate_pipeline::request::Request;
use spillgate_pipeline::time::Timestamp;
use spillgate_proto::link as pb;
use spillgate_proto::link::link_client::LinkClient;
use spillgate_protocol::message::{Address, Arrival, Envelope, Message, ToDevice, ToGateway};
use spillgate_protocol::publication::DEFINITION_BYTES_MAX;
use spillgate_protocol::session::{PipelineHash, Timing};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use logs::Logs;
use process::{DEVICE, GATEWAY, PATIENCE, Process, any};

fn requests(from: &Process, deadline: Timestamp) -> Envelope<Parcel> {
    let request = Request::new(
        RequestId::at(GatewayId(0), from.life, 7),
        from.now(),
        deadline,
    );
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

#[tokio::test(start_paused = true)]
async fn messages_travel_both_ways_and_deadlines_hold_on_either_clock() {
    let gateway = Process::new(GATEWAY, 1, Duration::from_secs(7200));
    let device = Process::new(DEVICE, 2, Duration::from_secs(100));
    gateway.dials(device.listens(any()).await);
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

#[tokio::test(start_paused = true)]
async fn ends_of_requests_go_to_one_meeting_and_requests_come_back_from_it() {
    let gateway = Process::new(GATEWAY, 1, Duration::ZERO);
    let device = Process::new(DEVICE, 2, Duration::ZERO);
    let at = device.listens(any()).await;
    gateway.dials(at);
    gateway.heard.waits_for("met 2").await;
    device.heard.waits_for("met 1").await;
    let to_device = gateway.links.way(DEVICE).unwrap().peer();
    let to_gateway = device.links.way(GATEWAY).unwrap().peer();
    let message = requests(&gateway, gateway.now());
    let id = RequestId::at(GatewayId(0), gateway.life, 7);
    gateway.links.tell_ended(to_device, vec![id]);
    device.heard.waits_for(&format!("ended: {:?}", [id])).await;
    // What this process did not send in this life cannot come back to it.
    let mut of_other_life = message.clone();
    of_other_life.incarnation = device.life;
    device.links.give_back(to_gateway, of_other_life);
    let mut of_other_gateway = message.clone();
    of_other_gateway.from = Address::Gateway(GatewayId(1));
    device.links.give_back(to_gateway, of_other_gateway);
    let mut to_other_device = message.clone();
    to_other_device.to = Address::Device(DeviceId(1));
    device.links.give_back(to_gateway, to_other_device);
    device.links.give_back(to_gateway, message);
    let heard = format!("lacking at 2: {:?}", [(WorkerId(0), id)]);
    gateway.heard.waits_for(&heard).await;
    let said = gateway.heard.news.lock().join(", ");
    assert_eq!(said, format!("met 2, {heard}"));
    // The next meeting has another name, and hears nothing of the first.
    device.ends().await;
    gateway.heard.waits_for("parted 2").await;
    let next = Process::new(DEVICE, 3, Duration::ZERO);
    next.listens(at).await;
    gateway.heard.waits_for("met 3").await;
    next.heard.waits_for("met 1").await;
    let anew = gateway.links.way(DEVICE).unwrap().peer();
    assert_ne!(anew, to_device);
    gateway.links.tell_ended(to_device, vec![id]);
    let other = RequestId::at(GatewayId(0), gateway.life, 8);
    gateway.links.tell_ended(anew, vec![other]);
    next.heard.waits_for(&format!("ended: {:?}", [other])).await;
    assert_eq!(next.heard.news.lock().len(), 2, "met 1, and one end");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_ends_is_lost_at_once_and_its_next_life_is_met() {
    let gateway = Process::new(GATEWAY, 1, Duration::ZERO);
    let device = Process::new(DEVICE, 2, Duration::ZERO);
    let at = device.listens(any()).await;
    gateway.dials(at);
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

#[tokio::test(start_paused = true)]
async fn of_two_processes_with_one_role_the_last_that_greeted_counts() {
    let gateway = Process::new(GATEWAY, 1, Duration::ZERO);
    let [old, new] = [2, 3].map(|life| Process::new(DEVICE, life, Duration::ZERO));
    gateway.dials(old.listens(any()).await);
    gateway.heard.waits_for("met 2").await;
    gateway.dials(new.listens(any()).await);
    gateway.heard.waits_for("met 3").await;
    let news = gateway.heard.news.lock().join(", ");
    assert_eq!(news, "met 2, parted 2, met 3");
    // The old one lives on, and is not met again.
    old.heard.waits_for("parted 1").await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(gateway.heard.news.lock().join(", "), news);
    assert!(gateway.links.reaches(DEVICE));
}

#[tokio::test(start_paused = true)]
async fn a_replaced_process_is_met_again_when_the_other_one_is_gone() {
    let gateway = Process::new(GATEWAY, 1, Duration::ZERO);
    let [right, wrong] = [2, 3].map(|life| Process::new(DEVICE, life, Duration::ZERO));
    gateway.dials(right.listens(any()).await);
    gateway.heard.waits_for("met 2").await;
    gateway.dials(wrong.listens(any()).await);
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

#[tokio::test(start_paused = true)]
async fn a_process_with_another_pipeline_is_not_met() {
    let gateway = Process::new(GATEWAY, 1, Duration::ZERO);
    let device = Process::of(DEVICE, 2, Duration::ZERO, PipelineHash([7; 32]));
    let other = Process::new(Address::Device(DeviceId(1)), 3, Duration::ZERO);
    gateway.dials(device.listens(any()).await);
    gateway.dials(other.listens(any()).await);
    gateway.heard.waits_for("met 3").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!gateway.heard.has("met 2"));
    assert!(device.heard.news.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_ends_its_connection_alone() {
    let gateway = Process::new(GATEWAY, 1, Duration::ZERO);
    let device = Process::new(DEVICE, 2, Duration::ZERO);
    let at = device.listens(any()).await;
    gateway.dials(at);
    gateway.heard.waits_for("met 2").await;
    for content in [
        // What is no greeting.
        pb::packet::Content::Greeting(Box::default()),
        // Before a greeting.
        pb::packet::Content::Heartbeat(pb::Heartbeat::default()),
    ] {
        let packet = pb::Packet {
            content: Some(content),
        };
        let mut client = LinkClient::connect(format!("http://{at}")).await.unwrap();
        let (say, said) = tokio::sync::mpsc::unbounded_channel();
        let packets = vec![packet];
        say.send(pb::Packets { packets }).unwrap();
        let joined = client.join(UnboundedReceiverStream::new(said)).await;
        let mut answers = joined.unwrap().into_inner();
        let give_up = Instant::now() + PATIENCE;
        // The device says why, and then closes the connection.
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

/// That of a gateway of the test's own.
fn greeting() -> pb::Packet {
    let member = pb::Member {
        name: "front".to_owned(),
        is_gateway: true,
        ..pb::Member::default()
    };
    let greeting = pb::packet::Content::Greeting(Box::new(pb::Greeting {
        version: "test".to_owned(),
        pipeline: vec![0; 32].into(),
        incarnation: 9,
        member: Some(member),
        pipeline_name: "one".to_owned(),
        set: "spillgate".to_owned(),
        wire_oldest: 1,
        wire_newest: 1,
        published: None,
    }));
    pb::Packet {
        content: Some(greeting),
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_answers_nothing_is_not_met() {
    let device = Process::new(DEVICE, 2, Duration::ZERO);
    let at = device.listens(any()).await;
    // A gateway that greets, answers heartbeats of nobody, and never reads.
    let mut client = LinkClient::connect(format!("http://{at}")).await.unwrap();
    let (say, said) = tokio::sync::mpsc::unbounded_channel();
    let packets = vec![greeting()];
    say.send(pb::Packets { packets }).unwrap();
    let _unread = client.join(UnboundedReceiverStream::new(said)).await;
    // Its clock never becomes known, so no role hears of it; the session ends after the silence that means death.
    tokio::time::sleep(Timing::default().death() + Duration::from_millis(500)).await;
    assert!(device.heard.news.lock().is_empty());
    assert!(!device.links.reaches(GATEWAY));
    assert!(say.is_closed(), "the connection is closed");
}

/// A peer of the test's own: its way to say something, and the answers.
async fn join(
    client: &mut LinkClient<Channel>,
) -> Result<(UnboundedSender<pb::Packets>, Streaming<pb::Packets>), Status> {
    let (say, said) = tokio::sync::mpsc::unbounded_channel();
    let joined = client.join(UnboundedReceiverStream::new(said)).await?;
    Ok((say, joined.into_inner()))
}

#[tokio::test(start_paused = true)]
async fn a_connection_carries_one_session() {
    let device = Process::new(DEVICE, 2, Duration::ZERO);
    let at = device.listens(any()).await;
    let mut client = LinkClient::connect(format!("http://{at}")).await.unwrap();
    let (say, mut answers) = join(&mut client).await.unwrap();
    let packets = vec![greeting()];
    say.send(pb::Packets { packets }).unwrap();
    answers.message().await.unwrap().expect("its greeting");
    drop((say, answers));
    let give_up = Instant::now() + PATIENCE;
    loop {
        match join(&mut client).await {
            // The call before has not ended yet, or the connection has.
            Err(status) if status.code() == Code::FailedPrecondition => {
                assert!(status.message().contains("one session"), "{status}");
                break;
            }
            Err(status) if status.code() == Code::Unavailable => break,
            answer => assert!(Instant::now() < give_up, "{answer:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_has_not_greeted_may_send_little() {
    let device = Process::new(DEVICE, 2, Duration::ZERO);
    let at = device.listens(any()).await;
    let logs = Logs::begin();
    let mut client = LinkClient::connect(format!("http://{at}")).await.unwrap();
    let (say, mut answers) = join(&mut client).await.unwrap();
    let packet = pb::Packet {
        content: Some(pb::packet::Content::Ended(pb::Ended {
            requests: vec![u64::MAX; STRANGER_BYTES_MAX],
        })),
    };
    let packets = vec![packet];
    say.send(pb::Packets { packets }).unwrap();
    let said = format!("more than {STRANGER_BYTES_MAX} bytes came before the greeting");
    logs.waits_for("127.0.0.1", &said).await;
    while let Ok(Some(_)) = answers.message().await {}
    assert!(device.heard.is_empty());
}

/// A greeting carries what is published, and what was before.
#[tokio::test(start_paused = true)]
async fn a_greeting_with_the_largest_definitions_is_heard() {
    let device = Process::new(DEVICE, 2, Duration::ZERO);
    let at = device.listens(any()).await;
    let mut client = LinkClient::connect(format!("http://{at}")).await.unwrap();
    let (say, mut answers) = join(&mut client).await.unwrap();
    let mut packet = greeting();
    let Some(pb::packet::Content::Greeting(said)) = &mut packet.content else {
        unreachable!("it is one");
    };
    let definition = pb::Definition {
        pipeline: "x".repeat(DEFINITION_BYTES_MAX),
        ..pb::Definition::default()
    };
    said.published = Some(pb::Publication {
        pipeline: "one".to_owned(),
        generation: 1,
        now: Some(definition.clone()),
        former: Some(definition),
        ..pb::Publication::default()
    });
    let packets = vec![packet];
    say.send(pb::Packets { packets }).unwrap();
    let answered = answers.message().await.unwrap().unwrap();
    let is_greeting =
        |of: &pb::Packet| matches!(of.content, Some(pb::packet::Content::Greeting(_)));
    assert!(answered.packets.iter().any(is_greeting), "{answered:?}");
}

#[tokio::test(start_paused = true)]
async fn a_complaint_is_made_once_until_there_is_a_session() {
    let gateway = Process::new(GATEWAY, 1, Duration::ZERO);
    let other = Process::of(DEVICE, 2, Duration::ZERO, PipelineHash([7; 32]));
    let at = other.listens(any()).await;
    let logs = Logs::begin();
    gateway.dials(at);
    let (peer, why) = (at.to_string(), "give both the same pipeline file");
    let n_lines = |what: &str| {
        let lines = logs.of(&peer).into_iter();
        lines.filter(|line| line.contains(what)).count()
    };
    logs.waits_for(&peer, why).await;
    // The next dial comes within 5 s.
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(n_lines(why), 1, "{:#?}", logs.of(&peer));
    other.ends().await;
    let unreachable = "Connection refused";
    logs.waits_for(&peer, unreachable).await;
    let right = Process::new(DEVICE, 3, Duration::ZERO);
    right.listens(at).await;
    gateway.heard.waits_for("met 3").await;
    right.ends().await;
    let give_up = Instant::now() + PATIENCE;
    while n_lines(unreachable) < 2 {
        let lines = logs.of(&peer);
        assert!(Instant::now() < give_up, "it is not said again: {lines:#?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
