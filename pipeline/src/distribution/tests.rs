use std::time::Duration;

use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::profile::ModuleProfile;
use crate::time::Timestamp;

fn law(edges: &[f64], masses: &[f64]) -> Distribution {
    Distribution::from_bins(edges.to_vec(), masses).unwrap()
}

fn any_law() -> impl Strategy<Value = Distribution> {
    prop::collection::vec((0.01..10.0f64, 0.0..1.0f64), 1..20).prop_map(|bins| {
        let mut edges = vec![1.0];
        for (width, _) in &bins {
            edges.push(edges[edges.len() - 1] + width);
        }
        let mut masses: Vec<f64> = bins.iter().map(|bin| bin.1).collect();
        masses[0] += 0.1;
        Distribution::from_bins(edges, &masses).unwrap()
    })
}

/// Midpoint sums over thin slices of each bin: what is integrated is smooth between edges.
fn integral(edges: &[f64], f: impl Fn(f64) -> f64) -> f64 {
    const SLICES: usize = 500;
    let of_bin = |pair: &[f64]| {
        let width = (pair[1] - pair[0]) / SLICES as f64;
        let at = |i: usize| f(pair[0] + (i as f64 + 0.5) * width);
        (0..SLICES).map(at).sum::<f64>() * width
    };
    edges.windows(2).map(of_bin).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn moments_are_integrals_of_the_density(law in any_law()) {
        let of = |f: &dyn Fn(f64) -> f64| integral(law.edges(), |x| f(x) * law.density(x));
        let mean = of(&|x| x);
        prop_assert!((law.mean() - mean).abs() < 1e-6 * mean);
        let variance = of(&|x| (x - mean).powi(2));
        prop_assert!((law.variance() - variance).abs() < 1e-4 * variance);
    }

    #[test]
    fn quantile_is_the_least_that_reaches(law in any_law(), q in 0.0..1.0f64) {
        let x = law.quantile(q);
        prop_assert!(law.cdf(x) >= q - 1e-12);
        prop_assert!(x <= law.low() || law.cdf(x - 1e-6) <= q + 1e-12);
    }

    #[test]
    fn scaling_keeps_probabilities_and_mass(law in any_law(), c0 in 0.0..50.0f64, c1 in 0.1..8.0f64) {
        let scaled = law.scaled(c0, c1);
        let x = law.quantile(0.3);
        prop_assert!((scaled.cdf(c0 + c1 * x) - law.cdf(x)).abs() < 1e-9);
        let mass = integral(scaled.edges(), |x| scaled.density(x));
        prop_assert!((mass - 1.0).abs() < 1e-6, "the Jacobian is missing: {mass}");
    }

    #[test]
    fn the_maximum_is_the_product(a in any_law(), b in any_law(), n in 1..9u32, m in 0..9u32) {
        let maximum = Maximum::new(&[(&a, n), (&b, m)]);
        let levelled = maximum.levelled();
        // E[max] by the tail, slowly.
        let mean = levelled.low() + integral(levelled.edges(), |x| 1.0 - maximum.cdf(x));
        prop_assert!((maximum.mean() - mean).abs() < 1e-4 * mean, "{} {mean}", maximum.mean());
        for edge in levelled.edges() {
            prop_assert!((levelled.cdf(*edge) - maximum.cdf(*edge)).abs() < 1e-12);
        }
        let mass = integral(levelled.edges(), |x| maximum.density(x));
        prop_assert!((mass - 1.0).abs() < 1e-3, "{mass}");
    }

    #[test]
    fn samples_are_described(samples in prop::collection::vec(0.0..100.0f64, 1..200), bins in 1..200usize) {
        let law = Distribution::from_samples(samples.iter().copied(), bins).unwrap();
        let mean = samples.iter().sum::<f64>() / samples.len() as f64;
        let width = (law.high() - law.low()) / bins as f64;
        prop_assert!((law.mean() - mean).abs() <= width + 1e-6 * mean + 1e-9);
        // Zero itself lies at the edge of the bin that it is in.
        let largest = samples.iter().copied().fold(1e-12, f64::max);
        prop_assert!((law.cdf(largest) - 1.0).abs() < 1e-12);
    }
}

