//! Cameras on links: closed forms, and what must follow from a link.

use spillgate_camera::bandwidth::BandwidthTrace;
use spillgate_pipeline::execution::{ExecutionTimes, ModuleExecution};
use spillgate_pipeline::pipeline::Variant;
use spillgate_pipeline::policy::{Adapt, AdaptName, DispatchPolicyName};

use super::*;
use crate::network::EmulatedUplink;
use crate::world::{CameraFigures, FrameBits, FramesReport, SimCamera};

/// Side, accuracy, and milliseconds of a batch of `n`: 4 and so many times `n`.
const VARIANTS: [(u32, f64, u32); 3] = [(128, 0.6, 2), (256, 0.8, 6), (512, 0.9, 12)];
/// Bits of a frame of 512 pixels.
const BITS: f64 = 400e3;
const TRIP: Duration = Duration::from_millis(10);

fn camera(name: &str, trace: BandwidthTrace) -> SimCamera {
    SimCamera {
        name: name.to_owned(),
        rate: 20.0,
        slo: SLO,
        link: EmulatedUplink::new(trace, Duration::ZERO, TRIP, MS),
        side: 512,
        bits: FrameBits::new([(512, BITS)]),
        encoding: MS * 2,
        starts: Timestamp::ZERO,
        adapts: true,
    }
}

fn mbps(rate: f64) -> BandwidthTrace {
    BandwidthTrace::constant(rate * 1e6)
}

/// One module with variants on so many devices, for a minute of which the first two seconds do not count.
fn served(cameras: Vec<SimCamera>, devices: u16) -> SimConfig {
    let mut pipeline = noop_pipeline(SLO, &[&[0]], &[]);
    pipeline.policy.drop = DropPolicy::SPILLGATE;
    let module = &mut pipeline.modules[1];
    let variant = |(input, accuracy, _)| Variant {
        model: "a.pt".to_owned(),
        input: Some(input),
        accuracy: Some(accuracy),
    };
    module.variants = VARIANTS.map(variant).to_vec();
    pipeline.adapt = Some(Adapt::new(module.id, AdaptName::Spillgate));
    let times = |(_, _, each): (u32, f64, u32)| (1..=8).map(|n| MS * (4 + each * n)).collect();
    let mut execution = ExecutionTimes::from(vec![vec![], vec![]]);
    let times = ModuleExecution::of_variants(VARIANTS.map(times).to_vec());
    execution.set(ModuleId(1), times);
    let served = Served {
        pipeline: Arc::new(pipeline),
        planned: Arc::new(Planned {
            batch: vec![1, 4],
            execution,
            workers: vec![0, u32::from(devices)],
            alone: true,
        }),
        workers: vec![vec![], (0..devices).collect()],
        arrivals: Vec::new().into(),
        duration: Duration::from_secs(60),
    };
    SimConfig {
        cameras,
        warm_up: Duration::from_secs(2),
        hop: Duration::ZERO,
        handoff: Duration::ZERO,
        ..SimConfig::undisturbed(served, 1)
    }
}

/// The same where one variant serves all.
fn fixed(mut config: SimConfig, variant: u16) -> SimConfig {
    let pipeline = Arc::make_mut(&mut config.pipeline);
    pipeline.adapt = None;
    pipeline.modules[1].fixed = Some(spillgate_pipeline::id::VariantId(variant));
    config
}

fn frames(config: SimConfig) -> FramesReport {
    run(config).unwrap().cameras.expect("it has cameras")
}

#[test]
fn the_latency_of_a_frame_is_encoding_link_and_execution() {
    for adapts in [true, false] {
        let camera = SimCamera {
            adapts,
            ..camera("a", mbps(20.0))
        };
        let all = frames(fixed(served(vec![camera], 1), 2)).all;
        assert_eq!((all.frames, all.missed), (58 * 20, 0), "{all:?}");
        // 2 ms to encode, 20 ms of bits, 10 ms there and back, and 16 ms.
        for latency in [all.latency_ms_p50, all.latency_ms_p99] {
            assert!((latency - 48.0).abs() < 1e-3, "{latency}");
        }
        assert_eq!((all.side_mean, all.switches), (512.0, 0));
        assert!((all.accuracy_mean.unwrap() - 0.9).abs() < 1e-9);
        assert!((all.goodput_weighted.unwrap() - 18.0).abs() < 1e-9);
    }
}

