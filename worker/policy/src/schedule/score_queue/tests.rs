use proptest::prelude::*;
use spillgate_pipeline::distribution::Distribution;

use super::*;

fn laws(rate: f64) -> Vec<ScoreLaw> {
    let laws = [
        Distribution::from_bins(vec![5.0, 20.0, 40.0], &[0.7, 0.3]).unwrap(),
        Distribution::from_bins(vec![30.0, 60.0, 90.0, 200.0], &[0.2, 0.5, 0.3]).unwrap(),
    ];
    laws.iter().map(|law| ScoreLaw::new(law, rate)).collect()
}

#[derive(Clone, Debug)]
enum Op {
    /// Law, slack in ms, a second step after so many ms.
    Insert(usize, f64, Option<f64>),
    Remove(prop::sample::Index),
    /// By so many ms.
    Advance(f64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let insert = (0..2usize, 1.0..2_000.0f64, prop::option::of(1.0..300.0f64));
    let op = prop_oneof![
        4 => insert.prop_map(|(law, slack, second)| Op::Insert(law, slack, second)),
        1 => any::<prop::sample::Index>().prop_map(Op::Remove),
        4 => (0.0..80.0f64).prop_map(Op::Advance),
        // Hours without a call.
        1 => (0.0..1e7f64).prop_map(Op::Advance),
    ];
    prop::collection::vec(op, 1..150)
}

struct Entry {
    slot: u32,
    law: usize,
    steps: Steps,
}

fn run(rate: f64, start: Timestamp, ops: Vec<Op>) {
    let laws = laws(rate);
    let mut queue = ScoreQueue::new(rate);
    let mut entries: Vec<Entry> = Vec::new();
    let mut now = start;
    for (slot, op) in ops.into_iter().enumerate() {
        match op {
            Op::Insert(law, slack, second) => {
                let deadline = now + span(slack);
                let mut levels = vec![(deadline, 1.0)];
                levels.extend(second.map(|ms| (deadline + span(ms), 3.0)));
                let steps = Steps::levels(&levels).unwrap();
                let slot = slot as u32;
                queue.insert(now, &laws, slot, law, steps);
                entries.push(Entry { slot, law, steps });
            }
            Op::Remove(which) => {
                if !entries.is_empty() {
                    let entry = entries.swap_remove(which.index(entries.len()));
                    assert!(queue.remove(entry.slot));
                    assert!(!queue.remove(entry.slot));
                }
            }
            Op::Advance(ms) => now = now + span(ms),
        }
        queue.advance(now, &laws);
        assert_eq!(queue.len(), entries.len());
        assert!(queue.milestones.len() <= 2 * entries.len() + STALE_MIN + 1);
        let score = |entry: &Entry| {
            let steps = entry.steps.iter();
            let steps = steps.map(|s| (s.deadline.budget_at(now).as_ms_f64(), s.cost));
            laws[entry.law].score_of_steps(steps)
        };
        let best = entries.iter().map(score).reduce(f64::max);
        let found = queue.first(now);
        assert_eq!(best.is_some(), found.is_some());
        if let (Some(best), Some(found)) = (best, found) {
            let entry = entries
                .iter()
                .find(|e| e.slot == found)
                .expect("it is kept");
            // alpha and beta are of the order of 1 / (E b) and cancel to the score.
            let cancelled = 1e-14 / (rate * laws[0].mean());
            assert!(score(entry) >= best * (1.0 - 1e-9) - cancelled);
        }
    }
}

proptest! {
    #[test]
    fn the_first_has_the_highest_score(ops in ops()) {
        run(1e-4, Timestamp::ZERO, ops);
    }

    // Over five seconds: 256 drawn cases, in which each operation is compared with a search through all.
    #[test]
    fn it_is_safe_after_days_of_uptime_and_for_any_delay(
        days in 0..400u64,
        rate in (-20.0..0.0f64).prop_map(f64::exp),
        ops in ops(),
    ) {
        run(rate, Timestamp::from_ns(days * 86_400 * 1_000_000_000 + 12_345), ops);
    }
}

/// Beyond 745 / b a score is less than any double, and so is the slope of its line.
#[test]
fn a_request_whose_deadline_is_far_beyond_the_delay_rate_comes_first_in_time() {
    for slack in [650.0, 1190.0, 1e5] {
        for pair in [[1.0, slack], [slack, 1.0]] {
            let mut ops = Vec::from(pair.map(|slack| Op::Insert(0, slack, None)));
            // The last of them see each millisecond of the batch's law.
            ops.push(Op::Advance(slack - 100.0));
            ops.extend(vec![Op::Advance(1.0); 100]);
            run(1.0, Timestamp::ZERO, ops);
        }
    }
}

/// Never empty for a week, so that the reference time moves and moves.
#[test]
fn a_week_without_a_pause() {
    let laws = laws(1e-4);
    let mut queue = ScoreQueue::new(1e-4);
    let mut now = Timestamp::ZERO;
    for i in 0..20_000u32 {
        now = now + span(30_000.0);
        let deadline = now + span(40_000.0 + f64::from(i % 7) * 10.0);
        queue.insert(now, &laws, i, 1, Steps::single(deadline));
        queue.advance(now, &laws);
        assert_eq!(queue.remove(i.wrapping_sub(2)), i >= 2);
        // The older one is nearer to its deadline, and so comes first.
        let expected = i.saturating_sub(1);
        assert_eq!(queue.first(now), Some(expected), "at {i}");
        assert!(queue.base_rest_ms < 1e-6 && now.since(queue.base).as_secs() <= 300);
    }
}
