use proptest::prelude::*;

use super::*;
use spillgate_recipes::placements;

fn models() -> impl Strategy<Value = Vec<(Weights, Model)>> {
    let one =
        (1..5u32, 1..9u64, 1..5u64).prop_map(|(pages, load, alone)| model(pages, load, alone));
    prop::collection::vec(one, 3..7)
}

fn config() -> impl Strategy<Value = PlacementConfig> {
    let resident = prop::collection::vec(0..3u32, 0..3);
    // The smallest cache holds no model at all, a page less than the largest needs is usual.
    let devices = prop::collection::vec((0..9u32, resident), 1..4);
    let travel = prop_oneof![Just(0), Just(100), Just(1500)];
    let is_fair = any::<bool>();
    // Each model with the weights of which one; most have their own.
    let shares = prop::collection::vec(prop::option::weighted(0.3, 0..6usize), 7);
    let all = (models(), shares, devices, travel, is_fair);
    all.prop_map(|(models, shares, devices, travel, is_fair)| {
        let devices = devices.into_iter().map(|(pages, mut resident)| {
            resident.sort_unstable();
            resident.dedup();
            let resident = resident.into_iter().map(WeightsId).collect();
            DeviceSpec { pages, resident }
        });
        let mut config = PlacementConfig {
            devices: devices.collect(),
            travel: Duration::from_micros(travel),
            is_fair,
            background_time: ms(6),
            ..world_of(&[], models)
        };
        for (i, with) in shares.into_iter().enumerate().take(config.models.len()) {
            // Fewer sizes than others have.
            if i % 3 == 2 {
                config.models[i].execution.truncate(2);
            }
            if i % 2 == 1 {
                config.models[i].neighbours = vec![ModelId(i as u32 - 1)];
            }
            if let Some(with) = with {
                config.models[i].weights = WeightsId((with % config.weights.len()) as u32);
            }
        }
        config
    })
}

fn asks() -> impl Strategy<Value = Vec<Ask>> {
    let slo = prop_oneof![
        1 => Just(Some(0)),
        1 => Just(None),
        2 => (0..5_000u64).prop_map(Some),
        6 => (5_000..60_000u64).prop_map(Some),
    ];
    let leaves = prop_oneof![8 => Just(None), 1 => (0..20_000u64).prop_map(Some)];
    let one = (0..150_000u64, 0..6u32, slo, leaves);
    let one = one.prop_map(|(arrives, model, slo, leaves)| {
        let arrives = Timestamp::ZERO + Duration::from_micros(arrives);
        let after = |us| arrives + Duration::from_micros(us);
        Ask {
            at: arrives,
            model: ModelId(model),
            deadline: slo.map_or(Timestamp::MAX, after),
            leaves: leaves.map(after),
        }
    });
    prop::collection::vec(one, 0..80)
}

fn hardware() -> impl Strategy<Value = Hardware> {
    let often = || prop_oneof![2 => Just(0.0), 1 => Just(0.2)];
    let deviation = prop_oneof![Just(1.0), Just(1.05), Just(3.0)];
    let first = prop_oneof![4 => Just(1.0), 1 => Just(20.0)];
    (any::<u64>(), often(), often(), deviation, first).prop_map(
        |(seed, refuses, fails, deviation, first)| Hardware {
            seed,
            refuses,
            fails,
            deviation,
            first,
        },
    )
}

proptest! {
    /// The account in `world.rs` checks each command; here: all has ended.
    #[test]
    fn each_request_ends_and_the_rules_hold(config in config(), asks in asks(), hardware in hardware()) {
        let n = config.models.len() as u32;
        let asks: Vec<Ask> = asks.into_iter().map(|a| Ask { model: ModelId(a.model.0 % n), ..a }).collect();
        for name in placements::ALL {
            let world = World::new(name, &config, hardware, &asks).run();
            for (ask, stands) in asks.iter().zip(&world.stands) {
                let is_over = !matches!(stands, Stands::Unborn | Stands::Waiting | Stands::Sent);
                prop_assert!(is_over, "{}: {:?} is {:?}", name.name(), ask, stands);
            }
        }
    }
}