#[test]
fn a_camera_whose_link_does_not_bear_its_fixed_size_misses_and_one_that_adapts_does_not() {
    // 20 frames of 400 kbit a second are 8 Mbit/s.
    let of = |adapts| {
        let camera = SimCamera {
            adapts,
            ..camera("a", mbps(5.0))
        };
        frames(served(vec![camera], 1)).all
    };
    let (plain, adapting) = (of(false), of(true));
    assert!(plain.miss_rate > 0.99, "{plain:?}");
    assert_eq!(plain.unsent, 0, "it knows nothing of its link");
    assert!(adapting.miss_rate < 0.005, "{adapting:?}");
    assert!(adapting.side_mean < 400.0, "{adapting:?}");
    assert!(adapting.accuracy_mean > Some(0.75), "{adapting:?}");
}

/// A worker takes what waits for one variant from one queue: batches are larger, so larger variants are in time.
#[test]
fn from_one_queue_more_is_served_than_where_requests_are_sent_to_workers() {
    let of = |n: u32, devices: u16, dispatch| {
        let rates = [12.0, 15.0, 20.0];
        let cameras = (0..n).map(|i: u32| SimCamera {
            starts: Timestamp::ZERO + MS * (7 * i),
            rate: rates[i as usize % rates.len()],
            ..camera(
                &format!("camera-{i}"),
                mbps([6.0, 20.0, 50.0][i as usize % 3]),
            )
        });
        let mut config = served(cameras.collect(), devices);
        config.noise = 0.02;
        // Batches of any size take 20 ms, and so many for each member.
        let times = |each: u32| (1..=8).map(|n| MS * (20 + each * n)).collect();
        let times = ModuleExecution::of_variants([2, 4, 7].map(times).to_vec());
        let planned = Arc::make_mut(&mut config.planned);
        planned.execution.set(ModuleId(1), times);
        let pipeline = Arc::make_mut(&mut config.pipeline);
        pipeline.policy.dispatch = dispatch;
        frames(config).all
    };
    for (n, devices) in [(40, 4), (64, 8)] {
        let pushed = of(n, devices, Some(DispatchPolicyName::EarliestStart));
        let pulled = of(n, devices, None);
        let goodput = |all: &CameraFigures| all.goodput_weighted.unwrap();
        assert!(
            goodput(&pulled) > 1.01 * goodput(&pushed),
            "{pulled:?} {pushed:?}"
        );
        assert!(pulled.miss_rate < 0.005, "{pulled:?}");
    }
}

/// From 20 to 3 Mbit/s at 30 s.
fn falls() -> BandwidthTrace {
    BandwidthTrace::parse("second,mbps\n0,20\n30,3\n60,3\n").unwrap()
}

#[test]
fn sizes_fall_within_a_few_frames_when_a_link_falls() {
    let whole = served(vec![camera("a", falls())], 1);
    let all = frames(whole.clone()).all;
    assert!(all.miss_rate < 0.01, "{all:?}");
    // Before it falls, and from six frames after that.
    let before = frames(SimConfig {
        duration: Duration::from_secs(30),
        ..whole.clone()
    });
    assert_eq!(before.all.side_mean, 512.0);
    let after = frames(SimConfig {
        warm_up: Duration::from_millis(30_300),
        ..whole
    });
    // 3 Mbit/s bear 150 kbit 20 times a second: 284 pixels.
    assert!(after.all.side_mean <= 284.0, "{:?}", after.all);
    assert!(after.all.side_mean >= 128.0, "{:?}", after.all);
    // What was under way is through first: a few frames are held back meanwhile, and none is late.
    assert!(after.all.unsent <= 6, "{:?}", after.all);
    assert_eq!(after.all.missed, after.all.unsent, "{:?}", after.all);
}