#[test]
fn a_static_model_is_one_narrow_bin() {
    let law = Distribution::from_samples([50.0; 20], BINS_DEFAULT).unwrap();
    assert_eq!(law.bins().len(), 1);
    assert!((law.mean() - 50.0).abs() < 1e-4);
    assert_eq!(law.cdf(50.0), 1.0);
    assert_eq!(law.cdf(49.99), 0.0);
    assert!((Maximum::new(&[(&law, 64)]).mean() - 50.0).abs() < 1e-4);
    let zero = Distribution::from_samples([0.0; 3], 4).unwrap();
    assert_eq!(zero.cdf(0.1), 1.0);
}

#[test]
fn what_is_no_time_is_refused_in_words() {
    let refused = |samples: &[f64]| {
        Distribution::from_samples(samples.iter().copied(), 8)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(refused(&[]), "there are no samples");
    let text = "sample 1 is NaN; times and masses are numbers from 0 to 1000000000";
    assert_eq!(refused(&[1.0, f64::NAN]), text);
    assert!(refused(&[-1.0]).contains("sample 0 is -1"));
    assert!(refused(&[f64::INFINITY]).contains("inf"));
    let bins = |edges: &[f64], masses: &[f64]| {
        Distribution::from_bins(edges.to_vec(), masses)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        bins(&[1.0, 1.0], &[1.0]),
        "edge 1 is not above the one before it"
    );
    assert_eq!(bins(&[1.0, 2.0], &[0.0]), "all masses are zero");
    assert_eq!(
        bins(&[1.0, 2.0], &[1.0, 1.0]),
        "2 edges need 1 masses, there are 2"
    );
    assert!(bins(&[1.0], &[]).contains("0 bins"));
    assert!(Distribution::from_samples([1.0], 0).is_err());
    assert!(Distribution::from_samples([1.0], BINS_MAX + 1).is_err());
}

#[test]
fn a_mixture_weighs_its_parts() {
    let (a, b) = (law(&[1.0, 2.0], &[1.0]), law(&[9.0, 10.0], &[1.0]));
    let mixture = Distribution::mixture(&[(1.0, &a), (3.0, &b)], 90).unwrap();
    assert!((mixture.cdf(5.0) - 0.25).abs() < 1e-12);
    assert!((mixture.mean() - 7.5).abs() < 1e-12);
    assert_eq!(Distribution::mixture(&[], 9), Err(DistributionError::Empty));
    assert_eq!(
        Distribution::mixture(&[(0.0, &a)], 9),
        Err(DistributionError::NoMass)
    );
}

/// Shares of three do not sum to one: the last quantile was beyond the last edge.
#[test]
fn the_last_quantile_of_a_mixture_is_its_last_edge() {
    let part = law(&[1.0, 2.0, 3.0], &[0.3, 0.7]);
    for n in 1..40u32 {
        let parts = vec![(f64::from(n) / 7.0, &part); n as usize];
        let mixture = Distribution::mixture(&parts, 96).unwrap();
        assert_eq!(mixture.quantile(1.0), 3.0);
    }
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_ns(seconds * 1_000_000_000)
}

#[test]
fn without_samples_the_prior_speaks() {
    let mut learner = Learner::with_prior(40.0).unwrap();
    assert_eq!(learner.law(at(0)), &prior(40.0).unwrap());
    for i in 1..SAMPLES_ENOUGH {
        learner.observe(at(i as u64), 7.0).unwrap();
        assert!((learner.law(at(9)).mean() - 40.0).abs() < 1e-9);
    }
    learner.observe(at(9), 7.0).unwrap();
    assert!((learner.law(at(9)).mean() - 7.0).abs() < 1e-4);
    assert!(prior(f64::NAN).is_err() && prior(0.0).is_err());
}

#[test]
fn a_window_of_nothing_is_refused() {
    let new = |samples, seconds| {
        let window = Window {
            samples,
            age: Duration::from_secs(seconds),
        };
        Learner::new(window, BINS_DEFAULT, prior(1.0).unwrap())
    };
    assert!(new(0, 60).unwrap_err().to_string().contains("0 samples"));
    assert!(new(100, 0).is_err());
    assert!(new(SAMPLES_MAX + 1, 60).is_err());
    assert!(new(SAMPLES_MAX, 60).is_ok());
}

#[test]
fn a_bad_sample_changes_nothing() {
    let mut learner = Learner::with_prior(1.0).unwrap();
    for bad in [f64::NAN, -1.0, f64::INFINITY, 2.0 * TIME_MS_MAX] {
        assert!(learner.observe(at(0), bad).is_err());
    }
    assert!(learner.is_empty());
}

#[test]
fn old_samples_are_forgotten_but_for_a_few() {
    let window = Window {
        samples: 64,
        age: Duration::from_secs(10),
    };
    let mut learner = Learner::new(window, 8, prior(1.0).unwrap()).unwrap();
    for i in 0..200 {
        learner.observe(at(0), f64::from(i % 5)).unwrap();
    }
    assert_eq!(learner.len(), 64);
    learner.law(at(11));
    assert_eq!(learner.len(), SAMPLES_ENOUGH);
}

#[test]
fn a_model_that_takes_ten_times_as_long_is_found_after_sixteen_requests() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut learner = Learner::with_prior(20.0).unwrap();
    for i in 0..500 {
        let learnt = learner.observe(at(i), rng.random_range(10.0..30.0));
        assert_eq!(learnt, Ok(Learnt::Added));
    }
    let mut needed = 0;
    let jumped = loop {
        needed += 1;
        let learnt = learner.observe(at(500 + needed), rng.random_range(100.0..300.0));
        if let Ok(Learnt::Jumped { from, to }) = learnt {
            break (from, to);
        }
    };
    assert!(needed <= 16, "{needed}");
    assert!(jumped.1 > 3.0 * jumped.0);
    assert!(
        learner.law(at(600)).low() >= 100.0,
        "only the new law is left"
    );
    assert_eq!(learner.jumps(), 1);
}

