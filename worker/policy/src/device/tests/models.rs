//! Weights that give way to each other.

use spillgate_pipeline::id::{MemberId, WeightsId};
use spillgate_pipeline::request::DropReason;

use super::*;
use crate::weights::store::{FAILED_FOR, WeightStoreConfig, WeightsSize, WorkerWeights};

const LOAD: u64 = 20;

/// A worker whose family has three members of a page each, on a device with two pages. Member 0 is there. A batch takes 10.
fn device(policy: DropPolicy, schedule: Option<SchedulePolicy>) -> Device<()> {
    let mut pipeline = noop_pipeline(Duration::from_nanos(1000), &[&[0]], &[]);
    pipeline.policy.drop = policy;
    let module = &mut pipeline.modules[1];
    (module.batch.max, module.schedule, module.window) = (2, schedule, WINDOW_DEFAULT);
    let execution = vec![Duration::from_nanos(10); 2];
    let schedule = SchedulerConfig::of(module, &execution, 2).unwrap();
    let config = BrokerConfig {
        is_family: true,
        ..BrokerConfig::of(&pipeline, ModuleId(1), 2, execution.into(), schedule)
    };
    let size = WeightsSize {
        pages: 1,
        load: Duration::from_nanos(LOAD),
    };
    let of = WorkerWeights {
        weights: (0..3).map(WeightsId).collect(),
        by_variant: false,
    };
    let memory = WeightStore::new(WeightStoreConfig {
        pages: 2,
        weights: [size; 3].into(),
        workers: vec![(WorkerId(1), of)],
        resident: vec![WeightsId(0)],
        scaled: Vec::new(),
    });
    let device = Device::new(vec![(WorkerId(1), config)], Duration::from_nanos(2));
    let mut device = device.with_weights(memory);
    let mut out = Vec::new();
    device.on_event(
        at(0),
        DeviceEvent::Greeted(GatewayId(0), &[WorkerId(1)]),
        &mut out,
    );
    assert_eq!(does(&out), [Does::Holds(0, true)]);
    device
}

/// What a driver hears that concerns requests and weights.
#[derive(Debug, PartialEq)]
enum Does {
    Run(Vec<u64>),
    Read(u32, Vec<u32>),
    Holds(u16, bool),
    Drop(u64, DropReason),
}

fn does(out: &[DeviceCommand<()>]) -> Vec<Does> {
    let ids = |of: &[WeightsId]| of.iter().map(|w| w.0).collect();
    let of = |command: &DeviceCommand<()>| match command {
        DeviceCommand::Execute(b) => {
            vec![Does::Run(
                b.members.iter().map(|m| m.request.id.0).collect(),
            )]
        }
        DeviceCommand::Read(weights, gone) => vec![Does::Read(weights.0, ids(gone))],
        DeviceCommand::Tell { message, .. } => match message {
            ToGateway::Holds(_, models) => {
                let holds = models.iter().map(|(member, is)| Does::Holds(member.0, *is));
                holds.collect()
            }
            ToGateway::Dropped { request, drop, .. } => {
                vec![Does::Drop(request.0, drop.reason)]
            }
            _ => vec![],
        },
        _ => vec![],
    };
    out.iter().flat_map(of).collect()
}

fn on(device: &mut Device<()>, now: u64, event: DeviceEvent<'_, ()>) -> Vec<Does> {
    let mut out = Vec::new();
    device.on_event(at(now), event, &mut out);
    does(&out)
}

fn ask(device: &mut Device<()>, now: u64, id: u64, member: u16, deadline: u64) -> Vec<Does> {
    let mut arrivals = vec![arrival(now, id, member, deadline)];
    on(device, now, DeviceEvent::Arrivals(&mut arrivals))
}

fn arrival(now: u64, id: u64, member: u16, deadline: u64) -> Arrival<()> {
    Arrival {
        worker: WorkerId(1),
        request: Request {
            member: MemberId(member),
            ..Request::new(RequestId(id), at(now), at(deadline))
        },
        payload: (),
    }
}

