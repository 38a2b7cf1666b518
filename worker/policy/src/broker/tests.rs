use proptest::prelude::*;
use spillgate_pipeline::placement::{Decider, PlacementPolicy};
use spillgate_pipeline::policy::recipe::Recipe;
use spillgate_pipeline::policy::{BudgetOrder, DropPolicy, POLICY_DEFAULT};
use spillgate_recipes::drops;

use super::*;

mod families;
mod variants;

fn broker(policy: DropPolicy, capacity: usize, batch_max: u32) -> Broker<u64> {
    broker_by(policy.recipe(), capacity, batch_max)
}

fn broker_by(recipe: &'static Recipe, capacity: usize, batch_max: u32) -> Broker<u64> {
    Broker::new(
        WorkerId(1),
        BrokerConfig {
            module: ModuleId(1),
            capacity,
            batch: batch_max,
            execution: (1..=batch_max)
                .map(|n| Duration::from_nanos(10 * u64::from(n)))
                .collect::<Vec<_>>()
                .into(),
            recipe,
            pulls: false,
            is_family: false,
            is_adapted: false,
            background: 64,
            background_time: Duration::from_millis(10),
            schedule: None,
        },
    )
}

fn request(id: u64, deadline: u64) -> Request {
    Request::new(RequestId(id), Timestamp::ZERO, Timestamp::from_ns(deadline))
}

fn at(ns: u64) -> Timestamp {
    Timestamp::from_ns(ns)
}

fn batch_ids(broker: &mut Broker<u64>) -> Vec<u64> {
    let batch = broker.take_batch(at(0), at(0), &mut Vec::new()).members;
    batch.iter().map(|m| m.request.id.0).collect()
}

#[test]
fn deadline_orders_by_deadline_and_none_by_arrival() {
    for (policy, expected) in [
        (DropPolicy::DEADLINE, vec![2, 3, 1]),
        (DropPolicy::NONE, vec![1, 2, 3]),
    ] {
        let mut broker = broker(policy, 8, 8);
        let mut out = Vec::new();
        for (i, deadline) in [(1, 90), (2, 50), (3, 70)] {
            broker.arrive(at(i), request(i, deadline), 0, &mut out);
        }
        broker.collect(at(5), at(5), &mut out);
        assert!(out.is_empty());
        assert_eq!(batch_ids(&mut broker), expected);
    }
}

/// More requests wait than can be served, so those with the highest budget go. The batch grows while the
/// member added last is still in time. A full batch takes 80 ns, and no request has that long: measured by it only one would go.
#[test]
fn an_overloaded_batch_grows_while_its_last_member_is_in_time() {
    let mut broker = broker(DropPolicy::SPILLGATE, 16, 8);
    let mut out = Vec::new();
    for id in 1..=12 {
        broker.arrive(at(0), request(id, 15 + 5 * id), 0, &mut out);
    }
    // Four take until 40, and the fourth has until 60; five would take until 50, and the fifth has until 55; six until
    // 60, and the sixth has until 50.
    assert_eq!(batch_ids(&mut broker), [12, 11, 10, 9, 8]);
}

/// The same requests, and two of them are of a higher rank: they go first, and the rest of the batch does not make them late.
#[test]
fn under_overload_a_higher_rank_goes_first() {
    let mut broker = broker(DropPolicy::SPILLGATE, 16, 8);
    let mut out = Vec::new();
    for id in 1..=12 {
        let ranked = Request {
            rank: u8::from(id == 4 || id == 5),
            ..request(id, if id < 6 { 40 } else { 15 + 5 * id })
        };
        broker.arrive(at(0), ranked, 0, &mut out);
    }
    assert_eq!(batch_ids(&mut broker)[..4], [4, 5, 12, 11]);
}

/// A decoder's broker: what is left of the request does not suffice for the modules after it.
#[test]
fn beside_our_placement_a_frame_that_would_be_late_is_not_decoded() {
    for (placement, is_dropped) in [
        (PlacementPolicy::SPILLGATE, true),
        (PlacementPolicy::LRU, false),
    ] {
        let recipe = POLICY_DEFAULT
            .decided_by(Decider::Placement(placement))
            .recipe();
        let mut broker = broker_by(recipe, 8, 1);
        let mut out = Vec::new();
        let downstream = Duration::from_nanos(60);
        broker.guide(
            at(0),
            Guidance {
                downstream,
                ..Guidance::NONE
            },
        );
        broker.arrive(at(0), request(1, 65), 0, &mut out);
        broker.arrive(at(0), request(2, 75), 0, &mut out);
        broker.collect(at(0), at(0), &mut out);
        let expected: &[u64] = if is_dropped { &[2] } else { &[1] };
        assert_eq!(batch_ids(&mut broker), expected);
        let reasons: Vec<DropReason> = out.iter().map(|r| r.drop.reason).collect();
        assert_eq!(
            reasons.contains(&DropReason::Predicted),
            is_dropped,
            "{reasons:?}"
        );
    }
}

