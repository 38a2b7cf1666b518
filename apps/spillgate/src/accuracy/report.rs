//! What was measured, for people and to be pasted.

use std::fmt::Write;
use std::path::Path;

use spillgate_pipeline::pipeline::{Module, Variant};

use super::labelled::Labelled;
use super::tally::{Tally, warnings};

/// The accuracies of a module's variants.
#[derive(Clone, Debug)]
pub struct Accuracies {
    module: String,
    n_pictures: usize,
    /// As the pipeline has them: best last, by what the file states.
    variants: Vec<Variant>,
    measured: Vec<f64>,
    /// What is odd about the labels, a line each.
    pub warnings: Vec<String>,
}

impl Accuracies {
    pub(super) fn new(module: &Module, source: &Labelled, tallies: Vec<Tally<'_>>) -> Self {
        Accuracies {
            module: module.name.clone(),
            n_pictures: source.count(),
            variants: module.variants.clone(),
            measured: tallies.iter().map(Tally::accuracy).collect(),
            warnings: warnings(&tallies),
        }
    }

    /// By variant, in the order of the pipeline: best last, by what the file states.
    pub fn measured(&self) -> &[f64] {
        &self.measured
    }

    /// A line a variant; what is wrong with their order; the lines for the pipeline file.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (ordinal, (variant, accuracy)) in self.variants.iter().zip(&self.measured).enumerate() {
            let stated = variant
                .accuracy
                .map(|stated| format!("; the file states {stated}"));
            let _ = writeln!(
                text,
                "{} {}: accuracy {accuracy:.3} over {} frames{}",
                self.module,
                self.name(ordinal),
                self.n_pictures,
                stated.unwrap_or_default()
            );
        }
        for (lesser, pair) in self.measured.windows(2).enumerate() {
            if pair[1] < pair[0] {
                let _ = writeln!(
                    text,
                    "wrong order: {} is taken to be more accurate than {}, and it is less accurate",
                    self.name(lesser + 1),
                    self.name(lesser)
                );
            }
        }
        text.push_str("\n    variants:\n");
        for (variant, accuracy) in self.variants.iter().zip(&self.measured) {
            let model = scalar(&variant.model);
            let input = variant.input.map(|input| format!(", input: {input}"));
            let input = input.unwrap_or_default();
            let _ = writeln!(
                text,
                "      - {{ model: {model}{input}, accuracy: {accuracy:.3} }}"
            );
        }
        text
    }

    fn name(&self, ordinal: usize) -> String {
        let Variant { model, input, .. } = &self.variants[ordinal];
        let file = Path::new(model).file_name().unwrap_or_default();
        let input = input.map(|input| format!(", {input}")).unwrap_or_default();
        format!("variant {ordinal} ({}{input})", file.to_string_lossy())
    }
}

/// A path as a value in YAML, in braces: bare where it is plain, else in quotes. A `$` would begin a variable.
fn scalar(path: &str) -> String {
    let is_plain = path
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "_./-".contains(c));
    if is_plain && path.ends_with(".pt") && !path.starts_with('-') {
        return path.to_owned();
    }
    // A string of JSON is one of YAML.
    serde_json::Value::from(path.replace('$', "$$")).to_string()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn variant(model: &str, input: Option<u32>, accuracy: Option<f64>) -> Variant {
        Variant {
            model: model.to_owned(),
            input,
            accuracy,
        }
    }

    #[test]
    fn the_order_is_judged_and_the_lines_can_be_pasted() {
        let accuracies = Accuracies {
            module: "detect".to_owned(),
            n_pictures: 300,
            variants: vec![
                variant("../models/road.pt", Some(128), Some(0.59)),
                variant("my models/$new.pt", Some(192), None),
                variant("../models/road.pt", Some(256), None),
            ],
            measured: vec![0.6, 0.8125, 0.7],
            warnings: Vec::new(),
        };
        expect![[r#"
            detect variant 0 (road.pt, 128): accuracy 0.600 over 300 frames; the file states 0.59
            detect variant 1 ($new.pt, 192): accuracy 0.812 over 300 frames
            detect variant 2 (road.pt, 256): accuracy 0.700 over 300 frames
            wrong order: variant 2 (road.pt, 256) is taken to be more accurate than variant 1 ($new.pt, 192), and it is less accurate

                variants:
                  - { model: ../models/road.pt, input: 128, accuracy: 0.600 }
                  - { model: "my models/$$new.pt", input: 192, accuracy: 0.812 }
                  - { model: ../models/road.pt, input: 256, accuracy: 0.700 }
        "#]]
        .assert_eq(&accuracies.text());
    }
}
