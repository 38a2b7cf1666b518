//! Workers that come and go with the load.

use spillgate_pipeline::id::WeightsId;

use super::*;
use crate::weights::store::{
    ScaledWorker, WeightStore, WeightStoreConfig, WeightsSize, WorkerWeights,
};

/// What a driver of these commands does, in order.
#[derive(Debug, PartialEq)]
enum Does {
    Run(Vec<u64>),
    Read(u32),
    Loaded(u32, bool),
    Forget(Vec<u32>),
}

/// Two workers with weights of their own, of which the second is away. A batch takes 10, and reading weights 20.
fn scaled(policy: DropPolicy, batch: u32) -> Device<()> {
    scaled_with(policy, batch, [vec![WeightsId(1)], vec![WeightsId(2)]])
}

fn scaled_with(policy: DropPolicy, batch: u32, weights: [Vec<WeightsId>; 2]) -> Device<()> {
    let size = WeightsSize {
        pages: 1,
        load: Duration::from_nanos(20),
    };
    let workers = || (1..).map(WorkerId).zip(weights.clone());
    let of = |(worker, weights)| {
        let by_variant = false;
        let weights = WorkerWeights {
            weights,
            by_variant,
        };
        (worker, weights)
    };
    let scaled = |(worker, needs): (WorkerId, Vec<WeightsId>)| ScaledWorker {
        worker,
        needs,
        from_start: worker.0 == 1,
    };
    device_with(policy, batch).with_weights(WeightStore::new(WeightStoreConfig {
        pages: u32::MAX,
        weights: [size; 4].into(),
        workers: workers().map(of).collect(),
        resident: weights[0].clone(),
        scaled: workers().map(scaled).collect(),
    }))
}

fn drive(device: &mut Device<()>, now: u64, event: DeviceEvent<'_, ()>) -> Vec<Does> {
    let mut out = Vec::new();
    device.on_event(at(now), event, &mut out);
    done(out)
}

fn done(out: Vec<DeviceCommand<()>>) -> Vec<Does> {
    let does = |command| match command {
        DeviceCommand::Execute(b) => Some(Does::Run(
            b.members.iter().map(|m| m.request.id.0).collect(),
        )),
        DeviceCommand::Read(weights, gone) => {
            assert_eq!(gone, [], "nothing gives way here");
            Some(Does::Read(weights.0))
        }
        DeviceCommand::Loaded(worker, result) => Some(Does::Loaded(worker.0, result.is_ok())),
        DeviceCommand::Forget(gone) => Some(Does::Forget(gone.iter().map(|w| w.0).collect())),
        DeviceCommand::Rerun(_) | DeviceCommand::Tell { .. } => None,
    };
    out.into_iter().filter_map(does).collect()
}

fn load(device: &mut Device<()>, now: u64, worker: u32) -> Vec<Does> {
    drive(device, now, DeviceEvent::Load(WorkerId(worker)))
}

fn unload(device: &mut Device<()>, now: u64, worker: u32) -> Vec<Does> {
    drive(device, now, DeviceEvent::Unload(WorkerId(worker)))
}

fn read_ended(device: &mut Device<()>, now: u64, is_there: bool) -> Vec<Does> {
    drive(device, now, DeviceEvent::ReadEnded(is_there))
}

#[test]
fn a_worker_is_loaded_beside_the_batches() {
    let mut device = scaled(DropPolicy::NONE, 1);
    arrive(&mut device, 0, &[(1, 1, 100), (1, 2, 100)]);
    assert_eq!(load(&mut device, 2, 2), [Does::Read(2)]);
    assert_eq!(load(&mut device, 3, 2), [], "it is asked for already");
    assert_eq!(load(&mut device, 3, 1), [], "it comes after the other");
    assert_eq!(done(end(&mut device, 10, 0)), [Does::Run(vec![2])]);
    let loaded = [Does::Loaded(2, true), Does::Loaded(1, true)];
    assert_eq!(read_ended(&mut device, 22, true), loaded);
    assert_eq!(load(&mut device, 23, 2), [Does::Loaded(2, true)]);
}

#[test]
fn a_device_whose_workers_need_nothing_loads_them_at_once() {
    let mut device = device(1);
    assert_eq!(load(&mut device, 0, 2), [Does::Loaded(2, true)]);
    assert_eq!(unload(&mut device, 1, 2), []);
}

#[test]
fn a_worker_needs_all_of_its_variants_one_after_the_other() {
    let own = vec![WeightsId(2), WeightsId(3)];
    let mut device = scaled_with(DropPolicy::NONE, 1, [vec![WeightsId(1)], own]);
    assert_eq!(load(&mut device, 0, 2), [Does::Read(2)]);
    assert_eq!(read_ended(&mut device, 20, true), [Does::Read(3)]);
    let loaded = read_ended(&mut device, 40, true);
    assert_eq!(loaded, [Does::Loaded(2, true)]);
    assert_eq!(unload(&mut device, 50, 2), [Does::Forget(vec![2, 3])]);
}

