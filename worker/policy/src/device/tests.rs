mod background;
mod loads;
mod models;
mod pull;

use std::time::Duration;

use spillgate_pipeline::distribution::{BatchForm, BatchTime, WINDOW_DEFAULT};
use spillgate_pipeline::id::{ModuleId, RequestId};
use spillgate_pipeline::policy::DropPolicy;
use spillgate_pipeline::predict::{ActionKind, ErrorSummary};
use spillgate_pipeline::request::Request;
use spillgate_pipeline::schedule::{Application, SchedulePolicy};
use spillgate_pipeline::testing::noop_pipeline;
use spillgate_recipes::schedulers;

use super::*;
use crate::profiler;
use crate::schedule::{SchedulerConfig, Scoring};

fn device(batch_max: u32) -> Device<()> {
    device_with(DropPolicy::DEADLINE, batch_max)
}

/// Two workers whose batches take 10 ns; what is bound late is bound 2 ns ahead.
fn device_with(policy: DropPolicy, batch_max: u32) -> Device<()> {
    let worker = |module: u16| {
        (
            WorkerId(u32::from(module)),
            BrokerConfig {
                module: ModuleId(module),
                capacity: 16,
                batch: batch_max,
                execution: vec![Duration::from_nanos(10); batch_max as usize].into(),
                recipe: policy.recipe(),
                pulls: false,
                is_family: false,
                is_adapted: false,
                background: 64,
                background_time: Duration::from_millis(10),
                schedule: None,
            },
        )
    };
    greeted(Device::new(
        vec![worker(1), worker(2)],
        Duration::from_nanos(2),
    ))
}

fn greeted<T>(mut device: Device<T>) -> Device<T> {
    device.on_event(
        at(0),
        DeviceEvent::Greeted(GatewayId(0), &[WorkerId(1), WorkerId(2)]),
        &mut Vec::new(),
    );
    device
}

fn at(ns: u64) -> Timestamp {
    Timestamp::from_ns(ns)
}

fn arrive(device: &mut Device<()>, now: u64, list: &[(u32, u64, u64)]) -> Vec<DeviceCommand<()>> {
    let mut arrivals = list
        .iter()
        .map(|&(worker, id, deadline)| Arrival {
            worker: WorkerId(worker),
            request: Request::new(RequestId(id), at(0), at(deadline)),
            payload: (),
        })
        .collect();
    let mut out = Vec::new();
    device.on_event(at(now), DeviceEvent::Arrivals(&mut arrivals), &mut out);
    out
}

fn end(device: &mut Device<()>, now: u64, batch: u64) -> Vec<DeviceCommand<()>> {
    end_after(device, now, batch, 10)
}

fn end_after(device: &mut Device<()>, now: u64, batch: u64, took: u64) -> Vec<DeviceCommand<()>> {
    let mut out = Vec::new();
    let event = DeviceEvent::BatchEnded {
        batch: BatchId(batch),
        took: Duration::from_nanos(took),
        sampled: None,
    };
    device.on_event(at(now), event, &mut out);
    out
}

fn executed(out: &[DeviceCommand<()>]) -> Vec<(u32, Vec<u64>)> {
    out.iter()
        .filter_map(|c| match c {
            DeviceCommand::Execute(b) => Some((
                b.worker.0,
                b.members.iter().map(|m| m.request.id.0).collect(),
            )),
            _ => None,
        })
        .collect()
}

#[test]
fn an_idle_device_starts_at_once_with_all_that_came_together() {
    let mut device = device(4);
    let out = arrive(&mut device, 0, &[(1, 1, 100), (1, 2, 100)]);
    assert_eq!(executed(&out), [(1, vec![1, 2])]);
    assert_eq!(device.free_at(at(3)), at(10));
}

