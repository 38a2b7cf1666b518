use spillgate_pipeline::testing::noop_pipeline;

use super::*;

const SLO: Duration = Duration::from_nanos(100);

fn at(ns: u64) -> Timestamp {
    Timestamp::from_ns(ns)
}

fn fork() -> Ledger {
    let mut pipeline = noop_pipeline(SLO, &[&[0], &[1], &[1]], &[]);
    pipeline.limits.in_flight = 2;
    Ledger::new(&pipeline, &[vec![], vec![0], vec![1], vec![2]])
}

#[test]
fn a_request_ends_once_all_sinks_are_done() {
    let mut ledger = fork();
    let request = ledger.admit(at(0), RequestId(1), at(0), None).unwrap();
    assert_eq!(request.deadline, at(100));
    assert_eq!(ledger.sink_done(at(50), RequestId(1)), None);
    assert_eq!(
        ledger.sink_done(at(100), RequestId(1)),
        Some(Outcome::Completed)
    );
    assert_eq!(
        ledger.sink_done(at(100), RequestId(1)),
        None,
        "it has ended"
    );
    assert!(!ledger.end(RequestId(1)));
}

#[test]
fn late_is_an_outcome_of_its_own() {
    let mut ledger = fork();
    ledger.admit(at(0), RequestId(1), at(0), None).unwrap();
    ledger.sink_done(at(101), RequestId(1));
    assert_eq!(ledger.sink_done(at(101), RequestId(1)), Some(Outcome::Late));
}

#[test]
fn a_drop_ends_it_for_all_branches() {
    let mut ledger = fork();
    ledger.admit(at(0), RequestId(1), at(0), None).unwrap();
    assert!(ledger.end(RequestId(1)));
    assert!(!ledger.end(RequestId(1)));
    assert_eq!(ledger.sink_done(at(5), RequestId(1)), None);
    assert_eq!(ledger.in_flight(), 0);
}

#[test]
fn the_timeout_of_a_client_is_capped_at_the_slo() {
    let mut ledger = fork();
    let ask = |ledger: &mut Ledger, id, ns| {
        ledger
            .admit(
                at(10),
                RequestId(id),
                at(10),
                Some(Duration::from_nanos(ns)),
            )
            .unwrap()
            .deadline
    };
    assert_eq!(ask(&mut ledger, 1, 30), at(40));
    assert_eq!(ask(&mut ledger, 2, 3000), at(110));
}

#[test]
fn what_is_over_a_bound_is_refused_at_once() {
    let mut ledger = fork();
    let zero = ledger.admit(at(0), RequestId(0), at(0), Some(Duration::ZERO));
    assert_eq!(zero, Err(Refusal::Expired));
    for id in 1..=2 {
        ledger.admit(at(0), RequestId(id), at(0), None).unwrap();
    }
    let third = ledger.admit(at(0), RequestId(3), at(0), None);
    assert_eq!(third, Err(Refusal::Full { limit: 2 }));
    ledger.end(RequestId(1));
    ledger.admit(at(0), RequestId(3), at(0), None).unwrap();
    ledger.drain();
    assert_eq!(
        ledger.admit(at(0), RequestId(4), at(0), None),
        Err(Refusal::Draining)
    );
    assert_eq!(ledger.open_requests(), [RequestId(2), RequestId(3)]);
}
