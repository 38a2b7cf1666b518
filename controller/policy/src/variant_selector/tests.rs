use super::*;
use crate::uplink::ROUND_TRIP_MAX;
use spillgate_pipeline::clients::ClientKey;
use spillgate_pipeline::id::WorkerId;
use spillgate_pipeline::pipeline::Variant;
use spillgate_pipeline::policy::adapt::Constants;
use spillgate_pipeline::testing::noop_pipeline;

const MS: Duration = Duration::from_millis(1);
const SLO: Duration = Duration::from_millis(200);

fn at(ms: u32) -> Timestamp {
    Timestamp::ZERO + MS * ms
}

/// Three variants of inputs 100, 200 and 400.
fn selector(name: AdaptName) -> VariantSelector {
    let mut pipeline = noop_pipeline(SLO, &[&[0]], &[]);
    let variant = |(input, accuracy)| Variant {
        model: "a.pt".to_owned(),
        input: Some(input),
        accuracy: Some(accuracy),
    };
    pipeline.modules[1].variants = [(100, 0.5), (200, 0.7), (400, 0.8)].map(variant).to_vec();
    VariantSelector::new(
        Adapt::new(pipeline.modules[1].id, name),
        &pipeline.modules[1],
        0,
        1,
    )
}

/// One device whose requests take 5, 10 and 20 ms, one at a time.
fn outlook() -> Outlook {
    Outlook {
        batch: 1,
        execution: vec![MS * 5, MS * 10, MS * 20],
        by_size: [5, 10, 20].map(|ms| vec![MS * ms]).to_vec(),
        workers: vec![WorkerId(0)],
        devices: 1.0,
        pulls: false,
        part: 1.0,
        beside: 0.0,
        rest: Duration::ZERO,
    }
}

/// Each stream asks for so many requests a second for that many periods, after each of which variants are chosen.
fn run(selector: &mut VariantSelector, rates: &[u32], side: u32, periods: u32) -> Vec<f64> {
    let frame = FrameSize {
        side,
        source: side,
        bytes: 0,
    };
    let mut served = vec![(0, 0); rates.len()];
    for period in 0..periods {
        let start = at(500 * period);
        for (i, rate) in rates.iter().enumerate() {
            let key = StreamKey(i as u64);
            for _ in 0..rate / 2 {
                selector.asked(start, (key, ClientKey(1)), frame, SLO);
                let variant = selector.choose(key, frame);
                if period > periods / 2 {
                    served[i].0 += u32::from(variant.0);
                    served[i].1 += 1;
                }
            }
        }
        selector.decide(start + PERIOD, &outlook());
    }
    let means = served
        .iter()
        .map(|(sum, n)| f64::from(*sum) / f64::from((*n).max(1)));
    means.collect()
}

#[test]
fn streams_get_what_the_device_can_serve() {
    let ours = |rates: &[u32]| run(&mut selector(AdaptName::Spillgate), rates, 0, 12);
    assert_eq!(ours(&[20]), [2.0]);
    // 97 of each 100 ms: all of the second variant, and of the third as much as fits.
    let [mean] = ours(&[60])[..] else { panic!() };
    assert!((mean - (1.0 + 0.37 / 0.6)).abs() < 0.03, "{mean}");
    // Even the smallest is too much.
    assert_eq!(ours(&[400]), [0.0]);
    // Each for itself: two streams together ask for more than there is.
    let greedy = run(&mut selector(AdaptName::Greedy), &[40, 40], 0, 12);
    assert_eq!(greedy, [2.0, 2.0]);
}

#[test]
fn a_frame_gets_no_larger_variant_than_holds_it() {
    for (side, variant) in [(90, 0.0), (100, 0.0), (101, 1.0), (200, 1.0), (1920, 2.0)] {
        let means = run(&mut selector(AdaptName::Spillgate), &[10], side, 6);
        assert_eq!(means, [variant], "{side}");
    }
}

#[test]
fn lost_requests_make_variants_smaller_and_their_absence_larger_again() {
    let mut selector = selector(AdaptName::Spillgate);
    let key = StreamKey(1);
    let mut step = |n: u32, losses: u32| {
        let now = at(500 * n);
        for _ in 0..20 {
            selector.asked(now, (key, ClientKey(1)), FrameSize::default(), SLO);
        }
        for _ in 0..losses {
            selector.lost();
        }
        selector.decide(now + PERIOD, &outlook());
        selector.part()
    };
    let parts: Vec<f64> = (0..4).map(|n| step(n, 5)).collect();
    assert!(parts.windows(2).all(|pair| pair[1] < pair[0]), "{parts:?}");
    let later: Vec<f64> = (4..80).map(|n| step(n, 0)).collect();
    assert_eq!(later.last(), Some(&Constants::USUAL.part_max));
    // One in a hundred is usual.
    assert_eq!(step(80, 0), Constants::USUAL.part_max);
}

