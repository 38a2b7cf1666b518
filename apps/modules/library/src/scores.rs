//! Class scores out of a model's last dimension.

use spillgate_backend::operator::OperatorError;
use spillgate_pipeline::catalog::{ModuleType, OptionType};
use spillgate_process::value::Tensor;

use crate::options::Options;

/// The kind of a model's scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activation {
    /// They are logits: softmax makes them probabilities.
    Softmax,
    /// They are probabilities already.
    None,
}

impl Activation {
    /// Words of the option `activation`, the default first.
    pub(crate) const WORDS: [&str; 2] = ["softmax", "none"];

    /// Adds the option to a type whose model gives class scores.
    pub(crate) fn option(ty: ModuleType) -> ModuleType {
        ty.option(
            "activation",
            OptionType::Choice(Self::WORDS.map(str::to_owned).to_vec()),
            "softmax when the model gives logits, none when it gives probabilities (default softmax)",
        )
    }

    /// The value of the option; its type has checked the word.
    pub(crate) fn read(options: &Options<'_>) -> Result<Self, OperatorError> {
        let word = options.text("activation", Self::WORDS[0])?;
        Ok(if word == "none" {
            Activation::None
        } else {
            Activation::Softmax
        })
    }

    /// Turns one row of scores into probabilities. NaN counts as 0.
    pub(crate) fn apply(self, row: &mut [f32]) {
        if self == Activation::Softmax {
            let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let mut sum = 0.0;
            for v in row.iter_mut() {
                *v = (*v - max).exp();
                sum += *v;
            }
            for v in row.iter_mut() {
                *v /= sum;
            }
        }
        for v in row.iter_mut().filter(|v| !v.is_finite()) {
            *v = 0.0;
        }
    }
}

/// The best class of a row of probabilities, the first of equal ones.
pub(crate) fn best(row: &[f32]) -> (usize, f32) {
    let mut best = (0, f32::NEG_INFINITY);
    for (i, v) in row.iter().enumerate() {
        if *v > best.1 {
            best = (i, *v);
        }
    }
    best
}

/// The `k` best classes of a row, best first.
pub(crate) fn top(row: &[f32], k: usize) -> Vec<(usize, f32)> {
    let mut all: Vec<(usize, f32)> = row.iter().copied().enumerate().collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    all.truncate(k);
    all
}

/// Whether a tensor is `[n, classes]`.
pub(crate) fn is_class_scores(tensor: &Tensor, n: usize, n_classes: usize) -> bool {
    tensor.shape == [n as i64, n_classes as i64]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn softmax_sums_to_one_even_for_large_logits() {
        let mut row = [1000.0, 1000.0, -1000.0];
        Activation::Softmax.apply(&mut row);
        assert_eq!(row, [0.5, 0.5, 0.0]);
        assert_eq!(best(&row), (0, 0.5));
        assert_eq!(top(&[0.1, 0.7, 0.2], 2), [(1, 0.7), (2, 0.2)]);
    }

    #[test]
    fn what_is_no_number_scores_nothing() {
        for activation in [Activation::Softmax, Activation::None] {
            let mut row = [f32::NAN, 1.0, 2.0];
            activation.apply(&mut row);
            assert!(row.iter().all(|v| v.is_finite()), "{row:?}");
            assert!(best(&row).1.is_finite());
        }
    }
}
