//! Numbers out of their ranges.

use expect_test::expect;

use super::*;
use pb::address::Role;

#[test]
fn an_id_beyond_its_integer_type() {
    let message = Some(pb::to_device::Message::Load(1));
    let load = Message::Device(pb::ToDevice { message });
    check(
        envelope(Role::Device(65_536), load),
        expect!["Envelope.to is 65536; it may be at most 65535"],
    );
    let module = 65_536;
    check(
        peer(pb::ModuleState { module, ..state() }),
        expect!["ModuleState.module is 65536; it may be at most 65535"],
    );
    check(
        planned(pb::Plan { module, ..plan() }),
        expect!["Plan.module is 65536; it may be at most 65535"],
    );
    let of_request = |request| {
        let arrivals = vec![pb::Arrival {
            request: Some(request),
            ..Default::default()
        }];
        device(pb::to_device::Message::Requests(pb::Requests { arrivals }))
    };
    let rank = 256;
    check(
        of_request(pb::Request { rank, ..request() }),
        expect!["Request.rank is 256; it may be at most 255"],
    );
    let member = 16_384;
    check(
        of_request(pb::Request {
            member,
            ..request()
        }),
        expect!["Request.member is 16384; it may be at most 16383"],
    );
}

#[test]
fn an_application_or_a_class_beyond_the_last() {
    check(
        device(pb::to_device::Message::Reassigned(64)),
        expect!["ToDevice.reassigned is 64; it may be at most 63"],
    );
    let offered = pb::Offered {
        class: 8,
        ..Default::default()
    };
    let report = pb::ClientReport {
        named: vec![offered],
        ..Default::default()
    };
    check(
        controller(pb::to_controller::Message::Clients(report)),
        expect!["Offered.class is 8; it may be at most 7"],
    );
}

#[test]
fn a_batch_over_the_largest() {
    let started = pb::Started {
        size: 1025,
        ..Default::default()
    };
    check(
        gateway(pb::to_gateway::Message::Started(started)),
        expect!["Started.size is 1025; it may be at most 1024"],
    );
    let ended = pb::BatchEnded {
        size: u32::MAX,
        ..Default::default()
    };
    check(
        gateway(pb::to_gateway::Message::Finished(ended)),
        expect!["BatchEnded.size is 4294967295; it may be at most 1024"],
    );
    let guidance = Some(pb::Guidance {
        batch: Some(1025),
        ..guidance()
    });
    check(
        planned(pb::Plan { guidance, ..plan() }),
        expect!["Guidance.batch is 1025; it may be at most 1024"],
    );
    let shape = Some(pb::BatchShape {
        size: 1025,
        execution_ns: 1,
    });
    check(
        planned(pb::Plan { shape, ..plan() }),
        expect!["BatchShape.size is 1025; it may be at most 1024"],
    );
}

#[test]
fn a_time_after_292_years_or_a_span_over_30() {
    let ask = pb::Ask {
        until: Some(1 << 63),
        ..Default::default()
    };
    check(
        gateway(pb::to_gateway::Message::Ask(ask)),
        expect!["Ask.until is 9223372036854775808 ns; it may be at most 9223372036854775807 ns"],
    );
    let worst_ns = u64::MAX;
    check(
        peer(pb::ModuleState {
            worst_ns,
            ..state()
        }),
        expect!["ModuleState.worst_ns is 18446744073709551615 ns; it may be at most 1000000000 s"],
    );
}

