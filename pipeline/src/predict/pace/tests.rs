use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

const MS: Duration = Duration::from_millis(1);

fn at(ms: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_millis(ms)
}

/// Seed 124 of the swarm: a worker of batches of 9 ms paused for 297 ms and then dropped hundreds of requests.
#[test]
fn a_device_that_paused_is_not_slow_and_a_slow_one_is_found() {
    let mut pace = Pace::new(PaceRule::Ewma);
    let took = |pace: &mut Pace, ms: f64| pace.observe(at(0), ms / 9.0);
    assert!(took(&mut pace, 306.0));
    assert_eq!(pace.factor(), 1.5);
    for _ in 0..8 {
        took(&mut pace, 9.0);
    }
    assert!(pace.factor() < 1.06, "{}", pace.factor());
    for _ in 0..12 {
        took(&mut pace, 90.0);
    }
    assert!(pace.factor() > 8.0, "{}", pace.factor());
}

#[test]
fn the_spread_is_the_deviation_and_a_change_of_pace_is_none() {
    let spread = Duration::from_secs(5);
    let mut pace = Pace::new(PaceRule::Window { spread });
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for i in 0..500 {
        let level = if i < 300 { 1.0 } else { 2.0 };
        // Uniform within 0.3 to both sides: deviation 0.3 / sqrt(3).
        let ratio = level + 0.3 * (2.0 * rng.random::<f64>() - 1.0);
        pace.observe(at(20 * (i + 1)), ratio);
    }
    assert!((pace.factor() - 2.0).abs() < 0.05, "{}", pace.factor());
    let spread = pace.spread();
    assert!((0.15..0.20).contains(&spread), "{spread}");
}

#[test]
fn what_is_too_old_for_a_window_counts_no_more() {
    let mut pace = Pace::new(PaceRule::Window { spread: 500 * MS });
    for i in 0..10 {
        pace.observe(at(100 * i), 3.0 - 0.1 * (i % 2) as f64);
    }
    pace.age(at(1_000));
    assert!(pace.factor() > 2.8 && pace.spread() > 0.0);
    pace.age(at(2_000));
    assert!(pace.factor() > 2.8 && pace.spread() == 0.0);
    pace.age(at(3_000));
    assert_eq!(pace.factor(), 1.0);
}

#[test]
fn a_pace_of_one_keeps_exact_times_and_expecting_has_an_inverse() {
    let profiled = Duration::from_nanos(123_456_789);
    for rule in [PaceRule::Ewma, PaceRule::Held] {
        let mut pace = Pace::new(rule);
        assert_eq!(pace.expect(profiled), profiled);
        for ratio in [f64::NAN, f64::INFINITY, 1.0] {
            assert!(!pace.observe(at(0), ratio), "{}", rule.name());
        }
        for _ in 0..9 {
            pace.observe(at(0), 5.0);
        }
        assert!(pace.is_slow());
        let back = pace.profiled(pace.expect(profiled));
        assert!(back.abs_diff(profiled) <= Duration::from_nanos(1));
    }
}

/// The rules as they are written down, from the whole history each time.
mod slow {
    /// Factor and spread of `pace-ewma`.
    pub(super) fn ewma(history: &[f64]) -> (f64, f64) {
        history.iter().fold((1.0, 0.0), |(factor, spread), ratio| {
            let ratio = ratio.clamp(0.1, 20.0).min(3.0 * factor);
            let spread = 0.75 * spread + 0.25 * f64::abs(ratio - factor);
            let factor = 0.75 * factor + 0.25 * ratio;
            let is_one = f64::abs(factor - 1.0) < 0.01;
            (if is_one { 1.0 } else { factor }, spread)
        })
    }

    /// Factor of `pace-held`.
    pub(super) fn held(history: &[f64]) -> f64 {
        let mut factor = 1.0;
        for n in 0..=history.len() {
            let weighted = |smoothed: f64, r: &f64| {
                0.875 * smoothed + 0.125 * r.clamp(0.05, 20.0).min(3.0 * smoothed)
            };
            let smoothed = history[..n].iter().fold(1.0, weighted);
            if smoothed >= 2.0 * factor || 2.0 * smoothed <= factor {
                factor = smoothed;
            }
        }
        factor
    }

