//! Estimators and the predictor against slow obvious references.

use proptest::prelude::*;

use super::*;
use crate::time::Timestamp;

fn ns(n: u64) -> Duration {
    Duration::from_nanos(n)
}

fn name() -> impl Strategy<Value = EstimatorName> {
    prop::sample::select(EstimatorName::ALL.to_vec())
}

fn cap() -> impl Strategy<Value = Cap> {
    prop_oneof![
        Just(Cap::None),
        (1.0..4.0f64).prop_map(Cap::Seed),
        (1.0..4.0f64).prop_map(Cap::Median),
        (1.0..4.0f64).prop_map(Cap::Typical),
    ]
}

/// Durations in ns around 1 ms, and now and then far longer ones.
fn took() -> impl Strategy<Value = u64> {
    prop_oneof![5 => 500_000..2_000_000u64, 1 => 0..10_000_000_000u64]
}

/// The estimate from the whole history, ns.
fn slow(name: EstimatorName, cap: Cap, seed: u64, window: usize, history: &[u64]) -> f64 {
    if history.is_empty() {
        return seed as f64;
    }
    let last = &history[history.len().saturating_sub(window)..];
    let mut sorted = last.to_vec();
    sorted.sort_unstable();
    let quantile = |q: f64| sorted[(q * last.len() as f64).ceil() as usize - 1] as f64;
    // What a duration counted at most when it was the `n`-th, from 1.
    let most = |n: usize| match cap {
        Cap::Typical(times) => (times * typical(seed, window, &history[..n])).floor(),
        Cap::None | Cap::Seed(_) | Cap::Median(_) => f64::INFINITY,
    };
    let now = most(history.len());
    let estimate = match name {
        EstimatorName::LastMax => quantile(0.99),
        EstimatorName::LastMedian => quantile(0.5),
        EstimatorName::LastMean => {
            last.iter().map(|&took| now.min(took as f64)).sum::<f64>() / last.len() as f64
        }
        EstimatorName::Ewma => (1..).zip(history).fold(seed as f64, |mean, (n, &took)| {
            0.8 * mean + 0.2 * most(n).min(took as f64)
        }),
    };
    match cap {
        Cap::None => estimate,
        Cap::Seed(times) => estimate.min(times * seed as f64),
        Cap::Median(times) => estimate.min(times * quantile(0.5)),
        Cap::Typical(_) => estimate.min(now),
    }
}

/// The larger of the seed and of the lower median of the last durations, before which the seed was measured for ever.
fn typical(seed: u64, window: usize, history: &[u64]) -> f64 {
    let always = std::iter::repeat(&seed);
    let mut last: Vec<u64> = history
        .iter()
        .rev()
        .chain(always)
        .take(window)
        .copied()
        .collect();
    last.sort_unstable();
    last[last.len().div_ceil(2) - 1].max(seed) as f64
}

