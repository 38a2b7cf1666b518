//! The order statistics against independent exact values (tests/orloj): distribution functions, densities with
//! their Jacobian, expectations.

use serde_json::Value;
use spillgate_pipeline::distribution::{BatchForm, BatchTime, Distribution, Maximum};

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

fn cases(text: &str) -> Vec<Value> {
    let file: Value = serde_json::from_str(text).unwrap();
    file["cases"].as_array().unwrap().clone()
}

#[track_caller]
fn near(got: f64, expected: f64, relative: f64, what: &str) {
    let error = (got - expected).abs();
    assert!(
        error <= relative * expected.abs() + 1e-15,
        "{what}: {got}, not {expected}"
    );
}

fn check(case: &Value, members: &[(&Distribution, u32)]) {
    let id = &case["id"];
    let (c0, c1) = (number(&case["c0"]), number(&case["c1"]));
    let k: u32 = members.iter().map(|member| member.1).sum();
    let maximum = Maximum::new(members);
    near(
        maximum.mean(),
        number(&case["E_max"]),
        1e-13,
        &format!("{id}: E"),
    );
    let time = BatchTime::new(BatchForm::Padded, c0, c1, 0.0).unwrap();
    let law = time.law(k, members);
    near(
        law.mean(),
        number(&case["E_LB"]),
        1e-13,
        &format!("{id}: E of the batch"),
    );
    let factor = c1 * f64::from(k);
    for point in case["points"].as_array().unwrap() {
        let batch_ms = number(&point["lb"]);
        let x = (batch_ms - c0) / factor;
        let what = format!("{id} at {batch_ms}");
        near(maximum.cdf(x), number(&point["cdf"]), 1e-9, &what);
        if let Some(density) = point["pdf"].as_f64() {
            near(maximum.density(x) / factor, density, 1e-9, &what);
        }
    }
    let masses = numbers(&case["bin_mass_of_max"]);
    // The bins of the vectors begin at the least time of any member, ours where all members can be done.
    let bins = maximum.bins();
    let skipped = masses.len() - bins.len();
    assert!(masses[..skipped].iter().all(|&mass| mass == 0.0), "{id}");
    for (bin, mass) in bins.iter().zip(&masses[skipped..]) {
        assert!(
            (bin.mass - mass).abs() <= 1e-12,
            "{id}: {bin:?}, not {mass}"
        );
    }
}

#[test]
fn the_maximum_of_equal_laws_is_exact() {
    for case in cases(include_str!("orloj/maximum_equal.json")) {
        let law = histogram(&case["hist"]);
        check(&case, &[(&law, case["k"].as_u64().unwrap() as u32)]);
    }
}

#[test]
fn the_maximum_of_different_laws_is_exact() {
    for case in cases(include_str!("orloj/maximum_mixed.json")) {
        let laws: Vec<Distribution> = case["apps"]
            .as_array()
            .unwrap()
            .iter()
            .map(histogram)
            .collect();
        let mut members: Vec<(&Distribution, u32)> = laws.iter().map(|law| (law, 0)).collect();
        for application in case["app_of"].as_array().unwrap() {
            members[application.as_u64().unwrap() as usize].1 += 1;
        }
        check(&case, &members);
    }
}

/// What implementations do that put a bin's mass at its middle: too low, and we do not.
#[test]
fn midpoints_are_not_used() {
    for case in cases(include_str!("orloj/maximum_equal.json")) {
        let midpoints = number(&case["E_max_if_midpoints"]);
        let exact = number(&case["E_max"]);
        if (midpoints - exact).abs() > 1e-3 * exact {
            let law = histogram(&case["hist"]);
            let k = case["k"].as_u64().unwrap() as u32;
            let ours = Maximum::new(&[(&law, k)]).mean();
            assert!((ours - exact).abs() < 1e-3 * (midpoints - exact).abs());
        }
    }
}
