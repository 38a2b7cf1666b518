//! `text_reader`: reads one line of text in a fixed part of each box, a number plate as a rule. All
//! objects of all frames of a batch are one forward. The model gives class scores for each of a row of
//! places, decoded greedily: repeats collapse, blanks vanish (CTC's best path).

use std::sync::Arc;

use spillgate_backend::operator::{
    BuildContext, Inputs, ModuleKind, Operator, OperatorError, Pass, Prepare,
};
use spillgate_pipeline::catalog::{ExecutionTime, ModelNeed, ModuleType, OptionType, ValueType};
use spillgate_process::value::{Tensor, Text, Value};

use crate::batch::{Crops, example_boxes, example_image, frames_with_boxes, list, only};
use crate::input::InputBuffers;
use crate::models::{Models, wrong_shape};
use crate::one_pass::{OnePass, OnePassOperator};
use crate::options::Options;
use crate::scores::{Activation, best};

/// The type `text_reader`.
pub(crate) struct TextReader;

const ALPHABET: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
/// Where a plate is in a vehicle's box.
const REGION: [f32; 4] = [0.08, 0.56, 0.92, 1.0];
/// Width and height of a cut-out.
const SIZE: [f32; 2] = [160.0, 48.0];

impl ModuleKind for TextReader {
    fn module_type(&self) -> ModuleType {
        let ty = ModuleType::new("text_reader", "reads a line of text in each box", ModelNeed::Required)
            .input("image", ValueType::Image, "the picture that the boxes refer to")
            .input("boxes", ValueType::Boxes, "where to read")
            .output(
                "text",
                ValueType::Texts,
                "one text a box; empty where nothing was readable or the frame's bound left the box out",
            )
            .option(
                "region",
                OptionType::Numbers(4),
                "part of the box to read: [left, top, right, bottom] in fractions of it \
                 (default [0.08, 0.56, 0.92, 1.0])",
            )
            .option(
                "size",
                OptionType::Numbers(2),
                "[width, height] of the model's input in pixels (default [160, 48])",
            )
            .option(
                "alphabet",
                OptionType::Text,
                "letters in the order of the model's classes (default A to Z, then 0 to 9)",
            )
            .option(
                "blank",
                OptionType::Choice(vec!["last".to_owned(), "first".to_owned()]),
                "where the class \"no letter\" is (default last)",
            )
            .time(ExecutionTime::VariesWith("boxes".to_owned()));
        Activation::option(ty)
    }

    fn build(&self, mut context: BuildContext<'_>) -> Result<Box<dyn Operator>, OperatorError> {
        let options = Options::new(&context);
        let part = options.part("region", REGION)?;
        let size = options.size("size", SIZE)?;
        let alphabet: Vec<char> = options.text("alphabet", ALPHABET)?.chars().collect();
        if alphabet.is_empty() {
            return Err(options.error("options.alphabet: no letters in it"));
        }
        let blank_first = options.text("blank", "last")? == "first";
        let buffers = InputBuffers::of(&*context.backend);
        let crops = Crops::new(part, size, context.limits.objects, buffers);
        let models = Models::load(&mut context)?;
        let facts = models.facts()?;
        let activation = Activation::read(&options, &facts)?;
        let letters = Letters {
            alphabet,
            blank_first,
            activation,
        };
        let names = (0..models.len()).map(|i| models.name(i).to_owned());
        let lines = Lines {
            models: names.collect(),
            crops,
            letters,
        };
        Ok(Box::new(OnePassOperator::new(models, lines)))
    }
}

struct Lines {
    /// The file of each variant.
    models: Vec<String>,
    crops: Crops,
    letters: Letters,
}

struct Letters {
    alphabet: Vec<char>,
    blank_first: bool,
    activation: Activation,
}

impl Letters {
    fn n_classes(&self) -> usize {
        self.alphabet.len() + 1
    }

    /// Decodes the scores of one text, one row a place. The text's score is that of its least sure letter.
    fn decode(&self, places: &mut [f32]) -> Text {
        let blank = if self.blank_first {
            0
        } else {
            self.alphabet.len()
        };
        let mut text = String::new();
        let mut score = 1.0f32;
        let mut last = blank;
        let mut letter_score = 0.0f32;
        for row in places.chunks_exact_mut(self.n_classes()) {
            self.activation.apply(row);
            // A place of which nothing is known makes the text as unsure as can be.
            let (class, p) = best(row).unwrap_or_else(|| {
                score = 0.0;
                (blank, 0.0)
            });
            if class != last && last != blank {
                score = score.min(letter_score);
            }
            if class != blank {
                if class != last {
                    text.push(self.alphabet[class - usize::from(self.blank_first)]);
                    letter_score = p;
                }
                letter_score = letter_score.max(p);
            }
            last = class;
        }
        if last != blank {
            score = score.min(letter_score);
        }
        let score = if text.is_empty() { 0.0 } else { score };
        Text {
            text,
            score,
            left_out: None,
        }
    }
}

impl Lines {
    /// The text of each cut-out.
    fn texts(
        &self,
        variant: usize,
        n: usize,
        mut scores: Tensor,
    ) -> Result<Vec<Text>, OperatorError> {
        let k = self.letters.n_classes() as i64;
        let fits = matches!(scores.shape[..], [rows, places, classes]
            if rows == n as i64 && places > 0 && classes == k);
        if !fits {
            let expected = format!("[{n}, places, {k}]");
            return Err(wrong_shape(&self.models[variant], expected, &scores.shape));
        }
        let n_row = scores.data.len() / n;
        let rows = scores.data.chunks_exact_mut(n_row);
        Ok(rows.map(|row| self.letters.decode(row)).collect())
    }
}

impl Prepare for Lines {
    fn prepare(self: Arc<Self>, variant: usize, batch: &[Inputs]) -> Pass {
        let lines = self.clone();
        let missing = |why| Text {
            text: String::new(),
            score: 0.0,
            left_out: Some(why),
        };
        lines.crops.pass(
            frames_with_boxes(batch),
            missing,
            move |n, outputs| self.texts(variant, n, only(outputs)?),
            |texts| vec![Value::Texts(list(texts))],
        )
    }
}

impl OnePass for Lines {
    fn example(&self, objects: usize) -> Inputs {
        vec![Some(example_image()), Some(example_boxes(objects))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_collapse_and_blanks_separate() {
        let letters = Letters {
            alphabet: vec!['A', 'B'],
            blank_first: false,
            activation: Activation::None,
        };
        let a = [0.9, 0.05, 0.05];
        let sure_a = [0.95, 0.0, 0.05];
        let b = [0.2, 0.6, 0.2];
        let blank = [0.1, 0.1, 0.8];
        let mut places = [blank, a, sure_a, blank, a, b, b, blank].concat();
        let text = letters.decode(&mut places);
        assert_eq!((text.text.as_str(), text.score), ("AAB", 0.6));
        let nothing = letters.decode(&mut [blank, blank].concat());
        assert_eq!((nothing.text.as_str(), nothing.score), ("", 0.0));
    }

    #[test]
    fn the_blank_may_come_first() {
        let letters = Letters {
            alphabet: vec!['A', 'B'],
            blank_first: true,
            activation: Activation::Softmax,
        };
        let text = letters.decode(&mut [9.0, 0.0, 0.0, 0.0, 0.0, 9.0, 0.0, 9.0, 0.0]);
        assert_eq!(text.text, "BA");
    }
}
