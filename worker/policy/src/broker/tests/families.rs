//! Modules with a family of models: a batch holds requests of one member.

use crate::schedule::SchedulerConfig;
use spillgate_pipeline::distribution::WINDOW_DEFAULT;
use spillgate_pipeline::id::MemberId;
use spillgate_pipeline::schedule::SchedulePolicy;
use spillgate_pipeline::testing::noop_pipeline;
use spillgate_recipes::drops;
use spillgate_recipes::schedulers;

use super::*;

const MS: u64 = 1_000_000;

/// A broker whose batches take 10 ms a member.
fn broker(
    policy: DropPolicy,
    schedule: Option<SchedulePolicy>,
    batch: u32,
    is_family: bool,
) -> Broker<u64> {
    let execution: Vec<Duration> = (1..=batch).map(|n| Duration::from_millis(10) * n).collect();
    let mut pipeline = noop_pipeline(Duration::from_secs(1), &[&[0]], &[]);
    let module = &mut pipeline.modules[1];
    module.batch.max = batch;
    module.schedule = schedule;
    module.window = WINDOW_DEFAULT;
    let scheduler = SchedulerConfig::of(module, &execution, batch);
    Broker::new(
        WorkerId(1),
        BrokerConfig {
            module: ModuleId(1),
            capacity: 100,
            batch,
            execution: execution.into(),
            recipe: policy.recipe(),
            pulls: false,
            is_family,
            is_adapted: false,
            background: 64,
            background_time: Duration::from_millis(10),
            schedule: scheduler.expect("the profile fits"),
        },
    )
}

fn of_member(id: u64, deadline_ms: u64, member: u16) -> Request {
    Request {
        member: MemberId(member),
        ..request(id, deadline_ms * MS)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Arrive { slack: u64, member: u16 },
    Cancel(u64),
    Collect,
    Take,
    Expire,
}

fn steps(members: u16) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1u64..200, 0..members).prop_map(|(slack, member)| Step::Arrive { slack, member }),
        1 => (0u64..60).prop_map(Step::Cancel),
        2 => Just(Step::Collect),
        2 => Just(Step::Take),
        1 => Just(Step::Expire),
    ];
    prop::collection::vec(step, 0..100)
}

fn ways() -> impl Strategy<Value = (DropPolicy, Option<SchedulePolicy>, u32)> {
    let schedules = schedulers::ALL.map(Some).into_iter().chain([None, None]);
    let schedules: Vec<Option<SchedulePolicy>> = schedules.collect();
    (
        prop::sample::select(drops::ALL.to_vec()),
        prop::sample::select(schedules),
        1u32..5,
    )
}

/// What left the broker in a step: batches by id and member, and ids of dropped requests.
#[derive(Debug, Default, PartialEq)]
struct Left {
    batches: Vec<Vec<(u64, u16)>>,
    dropped: Vec<u64>,
}

/// Runs the steps, one each ms.
fn run(broker: &mut Broker<u64>, steps: &[Step]) -> Left {
    let mut left = Left::default();
    let mut out = Vec::new();
    let mut next_id = 0;
    for (now, step) in steps.iter().enumerate() {
        let now_ms = now as u64;
        let now = at(now_ms * MS);
        match *step {
            Step::Arrive { slack, member } => {
                let request = of_member(next_id, now_ms + slack, member);
                broker.arrive(now, request, next_id, &mut out);
                next_id += 1;
            }
            Step::Cancel(id) => {
                broker.cancel(RequestId(id));
            }
            Step::Collect => broker.collect(now, now, &mut out),
            Step::Take => {
                broker.collect(now, now, &mut out);
                let batch = broker.take_batch(now, now, &mut out).members;
                let members = batch.iter().map(|m| (m.payload, m.request.member.0));
                left.batches.push(members.collect());
            }
            Step::Expire => broker.expire(now, &mut out),
        }
    }
    left.dropped = out.iter().map(|r| r.payload).collect();
    left
}

