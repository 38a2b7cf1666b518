use proptest::prelude::*;
use spillgate_pipeline::policy::{DropPolicy, Guidance};
use spillgate_pipeline::testing::noop_pipeline;
use spillgate_protocol::message::BatchShape;

use spillgate_pipeline::id::MemberId;

use super::*;

const MS: Duration = Duration::from_millis(1);
const MODULE: ModuleId = ModuleId(1);

fn at(ms: u64) -> Timestamp {
    Timestamp::from_ns(ms * 1_000_000)
}

fn request(id: u64, deadline: u64) -> Request {
    Request::new(RequestId(id), at(0), at(deadline))
}

/// Batches of up to 4; a batch of n takes 10 + n ms.
fn planned() -> Arc<Planned> {
    let times: Vec<Duration> = (1..=4).map(|n| MS * (10 + n)).collect();
    Arc::new(Planned {
        batch: vec![1, 4],
        execution: vec![Vec::new(), times].into(),
        workers: vec![0, 1],
        alone: false,
    })
}

fn pool() -> Pool {
    let mut pipeline = noop_pipeline(MS * 1000, &[&[0]], &[]);
    pipeline.policy.drop = DropPolicy::SPILLGATE;
    Pool::new(&pipeline, MODULE, &planned(), 1, 0)
}

fn plan(part: f64) -> ModulePlan {
    ModulePlan {
        shape: BatchShape {
            size: 4,
            execution: planned().duration(MODULE),
        },
        admits: 1.0,
        backlog_check: None,
        part,
        knows_gateways: true,
        guidance: Guidance::NONE,
    }
}

fn view(plan: &ModulePlan, n_workers: usize) -> View<'_> {
    View { plan, n_workers }
}

/// What worker `worker` asks for; it binds at `until`.
fn ask(worker: u32, serial: u64, until: Option<u64>) -> Ask {
    Ask {
        worker: WorkerId(worker),
        serial,
        most: 4,
        elsewhere: 0,
        starts_at: at(until.unwrap_or(0)),
        until: until.map(at),
    }
}

fn ids(given: &Given) -> Vec<u64> {
    given.requests.iter().map(|p| p.request.id.0).collect()
}

fn serve(pool: &mut Pool, now: u64) -> Vec<(u32, Vec<u64>)> {
    let plan = plan(1.0);
    let mut refused = Vec::new();
    let given = pool.serve(at(now), view(&plan, 2), |_| usize::MAX, &mut refused);
    assert_eq!(refused, []);
    given.iter().map(|g| (g.worker.0, ids(g))).collect()
}

#[test]
fn the_most_urgent_go_first_while_all_can_be_served_else_those_with_the_highest_budget() {
    let plan = plan(1.0);
    for (deadline, order, expected) in [
        (100, BudgetOrder::LowestFirst, [0, 1, 2, 3]),
        (26, BudgetOrder::HighestFirst, [4, 3, 2, 1]),
    ] {
        let mut pool = pool();
        for id in 0..5 {
            pool.push(&request(id, deadline - 5 + id), at(0));
        }
        let mut refused = Vec::new();
        let given = pool.ask(at(0), &ask(0, 1, Some(1)), view(&plan, 1), &mut refused);
        let given = given.expect("a busy worker hears at once");
        assert_eq!((given.order, ids(&given)), (order, expected.to_vec()));
        assert_eq!((given.waiting, refused.as_slice()), (1, [].as_slice()));
    }
}

#[test]
fn a_worker_of_a_family_gets_requests_of_the_first_ones_member() {
    let plan = plan(1.0);
    for (deadline, expected) in [(100, [[0, 3, 6], [1, 4, 7]]), (26, [[7, 4, 1], [6, 3, 0]])] {
        let mut pool = pool();
        pool.is_mixed = true;
        for id in 0..8 {
            let member = MemberId((id % 3) as u16);
            let deadline = deadline - 8 + id;
            pool.push(
                &Request {
                    member,
                    ..request(id, deadline)
                },
                at(0),
            );
        }
        for expected in expected {
            let mut refused = Vec::new();
            let given = pool.ask(at(0), &ask(0, 1, Some(1)), view(&plan, 1), &mut refused);
            assert_eq!(ids(&given.unwrap()), expected);
            assert_eq!(refused, []);
        }
        assert_eq!(pool.waiting(), 2);
    }
}

#[test]
fn a_gateway_gives_its_part_and_counts_with_the_requests_of_the_others() {
    let plan = plan(0.5);
    let of_one = |elsewhere| {
        let mut pool = pool();
        for id in 0..3 {
            pool.push(&request(id, 50), at(0));
        }
        let ask = Ask {
            elsewhere,
            ..ask(0, 1, Some(1))
        };
        let given = pool.ask(at(0), &ask, view(&plan, 1), &mut Vec::new());
        given.expect("a busy worker hears at once")
    };
    let alone = of_one(0);
    assert_eq!(
        (alone.order, ids(&alone).len()),
        (BudgetOrder::LowestFirst, 2)
    );
    // Half of an ask's word counts: 23 requests are six batches, of which one can begin.
    assert_eq!(of_one(40).order, BudgetOrder::HighestFirst);
}

