//! The packets that travel most, and how many bytes they take.

use std::time::Duration;

use bytes::Bytes;
use expect_test::expect;
use prost::Message as _;

use spillgate_link::wire::{Carried, ItemOutputs, Packet, Parcel, encode};
use spillgate_picture::{Frame, FrameFormat};
use spillgate_pipeline::id::{
    BatchId, ClientId, DeviceId, GatewayId, Incarnation, ModuleId, RequestId, WorkerId,
};
use spillgate_pipeline::request::{ModuleTimes, Request};
use spillgate_pipeline::schedule::Application;
use spillgate_pipeline::time::Timestamp;
use spillgate_process::value::Value;
use spillgate_proto::link as pb;
use spillgate_protocol::message::{
    Address, Arrival, Ask, Demand, Envelope, Filled, Finished, Message, Returned, SHARE_STEPS,
    Started, ToController, ToDevice, ToGateway,
};
use spillgate_protocol::values::Ports;

use crate::wire::arbitrary::for_gateway;

/// A request from gateway 2 to device 1, with that frame.
pub(crate) fn requests(frame: Option<Bytes>) -> Packet {
    let frame = frame.map(|data| Frame {
        format: FrameFormat::Jpeg,
        data,
        width: 0,
        height: 0,
    });
    let arrival = Arrival {
        worker: WorkerId(3),
        request: Request {
            application: Application(1),
            client: ClientId(40),
            decoding_us: 2_500,
            rank: 1,
            ..Request::new(request(), at(1_000), at(1_400))
        },
        payload: Parcel {
            frame,
            ..Parcel::default()
        },
    };
    let message = Message::Device(ToDevice::Requests(vec![arrival]));
    envelope(Address::Device(DeviceId(1)), message)
}

/// The frame of the first request.
pub(crate) fn payload(packet: &Packet) -> Option<&Bytes> {
    let Packet::Message { envelope, .. } = packet else {
        return None;
    };
    let Message::Device(ToDevice::Requests(arrivals)) = &envelope.message else {
        return None;
    };
    Some(&arrivals.first()?.payload.frame.as_ref()?.data)
}

/// A batch of four requests ended; one of them is the gateway's, and brings 100 bytes.
pub(crate) fn finished() -> Packet {
    let mut packet = for_gateway(ToGateway::Finished {
        worker: WorkerId(3),
        batch: BatchId(100_000),
        took: Duration::from_millis(12),
        size: 4,
        members: vec![Finished {
            request: request(),
            result: Ok(Filled::default().with(0)),
        }],
    });
    if let Packet::Message { brought, .. } = &mut packet {
        brought.push(ItemOutputs {
            times: ModuleTimes {
                module: ModuleId(2),
                worker: WorkerId(3),
                arrived_at: at(1_000),
                batched_at: at(1_001),
                started_at: at(1_002),
                ended_at: at(1_014),
                batch: BatchId(100_000),
                batch_size: 4,
                load: None,
                incarnation: Incarnation(5),
            },
            outputs: Some(vec![Carried::Value(Value::Bytes(Bytes::from(vec![
                1;
                100
            ])))]),
            kept: Ports::default(),
            damage: None,
        });
    }
    packet
}

fn request() -> RequestId {
    RequestId::at(GatewayId(2), Incarnation(5), 1_000_000)
}

fn at(ms: u64) -> Timestamp {
    Timestamp::from_ns(ms * 1_000_000)
}

/// From gateway 2.
fn envelope(to: Address, message: Message<Parcel>) -> Packet {
    Packet::Message {
        envelope: Envelope {
            from: Address::Gateway(GatewayId(2)),
            incarnation: Incarnation(5),
            to,
            message,
        },
        brought: Vec::new(),
        listed: None,
    }
}

#[test]
fn the_packets_that_travel_most_are_small() {
    let started = ToGateway::Started(Started {
        worker: WorkerId(3),
        batch: BatchId(100_000),
        size: 4,
        expected_end: at(1_014),
    });
    let ask = ToGateway::Ask(Ask {
        worker: WorkerId(3),
        serial: 100_000,
        most: 8,
        elsewhere: 5,
        starts_at: at(1_014),
        until: Some(at(1_010)),
    });
    let returned = ToGateway::Returned(Returned {
        worker: WorkerId(3),
        serial: 100_000,
        elsewhere: 5,
        requests: vec![(request(), at(1_000))],
    });
    let demand = ToController::Demand(Box::new(Demand {
        offered: 1_000_000,
        returned: 100,
        reached: 900_000,
        skipped: 1_000,
        unasked: 100,
        asked: [0; SHARE_STEPS],
    }));
    let to_controller = Address::Controller(ModuleId(2));
    let packets = [
        ("Requests, one without a payload", requests(None)),
        ("Started", for_gateway(started)),
        ("Finished, one member with 100 bytes", finished()),
        ("Ask", for_gateway(ask)),
        ("Returned, one request", for_gateway(returned)),
        (
            "Demand",
            envelope(to_controller, Message::Controller(demand)),
        ),
    ];
    let mut table = String::new();
    for (name, packet) in &packets {
        table += &format!("{name}: {} bytes\n", encode(packet).encoded_len());
    }
    expect![[r#"
        Requests, one without a payload: 65 bytes
        Started: 40 bytes
        Finished, one member with 100 bytes: 207 bytes
        Ask: 51 bytes
        Returned, one request: 51 bytes
        Demand: 60 bytes
    "#]]
    .assert_eq(&table);
}

/// A packet of two bytes on the wire takes so many in memory: a list of packets is no larger than this times its bytes.
#[test]
fn a_packet_takes_little_memory_before_it_is_checked() {
    expect!["32"].assert_eq(&format!("{}", size_of::<pb::Packet>()));
}
