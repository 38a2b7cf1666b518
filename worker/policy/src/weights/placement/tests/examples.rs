use spillgate_pipeline::action::Work;
use spillgate_recipes::placements;

use super::*;

fn answered(world: &World) -> Vec<bool> {
    let stands = world.stands.iter();
    stands.map(|s| matches!(s, Stands::Answered(_))).collect()
}

/// The first INFER takes 80 ms in place of 4: more than the SLO.
fn after_an_outlier(name: PlacementPolicy) -> Vec<bool> {
    let mut config = world_of(&[4], vec![model(1, 5, 4)]);
    config.devices[0].resident = vec![WeightsId(0)];
    let hardware = Hardware {
        first: 20.0,
        ..SOUND
    };
    let asks: Vec<Ask> = (0..30).map(|i| ask(i * 100, 0, Some(50))).collect();
    answered(&World::new(name, &config, hardware, &asks).run())
}

#[test]
fn an_outlier_does_not_stop_a_model_for_good() {
    for name in [placements::CLOCKWORK_FIXED, PlacementPolicy::SPILLGATE] {
        let answered = after_an_outlier(name);
        assert!(answered.iter().all(|a| *a), "{}", name.name());
    }
}

#[test]
fn an_outlier_stops_a_model_for_good_in_clockwork_as_published() {
    let answered = after_an_outlier(PlacementPolicy::CLOCKWORK);
    assert!(answered[0] && answered[1..].iter().all(|a| !a));
}

#[test]
fn a_model_larger_than_any_cache_is_never_loaded_and_its_requests_end_at_their_time() {
    let config = world_of(&[4, 3], vec![model(5, 5, 4), model(2, 5, 4)]);
    let asks = [ask(1, 0, Some(50)), ask(2, 1, Some(50)), ask(3, 0, None)];
    for name in placements::ALL {
        let world = World::new(name, &config, SOUND, &asks).run();
        let kept_back = name.recipe().kept_back;
        // 51 ms less the 4 ms that it takes alone.
        let ends = at(47) - kept_back + Duration::from_nanos(1);
        assert_eq!(world.stands[0], Stands::Cancelled(ends), "{}", name.name());
        assert!(answered(&world)[1], "{}", name.name());
        // Nothing could ever answer it.
        assert_eq!(world.stands[2], Stands::Cancelled(at(3)));
    }
}

#[test]
fn a_model_is_loaded_when_the_one_in_its_way_has_run() {
    // One place, two models. Model 1 is asked for while model 0 runs, for 1 ms. Nothing happens after that.
    let mut config = world_of(&[1], vec![model(1, 5, 1), model(1, 5, 1)]);
    config.devices[0].resident = vec![WeightsId(0)];
    for name in placements::ALL {
        for slo in [Some(50), None] {
            let mut second = ask(0, 1, slo);
            second.at = at(0) + Duration::from_micros(500);
            let asks = [ask(0, 0, Some(50)), second];
            let world = World::new(name, &config, SOUND, &asks).run();
            assert_eq!(answered(&world), [true, true], "{}", name.name());
        }
    }
}

#[test]
fn a_request_without_a_deadline_is_served_after_many_urgent_ones() {
    let config = world_of(&[1], vec![model(1, 5, 1)]);
    let mut asks: Vec<Ask> = (0..20).map(|i| ask(i, 0, Some(0))).collect();
    asks.insert(5, ask(5, 0, None));
    for name in placements::ALL {
        let world = World::new(name, &config, SOUND, &asks).run();
        assert!(answered(&world)[5], "{}", name.name());
    }
}

#[test]
fn a_load_that_fails_is_tried_again() {
    let config = world_of(&[1], vec![model(1, 5, 1)]);
    let hardware = Hardware {
        fails: 0.5,
        seed: 3,
        ..SOUND
    };
    let asks: Vec<Ask> = (0..20).map(|i| ask(i * 40, 0, Some(100))).collect();
    for name in placements::ALL {
        let world = World::new(name, &config, hardware, &asks).run();
        assert!(world.loads > 1, "{}", name.name());
        assert!(answered(&world)[19], "{}", name.name());
    }
}

#[test]
fn refused_requests_wait_again_where_the_recipe_says_so() {
    let mut config = world_of(&[1], vec![model(1, 5, 4)]);
    config.devices[0].resident = vec![WeightsId(0)];
    // The second request is sent behind a batch of 80 ms, and its window passes.
    let hardware = Hardware {
        first: 20.0,
        ..SOUND
    };
    let asks = [ask(0, 0, Some(1000)), ask(1, 0, Some(1000))];
    for name in placements::ALL {
        let world = World::new(name, &config, hardware, &asks).run();
        let is_refused = name == PlacementPolicy::CLOCKWORK;
        assert_eq!(answered(&world), [true, !is_refused], "{}", name.name());
    }
}

