use spillgate_pipeline::policy::DispatchPolicyName;

use super::*;

const CONTROLLER: Address = Address::Controller(ModuleId(1));

#[test]
fn a_suspected_worker_gets_nothing_until_it_is_trusted() {
    let mut home = home(&[&[0]], &[], 2);
    home.on(Event::Suspected(device(1)));
    home.submit(7);
    home.submit(8);
    assert_eq!(home.sent, [(11, 7), (11, 8)]);
    home.on(Event::Trusted(device(1)));
    home.submit(9);
    assert_eq!(home.sent[2..], [(1, 9)]);
}

#[test]
fn what_a_suspected_worker_had_goes_to_another_once_a_module() {
    let mut home = home(&[&[0], &[1]], &[], 3);
    home.submit(7);
    home.on(Event::Suspected(device(1)));
    assert_eq!(home.sent, [(1, 7), (11, 7)]);
    assert_eq!(home.cancelled, [(1, 7)]);
    home.on(Event::Suspected(device(11)));
    assert_eq!(home.sent.len(), 2, "it stays where it is");
    home.done(11, 7);
    assert_eq!(home.sent[2..], [(2, 7)]);
    home.on(Event::Lost(device(1), "it died"));
    home.done(2, 7);
    assert_eq!(home.ended, [(7, "completed")]);
}

#[test]
fn the_first_answer_counts_and_the_second_does_not() {
    for first in [1, 11] {
        let mut home = home(&[&[0], &[1]], &[], 2);
        home.submit(7);
        home.on(Event::Suspected(device(1)));
        home.cancelled.clear();
        home.done(first, 7);
        assert_eq!(home.sent[2..], [(2, 7)]);
        let other_is_told: &[(u16, u64)] = if first == 1 { &[(11, 7)] } else { &[] };
        assert_eq!(home.cancelled, other_is_told);
        // A late fault is not the request's end either.
        home.done(12 - first, 7);
        let fault = Fault::Module("late".to_owned());
        home.finished(LIFE, 12 - first, 7, Err(fault));
        assert_eq!(home.sent.len(), 3);
        home.done(2, 7);
        assert_eq!(home.ended, [(7, "completed")]);
    }
}

#[test]
fn a_suspected_worker_keeps_what_no_other_can_take() {
    let mut home = home(&[&[0]], &[], 2);
    home.on(Event::Suspected(device(11)));
    home.submit(7);
    home.on(Event::Suspected(device(1)));
    assert_eq!((home.sent.len(), home.cancelled.len()), (1, 0));
    // The other one is back before this one is given up.
    home.on(Event::Trusted(device(11)));
    home.on(Event::Lost(device(1), "it died"));
    assert_eq!(home.sent[1..], [(11, 7)]);
    home.done(11, 7);
    assert_eq!(home.ended, [(7, "completed")]);
}

#[test]
fn a_drop_of_a_suspected_worker_is_no_end_while_another_has_the_request() {
    let mut home = home(&[&[0]], &[], 2);
    home.submit(7);
    home.on(Event::Suspected(device(1)));
    home.dropped(1, 7, DropReason::Expired);
    assert_eq!((home.ended.len(), home.gateway.n_ignored()), (0, 0));
    home.dropped(1, 7, DropReason::Expired);
    assert_eq!(home.gateway.n_ignored(), 1, "it has it no more");
    home.done(11, 7);
    assert_eq!(home.ended, [(7, "completed")]);
}

#[test]
fn a_request_at_two_workers_gives_its_place_back_when_nobody_began_it() {
    let mut home = home(&[&[0]], &[], 2);
    home.submit(7);
    home.on(Event::Suspected(device(1)));
    home.on(Event::Cancel(RequestId(7)));
    assert_eq!(home.cancelled, [(1, 7), (11, 7)], "each is told once");
    for worker in [1, 11] {
        assert_eq!(home.gateway.ledger.offered(), (1, 0));
        let forgotten = ToGateway::Forgotten {
            worker: WorkerId(worker),
            request: RequestId(7),
        };
        home.on(Event::Message(device(worker), LIFE, forgotten));
    }
    assert_eq!(home.gateway.ledger.offered(), (1, 1));
}

#[test]
fn the_ask_of_a_suspected_worker_stands_until_it_is_trusted() {
    let mut pipeline = noop_pipeline(SLO, &[&[0]], &[]);
    pipeline.policy.drop = DropPolicy::SPILLGATE;
    pipeline.policy.dispatch = Some(DispatchPolicyName::Pull);
    let mut home = home_of(pipeline, 2);
    home.asks(1, None);
    home.on(Event::Suspected(device(1)));
    home.submit(7);
    assert_eq!(home.given, []);
    // The worker that heard of nothing does not ask again.
    home.on(Event::Trusted(device(1)));
    assert_eq!(home.given, [(1, vec![7])]);
    home.on(Event::Suspected(device(1)));
    assert_eq!(home.asks(11, Some(5)), Some(vec![7]));
}

#[test]
fn a_worker_on_trial_gets_one_request() {
    let mut pipeline = noop_pipeline(SLO, &[&[0]], &[]);
    pipeline.policy.drop = DropPolicy::SPILLGATE;
    let mut home = home_of(pipeline.clone(), 2);
    on_trial(&mut home, 1);
    for id in 7..10 {
        home.submit(id);
    }
    assert_eq!(home.sent, [(1, 7), (11, 8), (11, 9)]);

    pipeline.policy.dispatch = Some(DispatchPolicyName::Pull);
    let mut home = home_of(pipeline, 2);
    on_trial(&mut home, 1);
    home.submit(7);
    assert_eq!(home.sent.len() + home.given.len(), 0, "it does not ask");
    home.submit(8);
    assert_eq!(home.asks(1, None), Some(vec![7]));
    assert_eq!(home.asks(1, None), None);
}

/// Seed 124: a device of several workers is never idle, and a worker that was set aside there was never tried.
#[test]
fn a_worker_on_trial_on_a_busy_device_gets_one_request() {
    let mut pipeline = noop_pipeline(SLO, &[&[0]], &[]);
    pipeline.policy.drop = DropPolicy::SPILLGATE;
    pipeline.policy.dispatch = Some(DispatchPolicyName::Pull);
    let mut home = home_of(pipeline, 2);
    on_trial(&mut home, 1);
    home.submit(7);
    home.submit(8);
    assert_eq!(home.asks(1, Some(5)), Some(vec![7]));
    assert_eq!(home.asks(1, Some(5)), Some(vec![]));
}

/// The controller sets a worker aside, and then tries it.
fn on_trial(home: &mut Home, worker: u32) {
    home.on(Event::Greeted(CONTROLLER, LIFE));
    for message in [ToGateway::Retire, ToGateway::Try] {
        home.on(Event::Message(CONTROLLER, LIFE, message(WorkerId(worker))));
    }
}