proptest! {
    #[test]
    fn an_estimator_agrees_with_its_whole_history(
        name in name(),
        cap in cap(),
        seed in 1..2_000_000u64,
        window in 1usize..15,
        history in prop::collection::vec(took(), 0..50),
    ) {
        let mut estimator = Estimator::with_window(name, cap, ns(seed), window);
        for n in 0..=history.len() {
            let estimate = estimator.estimate().as_nanos() as f64;
            let expected = slow(name, cap, seed, window, &history[..n]);
            prop_assert!((estimate - expected).abs() <= 1.0, "{} {}", estimate, expected);
            if let Some(&took) = history.get(n) {
                estimator.observe(Timestamp::ZERO, ns(took));
            }
        }
    }

    /// However long one action takes, and whenever: with a cap the estimate stays near what the others take. A median of
    /// one duration is that duration: a cap by the median holds from the second on.
    #[test]
    fn one_outlier_cannot_poison_an_estimate_with_a_cap(
        name in name(),
        usual in prop::collection::vec(900_000..1_100_000u64, 1..30),
        outlier in 0..u64::MAX / 2,
        place in any::<prop::sample::Index>(),
    ) {
        let seed = ns(1_000_000);
        let most = ns(1_650_000);
        let mut durations = usual;
        let place = place.index(durations.len() + 1);
        durations.insert(place, outlier);
        for cap in [Cap::Seed(1.5), Cap::Median(1.5), Cap::Typical(1.5)] {
            let mut estimator = Estimator::new(name, cap, seed);
            for (n, took) in durations.iter().enumerate() {
                estimator.observe(Timestamp::ZERO, ns(*took));
                if n > 0 || cap != Cap::Median(1.5) {
                    prop_assert!(estimator.estimate() <= most, "{:?}", estimator);
                }
            }
        }
    }

    #[test]
    fn a_predictor_by_size_is_an_estimator_for_each_action(
        name in name(),
        cap in cap(),
        ended in prop::collection::vec((action(), took()), 0..80),
    ) {
        let mut predictor = Predictor::new(Rule::BySize(name, cap));
        for (n, (action, took)) in ended.iter().enumerate() {
            let of_it = ended[..n].iter().filter(|(other, _)| other == action);
            let mut estimator = Estimator::new(name, cap, profiled(*action));
            of_it.clone().for_each(|(_, took)| estimator.observe(Timestamp::ZERO, ns(*took)));
            let expected = predictor.expect(*action, profiled(*action));
            prop_assert_eq!(expected, estimator.estimate());
            let measured = of_it.clone().next().map(|_| expected);
            prop_assert_eq!(predictor.measured(*action), measured);
            prop_assert!(predictor.pace(*action).is_none());
            predictor.observe(Timestamp::ZERO, *action, profiled(*action), ns(*took));
        }
    }

    #[test]
    fn a_predictor_by_pace_has_one_for_all_sizes_of_a_model(
        rule in prop::sample::select(vec![
            PaceRule::Ewma,
            PaceRule::Held,
            PaceRule::Window { spread: Duration::from_secs(5) },
        ]),
        steps in prop::collection::vec((0u64..200, action(), prop::option::weighted(0.8, took())), 0..80),
    ) {
        let mut predictor = Predictor::new(Rule::ByPace(rule));
        let mut alone: Vec<((ActionKind, u32), Pace)> = Vec::new();
        let mut now = Timestamp::ZERO;
        for (later, action, took) in steps {
            now = now + Duration::from_millis(later);
            let key = (action.kind, action.model);
            let pace = alone.iter_mut().find(|(of, _)| *of == key).map(|(_, pace)| pace);
            let expected = pace.as_ref().map_or(profiled(action), |p| p.expect(profiled(action)));
            prop_assert_eq!(predictor.expect(action, profiled(action)), expected);
            prop_assert_eq!(predictor.measured(action), None);
            match (took, pace) {
                (Some(took), pace) => {
                    predictor.observe(now, action, profiled(action), ns(took));
                    let ratio = ns(took).as_secs_f64() / profiled(action).as_secs_f64();
                    match pace {
                        Some(pace) => {
                            pace.observe(now, ratio);
                        }
                        None => {
                            let mut pace = Pace::new(rule);
                            pace.observe(now, ratio);
                            alone.push((key, pace));
                        }
                    }
                }
                (None, _) => {
                    predictor.age(now);
                    alone.iter_mut().for_each(|(_, pace)| {
                        pace.age(now);
                    });
                }
            }
        }
    }
}

fn action() -> impl Strategy<Value = Action> {
    let kind = prop::sample::select(ActionKind::ALL.to_vec());
    (kind, 0u32..2, 1u32..4).prop_map(|(kind, model, size)| Action { kind, model, size })
}

fn profiled(action: Action) -> Duration {
    ns(600_000 + 200_000 * u64::from(action.size))
}

