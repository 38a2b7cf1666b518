//! How a device starts and ends.

use super::*;

#[test]
fn an_idle_device_stops() {
    let bench = start(&[Kind::Sound], &[0]);
    assert!(bench.threads.stop(SOON));
    assert!(!bench.device.is_alive());
}

#[test]
fn a_device_that_stops_reports_what_ran() {
    let bench = start(&[Kind::RunsAtGate], &[0]);
    bench.send(1, infer(0, 1));
    bench.expect([Seen::Runs(0, 1)]);
    let Bench {
        threads,
        seen,
        stage,
        ..
    } = bench;
    // Mostly once it stops; it reports the batch in either case.
    let opens = std::thread::spawn(move || {
        std::thread::sleep(MS * 50);
        stage.open();
    });
    assert!(threads.stop(SOON));
    opens.join().unwrap();
    let seen: Vec<Seen> = seen.try_iter().take(2).collect();
    assert_eq!(
        seen,
        [Seen::Ran(1, vec![Ok(vec![])]), Seen::Done(1, End::Ran)]
    );
}

#[test]
fn stop_leaves_a_busy_device_behind_at_its_limit() {
    for (kind, work) in [
        (Kind::RunsAtGate, infer(0, 1)),
        (Kind::ReadsAtGate, Work::Load(WeightsId(0))),
    ] {
        let resident: &[u32] = if kind == Kind::RunsAtGate { &[0] } else { &[] };
        let bench = start(&[kind], resident);
        bench.send(1, work);
        bench.next();
        let began = std::time::Instant::now();
        let Bench { threads, stage, .. } = bench;
        assert!(!threads.stop(MS * 30));
        assert!(began.elapsed() < SOON);
        stage.open();
    }
}

/// The start fails, and its threads let go of what they share.
fn cannot_start(kind: Kind, why: &str) {
    let (bench, stage) = try_start(&[Kind::Sound, kind], &[0, 1]);
    let error = bench.err().expect("it cannot start");
    assert_eq!(error.to_string(), why);
    let give_up = std::time::Instant::now() + SOON;
    while Arc::strong_count(&stage) > 1 {
        assert!(std::time::Instant::now() < give_up, "a thread stays");
        std::thread::sleep(MS);
    }
}

#[test]
fn a_start_whose_resident_model_cannot_be_read_is_an_error_and_no_thread_stays() {
    cannot_start(Kind::Unreadable, "its file is cut");
}

#[test]
fn a_start_whose_loader_panics_is_an_error_and_no_thread_stays() {
    cannot_start(Kind::PanicsReading, "loading panicked: told to");
}

#[test]
fn a_device_that_is_dropped_ends_its_threads() {
    let bench = start(&[Kind::Sound], &[0]);
    let stage = bench.stage.clone();
    drop(bench);
    let give_up = std::time::Instant::now() + SOON;
    while Arc::strong_count(&stage) > 1 {
        assert!(std::time::Instant::now() < give_up, "a thread stays");
        std::thread::sleep(MS);
    }
}
