use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::strategy::Strategy;
use spillgate_pipeline::distribution::{
    BatchForm, BatchTime, Distribution, Maximum, WINDOW_DEFAULT,
};
use spillgate_pipeline::schedule::SCHEDULED_BATCH_MAX;
use spillgate_recipes::schedulers;

use super::score::ScoreLaw;
use super::*;

mod learning;

const C0: f64 = 38.5;
const C1: f64 = 0.3;
/// Mean lengths of the applications.
const MEANS: [f64; 3] = [20.0, 90.0, 45.0];

fn config(name: SchedulePolicy) -> SchedulerConfig {
    SchedulerConfig {
        policy: name,
        sizes: vec![1, 2, 4, 8, 16],
        planned: 4,
        time: BatchTime::new(BatchForm::Padded, C0, C1, 0.0).unwrap(),
        prior_ms: 50.0,
        window: WINDOW_DEFAULT,
        capacity: 64,
        scoring: Scoring::default(),
    }
}

fn at(ms: f64) -> Timestamp {
    Timestamp::from_ns((ms * 1e6).round() as u64)
}

fn slack_ms(now: Timestamp, deadline: Timestamp) -> f64 {
    deadline.budget_at(now).as_ms_f64()
}

fn pending(id: u64, application: u16, arrived: f64, slack: f64) -> Pending {
    Pending {
        id: RequestId(id),
        application: Application(application),
        deadline: at(arrived + slack),
        arrived_at: at(arrived),
    }
}

/// Lengths spread evenly from half of an application's mean to one and a half of it.
fn taught(name: SchedulePolicy) -> Scheduler {
    let mut scheduler = Scheduler::new(config(name)).unwrap();
    for i in 0..200 {
        for (application, mean) in MEANS.iter().enumerate() {
            let length = mean * (0.5 + f64::from(i % 100) / 100.0);
            let application = Application(application as u16);
            scheduler.learn(at(0.0), application, length).unwrap();
        }
    }
    scheduler
}

fn next(scheduler: &mut Scheduler, now: f64) -> (Option<ScheduledBatch>, Vec<GivenUp>) {
    let mut out = Vec::new();
    let batch = scheduler.next(at(now), &mut out);
    (batch, out)
}

#[test]
fn empty_single_and_full() {
    for name in schedulers::ALL {
        let mut scheduler = taught(name);
        assert_eq!(next(&mut scheduler, 1.0), (None, vec![]), "{name}");
        scheduler
            .insert(at(1.0), pending(0, 0, 1.0, 900.0))
            .unwrap();
        let (batch, gone) = next(&mut scheduler, 1.0);
        let batch = batch.unwrap();
        assert_eq!(
            (batch.size, batch.members),
            (1, vec![RequestId(0)]),
            "{name}"
        );
        assert!(gone.is_empty() && scheduler.is_empty());
        for id in 1..65 {
            scheduler
                .insert(at(2.0), pending(id, 1, 2.0, 900.0))
                .unwrap();
        }
        let refused = scheduler.insert(at(2.0), pending(65, 1, 2.0, 900.0));
        assert_eq!(refused, Err(Refused::Full));
        assert!(scheduler.remove(RequestId(64)) && !scheduler.remove(RequestId(64)));
        let refused = scheduler.insert(at(2.0), pending(63, 1, 2.0, 900.0));
        assert_eq!(refused, Err(Refused::Known));
        let (batch, _) = next(&mut scheduler, 2.0);
        assert!(!batch.unwrap().members.is_empty());
        assert_eq!(scheduler.next_expiry(), Some(at(902.0)));
    }
}

#[test]
fn without_samples_and_for_strangers_it_serves_by_the_prior_and_the_mixture() {
    for name in schedulers::ALL {
        let mut untaught = Scheduler::new(config(name)).unwrap();
        untaught.insert(at(1.0), pending(0, 7, 1.0, 900.0)).unwrap();
        assert!(next(&mut untaught, 1.0).0.is_some(), "{name}");
        let mut taught = taught(name);
        taught.insert(at(1.0), pending(0, 2, 1.0, 900.0)).unwrap();
        taught
            .insert(at(1.0), pending(1, u16::MAX, 1.0, 900.0))
            .unwrap();
        let served: usize = (0..2)
            .filter_map(|_| next(&mut taught, 1.0).0)
            .map(|batch| batch.members.len())
            .sum();
        assert_eq!(served, 2, "{name}");
    }
}