#[test]
fn what_was_profiled_to_take_no_time_teaches_no_pace() {
    let mut predictor = Predictor::new(Rule::ByPace(PaceRule::Ewma));
    let action = Action::execute(crate::id::ModuleId(1), 1);
    predictor.observe(Timestamp::ZERO, action, Duration::ZERO, ns(5));
    assert!(predictor.pace(action).is_none());
    assert_eq!(predictor.expect(action, ns(7)), ns(7));
}

#[test]
fn rules_have_names_of_their_own() {
    let by_size = EstimatorName::ALL.map(|name| Rule::BySize(name, Cap::None).name());
    let window = PaceRule::Window { spread: ns(1) };
    let by_pace = [PaceRule::Ewma, window, PaceRule::Held].map(|rule| Rule::ByPace(rule).name());
    let mut names = [&by_size[..], &by_pace].concat();
    assert_eq!(names.len(), 7);
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 7, "{names:?}");
}

/// Everything that learns here, by name: what it expects of an action that was profiled to take a millisecond.
struct Subject {
    name: &'static str,
    predictor: Predictor,
}

impl Subject {
    fn all() -> Vec<Subject> {
        let window = PaceRule::Window {
            spread: Duration::from_secs(5),
        };
        let paces = [PaceRule::Ewma, window, PaceRule::Held].map(Rule::ByPace);
        let caps = [
            Cap::None,
            Cap::Seed(30.0),
            Cap::Median(1.5),
            Cap::Typical(1.5),
        ];
        let sizes = EstimatorName::ALL
            .iter()
            .flat_map(|name| caps.map(|cap| Rule::BySize(*name, cap)));
        let subject = |rule: Rule| Subject {
            name: rule.name(),
            predictor: Predictor::new(rule),
        };
        paces.into_iter().chain(sizes).map(subject).collect()
    }

    /// What it expects at that time, times the profile.
    fn expects(&mut self, at_ms: u64) -> f64 {
        self.predictor.age(ms(at_ms));
        self.predictor.expect(ONE, PROFILED).as_secs_f64() / PROFILED.as_secs_f64()
    }

    fn ran(&mut self, at_ms: u64, times: f64) {
        self.predictor
            .observe(ms(at_ms), ONE, PROFILED, PROFILED.mul_f64(times));
    }
}

const PROFILED: Duration = Duration::from_millis(1);
const ONE: Action = Action {
    kind: ActionKind::Execute,
    model: 0,
    size: 1,
};

fn ms(n: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_millis(n)
}

/// A device was 18 times as slow as profiled, and work has twice its profiled time. Asked each 100 ms for 20 s, only what is expected to be in
/// time runs, and takes so many times the profile by then. How often it ran.
fn ran_in_20_s(subject: &mut Subject, times: f64) -> usize {
    for n in 0..40 {
        subject.ran(n * 10, 18.0);
    }
    let asked = (0..200u64).map(|n| 400 + n * 100);
    let tried = asked.filter(|&now| {
        let runs = subject.expects(now) <= 2.0;
        if runs {
            subject.ran(now, times);
        }
        runs
    });
    tried.count()
}

/// Whatever was learnt: sooner or later the work is tried, and if it takes its time by then, it is soon never refused any more.
#[test]
fn whatever_refuses_work_lets_it_be_tried_and_heals() {
    for mut subject in Subject::all() {
        let name = subject.name;
        let ran = ran_in_20_s(&mut subject, 1.0);
        assert!(ran > 100, "{name}: {ran} of 200 ran");
        assert!(subject.expects(20_400) <= 1.5, "{name}");
    }
}

/// The device stays slow: few actions run in vain.
#[test]
fn a_device_that_is_slow_is_tried_seldom() {
    for mut subject in Subject::all() {
        let name = subject.name;
        let ran = ran_in_20_s(&mut subject, 18.0);
        assert!(ran <= 20, "{name}: {ran} of 200 ran in vain");
    }
}
