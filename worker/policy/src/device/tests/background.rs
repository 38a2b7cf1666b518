//! Requests without an SLO: they run in idle time, whatever the policy.

use super::*;
use spillgate_recipes::drops;

/// A worker whose batches of `n` take `n` ms, and where a batch of requests without an SLO may take 2 ms.
fn device(policy: DropPolicy, schedule: Option<SchedulePolicy>) -> Device<()> {
    let execution: Vec<Duration> = (1..=4).map(Duration::from_millis).collect();
    let mut pipeline = noop_pipeline(Duration::from_secs(1), &[&[0]], &[]);
    pipeline.modules[1].batch.max = 4;
    pipeline.modules[1].schedule = schedule;
    pipeline.modules[1].window = WINDOW_DEFAULT;
    let scheduler = SchedulerConfig::of(&pipeline.modules[1], &execution, 4);
    let config = BrokerConfig {
        module: ModuleId(1),
        capacity: 3,
        batch: 4,
        execution: execution.into(),
        recipe: policy.recipe(),
        pulls: false,
        is_family: false,
        is_adapted: false,
        background: 5,
        background_time: Duration::from_millis(2),
        schedule: scheduler.expect("the profile fits"),
    };
    let lead = Duration::from_micros(100);
    greeted(Device::new(vec![(WorkerId(1), config)], lead))
}

fn ms(n: u64) -> u64 {
    n * 1_000_000
}

/// Requests without an SLO, which are given up at that time, come.
fn arrive_background(
    device: &mut Device<()>,
    now: u64,
    ids: &[u64],
    until: u64,
) -> Vec<DeviceCommand<()>> {
    let arrival = |&id: &u64| Arrival {
        worker: WorkerId(1),
        request: Request {
            background: true,
            ..Request::new(RequestId(id), at(0), at(until))
        },
        payload: (),
    };
    let mut out = Vec::new();
    let mut arrivals = ids.iter().map(arrival).collect();
    device.on_event(at(now), DeviceEvent::Arrivals(&mut arrivals), &mut out);
    out
}

fn dropped(out: &[DeviceCommand<()>]) -> Vec<(u64, DropReason)> {
    let drops = out.iter().filter_map(|c| match c {
        DeviceCommand::Tell {
            message: ToGateway::Dropped { request, drop, .. },
            ..
        } => Some((request.0, drop.reason)),
        _ => None,
    });
    drops.collect()
}

const LONG: u64 = 600_000_000_000;

#[test]
fn they_run_when_nothing_else_waits_in_batches_that_are_short() {
    for (policy, schedule) in [
        (DropPolicy::SPILLGATE, None),
        (drops::SPILLGATE_HBF, None),
        (DropPolicy::PARD, None),
        (drops::PARD_HBF, None),
        (DropPolicy::NEXUS, None),
        (DropPolicy::NONE, None),
        (DropPolicy::SPILLGATE, Some(SchedulePolicy::EDF)),
        (DropPolicy::SPILLGATE, Some(SchedulePolicy::GOODPUT)),
    ] {
        let mut device = device(policy, schedule);
        let first = arrive_background(&mut device, 0, &[1, 2, 3, 4, 5], LONG);
        assert_eq!(executed(&first), [(1, vec![1, 2])], "{policy:?}");
        let urgent = arrive(&mut device, ms(1), &[(1, 10, ms(50)), (1, 11, ms(60))]);
        assert_eq!(
            executed(&urgent),
            [],
            "{policy:?}: behind the running batch"
        );
        let mut next = executed(&end_after(&mut device, ms(2), 0, ms(2)));
        let (mut now, mut batch) = (ms(2), 0);
        let mut in_time = Vec::new();
        while in_time.len() < 2 {
            let (_, ids) = next.remove(0);
            assert!(ids.iter().all(|id| *id >= 10), "{policy:?}: {ids:?}");
            let took = ms(ids.len() as u64);
            in_time.extend(ids);
            (now, batch) = (now + took, batch + 1);
            next = executed(&end_after(&mut device, now, batch, took));
        }
        assert_eq!(next, [(1, vec![3, 4])], "{policy:?}");
    }
}

