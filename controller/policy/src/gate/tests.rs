use spillgate_pipeline::policy::DropPolicy;
use spillgate_pipeline::testing::noop_pipeline;

use super::*;
use crate::planner::tests::state;

#[test]
fn decoders_bound_nothing_and_live_workers_count() {
    let mut pipeline = noop_pipeline(Duration::from_millis(100), &[&[0]], &[]);
    pipeline.policy.drop = DropPolicy::SPILLGATE;
    let planned = Arc::new(Planned {
        batch: vec![1; 2],
        execution: vec![vec![], vec![Duration::from_millis(60)]].into(),
        workers: vec![0, 2],
        alone: false,
    });
    let mut gate = EntryGate::new(&pipeline, &planned, &[vec![0], vec![1, 2]]).unwrap();
    let mut report = |workers: u32| {
        gate.learn(
            Timestamp::ZERO,
            &ModuleState {
                execution: Duration::from_millis(60),
                capacity: 100.0,
                workers,
                ..state(1, 1, 0)
            },
        );
        gate.rate().unwrap() / pipeline.policy.gate().unwrap()
    };
    // 40 ms are left, and a batch starts every 30 or every 60 ms.
    assert_eq!(report(2), 100.0);
    assert!((report(1) - 150.0).abs() < 1e-6);
}

/// All workers of a module are lost, and other gateways want nothing of nothing.
#[test]
fn a_part_of_no_capacity_closes_the_gate_until_workers_are_back() {
    let mut pipeline = noop_pipeline(Duration::from_millis(100), &[&[0]], &[]);
    pipeline.policy.drop = DropPolicy::SPILLGATE;
    let planned = Arc::new(Planned {
        batch: vec![1; 2],
        execution: vec![vec![], vec![Duration::from_millis(60)]].into(),
        workers: vec![0, 1],
        alone: true,
    });
    let mut gate = EntryGate::new(&pipeline, &planned, &[vec![0], vec![1]]).unwrap();
    let learn = |gate: &mut EntryGate, capacity| {
        let state = ModuleState {
            capacity,
            ..state(1, 1, 0)
        };
        gate.learn(Timestamp::ZERO, &state);
        gate.rate().unwrap()
    };
    let whole = learn(&mut gate, 100.0);
    let portion = |rate| Portion {
        rate,
        parts: Default::default(),
    };
    gate.divide(Timestamp::ZERO, Some(&portion(whole / 2.0)));
    assert_eq!(learn(&mut gate, 0.0), 0.0);
    gate.divide(Timestamp::ZERO, Some(&portion(0.0)));
    assert_eq!(gate.rate(), Some(0.0));
    assert_eq!(learn(&mut gate, 100.0), whole / 2.0);
}

#[test]
fn modules_that_share_a_device_share_its_time() {
    let load = |&(capacity, probability): &(f64, f64)| Load {
        capacity,
        probability,
        drops: false,
    };
    let of = |workers: &[(f64, f64)]| borne(workers.iter().map(load));
    assert_eq!(of(&[(100.0, 1.0)]), 100.0);
    assert_eq!(of(&[(100.0, 1.0), (100.0, 1.0)]), 50.0);
    assert_eq!(of(&[(100.0, 1.0), (50.0, 0.5)]), 50.0);
    assert_eq!(of(&[(50.0, 0.5)]), f64::INFINITY);
    assert_eq!(of(&[(f64::INFINITY, 1.0)]), f64::INFINITY);
    let scheduled = || Load {
        drops: true,
        ..load(&(100.0, 1.0))
    };
    assert_eq!(borne([scheduled()].into_iter()), f64::INFINITY);
    let beside = [scheduled(), load(&(100.0, 1.0))].into_iter();
    assert_eq!(borne(beside), 50.0);
}

/// A slow module under a short SLO: its depth is less than a request, and still one may come while another runs.
#[test]
fn two_that_come_together_pass_a_gate_that_was_idle() {
    let mut gate = Gate::new(50.0, Duration::from_millis(5));
    let mut pass = |ms: u64| gate.pass(Timestamp::from_ns(ms * 1_000_000));
    assert_eq!([pass(0), pass(1), pass(2)], [true, true, false]);
    assert_eq!([pass(20), pass(21)], [true, false]);
}

#[test]
fn passes_its_rate_and_its_depth() {
    let mut gate = Gate::new(100.0, Duration::from_millis(50));
    let mut passed = 0;
    for i in 0..10_000u64 {
        passed += u32::from(gate.pass(Timestamp::from_ns(i * 1_000_000)));
    }
    assert!((1000..=1006).contains(&passed), "{passed}");
    gate.set(
        Timestamp::from_ns(10_000_000_000),
        0.0,
        Duration::from_millis(50),
    );
    for i in 10_000..20_000u64 {
        passed -= u32::from(gate.pass(Timestamp::from_ns(i * 1_000_000)));
    }
    assert!(passed >= 999, "a closed gate passes what was left at most");
}
