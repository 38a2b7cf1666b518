use super::*;

const SOURCE: (u32, u32) = (640, 360);

fn ms(ms: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_millis(ms)
}

fn link(bandwidth: f64) -> UplinkNow {
    UplinkNow {
        bandwidth: Some(bandwidth),
        bits_waiting: 0.0,
    }
}

/// At 25 frames a second; its frames have 2 bits a pixel: 11.5 Mbit/s in full size.
fn chooser() -> SizeChooser {
    let mut chooser = SizeChooser::new(25.0);
    chooser.made(SOURCE, SOURCE, 640 * 360 * 2 / 8);
    chooser
}

#[test]
fn sizes_are_few() {
    let of = |top| sides(top).collect::<Vec<u32>>();
    assert_eq!(of(640), [640, 544, 448, 352, 288, 224, 160, 128, 96, 64]);
    assert_eq!(of(100), [100, 64]);
    assert_eq!(of(40), [40], "it is as it is");
}

#[test]
fn what_is_told_is_sent_where_the_link_bears_it() {
    let mut chooser = chooser();
    let fast = link(100e6);
    assert_eq!(chooser.choose(ms(0), fast), None, "as they are");
    chooser.told(320);
    assert_eq!(chooser.choose(ms(0), fast), Some(320), "at once");
    chooser.told(4000);
    assert_eq!(
        chooser.choose(ms(0), fast),
        Some(4000),
        "the source is smaller"
    );
    chooser.told(0);
    assert_eq!(chooser.choose(ms(0), fast), None);
    assert_eq!(
        chooser.choose(ms(0), UplinkNow::default()),
        None,
        "nothing is known of the link"
    );
}

#[test]
fn before_the_first_frame_what_is_told_is_chosen() {
    let mut chooser = SizeChooser::new(25.0);
    assert_eq!(chooser.choose(ms(0), link(1.0)), None);
    chooser.told(320);
    assert_eq!(chooser.choose(ms(0), link(1.0)), Some(320));
    chooser.made((0, 0), (0, 0), 10);
    assert_eq!(chooser.choose(ms(0), link(1.0)), Some(320));
}

#[test]
fn a_smaller_size_at_once_and_a_larger_one_after_a_while() {
    let mut chooser = chooser();
    // 544 x 306 take 8.8 Mbit/s.
    assert_eq!(chooser.choose(ms(0), link(11e6)), Some(544));
    assert_eq!(chooser.choose(ms(40), link(1e6)), Some(128));
    let rises: Vec<Option<u32>> = (2..60)
        .map(|n| chooser.choose(ms(n * 40), link(100e6)))
        .collect();
    assert!(
        rises[..12].iter().all(|side| *side == Some(128)),
        "{rises:?}"
    );
    assert_eq!(rises.last(), Some(&None));
}

#[test]
fn frames_that_just_fit_between_each_other_are_borne() {
    let mut chooser = chooser();
    assert_eq!(chooser.choose(ms(0), link(11.521e6)), None, "as they are");
    assert_eq!(chooser.choose(ms(40), link(11.519e6)), Some(544));
}

#[test]
fn a_larger_picture_has_fewer_bits_a_pixel() {
    let mut chooser = SizeChooser::new(25.0);
    // 2 bits a pixel, at which 640 x 360 took 11.5 Mbit/s; with 1.6 it takes 9.1.
    chooser.made(SOURCE, (320, 180), 320 * 180 * 2 / 8);
    assert_eq!(chooser.choose(ms(0), link(9.2e6)), None);
    assert_eq!(chooser.choose(ms(40), link(9.1e6)), Some(544));
}

#[test]
fn sizes_do_not_flap_where_the_bandwidth_wavers() {
    let mut chooser = chooser();
    let mut changes = 0;
    let mut last = chooser.choose(ms(0), link(12e6));
    for n in 1..1000u64 {
        // A tenth up and down.
        let wavers = 12e6 * (0.9 + 0.2 * (n % 7) as f64 / 6.0);
        let side = chooser.choose(ms(40 * n), link(wavers));
        changes += u32::from(side != last);
        last = side;
    }
    assert!(changes <= 1, "{changes} changes");
}

#[test]
fn what_waits_on_the_link_has_its_time_to_go() {
    let mut chooser = chooser();
    let behind = UplinkNow {
        bandwidth: Some(16e6),
        bits_waiting: 0.0,
    };
    assert_eq!(chooser.choose(ms(0), behind), None);
    let behind = UplinkNow {
        bits_waiting: 6e6,
        ..behind
    };
    let side = chooser.choose(ms(40), behind).unwrap();
    assert!(side < 544, "{side}");
}

#[test]
fn a_link_that_bears_nothing_gets_the_smallest() {
    let mut chooser = chooser();
    for bandwidth in [1e3, 0.0, f64::MIN_POSITIVE] {
        assert_eq!(chooser.choose(ms(0), link(bandwidth)), Some(64));
    }
    chooser.told(1);
    assert_eq!(
        chooser.choose(ms(0), link(0.0)),
        Some(64),
        "nobody asks for less in earnest"
    );
}
