//! The wire between processes: one packet into bytes and back, with small and large payloads.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use prost::Message as _;

use spillgate_link::wire::{self, Carried, ItemOutputs, Packet, Parcel};
use spillgate_picture::{Frame, FrameFormat};
use spillgate_pipeline::id::{
    BatchId, DeviceId, GatewayId, Incarnation, ModuleId, RequestId, WorkerId,
};
use spillgate_pipeline::request::{ModuleTimes, Request};
use spillgate_pipeline::time::Timestamp;
use spillgate_process::value::Value;
use spillgate_proto::link as pb;
use spillgate_protocol::message::{
    Address, Arrival, Envelope, Filled, Finished, Message, ToDevice, ToGateway,
};
use spillgate_protocol::values::Ports;

const KB: usize = 1 << 10;
const PAYLOADS: [usize; 2] = [KB, 150 * KB];
const GATEWAY: Address = Address::Gateway(GatewayId(0));
const DEVICE: Address = Address::Device(DeviceId(0));
const AT: Timestamp = Timestamp::from_ns(1_000_000_000);

fn main() {
    divan::main();
}

/// One request with a frame.
fn requests(bytes: usize) -> Packet {
    let frame = Frame {
        format: FrameFormat::Jpeg,
        data: Bytes::from(vec![1; bytes]),
        width: 0,
        height: 0,
    };
    let arrival = Arrival {
        worker: WorkerId(1),
        request: Request::new(RequestId(1), AT, AT),
        payload: Parcel {
            frame: Some(frame),
            ..Parcel::default()
        },
    };
    packet(DEVICE, Message::Device(ToDevice::Requests(vec![arrival])))
}

/// One member with an output.
fn finished(bytes: usize) -> Packet {
    let message = Message::Gateway(ToGateway::Finished {
        worker: WorkerId(1),
        batch: BatchId(1),
        took: Duration::from_millis(10),
        size: 1,
        members: vec![Finished {
            request: RequestId(1),
            result: Ok(Filled::ALL),
        }],
    });
    let mut packet = packet(GATEWAY, message);
    if let Packet::Message { brought, .. } = &mut packet {
        brought.push(ItemOutputs {
            times: ModuleTimes {
                module: ModuleId(1),
                worker: WorkerId(1),
                arrived_at: AT,
                batched_at: AT,
                started_at: AT,
                ended_at: AT,
                batch: BatchId(1),
                batch_size: 1,
                load: None,
                incarnation: Incarnation(0),
            },
            outputs: Some(vec![Carried::Value(Value::Bytes(Bytes::from(vec![
                1;
                bytes
            ])))]),
            kept: Ports::default(),
            damage: None,
        });
    }
    packet
}

fn packet(to: Address, message: Message<Parcel>) -> Packet {
    let from = if to == GATEWAY { DEVICE } else { GATEWAY };
    Packet::Message {
        envelope: Envelope {
            from,
            incarnation: Incarnation(1),
            to,
            message,
        },
        brought: Vec::new(),
        listed: None,
    }
}

fn written(packet: &Packet) -> Bytes {
    let wire = wire::encode(packet);
    let mut bytes = BytesMut::with_capacity(wire.encoded_len());
    wire.encode(&mut bytes).expect("there is room");
    bytes.freeze()
}

fn read(bytes: Bytes) -> Packet {
    let packet = wire::decode(pb::Packet::decode(bytes).expect("valid"));
    packet.expect("valid").expect("it is known")
}

#[divan::bench(args = PAYLOADS)]
fn encode_requests(bencher: divan::Bencher<'_, '_>, bytes: usize) {
    let packet = requests(bytes);
    bencher.bench_local(|| written(&packet));
}

#[divan::bench(args = PAYLOADS)]
fn encode_finished(bencher: divan::Bencher<'_, '_>, bytes: usize) {
    let packet = finished(bytes);
    bencher.bench_local(|| written(&packet));
}

#[divan::bench(args = PAYLOADS)]
fn decode_requests(bencher: divan::Bencher<'_, '_>, bytes: usize) {
    let written = written(&requests(bytes));
    bencher.bench_local(|| read(written.clone()));
}

#[divan::bench(args = PAYLOADS)]
fn decode_finished(bencher: divan::Bencher<'_, '_>, bytes: usize) {
    let written = written(&finished(bytes));
    bencher.bench_local(|| read(written.clone()));
}
