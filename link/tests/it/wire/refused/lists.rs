//! Lists and texts over their bounds.

use bytes::Bytes;
use expect_test::{Expect, expect};

use super::*;
use spillgate_link::wire::bounds::REQUESTS_MAX;

#[test]
fn a_greeting_over_its_bounds() {
    let check_with = |change: fn(&mut pb::Greeting), sentence: Expect| {
        let mut greeting = pb::Greeting {
            version: "0.1.0".to_owned(),
            pipeline: Bytes::from(vec![0; 32]),
            incarnation: 1,
            member: Some(pb::Member::default()),
            ..pb::Greeting::default()
        };
        change(&mut greeting);
        let greeting = Box::new(greeting);
        check(content(pb::packet::Content::Greeting(greeting)), sentence);
    };
    check_with(
        |g| g.member.as_mut().unwrap().controllers = vec![1; 1025],
        expect!["Member.controllers has 1025 entries; it may have at most 1024"],
    );
    check_with(
        |g| {
            let device = pb::MemberDevice {
                name: String::new(),
                workers: vec![pb::MemberWorker::default(); 600],
            };
            g.member.as_mut().unwrap().devices = vec![device; 2];
        },
        expect!["MemberDevice.workers has 1200 entries; it may have at most 1024"],
    );
    check_with(
        |g| g.member.as_mut().unwrap().name = "x".repeat(254),
        expect!["Member.name has 254 bytes; it may have at most 253"],
    );
    check_with(
        |g| g.member = None,
        expect!["Greeting.member is missing; each Greeting has it"],
    );
    check_with(
        |g| g.version = "1".repeat(65),
        expect!["Greeting.version has 65 bytes; it may have at most 64"],
    );
    check_with(
        |g| g.pipeline = Bytes::from(vec![0; 31]),
        expect!["Greeting.pipeline has 31 bytes; a SHA-256 has 32"],
    );
}

#[test]
fn more_requests_than_can_be_in_flight() {
    let too_many = REQUESTS_MAX + 1;
    let requests = vec![0; too_many];
    check(
        content(pb::packet::Content::Ended(pb::Ended { requests })),
        expect!["Ended.requests has 1048577 entries; it may have at most 1048576"],
    );
    let returned = pb::Returned {
        requests: vec![pb::ReturnedRequest::default(); too_many],
        ..Default::default()
    };
    check(
        gateway(pb::to_gateway::Message::Returned(returned)),
        expect!["Returned.requests has 1048577 entries; it may have at most 1048576"],
    );
    let arrivals = vec![pb::Arrival::default(); too_many];
    check(
        device(pb::to_device::Message::Requests(pb::Requests { arrivals })),
        expect!["Requests.arrivals has 1048577 entries; it may have at most 1048576"],
    );
    let answer = pb::Answer {
        requests: vec![pb::Lent::default(); too_many],
        ..Default::default()
    };
    check(
        device(pb::to_device::Message::Answer(Box::new(answer))),
        expect!["Answer.requests has 1048577 entries; it may have at most 1048576"],
    );
}

#[test]
fn more_members_than_a_batch_has() {
    check(
        ended(vec![member(); 1025]),
        expect!["BatchEnded.members has 1025 entries; it may have at most 1024"],
    );
    let report = pb::BatchReport {
        members: vec![pb::BatchMember::default(); 1025],
        ..Default::default()
    };
    check(
        controller(pb::to_controller::Message::Report(report)),
        expect!["BatchReport.members has 1025 entries; it may have at most 1024"],
    );
}

#[test]
fn more_samples_than_a_state_holds() {
    let batch_waits = vec![0.0; 1025];
    check(
        peer(pb::ModuleState {
            batch_waits,
            ..state()
        }),
        expect!["ModuleState.batch_waits has 1025 entries; it may have at most 1024"],
    );
}

#[test]
fn other_than_one_entry_a_step_of_the_slo() {
    let asked = vec![0.0; 19];
    check(
        peer(pb::ModuleState { asked, ..state() }),
        expect!["ModuleState.asked has 19 entries; it must have 20"],
    );
    let demand = pb::Demand {
        asked: vec![0; 21],
        ..Default::default()
    };
    check(
        controller(pb::to_controller::Message::Demand(Box::new(demand))),
        expect!["Demand.asked has 21 entries; it must have 20"],
    );
}

#[test]
fn more_clients_than_a_report_names() {
    let report = pb::ClientReport {
        named: vec![pb::Offered::default(); 257],
        ..Default::default()
    };
    check(
        controller(pb::to_controller::Message::Clients(report)),
        expect!["ClientReport.named has 257 entries; it may have at most 256"],
    );
    let portion = pb::Portion {
        rate: 1.0,
        parts: vec![pb::ClientPart::default(); 257],
    };
    check(
        gateway(pb::to_gateway::Message::Clients(portion)),
        expect!["Portion.parts has 257 entries; it may have at most 256"],
    );
}