#[test]
fn a_late_batch_does_not_wake_the_placement_again_and_again() {
    // Behind the late batch lie five of 1 ms: just the time ahead for which clockwork sends.
    let mut config = world_of(&[1], vec![model(1, 5, 1)]);
    config.devices[0].resident = vec![WeightsId(0)];
    config.sizes = vec![1];
    config.models[0].execution.truncate(1);
    config.travel = Duration::ZERO;
    let hardware = Hardware {
        first: 20.0,
        ..SOUND
    };
    let asks: Vec<Ask> = (0..9).map(|_| ask(0, 0, Some(1000))).collect();
    for name in placements::ALL {
        let world = World::new(name, &config, hardware, &asks).run();
        assert!(world.wakeups < 50, "{}: {}", name.name(), world.wakeups);
    }
}

#[test]
fn a_link_with_time_to_spare_brings_what_is_asked_for_whatever_gives_way() {
    // Two models share one place. One is asked for every 40 ms, the other one five times less often. Both have time for a LOAD.
    let mut config = world_of(&[1], vec![model(1, 5, 1), model(1, 5, 1)]);
    config.devices[0].resident = vec![WeightsId(0)];
    let often = (0..100).map(|i| ask(i * 40, 0, Some(50)));
    let seldom = (0..20).map(|i| ask(i * 200 + 20, 1, Some(50)));
    let mut asks: Vec<Ask> = often.chain(seldom).collect();
    asks.sort_by_key(|ask| ask.at);
    for name in placements::ALL {
        let answered = answered(&World::new(name, &config, SOUND, &asks).run());
        assert!(answered.iter().all(|a| *a), "{}", name.name());
    }
}

#[test]
fn a_load_behind_a_slow_one_starts_late_in_place_of_being_refused() {
    // Eight models are asked for at once, and their LOADs take up to twice the 40 ms that are expected.
    let config = world_of(&[8], vec![model(1, 40, 1); 8]);
    let hardware = Hardware {
        deviation: 2.0,
        seed: 1,
        ..SOUND
    };
    let asks: Vec<Ask> = (0..8).map(|i| ask(0, i, Some(2000))).collect();
    let refused = |name| {
        let world = World::new(name, &config, hardware, &asks).run();
        assert!(answered(&world).iter().all(|a| *a), "{name:?}");
        world.refused_loads
    };
    assert_eq!(refused(PlacementPolicy::SPILLGATE), 0);
    // The window of Clockwork is 5 ms whatever a LOAD takes.
    assert!(refused(placements::CLOCKWORK_FIXED) > 0);
}

/// Tells a placement something, and gives the ids of the INFERs that it sends.
fn infers(placement: &mut Placement, now: Timestamp, event: PlacementEvent) -> Vec<ActionId> {
    let mut out = Vec::new();
    placement.on_event(now, event, &mut out);
    let infers = out.into_iter().filter_map(|command| match command {
        PlacementCommand::Do { action, .. } => {
            let is_batch = matches!(action.work, Work::Infer { .. });
            is_batch.then_some(action.id)
        }
        PlacementCommand::Cancel { .. } => None,
    });
    infers.collect()
}

#[test]
fn requests_of_a_refused_action_still_ask_for_their_model() {
    let mut config = world_of(&[1], vec![model(1, 5, 4)]);
    config.devices[0].resident = vec![WeightsId(0)];
    for name in [placements::CLOCKWORK_FIXED, PlacementPolicy::SPILLGATE] {
        let mut placement = Placement::new(name, config.clone());
        let arrived = PlacementEvent::Arrived {
            request: RequestId(0),
            model: ModelId(0),
            deadline: at(100),
        };
        let sent = infers(&mut placement, at(0), arrived);
        let asked = placement.demands.demand(WeightsId(0));
        assert!(asked > 0.0, "{}", name.name());
        let refused = PlacementEvent::Inferred {
            device: DeviceId(0),
            action: sent[0],
            ended: Ended::Refused,
        };
        // It goes again, and counts as before.
        let again = infers(&mut placement, at(1), refused);
        assert_eq!(again.len(), 1, "{}", name.name());
        let still = placement.demands.demand(WeightsId(0));
        assert!((still - asked).abs() < 1e-9, "{}: {still}", name.name());
        let ran = PlacementEvent::Inferred {
            device: DeviceId(0),
            action: again[0],
            ended: Ended::Ran {
                at: at(5),
                took: ms(4),
            },
        };
        assert!(infers(&mut placement, at(5), ran).is_empty());
        assert_eq!(placement.demands.demand(WeightsId(0)), 0.0);
    }
}

