//! Packets of all kinds, with values over the whole of their ranges.

mod messages;
mod policy;
mod values;

use std::sync::Arc;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use spillgate_link::wire::bounds::{RATIO_MAX, SPAN_MAX, TIMESTAMP_MAX};
use spillgate_link::wire::{ItemOutputs, Packet, Parcel};
use spillgate_pipeline::id::{DeviceId, GatewayId, Incarnation, ModuleId, RequestId, WorkerId};
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::message::{Address, Envelope, Message, ToGateway};
use spillgate_protocol::session::{
    ADDRESSES_MAX, Answer, Frame, Greeting, PipelineHash, VERSION_BYTES_MAX,
};

/// A packet of any kind.
pub(crate) fn packet() -> impl Strategy<Value = Packet> {
    prop_oneof![
        1 => session().prop_map(Packet::Session),
        8 => message(),
        1 => vec(request_id(), 0..4).prop_map(Packet::Ended),
        1 => lacking().prop_map(Packet::Lacking),
        1 => "[ -~]{0,40}".prop_map(Packet::Refused),
    ]
}

fn session() -> impl Strategy<Value = Frame> {
    let ns = || any::<u64>().prop_map(Timestamp::from_ns);
    prop_oneof![
        greeting().prop_map(|greeting| Frame::Greeting(Arc::new(greeting))),
        ns().prop_map(|sent_at| Frame::Heartbeat { sent_at }),
        (ns(), ns(), ns()).prop_map(|(heartbeat_sent_at, received_at, sent_at)| {
            Frame::Answer(Answer {
                heartbeat_sent_at,
                received_at,
                sent_at,
            })
        }),
    ]
}

prop_compose! {
    fn greeting()(
        addresses in prop_oneof![vec(address(), 0..4), vec(address(), ADDRESSES_MAX)],
        version in vec(proptest::char::range(' ', '~'), 0..VERSION_BYTES_MAX),
        pipeline in any::<[u8; 32]>(),
        incarnation in any::<u64>(),
    ) -> Greeting {
        Greeting {
            addresses,
            version: version.into_iter().collect(),
            pipeline: PipelineHash(pipeline),
            incarnation: Incarnation(incarnation),
        }
    }
}

fn address() -> impl Strategy<Value = Address> {
    any::<(u8, u16)>().prop_map(|(role, id)| match role % 3 {
        0 => Address::Gateway(GatewayId(id)),
        1 => Address::Controller(ModuleId(id)),
        _ => Address::Device(DeviceId(id)),
    })
}

/// An envelope for the role that its message is for.
fn message() -> impl Strategy<Value = Packet> {
    let content = prop_oneof![
        messages::to_gateway().prop_map(|(message, brought)| (Message::Gateway(message), brought)),
        messages::to_controller().prop_map(|message| (Message::Controller(message), Vec::new())),
        messages::to_device().prop_map(|message| (Message::Device(message), Vec::new())),
    ];
    (address(), any::<(u64, u16)>(), content).prop_map(|(from, (incarnation, to), content)| {
        let (message, mut brought): (Message<Parcel>, Vec<ItemOutputs>) = content;
        let incarnation = Incarnation(incarnation);
        for member in &mut brought {
            member.times.incarnation = incarnation;
        }
        let to = match &message {
            Message::Gateway(_) => Address::Gateway(GatewayId(to)),
            Message::Controller(_) => Address::Controller(ModuleId(to)),
            Message::Device(_) => Address::Device(DeviceId(to)),
        };
        let envelope = Envelope {
            from,
            incarnation,
            to,
            message,
        };
        Packet::Message { envelope, brought }
    })
}

/// Requests of a gateway that a device gives back.
fn lacking() -> impl Strategy<Value = Envelope<Parcel>> {
    let ids = any::<(u16, u16, u64)>();
    (ids, messages::requests()).prop_map(|((from, to, life), message)| {
        let envelope = Envelope {
            from: Address::Gateway(GatewayId(from)),
            incarnation: Incarnation(life),
            to: Address::Device(DeviceId(to)),
            message: Message::Device(message),
        };
        envelope.map(|_, _, _: Parcel| Parcel::default())
    })
}

/// A packet of one message for a gateway, without anything brought.
pub(crate) fn for_gateway(message: ToGateway) -> Packet {
    Packet::Message {
        envelope: Envelope {
            from: Address::Device(DeviceId(1)),
            incarnation: Incarnation(7),
            to: Address::Gateway(GatewayId(2)),
            message: Message::Gateway(message),
        },
        brought: Vec::new(),
    }
}

fn module() -> impl Strategy<Value = ModuleId> {
    any::<u16>().prop_map(ModuleId)
}

fn worker() -> impl Strategy<Value = WorkerId> {
    any::<u32>().prop_map(WorkerId)
}

fn request_id() -> impl Strategy<Value = RequestId> {
    any::<u64>().prop_map(RequestId)
}

fn time() -> impl Strategy<Value = Timestamp> {
    (0..=TIMESTAMP_MAX.as_ns()).prop_map(Timestamp::from_ns)
}

fn span() -> impl Strategy<Value = Duration> {
    let ns = u64::try_from(SPAN_MAX.as_nanos()).unwrap();
    prop_oneof![0..10_000_000_000u64, 0..=ns].prop_map(Duration::from_nanos)
}

fn ratio() -> impl Strategy<Value = f64> {
    prop_oneof![0.0..=1.0, 0.0..=RATIO_MAX]
}

/// Requests a second.
fn rate() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), 1e-3..=1e9, Just(f64::MAX)]
}

fn positive() -> impl Strategy<Value = f64> {
    prop_oneof![1e-3..=1e9, Just(f64::MIN_POSITIVE), Just(f64::MAX)]
}

/// That of what takes no time is infinite.
fn capacity() -> impl Strategy<Value = f64> {
    prop_oneof![rate(), Just(f64::INFINITY)]
}

fn text() -> impl Strategy<Value = String> {
    vec(any::<char>(), 0..12).prop_map(String::from_iter)
}
