use super::*;
use crate::id::ModuleId;
use crate::request::{Drop, DropReason};

const D: DeviceId = DeviceId(0);
const B: BatchId = BatchId(7);

fn at(ns: u64) -> Timestamp {
    Timestamp::from_ns(ns)
}

fn r(id: u64) -> RequestId {
    RequestId(id)
}

fn violated(result: Result<(), Violation>) -> (Invariant, String) {
    let violation = result.expect_err("a violation");
    (violation.invariant, violation.detail)
}

#[test]
fn a_good_run_has_no_violation() {
    let mut c = Checker::default();
    c.accepted(r(1)).unwrap();
    c.accepted(r(2)).unwrap();
    c.batch_started(D, B, 2, at(5), &[r(1), r(2)]).unwrap();
    c.batch_ended(D, B, at(9)).unwrap();
    c.batch_started(D, BatchId(8), 2, at(9), &[r(2)]).unwrap();
    c.ended(r(1), Outcome::Completed).unwrap();
    c.device_lost(D);
    c.ended(
        r(2),
        Outcome::Failed {
            module: ModuleId(1),
        },
    )
    .unwrap();
    c.finished().unwrap();
}

#[test]
fn a_request_ends_exactly_once() {
    let mut c = Checker::default();
    assert_eq!(
        violated(c.ended(r(1), Outcome::Late)).0,
        Invariant::EndsOnce
    );
    c.accepted(r(1)).unwrap();
    assert_eq!(violated(c.accepted(r(1))).0, Invariant::EndsOnce);
    assert_eq!(
        violated(c.finished()).1,
        "1 requests never ended, r1 the first of them"
    );
    c.ended(r(1), Outcome::Completed).unwrap();
    let (invariant, detail) = violated(c.ended(r(1), Outcome::Late));
    assert_eq!(invariant, Invariant::EndsOnce);
    assert_eq!(detail, "r1 ends as late and before that as completed");
    assert_eq!(violated(c.accepted(r(1))).0, Invariant::EndsOnce);
}

#[test]
fn a_batch_keeps_to_its_size() {
    let mut c = Checker::default();
    for id in 1..4 {
        c.accepted(r(id)).unwrap();
    }
    for requests in [&[][..], &[r(1), r(2), r(3)], &[r(1), r(1)]] {
        let (invariant, _) = violated(c.batch_started(D, B, 2, at(1), requests));
        assert_eq!(invariant, Invariant::BatchWithinSize);
        c.batch_ended(D, B, at(1)).unwrap();
    }
}

#[test]
fn a_device_runs_one_batch_at_a_time() {
    let mut c = Checker::default();
    c.accepted(r(1)).unwrap();
    c.batch_started(D, B, 1, at(1), &[r(1)]).unwrap();
    c.batch_started(DeviceId(1), B, 1, at(1), &[r(1)]).unwrap();
    let (invariant, _) = violated(c.batch_started(D, BatchId(8), 1, at(2), &[r(1)]));
    assert_eq!(invariant, Invariant::OneBatchPerDevice);
    c.batch_ended(D, BatchId(8), at(3)).unwrap();
    assert_eq!(
        violated(c.batch_ended(D, B, at(4))).0,
        Invariant::OneBatchPerDevice
    );
}

#[test]
fn time_goes_forward() {
    let mut c = Checker::default();
    c.time(at(5)).unwrap();
    c.time(at(5)).unwrap();
    assert_eq!(violated(c.time(at(4))).0, Invariant::TimeForward);
    assert_eq!(
        violated(c.batch_ended(D, B, at(4))).0,
        Invariant::TimeForward
    );
}

#[test]
fn nothing_runs_after_its_drop() {
    let mut c = Checker::new(1);
    c.accepted(r(1)).unwrap();
    let drop = Drop {
        module: ModuleId(1),
        reason: DropReason::Expired,
        at: at(1),
        budget: at(0).budget_at(at(1)),
        estimate: None,
    };
    c.ended(r(1), Outcome::Dropped(drop)).unwrap();
    let (invariant, detail) = violated(c.batch_bound(D, B, at(2), &[r(1)]));
    assert_eq!(invariant, Invariant::NothingAfterEnd);
    assert_eq!(
        detail,
        "b7 on d0 executes r1 at 0.000000s, which is dropped"
    );

    let mut c = Checker::default().cancel_delay(Duration::from_nanos(10));
    c.accepted(r(1)).unwrap();
    c.ended(r(1), Outcome::Dropped(drop)).unwrap();
    c.batch_bound(D, B, at(10), &[r(1)]).unwrap();
    let (invariant, _) = violated(c.batch_bound(D, BatchId(8), at(11), &[r(1)]));
    assert_eq!(invariant, Invariant::NothingAfterEnd);
}

#[test]
fn a_request_ends_by_its_time() {
    let mut c = Checker::default();
    for id in [1, 2] {
        c.accepted(r(id)).unwrap();
        c.must_end(r(id), at(10));
    }
    c.ended(r(1), Outcome::Completed).unwrap();
    c.time(at(10)).unwrap();
    let (invariant, detail) = violated(c.time(at(11)));
    assert_eq!(invariant, Invariant::EndsInTime);
    assert!(detail.starts_with("r2 is open"), "{detail}");
    assert!(c.due.is_empty(), "what has ended is forgotten");
}

#[test]
fn a_module_runs_twice_at_most_and_its_results_are_of_the_request() {
    let mut c = Checker::default();
    c.accepted(r(1)).unwrap();
    for _ in 0..SENDS_MAX {
        c.sent(r(1), ModuleId(1)).unwrap();
    }
    c.sent(r(1), ModuleId(2)).unwrap();
    assert_eq!(violated(c.sent(r(1), ModuleId(1))).0, Invariant::OwnResults);
    c.result(r(1), true).unwrap();
    assert_eq!(violated(c.result(r(1), false)).0, Invariant::OwnResults);
    c.ended(r(1), Outcome::Completed).unwrap();
    c.result(r(1), false).unwrap();
    assert!(c.sent.is_empty());
    assert_eq!(
        violated(c.bound("queue", 3, 2)),
        (Invariant::WithinBounds, "queue: 3, of at most 2".to_owned())
    );
}

#[test]
fn memory_of_ended_requests_is_bounded() {
    let mut c = Checker::new(2);
    for id in 0..100 {
        c.accepted(r(id)).unwrap();
        c.ended(r(id), Outcome::Completed).unwrap();
    }
    assert_eq!((c.ended.len(), c.ended_order.len()), (2, 2));
    assert_eq!(c.n_in_flight(), 0);
}