#[test]
fn an_old_price_does_not_hold_off_a_load_on_an_idle_device() {
    // Model 1 takes all of a device's time that it gets: at the price of the busy time no request of it is worth its LOAD.
    let mut config = world_of(&[1], vec![model(1, 5, 4), model(1, 5, 40)]);
    config.devices[0].resident = vec![WeightsId(0)];
    let mut placement = Placement::new(PlacementPolicy::SPILLGATE, config);
    let weight = placement.recipe.constants.price_weight;
    for _ in 0..1000 {
        placement.devices[0].note_price(1.0 / 4e6, weight);
    }
    assert_eq!(placement.devices[0].price(), 0.0);
    let mut out = Vec::new();
    let arrived = PlacementEvent::Arrived {
        request: RequestId(0),
        model: ModelId(1),
        deadline: at(1000),
    };
    placement.on_event(at(0), arrived, &mut out);
    let is_load = |command: &PlacementCommand| {
        let PlacementCommand::Do { action, .. } = command else {
            return false;
        };
        action.work == Work::Load(WeightsId(1))
    };
    assert!(out.iter().any(is_load), "{out:?}");
}

#[test]
fn an_event_weighs_for_one_device_and_the_others_follow_at_once() {
    let models = vec![model(1, 5, 4), model(1, 5, 4)];
    let config = world_of(&[1, 1], models);
    let mut placement = Placement::new(PlacementPolicy::SPILLGATE, config);
    let just_after = Duration::from_nanos(1);
    let mut out = Vec::new();
    let arrived = |model| PlacementEvent::Arrived {
        request: RequestId(u64::from(model)),
        model: ModelId(model),
        deadline: at(1000),
    };
    placement.on_event(at(0), arrived(0), &mut out);
    assert_eq!(out.len(), 1, "{out:?}");
    assert_eq!(placement.next_wakeup(at(0)), Some(at(0) + just_after));
    placement.on_event(at(0), arrived(1), &mut out);
    let loads = out.iter().map(|command| match command {
        PlacementCommand::Do { device, action } => (*device, action.work.clone()),
        PlacementCommand::Cancel { .. } => panic!("{command:?}"),
    });
    let mut loads: Vec<_> = loads.collect();
    loads.sort_by_key(|(device, _)| *device);
    let load = |weights| Work::Load(WeightsId(weights));
    let devices = loads.iter().map(|(device, _)| device.0);
    assert_eq!(devices.collect::<Vec<u16>>(), [0, 1]);
    assert!(loads.iter().any(|(_, work)| *work == load(0)));
    assert!(loads.iter().any(|(_, work)| *work == load(1)));
    // Wake-ups that follow at once end when each device was looked at.
    let mut now = at(0);
    for _ in 0..3 {
        match placement.next_wakeup(now) {
            Some(next) if next == now + just_after => now = next,
            _ => return,
        }
        placement.on_event(now, PlacementEvent::Wakeup, &mut out);
    }
    panic!("it wakes up for ever");
}

/// A device holds two models that are asked for alike; all its time goes to the second one.
fn with_a_model_in_need(is_short: bool) -> Placement {
    let mut config = world_of(&[2], vec![model(1, 5, 4), model(1, 5, 4)]);
    config.is_fair = true;
    config.devices[0].resident = vec![WeightsId(0), WeightsId(1)];
    let mut placement = Placement::new(PlacementPolicy::SPILLGATE, config);
    let fairness = placement.fairness.as_mut().expect("shares are fair");
    let asks = if is_short { 100 } else { 10 };
    for i in 0..10 {
        fairness.advance(at(i * 100), 1);
        for model in [0, 1] {
            (0..asks).for_each(|_| fairness.arrived(ModelId(model)));
        }
        fairness.sent(ModelId(1), Duration::from_millis(100), 25);
    }
    placement.rates.arrived(at(900), ModelId(0));
    (0..2).for_each(|_| placement.rates.arrived(at(900), ModelId(1)));
    placement
}

#[test]
fn a_model_that_got_less_than_its_share_gives_way_last() {
    let first = |placement: &Placement| placement.giving_way(DeviceId(0)).next();
    // The first model has the lower rate.
    assert_eq!(first(&with_a_model_in_need(false)), Some(WeightsId(0)));
    assert_eq!(first(&with_a_model_in_need(true)), Some(WeightsId(1)));
}

