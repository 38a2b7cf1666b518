use proptest::prelude::*;

use super::*;

/// The slow obvious reference.
#[derive(Default)]
struct Plain(Vec<Line>);

impl Plain {
    fn highest(&self, x: f64) -> Option<f64> {
        self.0.iter().map(|line| line.at(x)).reduce(f64::max)
    }
}

fn check(hull: &Hull, plain: &Plain, x: f64) {
    assert_eq!(hull.len(), plain.0.len());
    let Some(expected) = plain.highest(x) else {
        assert!(hull.highest(x).is_none());
        return;
    };
    let line = hull.highest(x).expect("there are lines");
    assert!(plain.0.contains(&line), "a line that went is found");
    let largest = |l: &Line| (l.alpha * x).abs().max(l.beta.abs());
    let scale = plain.0.iter().map(largest).fold(0.0, f64::max);
    let error = expected - line.at(x);
    assert!(
        error <= 1e-12 * scale,
        "at {x}: {} is not the highest, {expected} is",
        line.at(x)
    );
}

fn depth(hull: &Hull, at: u32) -> u32 {
    let node = hull.node(at);
    if node.left == NONE {
        return 0;
    }
    1 + depth(hull, node.left).max(depth(hull, node.right))
}

#[derive(Clone, Debug)]
enum Step {
    Insert(f64, f64),
    Remove(prop::sample::Index),
    Query(f64),
    Scale(i32),
}

fn steps(coefficient: impl Strategy<Value = f64> + Clone) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (coefficient.clone(), coefficient).prop_map(|(a, b)| Step::Insert(a, b)),
        2 => any::<prop::sample::Index>().prop_map(Step::Remove),
        3 => (-20.0..20.0f64).prop_map(|e| Step::Query(e.exp())),
        1 => (-8..8i32).prop_map(Step::Scale),
    ];
    prop::collection::vec(step, 1..200)
}

fn run(steps: Vec<Step>) {
    let (mut hull, mut plain) = (Hull::new(), Plain::default());
    for (id, step) in steps.into_iter().enumerate() {
        match step {
            Step::Insert(alpha, beta) => {
                let line = Line {
                    alpha,
                    beta,
                    id: id as u32,
                };
                hull.insert(line);
                plain.0.push(line);
            }
            Step::Remove(which) => {
                if !plain.0.is_empty() {
                    let line = plain.0.swap_remove(which.index(plain.0.len()));
                    assert!(hull.remove(line));
                    assert!(!hull.remove(line));
                }
            }
            Step::Query(x) => check(&hull, &plain, x),
            Step::Scale(exponent) => {
                let factor = 2f64.powi(exponent);
                hull.scale(factor);
                plain.0.iter_mut().for_each(|line| line.alpha *= factor);
            }
        }
        for exponent in -3..4 {
            check(&hull, &plain, 4f64.powi(exponent));
        }
    }
}

proptest! {
    #[test]
    fn it_finds_what_a_scan_finds(steps in steps(-1.0..1.0f64)) {
        run(steps);
    }

    /// Few values: parallel lines, equal lines, many through one point.
    #[test]
    fn it_bears_lines_that_are_alike(steps in steps((-3..4i32).prop_map(f64::from))) {
        run(steps);
    }

    /// As the score makes them: slopes over many magnitudes.
    #[test]
    fn it_bears_slopes_of_all_magnitudes(
        steps in steps((any::<bool>(), -40.0..20.0f64).prop_map(|(s, e)| if s { e.exp() } else { -e.exp() }))
    ) {
        run(steps);
    }
}

#[test]
fn slopes_that_only_rise_keep_it_balanced() {
    let mut hull = Hull::new();
    for id in 0..4096 {
        // Tangents of a parabola: all of them show.
        let alpha = f64::from(id);
        hull.insert(Line {
            alpha,
            beta: -alpha * alpha / 4.0,
            id,
        });
    }
    assert!(depth(&hull, hull.root.unwrap()) <= 24);
    for id in 0..4096 {
        assert_eq!(hull.highest(f64::from(id) / 2.0 + 1e-9).unwrap().id, id);
    }
}

#[test]
fn a_negative_zero_slope_hides_nothing() {
    let mut hull = Hull::new();
    for (id, (alpha, beta)) in [(-0.0, 5.0), (0.0, 3.0)].into_iter().enumerate() {
        hull.insert(Line {
            alpha,
            beta,
            id: id as u32,
        });
    }
    assert_eq!(hull.highest(1.0).unwrap().beta, 5.0);
}

/// Equal lines in both halves of a node: their pair crosses nowhere, though the halves do.
#[test]
fn equal_lines_hide_no_crossing() {
    let mut hull = Hull::new();
    let lines = [(0.015625, 0.0), (0.015625, 0.0), (-2.0, 1.0)];
    for (id, (alpha, beta)) in lines.into_iter().enumerate() {
        let id = id as u32;
        hull.insert(Line { alpha, beta, id });
    }
    assert_eq!(hull.highest(0.015625).unwrap().id, 2);
}

/// Found by the property tests: a line of 1e8 hides in its rounding on which side of a crossing the other half
/// takes over, and the search went on where that half had long been higher.
#[test]
fn rounding_of_a_large_line_misleads_no_search() {
    let mut hull = Hull::new();
    let mut plain = Plain::default();
    let lines = [
        (1.0, -1.0),
        (3.2e-11, -1.0),
        (-1.0, -1.0),
        (-1.0, -5.8e-18),
        (-8.6e-11, -3.9e-17),
        (-2.1e-8, -1.3e-13),
        (1.0, -1.0),
        (-1.0, -1919.9),
        (-8.8e-9, -1.0),
        (-1e-3, -1.0),
        (-16.0, -1.0),
        (-301_074.7, 279_861_710.4),
    ];
    for (id, (alpha, beta)) in lines.into_iter().enumerate() {
        let id = id as u32;
        hull.insert(Line { alpha, beta, id });
        plain.0.push(Line { alpha, beta, id });
        for exponent in -6..8 {
            check(&hull, &plain, 4f64.powi(exponent));
        }
    }
}

/// Found by the property tests: where many lines are equal the search proves a crossing that its last pair knows
/// nothing of, and that pair stood for the envelope there.
#[test]
fn a_crossing_that_was_proven_gets_the_lines_that_cross_there() {
    let mut hull = Hull::new();
    let mut plain = Plain::default();
    let lines = [
        (0.0, 0.0, 9),
        (1.0, 0.0, 2),
        (-1.0, 0.0, 2),
        (0.0, -1.0, 1),
        (2.0, 0.0, 3),
        (3.0, 0.0, 2),
        (3.0, -3.0, 2),
        (2.0, 3.0, 1),
        (0.0, 2.0, 2),
    ];
    let mut id = 0;
    for factor in [1.0, 1.0 / 3.0, 3.0] {
        for (alpha, beta, n) in lines {
            for _ in 0..n {
                let alpha = alpha * factor;
                hull.insert(Line { alpha, beta, id });
                plain.0.push(Line { alpha, beta, id });
                id += 1;
            }
            hull.scale(1.0);
            for exponent in -6..8 {
                check(&hull, &plain, 4f64.powi(exponent));
            }
        }
    }
}