proptest! {
    /// However batches are formed, each holds requests of one member, and a request leaves once.
    #[test]
    fn a_batch_is_of_one_member((policy, schedule, batch) in ways(), mut steps in steps(4)) {
        let mut broker = broker(policy, schedule, batch, true);
        // In the end everything leaves.
        steps.extend((0..200).map(|_| Step::Take));
        steps.push(Step::Expire);
        let arrived = steps.iter().filter(|s| matches!(s, Step::Arrive { .. })).count() as u64;
        let left = run(&mut broker, &steps);
        let mut seen = std::collections::BTreeSet::new();
        for members in &left.batches {
            prop_assert!(members.len() <= batch as usize);
            prop_assert!(members.iter().all(|m| m.1 == members[0].1), "{:?}", members);
            prop_assert!(members.iter().all(|m| seen.insert(m.0)));
        }
        prop_assert!(left.dropped.iter().all(|id| seen.insert(*id)));
        prop_assert_eq!(broker.waiting(), 0);
        for id in (0..arrived).filter(|id| !seen.contains(id)) {
            let was_cancelled = steps.iter().any(|s| matches!(s, Step::Cancel(of) if *of == id));
            prop_assert!(was_cancelled, "request {} is lost", id);
        }
    }

    /// A family that is asked for one member alone behaves as a module without a family, whoever forms its batches.
    #[test]
    fn one_member_is_like_no_family((policy, schedule, batch) in ways(), steps in steps(1)) {
        let [plain, family] = [false, true].map(|is_family| {
            let mut broker = broker(policy, schedule, batch, is_family);
            run(&mut broker, &steps)
        });
        prop_assert_eq!(plain, family);
    }

    /// Policies that bind ahead against the obvious reference: a list that is sorted before each choice.
    #[test]
    fn a_batch_ahead_is_of_the_first_requests_member(
        policy in prop::sample::select(vec![
            drops::PARD_HBF,
            drops::PARD_LBF,
            drops::PARD_FCFS,
            DropPolicy::NEXUS_SPLIT,
            DropPolicy::NONE,
        ]),
        requests in prop::collection::vec((1u64..120, 0u16..3), 1..40),
        batch in 1u32..5,
        busy_for in 0u64..40,
    ) {
        let mut broker = broker(policy, None, batch, true);
        let mut out = Vec::new();
        let mut list: Vec<(u64, u64, u16)> = Vec::new();
        for (id, (slack, member)) in (0u64..).zip(&requests) {
            broker.arrive(at(id * MS), of_member(id, id + slack, *member), id, &mut out);
            list.push((id + slack, id, *member));
        }
        let now = requests.len() as u64;
        let ends = now + busy_for + 10 * u64::from(batch);
        let is_kept = |deadline: u64| policy == DropPolicy::NONE || ends <= deadline;
        let (mut expected, mut dropped) = (Vec::new(), Vec::new());
        let mut lead: Option<u16> = None;
        while expected.len() < batch as usize {
            list.sort_unstable_by_key(|l| match policy {
                drops::PARD_HBF => (u64::MAX - l.0, u64::MAX - l.1),
                drops::PARD_LBF => (l.0, l.1),
                _ => (l.1, 0),
            });
            let is_of = |l: &&(u64, u64, u16)| lead.is_none_or(|lead| l.2 == lead);
            let Some(&(deadline, id, member)) = list.iter().find(is_of) else { break };
            if policy == DropPolicy::NEXUS_SPLIT {
                // The first run of this member's requests of which all are in time; all before it are dropped.
                let own: Vec<_> = list.iter().filter(|l| l.2 == member).copied().collect();
                let from = (0..own.len())
                    .find(|&i| own[i..].iter().take(batch as usize).all(|l| is_kept(l.0)))
                    .unwrap_or(own.len());
                dropped.extend(own[..from].iter().map(|l| l.1));
                expected.extend(own[from..].iter().take(batch as usize).map(|l| l.1));
                list.retain(|l| l.2 != member);
                if expected.is_empty() { continue }
                break;
            }
            list.retain(|l| l.1 != id);
            if is_kept(deadline) {
                lead = Some(member);
                expected.push(id);
            } else {
                dropped.push(id);
            }
        }
        broker.collect(at(now * MS), at((now + busy_for) * MS), &mut out);
        let drops: Vec<u64> = out.iter().map(|r| r.payload).collect();
        prop_assert_eq!(drops, dropped);
        prop_assert_eq!(batch_ids(&mut broker), expected);
    }

    /// A late batch against the obvious reference: while batches of one member each, the most urgent first, make all
    /// deadlines, the first of them is bound and nothing is dropped. Otherwise the batch is of the member with the most time.
    #[test]
    fn a_late_batch_is_of_the_first_requests_member(
        requests in prop::collection::vec((1u64..400, 0u16..4), 1..30),
        batch in 1u32..6,
    ) {
        let mut broker = broker(DropPolicy::SPILLGATE, None, batch, true);
        let mut out = Vec::new();
        for (id, (slack, member)) in (0u64..).zip(&requests) {
            broker.arrive(at(0), of_member(id, *slack, *member), id, &mut out);
        }
        let all: Vec<(u64, u64, u16)> =
            (0u64..).zip(&requests).map(|(id, (slack, member))| (*slack, id, *member)).collect();
        let next = |list: &mut Vec<(u64, u64, u16)>| {
            list.sort_unstable();
            let lead = list[0].2;
            let members: Vec<_> =
                list.iter().filter(|l| l.2 == lead).take(batch as usize).copied().collect();
            list.retain(|l| !members.contains(l));
            members
        };
        let mut list = all.clone();
        let first: Vec<u64> = next(&mut list).iter().map(|l| l.1).collect();
        let mut list = all.clone();
        let mut end = 0;
        let mut is_feasible = true;
        while !list.is_empty() {
            let members = next(&mut list);
            end += 10 * members.len() as u64;
            is_feasible &= end <= members[0].0;
        }
        let bound = batch_ids_at(&mut broker, &mut out);
        prop_assert_eq!(bound.len() + out.len() + broker.waiting(), requests.len());
        if is_feasible {
            prop_assert!(out.is_empty());
            prop_assert_eq!(bound, first);
        } else if let Some(leads) = bound.first() {
            let of = |id: u64| all[id as usize];
            let most = all.iter().map(|l| l.0).max().unwrap_or_default();
            let hopeless: Vec<u64> = out.iter().map(|r| r.payload).collect();
            let kept = all.iter().filter(|l| !hopeless.contains(&l.1)).copied().collect::<Vec<_>>();
            let mut rest = kept.clone();
            let mut end = 0;
            let mut rest_is_feasible = true;
            while !rest.is_empty() {
                let members = next(&mut rest);
                end += 10 * members.len() as u64;
                rest_is_feasible &= end <= members[0].0;
            }
            if !rest_is_feasible {
                prop_assert_eq!(of(*leads).0, most);
            }
        }
    }
}

fn batch_ids_at(broker: &mut Broker<u64>, out: &mut Vec<Rejected<u64>>) -> Vec<u64> {
    let batch = broker.take_batch(at(0), at(0), out).members;
    batch.iter().map(|m| m.request.id.0).collect()
}

/// A scheduler that wants more of the first member does not keep the others waiting.
#[test]
fn requests_of_other_members_are_served_while_a_scheduler_waits() {
    for schedule in schedulers::ALL {
        let mut broker = broker(DropPolicy::SPILLGATE, Some(schedule), 4, true);
        let mut out = Vec::new();
        for id in 0..12 {
            broker.arrive(at(0), of_member(id, 900, (id % 3) as u16), id, &mut out);
        }
        let mut served = 0;
        for turn in 0..60 {
            let now = at(turn * 10 * MS);
            broker.collect(now, now, &mut out);
            served += broker.take_batch(now, now, &mut out).members.len();
        }
        assert_eq!((served, out.len()), (12, 0), "{schedule:?}");
    }
}