#[test]
fn a_batch_scheduler_chooses_among_twice_its_share() {
    let plan = plan(1.0);
    let mut pool = pool();
    pool.is_scheduled = true;
    for id in 0..12 {
        pool.push(&request(id, 900), at(0));
    }
    let ask = Ask {
        most: 32,
        ..ask(0, 1, Some(1))
    };
    let given = pool.ask(at(0), &ask, view(&plan, 4), &mut Vec::new());
    assert_eq!(given.map(|g| ids(&g).len()), Some(7));
}

#[test]
fn the_ask_of_an_idle_worker_stands_until_a_request_comes() {
    let mut pool = pool();
    let plan = plan(1.0);
    for worker in [0, 1] {
        let heard = pool.ask(
            at(0),
            &ask(worker, 1, None),
            view(&plan, 2),
            &mut Vec::new(),
        );
        assert_eq!(heard, None);
    }
    assert_eq!(
        pool.earliest_start(at(3), view(&plan, 2), 0, |_| true),
        at(3)
    );
    for id in 0..3 {
        pool.push(&request(id, 100), at(1));
    }
    assert_eq!(serve(&mut pool, 1), [(0, vec![0, 2]), (1, vec![1])]);
    pool.push(&request(3, 100), at(2));
    assert_eq!(serve(&mut pool, 2), [], "both have begun");
}

#[test]
fn a_busy_worker_gets_what_comes_until_it_binds() {
    let mut pool = pool();
    let plan = plan(1.0);
    pool.push(&request(0, 100), at(0));
    let given = pool.ask(at(0), &ask(7, 1, Some(5)), view(&plan, 1), &mut Vec::new());
    assert_eq!(given.map(|g| ids(&g)), Some(vec![0]));
    pool.push(&request(1, 100), at(4));
    assert_eq!(serve(&mut pool, 4), [(7, vec![1])]);
    pool.push(&request(2, 100), at(5));
    assert_eq!(serve(&mut pool, 5), [], "its batch is bound");
}

#[test]
fn a_withdrawn_ask_gets_nothing_and_a_later_one_stands() {
    let mut pool = pool();
    let plan = plan(1.0);
    pool.ask(at(0), &ask(0, 5, None), view(&plan, 1), &mut Vec::new());
    pool.withdraw(WorkerId(0), 4);
    pool.push(&request(0, 100), at(0));
    assert_eq!(serve(&mut pool, 0), [(0, vec![0])]);
    pool.ask(at(0), &ask(0, 6, None), view(&plan, 1), &mut Vec::new());
    pool.withdraw(WorkerId(0), 6);
    pool.push(&request(1, 100), at(0));
    assert_eq!(serve(&mut pool, 0), []);
}

#[test]
fn a_worker_that_is_to_serve_no_more_gets_nothing() {
    let mut pool = pool();
    let plan = plan(1.0);
    pool.ask(at(0), &ask(0, 1, None), view(&plan, 1), &mut Vec::new());
    pool.push(&request(0, 100), at(0));
    let given = pool.serve(at(0), view(&plan, 0), |_| 0, &mut Vec::new());
    assert_eq!(given, []);
    assert_eq!(serve(&mut pool, 0), [(0, vec![0])], "it serves again");
}

#[test]
fn hopeless_and_expired_requests_are_refused_with_their_numbers() {
    let mut pool = pool();
    let plan = plan(1.0);
    for (id, deadline) in [(0, 5), (1, 15), (2, 40)] {
        pool.push(&request(id, deadline), at(0));
    }
    assert_eq!(pool.next_expiry(), Some(at(5)));
    let mut refused = Vec::new();
    pool.expire(at(5), &mut refused);
    let given = pool.ask(at(5), &ask(0, 1, Some(10)), view(&plan, 1), &mut refused);
    assert_eq!(given.map(|g| ids(&g)), Some(vec![2]));
    let reasons: Vec<(u64, DropReason)> = refused.iter().map(|r| (r.id.0, r.reason)).collect();
    assert_eq!(
        reasons,
        [(0, DropReason::Expired), (1, DropReason::Predicted)]
    );
    let estimate = refused[1].estimate.expect("it was estimated");
    assert_eq!((estimate.wait, estimate.execution), (MS * 5, MS * 11));
}

#[test]
fn a_worker_that_says_it_begins_much_later_costs_no_request() {
    let mut pool = pool();
    let plan = plan(1.0);
    pool.push(&request(0, 40), at(0));
    let mut refused = Vec::new();
    let late = Ask {
        starts_at: at(1_000_000),
        ..ask(0, 1, Some(1))
    };
    let given = pool.ask(at(0), &late, view(&plan, 1), &mut refused);
    assert_eq!(given.map(|g| ids(&g)), Some(vec![0]));
    assert_eq!(refused, []);
}

