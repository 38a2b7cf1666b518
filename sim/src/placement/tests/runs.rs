use std::fmt::Write;

use proptest::prelude::*;

use super::*;
use spillgate_recipes::placements;

/// Clockwork's `send_infer`, `send_load`, `exec` and `load`, with their moments in ms.
fn actions(log: &[Logged]) -> Vec<(u64, &'static str, u32, usize)> {
    let each = log.iter();
    let each = each.map(|l| (l.at.as_ns() / 1_000_000, l.event, l.model.0, l.size));
    each.collect()
}

#[test]
fn a_small_run_goes_as_computed_by_hand() {
    // The device holds the first model, and has room for one. A batch of one takes 4 ms, of two 6 ms; a LOAD takes 8 ms.
    // 0 ms: A (model 0) runs from 0 to 4.
    // 1 ms: B and C (model 0) come. The device is expected to be free at 4, within 5 ms: B is sent when it comes, alone, and
    //       runs from 4 to 8. C would start at 8, in 7 ms: it waits until 3 ms, is sent alone, and runs from 8 to 12.
    // 2 ms: D (model 1) comes, with 40 ms. Its model has to take the place of model 0, which has actions under way. C ends at 12,
    //       nothing needs model 0 then: it goes, and model 1 is read until 20. D runs from 20 to 24.
    // 3 ms: E (model 1) comes, with 10 ms. Even alone it cannot end by 13 after 9: cancelled then.
    let arrivals = "0,0,50\n0.001,0,50\n0.001,0,50\n0.002,1,40\n0.003,1,10\n";
    let scenario = scenario(system(), arrivals, "");
    let (figures, outcomes, log) = run(&scenario, PlacementPolicy::CLOCKWORK, true, true);
    let ends: Vec<End> = outcomes.iter().map(|o| o.end).collect();
    let latencies = [4, 7, 11, 22].map(|l| End::Answered(ms(l)));
    assert_eq!(ends[..4], latencies);
    assert_eq!(ends[4], End::Cancelled);
    assert_eq!(
        (figures.in_time, figures.cancelled, figures.loads),
        (4, 1, 1)
    );
    assert_eq!(
        actions(&log),
        [
            (0, "send_infer", 0, 1),
            (0, "exec", 0, 1),
            (1, "send_infer", 0, 1),
            (3, "send_infer", 0, 1),
            (4, "exec", 0, 1),
            (8, "exec", 0, 1),
            (12, "send_load", 1, 0),
            (12, "load", 1, 0),
            (20, "send_infer", 1, 1),
            (20, "exec", 1, 1),
        ]
    );
}

/// A LOAD takes 8 ms, and the request of the second model has 5.
#[test]
fn clockwork_reads_no_model_that_no_request_can_wait_for_and_the_repaired_one_does() {
    let scenario = scenario(system(), "0.050,1,5\n", "");
    for (policy, does) in [
        (PlacementPolicy::CLOCKWORK, &[][..]),
        (
            placements::CLOCKWORK_FIXED,
            &[(50, "send_load", 1, 0), (50, "load", 1, 0)],
        ),
    ] {
        let (_, outcomes, log) = run(&scenario, policy, true, true);
        assert_eq!(outcomes[0].end, End::Cancelled);
        assert_eq!(actions(&log), does, "{policy:?}");
    }
}

#[test]
fn closed_loop_clients_keep_their_requests_under_way_until_the_end() {
    // Two requests of model 0 at a time, of 100 ms in all. Both run as a batch of 6 ms where they are sent together.
    let scenario = scenario(system(), "", "0,2,50\n");
    for name in placements::ALL {
        let (figures, ends, _) = run(&scenario, name, true, false);
        assert!(ends.iter().all(|e| matches!(e.end, End::Answered(_))));
        assert_eq!(figures.in_time, ends.len());
        // As fast as one by one at least, and as batches of two at most, with those under way at the end.
        assert!(
            (25..=36).contains(&ends.len()),
            "{}: {}",
            name.name(),
            ends.len()
        );
    }
}

