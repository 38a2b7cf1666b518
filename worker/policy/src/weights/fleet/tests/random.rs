use proptest::prelude::*;

use super::*;
use spillgate_recipes::placements;

fn config() -> impl Strategy<Value = PlacementConfig> {
    let one =
        (1..4u32, 1..9u64, 1..5u64).prop_map(|(pages, load, alone)| model(pages, load, alone));
    let models = prop::collection::vec(one, 3..5);
    let resident = prop::option::of((0..3u32).prop_map(WeightsId));
    let devices = prop::collection::vec((2..7u32, resident), 1..4);
    let travel = prop_oneof![Just(0), Just(100), Just(1500)];
    (models, devices, travel, any::<bool>()).prop_map(|(models, devices, travel, shares)| {
        let pages: Vec<u32> = devices.iter().map(|(pages, _)| *pages).collect();
        let mut config = world_of(&pages, models);
        config.travel = Duration::from_micros(travel);
        if shares {
            config.models[1].weights = WeightsId(0);
        }
        for (spec, (_, resident)) in config.devices.iter_mut().zip(devices) {
            spec.resident.extend(resident);
        }
        config
    })
}

/// Workers 0 and 1 share model 0; worker 2 has a family.
fn workers() -> impl Strategy<Value = Vec<FleetWorker>> {
    let one = (1..6usize, 0..5u64);
    prop::collection::vec(one, 3).prop_map(|of| {
        let models: [&[u32]; 3] = [&[0], &[0], &[0, 1, 2]];
        let of = of.into_iter().zip(models).enumerate();
        of.map(|(i, ((capacity, downstream), models))| FleetWorker {
            by_variant: false,
            capacity,
            background: capacity + 1,
            downstream: ms(downstream),
            ..worker(i as u32, models)
        })
        .collect()
    })
}

fn asks() -> impl Strategy<Value = Vec<Ask>> {
    let slo = prop_oneof![
        1 => Just(None),
        2 => (0..5_000u64).prop_map(Some),
        6 => (5_000..60_000u64).prop_map(Some),
    ];
    let one = (0..150_000u64, 0..3u32, 0..3u16, 0..4u16, slo);
    let one = one.prop_map(|(arrives, worker, gateway, member, slo)| {
        let arrives = Timestamp::ZERO + Duration::from_micros(arrives);
        let deadline = slo.map_or(Timestamp::MAX, |slo| arrives + Duration::from_micros(slo));
        Ask {
            at: arrives,
            worker: WorkerId(worker),
            id: None,
            gateway,
            // BatchItem 3 is none of the family.
            member: if worker == 2 { member } else { 0 },
            deadline,
        }
    });
    prop::collection::vec(one, 1..60)
}

fn events() -> impl Strategy<Value = Vec<(u64, u8, usize)>> {
    prop::collection::vec((0..20_000u64, 0..4u8, 0..60usize), 0..20)
}

fn hardware() -> impl Strategy<Value = Hardware> {
    let often = || prop_oneof![2 => Just(0.0), 1 => Just(0.3)];
    let deviation = prop_oneof![Just(1.0), Just(1.05), Just(3.0)];
    (any::<u64>(), often(), often(), deviation).prop_map(|(seed, refuses, fails, deviation)| {
        Hardware {
            seed,
            refuses,
            fails,
            deviation,
            ..SOUND
        }
    })
}

proptest! {
    /// The account in `world.rs` checks each command and each count; at the end, that each request has one answer.
    #[test]
    fn each_request_gets_exactly_one_answer(
        config in config(),
        workers in workers(),
        asks in asks(),
        events in events(),
        closes in prop::option::of(0..200u64),
        hardware in hardware(),
    ) {
        for name in placements::ALL {
            let mut world = World::new(name, &config, workers.clone(), hardware, &asks);
            for &(after, kind, i) in &events {
                let i = i % asks.len();
                let event = match kind {
                    0 => Event::Cancel(i),
                    1 => Event::Withdraw(i, DropReason::Superseded),
                    2 => Event::Lost(asks[i].gateway),
                    _ => Event::Breaks(i % config.devices.len(), after % 2 == 0),
                };
                world = world.with(asks[i].at + Duration::from_micros(after), event);
            }
            if let Some(closes) = closes {
                world = world.with(at(closes), Event::Close(DropReason::Draining));
            }
            world.run();
        }
    }
}
