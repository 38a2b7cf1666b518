//! Which weights give way where both memory and device time are short.

use std::fmt::Write;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

const SECONDS: u32 = 10;
const RATE: u32 = 600;
const MODEL_COUNT: usize = 200;
/// Models for which the device has room.
const ROOM: u32 = 40;
/// Load time, and execution times of batches of 1, 2, 4 and 8, of three sorts of models, ms.
const SORTS: [&str; 3] = [
    "4.73,0,0,3.56,6.38,9.60,16.35",
    "1.90,0,0,1.76,2.81,4.92,8.38",
    "0.51,0,0,0.96,1.85,4.04,4.54",
];

/// One device that is asked for more than it can execute, by more models than it has room for. The `n`-th model is asked for `1/n` times
/// as often as the first.
fn short_of_both(seed: u64) -> Scenario {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut models =
        "id,name,weights_mb,pages,load_ms,input_kb,output_kb,exec_ms_b1,exec_ms_b2,exec_ms_b4,exec_ms_b8\n"
            .to_owned();
    for model in 0..MODEL_COUNT {
        let sort = SORTS[model % SORTS.len()];
        writeln!(models, "{model},m{model},16,1,{sort}").expect("a string grows");
    }
    let parts: Vec<f64> = (1..=MODEL_COUNT).map(|n| 1.0 / n as f64).collect();
    let all: f64 = parts.iter().sum();
    let mut arrivals = Vec::new();
    for _ in 0..RATE * SECONDS {
        let mut at = rng.random_range(0.0..all);
        let drawn = parts.iter().position(|part| {
            at -= part;
            at < 0.0
        });
        let model = drawn.unwrap_or(MODEL_COUNT - 1);
        arrivals.push((rng.random_range(0..SECONDS * 1_000_000), model));
    }
    crowded(&models, arrivals, ROOM, (2, SECONDS))
}

#[test]
fn weights_that_requests_wait_for_do_not_give_way_for_others() {
    for seed in 0..3 {
        let scenario = short_of_both(seed);
        let figures = |name, is_fair| run(&scenario, name, is_fair, false).0;
        let on_demand = figures(PlacementPolicy::LRU, true);
        for is_fair in [true, false] {
            let ours = figures(PlacementPolicy::SPILLGATE, is_fair);
            println!(
                "{seed} {is_fair}: in time {:.3}, {} loads; lru {:.3}, {}",
                ours.share, ours.loads, on_demand.share, on_demand.loads
            );
            assert!(
                ours.share >= on_demand.share,
                "{seed} {is_fair}: {}",
                ours.share
            );
            assert!(
                ours.loads <= on_demand.loads,
                "{seed} {is_fair}: {}",
                ours.loads
            );
        }
    }
}