#[test]
fn a_full_queue_answers_at_once() {
    let mut broker = broker(DropPolicy::DEADLINE, 2, 1);
    let mut out = Vec::new();
    broker.arrive(at(0), request(1, 100), 0, &mut out);
    broker.collect(at(0), at(0), &mut out);
    broker.arrive(at(0), request(2, 100), 0, &mut out);
    assert!(out.is_empty());
    broker.arrive(at(0), request(3, 100), 0, &mut out);
    assert_eq!(out.len(), 1);
    assert_eq!(out[0].request.id, RequestId(3));
    assert_eq!(out[0].drop.reason, DropReason::QueueFull);
}

#[test]
fn what_has_expired_is_dropped_with_the_estimate_behind_it() {
    let mut broker = broker(DropPolicy::DEADLINE, 8, 8);
    let mut out = Vec::new();
    broker.arrive(at(0), request(1, 10), 0, &mut out);
    broker.collect(at(10), at(25), &mut out);
    let drop = out[0].drop;
    assert_eq!(drop.reason, DropReason::Expired);
    assert_eq!(drop.estimate.unwrap().wait, Duration::from_nanos(15));
    assert_eq!(drop.budget.as_ns(), 0);
}

#[test]
fn the_forming_batch_expires_by_timer_too() {
    let mut broker = broker(DropPolicy::DEADLINE, 8, 2);
    let mut out = Vec::new();
    for (id, deadline) in [(1, 10), (2, 30), (3, 20)] {
        broker.arrive(at(0), request(id, deadline), 0, &mut out);
    }
    broker.collect(at(0), at(0), &mut out);
    assert_eq!(broker.next_expiry(), Some(at(10)));
    broker.expire(at(20), &mut out);
    let mut gone: Vec<u64> = out.iter().map(|r| r.request.id.0).collect();
    gone.sort_unstable();
    assert_eq!(gone, [1, 3]);
    assert_eq!(broker.next_expiry(), Some(at(30)));
}

#[derive(Clone, Debug)]
enum Step {
    Arrive(u64),
    Cancel(usize),
    Collect,
    Take,
    Expire,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u64..60).prop_map(Step::Arrive),
        1 => (0usize..40).prop_map(Step::Cancel),
        2 => Just(Step::Collect),
        1 => Just(Step::Take),
        1 => Just(Step::Expire),
    ]
}

proptest! {
    /// The broker against the obvious reference: a sorted vector.
    #[test]
    fn agrees_with_a_sorted_vector(
        steps in prop::collection::vec(step(), 0..80),
        capacity in 1usize..12,
        batch_max in 1u32..5,
    ) {
        let mut broker = broker(DropPolicy::DEADLINE, capacity, batch_max);
        let mut queue: Vec<(u64, u64)> = Vec::new();
        let mut forming: Vec<(u64, u64)> = Vec::new();
        let mut out = Vec::new();
        let mut next_id = 0;
        for (now, step) in steps.into_iter().enumerate() {
            let now = now as u64;
            let mut expected_drops = Vec::new();
            out.clear();
            match step {
                Step::Arrive(slack) => {
                    let deadline = now + slack;
                    broker.arrive(at(now), request(next_id, deadline), next_id, &mut out);
                    if queue.len() + forming.len() >= capacity {
                        expected_drops.push(next_id);
                    } else {
                        queue.push((deadline, next_id));
                        queue.sort_unstable();
                    }
                    next_id += 1;
                }
                Step::Cancel(i) => {
                    let id = i as u64;
                    let known = queue.iter().chain(&forming).any(|e| e.1 == id);
                    prop_assert_eq!(broker.cancel(RequestId(id)), known);
                    queue.retain(|e| e.1 != id);
                    forming.retain(|e| e.1 != id);
                }
                Step::Collect => {
                    broker.collect(at(now), at(now), &mut out);
                    while forming.len() < batch_max as usize && !queue.is_empty() {
                        let (deadline, id) = queue.remove(0);
                        if deadline <= now { expected_drops.push(id) } else { forming.push((deadline, id)) }
                    }
                }
                Step::Take => {
                    let expected: Vec<u64> = std::mem::take(&mut forming).iter().map(|e| e.1).collect();
                    prop_assert_eq!(batch_ids(&mut broker), expected);
                }
                Step::Expire => {
                    broker.expire(at(now), &mut out);
                    for list in [&mut queue, &mut forming] {
                        expected_drops.extend(list.iter().filter(|e| e.0 <= now).map(|e| e.1));
                        list.retain(|e| e.0 > now);
                    }
                }
            }
            let drops: Vec<u64> = out.iter().map(|r| r.payload).collect();
            prop_assert_eq!(drops, expected_drops);
            prop_assert_eq!(broker.waiting(), queue.len() + forming.len());
        }
    }
}

/// Requests as the reference keeps them: deadline, arrival, id.
type Listed = (u64, u64, u64);

