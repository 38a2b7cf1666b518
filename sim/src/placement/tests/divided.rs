use std::fmt::Write;

use spillgate_pipeline::policy::DispatchPolicyName;
use spillgate_recipes::placements;

use super::*;

/// Two devices with room for one model each; the models come in turn, each 3 ms after the one before it.
fn in_turn(initial: [&str; 2]) -> Scenario {
    let mut arrivals = String::new();
    for i in 0..30 {
        writeln!(arrivals, "{},{},50", f64::from(i) * 0.003, i % 2).expect("a text");
    }
    let system = System {
        gpus: 2,
        initial: initial.map(str::to_owned).to_vec(),
        ..system()
    };
    scenario(system, &arrivals, "")
}

fn figures(scenario: &Scenario, n: u16, dispatch: DispatchPolicyName) -> (usize, usize, usize) {
    let f = run_divided(scenario, PlacementPolicy::SPILLGATE, true, (n, dispatch));
    (f.requests, f.in_time, f.loads)
}

#[test]
fn one_process_serves_as_an_undivided_scenario() {
    let scenario = in_turn(["0", ""]);
    for name in placements::ALL {
        let (whole, ..) = run(&scenario, name, true, false);
        let divided = run_divided(&scenario, name, true, (1, DispatchPolicyName::Affinity));
        assert_eq!(
            (divided.requests, divided.in_time, divided.loads),
            (whole.requests, whole.in_time, whole.loads)
        );
        assert_eq!(
            (divided.p50_ms, divided.p99_ms),
            (whole.p50_ms, whole.p99_ms)
        );
    }
}

#[test]
fn by_affinity_requests_go_where_their_model_is() {
    let scenario = in_turn(["1", "0"]);
    let affinity = DispatchPolicyName::Affinity;
    assert_eq!(figures(&scenario, 2, affinity), (30, 30, 0));
    // In turn each comes to the device without its model, which is then loaded.
    let (requests, _, loads) = figures(&scenario, 2, DispatchPolicyName::RoundRobin);
    assert!(requests == 30 && loads > 0, "{loads}");
    // A model that is nowhere is loaded once.
    let scenario = in_turn(["", ""]);
    let (requests, in_time, loads) = figures(&scenario, 2, affinity);
    assert_eq!((requests, in_time), (30, 30));
    assert!(loads <= 3, "{loads}");
}