#[test]
fn what_cannot_be_built_is_refused_in_words() {
    let refused = |change: &dyn Fn(&mut SchedulerConfig)| {
        let mut config = config(SchedulePolicy::GOODPUT);
        change(&mut config);
        Scheduler::new(config).unwrap_err().to_string()
    };
    assert!(refused(&|c| c.sizes = vec![]).contains("rising sizes"));
    assert!(refused(&|c| c.sizes = vec![0, 1]).contains("rising sizes"));
    assert!(refused(&|c| c.sizes = vec![2, 2]).contains("rising sizes"));
    assert!(refused(&|c| c.sizes = vec![SCHEDULED_BATCH_MAX + 1]).contains("rising sizes"));
    assert!(refused(&|c| c.planned = 0).contains("planned batch of 0"));
    assert!(refused(&|c| c.planned = 17).contains("1 to 16"));
    assert!(refused(&|c| c.capacity = 0).contains("room for 0 requests"));
    assert!(refused(&|c| c.window.samples = 0).contains("0 samples"));
    assert!(refused(&|c| c.window.age = Duration::ZERO).contains("0ns"));
    assert!(refused(&|c| c.scoring.delay_rate = f64::NAN).contains("rate of NaN per ms"));
    assert!(refused(&|c| c.scoring.bins = 0).contains("in 0 bins"));
    assert!(refused(&|c| c.prior_ms = f64::NAN).contains("NaN"));
    let mut scheduler = taught(SchedulePolicy::GOODPUT);
    assert!(scheduler.learn(at(0.0), Application(0), -1.0).is_err());
    assert!(scheduler.learn(at(0.0), Application(0), f64::NAN).is_err());
}

#[derive(Clone, Debug)]
enum Step {
    Arrive(u16, f64),
    Remove(u64),
    /// So many ms later a batch may start.
    Free(f64),
    Learn(u16, f64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..4u16, 20.0..900.0f64).prop_map(|(a, slack)| Step::Arrive(a, slack)),
        1 => (0..100u64).prop_map(Step::Remove),
        2 => (0.0..150.0f64).prop_map(Step::Free),
        1 => (0..4u16, 5.0..120.0f64).prop_map(|(a, length)| Step::Learn(a, length)),
    ];
    prop::collection::vec(step, 1..200)
}

