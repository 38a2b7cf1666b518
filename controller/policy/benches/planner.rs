//! A planner's update off the hot path: 10,000 draws for each of four modules downstream, and the quantile.

use std::sync::Arc;
use std::time::Duration;

use spillgate_controller_policy::plan::Planned;
use spillgate_controller_policy::planner::{ModuleState, StatePlanner};
use spillgate_pipeline::id::{Incarnation, ModuleId};
use spillgate_pipeline::policy::{DropPolicy, POLICY_DEFAULT, PolicyConfig};
use spillgate_pipeline::testing::noop_pipeline;
use spillgate_pipeline::time::Timestamp;

fn main() {
    divan::main();
}

#[divan::bench]
fn update_over_five_modules(bencher: divan::Bencher<'_, '_>) {
    let mut pipeline = noop_pipeline(
        Duration::from_millis(500),
        &[&[0], &[1], &[2], &[3], &[4]],
        &[],
    );
    pipeline.policy = PolicyConfig {
        drop: DropPolicy::PARD,
        ..POLICY_DEFAULT
    };
    let planned = Planned {
        batch: vec![8; 6],
        execution: vec![vec![Duration::from_millis(20); 8]; 6].into(),
        workers: vec![4; 6],
        alone: false,
    };
    let mut now = Timestamp::ZERO;
    let (pipeline, planned) = (Arc::new(pipeline), Arc::new(planned));
    let mut planner = StatePlanner::new(pipeline, ModuleId(1), planned, 4, 1, now);
    let waits: Arc<[f32]> = (0..1024).map(|i| i as f32 * 2e-5).collect();
    let mut version = 0;
    bencher.bench_local(|| {
        version += 1;
        for module in 2..6 {
            let state = ModuleState {
                module: ModuleId(module),
                version,
                queueing: Duration::from_millis(5),
                execution: Duration::from_millis(20),
                batch_waits: waits.clone(),
                executions: [].into(),
                worst: Duration::from_millis(60),
                offered: 100.0,
                executed: 100.0,
                batch_size: 8.0,
                capacity: 1600.0,
                probability: 1.0,
                workers: 4,
                pace: 1.0,
                pace_by_variant: 1.0,
                variants: Arc::new([]),
                spread: 0.0,
                asked: [0.0; 20],
                admit: 1.0,
            };
            planner.peer(Incarnation::default(), Arc::new(state));
        }
        now = now + Duration::from_secs(1);
        planner.wake(now);
        let woken = planner.wake(now + Duration::from_millis(10));
        let computation = woken.compute.expect("a period has passed");
        planner.computed(computation.run())
    });
}