#[test]
fn a_rate_that_is_no_rate() {
    let offered = f64::NAN;
    check(
        peer(pb::ModuleState { offered, ..state() }),
        expect!["ModuleState.offered is NaN; it must be a finite number, 0 or more"],
    );
    let offered = f64::INFINITY;
    check(
        peer(pb::ModuleState { offered, ..state() }),
        expect!["ModuleState.offered is inf; it must be a finite number, 0 or more"],
    );
    let executed = -1.0;
    check(
        peer(pb::ModuleState {
            executed,
            ..state()
        }),
        expect!["ModuleState.executed is -1.0; it must be a finite number, 0 or more"],
    );
    let capacity = f64::NAN;
    check(
        peer(pb::ModuleState {
            capacity,
            ..state()
        }),
        expect!["ModuleState.capacity is NaN; it must be a number, 0 or more"],
    );
    let capacity = -0.5;
    check(
        peer(pb::ModuleState {
            capacity,
            ..state()
        }),
        expect!["ModuleState.capacity is -0.5; it must be a number, 0 or more"],
    );
}

#[test]
fn what_takes_no_time_has_an_infinite_capacity() {
    let capacity = f64::INFINITY;
    decode(peer(pb::ModuleState {
        capacity,
        ..state()
    }))
    .unwrap();
}

#[test]
fn a_ratio_that_is_no_ratio() {
    let pace = f64::INFINITY;
    check(
        peer(pb::ModuleState { pace, ..state() }),
        expect!["ModuleState.pace is inf; it must be from 0 to 1000000"],
    );
    let probability = -0.1;
    check(
        peer(pb::ModuleState {
            probability,
            ..state()
        }),
        expect!["ModuleState.probability is -0.1; it must be from 0 to 1000000"],
    );
    let admits = f64::NAN;
    check(
        planned(pb::Plan { admits, ..plan() }),
        expect!["Plan.admits is NaN; it must be from 0 to 1000000"],
    );
    let part = 1e7;
    check(
        planned(pb::Plan { part, ..plan() }),
        expect!["Plan.part is 10000000.0; it must be from 0 to 1000000"],
    );
    let backlog_check = Some(pb::BacklogCheck {
        margin: -1.0,
        ..Default::default()
    });
    check(
        planned(pb::Plan {
            backlog_check,
            ..plan()
        }),
        expect!["BacklogCheck.margin is -1.0; it must be from 0 to 1000000"],
    );
    let guidance = Some(pb::Guidance {
        share: f64::NEG_INFINITY,
        ..guidance()
    });
    check(
        planned(pb::Plan { guidance, ..plan() }),
        expect!["Guidance.share is -inf; it must be from 0 to 1000000"],
    );
}

#[test]
fn a_weight_of_nothing_and_a_client_that_asked_for_nothing() {
    let report = |weight, asked| {
        let offered = pb::Offered {
            weight,
            asked,
            ..Default::default()
        };
        let report = pb::ClientReport {
            named: vec![offered],
            ..Default::default()
        };
        controller(pb::to_controller::Message::Clients(report))
    };
    check(
        report(0.0, 1.0),
        expect!["Offered.weight is 0.0; it must be a finite number above 0"],
    );
    check(
        report(f64::INFINITY, 1.0),
        expect!["Offered.weight is inf; it must be a finite number above 0"],
    );
    check(
        report(1.0, 0.0),
        expect!["Offered.asked is 0.0; it must be a finite number above 0"],
    );
}

#[test]
fn a_sample_or_a_share_that_is_none() {
    let batch_waits = vec![0.1, f32::NAN];
    check(
        peer(pb::ModuleState {
            batch_waits,
            ..state()
        }),
        expect!["ModuleState.batch_waits has the entry NaN; each must be from 0 to 1000000000"],
    );
    let executions = vec![-0.1];
    check(
        peer(pb::ModuleState {
            executions,
            ..state()
        }),
        expect!["ModuleState.executions has the entry -0.1; each must be from 0 to 1000000000"],
    );
    let executions = vec![f32::MAX];
    check(
        peer(pb::ModuleState {
            executions,
            ..state()
        }),
        expect![
            "ModuleState.executions has the entry 3.4028235e38; each must be from 0 to 1000000000"
        ],
    );
    let asked = vec![f32::INFINITY; 20];
    check(
        peer(pb::ModuleState { asked, ..state() }),
        expect!["ModuleState.asked has the entry inf; each must be from 0 to 1000000"],
    );
}
