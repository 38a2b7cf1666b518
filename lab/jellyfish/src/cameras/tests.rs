use std::time::Duration;

use spillgate_camera::bandwidth::BandwidthTrace;
use spillgate_controller_policy::adaptation::Variant;
use spillgate_pipeline::policy::AdaptName;
use spillgate_sim::network::synthetic;

use super::*;
use crate::adaptation::{AdaptiveVariant, Method};

/// The profile of the reference by its law, without its bump on the three smallest: 16 variants from 128 to 608 pixels.
pub(super) fn zoo() -> Zoo {
    let sizes: Vec<u32> = (4..20).map(|i| 32 * i).collect();
    let variant = |r: &u32| {
        let r = f64::from(*r);
        let each = 3.0 + 4.75e-5 * (r * r - 128.0 * 128.0);
        let time = |b: u32| Duration::from_secs_f64((20.0 + f64::from(b) * each) * 1e-3);
        AdaptiveVariant {
            variant: Variant {
                accuracy: 0.495 - 0.827 * (-r / 124.2).exp(),
                execution: (1..=8).map(time).collect(),
            },
            frame_bits: r * r * 3.0 / 1024.0 / 5.0 * 8e3,
        }
    };
    Zoo::new(sizes.iter().map(variant).collect(), sizes).unwrap()
}

fn cameras(n: usize, rate: f64, slo_ms: u64) -> Vec<CameraKind> {
    let slo = Duration::from_millis(slo_ms);
    vec![CameraKind { rate, slo }; n]
}

fn setting(rates: BandwidthTrace, cameras: Vec<CameraKind>) -> LoopSetting {
    LoopSetting {
        counted: Duration::from_secs(20),
        ..LoopSetting::new(zoo(), rates, cameras)
    }
}

#[test]
fn a_steady_link_is_served_without_misses() {
    let contenders = [Method::Spillgate, Method::Jellyfish, Method::Greedy];
    for method in contenders {
        let contender = Contender::Adapted(method);
        let setting = setting(BandwidthTrace::constant(20e6), cameras(2, 15.0, 100));
        let report = run(&setting, contender).unwrap();
        assert_eq!(report.frames, 2 * 20 * 15, "{method:?}");
        assert_eq!(report.miss_rate(), 0.0, "{method:?}: {report:?}");
        assert!(report.f1 > 0.6, "{method:?}: {report:?}");
        assert!(report.p99_ms < 100.0 && report.p50_ms > 40.0, "{report:?}");
    }
}

#[test]
fn the_lowest_variant_is_always_in_time_and_the_highest_is_not() {
    let run_fixed = |variant| {
        let cameras = cameras(4, 25.0, 75);
        run(&setting(synthetic(), cameras), Contender::Fixed(variant)).unwrap()
    };
    let [low, high] = [0, 15].map(run_fixed);
    assert!(low.miss_rate() < 0.01, "{low:?}");
    assert!((low.f1 - 0.334).abs() < 1e-9, "{low:?}");
    assert!(high.miss_rate() > 0.4, "{high:?}");
}

#[test]
fn variants_follow_a_link_that_changes() {
    let contender = Contender::Adapted(Method::Jellyfish);
    let rates =
        BandwidthTrace::parse("second,mbps\n0,25\n1,25\n2,25\n3,25\n4,16\n5,16\n6,16\n7,16\n")
            .unwrap();
    let report = run(&setting(rates, cameras(2, 15.0, 100)), contender).unwrap();
    assert!(report.switches >= 4, "{report:?}");
    assert!(report.miss_rate() < 0.1, "{report:?}");
    let used = report.served.iter().filter(|n| **n > 0).count();
    assert!(used > 1, "{report:?}");
}

#[test]
fn a_camera_of_ours_holds_frames_back_while_its_link_stands_still() {
    let rates = BandwidthTrace::parse("second,mbps\n0,20\n4,0\n6,20\n10,20\n").unwrap();
    let [ours, authors] = [Method::Spillgate, Method::Jellyfish].map(|method| {
        let contender = Contender::Adapted(method);
        run(&setting(rates.clone(), cameras(1, 25.0, 100)), contender).unwrap()
    });
    assert!(ours.unsent >= 40, "of fifty: {ours:?}");
    assert_eq!(authors.unsent, 0, "{authors:?}");
    // What was sent during the two seconds queues, and makes what follows late.
    assert!(ours.miss_rate() < authors.miss_rate(), "{ours:?}");
    assert_eq!(ours.frames, authors.frames, "each ends once");
}

