//! Packets that no process of this version writes. Each is refused with a sentence that names the field, what was there and what
//! would be right.

mod lists;
mod numbers;
mod payloads;
mod shape;

use expect_test::Expect;

use spillgate_link::wire::decode;
use spillgate_proto::link as pb;

use pb::envelope::Message;

/// The packet is refused with this sentence.
fn check(packet: pb::Packet, sentence: Expect) {
    let error = decode(packet).expect_err("it is to be refused");
    sentence.assert_eq(&error.to_string());
}

fn gateway(message: pb::to_gateway::Message) -> pb::Packet {
    let message = Some(message);
    envelope(
        pb::address::Role::Gateway(1),
        Message::Gateway(pb::ToGateway { message }),
    )
}

fn controller(message: pb::to_controller::Message) -> pb::Packet {
    let message = Some(message);
    envelope(
        pb::address::Role::Controller(1),
        Message::Controller(pb::ToController { message }),
    )
}

fn device(message: pb::to_device::Message) -> pb::Packet {
    let message = Some(message);
    envelope(
        pb::address::Role::Device(1),
        Message::Device(pb::ToDevice { message }),
    )
}

/// From gateway 0.
fn envelope(to: pb::address::Role, message: Message) -> pb::Packet {
    content(pb::packet::Content::Envelope(Box::new(pb::Envelope {
        from: Some(address(pb::address::Role::Gateway(0))),
        incarnation: 1,
        to: Some(address(to)),
        message: Some(message),
        ..pb::Envelope::default()
    })))
}

fn content(content: pb::packet::Content) -> pb::Packet {
    pb::Packet {
        content: Some(content),
    }
}

fn address(role: pb::address::Role) -> pb::Address {
    pb::Address { role: Some(role) }
}

/// A request that is in order.
fn request() -> pb::Request {
    pb::Request {
        id: 1,
        sent_at: 1,
        deadline: 2,
        ..Default::default()
    }
}

/// One request that carries this.
fn carrying(parcel: pb::Parcel) -> pb::Packet {
    let arrivals = vec![pb::Arrival {
        worker: 1,
        request: Some(request()),
        parcel: Some(parcel),
    }];
    device(pb::to_device::Message::Requests(pb::Requests { arrivals }))
}

/// A state that is in order.
fn state() -> pb::ModuleState {
    pb::ModuleState {
        asked: vec![0.0; 20],
        ..Default::default()
    }
}

fn peer(state: pb::ModuleState) -> pb::Packet {
    controller(pb::to_controller::Message::Peer(Box::new(state)))
}

/// Guidance that is in order.
fn guidance() -> pb::Guidance {
    pb::Guidance {
        order: pb::BudgetOrder::LowestFirst.into(),
        ..Default::default()
    }
}

/// A plan that is in order.
fn plan() -> pb::Plan {
    pb::Plan {
        shape: Some(pb::BatchShape::default()),
        guidance: Some(guidance()),
        ..Default::default()
    }
}

fn planned(plan: pb::Plan) -> pb::Packet {
    gateway(pb::to_gateway::Message::Plan(Box::new(plan)))
}

/// A member that succeeded, without outputs' values.
fn member() -> pb::Finished {
    pb::Finished {
        request: 1,
        result: Some(pb::finished::Result::Filled(0)),
        times: Some(pb::ModuleTimes::default()),
        outputs: Some(pb::Outputs::default()),
        kept: 0,
        damage: 0,
    }
}

fn ended(members: Vec<pb::Finished>) -> pb::Packet {
    gateway(pb::to_gateway::Message::Finished(pb::BatchEnded {
        members,
        ..Default::default()
    }))
}

#[test]
fn what_the_other_tests_change_is_in_order() {
    let packets = [
        carrying(pb::Parcel::default()),
        peer(state()),
        planned(plan()),
        ended(vec![member()]),
    ];
    for packet in packets {
        decode(packet).unwrap();
    }
}