fn end_of(device: &mut Device<()>, now: u64, batch: u64) -> Vec<Does> {
    does(&end(device, now, batch))
}

fn read_ended(device: &mut Device<()>, now: u64, is_there: bool) -> Vec<Does> {
    on(device, now, DeviceEvent::ReadEnded(is_there))
}

#[test]
fn weights_are_read_beside_batches_and_their_requests_run_then() {
    for schedule in [None, Some(SchedulePolicy::GOODPUT)] {
        let mut device = device(DropPolicy::SPILLGATE, schedule);
        let reads = [Does::Holds(1, true), Does::Read(1, vec![])];
        assert_eq!(ask(&mut device, 0, 1, 1, 1000), reads);
        assert_eq!(ask(&mut device, 1, 2, 0, 1000), [Does::Run(vec![2])]);
        assert_eq!(ask(&mut device, 2, 3, 1, 1000), []);
        assert_eq!(end_of(&mut device, 11, 0), []);
        let run = read_ended(&mut device, 20, true);
        let whole = [1, 3];
        let is_run = |d: &Does| matches!(d, Does::Run(ids) if whole.starts_with(ids));
        assert!(run.iter().any(is_run), "{schedule:?}: {run:?}");
        assert!(device.memory().unwrap().account().cold > 0);
    }
}

#[test]
fn requests_of_weights_that_gave_way_wait_for_them_again() {
    let mut device = device(DropPolicy::SPILLGATE, None);
    ask(&mut device, 0, 1, 1, 1000);
    read_ended(&mut device, 20, true);
    end_of(&mut device, 30, 0);
    // Member 1 runs, so that 0 gives way, and what comes for it waits.
    assert_eq!(ask(&mut device, 40, 2, 1, 1000), [Does::Run(vec![2])]);
    ask(&mut device, 41, 3, 0, 1000);
    let read = ask(&mut device, 42, 4, 2, 1000);
    assert_eq!(read, [], "one waits for each of them");
    let read = ask(&mut device, 43, 5, 2, 1000);
    let holds = [Does::Holds(2, true), Does::Holds(0, false)];
    assert_eq!(read[..2], holds);
    assert_eq!(read[2..], [Does::Read(2, vec![0])]);
    assert_eq!(end_of(&mut device, 50, 1), [], "3 waits for its weights");
    let run = read_ended(&mut device, 63, true);
    assert_eq!(run[0], Does::Run(vec![4, 5]));
    assert_eq!(run[run.len() - 1], Does::Read(0, vec![1]));
    end_of(&mut device, 73, 2);
    assert_eq!(read_ended(&mut device, 83, true), [Does::Run(vec![3])]);
}

#[test]
fn a_request_that_its_load_makes_late_is_dropped_at_once() {
    for (policy, is_dropped) in [
        (DropPolicy::SPILLGATE, true),
        (DropPolicy::PARD, true),
        (DropPolicy::NONE, false),
    ] {
        let mut device = device(policy, None);
        // A load of 20 and a batch of 10.
        let out = ask(&mut device, 0, 1, 1, 29);
        let dropped = Does::Drop(1, DropReason::Predicted);
        assert_eq!(out.contains(&dropped), is_dropped, "{policy:?}: {out:?}");
        let out = ask(&mut device, 100, 2, 2, 130);
        assert!(
            !out.iter().any(|d| matches!(d, Does::Drop(..))),
            "{policy:?}: {out:?}"
        );
    }
}

#[test]
fn a_request_is_dropped_once_the_link_is_taken_by_others_for_too_long() {
    let mut device = device(DropPolicy::SPILLGATE, None);
    ask(&mut device, 0, 1, 1, 1000);
    // It could run at 40, after both loads, and so be in time.
    assert_eq!(ask(&mut device, 0, 2, 2, 50), []);
    assert_eq!(device.next_wakeup(), Some(at(1)), "later it would be late");
    let dropped = Does::Drop(2, DropReason::Predicted);
    assert_eq!(
        on(&mut device, 25, DeviceEvent::Wakeup),
        [dropped],
        "the first takes longer"
    );
}

