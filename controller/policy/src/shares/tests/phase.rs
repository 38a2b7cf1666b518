//! Streams that send in step, beside a client that sends less than its share: where it stands between their bursts must not matter.

use super::server::{Sends, Source, run, source};

/// Requests a second of each stream that sends in step.
const STEP: f64 = 10.0;
const SECONDS: f64 = 60.0;

/// The part that a polite client keeps of what it gets alone, beside one client with so many streams.
fn kept(n_streams: u64, rate: f64, phase: f64, depth: f64) -> f64 {
    let polite = source(1, 1, Sends::Exactly(rate, phase * rate / STEP));
    let step = (0..n_streams).map(|i| source(2, i, Sends::Exactly(STEP, 0.0)));
    let sources: Vec<Source> = std::iter::once(polite).chain(step).collect();
    let run = run(&sources, depth, SECONDS, 1);
    run.with[0] / run.alone[0]
}

#[test]
fn a_polite_client_is_served_whatever_its_phase() {
    let mut worst = (f64::INFINITY, String::new());
    for depth in [0.1, 0.2, 0.6] {
        for n_streams in [1, 4, 40, 100] {
            for rate in [5.0, 10.0, 15.0, 20.0] {
                for tenth in 0..10 {
                    let phase = f64::from(tenth) / 10.0;
                    let kept = kept(n_streams, rate, phase, depth);
                    let case = format!("{n_streams} streams, {rate}/s, phase {phase}, {depth} s");
                    if kept < 0.95 {
                        println!("{case}: {kept:.3}");
                    }
                    if kept < worst.0 {
                        worst = (kept, case);
                    }
                }
            }
        }
    }
    println!("worst: {worst:?}");
    assert!(worst.0 >= 0.95, "{worst:?}");
}