#[test]
fn at_most_so_many_streams_are_told_apart_and_silent_ones_are_forgotten() {
    let mut selector = selector(AdaptName::Spillgate);
    for i in 0..3 * STREAMS_MAX as u64 {
        selector.asked(
            at(0),
            (StreamKey(i), ClientKey(1)),
            FrameSize::default(),
            SLO,
        );
    }
    assert_eq!(selector.len(), STREAMS_MAX + 1, "the others share a place");
    selector.decide(at(500), &outlook());
    assert_eq!(
        selector.choose(StreamKey(0), FrameSize::default()),
        VariantId(0)
    );
    assert_eq!(
        selector.choose(StreamKey(2 * STREAMS_MAX as u64), FrameSize::default()),
        VariantId(0)
    );
    selector.decide(at(6000), &outlook());
    assert!(selector.is_empty());
    assert_eq!(selector.decides_at(), None);
}

#[test]
fn a_new_stream_begins_as_small_as_the_others_are() {
    let mut selector = selector(AdaptName::Spillgate);
    assert_eq!(
        selector.choose(StreamKey(9), FrameSize::default()),
        VariantId(2),
        "nobody else is there"
    );
    run(&mut selector, &[150], 0, 4);
    selector.asked(
        at(2000),
        (StreamKey(9), ClientKey(1)),
        FrameSize::default(),
        SLO,
    );
    assert_eq!(
        selector.choose(StreamKey(9), FrameSize::default()),
        VariantId(0)
    );
}

/// A hopeless deadline is its client's own doing.
#[test]
fn a_stream_that_no_variant_fits_makes_no_newcomer_small() {
    let mut selector = selector(AdaptName::Spillgate);
    let frame = FrameSize::default();
    for n in 0..5 {
        selector.asked(at(n), (StreamKey(1), ClientKey(1)), frame, MS);
    }
    selector.decide(at(500), &outlook());
    assert_eq!(selector.choose(StreamKey(1), frame), VariantId(0));
    assert_eq!(selector.choose(StreamKey(2), frame), VariantId(2));
}

#[test]
fn small_changes_switch_no_stream_unless_they_last() {
    let mut selector = selector(AdaptName::Spillgate);
    let mut chosen = Vec::new();
    for period in 0..40 {
        let rate = if period < 12 { 60 } else { 59 };
        for n in 0..rate / 2 {
            let now = at(500 * period + n);
            selector.asked(now, (StreamKey(1), ClientKey(1)), FrameSize::default(), SLO);
        }
        selector.decide(at(500 * (period + 1)), &outlook());
        chosen.push(selector.streams[0].choice);
    }
    assert_eq!(chosen[11], chosen[13]);
    let part = |period: usize| chosen[period].better.map(|(_, part)| part);
    assert!(part(39) > part(11), "{:?} {:?}", part(11), part(39));
    let changes = chosen[14..].windows(2).filter(|pair| pair[0] != pair[1]);
    assert!(changes.count() <= 4);
}

/// A camera of 400 pixels that adapts: 20 frames a second of 80 kbit, over a link of that many bits a second.
fn asked_over(bandwidth: f64, least_side: u32) -> (VariantSelector, Vec<Asked>) {
    let mut selector = selector(AdaptName::Spillgate);
    selector.least_side = least_side;
    let frame = FrameSize {
        side: 400,
        source: 400,
        bytes: 10_000,
    };
    let mut asked = Vec::new();
    for period in 0..6 {
        for _ in 0..10 {
            selector.asked(at(500 * period), (StreamKey(1), ClientKey(1)), frame, SLO);
        }
        let round_trip = MS * 10;
        let link = UplinkReport {
            bandwidth,
            round_trip,
        };
        selector.heard(at(500 * period), StreamKey(1), link);
        selector.decide(at(500 * period + 500), &outlook());
        asked.extend(selector.news().into_iter().map(|(_, asked)| asked));
    }
    (selector, asked)
}

#[test]
fn a_client_is_told_a_size_that_its_link_bears_and_its_deadline_allows() {
    let side = |bandwidth| asked_over(bandwidth, 0).1.last().map(|asked| asked.side);
    assert_eq!(side(100e6), Some(400));
    // 20 frames of 80 kbit need more than 1.6 Mbit/s, and take 160 ms at 0.5 Mbit/s.
    assert_eq!(side(1.5e6), Some(200));
    assert_eq!(side(0.3e6), Some(100));
    // It bears frames of 25 kbit, which take 42 ms; 80 kbit would take 133 of 200 ms.
    assert_eq!(side(0.6e6), Some(200));
    // Nothing fits: the smallest.
    assert_eq!(side(1e4), Some(100));
}

