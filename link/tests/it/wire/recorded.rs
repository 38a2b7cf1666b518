//! What programs of earlier releases wrote is read with the meaning that it had, and such a program is talked with.
//!
//! `recorded.txt` has packets in hexadecimal digits, as the first program with this wire (version 1) wrote them. Its lines stay as they
//! are; a release that writes something new adds lines.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use spillgate_link::wire::{Packet, Parcel, decode};
use spillgate_pipeline::id::{DeviceId, GatewayId, Incarnation, ModuleId, RequestId, WorkerId};
use spillgate_pipeline::request::Request;
use spillgate_pipeline::time::Timestamp;
use spillgate_proto::link as pb;
use spillgate_proto::link::link_client::LinkClient;
use spillgate_protocol::membership::{Listed, Member, MemberDevice, MemberState, MemberWorker};
use spillgate_protocol::message::{
    Address, Arrival, Ask, Envelope, Message, ToController, ToDevice, ToGateway,
};
use spillgate_protocol::session::{Answer, Frame, Greeting, PipelineHash, WireVersions};
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::sizes;
use crate::links::process::{DEVICE, Process, any};

const RECORDED: &str = include_str!("recorded.txt");
const LIFE: Incarnation = Incarnation(9);

fn at(ms: u64) -> Timestamp {
    Timestamp::from_ns(ms * 1_000_000)
}

fn member(name: &str, is_gateway: bool) -> Member {
    let device = MemberDevice {
        name: "cuda:0".into(),
        workers: vec![MemberWorker {
            module: ModuleId(1),
            profile: 0x0123_4567_89ab_cdef,
        }],
    };
    Member {
        name: name.into(),
        incarnation: LIFE,
        version: "0.1.0".into(),
        address: (!is_gateway).then(|| "10.0.0.7:7720".into()),
        is_gateway,
        controllers: if is_gateway {
            vec![]
        } else {
            vec![ModuleId(0), ModuleId(2)]
        },
        devices: if is_gateway { vec![] } else { vec![device] },
    }
}

fn greeting() -> Packet {
    Packet::Session(Frame::Greeting(Arc::new(Greeting {
        member: Arc::new(member("front", true)),
        set: "spillgate".into(),
        pipeline: "one".into(),
        hash: PipelineHash::default(),
        wire: WireVersions {
            oldest: 1,
            newest: 1,
        },
        published: None,
    })))
}

fn envelope(from: Address, to: Address, message: Message<Parcel>, listed: Option<&str>) -> Packet {
    Packet::Message {
        envelope: Envelope {
            from,
            incarnation: LIFE,
            to,
            message,
        },
        brought: Vec::new(),
        listed: listed.map(Into::into),
    }
}

fn requests() -> Packet {
    let request = Request::new(RequestId::at(GatewayId(0), LIFE, 7), at(1_000), at(1_200));
    let arrivals = vec![Arrival {
        worker: WorkerId(0),
        request,
        payload: Parcel::default(),
    }];
    let message = Message::Device(ToDevice::Requests(arrivals));
    let (from, to) = (Address::Gateway(GatewayId(0)), DEVICE);
    envelope(from, to, message, None)
}

/// The life of its members is that of the envelope.
fn finished() -> Packet {
    let mut packet = sizes::finished();
    if let Packet::Message {
        envelope, brought, ..
    } = &mut packet
    {
        brought[0].times.incarnation = envelope.incarnation;
    }
    packet
}