#[test]
fn a_batch_records_what_was_expected_and_what_came() {
    let mut device = device_with(DropPolicy::SPILLGATE, 1);
    assert_eq!(
        device.prediction_errors().durations(ActionKind::Execute),
        None
    );
    // The second one is bound at 8, when the first one is expected to end at 10.
    arrive(&mut device, 0, &[(1, 1, 100), (1, 2, 100)]);
    device.on_event(at(8), DeviceEvent::Wakeup, &mut Vec::new());
    end_after(&mut device, 13, 0, 12);
    end_after(&mut device, 25, 1, 11);
    let errors = device.prediction_errors();
    let numbers = |summary: Option<ErrorSummary>| {
        let summary = summary.unwrap();
        (summary.count, summary.p1_ns, summary.max_ns)
    };
    let execute = ActionKind::Execute;
    assert_eq!(numbers(errors.durations(execute)), (2, 1, 2));
    assert_eq!(numbers(errors.completions(execute)), (2, 3, 5));
    assert_eq!(errors.durations(ActionKind::Rerun), None);
}

/// Gateways hear of a batch when it is bound, in every driver: one that is bound behind the running one, too.
#[test]
fn a_batch_is_reported_when_it_is_bound() {
    let mut device = device_with(DropPolicy::SPILLGATE, 2);
    let started = |out: &[DeviceCommand<()>]| -> Vec<Started> {
        let started = out.iter().filter_map(|c| match c {
            DeviceCommand::Tell {
                gateway: GatewayId(0),
                message: ToGateway::Started(started),
                ..
            } => Some(*started),
            _ => None,
        });
        started.collect()
    };
    let bound = |batch, expected_end| Started {
        worker: WorkerId(1),
        batch: BatchId(batch),
        size: 1,
        expected_end: at(expected_end),
    };
    let out = arrive(&mut device, 0, &[(1, 1, 100)]);
    assert_eq!(started(&out), [bound(0, 10)]);
    arrive(&mut device, 1, &[(1, 2, 100)]);
    let mut out = Vec::new();
    device.on_event(at(8), DeviceEvent::Wakeup, &mut out);
    assert_eq!(
        started(&out),
        [bound(1, 20)],
        "2 ns before the device is free"
    );
}

#[test]
fn the_next_batch_is_collected_while_the_device_runs() {
    let mut device = device(2);
    arrive(&mut device, 0, &[(1, 1, 100)]);
    assert!(executed(&arrive(&mut device, 1, &[(1, 2, 100)])).is_empty());
    assert!(executed(&arrive(&mut device, 2, &[(1, 3, 100), (1, 4, 100)])).is_empty());
    assert_eq!(executed(&end(&mut device, 10, 0)), [(1, vec![2, 3])]);
    assert_eq!(executed(&end(&mut device, 20, 1)), [(1, vec![4])]);
    assert!(executed(&end(&mut device, 30, 2)).is_empty());
    assert!(device.running.is_none());
}

#[test]
fn modules_share_the_device_by_deadline() {
    let mut device = device(2);
    arrive(&mut device, 0, &[(1, 1, 100)]);
    arrive(&mut device, 1, &[(1, 2, 90), (2, 3, 80)]);
    assert_eq!(executed(&end(&mut device, 10, 0)), [(2, vec![3])]);
    assert_eq!(executed(&end(&mut device, 20, 1)), [(1, vec![2])]);
}

#[test]
fn a_deadline_passes_by_timer_while_the_device_runs() {
    let mut device = device(1);
    arrive(&mut device, 0, &[(1, 1, 100), (1, 2, 5), (2, 3, 7)]);
    // Request 2 has the earliest deadline and runs first; 3 and 1 wait.
    assert_eq!(device.next_wakeup(), Some(at(7)));
    let mut out = Vec::new();
    device.on_event(at(7), DeviceEvent::Wakeup, &mut out);
    match &out[..] {
        [
            DeviceCommand::Tell {
                gateway: GatewayId(0),
                message:
                    ToGateway::Dropped {
                        worker,
                        request,
                        drop,
                    },
                ..
            },
        ] => {
            assert_eq!(*worker, WorkerId(2));
            assert_eq!(*request, RequestId(3));
            assert_eq!(drop.reason, DropReason::Expired);
        }
        other => panic!("expected one drop, got {other:?}"),
    }
    assert_eq!(executed(&end(&mut device, 12, 0)), [(1, vec![1])]);
}

