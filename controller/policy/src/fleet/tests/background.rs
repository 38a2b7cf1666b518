//! A greedy client without an SLO beside ordinary ones: these lose little, and it gets what is idle.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

const SLO: u64 = 24;
const SECONDS: f64 = 5.0;
/// Requests of a batch at most. One of `n` takes `4 + n` ms.
const LARGEST: u32 = 16;

/// Two models on a device with room for both.
fn warm(background_time: Duration) -> PlacementConfig {
    let sizes: Vec<u32> = vec![1, 2, 4, 8, LARGEST];
    let execution: Vec<Duration> = sizes.iter().map(|n| ms(4 + u64::from(*n))).collect();
    let (weights, model) = model(1, 5, 5);
    let one = (weights, placement::Model { execution, ..model });
    let mut config = world_of(&[4], vec![one.clone(), one]);
    config.devices[0].resident = vec![WeightsId(0), WeightsId(1)];
    PlacementConfig {
        sizes,
        background_time,
        ..config
    }
}

/// Requests at random moments, at a part of what full batches serve.
fn asks(load: f64, seed: u64, deadline: impl Fn(Timestamp) -> Timestamp, member: u16) -> Vec<Ask> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let rate = load * f64::from(LARGEST) / 0.020;
    let mut second = 0.0;
    let times = std::iter::from_fn(|| {
        second += -(1.0 - rng.random::<f64>()).ln() / rate;
        (second < SECONDS).then(|| Timestamp::from_ns((second * 1e9) as u64))
    });
    let one = |at| Ask {
        at,
        deadline: deadline(at),
        member,
        ..ask(0, 0)
    };
    times.map(one).collect()
}

/// What the others get, and how many requests of the greedy client ran in all.
struct Ran {
    in_time: f64,
    greedy: usize,
}

fn serve(name: PlacementName, load: f64, greedy: f64, background_time: Duration) -> Ran {
    let mut all = asks(load, 1, |at| at + ms(SLO), 0);
    let n = all.len();
    all.extend(asks(greedy, 2, |_| Timestamp::MAX, 1));
    let worker = FleetWorker {
        by_variant: false,
        capacity: 1000,
        background: 64,
        ..worker(0, &[0, 1])
    };
    let world = World::new(name, &warm(background_time), vec![worker], SOUND, &all).run();
    let ran = |i: &usize| matches!(world.answers[*i][0], Answer::Ran(_));
    let in_time = (0..n).filter(|i| ran(i) && world.ended[*i] <= all[*i].deadline);
    Ran {
        in_time: in_time.count() as f64 / n as f64,
        greedy: (n..all.len()).filter(ran).count(),
    }
}

#[test]
fn others_lose_little_beside_a_greedy_client_without_an_slo() {
    for name in PlacementName::ALL {
        for load in [0.3, 0.6] {
            let short = ms(SLO) / 10;
            let alone = serve(name, load, 0.0, short);
            let beside = serve(name, load, 2.0, short);
            let long = serve(name, load, 2.0, Duration::MAX);
            let said = format!(
                "{} load {load}: in time {:.4} alone, {:.4} beside {}, {:.4} beside {} in long batches",
                name.name(),
                alone.in_time,
                beside.in_time,
                beside.greedy,
                long.in_time,
                long.greedy
            );
            println!("{said}");
            assert!(beside.in_time > alone.in_time - 0.005, "{said}");
            assert!(beside.greedy > 0, "{said}");
            // They would lose more.
            assert!(long.in_time < alone.in_time - 0.01, "{said}");
        }
    }
}
