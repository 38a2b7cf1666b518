use spillgate_protocol::message::Arrival;
use spillgate_recipes::placements;

use super::*;

fn of_one_device(
    pages: u32,
    models: Vec<(placement::Weights, placement::Model)>,
) -> PlacementConfig {
    world_of(&[pages], models)
}

fn run(config: &PlacementConfig, workers: Vec<FleetWorker>, asks: &[Ask]) -> World {
    World::new(PlacementPolicy::SPILLGATE, config, workers, SOUND, asks).run()
}

fn ran(answer: &Answer) -> bool {
    matches!(answer, Answer::Ran(_))
}

/// One model that is there from the start; a batch of one takes 4 ms.
fn warm() -> PlacementConfig {
    let mut config = of_one_device(4, vec![model(1, 5, 4)]);
    config.devices[0].resident = vec![WeightsId(0)];
    config
}

#[test]
fn an_empty_fleet_has_no_work() {
    let world = run(&warm(), vec![worker(0, &[0])], &[]);
    let account = world.fleet.account(DeviceId(0));
    assert_eq!((account.batches, account.loads, account.cold), (0, 0, 0));
}

#[test]
fn a_cold_model_is_loaded_and_its_request_runs() {
    let config = of_one_device(4, vec![model(1, 5, 4)]);
    let world = run(&config, vec![worker(0, &[0])], &[ask(0, 100)]);
    assert!(ran(&world.answers[0][0]));
    let account = world.fleet.account(DeviceId(0));
    assert_eq!((account.batches, account.loads, account.cold), (1, 1, 1));
}

#[test]
fn a_request_beyond_the_capacity_of_its_worker_is_dropped() {
    let config = of_one_device(4, vec![model(1, 5, 4)]);
    let asks = [ask(0, 100); 10];
    let world = run(&config, vec![worker(0, &[0])], &asks);
    let full = Answer::Dropped(DropReason::QueueFull);
    let answers = world.only_answers();
    assert!(answers[..8].iter().all(ran));
    assert_eq!(answers[8..], [full.clone(), full]);
}

#[test]
fn workers_that_share_a_model_share_a_batch() {
    let config = of_one_device(4, vec![model(1, 5, 4)]);
    let mut other = ask(0, 100);
    other.worker = WorkerId(1);
    let workers = vec![worker(0, &[0]), worker(1, &[0])];
    let world = run(&config, workers, &[ask(0, 100), other]);
    assert!(ran(&world.answers[0][0]));
    assert_eq!(world.answers[0], world.answers[1]);
}

#[test]
fn a_request_that_waits_at_two_workers_is_kept_apart() {
    let config = of_one_device(4, vec![model(1, 5, 4)]);
    let mut asks = [ask(0, 100), ask(0, 100)];
    asks[0].id = Some(7);
    (asks[1].id, asks[1].worker) = (Some(7), WorkerId(1));
    let workers = vec![worker(0, &[0]), worker(1, &[0])];
    let world = World::new(PlacementPolicy::SPILLGATE, &config, workers, SOUND, &asks);
    let world = world.with(at(1), Event::Cancel(0)).run();
    assert_eq!(world.answers[0], [Answer::Forgotten]);
    assert!(ran(&world.answers[1][0]));
}

#[test]
fn the_time_of_the_modules_downstream_is_reserved() {
    // 4 ms of 20 are enough, of 3 are not.
    for (downstream, is_served) in [(10, true), (17, false)] {
        let of = FleetWorker {
            by_variant: false,
            downstream: ms(downstream),
            ..worker(0, &[0])
        };
        let world = run(&warm(), vec![of], &[ask(1, 20)]);
        let answer = &world.answers[0][0];
        assert_eq!(ran(answer), is_served, "{answer:?}");
        let given_up = *answer == Answer::Dropped(DropReason::Predicted);
        assert_eq!(given_up, !is_served);
    }
}

#[test]
fn a_request_without_a_deadline_has_nothing_reserved() {
    let of = FleetWorker {
        by_variant: false,
        downstream: ms(1000),
        ..worker(0, &[0])
    };
    let mut asks = [ask(1, 0)];
    asks[0].deadline = Timestamp::MAX;
    assert!(ran(&run(&warm(), vec![of], &asks).answers[0][0]));
}

#[test]
fn a_model_that_fits_nowhere_fails_its_requests_with_a_sentence() {
    let config = world_of(&[4, 3], vec![model(5, 5, 4)]);
    let world = run(&config, vec![worker(0, &[0])], &[ask(0, 100)]);
    let why = "its weights take more memory than any device has for weights";
    assert_eq!(world.answers[0], [Answer::Failed(why.to_owned())]);
}

#[test]
fn a_member_that_its_family_lacks_fails_with_a_sentence() {
    let mut asks = [ask(0, 100)];
    asks[0].member = 1;
    let world = run(&warm(), vec![worker(0, &[0])], &asks);
    let why = "its family has no such model";
    assert_eq!(world.answers[0], [Answer::Failed(why.to_owned())]);
}