    /// Mean of values by ms in a window of that many ms in 50 slots: those of the newest slot weigh 1, those of the 50th before
    /// it nothing.
    pub(super) fn mean(values: &[(u64, f64)], now: u64, length: u64) -> Option<f64> {
        let slot = |at: u64| (at * 50 / length) as f64;
        let weight = |at: u64| f64::max(1.0 - (slot(now) - slot(at)) / 50.0, 0.0);
        let sum: f64 = values.iter().map(|(at, v)| weight(*at) * v).sum();
        let weights: f64 = values.iter().map(|(at, _)| weight(*at)).sum();
        (weights > 0.0).then(|| sum / weights)
    }
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
}

/// Ratios around one, and now and then wild ones.
fn ratio() -> impl Strategy<Value = f64> {
    prop_oneof![4 => 0.5..2.0f64, 1 => 0.0..100.0f64]
}

proptest! {
    #[test]
    fn ewma_agrees_with_its_definition(
        history in prop::collection::vec(ratio(), 0..60),
    ) {
        let mut pace = Pace::new(PaceRule::Ewma);
        for (n, ratio) in history.iter().enumerate() {
            pace.observe(at(0), *ratio);
            let (factor, spread) = slow::ewma(&history[..=n]);
            prop_assert!(near(pace.factor(), factor), "{} {}", pace.factor(), factor);
            let spread = if spread < 0.01 { 0.0 } else { spread };
            prop_assert!(near(pace.spread(), spread), "{} {}", pace.spread(), spread);
        }
    }

    #[test]
    fn held_agrees_with_its_definition_and_tells_of_each_change(
        history in prop::collection::vec(ratio(), 0..60),
    ) {
        let mut pace = Pace::new(PaceRule::Held);
        for (n, ratio) in history.iter().enumerate() {
            let before = pace.factor();
            let changed = pace.observe(at(0), *ratio);
            prop_assert_eq!(changed, pace.factor() != before);
            let factor = slow::held(&history[..=n]);
            prop_assert!(near(pace.factor(), factor), "{} {}", pace.factor(), factor);
        }
    }

    #[test]
    fn window_agrees_with_its_definition(
        steps in prop::collection::vec((0u64..400, prop::option::weighted(0.8, ratio())), 0..60),
    ) {
        let mut pace = Pace::new(PaceRule::Window { spread: 5_000 * MS });
        let (mut now, mut ratios, mut squares) = (0, Vec::new(), Vec::new());
        for (later, ratio) in steps {
            now += later;
            match ratio {
                Some(ratio) => {
                    pace.observe(at(now), ratio);
                    let ratio = ratio.clamp(0.1, 20.0);
                    if let Some((_, last)) = ratios.last() {
                        squares.push((now, f64::powi(ratio - last, 2) / 2.0));
                    }
                    ratios.push((now, ratio));
                }
                None => {
                    pace.age(at(now));
                }
            }
            let factor = slow::mean(&ratios, now, 2_000).unwrap_or(1.0);
            prop_assert!(near(pace.factor(), factor), "{} {}", pace.factor(), factor);
            let spread = slow::mean(&squares, now, 5_000).unwrap_or(0.0).sqrt();
            prop_assert!(near(pace.spread(), spread), "{} {}", pace.spread(), spread);
        }
    }

    /// A device pauses once: whatever the pause, requests whose SLO is at least twice the profiled time are not given up
    /// by `pace-ewma`.
    #[test]
    fn one_outlier_cannot_poison_a_pace(outlier in 0.0..1e9f64, before in 0usize..20, after in 0usize..20) {
        let mut pace = Pace::new(PaceRule::Ewma);
        let usual = vec![1.0; before];
        let ratios = usual.into_iter().chain([outlier]).chain(vec![1.0; after]);
        for ratio in ratios {
            pace.observe(at(0), ratio);
            prop_assert!(pace.factor() <= 1.5);
        }
        prop_assert!(after < 14 || pace.factor() == 1.0);
    }
}