#[test]
fn a_worker_whose_load_failed_may_be_loaded_again() {
    let mut device = scaled(DropPolicy::NONE, 1);
    assert_eq!(load(&mut device, 0, 2), [Does::Read(2)]);
    let failed = read_ended(&mut device, 5, false);
    assert_eq!(failed, [Does::Loaded(2, false)]);
    assert_eq!(load(&mut device, 6, 2), [Does::Read(2)]);
    assert_eq!(read_ended(&mut device, 9, true), [Does::Loaded(2, true)]);
}

#[test]
fn an_unload_waits_for_what_is_bound_and_what_waits() {
    let mut device = scaled(DropPolicy::SPILLGATE, 1);
    arrive(&mut device, 0, &[(1, 1, 100)]);
    arrive(&mut device, 1, &[(1, 2, 100)]);
    assert_eq!(
        drive(&mut device, 8, DeviceEvent::Wakeup),
        [Does::Run(vec![2])]
    );
    assert_eq!(unload(&mut device, 9, 1), []);
    assert_eq!(unload(&mut device, 9, 1), []);
    assert_eq!(done(end(&mut device, 10, 0)), []);
    assert_eq!(done(end(&mut device, 20, 1)), [Does::Forget(vec![1])]);
    assert_eq!(drive(&mut device, 30, DeviceEvent::Wakeup), [], "once");
}

#[test]
fn an_unload_waits_until_what_waits_is_dropped() {
    let mut device = scaled(DropPolicy::NONE, 1);
    load(&mut device, 0, 2);
    assert_eq!(read_ended(&mut device, 0, true), [Does::Loaded(2, true)]);
    arrive(&mut device, 0, &[(1, 1, 100)]);
    arrive(&mut device, 1, &[(2, 2, 100)]);
    assert_eq!(unload(&mut device, 2, 2), []);
    let cancel = DeviceEvent::Cancel(WorkerId(2), RequestId(2));
    assert_eq!(drive(&mut device, 3, cancel), [Does::Forget(vec![2])]);
}

#[test]
fn what_is_asked_for_last_counts() {
    let mut device = scaled(DropPolicy::NONE, 1);
    arrive(&mut device, 0, &[(1, 1, 100)]);
    assert_eq!(unload(&mut device, 1, 1), []);
    assert_eq!(load(&mut device, 1, 1), [Does::Loaded(1, true)]);
    assert_eq!(load(&mut device, 1, 2), [Does::Read(2)]);
    assert_eq!(unload(&mut device, 2, 2), [], "it is being read");
    assert_eq!(done(end(&mut device, 10, 0)), [], "worker 1 stays");
    assert_eq!(read_ended(&mut device, 21, true), [Does::Forget(vec![2])]);
}

/// A request that was on its way when its worker went is served all the same, and what was read for it is given back.
#[test]
fn a_request_that_comes_when_its_worker_is_gone_is_served() {
    let mut device = scaled(DropPolicy::NONE, 1);
    assert_eq!(
        done(arrive(&mut device, 0, &[(2, 1, 100)])),
        [Does::Read(2)]
    );
    assert_eq!(read_ended(&mut device, 20, true), [Does::Run(vec![1])]);
    assert_eq!(done(end(&mut device, 30, 0)), [Does::Forget(vec![2])]);
}

#[test]
fn weights_that_another_worker_uses_stay() {
    let shared = || vec![WeightsId(1)];
    let mut device = scaled_with(DropPolicy::NONE, 1, [shared(), shared()]);
    assert_eq!(load(&mut device, 0, 2), [Does::Loaded(2, true)]);
    assert_eq!(unload(&mut device, 1, 2), []);
    assert_eq!(unload(&mut device, 2, 1), [Does::Forget(vec![1])]);
}

/// Its batch has the weights that it shares with the worker that goes.
#[test]
fn weights_of_a_batch_that_runs_stay_though_no_worker_serves() {
    let shared = || vec![WeightsId(1)];
    let mut device = scaled_with(DropPolicy::NONE, 1, [shared(), shared()]);
    let run = done(arrive(&mut device, 0, &[(2, 1, 100)]));
    assert_eq!(
        run,
        [Does::Run(vec![1])],
        "another worker has what it needs"
    );
    assert_eq!(unload(&mut device, 1, 2), []);
    assert_eq!(unload(&mut device, 2, 1), []);
    assert_eq!(done(end(&mut device, 10, 0)), [Does::Forget(vec![1])]);
}

#[test]
fn a_closed_device_loads_and_unloads_no_more() {
    let mut device = scaled(DropPolicy::NONE, 1);
    arrive(&mut device, 0, &[(1, 1, 100)]);
    assert_eq!(unload(&mut device, 1, 1), []);
    drive(&mut device, 2, DeviceEvent::Close(DropReason::Draining));
    assert_eq!(done(end(&mut device, 10, 0)), []);
    assert_eq!(load(&mut device, 11, 2), []);
    assert_eq!(unload(&mut device, 12, 1), []);
}