/// Drives a scheduler; each request must leave exactly once. The batches, for comparison.
fn drive(name: SchedulePolicy, steps: &[Step]) -> Vec<ScheduledBatch> {
    let mut scheduler = taught(name);
    let (mut now, mut ids) = (1.0, 0);
    let mut waiting = BTreeSet::new();
    let mut batches = Vec::new();
    for step in steps {
        match *step {
            Step::Arrive(application, slack) => {
                let pending = pending(ids, application, now, slack);
                if scheduler.insert(at(now), pending).is_ok() {
                    assert!(waiting.insert(RequestId(ids)));
                }
                ids += 1;
            }
            Step::Remove(id) => {
                let id = RequestId(id);
                assert_eq!(scheduler.remove(id), waiting.remove(&id));
            }
            Step::Learn(application, length) => {
                let application = Application(application);
                scheduler.learn(at(now), application, length).unwrap();
            }
            Step::Free(ms) => {
                now += ms;
                let (batch, gone) = next(&mut scheduler, now);
                for given_up in gone {
                    assert!(waiting.remove(&given_up.id), "{name}");
                }
                if let Some(batch) = batch {
                    assert!(!batch.members.is_empty());
                    assert!(batch.members.len() <= batch.size as usize);
                    assert!(config(name).sizes.contains(&batch.size));
                    for id in &batch.members {
                        assert!(waiting.remove(id), "{name}");
                    }
                    now += batch.expected.as_secs_f64() * 1e3 * 1.2;
                    let expected = (batch.expected, batch.lengths);
                    scheduler.executed(at(now), batch.size, expected, batch.expected.mul_f64(1.2));
                    batches.push(batch);
                }
            }
        }
        assert_eq!(scheduler.len(), waiting.len());
    }
    let mut gone = Vec::new();
    scheduler.expire(at(now + 1_000.0), &mut gone);
    assert_eq!(gone.len(), waiting.len());
    assert!(scheduler.is_empty() && scheduler.next_expiry().is_none());
    batches
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn each_request_leaves_exactly_once_and_runs_repeat(steps in steps()) {
        for name in schedulers::ALL {
            prop_assert_eq!(drive(name, &steps), drive(name, &steps));
        }
    }

    /// Algorithm 1 by looking at everything, with the score at full precision, while requests come and go.
    #[test]
    fn orloj_chooses_as_a_scan_does(
        rounds in prop::collection::vec(
            (
                prop::collection::vec((0..3u16, 30.0..900.0f64), 0..30),
                prop::option::of(any::<prop::sample::Index>()),
                0.0..60.0f64,
            ),
            1..20,
        ),
        is_shared: bool,
    ) {
        let name = if is_shared { schedulers::ORLOJ_SHARED } else { SchedulePolicy::ORLOJ };
        let mut scheduler = taught(name);
        let scoring = Scoring::default();
        let mut waiting: Vec<Pending> = Vec::new();
        let (mut now, mut ids) = (1.0, 0);
        for (arrivals, removed, moment) in rounds {
            for (application, slack) in arrivals {
                let pending = pending(ids, application, now, slack);
                if scheduler.insert(at(now), pending).is_ok() {
                    waiting.push(pending);
                }
                ids += 1;
            }
            if let Some(removed) = removed && !waiting.is_empty() {
                let removed = waiting.swap_remove(removed.index(waiting.len()));
                prop_assert!(scheduler.remove(removed.id));
            }
            now += moment;
            let (batch, gone) = next(&mut scheduler, now);
            waiting.retain(|p| gone.iter().all(|g| g.id != p.id));
            let laws = |size: u32| -> Vec<ScoreLaw> {
                let law = |i: usize| {
                    let own = if is_shared { scheduler.book.mixture() } else { scheduler.book.law(i) };
                    let members = [(own, 1), (scheduler.book.mixture(), size - 1)];
                    let law = scheduler.book.time().law(size, &members).coarser(scoring.bins).unwrap();
                    ScoreLaw::new(&law, scoring.delay_rate)
                };
                (0..3).map(law).collect()
            };
            let slack = |p: &Pending| slack_ms(at(now), p.deadline);
            let mut best: Option<(Timestamp, u32)> = None;
            for size in [1, 2, 4, 8, 16] {
                let laws = laws(size);
                // Expiries are whole nanoseconds.
                let fits = |p: &&Pending| slack(p) + 2e-6 >= laws[p.application.idx()].mean();
                let feasible: Vec<&Pending> = waiting.iter().filter(fits).collect();
                let first = feasible.iter().map(|p| p.deadline).min();
                if let Some(first) = first && feasible.len() >= size as usize {
                    best = best.max(Some((first, size)));
                }
            }
            prop_assert_eq!(best.map(|b| b.1), batch.as_ref().map(|b| b.size));
            let Some(batch) = batch else { continue };
            let laws = laws(batch.size);
            let score = |p: &Pending| laws[p.application.idx()].score(slack(p));
            let mut scores: Vec<f64> = waiting
                .iter()
                .filter(|p| slack(p) + 2e-6 >= laws[p.application.idx()].mean())
                .map(score)
                .collect();
            scores.sort_by(|a, b| b.total_cmp(a));
            let members = waiting.iter().filter(|p| batch.members.contains(&p.id));
            let least = members.map(score).fold(f64::INFINITY, f64::min);
            prop_assert!(least >= scores[batch.size as usize - 1] * (1.0 - 1e-9));
            waiting.retain(|p| !batch.members.contains(&p.id));
        }
    }

    /// The same rule with exact order statistics in place of the grid: what is chosen is as good as the best.
    #[test]
    fn goodput_chooses_the_best_candidate(
        arrivals in prop::collection::vec((0..3u16, 30.0..900.0f64), 1..40),
    ) {
        let mut scheduler = taught(SchedulePolicy::GOODPUT);
        let mut waiting = Vec::new();
        for (id, &(application, slack)) in arrivals.iter().enumerate() {
            let pending = pending(id as u64, application, 1.0, slack);
            scheduler.insert(at(1.0), pending).unwrap();
            waiting.push(pending);
        }
        let (batch, gone) = next(&mut scheduler, 1.0);
        waiting.retain(|p| gone.iter().all(|g| g.id != p.id));
        let book = &scheduler.book;
        waiting.sort_by_key(|p| (p.deadline, p.id));
        // Before the first batch, one more takes no time and time costs nothing: each completion is worth less by what
        // its application may gain by waiting.
        let part = |a: usize| {
            let whole = |size: u32| C0 + C1 * f64::from(size) * Maximum::new(&[(book.law(a), size)]).mean();
            [1, 2, 4, 8, 16].map(|size| whole(size) / f64::from(size)).into_iter().fold(f64::INFINITY, f64::min)
        };
        let parts = [0, 1, 2].map(part);
        let most = parts.into_iter().fold(0.0, f64::max);
        let worth = parts.map(|part| 0.15 + 0.5 * (1.0 - part / most));
        let rate = |size: u32, members: &[Pending]| {
            let parts: Vec<(&Distribution, u32)> = (0..3)
                .map(|a| (book.law(a), members.iter().filter(|p| p.application.idx() == a).count() as u32))
                .collect();
            let maximum = Maximum::new(&parts);
            let factor = C1 * f64::from(size);
            let gain = |p: &Pending| {
                let on_time = maximum.cdf((slack_ms(at(1.0), p.deadline) - C0) / factor);
                on_time * (1.0 - worth[p.application.idx()])
            };
            members.iter().map(gain).sum::<f64>() / (C0 + factor * maximum.mean())
        };
        let mut best = 0.0f64;
        // By mean length: 20, 45, 90 ms.
        for pool in [&[0][..], &[0, 2], &[2], &[0, 2, 1], &[1]] {
            let slowest = book.law(pool[pool.len() - 1]);
            for size in [1, 2, 4, 8, 16u32] {
                let full = Maximum::new(&[(slowest, size)]);
                for longest in [full.mean(), full.levelled().quantile(0.9)] {
                    let bound = C0 + C1 * f64::from(size) * longest;
                    let members: Vec<Pending> = waiting
                        .iter()
                        .filter(|p| pool.contains(&p.application.idx()))
                        .filter(|p| slack_ms(at(1.0), p.deadline) >= bound)
                        .take(size as usize)
                        .copied()
                        .collect();
                    if 2 * members.len() > size as usize {
                        best = best.max(rate(size, &members));
                    }
                }
            }
        }
        let chosen = batch.map_or(0.0, |batch| {
            let members = waiting.iter().filter(|p| batch.members.contains(&p.id));
            rate(batch.size, &members.copied().collect::<Vec<_>>())
        });
        prop_assert!(chosen >= best * 0.995, "{chosen} {best}");
    }
}