#[test]
fn a_full_pool_takes_no_more() {
    let mut pool = pool();
    let capacity = pool.capacity as u64;
    for id in 0..capacity {
        assert!(pool.push(&request(id, 100), at(0)));
    }
    assert!(!pool.push(&request(capacity, 100), at(0)));
    assert!(pool.remove(RequestId(0)));
    assert!(!pool.remove(RequestId(0)));
    assert!(pool.push(&request(capacity, 100), at(0)));
}

/// Where not all can be in time, the rank counts before the budget.
#[test]
fn under_overload_higher_ranks_go_first() {
    let plan = plan(1.0);
    for (deadline, expected) in [(100, [0, 1, 2, 3]), (20, [1, 3, 4, 2])] {
        let mut pool = pool();
        for (id, rank) in [0, 2, 0, 1, 1].into_iter().enumerate() {
            let request = request(id as u64, deadline + id as u64);
            pool.push(&Request { rank, ..request }, at(0));
        }
        let ask = ask(0, 1, Some(0));
        let given = pool.ask(at(0), &ask, view(&plan, 1), &mut Vec::new());
        let mut given = ids(&given.unwrap());
        if deadline == 20 {
            // Of a rank, the highest budget goes first.
            given[1..3].sort_unstable();
        }
        assert_eq!(given, expected);
    }
}

/// Whether a queue can be served, by serving it: `n_workers` begin batches at equal distances.
fn serves_all(deadlines: &[u64], n_workers: u32, starts_at: Timestamp) -> bool {
    let planned = planned();
    let mut sorted = deadlines.to_vec();
    sorted.sort_unstable();
    let full = planned.duration(MODULE);
    let mut begins = starts_at;
    for batch in sorted.chunks(4) {
        let execution = planned.duration_of(MODULE, batch.len() as u32);
        if begins + execution > at(batch[0]) {
            return false;
        }
        begins = begins + full / n_workers;
    }
    true
}

proptest! {
    #[test]
    fn the_order_is_that_of_a_trial_run(
        deadlines in prop::collection::vec(12u64..120, 1..40),
        n_workers in 1u32..4,
    ) {
        let mut pool = pool();
        for (id, deadline) in deadlines.iter().enumerate() {
            pool.push(&request(id as u64, *deadline), at(0));
        }
        let plan = plan(1.0);
        let given = pool.ask(at(0), &ask(0, 1, Some(1)), view(&plan, n_workers as usize), &mut Vec::new());
        let order = given.expect("a busy worker hears at once").order;
        let is_feasible = serves_all(&deadlines, n_workers, at(1));
        prop_assert_eq!(order == BudgetOrder::LowestFirst, is_feasible);
    }

    /// Whatever is pushed, given, handed back, withdrawn or expires: each request is at one place, and the bounds hold.
    #[test]
    fn each_request_is_at_one_place(ops in prop::collection::vec((0u8..6, 0u64..60, 1u64..80), 1..200)) {
        let mut pool = pool();
        let plan = plan(0.4);
        let (mut now, mut serial) = (0, 0);
        let mut waiting: Vec<u64> = Vec::new();
        let mut away: Vec<Pooled> = Vec::new();
        let mut next = 0;
        for (op, pick, ms) in ops {
            let mut refused = Vec::new();
            let mut given: Vec<Given> = Vec::new();
            serial += 1;
            match op {
                0 | 1 => {
                    if pool.push(&request(next, now + ms), at(now)) {
                        waiting.push(next);
                    }
                    next += 1;
                }
                2 => now += ms / 8,
                3 => {
                    let until = (pick % 2 == 0).then_some(now + ms);
                    let ask = ask(pick as u32 % 3, serial, until);
                    given.extend(pool.ask(at(now), &ask, view(&plan, 3), &mut refused));
                }
                4 => pool.withdraw(WorkerId(pick as u32 % 3), serial),
                _ => if !away.is_empty() {
                    let back = away.swap_remove(pick as usize % away.len());
                    prop_assert!(pool.push(&back.request, back.since));
                    waiting.push(back.request.id.0);
                },
            }
            given.extend(pool.serve(at(now), view(&plan, 3), |w| if w.0 < 2 { 9 } else { 0 }, &mut refused));
            pool.expire(at(now), &mut refused);
            prop_assert!(pool.asks.len() <= 3);
            for pooled in given.iter().flat_map(|g| &g.requests) {
                let idx = waiting.iter().position(|id| *id == pooled.request.id.0);
                waiting.swap_remove(idx.expect("what is given was waiting"));
                away.push(*pooled);
            }
            for gone in refused {
                let idx = waiting.iter().position(|id| *id == gone.id.0);
                waiting.swap_remove(idx.expect("what is refused was waiting"));
            }
            prop_assert_eq!(pool.queue.len(), waiting.len());
            prop_assert!(waiting.iter().all(|id| pool.contains(RequestId(*id))));
            prop_assert!(pool.next_expiry().is_none_or(|expiry| expiry > at(now)));
        }
    }
}