/// What each line of the record means.
fn meant() -> Vec<(&'static str, Packet)> {
    let gateway = Address::Gateway(GatewayId(0));
    let controller = Address::Controller(ModuleId(1));
    let device = Address::Device(DeviceId(0));
    let answer = Answer {
        heartbeat_sent_at: at(5),
        received_at: at(6),
        sent_at: at(7),
    };
    let ask = ToGateway::Ask(Ask {
        worker: WorkerId(0),
        serial: 3,
        most: 8,
        elsewhere: 5,
        starts_at: at(1_014),
        until: Some(at(1_100)),
    });
    let loaded = ToController::Loaded(WorkerId(0), true);
    let cancel = ToDevice::Cancel(WorkerId(0), RequestId::at(GatewayId(0), LIFE, 8));
    let listed = |name, state| Listed {
        member: Arc::new(member(name, false)),
        state,
    };
    vec![
        ("greeting", greeting()),
        (
            "heartbeat",
            Packet::Session(Frame::Heartbeat { sent_at: at(5) }),
        ),
        ("answer", Packet::Session(Frame::Answer(answer))),
        ("refused", Packet::Refused("no rights".to_owned())),
        ("requests", requests()),
        ("batch-ended", finished()),
        (
            "ask",
            envelope(device, gateway, Message::Gateway(ask), None),
        ),
        (
            "serve",
            envelope(
                controller,
                gateway,
                Message::Gateway(ToGateway::Serve(WorkerId(2))),
                Some("a-1"),
            ),
        ),
        (
            "loaded",
            envelope(device, controller, Message::Controller(loaded), None),
        ),
        (
            "cancel",
            envelope(gateway, device, Message::Device(cancel), None),
        ),
        (
            "ended",
            Packet::Ended(vec![RequestId::at(GatewayId(0), LIFE, 7)]),
        ),
        (
            "members",
            Packet::Members(vec![
                listed("a-0", MemberState::Serving),
                listed("a-1", MemberState::Leaving),
                listed("a-2", MemberState::Suspected),
                listed("a-3", MemberState::Joining),
            ]),
        ),
        ("leaving", Packet::Leaves),
        ("notice", Packet::Notice("another profile".to_owned())),
    ]
}

fn recorded(name: &str) -> pb::Packet {
    let mut lines = RECORDED.lines().filter_map(|line| line.split_once(' '));
    let (_, digits) = lines.find(|(of, _)| *of == name).expect("it is recorded");
    let bytes: Vec<u8> = (0..digits.len() / 2)
        .map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap())
        .collect();
    pb::Packet::decode(Bytes::from(bytes)).unwrap()
}

#[test]
fn each_packet_of_the_record_means_what_it_meant() {
    for (name, packet) in meant() {
        assert_eq!(decode(recorded(name)), Ok(Some(packet)), "{name}");
    }
    assert_eq!(RECORDED.lines().count(), meant().len());
}

#[tokio::test(start_paused = true)]
async fn a_program_that_writes_as_recorded_is_talked_with() {
    let device = Process::new(DEVICE, 2, Duration::ZERO);
    let address = device.listens(any()).await;
    let mut client = LinkClient::connect(format!("http://{address}"))
        .await
        .unwrap();
    let (say, said) = tokio::sync::mpsc::unbounded_channel();
    let send = |packet| {
        let packets = vec![packet];
        say.send(pb::Packets { packets }).unwrap();
    };
    send(recorded("greeting"));
    let joined = client.join(UnboundedReceiverStream::new(said)).await;
    let mut answers = joined.unwrap().into_inner();
    let heartbeat = 'heard: loop {
        let packets = answers
            .message()
            .await
            .unwrap()
            .expect("it goes on")
            .packets;
        for packet in packets {
            if let Some(pb::packet::Content::Heartbeat(heartbeat)) = packet.content {
                break 'heard heartbeat;
            }
        }
    };
    let mut answer = recorded("answer");
    if let Some(pb::packet::Content::HeartbeatAnswer(answer)) = &mut answer.content {
        let now = heartbeat.sent_at;
        (answer.heartbeat_sent_at, answer.received_at, answer.sent_at) = (now, now, now);
    }
    send(answer);
    device.heard.waits_for("met 9").await;
    send(recorded("requests"));
    send(recorded("ended"));
    let ended = [RequestId::at(GatewayId(0), LIFE, 7)];
    device.heard.waits_for(&format!("ended: {ended:?}")).await;
    assert_eq!(device.heard.deadlines.lock().len(), 1);
}
