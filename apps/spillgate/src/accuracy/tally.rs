//! What one variant found, compared with the truth.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use spillgate_process::value::{Detection, Label, Value};
use spillgate_scenes::Rect;
use spillgate_scenes::score::{Hits, MeanF1};

use super::labelled::{Kind, Truth};

/// The comparison over pictures.
#[derive(Clone)]
pub(super) struct Tally<'a> {
    classes: &'a [String],
    score: Score,
    seen: Vec<Seen>,
    /// Names that the variant gives and the labels do not know.
    strangers: BTreeSet<String>,
}

/// A class over all pictures.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// Objects, or pictures, of it.
    expected: u64,
    /// The variant named it at least once.
    is_named: bool,
}

#[derive(Clone)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one a variant of the module"
)]
enum Score {
    Boxes(MeanF1),
    Classes(Hits),
}

impl<'a> Tally<'a> {
    pub(super) fn over(classes: &'a [String], kind: Kind) -> Self {
        Tally {
            classes,
            score: match kind {
                Kind::Boxes => Score::Boxes(MeanF1::default()),
                Kind::Class => Score::Classes(Hits::default()),
            },
            seen: vec![Seen::default(); classes.len()],
            strangers: BTreeSet::new(),
        }
    }

    /// Compares the output for a picture with what the picture shows.
    ///
    /// # Errors
    /// When the output is not of the kind that the truth is compared with.
    pub(super) fn add(&mut self, truth: &Truth, output: &Value) -> Result<()> {
        match (truth, output) {
            (Truth::Boxes(expected), Value::Boxes(found)) => self.add_boxes(expected, found),
            (Truth::Class(expected), Value::Labels(labels)) => match labels.first() {
                Some(label) => self.add_label(*expected, label),
                None => {
                    bail!("it has no label: the model gave none")
                }
            },
            (_, other) => bail!("an output of type {} cannot be compared", other.ty()),
        }
        Ok(())
    }

    /// The ordinal of a class that the variant named.
    fn named(&mut self, name: &str) -> Option<usize> {
        let class = self.classes.iter().position(|class| class == name);
        match class {
            Some(class) => self.seen[class].is_named = true,
            None if !self.strangers.contains(name) => {
                self.strangers.insert(name.to_owned());
            }
            None => {}
        }
        class
    }

    fn add_boxes(&mut self, expected: &[Vec<(Rect, bool)>], found: &[Detection]) {
        let mut by_class: Vec<Vec<(Rect, f32)>> = vec![Vec::new(); self.classes.len()];
        for d in found {
            if let Some(class) = self.named(&d.label) {
                by_class[class].push((Rect::new(d.x0, d.y0, d.x1, d.y1), d.score));
            }
        }
        let Score::Boxes(score) = &mut self.score else {
            unreachable!("a source is of one kind")
        };
        for ((expected, found), seen) in expected.iter().zip(&by_class).zip(&mut self.seen) {
            score.add_boxes(expected, found);
            seen.expected += expected.iter().filter(|(_, counts)| *counts).count() as u64;
        }
    }

    fn add_label(&mut self, expected: usize, label: &Label) {
        let named = self.named(&label.label);
        self.seen[expected].expected += 1;
        let Score::Classes(hits) = &mut self.score else {
            unreachable!("a source is of one kind")
        };
        hits.count(named == Some(expected));
    }

    /// The accuracy, 0 to 1.
    pub(super) fn accuracy(&self) -> f64 {
        match &self.score {
            Score::Boxes(mean) => mean.value(),
            Score::Classes(hits) => hits.rate(),
        }
    }
}

/// What is odd about all variants together: classes that none of them ever names, and names that no label has.
pub(super) fn warnings(tallies: &[Tally<'_>]) -> Vec<String> {
    let Some(first) = tallies.first() else {
        return Vec::new();
    };
    let mut warnings = Vec::new();
    for (idx, class) in first.classes.iter().enumerate() {
        let n = first.seen[idx].expected;
        if n > 0 && !tallies.iter().any(|tally| tally.seen[idx].is_named) {
            warnings.push(format!(
                "warning: no variant ever names the class \"{class}\"; the labels have it {n} times, which count as missed"
            ));
        }
    }
    let strangers: BTreeSet<&String> = tallies.iter().flat_map(|t| &t.strangers).collect();
    if !strangers.is_empty() {
        let names: Vec<&str> = strangers.into_iter().map(String::as_str).collect();
        let known = first.classes.join(", ");
        let effect = match first.score {
            Score::Boxes(_) => "their boxes do not count",
            Score::Classes(_) => "they count as wrong",
        };
        warnings.push(format!(
            "warning: the labels do not know {}, which the model names; {effect}. The classes of the labels are {known}",
            names.join(", ")
        ));
    }
    warnings
}
