//! Packets of all kinds, with values over the whole of their ranges.

mod messages;
mod policy;
mod publication;
mod values;

use std::sync::Arc;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use spillgate_link::wire::bounds::{RATIO_MAX, SPAN_MAX, TIMESTAMP_MAX};
use spillgate_link::wire::{ItemOutputs, Packet, Parcel};
use spillgate_pipeline::id::{DeviceId, GatewayId, Incarnation, ModuleId, RequestId, WorkerId};
use spillgate_pipeline::time::Timestamp;
use spillgate_protocol::membership::{Listed, Member, MemberDevice, MemberState, MemberWorker};
use spillgate_protocol::message::{Address, Envelope, Message, ToGateway};
use spillgate_protocol::session::{
    Answer, Frame, Greeting, PipelineHash, ROLES_MAX, VERSION_BYTES_MAX, WireVersions,
};

/// A packet of any kind.
pub(crate) fn packet() -> impl Strategy<Value = Packet> {
    prop_oneof![
        1 => session().prop_map(Packet::Session),
        8 => message(),
        1 => vec(request_id(), 0..4).prop_map(Packet::Ended),
        1 => lacking().prop_map(Packet::Lacking),
        1 => "[ -~]{0,40}".prop_map(Packet::Refused),
        1 => vec(listed(), 0..4).prop_map(Packet::Members),
        1 => Just(Packet::Leaves),
        1 => "[ -~]{0,40}".prop_map(Packet::Notice),
        1 => publication::publication().prop_map(|of| Packet::Published(Arc::new(of))),
        1 => publication::reports().prop_map(Packet::Revisions),
        1 => publication::operation().prop_map(Packet::Operation),
        1 => publication::operated().prop_map(Packet::Operated),
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
    fn member()(
        name in "[ -~]{0,40}",
        incarnation in any::<u64>(),
        version in vec(proptest::char::range(' ', '~'), 0..VERSION_BYTES_MAX),
        address in proptest::option::of("[ -~]{1,40}"),
        is_gateway in any::<bool>(),
        controllers in prop_oneof![vec(any::<u16>(), 0..4), vec(any::<u16>(), ROLES_MAX)],
        devices in vec(("[ -~]{0,10}", vec(any::<(u16, u64)>(), 0..4)), 0..4),
    ) -> Member {
        let worker = |(module, profile)| MemberWorker {
            module: ModuleId(module),
            profile,
        };
        let devices = devices.into_iter().map(|(name, workers)| MemberDevice {
            name: name.into(),
            workers: workers.into_iter().map(worker).collect(),
        });
        Member {
            name: name.into(),
            incarnation: Incarnation(incarnation),
            version: version.into_iter().collect::<String>().into(),
            address: address.map(Into::into),
            is_gateway,
            controllers: controllers.into_iter().map(ModuleId).collect(),
            devices: devices.collect(),
        }
    }
}

prop_compose! {
    fn greeting()(
        member in member(),
        (set, pipeline) in ("[ -~]{0,40}", "[ -~]{0,40}"),
        hash in any::<[u8; 32]>(),
        (oldest, newest) in any::<(u32, u32)>(),
        published in proptest::option::of(publication::publication()),
    ) -> Greeting {
        Greeting {
            member: Arc::new(member),
            set: set.into(),
            pipeline: pipeline.into(),
            hash: PipelineHash(hash),
            wire: WireVersions { oldest, newest },
            published: published.map(Arc::new),
        }
    }
}

fn listed() -> impl Strategy<Value = Listed> {
    const STATES: [MemberState; 4] = [
        MemberState::Joining,
        MemberState::Serving,
        MemberState::Leaving,
        MemberState::Suspected,
    ];
    (member(), proptest::sample::select(&STATES[..])).prop_map(|(member, state)| Listed {
        member: Arc::new(member),
        state,
    })
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
    let listed = proptest::option::of("[ -~]{1,40}");
    let about = (address(), any::<(u64, u16)>(), listed);
    (about, content).prop_map(|((from, (incarnation, to), listed), content)| {
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
        Packet::Message {
            envelope,
            brought,
            listed: listed.map(Into::into),
        }
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
        listed: None,
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