#[test]
fn a_cancelled_request_does_not_run() {
    let mut device = device(2);
    arrive(&mut device, 0, &[(1, 1, 100)]);
    arrive(&mut device, 1, &[(1, 2, 90), (1, 3, 95), (1, 4, 99)]);
    let mut out = Vec::new();
    device.on_event(
        at(2),
        DeviceEvent::Cancel(WorkerId(2), RequestId(3)),
        &mut out,
    );
    device.on_event(
        at(2),
        DeviceEvent::Cancel(WorkerId(1), RequestId(2)),
        &mut out,
    );
    assert_eq!(executed(&end(&mut device, 10, 0)), [(1, vec![3, 4])]);
}

#[test]
fn a_request_that_comes_twice_waits_once() {
    for policy in [DropPolicy::PARD, DropPolicy::SPILLGATE] {
        let mut device = device_with(policy, 3);
        arrive(&mut device, 0, &[(1, 1, 100)]);
        arrive(&mut device, 1, &[(1, 2, 90), (1, 2, 90), (1, 3, 95)]);
        arrive(&mut device, 2, &[(1, 3, 95), (9, 4, 95)]);
        let out = end(&mut device, 10, 0);
        let mut members: Vec<u64> = executed(&out)
            .into_iter()
            .flat_map(|(_, ids)| ids)
            .collect();
        members.sort_unstable();
        assert_eq!(members, [2, 3], "{policy:?}");
    }
}

#[test]
fn a_request_that_comes_twice_to_a_full_queue_waits_on() {
    let mut device = device_with(DropPolicy::SPILLGATE, 1);
    // One runs; 16 wait, which is all that the queue holds.
    let waiting: Vec<(u32, u64, u64)> = (0..17).map(|id| (1, id, 1000)).collect();
    arrive(&mut device, 0, &waiting[..1]);
    arrive(&mut device, 1, &waiting[1..]);
    assert_eq!(device.waiting(WorkerId(1)), 16);
    assert!(arrive(&mut device, 2, &[(1, 16, 1000)]).is_empty());
    assert_eq!(
        arrive(&mut device, 2, &[(1, 17, 1000)]).len(),
        1,
        "it is full"
    );
}

#[test]
fn a_closed_device_answers_all_that_wait_and_all_that_come() {
    let mut device = device(1);
    arrive(&mut device, 0, &[(1, 1, 100)]);
    arrive(&mut device, 1, &[(1, 2, 90), (2, 3, 95)]);
    let mut out = Vec::new();
    device.on_event(at(2), DeviceEvent::Close(DropReason::Draining), &mut out);
    assert_eq!(out.len(), 2);
    assert_eq!(arrive(&mut device, 3, &[(1, 4, 100)]).len(), 1);
    assert!(end(&mut device, 10, 0).is_empty());
}

#[test]
fn a_device_that_leaves_serves_what_it_has_and_what_is_on_its_way() {
    let mut device = device(1);
    arrive(&mut device, 0, &[(1, 1, 100), (1, 2, 100)]);
    let mut out = Vec::new();
    device.on_event(at(1), DeviceEvent::Leave, &mut out);
    let left = |c: &DeviceCommand<()>| match c {
        DeviceCommand::Tell {
            message: ToGateway::Leaves(worker),
            ..
        } => worker.0,
        other => panic!("{other:?}"),
    };
    assert_eq!(out.iter().map(left).collect::<Vec<_>>(), [1, 2]);
    arrive(&mut device, 2, &[(2, 3, 100)]);
    assert_eq!(executed(&end(&mut device, 10, 0)), [(1, vec![2])]);
    assert_eq!(executed(&end(&mut device, 20, 1)), [(2, vec![3])]);
    assert!(!device.has_no_work());
    end(&mut device, 30, 2);
    assert!(device.has_no_work());
}

