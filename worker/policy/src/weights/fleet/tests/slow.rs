//! LOADs that take far longer than expected, and more cold models than fit.

use super::*;
use spillgate_recipes::placements;

/// A request of a family's member at worker 0.
fn ask_for(member: u16, arrives: u64, slo: u64) -> Ask {
    Ask {
        member,
        ..ask(arrives, slo)
    }
}

/// A worker of a family, with room for all requests.
fn family(models: &[u32]) -> Vec<FleetWorker> {
    vec![FleetWorker {
        by_variant: false,
        capacity: 1000,
        ..worker(0, models)
    }]
}

fn ran(answer: &Answer) -> bool {
    matches!(answer, Answer::Ran(_))
}

#[test]
fn a_load_that_takes_a_hundred_times_as_long_delays_no_other_model_and_hangs_nothing() {
    let mut config = world_of(&[4], vec![model(1, 5, 4), model(1, 5, 4)]);
    config.devices[0].resident = vec![WeightsId(0)];
    // The LOAD of model 1 ends at half a second.
    let mut asks = vec![ask_for(1, 0, 100)];
    asks.extend((0..50).map(|i| ask_for(0, 10 * i, 50)));
    asks.push(ask_for(1, 700, 1000));
    for name in placements::ALL {
        let world = World::new(name, &config, family(&[0, 1]), SOUND, &asks);
        let world = world.with(at(0), Event::Slows(0, 100)).run();
        let answers = world.only_answers();
        let name = name.name();
        assert_eq!(
            answers[0],
            Answer::Dropped(DropReason::Predicted),
            "{name}: what waits for the LOAD is given up"
        );
        assert!(world.ended[0] <= at(100), "{name}: by its deadline");
        for (ask, (answer, ended)) in asks.iter().zip(answers.iter().zip(&world.ended)).skip(1) {
            assert!(ran(answer), "{name}: {ask:?} {answer:?}");
            assert!(*ended <= ask.deadline, "{name}: {ask:?} {ended}");
        }
        assert_eq!(world.loads, [1], "{name}: it is not read again");
    }
}

#[test]
fn all_requests_cold_at_once_are_served_as_far_as_the_link_goes_and_the_others_given_up_in_time() {
    const MODELS: u32 = 40;
    let config = world_of(&[4], vec![model(1, 5, 1); MODELS as usize]);
    let all: Vec<u32> = (0..MODELS).collect();
    let asks: Vec<Ask> = (0..MODELS).map(|i| ask_for(i as u16, 0, 100)).collect();
    for name in placements::ALL {
        let world = World::new(name, &config, family(&all), SOUND, &asks).run();
        let answers = world.only_answers();
        let served = answers.iter().filter(|a| ran(a)).count();
        let name = name.name();
        // The link reads 20 models of 5 ms by the deadline; the last is read too late to run.
        assert!((10..20).contains(&served), "{name}: {served}");
        for (answer, ended) in answers.iter().zip(&world.ended) {
            let given_up = *answer == Answer::Dropped(DropReason::Predicted);
            assert!(ran(answer) || given_up, "{name}: {answer:?}");
            assert!(*ended <= at(100), "{name}: {answer:?} at {ended}");
        }
    }
}
