//! Fair shares of devices whose links are short, too.

use std::fmt::Write;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

const SECONDS: u32 = 15;
/// Requests a second of each model: half of them are seldom asked for.
const RATES: [u32; 2] = [10, 5];
const MODEL_COUNT: usize = 80;
/// Models for which the device has room.
const ROOM: u32 = 46;

/// One device that is asked for one and a half times what it can execute, by more models than it has room for.
fn seldom_asked_for(seed: u64) -> Scenario {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut models =
        "id,name,weights_mb,pages,load_ms,input_kb,output_kb,exec_ms_b1,exec_ms_b2\n".to_owned();
    let mut arrivals = Vec::new();
    for model in 0..MODEL_COUNT {
        writeln!(models, "{model},m{model},100,7,8.0,0,0,2.6,3.8").expect("a string grows");
        for _ in 0..RATES[model % 2] * SECONDS {
            arrivals.push((rng.random_range(0..SECONDS * 1_000_000), model));
        }
    }
    crowded(&models, arrivals, ROOM * 7, (5, SECONDS))
}

#[test]
fn models_that_are_seldom_asked_for_get_their_shares_where_links_are_short() {
    for seed in 0..2 {
        let scenario = seldom_asked_for(seed);
        let least = |is_fair: bool| {
            let (figures, _, _) = run(&scenario, PlacementPolicy::SPILLGATE, is_fair, false);
            figures.least_share.expect("models have enough requests")
        };
        let (without, with) = (least(false), least(true));
        assert!(without < 0.6, "{seed}: {without} without fair shares");
        assert!(with >= 0.8, "{seed}: {with} with fair shares");
    }
}
