//! Class scores out of a model's last dimension.

use spillgate_backend::operator::OperatorError;
use spillgate_pipeline::catalog::{ModuleType, OptionType};
use spillgate_process::value::Tensor;

use crate::facts::Facts;
use crate::options::Options;

/// The kind of a model's scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activation {
    /// They are logits of classes of which one is right: softmax makes them probabilities.
    Softmax,
    /// They are logits of classes of which each is right or not: the logistic function makes them probabilities.
    Sigmoid,
    /// They are probabilities already.
    None,
}

impl Activation {
    /// Words of the option `activation`.
    pub(crate) const WORDS: [&str; 3] = ["softmax", "sigmoid", "none"];

    /// Adds the option to a type whose model gives class scores.
    pub(crate) fn option(ty: ModuleType) -> ModuleType {
        ty.option(
            "activation",
            OptionType::Choice(Self::WORDS.map(str::to_owned).to_vec()),
            "softmax when the model gives logits of which one class is right, sigmoid when several may be, none when it gives probabilities \
             (default: what the file says, else softmax)",
        )
    }

    /// The value of the option; its type has checked the word. Without it what the variants' files say.
    pub(crate) fn read(options: &Options<'_>, facts: &[Facts]) -> Result<Self, OperatorError> {
        let mut all = facts.iter().map(said);
        let first = all.next().unwrap_or("softmax");
        let word = match options.chosen("activation")? {
            Some(word) => word,
            None => match all.find(|other| *other != first) {
                None => first.to_owned(),
                Some(other) => {
                    return Err(options.error(format_args!(
                        "variants: the file of one asks for the activation {first} and that of another one for {other}; variants give one kind of \
                         scores"
                    )));
                }
            },
        };
        Ok(match word.as_str() {
            "none" => Activation::None,
            "sigmoid" => Activation::Sigmoid,
            _ => Activation::Softmax,
        })
    }

    /// Turns one row of scores into probabilities. What is no number stays so, and is no class. Infinite logits are the surest there are.
    pub(crate) fn apply(self, row: &mut [f32]) {
        match self {
            Activation::Softmax => softmax(row),
            Activation::Sigmoid => row.iter_mut().for_each(|v| *v = 1.0 / (1.0 + (-*v).exp())),
            Activation::None => row
                .iter_mut()
                .for_each(|v| *v = v.clamp(f32::MIN, f32::MAX)),
        }
    }
}

/// The activation that a file asks for, in words.
fn said(facts: &Facts) -> &'static str {
    match (facts.head.as_deref(), facts.task.as_deref()) {
        (Some("classes-sigmoid"), _) => "sigmoid",
        // Ultralytics' classifiers give probabilities; older ones do not name their head.
        (Some("Classify"), _) | (None, Some("classify")) => "none",
        _ => "softmax",
    }
}

fn softmax(row: &mut [f32]) {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let of = |v: f32| match v - max {
        // Both are infinite alike.
        difference if difference.is_nan() && !v.is_nan() => 1.0,
        difference => difference.exp(),
    };
    let sum: f32 = row.iter().map(|v| of(*v)).filter(|v| !v.is_nan()).sum();
    row.iter_mut().for_each(|v| *v = of(*v) / sum);
}

/// The best class of a row of probabilities, the first of equal ones. `None` where no score is a number.
pub(crate) fn best(row: &[f32]) -> Option<(usize, f32)> {
    let numbers = row.iter().copied().enumerate();
    let numbers = numbers.filter(|(_, score)| !score.is_nan());
    numbers.reduce(|best, next| if next.1 > best.1 { next } else { best })
}

/// The `k` best classes of a row, best first; fewer where fewer scores are numbers.
pub(crate) fn top(row: &[f32], k: usize) -> Vec<(usize, f32)> {
    let all = row.iter().copied().enumerate();
    let mut all: Vec<(usize, f32)> = all.filter(|(_, score)| !score.is_nan()).collect();
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

    const INFINITY: f32 = f32::INFINITY;
    const NAN: f32 = f32::NAN;

    #[test]
    fn softmax_sums_to_one_even_for_large_logits() {
        let mut row = [1000.0, 1000.0, -1000.0];
        Activation::Softmax.apply(&mut row);
        assert_eq!(row, [0.5, 0.5, 0.0]);
        assert_eq!(best(&row), Some((0, 0.5)));
        assert_eq!(top(&[0.1, 0.7, 0.2], 2), [(1, 0.7), (2, 0.2)]);
    }

    #[test]
    fn what_is_no_number_is_no_class() {
        for activation in [Activation::Softmax, Activation::Sigmoid, Activation::None] {
            let applied = |mut row: [f32; 3]| {
                activation.apply(&mut row);
                row
            };
            let row = applied([NAN, 0.25, 0.5]);
            assert_eq!(best(&row).map(|best| best.0), Some(2), "{activation:?}");
            assert_eq!(top(&row, 3).len(), 2);
            let row = applied([NAN; 3]);
            assert_eq!(
                (best(&row), top(&row, 3).len()),
                (None, 0),
                "{activation:?}"
            );
        }
    }

    #[test]
    fn an_infinite_score_is_the_best_and_another_one_the_worst() {
        for activation in [Activation::Softmax, Activation::Sigmoid, Activation::None] {
            let mut row = [-INFINITY, 1.0, INFINITY];
            activation.apply(&mut row);
            let all = top(&row, 3);
            let order: Vec<usize> = all.iter().map(|(class, _)| *class).collect();
            assert_eq!((order[0], order.len()), (2, 3), "{activation:?}");
            assert!(
                all.iter().all(|(_, score)| score.is_finite()),
                "{activation:?} {all:?}"
            );
        }
        let mut row = [INFINITY, 0.0, INFINITY, NAN];
        Activation::Softmax.apply(&mut row);
        assert_eq!(
            (row[0], row[1], row[2], row[3].is_nan()),
            (0.5, 0.0, 0.5, true)
        );
        let mut row = [-INFINITY; 2];
        Activation::Softmax.apply(&mut row);
        assert_eq!(row, [0.5, 0.5]);
    }
}