proptest! {
    /// Every policy that binds ahead against the obvious reference: a list that is sorted before each pop.
    #[test]
    fn every_order_and_test_agrees_with_a_sorted_vector(
        policy in prop::sample::select(vec![
            DropPolicy::PARD,
            drops::PARD_FCFS,
            drops::PARD_HBF,
            drops::PARD_LBF,
            DropPolicy::NEXUS_SPLIT,
            DropPolicy::CLIPPER_PLUS_PLUS,
            DropPolicy::NONE,
        ]),
        slacks in prop::collection::vec(1u64..120, 1..40),
        downstream in 0u64..40,
        share in prop::sample::select(vec![0.3, 0.7, 1.0]),
        highest in any::<bool>(),
        batch in 1u32..5,
        busy_for in 0u64..40,
    ) {
        let mut broker = broker(policy, 100, batch);
        let order = if highest { BudgetOrder::HighestFirst } else { BudgetOrder::LowestFirst };
        let guidance = Guidance { downstream: Duration::from_nanos(downstream), share, order, ..Guidance::NONE };
        broker.guide(at(0), guidance);
        let mut out = Vec::new();
        let mut list: Vec<Listed> = Vec::new();
        for (id, slack) in slacks.iter().enumerate() {
            let id = id as u64;
            broker.arrive(at(id), request(id, id + slack), id, &mut out);
            list.push((id + slack, id, id));
        }
        let now = slacks.len() as u64;
        let ends = now + busy_for + 10 * u64::from(batch);
        let limit = |deadline: u64| {
            guidance.module_deadline(&request(0, deadline)).as_ns()
        };
        let kept = |deadline: u64| match policy {
            DropPolicy::NONE => true,
            DropPolicy::CLIPPER_PLUS_PLUS => now <= limit(deadline),
            _ => ends <= limit(deadline),
        };
        let (mut expected, mut dropped) = (Vec::new(), Vec::new());
        if policy == DropPolicy::NEXUS_SPLIT {
            // The first run of which all are in time; all before it are dropped.
            let from = (0..list.len())
                .find(|&i| list[i..].iter().take(batch as usize).all(|l| kept(l.0)))
                .unwrap_or(list.len());
            dropped.extend(list[..from].iter().map(|l| l.2));
            expected.extend(list[from..].iter().take(batch as usize).map(|l| l.2));
        } else {
            while expected.len() < batch as usize && !list.is_empty() {
                list.sort_unstable_by_key(|l| match policy {
                    drops::PARD_FCFS | DropPolicy::CLIPPER_PLUS_PLUS | DropPolicy::NONE => (l.1, l.2),
                    _ => (l.0, l.2),
                });
                let from_end = match policy {
                    DropPolicy::PARD => highest,
                    drops::PARD_HBF => true,
                    _ => false,
                };
                let next = if from_end { list.remove(list.len() - 1) } else { list.remove(0) };
                if kept(next.0) { expected.push(next.2) } else { dropped.push(next.2) }
            }
        }
        broker.collect(at(now), at(now + busy_for), &mut out);
        let drops: Vec<u64> = out.iter().map(|r| r.payload).collect();
        prop_assert_eq!(drops, dropped);
        prop_assert_eq!(batch_ids(&mut broker), expected);
    }

    /// A late batch: each request is batched, dropped or waiting; each member makes its module deadline; and while the
    /// whole backlog is feasible in order of deadlines nothing is dropped and the most urgent go first.
    #[test]
    fn a_late_batch_is_in_time_and_fair(
        slacks in prop::collection::vec(1u64..400, 1..30),
        downstream in 0u64..100,
        batch in 1u32..6,
    ) {
        let mut broker = broker(DropPolicy::SPILLGATE, 100, batch);
        let guidance = Guidance { downstream: Duration::from_nanos(downstream), ..Guidance::NONE };
        broker.guide(at(0), guidance);
        let mut out = Vec::new();
        for (id, slack) in slacks.iter().enumerate() {
            broker.arrive(at(0), request(id as u64, *slack), id as u64, &mut out);
        }
        let members = broker.take_batch(at(0), at(0), &mut out).members;
        let ends = 10 * members.len() as u64;
        for member in &members {
            prop_assert!(ends + downstream <= member.request.deadline.as_ns());
        }
        for gone in &out {
            prop_assert!(10 + downstream > gone.request.deadline.as_ns(), "it could not make it alone");
        }
        prop_assert_eq!(members.len() + out.len() + broker.waiting(), slacks.len());
        let mut sorted: Vec<(u64, u64)> = slacks.iter().enumerate().map(|(i, s)| (*s, i as u64)).collect();
        sorted.sort_unstable();
        let mut end = 0;
        let feasible = sorted.chunks(batch as usize).all(|chunk| {
            end += 10 * chunk.len() as u64;
            end + downstream <= chunk[0].0
        });
        if feasible {
            prop_assert!(out.is_empty());
            let first: Vec<u64> = sorted.iter().take(batch as usize).map(|s| s.1).collect();
            prop_assert_eq!(members.iter().map(|m| m.payload).collect::<Vec<_>>(), first);
        }
    }
}
