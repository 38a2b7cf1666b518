//! Least squares with few terms, of which none is negative.

/// Numbers that a row is described by, one a term.
pub(super) type Terms = [f64; 3];

/// A sum of terms, each times its coefficient.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fit {
    /// By term; 0 where it would be negative.
    pub(super) coefficients: Terms,
    /// The largest error at a row, as a part of what was measured there.
    pub(super) worst: f64,
}

impl Fit {
    /// The coefficients with the least sum of squares of relative errors over these rows: what was measured at each is above 0. `None`
    /// where the rows do not determine them.
    pub(super) fn of(rows: &[(Terms, f64)]) -> Option<Self> {
        let mut used = [true; 3];
        loop {
            let coefficients = solve(rows, used)?;
            let least = (0..3).min_by(|a, b| coefficients[*a].total_cmp(&coefficients[*b]))?;
            if coefficients[least] < 0.0 {
                used[least] = false;
                continue;
            }
            let fit = Fit {
                coefficients,
                worst: 0.0,
            };
            let errors = rows
                .iter()
                .map(|(terms, y)| (fit.at(*terms) / y - 1.0).abs());
            return Some(Fit {
                worst: errors.fold(0.0, f64::max),
                ..fit
            });
        }
    }

    /// What it says of a row.
    pub(super) fn at(&self, terms: Terms) -> f64 {
        let products = self.coefficients.iter().zip(terms).map(|(c, x)| c * x);
        products.sum()
    }
}

/// The normal equations of the terms that are used, by Gaussian elimination; the coefficients of others are 0.
fn solve(rows: &[(Terms, f64)], used: [bool; 3]) -> Option<Terms> {
    // Terms differ by orders of magnitude: each is measured by its mean.
    let scale = [0, 1, 2].map(|i| {
        let sum: f64 = rows.iter().map(|(terms, y)| terms[i] / y).sum();
        sum / rows.len() as f64
    });
    let mut matrix = [[0.0; 4]; 3];
    for (i, line) in matrix.iter_mut().enumerate() {
        if !used[i] {
            line[i] = 1.0;
            continue;
        }
        for (terms, y) in rows {
            let of = |j: usize| match used[j] {
                true => terms[j] / y / scale[j],
                false => 0.0,
            };
            for (j, cell) in line.iter_mut().take(3).enumerate() {
                *cell += of(i) * of(j);
            }
            line[3] += of(i);
        }
    }
    for i in 0..3 {
        let pivot = (i..3).max_by(|a, b| matrix[*a][i].abs().total_cmp(&matrix[*b][i].abs()))?;
        matrix.swap(i, pivot);
        // Of sums around the number of rows.
        if matrix[i][i].is_nan() || matrix[i][i].abs() < 1e-9 {
            return None;
        }
        let line = matrix[i];
        for (_, other) in matrix.iter_mut().enumerate().filter(|(k, _)| *k != i) {
            let times = other[i] / line[i];
            other
                .iter_mut()
                .zip(line)
                .for_each(|(a, b)| *a -= times * b);
        }
    }
    Some([0, 1, 2].map(|i| match used[i] {
        true => matrix[i][3] / matrix[i][i] / scale[i],
        false => 0.0,
    }))
}

#[cfg(test)]
mod tests {
    use super::{Fit, Terms};

    const ROWS: [Terms; 5] = [
        [1.6e3, 1.6e3, 8.0],
        [3.2e3, 6.4e3, 32.0],
        [6.4e3, 25.6e3, 128.0],
        [25.6e3, 1.6e6, 8.2e3],
        [25.6e3, 0.4e6, 8.2e3],
    ];

    fn measured(of: impl Fn(Terms) -> f64) -> Vec<(Terms, f64)> {
        ROWS.iter().map(|terms| (*terms, of(*terms))).collect()
    }

    #[test]
    fn terms_that_made_the_figures_are_found() {
        let fit = Fit::of(&measured(|[a, b, c]| 3.0 * a + 0.5 * b + 7.0 * c)).unwrap();
        for (found, made) in fit.coefficients.iter().zip([3.0, 0.5, 7.0]) {
            assert!((found - made).abs() < 1e-6, "{fit:?}");
        }
        assert!(fit.worst < 1e-9, "{fit:?}");
        let far = [1e6, 6.4e8, 3.2e6];
        assert!((fit.at(far) / (3e6 + 3.2e8 + 2.24e7) - 1.0).abs() < 1e-6);
    }

    #[test]
    fn no_term_is_negative_and_the_rest_is_fitted_anew() {
        let fit = Fit::of(&measured(|[a, b, c]| 3.0 * a + 0.5 * b - 0.1 * c)).unwrap();
        assert_eq!(fit.coefficients[2], 0.0);
        // No other pair of coefficients nearby has a smaller sum of squares.
        let rows = measured(|[a, b, c]| 3.0 * a + 0.5 * b - 0.1 * c);
        let squares = |fit: &Fit| -> f64 {
            let errors = rows.iter().map(|(terms, y)| fit.at(*terms) / y - 1.0);
            errors.map(|error| error * error).sum()
        };
        for (i, factor) in [(0, 0.999), (0, 1.001), (1, 0.999), (1, 1.001)] {
            let mut other = fit;
            other.coefficients[i] *= factor;
            assert!(squares(&fit) < squares(&other), "{i} {factor}");
        }
    }

    #[test]
    fn equal_rows_determine_nothing() {
        assert_eq!(Fit::of(&[(ROWS[0], 1.0), (ROWS[0], 1.0)]), None);
        assert_eq!(Fit::of(&[]), None);
    }
}
