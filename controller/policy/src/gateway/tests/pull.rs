use spillgate_pipeline::policy::DispatchPolicyName;
use spillgate_protocol::message::{Ask, Returned};

use super::*;

/// One module with two workers, 1 and 11, that ask for requests.
fn pulled() -> Harness {
    let mut pipeline = noop_pipeline(SLO, &[&[0]], &[]);
    pipeline.policy.drop = DropPolicy::SPILLGATE;
    pipeline.policy.dispatch = Some(DispatchPolicyName::Pull);
    harness_of(pipeline, 2)
}

impl Harness {
    fn says(&mut self, worker: u32, message: ToGateway) {
        self.on(Event::Message(device(worker), LIFE, message));
    }

    /// A worker asks; `until` ms for a busy one. Returns what it is given.
    pub(super) fn asks(&mut self, worker: u32, until: Option<u64>) -> Option<Vec<u64>> {
        self.given.clear();
        let at = |ms: u64| Timestamp::from_ns(ms * 1_000_000);
        let ask = Ask {
            worker: WorkerId(worker),
            serial: 1,
            most: 4,
            elsewhere: 0,
            starts_at: until.map_or(self.now, at),
            until: until.map(at),
        };
        self.says(worker, ToGateway::Ask(ask));
        assert!(self.given.iter().all(|(to, _)| *to == worker));
        self.given.pop().map(|(_, ids)| ids)
    }

    fn returns(&mut self, worker: u32, ids: &[u64]) {
        let requests = ids.iter().map(|id| (RequestId(*id), Timestamp::ZERO));
        let returned = Returned {
            worker: WorkerId(worker),
            serial: 1,
            elsewhere: 0,
            requests: requests.collect(),
        };
        self.says(worker, ToGateway::Returned(returned));
    }
}

#[test]
fn a_request_waits_at_its_gateway_until_a_worker_asks_for_it() {
    let mut harness = pulled();
    harness.submit(1);
    assert_eq!((harness.sent.len(), harness.given.len()), (0, 0));
    assert_eq!(harness.asks(1, Some(5)), Some(vec![1]));
    harness.done(1, 1);
    assert_eq!(harness.ended, [(1, "completed")]);
}

#[test]
fn what_is_handed_back_goes_to_the_next_worker_that_asks() {
    let mut harness = pulled();
    harness.submit(1);
    harness.submit(2);
    assert_eq!(harness.asks(1, Some(5)), Some(vec![1, 2]));
    assert_eq!(harness.asks(11, Some(5)), Some(vec![]));
    harness.given.clear();
    harness.returns(1, &[2]);
    assert_eq!(harness.given, [(11, vec![2])], "its ask still stands");
    // What another worker has is not that one's to hand back.
    harness.returns(1, &[2]);
    assert_eq!(harness.asks(1, Some(5)), Some(vec![]));
    harness.done(11, 2);
    assert_eq!(harness.ended, [(2, "completed")]);
}

#[test]
fn what_is_handed_back_and_finds_no_room_is_dropped_at_its_module() {
    let mut pipeline = noop_pipeline(SLO, &[&[0]], &[]);
    pipeline.policy.drop = DropPolicy::SPILLGATE;
    pipeline.policy.dispatch = Some(DispatchPolicyName::Pull);
    pipeline.modules[1].queue = 1;
    let mut harness = harness_of(pipeline, 2);
    harness.submit(1);
    assert_eq!(harness.asks(1, Some(5)), Some(vec![1]));
    let fills = (2..10).take_while(|id| {
        harness.submit(*id);
        harness.ended.is_empty()
    });
    let last = fills.count() as u64 + 2;
    assert_eq!(harness.ended, [(last, "dropped")]);
    harness.returns(1, &[1]);
    assert_eq!(harness.ended, [(last, "dropped"), (1, "dropped")]);
    assert_eq!(harness.dropped_at, [1, 1]);
}

#[test]
fn a_request_that_ended_at_its_gateway_is_given_to_nobody_and_asked_for_nothing() {
    let mut harness = pulled();
    harness.submit(1);
    harness.on(Event::Cancel(RequestId(1)));
    assert_eq!(harness.asks(1, Some(0)), Some(vec![]));
    harness.submit(2);
    harness.on(Event::Supersede(RequestId(2)));
    assert_eq!(harness.asks(1, Some(5)), Some(vec![]));
    assert_eq!(harness.ended, [(1, "dropped"), (2, "dropped")]);
    harness.at(1000).on(Event::Wakeup);
    assert_eq!(harness.unasked.last(), Some(&(1, 2)));
}

