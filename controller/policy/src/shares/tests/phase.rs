//! Streams of one client that send in step, beside a client that asks for less than its share: where its requests stand
//! between theirs must not matter.

use super::server::{Run, Sends, Source, run, run_by_rank, source};

/// Requests a second of each stream that sends in step.
const STEP: f64 = 10.0;
const SECONDS: f64 = 60.0;

/// A polite client whose requests stand so far behind those of the streams, as a part of their period.
fn beside(n_streams: u64, rate: f64, phase: f64) -> Vec<Source> {
    let polite = source(1, 1, Sends::Exactly(rate, phase * rate / STEP));
    let step = (0..n_streams).map(|i| source(2, i, Sends::Exactly(STEP, 0.0)));
    std::iter::once(polite).chain(step).collect()
}

/// All phases in tenths of a period. The two clients have 25 of 50 requests a second each, of which the polite one asks for
/// up to 0.8.
fn sweep(serve: impl Fn(&[Source], f64, f64, u64) -> Run) {
    let sum = |of: &[f64]| of.iter().sum::<f64>();
    let mut least = [f64::INFINITY; 2];
    for depth in [0.1, 0.2, 0.6] {
        for n_streams in [1, 4, 40, 100] {
            for rate in [5.0, 10.0, 15.0, 20.0] {
                for tenth in 0..10 {
                    let phase = f64::from(tenth) / 10.0;
                    let run = serve(&beside(n_streams, rate, phase), depth, SECONDS, 1);
                    let polite = run.with[0] / run.alone[0];
                    let total = sum(&run.with) / sum(&run.without);
                    let case = format!("{n_streams} streams, {rate}/s, phase {phase}, {depth} s");
                    assert!(polite >= 0.95, "{case}: polite {polite:.3}");
                    assert!(total >= 0.99, "{case}: total {total:.3}");
                    least = [least[0].min(polite), least[1].min(total)];
                }
            }
        }
    }
    println!(
        "streams in step: polite {:.3}, total {:.3}",
        least[0], least[1]
    );
}

// Over five seconds: 480 loads of a minute, of up to 1000 requests a second.
#[test]
fn a_polite_client_is_served_whatever_its_phase() {
    sweep(run);
}

// Over five seconds: 480 loads of a minute, of up to 1000 requests a second.
#[test]
fn a_polite_client_is_served_whatever_its_phase_where_ranks_are_served() {
    sweep(run_by_rank);
}

/// What the gate lends to streams of the only client, it lends to no neighbour's cost.
#[test]
fn cameras_of_one_client_are_served_where_ranks_are_served() {
    let camera = |i| source(1, i, Sends::Evenly(if i < 7 { 5.0 } else { 150.0 }));
    let sources: Vec<Source> = (0..8).map(camera).collect();
    for depth in [0.1, 0.2, 0.6] {
        for seed in 0..4 {
            let run = run_by_rank(&sources, depth, SECONDS, seed);
            for i in 0..7 {
                let part = run.with[i] / run.alone[i];
                assert!(
                    part >= 0.99,
                    "camera {i}, {depth} s, seed {seed}: {part:.3}"
                );
            }
        }
    }
}