#[test]
fn goodput_does_not_batch_the_long_with_the_short() {
    let mut scheduler = taught(SchedulePolicy::GOODPUT);
    for id in 0..4 {
        scheduler
            .insert(at(1.0), pending(id, 0, 1.0, 120.0))
            .unwrap();
    }
    scheduler
        .insert(at(1.0), pending(4, 1, 1.0, 900.0))
        .unwrap();
    let batch = next(&mut scheduler, 1.0).0.unwrap();
    assert_eq!(batch.size, 4);
    assert!(!batch.members.contains(&RequestId(4)));
}

#[test]
fn goodput_pads_a_batch_that_is_over_half_full() {
    let mut scheduler = taught(SchedulePolicy::GOODPUT);
    for id in 0..3 {
        scheduler
            .insert(at(1.0), pending(id, 0, 1.0, 900.0))
            .unwrap();
    }
    let batch = next(&mut scheduler, 1.0).0.unwrap();
    assert_eq!((batch.size, batch.members.len()), (4, 3));
}

#[test]
fn what_cannot_make_it_is_given_up_with_the_numbers() {
    for name in [
        SchedulePolicy::GOODPUT,
        SchedulePolicy::EDF,
        SchedulePolicy::CLOCKWORK,
    ] {
        let mut scheduler = taught(name);
        scheduler.insert(at(1.0), pending(0, 1, 1.0, 45.0)).unwrap();
        scheduler.insert(at(1.0), pending(1, 1, 1.0, 10.0)).unwrap();
        let (batch, gone) = next(&mut scheduler, 12.0);
        assert_eq!(batch, None);
        assert_eq!(gone[0].reason, GiveUpReason::Expired);
        assert_eq!(gone[1].reason, GiveUpReason::Infeasible, "{name}");
        let needed = gone[1].estimate.unwrap().total().as_secs_f64() * 1e3;
        assert!(needed > 34.0, "{needed}");
        assert_eq!(gone[1].reason.drop_reason(), DropReason::Predicted);
    }
}