#[test]
fn models_that_run_with_the_same_weights_need_one_load() {
    // One cache holds the weights of one model. Two models have the same, a third one has its own.
    for name in placements::ALL {
        let mut config = world_of(&[1], vec![model(1, 5, 4), model(1, 5, 8), model(1, 5, 4)]);
        config.models[1].weights = WeightsId(0);
        let by_turns = (0..20).map(|i| ask(i * 20, (i % 2) as u32, Some(60)));
        let asks: Vec<Ask> = by_turns.collect();
        let world = World::new(name, &config, SOUND, &asks).run();
        assert_eq!(world.loads, 1, "{}", name.name());
        let in_time = |s: &Stands| matches!(s, Stands::Answered(_));
        assert!(world.stands.iter().all(in_time), "{}", name.name());
        // What needs weights of its own takes the place of both.
        let other = [ask(500, 2, Some(60)), ask(600, 1, Some(60))];
        let asks: Vec<Ask> = asks.into_iter().chain(other).collect();
        let world = World::new(name, &config, SOUND, &asks).run();
        assert_eq!(world.loads, 3, "{}", name.name());
        assert!(world.stands.iter().all(in_time), "{}", name.name());
    }
}

#[test]
fn a_model_with_fewer_batch_sizes_than_others_is_loaded() {
    let mut config = world_of(&[2], vec![model(1, 5, 4), model(1, 5, 4)]);
    config.models[1].execution.truncate(1);
    let asks: Vec<Ask> = (0..8).map(|_| ask(0, 1, Some(100))).collect();
    let world = World::new(PlacementPolicy::SPILLGATE, &config, SOUND, &asks).run();
    let in_time = |s: &Stands| matches!(s, Stands::Answered(_));
    assert!(world.stands.iter().all(in_time), "{:?}", world.stands);
}

/// Three models with weights of a page each and room for two. The first is asked for each 20 ms, the second is its neighbour.
fn with_a_neighbour(others: impl Iterator<Item = Ask>) -> World {
    let mut config = world_of(&[2], vec![model(1, 5, 4), model(1, 5, 4), model(1, 5, 4)]);
    config.models[0].neighbours = vec![ModelId(1)];
    config.devices[0].resident = vec![WeightsId(0), WeightsId(2)];
    let asks = (0..20).map(|i| ask(i * 20, 0, Some(60)));
    // Its LOAD alone would take longer than it has.
    let cold = ask(450, 1, Some(6));
    let asks: Vec<Ask> = others.chain(asks).chain([cold]).collect();
    World::new(PlacementPolicy::SPILLGATE, &config, SOUND, &asks).run()
}

#[test]
fn weights_of_the_next_variant_are_read_ahead() {
    let world = with_a_neighbour(std::iter::empty());
    assert_eq!(world.loads, 1);
    let in_time = |s: &Stands| matches!(s, Stands::Answered(_));
    assert!(world.stands.iter().all(in_time), "{:?}", world.stands);
}

#[test]
fn what_is_asked_for_does_not_give_way_for_the_next_variant() {
    let world = with_a_neighbour((0..20).map(|i| ask(i * 20, 2, Some(60))));
    assert_eq!(world.loads, 0);
    let (cold, others) = world.stands.split_last().expect("requests");
    assert!(matches!(cold, Stands::Cancelled(_)), "{cold:?}");
    let in_time = |s: &Stands| matches!(s, Stands::Answered(_));
    assert!(others.iter().all(in_time), "{others:?}");
}

#[test]
fn a_model_whose_device_was_slow_for_a_while_runs_again() {
    let mut config = world_of(&[1], vec![model(1, 5, 4)]);
    config.devices[0].resident = vec![WeightsId(0)];
    let mut placement = Placement::new(PlacementPolicy::SPILLGATE, config);
    let ms = Duration::from_millis;
    for size in &mut placement.executions[0] {
        (0..10).for_each(|_| size.observe(Timestamp::ZERO, ms(500)));
    }
    let mut commands = Vec::new();
    let mut ask = |at_ms: u64| {
        commands.clear();
        let arrived = PlacementEvent::Arrived {
            request: RequestId(at_ms),
            model: ModelId(0),
            deadline: at(at_ms + 50),
        };
        placement.on_event(at(at_ms), arrived, &mut commands);
        commands.clone()
    };
    // The first one is given up; the next one runs.
    let cancelled = PlacementCommand::Cancel {
        request: RequestId(1),
    };
    assert_eq!(ask(1), [cancelled]);
    assert!(matches!(ask(2)[..], [PlacementCommand::Do { .. }]));
}
