use proptest::prelude::*;
use spillgate_pipeline::distribution::Distribution;

use super::*;

fn law(edges: &[f64], masses: &[f64]) -> Distribution {
    Distribution::from_bins(edges.to_vec(), masses).unwrap()
}

/// The closed form as an expectation, slowly.
fn reference(law: &Distribution, rate: f64, slack: f64) -> f64 {
    const SLICES: usize = 4000;
    let of_bin = |low: f64, high: f64, density: f64| {
        let width = (high.min(slack) - low).max(0.0) / SLICES as f64;
        (0..SLICES)
            .map(|i| low + (i as f64 + 0.5) * width)
            .map(|l| density * (-rate * (slack - l)).exp())
            .sum::<f64>()
            * width
    };
    let sum: f64 = law
        .bins()
        .map(|bin| of_bin(bin.low, bin.high, bin.density()))
        .sum();
    sum / law.mean()
}

proptest! {
    #[test]
    fn it_is_the_expectation_it_stands_for(
        widths in prop::collection::vec((0.1..50.0f64, 0.01..1.0f64), 1..12),
        rate in (-13.0..-1.0f64).prop_map(f64::exp),
        slack in -10.0..400.0f64,
    ) {
        let mut edges = vec![5.0];
        for (width, _) in &widths {
            edges.push(edges[edges.len() - 1] + width);
        }
        let masses: Vec<f64> = widths.iter().map(|w| w.1).collect();
        let law = law(&edges, &masses);
        let score = ScoreLaw::new(&law, rate).score(slack);
        let expected = reference(&law, rate, slack);
        prop_assert!((score - expected).abs() <= 1e-5 * expected + 1e-12, "{score} {expected}");
    }
}

#[test]
fn it_is_continuous_at_milestones_and_ends_at_zero() {
    let law = law(&[10.0, 20.0, 50.0], &[0.3, 0.7]);
    let score = ScoreLaw::new(&law, 1e-3);
    for edge in [10.0, 20.0, 50.0] {
        let (below, above) = (score.score(edge - 1e-9), score.score(edge + 1e-9));
        assert!((below - above).abs() < 1e-9);
    }
    assert_eq!(score.score(9.0), 0.0);
    assert_eq!(score.line(9.0, 9.0), (0.0, 0.0, None));
}

/// The printed sums of e^(b l) overflow for a model of seconds at b = 0.1 per ms.
#[test]
fn slow_models_do_not_overflow() {
    let law = law(&[8_000.0, 9_000.0, 20_000.0], &[0.5, 0.5]);
    let score = ScoreLaw::new(&law, 0.1);
    let at = score.score(15_000.0);
    assert!(at.is_finite() && at > 0.0);
    let (alpha, beta, _) = score.line(15_000.0, 15_000.0);
    assert!((alpha + beta - at).abs() < 1e-12);
}

#[test]
fn cost_levels_become_steps() {
    let at = |ms: u64| Timestamp::from_ns(ms * 1_000_000);
    let steps = Steps::levels(&[(at(1), 2.0), (at(2), 5.0)]).unwrap();
    let costs: Vec<f64> = steps.iter().map(|step| step.cost).collect();
    assert_eq!(costs, [2.0, 3.0]);
    assert!(Steps::levels(&[]).is_none());
    assert!(Steps::levels(&[(at(1), f64::NAN)]).is_none());
    assert!(Steps::levels(&[(at(1), 1.0); STEPS_MAX + 1]).is_none());
}
