use super::*;

fn ms(ms: u64) -> Timestamp {
    Timestamp::ZERO + span(ms)
}

fn span(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The server's clock is this far ahead of the client's.
const AHEAD: Duration = Duration::from_secs(5);

/// Exchanges clocks at `at` over ways that take so long there and back.
fn exchange(link: &mut UplinkEstimate, at: Timestamp, there: Duration, back: Duration) {
    let report = link.report(at);
    let came = at + there + AHEAD;
    let answer = ClockAnswer {
        reported: report.clock,
        came,
        written: came + span(1),
    };
    link.answered(at + there + span(1) + back, &answer);
}

/// Hears at `now` that a frame came half a round trip before.
fn received(link: &mut UplinkEstimate, now: Timestamp, number: u64) {
    let way = link.round_trip().unwrap_or_default() / 2;
    link.received(now, number, now - way + AHEAD);
}

fn of_round_trip(round_trip: Duration) -> UplinkEstimate {
    let mut link = UplinkEstimate::default();
    exchange(&mut link, ms(0), round_trip / 2, round_trip / 2);
    link
}

#[test]
fn nothing_is_known_of_a_new_link() {
    let mut link = UplinkEstimate::default();
    assert_eq!(link.bandwidth(ms(5)), None);
    assert_eq!((link.round_trip(), link.server_clock(ms(5))), (None, None));
    assert_eq!(link.longest_out(ms(5)), Duration::ZERO);
    let report = link.report(ms(5));
    assert_eq!((report.bandwidth, report.round_trip), (None, None));
    // A frame that came before the first exchange of clocks says nothing.
    link.sent(ms(6), 0, 1000);
    received(&mut link, ms(9), 0);
    assert_eq!(link.bandwidth(ms(9)), None);
    assert_eq!(link.bits_out(), 0.0);
}

#[test]
fn a_frames_bits_over_its_time_less_the_round_trip() {
    let mut link = of_round_trip(span(20));
    // 25,000 bytes in 20 ms of sending and 20 ms of round trip: 10 Mbit/s.
    link.sent(ms(100), 0, 25_000);
    received(&mut link, ms(140), 0);
    assert_eq!(link.bandwidth(ms(140)).map(f64::round), Some(10e6));
}

#[test]
fn frames_behind_each_other_each_count_their_own_time() {
    let mut link = of_round_trip(span(20));
    for n in 0..5 {
        link.sent(ms(100), n, 25_000);
    }
    assert_eq!(link.bits_out(), 1e6);
    for n in 0..5 {
        received(&mut link, ms(140 + 20 * n), n);
    }
    assert_eq!(link.bandwidth(ms(220)).map(f64::round), Some(10e6));
    assert_eq!(link.waits(ms(220)), span(0));
    link.sent(ms(220), 5, 125_000);
    assert_eq!(link.waits(ms(220)), span(100), "a megabit");
}

#[test]
fn the_mean_is_the_harmonic_one_of_the_last_three() {
    let mut link = of_round_trip(span(0));
    let mut now = ms(1000);
    let mut send = |link: &mut UplinkEstimate, number: u64, takes: u64| {
        link.sent(now, number, 125_000);
        now = now + span(takes);
        received(link, now, number);
        link.bandwidth(now).map(f64::round)
    };
    assert_eq!(send(&mut link, 0, 1000), Some(1e6));
    // 1 and 4 Mbit/s: 1.6, as a Mbit of each took 1.25 s together.
    assert_eq!(send(&mut link, 1, 250), Some(1.6e6));
    assert_eq!(send(&mut link, 2, 250), Some(2e6));
    assert_eq!(send(&mut link, 3, 250), Some(4e6), "the first is forgotten");
}

#[test]
fn what_an_acknowledgement_meets_on_its_way_does_not_count() {
    let mut link = of_round_trip(span(20));
    for n in 0..4u64 {
        let sent = 100 * (n + 1);
        link.sent(ms(sent), n, 25_000);
        // It was there 30 ms after it was sent, which is known at times that differ.
        link.received(ms(sent + 40 + 15 * n), n, ms(sent + 30) + AHEAD);
        assert_eq!(link.bandwidth(ms(sent + 95)).map(f64::round), Some(10e6));
    }
}

#[test]
fn ways_that_differ_there_and_back_do_not_harm_the_bandwidth() {
    for there in [0, 5, 15, 20] {
        let mut link = UplinkEstimate::default();
        exchange(&mut link, ms(0), span(there), span(20 - there));
        link.sent(ms(100), 0, 25_000);
        link.received(ms(140), 0, ms(120 + there) + AHEAD);
        assert_eq!(link.bandwidth(ms(140)).map(f64::round), Some(10e6));
    }
}

#[test]
fn a_clock_that_cannot_be_gives_way_to_the_acknowledgement() {
    // Before it was sent, after it is known, and before the server's clock began.
    for clock in [
        ms(99) + AHEAD,
        ms(141) + AHEAD,
        Timestamp::ZERO,
        Timestamp::MAX,
    ] {
        let mut link = of_round_trip(span(20));
        link.sent(ms(100), 0, 25_000);
        link.received(ms(140), 0, clock);
        assert_eq!(link.bandwidth(ms(140)).map(f64::round), Some(10e6));
    }
}

#[test]
fn what_the_link_has_carried_by_now_waits_no_more() {
    let mut link = of_round_trip(span(20));
    link.sent(ms(100), 0, 25_000);
    received(&mut link, ms(140), 0);
    // 20 ms of the link each.
    for n in 1..4 {
        link.sent(ms(200), n, 25_000);
    }
    let waiting = |link: &UplinkEstimate, at| (link.bits_waiting(ms(at)) / 1e3).round();
    assert_eq!(waiting(&link, 200), 600.0);
    assert_eq!(waiting(&link, 210), 500.0);
    // Its acknowledgement is due at 240 ms: until then the second one is on the link.
    assert_eq!(waiting(&link, 239), 210.0);
    received(&mut link, ms(240), 1);
    assert_eq!(waiting(&link, 240), 200.0, "the third one and no more");
}

#[test]
fn a_link_that_stands_still_is_noticed_before_it_goes_on() {
    let mut link = of_round_trip(span(20));
    for n in 0..10 {
        link.sent(ms(100 * (n + 1)), n, 25_000);
        received(&mut link, ms(100 * (n + 1) + 40), n);
    }
    link.sent(ms(2000), 10, 25_000);
    assert_eq!(link.bandwidth(ms(2030)).map(f64::round), Some(10e6));
    let after_a_second = link.bandwidth(ms(3000)).unwrap();
    assert!(after_a_second < 2e6, "{after_a_second}");
    assert_eq!(link.longest_out(ms(3000)), span(1000));
    assert!(
        link.waits(ms(3000)) > span(100),
        "{:?}",
        link.waits(ms(3000))
    );
}

#[test]
fn a_frame_that_nobody_acknowledges_is_forgotten() {
    let mut link = of_round_trip(span(20));
    for n in 0..3 {
        link.sent(ms(1000 + n), n, 25_000);
    }
    link.came(1);
    assert_eq!(link.longest_out(ms(1500)), span(498));
    assert_eq!(
        link.longest_out(ms(1000) + OUT_LONGEST),
        OUT_LONGEST - span(2)
    );
    assert_eq!(link.longest_out(ms(1010) + OUT_LONGEST), span(0));
    link.sent(ms(1010) + OUT_LONGEST, 3, 1000);
    assert_eq!(link.bits_out(), 8000.0);
}

#[test]
fn clocks_are_compared_by_the_quickest_exchange() {
    let mut link = UplinkEstimate::default();
    exchange(&mut link, ms(10), span(300), span(10));
    let first = link.server_clock(ms(1000)).unwrap();
    assert_eq!(first, ms(1000) + AHEAD + span(145), "half of 290 ms off");
    exchange(&mut link, ms(500), span(10), span(10));
    assert_eq!(link.round_trip(), Some(span(20)));
    assert_eq!(link.server_clock(ms(1000)), Some(ms(1000) + AHEAD));
    for n in 0..EXCHANGES as u64 {
        exchange(&mut link, ms(1000 + n), span(25), span(25));
    }
    assert_eq!(link.round_trip(), Some(span(50)), "a way may become longer");
}

#[test]
fn answers_that_cannot_be_are_not_believed() {
    let mut link = UplinkEstimate::default();
    let reported = link.report(ms(100)).clock;
    let answer = |reported, came, written| ClockAnswer {
        reported,
        came: Timestamp::from_ns(came),
        written: Timestamp::from_ns(written),
    };
    link.answered(ms(120), &answer(Timestamp::from_ns(7), 1, 2));
    assert_eq!(link.round_trip(), None, "nobody asked");
    link.answered(ms(120), &answer(reported, 0, u64::MAX));
    assert_eq!(link.round_trip(), None, "it came before it was sent");
    let reported = link.report(ms(200)).clock;
    link.answered(ms(220), &answer(reported, 9, 3));
    assert_eq!(link.round_trip(), None, "written before it came");
    let reported = link.report(ms(300)).clock;
    link.answered(ms(320), &answer(reported, u64::MAX, u64::MAX));
    assert_eq!(link.server_clock(ms(400)), None, "beyond all clocks");
    received(&mut link, ms(400), 12);
    assert_eq!(link.bandwidth(ms(400)), None, "it was never sent");
}

#[test]
fn what_is_remembered_has_a_bound() {
    let mut link = of_round_trip(span(1));
    for n in 0..10_000 {
        link.sent(ms(n), n, 1000);
        link.report(ms(n));
    }
    assert_eq!(link.reports.len(), REPORTS_OUT_MAX);
    assert!(link.out.len() <= OUT_MAX);
    let waiting = link.out.len();
    // A frame that had no place is not waited for.
    received(&mut link, ms(20_000), 9_999);
    assert_eq!(
        (link.out.len(), link.bandwidth(ms(20_000))),
        (waiting, None)
    );
}