#[test]
fn a_request_that_ended_while_it_was_away_is_handed_back_for_good() {
    let mut harness = pulled();
    harness.submit(1);
    harness.asks(1, Some(5));
    harness.on(Event::Cancel(RequestId(1)));
    assert_eq!(harness.cancelled, [(1, 1)]);
    harness.returns(1, &[1]);
    assert_eq!(harness.asks(11, Some(5)), Some(vec![]));
    assert_eq!(
        harness.gateway.ledger.offered(),
        (1, 1),
        "it gave its place back"
    );
}

#[test]
fn what_a_dead_worker_had_waits_for_another_and_its_ask_is_void() {
    let mut harness = pulled();
    harness.submit(1);
    harness.asks(1, Some(5));
    assert_eq!(harness.asks(1, None), None);
    harness.on(Event::Lost(device(1), "it died"));
    assert_eq!(harness.asks(11, Some(5)), Some(vec![1]));
    harness.on(Event::Lost(device(11), "it died"));
    assert_eq!(harness.ended, [(1, "failed")], "it is sent again once");
    harness.submit(2);
    assert_eq!(harness.ended.last(), Some(&(2, "dropped")), "nobody serves");
}

#[test]
fn a_worker_that_is_to_serve_no_more_gets_no_requests() {
    let mut harness = pulled();
    let controller = Address::Controller(ModuleId(1));
    harness.on(Event::Greeted(controller, LIFE));
    let retire = |worker| ToGateway::Retire(WorkerId(worker));
    harness.on(Event::Message(controller, LIFE, retire(1)));
    harness.submit(1);
    assert_eq!(harness.asks(1, Some(5)), Some(vec![]));
    assert_eq!(harness.asks(1, None), None);
    // Its ask stands until it is to serve again.
    let serve = ToGateway::Serve(WorkerId(1));
    harness.on(Event::Message(controller, LIFE, serve));
    assert_eq!(harness.given, [(1, vec![1])]);
}

#[test]
fn a_worker_that_leaves_gets_no_requests_and_finishes_what_it_has() {
    let mut harness = pulled();
    harness.submit(1);
    assert_eq!(harness.asks(1, Some(5)), Some(vec![1]));
    assert_eq!(harness.asks(1, None), None);
    harness.says(1, ToGateway::Leaves(WorkerId(1)));
    harness.submit(2);
    assert_eq!(harness.given, []);
    assert_eq!(harness.asks(1, Some(5)), Some(vec![]));
    harness.done(1, 1);
    assert_eq!(harness.ended, [(1, "completed")]);
    // Its process ends, and another life of it begins.
    harness.on(Event::Lost(device(1), "it ended"));
    harness.on(Event::Greeted(device(1), LIFE));
    assert_eq!(harness.asks(1, Some(5)), Some(vec![2]));
}

#[test]
fn a_request_in_a_pool_ends_when_its_deadline_passes() {
    let mut harness = pulled();
    harness.submit(1);
    let deadline = Timestamp::ZERO + SLO;
    assert!(
        harness
            .gateway
            .next_wakeup()
            .is_some_and(|at| at <= deadline)
    );
    harness.now = deadline;
    harness.on(Event::Wakeup);
    assert_eq!(harness.ended, [(1, "dropped")]);
}

#[test]
fn a_request_without_an_slo_is_sent_to_the_worker_with_the_fewest_of_them() {
    let mut harness = pulled();
    harness.submit_in_background(1);
    harness.submit_in_background(2);
    harness.submit_in_background(3);
    assert_eq!(harness.sent, [(1, 1), (11, 2), (1, 3)]);
    assert_eq!(
        harness.asks(1, Some(5)),
        Some(vec![]),
        "nothing is asked for"
    );
    harness.done(11, 2);
    harness.submit_in_background(4);
    assert_eq!(harness.sent.last(), Some(&(11, 4)));
    assert_eq!(harness.ended, [(2, "completed")]);
    harness.now = harness.gateway.next_wakeup().unwrap();
    harness.on(Event::Wakeup);
    assert_eq!(harness.demands, [(0, 0), (1, 0)], "it is no demand");
}
