use super::*;

fn ms(ms: u64) -> Timestamp {
    Timestamp::ZERO + span(ms)
}

fn span(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A picture of so many bytes, in the size that is wanted.
fn frame(camera: &CameraPolicy, number: u64, bytes: usize) -> CameraFrame {
    let side = camera.wanted().unwrap_or(640);
    CameraFrame {
        number,
        source: (640, 640),
        size: (side, side),
        bytes,
    }
}

/// A camera of 25 frames a second whose reports are answered at once over 10 ms there and back.
fn camera() -> CameraPolicy {
    let mut camera = CameraPolicy::new(25.0, span(200));
    let report = camera.report(ms(0));
    let answer = ClockAnswer {
        reported: report.clock,
        came: ms(7005),
        written: ms(7005),
    };
    camera.answered(ms(10), &answer);
    camera
}

/// Hears at `now` that a frame came 5 ms before.
fn received(camera: &mut CameraPolicy, now: Timestamp, number: u64) {
    camera.received(now, number, now + span(7000 - 5));
}

#[test]
fn reports_are_due_at_once_and_then_four_times_a_second() {
    let mut camera = CameraPolicy::new(25.0, span(200));
    assert_eq!(camera.reports_at(), ms(0));
    let report = camera.report(ms(3));
    let expected = CameraReport {
        clock: ms(3),
        bandwidth: None,
        round_trip: None,
    };
    assert_eq!(report, expected);
    assert_eq!(camera.reports_at(), ms(253));
}

#[test]
fn frames_and_answers_tell_the_link_and_the_servers_clock() {
    let mut camera = camera();
    assert_eq!(camera.server_clock(ms(100)), Some(ms(7100)));
    // 25,000 bytes in 20 ms: 10 Mbit/s.
    camera.sent(ms(100), &frame(&camera, 0, 25_000));
    received(&mut camera, ms(130), 0);
    assert_eq!(camera.bandwidth(ms(130)).map(f64::round), Some(10e6));
    let report = camera.report(ms(140));
    assert_eq!(report.round_trip, Some(span(10)));
    assert_eq!(report.bandwidth, camera.bandwidth(ms(140)));
}

#[test]
fn frames_have_the_size_that_is_asked_for_until_the_link_bears_less() {
    let mut camera = camera();
    assert_eq!(camera.wanted(), None, "as they are");
    camera.asked(ms(20), 320);
    assert_eq!(camera.wanted(), Some(320));
    // 200 kbit at 25 frames a second, over a megabit a second.
    camera.sent(ms(100), &frame(&camera, 0, 25_000));
    received(&mut camera, ms(310), 0);
    assert!(camera.wanted() < Some(320), "{:?}", camera.wanted());
}

#[test]
fn a_frame_is_not_sent_while_those_before_it_wait_for_longer_than_it_may() {
    let mut camera = camera();
    camera.sent(ms(100), &frame(&camera, 0, 25_000));
    received(&mut camera, ms(130), 0);
    // 100 ms of a link of 10 Mbit/s each.
    camera.sent(ms(140), &frame(&camera, 1, 125_000));
    camera.sent(ms(141), &frame(&camera, 2, 125_000));
    assert_eq!(camera.stalls(ms(141)), None, "just as long");
    camera.sent(ms(142), &frame(&camera, 3, 125));
    assert!(camera.stalls(ms(142)) > Some(span(200)));
    received(&mut camera, ms(250), 1);
    assert_eq!(camera.stalls(ms(250)), None, "it goes on");
    // Of those that are out, one has been so for long.
    assert_eq!(camera.stalls(ms(342)), Some(span(201)));
    camera.came(3);
    assert_eq!(camera.stalls(ms(342)), None, "all have come");
}
