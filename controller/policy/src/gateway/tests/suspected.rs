use spillgate_pipeline::policy::DispatchPolicyName;

use super::*;

const CONTROLLER: Address = Address::Controller(ModuleId(1));

#[test]
fn a_suspected_worker_gets_nothing_until_it_is_trusted() {
    let mut harness = harness(&[&[0]], &[], 2);
    harness.on(Event::Suspected(device(1)));
    harness.submit(7);
    harness.submit(8);
    assert_eq!(harness.sent, [(11, 7), (11, 8)]);
    harness.on(Event::Trusted(device(1)));
    harness.submit(9);
    assert_eq!(harness.sent[2..], [(1, 9)]);
}

#[test]
fn what_a_suspected_worker_had_goes_to_another_once_a_module() {
    let mut harness = harness(&[&[0], &[1]], &[], 3);
    harness.submit(7);
    harness.on(Event::Suspected(device(1)));
    assert_eq!(harness.sent, [(1, 7), (11, 7)]);
    assert_eq!(harness.cancelled, [(1, 7)]);
    harness.on(Event::Suspected(device(11)));
    assert_eq!(harness.sent.len(), 2, "it stays where it is");
    harness.done(11, 7);
    assert_eq!(harness.sent[2..], [(2, 7)]);
    harness.on(Event::Lost(device(1), "it died"));
    harness.done(2, 7);
    assert_eq!(harness.ended, [(7, "completed")]);
}

#[test]
fn the_first_answer_counts_and_the_second_does_not() {
    for first in [1, 11] {
        let mut harness = harness(&[&[0], &[1]], &[], 2);
        harness.submit(7);
        harness.on(Event::Suspected(device(1)));
        harness.cancelled.clear();
        harness.done(first, 7);
        assert_eq!(harness.sent[2..], [(2, 7)]);
        let other_is_told: &[(u16, u64)] = if first == 1 { &[(11, 7)] } else { &[] };
        assert_eq!(harness.cancelled, other_is_told);
        // A late fault is not the request's end either.
        harness.done(12 - first, 7);
        let fault = Fault::Module("late".to_owned());
        harness.finished(LIFE, 12 - first, 7, Err(fault));
        assert_eq!(harness.sent.len(), 3);
        harness.done(2, 7);
        assert_eq!(harness.ended, [(7, "completed")]);
    }
}

#[test]
fn a_suspected_worker_keeps_what_no_other_can_take() {
    let mut harness = harness(&[&[0]], &[], 2);
    harness.on(Event::Suspected(device(11)));
    harness.submit(7);
    harness.on(Event::Suspected(device(1)));
    assert_eq!((harness.sent.len(), harness.cancelled.len()), (1, 0));
    // The other one is back before this one is given up.
    harness.on(Event::Trusted(device(11)));
    harness.on(Event::Lost(device(1), "it died"));
    assert_eq!(harness.sent[1..], [(11, 7)]);
    harness.done(11, 7);
    assert_eq!(harness.ended, [(7, "completed")]);
}

#[test]
fn a_drop_of_a_suspected_worker_is_no_end_while_another_has_the_request() {
    let mut harness = harness(&[&[0]], &[], 2);
    harness.submit(7);
    harness.on(Event::Suspected(device(1)));
    harness.dropped(1, 7, DropReason::Expired);
    assert_eq!((harness.ended.len(), harness.gateway.n_ignored()), (0, 0));
    harness.dropped(1, 7, DropReason::Expired);
    assert_eq!(harness.gateway.n_ignored(), 1, "it has it no more");
    harness.done(11, 7);
    assert_eq!(harness.ended, [(7, "completed")]);
}

#[test]
fn a_request_at_two_workers_gives_its_place_back_when_nobody_began_it() {
    let mut harness = harness(&[&[0]], &[], 2);
    harness.submit(7);
    harness.on(Event::Suspected(device(1)));
    harness.on(Event::Cancel(RequestId(7)));
    assert_eq!(harness.cancelled, [(1, 7), (11, 7)], "each is told once");
    for worker in [1, 11] {
        assert_eq!(harness.gateway.ledger.offered(), (1, 0));
        let forgotten = ToGateway::Forgotten {
            worker: WorkerId(worker),
            request: RequestId(7),
        };
        harness.on(Event::Message(device(worker), LIFE, forgotten));
    }
    assert_eq!(harness.gateway.ledger.offered(), (1, 1));
}

#[test]
fn the_ask_of_a_suspected_worker_stands_until_it_is_trusted() {
    let mut pipeline = noop_pipeline(SLO, &[&[0]], &[]);
    pipeline.policy.drop = DropPolicy::SPILLGATE;
    pipeline.policy.dispatch = Some(DispatchPolicyName::Pull);
    let mut harness = harness_of(pipeline, 2);
    harness.asks(1, None);
    harness.on(Event::Suspected(device(1)));
    harness.submit(7);
    assert_eq!(harness.given, []);
    // The worker that heard of nothing does not ask again.
    harness.on(Event::Trusted(device(1)));
    assert_eq!(harness.given, [(1, vec![7])]);
    harness.on(Event::Suspected(device(1)));
    assert_eq!(harness.asks(11, Some(5)), Some(vec![7]));
}

#[test]
fn a_worker_on_trial_gets_one_request() {
    let mut pipeline = noop_pipeline(SLO, &[&[0]], &[]);
    pipeline.policy.drop = DropPolicy::SPILLGATE;
    let mut harness = harness_of(pipeline.clone(), 2);
    on_trial(&mut harness, 1);
    for id in 7..10 {
        harness.submit(id);
    }
    assert_eq!(harness.sent, [(1, 7), (11, 8), (11, 9)]);

    pipeline.policy.dispatch = Some(DispatchPolicyName::Pull);
    let mut harness = harness_of(pipeline, 2);
    on_trial(&mut harness, 1);
    harness.submit(7);
    assert_eq!(
        harness.sent.len() + harness.given.len(),
        0,
        "it does not ask"
    );
    harness.submit(8);
    assert_eq!(harness.asks(1, None), Some(vec![7]));
    assert_eq!(harness.asks(1, None), None);
}

/// Seed 124: a device of several workers is never idle, and a worker that was set aside there was never tried.
#[test]
fn a_worker_on_trial_on_a_busy_device_gets_one_request() {
    let mut pipeline = noop_pipeline(SLO, &[&[0]], &[]);
    pipeline.policy.drop = DropPolicy::SPILLGATE;
    pipeline.policy.dispatch = Some(DispatchPolicyName::Pull);
    let mut harness = harness_of(pipeline, 2);
    on_trial(&mut harness, 1);
    harness.submit(7);
    harness.submit(8);
    assert_eq!(harness.asks(1, Some(5)), Some(vec![7]));
    assert_eq!(harness.asks(1, Some(5)), Some(vec![]));
}

/// The controller sets a worker aside, and then tries it.
fn on_trial(harness: &mut Harness, worker: u32) {
    harness.on(Event::Greeted(CONTROLLER, LIFE));
    for message in [ToGateway::Retire, ToGateway::Try] {
        harness.on(Event::Message(CONTROLLER, LIFE, message(WorkerId(worker))));
    }
}
