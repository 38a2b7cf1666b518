//! Least squares: how the time of a batch depends on its content.

/// Keeps the equations solvable where two features always go together.
const RIDGE: f64 = 1e-9;

/// A batch: what its time may depend on, and its time.
pub(crate) struct Point {
    pub(crate) features: Vec<f64>,
    pub(crate) time: f64,
}

/// The coefficients of the features with the least sum of squared relative errors.
///
/// # Panics
/// When there is no point, or points have different numbers of features.
pub(crate) fn fit(points: &[Point]) -> Vec<f64> {
    let n = points[0].features.len();
    // Normal equations of `features / time` to 1, with the right side as the last column.
    let mut rows = vec![vec![0.0; n + 1]; n];
    for Point { features, time } in points {
        assert_eq!(features.len(), n, "all points have the same features");
        for (row, a) in rows.iter_mut().zip(features) {
            for (v, b) in row.iter_mut().zip(features) {
                *v += a / time * (b / time);
            }
            row[n] += a / time;
        }
    }
    for (i, row) in rows.iter_mut().enumerate() {
        row[i] *= 1.0 + RIDGE;
        row[i] += f64::MIN_POSITIVE;
    }
    solve(rows)
}

/// Gauss's elimination with the largest pivot first.
fn solve(mut rows: Vec<Vec<f64>>) -> Vec<f64> {
    let n = rows.len();
    for i in 0..n {
        let largest = (i..n)
            .max_by(|a, b| rows[*a][i].abs().total_cmp(&rows[*b][i].abs()))
            .unwrap_or(i);
        rows.swap(i, largest);
        let pivot = rows[i].clone();
        for row in &mut rows[i + 1..] {
            let factor = row[i] / pivot[i];
            for (v, p) in row.iter_mut().zip(&pivot) {
                *v -= factor * p;
            }
        }
    }
    let mut solution = vec![0.0; n];
    for i in (0..n).rev() {
        let known: f64 = (i + 1..n).map(|j| rows[i][j] * solution[j]).sum();
        solution[i] = (rows[i][n] - known) / rows[i][i];
    }
    solution
}

/// Mean of the relative errors, without their sign.
pub(crate) fn error(coefficients: &[f64], points: &[Point]) -> f64 {
    let relative = |p: &Point| {
        let predicted: f64 = p
            .features
            .iter()
            .zip(coefficients)
            .map(|(a, b)| a * b)
            .sum();
        (predicted / p.time - 1.0).abs()
    };
    points.iter().map(relative).sum::<f64>() / points.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_made_the_times_is_found_again() {
        let points: Vec<Point> = (0..20)
            .map(|i| {
                let features = vec![1.0, f64::from(i), f64::from(i * i % 7)];
                let time = 3.0 + 0.5 * features[1] + 2.0 * features[2];
                Point { features, time }
            })
            .collect();
        let coefficients = fit(&points);
        for (found, right) in coefficients.iter().zip([3.0, 0.5, 2.0]) {
            assert!((found - right).abs() < 1e-5, "{coefficients:?}");
        }
        assert!(error(&coefficients, &points) < 1e-6);
        assert!((error(&[6.0, 1.0, 4.0], &points) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn features_that_go_together_are_no_trouble() {
        let point = |x: f64| Point {
            features: vec![x, 2.0 * x, 0.0],
            time: 5.0 * x,
        };
        let points: Vec<Point> = (1..9u8).map(|x| point(f64::from(x))).collect();
        assert!(error(&fit(&points), &points) < 1e-6);
    }
}
