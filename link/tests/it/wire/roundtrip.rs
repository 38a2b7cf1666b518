//! Packets that come back as they were sent, and bytes that nobody sent.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message as _;

use spillgate_link::wire::{Packet, decode, encode};
use spillgate_pipeline::id::WorkerId;
use spillgate_pipeline::time::Timestamp;
use spillgate_proto::link as pb;
use spillgate_protocol::message::{Ask, Message, ToGateway};

use crate::wire::arbitrary::{for_gateway, packet};
use crate::wire::sizes;

/// Reads bytes as a peer's process does. What is read is written and read again as the same bytes: NaN differs from itself.
fn read(bytes: Bytes) -> Option<Packet> {
    let packet = decode(pb::Packet::decode(bytes).ok()?).ok()??;
    let written = encode(&packet).encode_to_vec();
    let again = pb::Packet::decode(&*written).expect("it was written here");
    let again = decode(again).expect("it was read before");
    let again = again.expect("it is known");
    assert_eq!(encode(&again).encode_to_vec(), written);
    Some(packet)
}

/// A change of bytes on their way.
#[derive(Clone, Debug)]
enum Change {
    Set(usize, u8),
    Insert(usize, Vec<u8>),
    Remove(usize, usize),
}

impl Change {
    /// Places are taken modulo the length.
    fn on(&self, bytes: &mut Vec<u8>) {
        let n = bytes.len() + 1;
        match self {
            Change::Set(at, byte) => {
                if let Some(place) = bytes.get_mut(at % n) {
                    *place = *byte;
                }
            }
            Change::Insert(at, more) => {
                let at = at % n;
                bytes.splice(at..at, more.iter().copied());
            }
            Change::Remove(at, n_removed) => {
                let at = at % n;
                let end = at.saturating_add(*n_removed).min(bytes.len());
                bytes.drain(at..end);
            }
        }
    }
}

fn change() -> impl Strategy<Value = Change> {
    let at = || any::<usize>();
    prop_oneof![
        4 => (at(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        1 => (at(), vec(any::<u8>(), 1..8)).prop_map(|(at, more)| Change::Insert(at, more)),
        1 => (at(), 1usize..8).prop_map(|(at, n)| Change::Remove(at, n)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_packet_comes_back_as_it_was_sent(packet in packet()) {
        let bytes = Bytes::from(encode(&packet).encode_to_vec());
        let read = decode(pb::Packet::decode(bytes).unwrap());
        prop_assert_eq!(read, Ok(Some(packet)));
    }

    #[test]
    fn random_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..200)) {
        read(bytes.into());
    }

    #[test]
    fn a_packet_changed_on_its_way_is_read_or_refused(
        packet in packet(),
        changes in vec(change(), 1..6),
    ) {
        let mut bytes = encode(&packet).encode_to_vec();
        for change in &changes {
            change.on(&mut bytes);
        }
        read(bytes.into());
    }
}

#[test]
fn payloads_are_shared_and_not_copied() {
    let payload = Bytes::from(vec![7; 1000]);
    let wire = encode(&sizes::requests(Some(payload.clone())));
    let is_shared = |packet: &Packet| {
        let data = sizes::payload(packet).expect("it carries a frame");
        data.as_ptr() == payload.as_ptr()
    };
    assert!(is_shared(&decode(wire).unwrap().unwrap()));

    // On the way through bytes it is a slice of them.
    let bytes = Bytes::from(encode(&sizes::requests(Some(payload))).encode_to_vec());
    let read = decode(pb::Packet::decode(bytes.clone()).unwrap());
    let read = read.unwrap().unwrap();
    let data = sizes::payload(&read).unwrap();
    assert!(bytes.as_ptr_range().contains(&data.as_ptr()));
}

#[test]
fn all_times_of_a_message_are_translated() {
    let later = |at: Timestamp| Timestamp::from_ns(at.as_ns() + 1_000);
    let mut packet = sizes::finished();
    let Packet::Message { brought, .. } = &packet else {
        unreachable!()
    };
    let was = brought[0].times;
    packet.translate(later);
    let Packet::Message { brought, .. } = &packet else {
        unreachable!()
    };
    let times = brought[0].times;
    assert_eq!(times.arrived_at, later(was.arrived_at));
    assert_eq!(times.batched_at, later(was.batched_at));
    assert_eq!(times.started_at, later(was.started_at));
    assert_eq!(times.ended_at, later(was.ended_at));

    let at = Timestamp::from_ns(5);
    let mut packet = for_gateway(ToGateway::Ask(Ask {
        worker: WorkerId(1),
        serial: 1,
        most: 1,
        elsewhere: 0,
        starts_at: at,
        until: Some(at),
    }));
    packet.translate(later);
    let Packet::Message { envelope, .. } = packet else {
        unreachable!()
    };
    let Message::Gateway(ToGateway::Ask(ask)) = envelope.message else {
        unreachable!()
    };
    assert_eq!((ask.starts_at, ask.until), (later(at), Some(later(at))));
}

#[test]
fn what_a_later_release_says_is_ignored() {
    // A packet, a message and a field that this release does not know: number 99, of two bytes.
    let unknown = [0x9a, 0x06, 0x02, 1, 2];
    let read = |packet: &pb::Packet| {
        let bytes = packet.encode_to_vec();
        decode(pb::Packet::decode(&*bytes).unwrap()).unwrap()
    };
    let none = pb::Packet::decode(&unknown[..]).unwrap();
    assert_eq!(read(&none), None);
    let serve = for_gateway(ToGateway::Serve(WorkerId(1)));
    let mut bytes = encode(&serve).encode_to_vec();
    bytes.extend(unknown);
    let more = pb::Packet::decode(&*bytes).unwrap();
    assert_eq!(read(&more), Some(serve.clone()));
    let Some(pb::packet::Content::Envelope(envelope)) = encode(&serve).content else {
        panic!("it is an envelope");
    };
    for message in [
        None,
        Some(pb::envelope::Message::Gateway(pb::ToGateway::default())),
    ] {
        let envelope = pb::Envelope {
            message,
            ..(*envelope).clone()
        };
        let content = Some(pb::packet::Content::Envelope(Box::new(envelope)));
        assert_eq!(read(&pb::Packet { content }), None);
    }
}