#[test]
fn a_camera_on_a_slow_link_makes_no_other_one_small() {
    let near = || camera("near", mbps(50.0));
    let alone = frames(served(vec![near()], 1));
    let beside = frames(served(vec![near(), camera("far", mbps(0.8))], 1));
    assert_eq!(alone.each[0].side_mean, 512.0);
    assert_eq!(beside.each[0].side_mean, 512.0, "{:?}", beside.each[0]);
    assert!(beside.each[1].side_mean < 150.0, "{:?}", beside.each[1]);
    for camera in &beside.each {
        assert!(camera.miss_rate < 0.01, "{camera:?}");
    }
}

#[test]
fn many_cameras_on_one_device_become_small_instead_of_late() {
    let cameras = |n: usize| -> Vec<SimCamera> {
        let one = |i: usize| SimCamera {
            starts: Timestamp::ZERO + MS * (7 * i as u32),
            ..camera(&format!("camera-{i}"), mbps(50.0))
        };
        (0..n).map(one).collect()
    };
    let few = frames(served(cameras(1), 1)).all;
    let many = frames(served(cameras(10), 1)).all;
    assert!(many.side_mean < 0.7 * few.side_mean, "{many:?}");
    assert!(many.miss_rate < 0.02, "{many:?}");
    // 200 frames a second are too many for the largest variant.
    let largest = frames(fixed(served(cameras(10), 1), 2)).all;
    assert!(largest.miss_rate > 0.5, "{largest:?}");
    assert!(many.goodput_weighted > largest.goodput_weighted);
}

#[test]
fn frames_are_held_back_while_a_link_stands_still_and_each_ends_once() {
    let still = BandwidthTrace::parse("second,mbps\n0,20\n20,0\n25,20\n60,20\n").unwrap();
    let all = frames(served(vec![camera("a", still)], 1)).all;
    assert_eq!(all.frames, 58 * 20);
    // Of the hundred frames of five seconds those of the first 150 ms are sent.
    assert!((90..=100).contains(&all.unsent), "{all:?}");
    assert!((95..=110).contains(&all.missed), "{all:?}");
}

#[test]
fn equal_seeds_give_equal_hashes_and_cameras_are_in_them() {
    let of = |seed, rate| {
        let config = SimConfig {
            noise: 0.1,
            seed,
            ..served(vec![camera("a", mbps(rate)), camera("b", falls())], 2)
        };
        run(config).unwrap()
    };
    assert_eq!(of(1, 20.0), of(1, 20.0));
    assert_ne!(of(1, 20.0).trace_hash, of(2, 20.0).trace_hash);
    assert_ne!(of(1, 20.0).trace_hash, of(1, 21.0).trace_hash);
}

#[test]
fn cameras_of_a_gateway_that_is_down_miss_and_those_of_others_do_not() {
    let config = served(vec![camera("a", mbps(20.0)), camera("b", mbps(20.0))], 2);
    let down = Disturbance::GatewayDown(GatewayId(1));
    let up = Disturbance::GatewayUp(GatewayId(1));
    let at = |s: u64| Timestamp::ZERO + Duration::from_secs(s);
    let report = frames(SimConfig {
        gateways: vec![0.5; 2],
        disturbances: vec![(at(20), down), (at(30), up)],
        ..config
    });
    assert!(report.each[0].miss_rate < 0.01, "{:?}", report.each[0]);
    let missed = report.each[1].missed;
    assert!((190..240).contains(&missed), "{:?}", report.each[1]);
}

#[test]
fn cameras_are_served_beside_other_requests() {
    let mut config = served(vec![camera("a", mbps(20.0))], 2);
    config.arrivals = arrivals(Arrivals::Constant, 10.0, config.duration, 1).into();
    let report = run(config).unwrap();
    let cameras = report.cameras.as_ref().expect("it has cameras");
    assert_eq!(cameras.all.frames, 58 * 20);
    assert_eq!(report.requests, 58 * 20 + 58 * 10);
    assert_eq!(ended(&report), report.requests);
    assert!(report.drop_rate < 0.01 && cameras.all.miss_rate < 0.01);
}