/// Two peaks: a run of the rarer, longer one is chance.
#[test]
fn a_run_of_long_requests_is_no_jump() {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let mut learner = Learner::with_prior(20.0).unwrap();
    for i in 0..20_000 {
        let mean = if rng.random::<f64>() < 0.3 {
            100.0
        } else {
            10.0
        };
        let learnt = learner.observe(at(i / 100), mean * rng.random_range(0.9..1.1));
        assert_eq!(learnt, Ok(Learnt::Added), "at {i}");
    }
}

#[test]
fn constants_are_found_again() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    for form in BatchForm::ALL {
        let truth = match form {
            BatchForm::Padded | BatchForm::Longest => BatchTime::new(form, 7.0, 0.4, 0.0),
            BatchForm::PerObject => BatchTime::new(form, 7.0, 0.0, 0.4),
            BatchForm::Shrinking => BatchTime::new(form, 7.0, 0.3, 0.4),
        };
        let truth = truth.unwrap();
        let points: Vec<BatchPoint> = (0..60)
            .map(|i| {
                let size = 1 << (i % 5);
                let lengths: Vec<f64> = (0..size).map(|_| rng.random_range(5.0..90.0)).collect();
                let longest_ms = lengths.iter().copied().fold(0.0, f64::max);
                let sum_ms = lengths.iter().sum();
                BatchPoint {
                    size,
                    longest_ms,
                    sum_ms,
                    took_ms: truth.ms(size, longest_ms, sum_ms) * rng.random_range(0.99..1.01),
                }
            })
            .collect();
        let fit = BatchTime::fit(form, &points).unwrap();
        assert!(fit.error < 0.01 && fit.error_max < 0.02, "{form:?} {fit:?}");
        for (found, true_value) in fit.time.constants().into_iter().zip(truth.constants()) {
            assert!(
                (found - true_value).abs() < 0.1 * true_value + 1e-9,
                "{fit:?}"
            );
        }
        let best = BatchTime::fit_best(&points).unwrap();
        assert_eq!(best.time.form(), form);
        let alone = fit.time.alone_ms(33.0);
        assert!((fit.time.length_ms(alone) - 33.0).abs() < 1e-9);
    }
}

