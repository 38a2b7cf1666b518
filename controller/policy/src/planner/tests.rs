use spillgate_pipeline::id::WorkerId;
use spillgate_pipeline::placement::{Decider, PlacementPolicy, ServedBy};
use spillgate_pipeline::policy::{DropPolicy, POLICY_DEFAULT, PolicyConfig};
use spillgate_pipeline::schedule::SchedulePolicy;
use spillgate_pipeline::testing::noop_pipeline;
use spillgate_recipes::drops;

use super::*;

const MS: u64 = 1_000_000;

fn ms(n: u64) -> Timestamp {
    Timestamp::from_ns(n * MS)
}

fn span(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// The planner of the second of three modules in a chain; each takes 20, 30 and 50 ms at its planned batch of 4.
fn planner(drop: DropPolicy, module: u16) -> StatePlanner {
    planner_with(drop, module, None)
}

/// Its batches formed by that scheduler.
fn planner_with(drop: DropPolicy, module: u16, schedule: Option<SchedulePolicy>) -> StatePlanner {
    let mut pipeline = noop_pipeline(span(400), &[&[0], &[1], &[2]], &[]);
    pipeline.modules[usize::from(module)].schedule = schedule;
    pipeline.policy = PolicyConfig {
        drop,
        ..POLICY_DEFAULT
    };
    let execution = [0, 20, 30, 50].map(|d| vec![span(d); 4]).to_vec();
    let planned = Planned {
        batch: vec![1, 4, 4, 4],
        execution: execution.into(),
        workers: vec![2; 4],
        alone: false,
    };
    StatePlanner::new(
        Arc::new(pipeline),
        ModuleId(module),
        Arc::new(planned),
        2,
        1,
        Timestamp::ZERO,
    )
}

pub(crate) fn state(module: u16, version: u64, queueing: u64) -> ModuleState {
    ModuleState {
        module: ModuleId(module),
        version,
        queueing: span(queueing),
        execution: span(50),
        batch_waits: [0.010f32].as_slice().into(),
        executions: [].into(),
        worst: span(60),
        offered: 100.0,
        executed: 100.0,
        batch_size: 4.0,
        capacity: 160.0,
        probability: 1.0,
        workers: 2,
        pace: 1.0,
        pace_by_variant: 1.0,
        variants: Arc::new([]),
        spread: 0.0,
        asked: [0.0; 20],
        admit: 1.0,
    }
}

/// Wakes the planner as a driver does.
fn wake(planner: &mut StatePlanner, at: Timestamp) -> Option<Arc<ModuleState>> {
    let woken = planner.wake(at);
    if let Some(computation) = woken.compute {
        planner.computed(computation.run());
    }
    woken.publish
}

/// Publishes at one second and computes a little later.
fn turn(planner: &mut StatePlanner) {
    wake(planner, ms(1_000));
    wake(planner, ms(1_010));
}

#[test]
fn before_anything_is_known_the_plan_counts() {
    assert_eq!(planner(DropPolicy::PARD, 1).guidance().downstream, span(80));
    assert_eq!(planner(drops::PARD_SF, 1).guidance().downstream, span(80));
    assert_eq!(
        planner(drops::PARD_UPPER, 1).guidance().downstream,
        span(160)
    );
    assert_eq!(planner(drops::PARD_BACK, 1).guidance(), Guidance::NONE);
    assert_eq!(planner(DropPolicy::PARD, 3).guidance().downstream, span(0));
    for policy in [DropPolicy::NEXUS_SPLIT, drops::PARD_SPLIT, drops::PARD_WCL] {
        let shares: Vec<f64> = (1..4)
            .map(|m| planner(policy, m).guidance().share)
            .collect();
        for (share, expected) in shares.into_iter().zip([0.2, 0.5, 1.0]) {
            assert!((share - expected).abs() < 1e-9, "{policy:?}: {share}");
        }
    }
}

#[test]
fn what_comes_after_counts_with_queueing_execution_and_wait() {
    let mut p = planner(DropPolicy::PARD, 2);
    p.peer(Incarnation(1), Arc::new(state(3, 1, 25)));
    turn(&mut p);
    assert_eq!(p.guidance().downstream.as_millis(), 25 + 50 + 10);
    assert_eq!(p.paths[0].modules, [ModuleId(3)]);
    let mut worst = planner(drops::PARD_WCL, 2);
    worst.peer(Incarnation(1), Arc::new(state(3, 1, 25)));
    turn(&mut worst);
    // 20 and 30 as planned before it, 60 as seen after it.
    assert!((worst.guidance().share - 50.0 / 110.0).abs() < 1e-9);
}

#[test]
fn late_and_repeated_states_change_nothing_and_lost_ones_keep_the_last() {
    let mut p = planner(DropPolicy::PARD, 2);
    p.peer(Incarnation(1), Arc::new(state(3, 7, 25)));
    p.peer(Incarnation(1), Arc::new(state(3, 6, 300)));
    p.peer(Incarnation(1), Arc::new(state(3, 7, 300)));
    turn(&mut p);
    assert_eq!(p.guidance().downstream.as_millis(), 85);
    for second in 2..60 {
        wake(&mut p, ms(second * 1_000));
        wake(&mut p, ms(second * 1_000 + 10));
    }
    assert_eq!(
        p.guidance().downstream.as_millis(),
        85,
        "nothing came since"
    );
    p.peer(Incarnation(1), Arc::new(state(3, 8, 45)));
    wake(&mut p, ms(60_000));
    wake(&mut p, ms(60_010));
    assert_eq!(p.guidance().downstream.as_millis(), 105);
}

#[test]
fn executions_that_a_scheduler_forms_are_exchanged_one_a_request() {
    for (drop, schedule, exchanged) in [
        (DropPolicy::SPILLGATE, Some(SchedulePolicy::GOODPUT), true),
        (DropPolicy::SPILLGATE, Some(SchedulePolicy::STATIC), false),
        (DropPolicy::SPILLGATE, None, false),
        // As published: the profile's number.
        (DropPolicy::PARD, Some(SchedulePolicy::ORLOJ), false),
    ] {
        let mut p = planner_with(drop, 1, schedule);
        let members = [(ms(900), ms(930)), (ms(910), ms(930))];
        let report = BatchReport {
            started_at: ms(950),
            ended_at: ms(965),
            worker: WorkerId(0),
            variant: Default::default(),
            size: 2,
            members: members.to_vec(),
        };
        p.batch(ms(965), &report);
        let state = wake(&mut p, ms(1_000)).expect("a second has passed");
        let expected: &[f32] = if exchanged { &[0.015, 0.015] } else { &[] };
        assert_eq!(&*state.executions, expected, "{drop:?} {schedule:?}");
    }
}

/// Under a placement a batch may have requests of several workers, each of which reports its own.
#[test]
fn a_batch_took_as_long_as_all_its_requests_take() {
    let pipeline = noop_pipeline(span(400), &[&[0], &[1]], &[]);
    let by = ServedBy::one_process(Decider::Placement(PlacementPolicy::SPILLGATE));
    let pipeline = pipeline.served_by(by);
    let execution = vec![
        vec![],
        (1..=8).map(|n| span(10 * n)).collect(),
        vec![span(1); 8],
    ];
    let planned = Planned {
        batch: vec![1, 8, 8],
        execution: execution.into(),
        workers: vec![1, 2, 2],
        alone: true,
    };
    let (pipeline, planned) = (Arc::new(pipeline), Arc::new(planned));
    let mut p = StatePlanner::new(pipeline, ModuleId(1), planned, 2, 1, Timestamp::ZERO);
    let report = BatchReport {
        started_at: ms(900),
        ended_at: ms(980),
        worker: WorkerId(0),
        variant: Default::default(),
        size: 8,
        members: vec![(ms(850), ms(900)); 3],
    };
    p.batch(ms(980), &report);
    let state = wake(&mut p, ms(1_000)).expect("a second has passed");
    assert_eq!((state.pace, state.capacity), (1.0, 2.0 * 8.0 / 0.08));
}

#[test]
fn its_state_is_what_it_saw() {
    let mut p = planner(DropPolicy::PARD, 1);
    let request = spillgate_pipeline::request::Request::new(
        spillgate_pipeline::id::RequestId(1),
        ms(0),
        ms(400),
    );
    for i in 0..100 {
        let mut more = Demand::default();
        more.came(i % 4 != 0);
        more.entered(ms(400).since(ms(0)), &request);
        p.demanded(ms(i * 10), &more);
    }
    let members = [(ms(900), ms(930)), (ms(910), ms(930))];
    let report = BatchReport {
        started_at: ms(950),
        ended_at: ms(970),
        worker: WorkerId(0),
        variant: Default::default(),
        size: 2,
        members: members.to_vec(),
    };
    p.batch(ms(970), &report);
    let state = wake(&mut p, ms(1_000)).expect("a second has passed");
    assert_eq!(state.queueing, span(25));
    assert_eq!(state.worst, span(70));
    assert_eq!(&*state.batch_waits, [0.02f32, 0.02]);
    assert_eq!(state.batch_size, 2.0);
    assert!((state.offered - 75.0).abs() < 1.0, "{}", state.offered);
    assert!(
        (state.probability - 0.75).abs() < 0.02,
        "{}",
        state.probability
    );
    assert_eq!(state.capacity, 2.0 * 4.0 / 0.02);
    assert_eq!(state.asked[19], 1.0);
    assert_eq!(state.version, 1);
    p.set_workers(1);
    assert_eq!(wake(&mut p, ms(2_000)).unwrap().capacity, 200.0);
}

#[test]
fn long_waits_are_forgotten_once_the_module_rests() {
    let of = |drop, last_ends: u64, takes: u64| {
        let mut p = planner(drop, 1);
        let mut report = BatchReport {
            started_at: ms(700),
            ended_at: ms(720),
            worker: WorkerId(0),
            variant: Default::default(),
            size: 1,
            members: vec![(ms(400), ms(600))],
        };
        p.batch(ms(720), &report);
        report.started_at = ms(last_ends - takes);
        report.ended_at = ms(last_ends);
        p.batch(ms(last_ends), &report);
        wake(&mut p, ms(1_000));
        let state = wake(&mut p, ms(2_000)).expect("a second has passed");
        (state.queueing, state.batch_waits.len())
    };
    let ours = DropPolicy::SPILLGATE;
    assert_eq!(of(ours, 720, 20), (Duration::ZERO, 0));
    // Something is there to do, or may be.
    assert_eq!(of(ours, 1_200, 20), (span(200), 2));
    assert_eq!(of(ours, 720, 700), (span(200), 2));
    // As published.
    assert_eq!(of(DropPolicy::PARD, 720, 20), (span(200), 2));
}

#[test]
fn overload_control_admits_a_share_at_the_module_and_before_it() {
    let mut p = planner(drops::PARD_OC, 1);
    assert_eq!(p.admits(), 1.0);
    let mut overloaded = state(3, 1, 60);
    overloaded.admit = 0.6;
    p.peer(Incarnation(1), Arc::new(overloaded));
    turn(&mut p);
    assert_eq!(p.admits(), 0.6);
    let mut after = planner(drops::PARD_OC, 3);
    let mut before = state(1, 1, 60);
    before.admit = 0.6;
    after.peer(Incarnation(1), Arc::new(before));
    turn(&mut after);
    assert_eq!(
        after.admits(),
        1.0,
        "what comes after does not shed for what comes before"
    );
}

#[test]
fn policies_that_change_nothing_with_time_are_never_woken() {
    for drop in [
        DropPolicy::NONE,
        DropPolicy::DEADLINE,
        DropPolicy::NEXUS,
        DropPolicy::NEXUS_SPLIT,
    ] {
        assert_eq!(planner(drop, 1).next_wakeup(), None, "{drop:?}");
    }
    assert_eq!(planner(DropPolicy::PARD, 1).next_wakeup(), Some(ms(1_000)));
}