#[test]
fn a_client_whose_requests_end_as_they_come_asks_again_a_little_later() {
    // No batch ends within 1 ms: a request each ms, and none after 100 ms.
    let scenario = scenario(system(), "", "0,1,1\n");
    for name in placements::ALL {
        let (_, ends, _) = run(&scenario, name, true, false);
        assert!(
            (100..=102).contains(&ends.len()),
            "{}: {}",
            name.name(),
            ends.len()
        );
        assert!(ends.iter().all(|e| e.end == End::Cancelled));
    }
}

fn random() -> impl Strategy<Value = Scenario> {
    let arrivals = prop::collection::vec((0..60_000u32, 0..2u32, 0..80u32), 0..60);
    let clients = prop::collection::vec((0..2u32, 0..4u32, 0..60u32), 0..3);
    let net = prop_oneof![Just(0.0), Just(0.3)];
    let room = prop_oneof![Just(0u32), Just(7), Just(13), Just(14)];
    let noise = any::<bool>();
    (arrivals, clients, net, room, noise).prop_map(|(mut arrivals, clients, net, room, noise)| {
        arrivals.sort_unstable();
        let mut rows = String::new();
        for (us, model, slo) in arrivals {
            writeln!(rows, "{},{model},{slo}", f64::from(us) * 1e-6).expect("a string grows");
        }
        let mut asks = String::new();
        for (model, concurrency, slo) in clients {
            writeln!(asks, "{model},{concurrency},{slo}").expect("a string grows");
        }
        let mut system = System {
            gpus: 2,
            pages_per_gpu: room,
            net_ms: net,
            end_s: 0.05,
            initial: vec!["0".to_owned(), String::new()],
            ..system()
        };
        if noise {
            system.noise_sigma = 0.02;
            system.noise_spike_p = 0.05;
            system.noise_spike_ms = 40.0;
        }
        scenario(system, &rows, &asks)
    })
}

proptest! {
    #[test]
    fn equal_runs_are_equal_and_every_request_ends(scenario in random()) {
        for name in placements::ALL {
            let once = run(&scenario, name, true, true);
            prop_assert!(once.1.iter().all(|o| o.end != End::Open), "{}", name.name());
            prop_assert_eq!(&once, &run(&scenario, name, true, true));
        }
    }
}

#[test]
fn clients_without_an_slo_get_what_is_idle_and_count_apart() {
    let asks: String = (0..10)
        .map(|i| format!("{},0,50\n", f64::from(i) * 0.01))
        .collect();
    let of = |clients: &str, pages| {
        let system = System {
            pages_per_gpu: pages,
            ..system()
        };
        let scenario = scenario(system, &asks, clients);
        let (figures, outcomes, _) = run(&scenario, PlacementPolicy::SPILLGATE, true, false);
        let background = outcomes.into_iter().filter(|o| o.client.is_some());
        (figures, background.map(|o| o.end).collect::<Vec<End>>())
    };
    let (alone, _) = of("", 14);
    let (beside, _) = of("1,4,none\n", 14);
    assert_eq!((alone.in_time, alone.background), (10, 0));
    assert_eq!((beside.requests, beside.in_time), (10, 10));
    // What is idle, and the last four; one at a time, as two would take more than a tenth of the SLO.
    assert!(
        (10..18).contains(&beside.background),
        "{}",
        beside.background
    );
    assert_eq!(beside.mean_batch, 1.0);
    // The only model in memory is in use, until it was not asked for for a while.
    let (full, ends) = of("1,4,none\n", 7);
    assert_eq!(full.in_time, 10);
    let waited = |end: &End| matches!(end, End::Answered(latency) if *latency > ms(10_000));
    assert!(ends.len() == 4 && ends.iter().all(waited), "{ends:?}");
}
