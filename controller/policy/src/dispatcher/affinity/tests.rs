use std::time::Duration;

use spillgate_pipeline::id::RequestId;
use spillgate_protocol::message::BatchShape;

use super::*;

const SHAPE: BatchShape = BatchShape {
    size: 1,
    execution: Duration::from_millis(10),
};

fn dispatcher(n: u32) -> Dispatcher {
    let workers: Vec<WorkerId> = (0..n).map(WorkerId).collect();
    let mut dispatcher = Dispatcher::new(DispatchPolicyName::Affinity, SHAPE, &workers);
    workers.iter().for_each(|w| dispatcher.found(*w));
    dispatcher
}

fn request(id: u64, member: u16) -> Request {
    Request {
        member: MemberId(member),
        ..Request::new(
            RequestId(id),
            Timestamp::ZERO,
            Timestamp::ZERO + Duration::from_millis(100),
        )
    }
}

/// The worker that a request would be sent to.
fn worker(d: &Dispatcher, member: u16) -> u32 {
    let idx = d.worker_of(Timestamp::ZERO, &request(0, member));
    d.workers[idx.expect("a worker is up")].worker.0
}

/// Sends so many requests for a model; says how many each worker got.
fn send(d: &mut Dispatcher, member: u16, ids: std::ops::Range<u64>) -> Vec<usize> {
    let mut sent = vec![0; d.workers.len()];
    for id in ids {
        let worker = d.send(Timestamp::ZERO, &request(id, member));
        sent[worker.expect("a worker is up").0 as usize] += 1;
    }
    sent
}

/// The closed form: each of n workers gets a binomial share of the models, mean N/n and variance N/n (1 - 1/n).
#[test]
fn models_that_no_worker_has_spread_over_workers_and_move_only_with_their_worker() {
    const MODELS: u16 = 16_000;
    let mut d = dispatcher(8);
    let first: Vec<u32> = (0..MODELS).map(|m| worker(&d, m)).collect();
    d.lost(WorkerId(3));
    let mut counts = [0u32; 8];
    for (member, was) in (0..).zip(&first) {
        counts[*was as usize] += 1;
        let now = worker(&d, member);
        assert!(now != 3 && (*was == 3 || now == *was), "model {member}");
    }
    let mean = f64::from(MODELS) / 8.0;
    let deviation = (mean * (1.0 - 1.0 / 8.0)).sqrt();
    for count in counts {
        assert!(
            (f64::from(count) - mean).abs() < 4.0 * deviation,
            "{counts:?}"
        );
    }
}

#[test]
fn requests_go_where_their_model_is_while_there_is_time() {
    let mut d = dispatcher(3);
    d.holds(WorkerId(0), &[(MemberId(7), true)]);
    d.holds(WorkerId(2), &[(MemberId(7), true), (MemberId(8), true)]);
    // 100 ms are time for four before it, of 10 ms each, and its own.
    assert_eq!(send(&mut d, 7, 0..10), [5, 0, 5]);
    assert_eq!(
        worker(&d, 8),
        1,
        "its worker has no time, and another one has"
    );
    // Neither of theirs has time now. The third one gets some, as long as it has far fewer.
    assert_eq!(send(&mut d, 7, 10..12), [0, 2, 0]);
    assert!([0, 2].contains(&worker(&d, 7)));
    // It has the model now, and time.
    d.holds(WorkerId(1), &[(MemberId(7), true)]);
    assert_eq!(worker(&d, 7), 1);
    d.holds(WorkerId(1), &[(MemberId(7), false)]);
    d.holds(WorkerId(0), &[(MemberId(7), false)]);
    assert_eq!(worker(&d, 7), 2);
}

#[test]
fn a_gateway_takes_the_others_to_send_as_it_does() {
    let mut d = dispatcher(2);
    d.holds(WorkerId(0), &[(MemberId(7), true)]);
    d.reshape(SHAPE, 0.5);
    // 100 ms are time for two of this gateway, two of the other one, and its own.
    assert_eq!(send(&mut d, 7, 0..4), [3, 1]);
}

#[test]
fn a_worker_that_began_anew_has_no_models() {
    let mut d = dispatcher(2);
    let cold = worker(&d, 5);
    let other = 1 - cold;
    d.holds(WorkerId(other), &[(MemberId(5), true)]);
    assert_eq!(worker(&d, 5), other);
    d.lost(WorkerId(other));
    d.found(WorkerId(other));
    assert_eq!(worker(&d, 5), cold);
}

#[test]
fn a_model_that_no_worker_has_goes_where_there_is_time() {
    let mut d = dispatcher(2);
    let cold = worker(&d, 5) as usize;
    let sent = send(&mut d, 5, 0..10);
    assert_eq!((sent[cold], sent[1 - cold]), (5, 5));
}