#[test]
fn only_what_waits_is_withdrawn() {
    let mut device = device(1);
    arrive(&mut device, 0, &[(1, 1, 100)]);
    arrive(&mut device, 1, &[(1, 2, 90), (1, 3, 95)]);
    for (id, drops) in [(1, 0), (2, 1), (3, 1), (3, 0)] {
        let mut out = Vec::new();
        let event = DeviceEvent::Withdraw(WorkerId(1), RequestId(id), DropReason::Superseded);
        device.on_event(at(2), event, &mut out);
        assert_eq!(out.len(), drops, "request {id}");
    }
    assert!(executed(&end(&mut device, 10, 0)).is_empty());
}

#[test]
fn bound_late_a_batch_is_formed_shortly_before_the_device_is_free() {
    let mut device = device_with(DropPolicy::SPILLGATE, 2);
    assert_eq!(
        executed(&arrive(&mut device, 0, &[(1, 1, 100)])),
        [(1, vec![1])]
    );
    assert!(executed(&arrive(&mut device, 1, &[(1, 2, 90), (1, 3, 80)])).is_empty());
    assert_eq!(device.next_wakeup(), Some(at(8)));
    // Request 4 is more urgent than both and came in time.
    assert!(executed(&arrive(&mut device, 7, &[(1, 4, 70)])).is_empty());
    let mut out = Vec::new();
    device.on_event(at(8), DeviceEvent::Wakeup, &mut out);
    assert_eq!(executed(&out), [(1, vec![4, 3])]);
    assert_eq!(device.free_at(at(8)), at(20));
    assert!(
        end(&mut device, 10, 0).is_empty(),
        "the bound batch runs on"
    );
    assert_eq!(device.next_wakeup(), Some(at(18)));
    // It ends earlier than expected: what waits is bound at once.
    assert_eq!(executed(&end(&mut device, 15, 1)), [(1, vec![2])]);
}

/// Batches that end earlier than expected would leave the device idle for the time to bind the next one. Where a whole
/// batch waits, it is bound that much earlier. Otherwise later requests may still join it.
#[test]
fn bound_late_a_full_batch_is_bound_as_early_as_batches_stray() {
    let mut device = device_with(DropPolicy::SPILLGATE, 2);
    let mut now = 0;
    for batch in 0..50 {
        arrive(&mut device, now, &[(1, 10 + batch, now + 100)]);
        let took = [8, 12][batch as usize % 2];
        now += took;
        end_after(&mut device, now, batch, took);
    }
    arrive(&mut device, now, &[(1, 1, now + 100)]);
    let expected_end = device.free_at(at(now));
    arrive(&mut device, now, &[(1, 2, now + 90)]);
    let lead = Duration::from_nanos(2);
    assert_eq!(device.next_wakeup(), Some(expected_end - lead));
    arrive(&mut device, now, &[(1, 3, now + 90)]);
    let Some(binds_at) = device.next_wakeup() else {
        panic!("two wait")
    };
    // A fifth off its time each: two deviations are 4 ns.
    let early = (expected_end - lead).since(binds_at).as_nanos();
    assert!((3..=5).contains(&early), "{early} ns");
}

#[test]
fn bound_late_the_more_urgent_module_goes_first() {
    let mut device = device_with(DropPolicy::SPILLGATE, 2);
    arrive(&mut device, 0, &[(1, 1, 100)]);
    arrive(&mut device, 1, &[(1, 2, 90), (2, 3, 80)]);
    let mut out = Vec::new();
    device.on_event(at(8), DeviceEvent::Wakeup, &mut out);
    assert_eq!(executed(&out), [(2, vec![3])]);
}

/// A worker whose batches of up to four a scheduler forms.
fn scheduled() -> Device<u64> {
    let ms = Duration::from_millis;
    let config = BrokerConfig {
        module: ModuleId(1),
        capacity: 16,
        batch: 4,
        execution: vec![ms(10); 4].into(),
        recipe: DropPolicy::NONE.recipe(),
        pulls: false,
        is_family: false,
        is_adapted: false,
        background: 64,
        background_time: Duration::from_millis(10),
        schedule: Some(SchedulerConfig {
            policy: schedulers::NEXUS,
            sizes: vec![1, 2, 4],
            planned: 4,
            time: BatchTime::new(BatchForm::Padded, 1.0, 0.5, 0.0).unwrap(),
            prior_ms: 10.0,
            scoring: Scoring::default(),
            window: WINDOW_DEFAULT,
            capacity: 16,
        }),
    };
    greeted(Device::new(vec![(WorkerId(1), config)], Duration::ZERO))
}

