use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::predict::Action;
use crate::time::Timestamp;

fn record(kind: ActionKind, times: [u64; 4]) -> ActionRecord {
    let [expected, took, expected_end, ended_at] = times;
    ActionRecord {
        action: Action {
            kind,
            model: 0,
            size: 1,
        },
        expected: Duration::from_nanos(expected),
        took: Duration::from_nanos(took),
        expected_end: Timestamp::from_ns(expected_end),
        ended_at: Timestamp::from_ns(ended_at),
    }
}

#[test]
fn durations_and_completions_are_counted_apart_and_by_kind() {
    let mut errors = PredictionErrors::default();
    errors.record(&record(ActionKind::Execute, [10, 13, 20, 25]));
    errors.record(&record(ActionKind::Execute, [10, 6, 30, 28]));
    errors.record(&record(ActionKind::Load, [10, 17, 40, 40]));
    let summary = |count, [mean_ns, p1_ns, p50_ns, p99_ns, max_ns]: [i64; 5]| {
        Some(ErrorSummary {
            count,
            mean_ns,
            p1_ns,
            p50_ns,
            p99_ns,
            max_ns,
        })
    };
    let execute = ActionKind::Execute;
    assert_eq!(errors.durations(execute), summary(2, [0, -4, -4, 3, 3]));
    assert_eq!(errors.completions(execute), summary(2, [1, -2, -2, 5, 5]));
    let load = ActionKind::Load;
    assert_eq!(errors.durations(load), summary(1, [7; 5]));
    assert_eq!(errors.completions(load), summary(1, [0; 5]));
    for kind in [ActionKind::Rerun, ActionKind::Unload] {
        assert_eq!(errors.durations(kind), None, "{}", kind.name());
        assert_eq!(errors.completions(kind), None);
    }
}

#[test]
fn kinds_are_in_the_order_of_their_ordinals() {
    for (i, kind) in ActionKind::ALL.into_iter().enumerate() {
        assert_eq!(kind as usize, i);
    }
}

/// Errors of ns to minutes, both ways, and some beyond the last bucket.
fn times() -> impl Strategy<Value = u64> {
    prop_oneof![
        2 => 0..100u64,
        2 => 0..10_000_000u64,
        2 => 0..100_000_000_000u64,
        1 => any::<u64>(),
    ]
}

/// Whether a counted quantile may stand for that number.
fn stands_for(counted: i64, exact: i64) -> bool {
    const LAST: i64 = 1 << 40;
    if exact.unsigned_abs() >= LAST as u64 {
        return counted.signum() == exact.signum()
            && counted.unsigned_abs() > LAST as u64 / 16 * 15;
    }
    (counted - exact).unsigned_abs() <= exact.unsigned_abs() / 32
}

proptest! {
    #[test]
    fn summaries_agree_with_a_sorted_vector(
        records in prop::collection::vec([times(), times(), times(), times()], 1..200),
    ) {
        let mut errors = PredictionErrors::default();
        let (mut durations, mut completions) = (Vec::new(), Vec::new());
        for times in records {
            errors.record(&record(ActionKind::Execute, times));
            let exact = times.map(i128::from);
            durations.push(exact[1] - exact[0]);
            completions.push(exact[3] - exact[2]);
        }
        let kind = ActionKind::Execute;
        for (summary, exact) in [
            (errors.durations(kind), durations),
            (errors.completions(kind), completions),
        ] {
            let summary = summary.unwrap();
            let most = i128::from(i64::MAX);
            let mut sorted: Vec<i64> = exact.iter().map(|e| (*e).clamp(-most, most) as i64).collect();
            sorted.sort_unstable();
            let n = sorted.len();
            let sum: i128 = sorted.iter().map(|e| i128::from(*e)).sum();
            prop_assert_eq!(summary.count, n as u64);
            prop_assert_eq!(i128::from(summary.mean_ns), sum / n as i128);
            prop_assert_eq!(summary.max_ns, sorted[n - 1]);
            for (counted, percent) in [(summary.p1_ns, 1), (summary.p50_ns, 50), (summary.p99_ns, 99)] {
                let exact = sorted[(n * percent).div_ceil(100) - 1];
                prop_assert!(stands_for(counted, exact), "p{} {} {}", percent, counted, exact);
            }
        }
    }
}