#[test]
fn a_load_that_fails_answers_those_that_wait_and_is_tried_again_a_second_later() {
    let config = of_one_device(4, vec![model(1, 5, 4)]);
    // The LOAD fails at 5 ms; the last request comes more than a second later.
    let asks = [
        ask(0, 100),
        ask(3, 100),
        ask(500, 100),
        ask(1000, 100),
        ask(1010, 100),
    ];
    let workers = vec![worker(0, &[0])];
    let world = World::new(PlacementPolicy::SPILLGATE, &config, workers, SOUND, &asks);
    let world = world.with(at(0), Event::Breaks(0, true));
    let world = world.with(at(20), Event::Breaks(0, false)).run();
    let failed = Answer::Failed("its file is no model".to_owned());
    let answers = world.only_answers();
    assert!(answers[..4].iter().all(|a| *a == failed), "{answers:?}");
    assert!(ran(&answers[4]), "{answers:?}");
    // Nothing is read for those that come in between.
    assert_eq!(world.loads, [2]);
    assert_eq!(world.fleet.account(DeviceId(0)).failed_loads, 1);
}

#[test]
fn a_device_that_cannot_read_a_model_does_not_fail_requests_that_another_serves() {
    // Device 1 has no memory left, say. Device 0 has the model, and more requests than it can serve: a copy is wanted.
    let mut config = world_of(&[4, 4], vec![model(1, 5, 4)]);
    config.devices[0].resident = vec![WeightsId(0)];
    let asks: Vec<Ask> = (0..200).map(|i| ask(i, 60)).collect();
    for name in placements::ALL {
        let of = FleetWorker {
            by_variant: false,
            capacity: 1000,
            ..worker(0, &[0])
        };
        let world = World::new(name, &config, vec![of], SOUND, &asks);
        let world = world.with(at(0), Event::Breaks(1, true)).run();
        let failed = world.only_answers();
        let failed = failed.iter().filter(|a| matches!(a, Answer::Failed(_)));
        assert_eq!(failed.count(), 0, "{}", name.name());
        // It is not asked again and again.
        assert!(world.loads[1] <= 1, "{}: {:?}", name.name(), world.loads);
    }
}

#[test]
fn a_closed_fleet_rejects_what_waits_and_what_comes_and_ends_what_runs() {
    let asks = [ask(0, 100), ask(1, 100), ask(5, 100)];
    let workers = vec![worker(0, &[0])];
    let world = World::new(PlacementPolicy::SPILLGATE, &warm(), workers, SOUND, &asks);
    let world = world.with(at(2), Event::Close(DropReason::Draining)).run();
    let rejected = Answer::Dropped(DropReason::Draining);
    let answers = world.only_answers();
    assert!(ran(&answers[0]));
    assert_eq!(answers[1..], [rejected.clone(), rejected]);
}

#[test]
fn requests_of_a_lost_gateway_are_forgotten_and_others_stay() {
    let config = of_one_device(4, vec![model(1, 5, 4)]);
    let mut asks = [ask(0, 100), ask(0, 100)];
    asks[1].gateway = 1;
    let workers = vec![worker(0, &[0])];
    let world = World::new(PlacementPolicy::SPILLGATE, &config, workers, SOUND, &asks);
    let world = world.with(at(1), Event::Lost(0)).run();
    assert!(world.answers[0].is_empty());
    assert!(ran(&world.answers[1][0]));
}

#[test]
fn a_request_without_an_slo_is_given_up_when_its_time_is_over() {
    let config = of_one_device(4, vec![model(1, 5, 4)]);
    let placement = Placement::new(PlacementPolicy::SPILLGATE, config);
    let mut fleet = Fleet::new(placement, vec![worker(0, &[0])]);
    let request = |id, until| Request {
        background: true,
        ..Request::new(RequestId(id), at(0), at(until))
    };
    let arrival = |(id, until)| Arrival {
        worker: WorkerId(0),
        request: request(id, until),
        payload: (),
    };
    let mut arrivals: Vec<_> = [(1, 2_000), (2, 600_000)].map(arrival).into();
    let mut out = Vec::new();
    fleet.on_event(at(0), FleetEvent::Arrivals(&mut arrivals), &mut out);
    // The load of their model never ends.
    out.clear();
    assert!(
        fleet
            .next_wakeup(at(1_999))
            .is_some_and(|next| next <= at(2_000))
    );
    for now in [1_999, 2_000] {
        fleet.on_event(at(now), FleetEvent::Wakeup, &mut out);
    }
    let dropped = out.iter().filter_map(|command| match command {
        FleetCommand::Tell {
            message: ToGateway::Dropped { request, drop, .. },
            ..
        } => Some((request.0, drop.reason, drop.at)),
        _ => None,
    });
    let dropped: Vec<_> = dropped.collect();
    assert_eq!(dropped, [(1, DropReason::Expired, at(2_000))]);
    assert_eq!(fleet.waiting(WorkerId(0)), 1);
}
