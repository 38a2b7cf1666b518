//! Fields that are missing, numbers of no enum, and fields that contradict each other.

use expect_test::expect;

use super::*;
use pb::address::Role;

#[test]
fn an_envelope_without_its_addresses() {
    let whole = |change: fn(&mut pb::Envelope)| {
        let mut packet = gateway(pb::to_gateway::Message::Serve(1));
        if let Some(pb::packet::Content::Envelope(envelope)) = &mut packet.content {
            change(envelope);
        }
        packet
    };
    check(
        whole(|e| e.from = None),
        expect!["Envelope.from is missing; each Envelope has it"],
    );
    check(
        whole(|e| e.to = None),
        expect!["Envelope.to is missing; each Envelope has it"],
    );
    check(
        whole(|e| e.from = Some(pb::Address { role: None })),
        expect!["Envelope.from names no role; each address names one"],
    );
}

#[test]
fn what_is_no_request_of_a_gateway_cannot_be_given_back() {
    let lacking = |packet: pb::Packet, from: Role| {
        let Some(pb::packet::Content::Envelope(mut envelope)) = packet.content else {
            panic!("it is an envelope");
        };
        envelope.from = Some(address(from));
        content(pb::packet::Content::Lacking(envelope))
    };
    let refused =
        || expect!["Packet.lacking is no request of a gateway; only requests are given back"];
    let load = device(pb::to_device::Message::Load(1));
    check(lacking(load, Role::Gateway(0)), refused());
    let serve = gateway(pb::to_gateway::Message::Serve(1));
    check(lacking(serve, Role::Device(0)), refused());
    let request = carrying(pb::Parcel::default());
    check(lacking(request.clone(), Role::Controller(0)), refused());
    decode(lacking(request, Role::Gateway(0))).unwrap();
}

#[test]
fn a_message_for_another_role_than_its_receiver() {
    let message = Some(pb::to_device::Message::Load(1));
    let load = Message::Device(pb::ToDevice { message });
    check(
        envelope(Role::Controller(2), load),
        expect!["Envelope.to is Controller(ModuleId(2)); the message is for a device"],
    );
}

#[test]
fn a_number_of_no_enum() {
    let answer = pb::Answer {
        order: 3,
        ..Default::default()
    };
    check(
        device(pb::to_device::Message::Answer(Box::new(answer))),
        expect!["Answer.order is 3; it must be 1 (lowest first) or 2 (highest first)"],
    );
    let withdraw = pb::Withdraw::default();
    check(
        device(pb::to_device::Message::Withdraw(withdraw)),
        expect!["Withdraw.reason is 0; it must be a reason from 1 to 10"],
    );
    let frame = pb::Frame {
        format: -1,
        ..Default::default()
    };
    let parcel = pb::Parcel {
        frame: Some(frame),
        ..Default::default()
    };
    check(
        carrying(parcel),
        expect!["Frame.format is -1; it must be a format from 1 to 5"],
    );
}

#[test]
fn a_request_a_plan_or_guidance_that_is_missing() {
    let arrivals = vec![pb::Arrival::default()];
    let requests = pb::Requests { arrivals };
    check(
        device(pb::to_device::Message::Requests(requests)),
        expect!["Arrival.request is missing; each Arrival has it"],
    );
    let answer = pb::Answer {
        order: pb::BudgetOrder::LowestFirst.into(),
        requests: vec![pb::Lent::default()],
        ..Default::default()
    };
    check(
        device(pb::to_device::Message::Answer(Box::new(answer))),
        expect!["Lent.request is missing; each Lent has it"],
    );
    check(
        device(pb::to_device::Message::Guide(pb::Guide::default())),
        expect!["Guide.guidance is missing; each Guide has it"],
    );
    let shape = None;
    check(
        planned(pb::Plan { shape, ..plan() }),
        expect!["Plan.shape is missing; each Plan has it"],
    );
    let guidance = None;
    check(
        planned(pb::Plan { guidance, ..plan() }),
        expect!["Plan.guidance is missing; each Plan has it"],
    );
}

#[test]
fn a_member_without_a_result_its_times_or_its_outputs() {
    let result = None;
    check(
        ended(vec![pb::Finished { result, ..member() }]),
        expect!["Finished.result is missing; each Finished has it"],
    );
    let times = None;
    check(
        ended(vec![pb::Finished { times, ..member() }]),
        expect!["Finished.times is missing; each Finished has it"],
    );
    let outputs = None;
    check(
        ended(vec![pb::Finished {
            outputs,
            ..member()
        }]),
        expect!["Finished.outputs is missing; a member whose module succeeded has them"],
    );
    let result = Some(pb::finished::Result::ModuleFault("no".to_owned()));
    check(
        ended(vec![pb::Finished { result, ..member() }]),
        expect!["Finished.outputs is there; a member whose module failed has none"],
    );
}

#[test]
fn a_client_or_a_class_twice() {
    let part = pb::ClientPart {
        client: 7,
        part: 0.5,
    };
    let portion = pb::Portion {
        rate: 1.0,
        parts: vec![part, part],
    };
    check(
        gateway(pb::to_gateway::Message::Clients(portion)),
        expect!["Portion.parts has client 7 twice; each client has one part"],
    );
    let rest = pb::RestOfClass {
        class: 2,
        weight: 1.0,
        rate: 1.0,
    };
    let report = pb::ClientReport {
        rest: vec![rest, rest],
        ..Default::default()
    };
    check(
        controller(pb::to_controller::Message::Clients(report)),
        expect!["ClientReport.rest has class 2 twice; each class may have one entry"],
    );
}