#[test]
fn with_more_variants_cached_more_switches_hit() {
    let hits = [1, 5].map(|n_cached| {
        let contender = Contender::Adapted(Method::Jellyfish);
        let rates =
            BandwidthTrace::parse("second,mbps\n0,25\n1,20\n2,16\n3,13\n4,10\n5,8\n").unwrap();
        let setting = LoopSetting {
            n_cached,
            ..setting(rates, cameras(2, 15.0, 100))
        };
        run(&setting, contender)
            .unwrap()
            .hit_rate()
            .expect("it switches")
    });
    assert!(hits[0] < 0.5 && hits[1] > 0.6, "{hits:?}");
}

#[test]
fn equal_settings_give_equal_reports_and_seeds_count() {
    let of = |seed| {
        let contender = Contender::Adapted(Method::Spillgate);
        let mut setting = setting(synthetic(), cameras(4, 25.0, 100));
        setting.counted = Duration::from_secs(10);
        setting.seed = seed;
        run(&setting, contender).unwrap()
    };
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
}

#[test]
fn a_camera_that_nobody_can_serve_misses_all() {
    let contender = Contender::Adapted(Method::Jellyfish);
    let setting = setting(BandwidthTrace::constant(20e6), cameras(1, 15.0, 40));
    let report = run(&setting, contender);
    let report = report.unwrap();
    assert_eq!(report.unserved, report.frames, "{report:?}");
}

/// One variant for all: the loop and what serves are two programs for one thing.
#[test]
fn what_serves_agrees_with_the_loop_where_one_variant_serves() {
    let middle = zoo().middle();
    let rates = || BandwidthTrace::constant(40e6);
    for (n, fps, slo_ms) in [(1, 25.0, 75), (2, 15.0, 75), (2, 25.0, 100), (4, 15.0, 100)] {
        let setting = setting(rates(), cameras(n, fps, slo_ms));
        for variant in [0, middle] {
            let looped = run(&setting, Contender::Fixed(variant)).unwrap();
            let served = serve(&setting, Way::Fixed(variant)).unwrap();
            assert_eq!(looped.frames, served.frames);
            let said = format!("{n} {fps} {slo_ms} {variant}: {looped:?} {served:?}");
            let missed = [&looped, &served].map(CamerasReport::miss_rate);
            assert!((missed[0] - missed[1]).abs() < 0.01, "{said}");
            assert!((looped.f1 - served.f1).abs() < 1e-3, "{said}");
            assert!((looped.p50_ms - served.p50_ms).abs() < 1.0, "{said}");
        }
    }
}

#[test]
fn what_serves_adapts_to_links_and_equal_seeds_are_equal() {
    let setting = setting(synthetic(), cameras(4, 15.0, 100));
    let of = |name| serve(&setting, Way::Adapt(name)).unwrap();
    let ours = of(AdaptName::Spillgate);
    assert!(ours.miss_rate() < 0.01 && ours.f1 > 0.65, "{ours:?}");
    assert!(ours.utilisation > 0.3, "{ours:?}");
    assert_eq!(ours, of(AdaptName::Spillgate));
    let bound = of(AdaptName::Jellyfish);
    assert!(bound.f1 < ours.f1, "{bound:?}");
}

#[test]
fn a_bad_list_of_variants_says_why() {
    let zoo = zoo();
    let (variants, sizes) = (zoo.variants().to_vec(), zoo.sizes().to_vec());
    let count = Zoo::new(variants.clone(), sizes[1..].to_vec());
    let expected = BadZoo::Count {
        variants: 16,
        sizes: 15,
    };
    assert_eq!(count, Err(expected));
    let mut swapped = sizes.clone();
    swapped.swap(3, 4);
    assert_eq!(Zoo::new(variants.clone(), swapped), Err(BadZoo::Order(4)));
    let mut lacking = variants;
    lacking[2].variant.execution.clear();
    assert_eq!(Zoo::new(lacking, sizes), Err(BadZoo::Empty(2)));
}