#[test]
fn a_profile_by_size_gives_constants() {
    let ms = Duration::from_millis;
    let profile = ModuleProfile::linear(ms(12), ms(6), 16);
    let fit = BatchTime::from_profile(&profile, 18.0).unwrap();
    assert!(fit.error < 1e-9);
    assert!((fit.time.ms(4, 18.0, 72.0) - 36.0).abs() < 1e-6);
    let flat = ModuleProfile::linear(ms(12), Duration::ZERO, 4);
    let fit = BatchTime::from_profile(&flat, 18.0).unwrap();
    assert!((fit.time.ms(4, 18.0, 72.0) - 12.0).abs() < 1e-3);
    assert!(BatchTime::from_profile(&ModuleProfile::default(), 18.0).is_err());
}

#[test]
fn wrong_measurements_and_constants_are_refused() {
    let point = BatchPoint {
        size: 1,
        longest_ms: 1.0,
        sum_ms: 1.0,
        took_ms: f64::NAN,
    };
    let error = BatchTime::fit(BatchForm::Padded, &[point]).unwrap_err();
    assert_eq!(error, FitError::Point { at: 0 });
    let fine = BatchPoint {
        took_ms: 2.0,
        ..point
    };
    let error = BatchTime::fit(BatchForm::Padded, &[fine]).unwrap_err();
    assert_eq!(error, FitError::Points { points: 1 });
    for (c0, c1, c2) in [
        (-1.0, 1.0, 0.0),
        (0.0, f64::NAN, 0.0),
        (f64::INFINITY, 1.0, 0.0),
        (1.0, 1.0, 1.0),
    ] {
        assert!(BatchTime::new(BatchForm::Padded, c0, c1, c2).is_err());
    }
}

/// Stages of which each costs a fixed part and a part for each member left, in one ratio: the form is exact, and its
/// law is that of simulated batches.
#[test]
fn the_law_of_a_shrinking_batch_is_what_simulation_shows() {
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let early = law(&[4.0, 6.0, 20.0, 22.0], &[0.6, 0.0, 0.4]);
    let late = law(&[10.0, 30.0], &[1.0]);
    let time = BatchTime::new(BatchForm::Shrinking, 2.0, 0.6, 0.4).unwrap();
    let per_object = BatchTime::new(BatchForm::PerObject, 2.0, 0.0, 0.4).unwrap();
    for time in [time, per_object] {
        let batch = time.law(8, &[(&early, 5), (&late, 3)]);
        let mut draws: Vec<f64> = (0..20_000)
            .map(|_| {
                let mut lengths = Vec::new();
                for (law, n) in [(&early, 5), (&late, 3)] {
                    lengths.extend((0..n).map(|_| law.quantile(rng.random())));
                }
                let longest = lengths.iter().copied().fold(0.0, f64::max);
                time.ms(8, longest, lengths.iter().sum())
            })
            .collect();
        draws.sort_unstable_by(f64::total_cmp);
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        assert!((batch.mean() - mean).abs() < 0.01 * mean);
        for (i, draw) in draws.iter().enumerate() {
            let share = i as f64 / draws.len() as f64;
            assert!((batch.cdf(*draw) - share).abs() < 0.04, "{draw}: {share}");
        }
    }
}

/// Requests that take next to nothing beside the fixed part of a batch: their bins must not vanish in rounding.
#[test]
fn narrow_bins_beside_a_large_offset_keep_finite_densities() {
    let narrow = [
        Distribution::from_samples([0.0, 0.0], 96).unwrap(),
        Distribution::from_samples([0.0, 1e-14], 96).unwrap(),
        Distribution::from_bins(vec![0.0, 1e-15, 2e-15, 1.0], &[1.0, 1.0, 2.0]).unwrap(),
    ];
    for law in narrow {
        let moved = law.scaled(26.0, 0.3);
        let total: f64 = moved.bins().map(|bin| bin.mass).sum();
        assert!((total - 1.0).abs() < 1e-12, "{total}");
        for bin in moved.bins() {
            assert!(bin.high > bin.low && bin.density().is_finite(), "{bin:?}");
        }
        assert!((moved.mean() - (26.0 + 0.3 * law.mean())).abs() < 1e-9);
    }
}
