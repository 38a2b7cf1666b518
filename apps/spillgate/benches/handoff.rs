//! How long an emulated device that has work stands still between two batches, in real time, and how late threads wake that sleep. It prints
//! and does not judge: other work on the machine delays both.

#[path = "../tests/it/support/chain.rs"]
mod chain;
#[path = "../tests/it/support/submission.rs"]
mod submission;

use std::time::Duration;

use spillgate_process::clock::{Clock, use_exact_timers};

use chain::hand_offs;

fn main() {
    let clock = Clock::start();
    for policy in ["spillgate, gate: 0", "pard"] {
        let gaps = hand_offs(policy, &clock, std::thread::sleep);
        print(&format!("hand-offs under {policy}"), &gaps);
    }
    use_exact_timers();
    let span = Duration::from_micros(3_300);
    let mut late: Vec<Duration> = (0..300)
        .map(|_| {
            let start = clock.now();
            clock.occupy(start, span);
            clock.now().since(start).saturating_sub(span)
        })
        .collect();
    late.sort_unstable();
    print("sleeps end late by", &late);
}

/// Quantiles of sorted durations.
fn print(what: &str, sorted: &[Duration]) {
    let at = |q: f64| sorted[((sorted.len() - 1) as f64 * q) as usize];
    println!(
        "{what}: {} of them, median {:?}, p90 {:?}, p99 {:?}",
        sorted.len(),
        at(0.5),
        at(0.9),
        at(0.99)
    );
}
