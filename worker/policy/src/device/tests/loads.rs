//! Workers that are loaded and unloaded between batches.

use super::*;

/// What a driver of these commands does on the device, in order.
#[derive(Debug, PartialEq)]
enum Does {
    Run(Vec<u64>),
    Load(u32),
    Unload(u32),
}

fn drive<'a>(device: &mut Device<()>, now: u64, event: DeviceEvent<'a, ()>) -> Vec<Does> {
    let mut out = Vec::new();
    device.on_event(at(now), event, &mut out);
    done(out)
}

fn done(out: Vec<DeviceCommand<()>>) -> Vec<Does> {
    let does = |command| match command {
        DeviceCommand::Execute(b) => Some(Does::Run(
            b.members.iter().map(|m| m.request.id.0).collect(),
        )),
        DeviceCommand::Load(worker) => Some(Does::Load(worker.0)),
        DeviceCommand::Unload(worker) => Some(Does::Unload(worker.0)),
        DeviceCommand::Read(..) | DeviceCommand::Rerun(_) | DeviceCommand::Tell { .. } => None,
    };
    out.into_iter().filter_map(does).collect()
}

fn load(worker: u32) -> DeviceEvent<'static, ()> {
    DeviceEvent::Load(WorkerId(worker))
}

fn unload(worker: u32) -> DeviceEvent<'static, ()> {
    DeviceEvent::Unload(WorkerId(worker))
}

#[test]
fn a_load_goes_before_the_next_batch_and_others_wait_for_it() {
    let mut device = device(2);
    arrive(&mut device, 0, &[(1, 1, 100)]);
    arrive(&mut device, 1, &[(1, 2, 100)]);
    assert_eq!(drive(&mut device, 2, load(2)), []);
    assert_eq!(drive(&mut device, 3, load(1)), []);
    assert_eq!(
        drive(&mut device, 4, load(2)),
        [],
        "it is asked for already"
    );
    assert_eq!(done(end(&mut device, 10, 0)), [Does::Load(2)]);
    assert_eq!(done(arrive(&mut device, 11, &[(2, 3, 90)])), []);
    assert_eq!(
        drive(&mut device, 30, DeviceEvent::LoadEnded),
        [Does::Load(1)]
    );
    let run = drive(&mut device, 40, DeviceEvent::LoadEnded);
    assert_eq!(run, [Does::Run(vec![3])], "the most urgent first");
    assert_eq!(done(end(&mut device, 50, 1)), [Does::Run(vec![2])]);
}

#[test]
fn a_load_waits_for_what_is_bound_and_nothing_more_is_bound_before_it() {
    let mut device = device_with(DropPolicy::SPILLGATE, 2);
    arrive(&mut device, 0, &[(1, 1, 100)]);
    arrive(&mut device, 1, &[(1, 2, 100)]);
    assert_eq!(
        drive(&mut device, 8, DeviceEvent::Wakeup),
        [Does::Run(vec![2])]
    );
    assert_eq!(drive(&mut device, 9, load(2)), []);
    assert_eq!(done(end(&mut device, 10, 0)), [], "the bound batch runs on");
    assert_eq!(done(arrive(&mut device, 18, &[(1, 3, 100)])), []);
    assert_eq!(done(end(&mut device, 20, 1)), [Does::Load(2)]);
    assert_eq!(
        drive(&mut device, 21, DeviceEvent::LoadEnded),
        [Does::Run(vec![3])]
    );
}

#[test]
fn what_waits_for_a_load_expires() {
    let mut device = device(2);
    assert_eq!(drive(&mut device, 0, load(2)), [Does::Load(2)]);
    arrive(&mut device, 1, &[(1, 1, 50), (1, 2, 100)]);
    assert_eq!(device.next_wakeup(), Some(at(50)));
    let mut out = Vec::new();
    device.on_event(at(50), DeviceEvent::Wakeup, &mut out);
    assert!(matches!(
        out[..],
        [DeviceCommand::Tell {
            message: ToGateway::Dropped { .. },
            ..
        }]
    ));
    assert_eq!(
        drive(&mut device, 60, DeviceEvent::LoadEnded),
        [Does::Run(vec![2])]
    );
}

/// Whether a load succeeded is for others to know: the device is free when it ends, and may be asked for it again.
#[test]
fn a_worker_whose_load_failed_may_be_loaded_again() {
    let mut device = device(1);
    assert_eq!(drive(&mut device, 0, load(1)), [Does::Load(1)]);
    assert_eq!(drive(&mut device, 1, load(1)), [], "its answer is to come");
    assert_eq!(drive(&mut device, 5, DeviceEvent::LoadEnded), []);
    assert_eq!(drive(&mut device, 6, load(1)), [Does::Load(1)]);
}

#[test]
fn an_unload_waits_for_what_is_bound_and_what_waits() {
    let mut device = device_with(DropPolicy::SPILLGATE, 1);
    arrive(&mut device, 0, &[(1, 1, 100)]);
    arrive(&mut device, 1, &[(1, 2, 100), (2, 3, 200)]);
    assert_eq!(
        drive(&mut device, 8, DeviceEvent::Wakeup),
        [Does::Run(vec![2])]
    );
    assert_eq!(drive(&mut device, 9, unload(1)), []);
    assert_eq!(drive(&mut device, 9, unload(1)), []);
    assert_eq!(done(end(&mut device, 10, 0)), []);
    // It waits for its own requests only: those of the other worker go on.
    let last = done(end(&mut device, 20, 1));
    assert_eq!(last, [Does::Run(vec![3]), Does::Unload(1)]);
    assert_eq!(done(end(&mut device, 30, 2)), [], "unloaded once");
}

#[test]
fn an_unload_waits_until_what_waits_is_dropped() {
    let mut device = device(1);
    arrive(&mut device, 0, &[(1, 1, 100)]);
    arrive(&mut device, 1, &[(2, 2, 100)]);
    assert_eq!(drive(&mut device, 2, unload(2)), []);
    let cancelled = drive(
        &mut device,
        3,
        DeviceEvent::Cancel(WorkerId(2), RequestId(2)),
    );
    assert_eq!(cancelled, [Does::Unload(2)]);
}

#[test]
fn what_is_asked_for_last_counts() {
    let mut device = device(1);
    arrive(&mut device, 0, &[(1, 1, 100)]);
    for event in [unload(1), load(1), load(2), unload(2)] {
        let does = drive(&mut device, 1, event);
        // Nothing of worker 2 is here.
        assert!(does.iter().all(|d| *d == Does::Unload(2)), "{does:?}");
    }
    assert_eq!(done(end(&mut device, 10, 0)), [Does::Load(1)]);
    assert_eq!(drive(&mut device, 11, unload(1)), [], "it is being loaded");
    assert_eq!(
        drive(&mut device, 12, DeviceEvent::LoadEnded),
        [Does::Unload(1)]
    );
}

#[test]
fn a_closed_device_loads_and_unloads_no_more() {
    let mut device = device(1);
    arrive(&mut device, 0, &[(1, 1, 100)]);
    drive(&mut device, 1, load(2));
    drive(&mut device, 1, unload(1));
    drive(&mut device, 2, DeviceEvent::Close(DropReason::Draining));
    assert_eq!(done(end(&mut device, 10, 0)), []);
    assert_eq!(drive(&mut device, 11, load(2)), []);
    assert_eq!(drive(&mut device, 12, unload(1)), []);
}