#[test]
fn a_member_of_a_batch_runs_again_on_the_idle_device_and_gives_way_to_nobody_twice() {
    let ms = |n: u64| at(n * 1_000_000);
    let mut device = scheduled();
    let mut out = Vec::new();
    let batch = |ids: std::ops::Range<u64>| -> Vec<Arrival<u64>> {
        ids.map(|id| Arrival {
            worker: WorkerId(1),
            request: Request {
                application: Application(3),
                ..Request::new(RequestId(id), at(0), ms(100_000))
            },
            payload: id,
        })
        .collect()
    };
    device.on_event(ms(0), DeviceEvent::Arrivals(&mut batch(0..4)), &mut out);
    let Some(DeviceCommand::Execute(first)) = out.pop() else {
        panic!("a batch of four starts");
    };
    // Its report is not what this is about.
    out.clear();
    let sampled = first.sampled.expect("one of them is asked for");
    let payload = first.members[sampled].payload;
    let ended = DeviceEvent::BatchEnded {
        batch: first.id,
        took: Duration::from_millis(12),
        sampled: Some(payload),
    };
    device.on_event(ms(12), ended, &mut out);
    assert!(out.is_empty(), "the device is to be quiet first: {out:?}");
    let due = device.next_wakeup().unwrap();
    assert_eq!(due, ms(12) + profiler::QUIET);
    device.on_event(due, DeviceEvent::Wakeup, &mut out);
    let Some(DeviceCommand::Rerun(rerun)) = out.pop() else {
        panic!("it runs again");
    };
    assert_eq!(
        (rerun.payload, rerun.request),
        (payload, RequestId(payload))
    );
    assert!(device.running.is_some());
    // Whoever comes meanwhile waits for its end, and starts then.
    device.on_event(ms(18), DeviceEvent::Arrivals(&mut batch(4..8)), &mut out);
    assert!(out.is_empty());
    let reran = DeviceEvent::Reran {
        batch: rerun.id,
        took: Some(Duration::from_millis(6)),
    };
    device.on_event(ms(23), reran, &mut out);
    let Some(DeviceCommand::Execute(second)) = out.pop() else {
        panic!("what waited starts");
    };
    out.clear();
    assert_eq!(second.members.len(), 4);
    let ended = DeviceEvent::BatchEnded {
        batch: second.id,
        took: Duration::from_millis(12),
        sampled: None,
    };
    device.on_event(ms(40), ended, &mut out);
    // The member of the second batch failed, and the first has had its turn.
    assert_eq!(device.next_wakeup(), None);
    let errors = device.prediction_errors();
    let [reruns, batches] = [ActionKind::Rerun, ActionKind::Execute].map(|k| errors.durations(k));
    assert_eq!((reruns.unwrap().count, batches.unwrap().count), (1, 2));
    assert!(out.is_empty());
}

#[test]
fn who_is_cancelled_before_it_began_is_reported() {
    let mut device = device(1);
    arrive(&mut device, 0, &[(1, 1, 100), (1, 2, 100)]);
    let mut cancel = |id| {
        let mut out = Vec::new();
        device.on_event(
            at(1),
            DeviceEvent::Cancel(WorkerId(1), RequestId(id)),
            &mut out,
        );
        let forgotten = out.iter().filter_map(|c| match c {
            DeviceCommand::Tell {
                message: ToGateway::Forgotten { worker, request },
                ..
            } => Some((worker.0, request.0)),
            _ => None,
        });
        forgotten.collect::<Vec<_>>()
    };
    assert_eq!(cancel(1), [], "it runs");
    assert_eq!(cancel(2), [(1, 2)]);
    assert_eq!(cancel(2), [], "it is gone");
}