#[test]
fn nothing_of_them_is_bound_behind_a_running_batch() {
    let mut device = device(DropPolicy::SPILLGATE, None);
    arrive(&mut device, 0, &[(1, 1, ms(50))]);
    let out = arrive_background(&mut device, ms(1) - 50_000, &[2], LONG);
    assert_eq!(executed(&out), []);
    assert_eq!(device.next_wakeup(), Some(at(LONG)), "only when it ends");
    assert_eq!(
        executed(&end_after(&mut device, ms(1), 0, ms(1))),
        [(1, vec![2])]
    );
}

#[test]
fn they_have_places_of_their_own() {
    let mut device = device(DropPolicy::SPILLGATE, None);
    arrive(&mut device, 0, &[(1, 1, ms(50))]);
    let out = arrive_background(&mut device, 0, &[11, 12, 13, 14, 15, 16], LONG);
    assert_eq!(dropped(&out), [(16, DropReason::QueueFull)]);
    let out = arrive(
        &mut device,
        0,
        &[(1, 2, ms(50)), (1, 3, ms(50)), (1, 4, ms(50))],
    );
    assert_eq!(dropped(&out), [], "they take no place of the others");
    assert_eq!(device.waiting(WorkerId(1)), 8);
    let again = arrive_background(&mut device, 0, &[11], LONG);
    assert_eq!(dropped(&again), [], "it waits here already");
}

#[test]
fn they_are_given_up_when_their_time_is_over_and_can_be_cancelled() {
    let mut device = device(DropPolicy::NONE, None);
    arrive(&mut device, 0, &[(1, 1, ms(50))]);
    arrive_background(&mut device, 0, &[2], ms(1) / 2);
    arrive_background(&mut device, 0, &[3, 4, 5], LONG);
    assert_eq!(device.next_wakeup(), Some(at(ms(1) / 2)));
    let mut out = Vec::new();
    device.on_event(at(ms(1) / 2), DeviceEvent::Wakeup, &mut out);
    assert_eq!(dropped(&out), [(2, DropReason::Expired)]);
    let withdrawn = DropReason::Superseded;
    for event in [
        DeviceEvent::Cancel(WorkerId(1), RequestId(3)),
        DeviceEvent::Withdraw(WorkerId(1), RequestId(4), withdrawn),
    ] {
        device.on_event(at(ms(1) / 2), event, &mut out);
    }
    assert_eq!(dropped(&out)[1..], [(4, withdrawn)]);
    let draining = DropReason::Draining;
    out.clear();
    device.on_event(at(ms(1) / 2), DeviceEvent::Close(draining), &mut out);
    assert_eq!(dropped(&out), [(5, draining)]);
    assert_eq!(device.waiting(WorkerId(1)), 0);
}

/// A gateway would otherwise take the worker for emptier than it is.
#[test]
fn gateways_hear_until_when_the_device_is_busy_and_count_none_of_them() {
    let mut device = device(DropPolicy::SPILLGATE, None);
    let out = arrive_background(&mut device, 0, &[1, 2], LONG);
    let started = out.iter().find_map(|c| match c {
        DeviceCommand::Tell {
            message: ToGateway::Started(started),
            ..
        } => Some((started.size, started.expected_end)),
        _ => None,
    });
    assert_eq!(started, Some((0, at(ms(2)))));
}

#[test]
fn a_lost_gateway_takes_its_own_along() {
    let mut device = device(DropPolicy::SPILLGATE, None);
    arrive(&mut device, 0, &[(1, 1, ms(50))]);
    arrive_background(&mut device, 0, &[2, 3], LONG);
    device.on_event(at(1), DeviceEvent::Lost(GatewayId(0)), &mut Vec::new());
    assert_eq!(device.waiting(WorkerId(1)), 0);
}
