//! The score and the hull against independent exact values (tests/orloj).

use serde_json::Value;
use spillgate_pipeline::distribution::{BatchForm, BatchTime, Distribution, Maximum};
use spillgate_worker_policy::schedule::hull::{Hull, Line};
use spillgate_worker_policy::schedule::score::ScoreLaw;

fn numbers(value: &Value) -> Vec<f64> {
    let list = value.as_array().expect("a list");
    list.iter().map(number).collect()
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

fn histogram(value: &Value) -> Distribution {
    Distribution::from_bins(numbers(&value["edges"]), &numbers(&value["mass"])).unwrap()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().expect("a list").iter()
}

fn cases(text: &str) -> Vec<Value> {
    let file: Value = serde_json::from_str(text).unwrap();
    list(&file["cases"]).cloned().collect()
}

#[track_caller]
fn near(got: f64, expected: f64, relative: f64, absolute: f64) {
    let error = (got - expected).abs();
    assert!(
        error <= relative * expected.abs() + absolute,
        "{got}, not {expected}"
    );
}

#[test]
fn the_score_and_its_line_are_exact() {
    for case in cases(include_str!("orloj/score.json")) {
        let law = ScoreLaw::new(&histogram(&case), number(&case["b"]));
        let (deadline, cost) = (number(&case["D"]), number(&case["c"]));
        near(law.mean(), number(&case["mean"]), 1e-12, 0.0);
        let base = number(&case["alpha_base_time"]);
        for point in list(&case["points"]) {
            let t = number(&point["t"]);
            let expected = number(&point["p"]);
            // Time stamps of 250 s in ms leave 3e-11 ms to the slack.
            let absolute = 1e-14 * cost / law.mean() + 1e-10 * expected;
            near(cost * law.score(deadline - t), expected, 1e-9, absolute);
            let (alpha, beta, _) = law.line(deadline - t, deadline - base);
            let x = (number(&case["b"]) * (t - base)).exp();
            // The line's two parts cancel where b is small.
            let cancelled = 1e-14 * (alpha * x).abs() * cost;
            near(
                cost * (alpha * x + beta),
                expected,
                1e-9,
                absolute + cancelled,
            );
        }
    }
}

#[test]
fn the_score_of_a_batch_goes_by_its_law() {
    for case in cases(include_str!("orloj/score_batch.json")) {
        let one = histogram(&case["hist"]);
        let k = case["k"].as_u64().unwrap() as u32;
        let time = BatchTime::new(
            BatchForm::Padded,
            number(&case["c0"]),
            number(&case["c1"]),
            0.0,
        );
        let law = ScoreLaw::new(&time.unwrap().law(k, &[(&one, k)]), number(&case["b"]));
        near(law.mean(), number(&case["E_LB"]), 1e-12, 0.0);
        for point in list(&case["points"]) {
            let slack = number(&case["D"]) - number(&point["t"]);
            let expected = number(&point["p_hist"]);
            near(number(&case["c"]) * law.score(slack), expected, 1e-8, 1e-14);
        }
    }
}

#[test]
fn steps_add_up() {
    for case in cases(include_str!("orloj/score_steps.json")) {
        let law = ScoreLaw::new(&histogram(&case), number(&case["b"]));
        let (deadlines, costs) = (numbers(&case["deadlines"]), numbers(&case["costs"]));
        for point in list(&case["points"]) {
            let t = number(&point["t"]);
            let steps = (0..costs.len()).map(|j| {
                let below = if j == 0 { 0.0 } else { costs[j - 1] };
                (deadlines[j] - t, costs[j] - below)
            });
            near(law.score_of_steps(steps), number(&point["p"]), 1e-9, 1e-14);
        }
    }
}

/// The paper says that b does not change who comes first; it does.
#[test]
fn the_order_depends_on_b() {
    let mut flips = 0;
    for case in cases(include_str!("orloj/score_order.json")) {
        let histogram = histogram(&case);
        let mut firsts = Vec::new();
        for order in list(&case["order"]) {
            let law = ScoreLaw::new(&histogram, number(&order["b"]));
            let score = |name: &str| law.score(number(&case[name]));
            near(score("slack1"), number(&order["p_slack1"]), 1e-9, 1e-14);
            near(score("slack2"), number(&order["p_slack2"]), 1e-9, 1e-14);
            firsts.push(order["first"].as_u64());
        }
        flips += usize::from(firsts.iter().any(|first| *first != firsts[0]));
    }
    assert!(flips > 0);
}

#[test]
fn the_hull_finds_the_highest_line() {
    for case in cases(include_str!("orloj/hull.json")) {
        let mut hull = Hull::new();
        let mut lines = std::collections::BTreeMap::new();
        for op in list(&case["ops"]) {
            let id = || op[1].as_u64().unwrap() as u32;
            match op[0].as_str().unwrap() {
                "i" => {
                    let line = Line {
                        alpha: number(&op[2]),
                        beta: number(&op[3]),
                        id: id(),
                    };
                    lines.insert(id(), line);
                    hull.insert(line);
                }
                "d" => assert!(hull.remove(lines[&id()])),
                _ => {
                    let found = hull.highest(number(&op[1])).map(|line| u64::from(line.id));
                    let right: Vec<u64> = list(&op[3])
                        .chain(list(&op[4]))
                        .filter_map(Value::as_u64)
                        .collect();
                    assert!(right.is_empty() || right.contains(&found.unwrap()), "{op}");
                }
            }
        }
    }
}

/// A density, and the Jacobian: the exact law of the batch against the levelled one that is scored with.
#[test]
fn levelling_within_bins_hardly_moves_the_score() {
    for case in cases(include_str!("orloj/score_batch.json")) {
        let one = histogram(&case["hist"]);
        let k = case["k"].as_u64().unwrap() as u32;
        let maximum = Maximum::new(&[(&one, k)]);
        let (c0, c1) = (number(&case["c0"]), number(&case["c1"]));
        let factor = c1 * f64::from(k);
        let b = number(&case["b"]);
        let mean = c0 + factor * maximum.mean();
        for point in list(&case["points"]) {
            let slack = number(&case["D"]) - number(&point["t"]);
            // The closed form as an integral over the exact density.
            let (low, high) = (
                c0 + factor * one.low(),
                (c0 + factor * one.high()).min(slack),
            );
            let width = (high - low).max(0.0) / 20_000.0;
            let integral: f64 = (0..20_000)
                .map(|i| low + (f64::from(i) + 0.5) * width)
                .map(|l| maximum.density((l - c0) / factor) / factor * (-b * (slack - l)).exp())
                .sum::<f64>()
                * width;
            near(integral / mean, number(&point["p_exact"]), 1e-3, 1e-9);
        }
    }
}
