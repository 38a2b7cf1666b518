//! Whatever bytes another process sends: packets are read or refused, and one that is read is written and read again as the same
//! bytes.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use prost::Message;
use spillgate_link::wire::{decode, encode};
use spillgate_proto::link as pb;

fuzz_target!(|data: &[u8]| {
    let data = Bytes::copy_from_slice(data);
    let Ok(packets) = pb::Packets::decode(data) else {
        return;
    };
    for packet in packets.packets {
        let Ok(Some(packet)) = decode(packet) else {
            continue;
        };
        let written = encode(&packet).encode_to_vec();
        let again = pb::Packet::decode(&*written).expect("it was written here");
        let again = decode(again).expect("it was read before");
        let again = again.expect("it is known");
        // Not the packets themselves: NaN in a value differs from itself.
        assert_eq!(encode(&again).encode_to_vec(), written);
    }
});
