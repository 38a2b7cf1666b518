//! A greedy client without an SLO beside ordinary ones: these lose little, and it gets what is idle.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use spillgate_recipes::placements;

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

/// Of these requests the first `n` are of others, the rest of the greedy client.
fn ran(world: &World, all: &[Ask], n: usize) -> Ran {
    let ran = |i: &usize| matches!(world.answers[*i][0], Answer::Ran(_));
    let in_time = (0..n).filter(|i| ran(i) && world.ended[*i] <= all[*i].deadline);
    Ran {
        in_time: in_time.count() as f64 / n as f64,
        greedy: (n..all.len()).filter(ran).count(),
    }
}

fn serve(name: PlacementPolicy, load: f64, greedy: f64, background_time: Duration) -> Ran {
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
    ran(&world, &all, n)
}

// Over five seconds: 24 simulated runs.
#[test]
fn others_lose_little_beside_a_greedy_client_without_an_slo() {
    for name in placements::ALL {
        for load in [0.3, 0.6] {
            let short = ms(SLO) / 10;
            let alone = serve(name, load, 0.0, short);
            let beside = serve(name, load, 2.0, short);
            let long = serve(name, load, 2.0, Duration::MAX);
            let line = format!(
                "{} load {load}: in time {:.4} alone, {:.4} beside {}, {:.4} beside {} in long batches",
                name.name(),
                alone.in_time,
                beside.in_time,
                beside.greedy,
                long.in_time,
                long.greedy
            );
            println!("{line}");
            assert!(beside.in_time > alone.in_time - 0.005, "{line}");
            assert!(beside.greedy > 0, "{line}");
            // They would lose more.
            assert!(long.in_time < alone.in_time - 0.01, "{line}");
        }
    }
}

/// Models that others ask for, all in memory, and those that only a client without an SLO asks for.
const HOT: u16 = 10;
const COLD: u16 = 20;

/// Requests for models that are in memory, of which `asked_for` are asked for, beside a client without an SLO that has `each` requests for each
/// model that is not. The part of the others' requests that are in time, and how many of the client's ran.
fn serve_cold(name: PlacementPolicy, pages: u32, asked_for: u16, each: u64) -> Ran {
    let models = (0..HOT + COLD).map(|_| model(1, 10, 1)).collect();
    let mut config = world_of(&[pages], models);
    config.devices[0].resident = (0..u32::from(HOT)).map(WeightsId).collect();
    config.background_time = ms(3);
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let hot = (0..400).map(|i| Ask {
        member: rng.random_range(0..asked_for),
        ..ask(i * 10, 30)
    });
    let mut all: Vec<Ask> = hot.collect();
    let n = all.len();
    for member in HOT..HOT + COLD {
        all.extend((0..each).map(|i| Ask {
            member,
            deadline: Timestamp::MAX,
            ..ask(1000 + i, 0)
        }));
    }
    let members: Vec<u32> = (0..u32::from(HOT + COLD)).collect();
    let worker = FleetWorker {
        background: 1000,
        ..worker(0, &members)
    };
    let ends = Event::Close(DropReason::Draining);
    let world = World::new(name, &config, vec![worker], SOUND, &all);
    let world = world.with(at(10_000), ends).run();
    ran(&world, &all, n)
}

#[test]
fn requests_without_a_deadline_load_models_only_where_nobody_uses_the_memory() {
    for name in placements::ALL {
        let alone = serve_cold(name, u32::from(HOT), HOT, 0);
        let full = serve_cold(name, u32::from(HOT), HOT, 16);
        let spare = serve_cold(name, u32::from(HOT) + 1, HOT, 16);
        let unused = serve_cold(name, u32::from(HOT), HOT - 1, 16);
        let line = format!(
            "{}: in time {:.4} alone; {:.4} beside {} in memory that is used, {:.4} beside {} with a page to spare, {:.4} beside {} with an \
             unused model",
            name.name(),
            alone.in_time,
            full.in_time,
            full.greedy,
            spare.in_time,
            spare.greedy,
            unused.in_time,
            unused.greedy
        );
        println!("{line}");
        assert!(alone.in_time > 0.99, "{line}");
        assert_eq!(full.greedy, 0, "{line}");
        assert!(full.in_time >= alone.in_time, "{line}");
        for beside in [spare, unused] {
            assert!(beside.in_time > alone.in_time - 0.005, "{line}");
            assert_eq!(beside.greedy, usize::from(COLD) * 16, "{line}");
        }
    }
}