#[test]
fn a_client_is_told_once_and_again_only_when_it_changes() {
    let (mut selector, asked) = asked_over(100e6, 0);
    assert_eq!(asked.len(), 1);
    assert!(selector.news().is_empty());
}

#[test]
fn another_module_bounds_how_small_frames_become() {
    let (_, asked) = asked_over(1.5e6, 300);
    let last = asked.last().expect("it was told");
    assert_eq!((last.side, last.variant), (300, VariantId(1)));
}

#[test]
fn a_report_that_cannot_be_true_is_not_believed() {
    let mut selector = selector(AdaptName::Spillgate);
    selector.asked(
        at(0),
        (StreamKey(1), ClientKey(1)),
        FrameSize::default(),
        SLO,
    );
    for bandwidth in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let round_trip = Duration::MAX;
        let link = UplinkReport {
            bandwidth,
            round_trip,
        };
        selector.heard(at(0), StreamKey(1), link);
        assert_eq!(selector.streams[0].uplink, None);
    }
    let absurd = UplinkReport {
        bandwidth: 1e12,
        round_trip: Duration::MAX,
    };
    selector.heard(at(0), StreamKey(1), absurd);
    let believed = selector.streams[0].uplink.expect("it is bounded");
    assert_eq!(
        (believed.bandwidth, believed.round_trip),
        (1e10, ROUND_TRIP_MAX)
    );
    // One that sends nothing is not known.
    selector.heard(at(0), StreamKey(2), absurd);
    assert_eq!(selector.len(), 1);
}

/// Seven cameras of 4 frames a second beside a client that asks for that many: what the cameras are served with, and the part that may be planned.
fn beside(flood: u32, streams: u64) -> (Vec<VariantId>, f64) {
    let mut selector = selector(AdaptName::Spillgate);
    let frame = FrameSize::default();
    for period in 0..20 {
        for n in 0..50 {
            let now = at(500 * period + 10 * n);
            for stream in (0..7).filter(|_| n % 25 == 0) {
                selector.asked(now, (StreamKey(stream), ClientKey(stream)), frame, SLO);
            }
            for i in 0..u64::from(flood / 100) {
                let key = StreamKey(100 + i % streams);
                selector.asked(now, (key, ClientKey(100)), frame, SLO);
                // The gate refuses nearly all of them.
                if i > 0 {
                    selector.refused(key);
                }
            }
        }
        selector.decide(at(500 * period + 500), &outlook());
    }
    let chosen = (0..7).map(|stream| selector.choose(StreamKey(stream), frame));
    (chosen.collect(), selector.part())
}

#[test]
fn a_client_that_floods_makes_no_others_variants_small() {
    let (alone, part) = beside(0, 1);
    assert_eq!(
        (alone, part),
        (vec![VariantId(2); 7], Constants::USUAL.part_max)
    );
    for streams in [1, 5, 20] {
        let (beside, part) = beside(2_000, streams);
        assert_eq!(beside, [VariantId(2); 7], "{streams}");
        assert_eq!(
            part,
            Constants::USUAL.part_max,
            "what is refused of the flood is not lost"
        );
    }
}

/// Streams of clients of their own, by requests in each half second of a second; the choices when the second is over.
fn alternating(halves: [&[u32]; 2]) -> Vec<VariantId> {
    let mut selector = selector(AdaptName::Spillgate);
    for period in 0..40 {
        for (i, n) in halves[period % 2].iter().enumerate() {
            let of = (StreamKey(i as u64), ClientKey(i as u64));
            for _ in 0..*n {
                selector.asked(at(500 * period as u32), of, FrameSize::default(), SLO);
            }
        }
        selector.decide(at(500 * (period as u32 + 1)), &outlook());
    }
    selector
        .streams
        .values()
        .map(|c| c.choice.variant)
        .collect()
}

#[test]
fn a_burst_finds_the_variants_that_bear_it() {
    // One device bears 50 requests a second of the largest variant, 100 of the middle one and 200 of the smallest.
    let evenly = alternating([&[10, 10], &[10, 10]]);
    assert_eq!(evenly, [VariantId(2); 2]);
    let bursts = alternating([&[40, 40], &[0, 0]]);
    assert!(bursts.iter().all(|v| *v < VariantId(2)), "{bursts:?}");
    // They are planned for where they come from.
    for n in [40, 200, 2_000] {
        let one = alternating([&[n, 5], &[0, 5]]);
        assert!(one[0] < VariantId(2) && one[1] > VariantId(0), "{one:?}");
    }
}
