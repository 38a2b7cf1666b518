//! Workers that follow the load.

use spillgate_controller_policy::scaling::{CarriedOut, ScalingConfig};

use super::*;

/// One worker to four, of 400 requests a second each, within 2 s.
fn up_to_four() -> SimScaling {
    SimScaling {
        config: ScalingConfig {
            least: vec![0, 1],
            most: vec![0, 4],
            throughput: vec![f64::INFINITY, 400.0],
            cool_down: Duration::from_secs(10),
            carried_out: CarriedOut::Here,
        },
        cold_start: Duration::from_secs(2),
    }
}

/// The rate triples and falls back: scaled workers follow the offered rate, pay their cold start, and requests
/// that a retired worker had still end well.
#[test]
fn workers_follow_the_offered_rate() {
    let mut scaled = with(&config(&[&[0]], &[], 10.0, 1), DropPolicy::SPILLGATE);
    scaled.noise = 0.0;
    scaled.workers = vec![vec![], (0..4).collect()];
    let times = |rate: f64, from: u64, to: u64| {
        let span = Duration::from_secs(to - from);
        let start = Duration::from_secs(from);
        arrivals(Arrivals::Poisson, rate, span, from + 1)
            .into_iter()
            .map(move |t| t + start)
    };
    let all: Vec<Timestamp> = times(300.0, 0, 20)
        .chain(times(1000.0, 20, 60))
        .chain(times(100.0, 60, 120))
        .collect();
    scaled.arrivals = all.into();
    scaled.duration = Duration::from_secs(120);
    scaled.scaling = Some(up_to_four());
    let fixed = run(SimConfig {
        scaling: None,
        workers: vec![vec![], vec![0]],
        ..scaled.clone()
    })
    .unwrap();
    let report = run(scaled).unwrap();
    assert!(fixed.drop_rate > 0.3, "{}", fixed.drop_rate);
    // What comes in the cold start (2 s of 1000/s, a part served) and what a full gate lets out.
    assert!(report.drop_rate < 0.1, "{}", report.drop_rate);
    assert_eq!(report.failed, 0);
}

/// One worker serves what is offered until all become half as quick. By the profile one is enough still.
#[test]
fn workers_that_become_slower_are_more() {
    let mut slowed = with(&config(&[&[0]], &[], 10.0, 1), DropPolicy::SPILLGATE);
    slowed.noise = 0.0;
    slowed.workers = vec![vec![], (0..4).collect()];
    slowed.duration = Duration::from_secs(60);
    slowed.arrivals = arrivals(Arrivals::Poisson, 300.0, slowed.duration, 5).into();
    let at = Timestamp::from_ns(20_000_000_000);
    slowed.disturbances = vec![(at, Disturbance::Pace(ModuleId(1), 2.0))];
    let one = run(SimConfig {
        workers: vec![vec![], vec![0]],
        ..slowed.clone()
    })
    .unwrap();
    slowed.scaling = Some(up_to_four());
    let report = run(slowed).unwrap();
    println!("{} dropped, by one {}", report.drop_rate, one.drop_rate);
    assert!(one.drop_rate > 0.2, "{}", one.drop_rate);
    assert!(report.drop_rate < 0.05, "{}", report.drop_rate);
    assert_eq!(report.failed, 0);
}