#[test]
fn one_of_several_requests_that_their_load_makes_late_is_tried() {
    let mut device = device(DropPolicy::SPILLGATE, None);
    let mut n_dropped = 0;
    for id in 0..16 {
        let out = ask(&mut device, 0, id, 1, 25);
        n_dropped += out.iter().filter(|d| matches!(d, Does::Drop(..))).count();
        if out.iter().any(|d| matches!(d, Does::Read(..))) {
            break;
        }
    }
    assert_eq!(n_dropped, 7);
}

#[test]
fn requests_of_weights_that_cannot_be_read_run_to_hear_why() {
    let mut device = device(DropPolicy::SPILLGATE, None);
    ask(&mut device, 0, 1, 1, 1000);
    let heard = read_ended(&mut device, 5, false);
    assert_eq!(heard, [Does::Holds(1, false), Does::Run(vec![1])]);
    end_of(&mut device, 6, 0);
    assert_eq!(ask(&mut device, 7, 2, 1, 1000), [Does::Run(vec![2])]);
    end_of(&mut device, 8, 1);
    let later = 7 + FAILED_FOR.as_nanos() as u64;
    let again = ask(&mut device, later, 3, 1, later + 1000);
    assert!(again.contains(&Does::Read(1, vec![])), "{again:?}");
}

#[test]
fn requests_without_an_slo_read_weights_into_memory_that_nobody_uses_and_hold_up_nobody() {
    let mut device = device(DropPolicy::SPILLGATE, None);
    // Others ask for 0, more than once in ten seconds.
    ask(&mut device, 0, 10, 0, 1000);
    end_of(&mut device, 0, 0);
    ask(&mut device, 0, 11, 0, 1000);
    end_of(&mut device, 0, 1);
    let mut in_background = |now, id, member| {
        let mut all = vec![arrival(now, id, member, 1_000_000)];
        all[0].request.background = true;
        on(&mut device, now, DeviceEvent::Arrivals(&mut all))
    };
    assert_eq!(
        in_background(0, 1, 1),
        [Does::Holds(1, true), Does::Read(1, vec![])]
    );
    // There is no room for it, and one is used, the other waited for.
    assert_eq!(in_background(1, 2, 2), []);
    assert_eq!(
        in_background(2, 3, 0),
        [Does::Run(vec![3])],
        "it has what it needs"
    );
    end_of(&mut device, 12, 2);
    assert_eq!(read_ended(&mut device, 20, true), [Does::Run(vec![1])]);
    assert_eq!(device.waiting(WorkerId(1)), 1);
    assert_eq!(device.waiting_in_background(WorkerId(1)), 1);
    // Once nothing waits for 1, it gives way.
    let gives_way = [
        Does::Holds(2, true),
        Does::Holds(1, false),
        Does::Read(2, vec![1]),
    ];
    assert_eq!(end_of(&mut device, 30, 3), gives_way);
}

#[test]
fn nothing_is_lost_when_a_device_closes_or_a_request_ends_elsewhere() {
    let mut device = device(DropPolicy::SPILLGATE, None);
    for id in 1..=3 {
        ask(&mut device, 0, id, 1, 1000);
    }
    assert_eq!(device.waiting(WorkerId(1)), 3);
    on(
        &mut device,
        1,
        DeviceEvent::Cancel(WorkerId(1), RequestId(2)),
    );
    let reason = DropReason::Superseded;
    let withdraw = DeviceEvent::Withdraw(WorkerId(1), RequestId(3), reason);
    assert_eq!(on(&mut device, 2, withdraw), [Does::Drop(3, reason)]);
    let close = DeviceEvent::Close(DropReason::Draining);
    assert_eq!(
        on(&mut device, 3, close),
        [Does::Drop(1, DropReason::Draining)]
    );
    assert_eq!(device.waiting(WorkerId(1)), 0);
}