#[test]
fn clockwork_loses_the_action_behind_an_overrun() {
    for (late, lost) in [(4.0, 0), (6.0, 1)] {
        let mut scheduler = taught(schedulers::CLOCKWORK_MEAN);
        scheduler
            .insert(at(1.0), pending(0, 0, 1.0, 900.0))
            .unwrap();
        let batch = next(&mut scheduler, 1.0).0.unwrap();
        let predicted_end = 1.0 + batch.expected.as_secs_f64() * 1e3;
        // Known when the next action is planned, and not.
        scheduler
            .insert(at(2.0), pending(1, 0, 2.0, 900.0))
            .unwrap();
        let then = predicted_end + 1.0;
        scheduler
            .insert(at(then), pending(2, 0, then, 900.0))
            .unwrap();
        let expected = (batch.expected, batch.lengths);
        scheduler.executed(
            at(predicted_end + late),
            batch.size,
            expected,
            batch.expected,
        );
        let (batch, gone) = next(&mut scheduler, predicted_end + late);
        let lost_ids: Vec<RequestId> = gone.iter().map(|g| g.id).collect();
        assert_eq!(lost_ids, vec![RequestId(1); lost]);
        assert!(gone.iter().all(|g| g.reason == GiveUpReason::ActionRefused));
        assert_eq!(batch.unwrap().members.len(), 2 - lost);
    }
}

#[test]
fn clockwork_predicts_by_the_last_ten() {
    for (name, expected) in [
        (SchedulePolicy::CLOCKWORK, 110.0),
        (schedulers::CLOCKWORK_MEAN, 65.0),
    ] {
        let mut scheduler = taught(name);
        let mut now = 0.0;
        // The first two of twelve are forgotten: 20 to 110 ms are left.
        for took in (0..12u64).map(|i| 10 * i) {
            scheduler
                .insert(at(now), pending(took, 0, now, 9e3))
                .unwrap();
            let batch = next(&mut scheduler, now).0.unwrap();
            scheduler.executed(
                at(now),
                batch.size,
                (batch.expected, batch.lengths),
                Duration::from_millis(took.max(1)),
            );
            now += 1e4;
        }
        scheduler
            .insert(at(now), pending(999, 0, now, 9e3))
            .unwrap();
        let batch = next(&mut scheduler, now).0.unwrap();
        assert_eq!(batch.expected.as_secs_f64() * 1e3, expected, "{name}");
    }
}

#[test]
fn nexus_drops_what_stands_before_the_first_run_in_time() {
    let mut scheduler = taught(schedulers::NEXUS);
    for (id, slack) in [900.0, 100.0, 900.0, 900.0].into_iter().enumerate() {
        let arrived = 1.0 + id as f64;
        scheduler
            .insert(at(arrived), pending(id as u64, 0, arrived, slack))
            .unwrap();
    }
    let (batch, gone) = next(&mut scheduler, 5.0);
    assert_eq!(batch.unwrap().members, [RequestId(2), RequestId(3)]);
    assert_eq!(gone.len(), 2);
    assert!(gone.iter().all(|g| g.reason == GiveUpReason::BeforeRun));
}

#[test]
fn clipper_grows_by_one_and_shrinks_by_a_tenth() {
    let mut scheduler = taught(schedulers::CLIPPER);
    let mut sizes = Vec::new();
    for round in 0..14u64 {
        let now = round as f64 * 1e4;
        for id in 0..16 {
            let id = round * 16 + id;
            scheduler
                .insert(at(now), pending(id, 0, now, 500.0))
                .unwrap();
        }
        let batch = next(&mut scheduler, now).0.unwrap();
        sizes.push(batch.members.len());
        let took = if batch.members.len() > 11 { 600 } else { 400 };
        scheduler.executed(
            at(now),
            batch.size,
            (batch.expected, batch.lengths),
            Duration::from_millis(took),
        );
        scheduler.expire(at(now + 1e3), &mut Vec::new());
    }
    assert_eq!(sizes, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 10, 11]);
}
