//! `text_generator`: writes a text for a text, letter by letter, until the network says that it has ended. Texts that
//! have ended leave the batch, so its time depends on the lengths of the texts, most of all on the longest.
//!
//! The network is two TorchScript files, since a trace holds no loop. `say.pt` reads the input: ordinals in the
//! alphabet counted from 1, `[n, width]`, filled up on the left with 0, to a state, `[n, m]`. `say.step.pt` takes
//! the ordinals of the letters written last, `[n]` (0 at the start), and the state, and gives one matrix,
//! `[n, 1 + letters + m]`: scores for the end and each letter, then the next state. The best letter is taken (greedy).

use spillgate_backend::operator::{
    BuildContext, Inputs, ModuleKind, Operator, OperatorError, Outputs,
};
use spillgate_pipeline::catalog::{ExecutionTime, ModelNeed, ModuleType, OptionType, ValueType};
use spillgate_process::value::{LeftOut, Tensor, Text, Value};

use crate::batch::{all_fail, list};
use crate::models::Models;
use crate::options::Options;
use crate::rows::keep_rows;
use crate::scores::{Activation, best};

/// The type `text_generator`.
pub(crate) struct TextGenerator;

/// The alphabet that the shipped `say.pt` reads.
const ALPHABET: &str = "0123456789";
/// What it writes.
const LETTERS: &str = " abcdefghijklmnopqrstuvwxyz";
/// Characters that it takes.
const WIDTH: usize = 9;
/// Widest input that an option may ask for.
pub(crate) const WIDTH_MAX: i64 = 256;
/// The longest text of the shipped network has 100 letters.
const OUTPUT: usize = 128;
/// Longest text that an option may allow: each letter is a step, and a batch that runs is not interrupted.
pub(crate) const OUTPUT_MAX: i64 = 1024;
/// Words of the option `others`.
const OTHERS: [&str; 2] = ["fail", "skip"];

/// Parts of the model.
const READER: usize = 0;
const STEP: usize = 1;

impl ModuleKind for TextGenerator {
    fn module_type(&self) -> ModuleType {
        let ty = ModuleType::new(
            "text_generator",
            "writes a text for a text, letter by letter, and takes longer for a longer one",
            ModelNeed::Required,
        )
        .optional_input("payload", ValueType::Bytes, "one text in UTF-8; wire this or `texts`")
        .optional_input("texts", ValueType::Texts, "any number of texts; wire this or `payload`")
        .output(
            "text",
            ValueType::Texts,
            "one text for each; empty for an empty one of `texts` and for those over the frame's bound",
        )
        .option(
            "alphabet",
            OptionType::Text,
            "characters that the model reads, in the order of its ordinals from 1 (default 0123456789)",
        )
        .option(
            "letters",
            OptionType::Text,
            "characters that it writes, in the order of its classes from 1; class 0 is the end \
             (default a space, then a to z)",
        )
        .option(
            "width",
            OptionType::Integer(1, WIDTH_MAX),
            "characters that the model takes; a longer input fails (default 9)",
        )
        .option(
            "others",
            OptionType::Choice(OTHERS.map(str::to_owned).to_vec()),
            "characters outside the alphabet: fail the request, or skip them (default fail)",
        )
        .option(
            "max_output",
            OptionType::Integer(1, OUTPUT_MAX),
            "most letters of a text; a request whose text does not end within them fails (default 128)",
        )
        .time(ExecutionTime::Varies);
        Activation::option(ty)
    }

    fn build(&self, mut context: BuildContext<'_>) -> Result<Box<dyn Operator>, OperatorError> {
        let options = Options::new(&context);
        let alphabet = distinct(&options, "alphabet", ALPHABET)?;
        let letters = distinct(&options, "letters", LETTERS)?;
        let width = options.count("width", WIDTH)?;
        let max_output = options.count("max_output", OUTPUT)?;
        let skips_others = options.text("others", OTHERS[0])? == OTHERS[1];
        let is_wired = |port| matches!(context.module.inputs.get(port), Some(Some(_)));
        let from_texts = match (is_wired(0), is_wired(1)) {
            (true, false) => false,
            (false, true) => true,
            _ => {
                return Err(options.error("inputs: wire exactly one of `payload` and `texts`"));
            }
        };
        let limit = context.limits.objects;
        let why = format!(
            "modules.{}: a text_generator is two files, NAME.pt and NAME.step.pt",
            context.module.name
        );
        let models = Models::load_parts(&mut context, &["step".to_owned()], &why)?;
        let facts = models.facts()?;
        let activation = Activation::read(&options, &facts)?;
        Ok(Box::new(TextGeneratorOperator {
            models,
            from_texts,
            limit,
            reading: Reading {
                alphabet,
                width,
                skips_others,
            },
            writing: Writing {
                letters,
                max_output,
                activation,
            },
        }))
    }
}

/// An option of characters, each of them once.
fn distinct(options: &Options<'_>, name: &str, default: &str) -> Result<Vec<char>, OperatorError> {
    let all: Vec<char> = options.text(name, default)?.chars().collect();
    match (1..all.len()).find(|i| all[..*i].contains(&all[*i])) {
        Some(i) => Err(options.error(format_args!(
            "options.{name}: {:?} is in it twice; name each character once",
            all[i]
        ))),
        None => Ok(all),
    }
}

struct TextGeneratorOperator {
    models: Models,
    from_texts: bool,
    /// Most texts of a request.
    limit: usize,
    reading: Reading,
    writing: Writing,
}

/// How a text becomes the network's input.
struct Reading {
    alphabet: Vec<char>,
    width: usize,
    skips_others: bool,
}

/// How the network's scores become a text.
struct Writing {
    letters: Vec<char>,
    max_output: usize,
    activation: Activation,
}

impl Reading {
    /// Ordinals of a text, `width` of them, filled up on the left with 0; none for an empty one.
    fn ordinals(&self, text: &str) -> Result<Option<Vec<f32>>, OperatorError> {
        let mut ordinals = Vec::new();
        for c in text.chars() {
            match self.alphabet.iter().position(|a| *a == c) {
                Some(i) => ordinals.push((i + 1) as f32),
                None if self.skips_others => {}
                None => {
                    let alphabet: String = self.alphabet.iter().collect();
                    return Err(OperatorError::Other(format!(
                        "{c:?} in the text cannot be read; its characters must be among {alphabet:?}"
                    )));
                }
            }
            if ordinals.len() > self.width {
                return Err(OperatorError::Other(format!(
                    "the text is too long to be read: it may have at most {} characters",
                    self.width
                )));
            }
        }
        if ordinals.is_empty() {
            return Ok(None);
        }
        let mut row = vec![0.0; self.width - ordinals.len()];
        row.append(&mut ordinals);
        Ok(Some(row))
    }

    /// The texts of a request as rows of the input: exactly one of a payload, any number of texts.
    fn rows(
        &self,
        inputs: &Inputs,
        from_texts: bool,
    ) -> Result<Vec<Option<Vec<f32>>>, OperatorError> {
        match (inputs.get(usize::from(from_texts)), from_texts) {
            (Some(Some(Value::Bytes(bytes))), false) => {
                let text = std::str::from_utf8(bytes).map_err(|error| {
                    OperatorError::Other(format!(
                        "the payload is no text in UTF-8: the byte at {} does not fit",
                        error.valid_up_to()
                    ))
                })?;
                let row = self.ordinals(text)?.ok_or_else(|| {
                    OperatorError::Other("there is no text to read in the payload".to_owned())
                })?;
                Ok(vec![Some(row)])
            }
            (Some(Some(Value::Texts(texts))), true) => {
                texts.iter().map(|t| self.ordinals(&t.text)).collect()
            }
            // Wired, but the module that it comes from was skipped.
            (Some(None), _) => Ok(Vec::new()),
            (got, _) => Err(OperatorError::Other(format!(
                "expected {}, got {}",
                if from_texts { "texts" } else { "bytes" },
                got.and_then(Option::as_ref)
                    .map_or("nothing", |v| v.ty().name()),
            ))),
        }
    }
}

impl Writing {
    /// Writes a text for each row of `input`, `[n, width]`. One result each, in order: an error where the
    /// text did not end within the bound.
    fn write(
        &self,
        models: &mut Models,
        variant: usize,
        input: Tensor,
    ) -> Result<Vec<Result<Text, OperatorError>>, OperatorError> {
        let n_all = input.shape[0] as usize;
        let n_classes = self.letters.len() + 1;
        let state = models.forward_part(variant, READER, &[input])?;
        let n_row = match state.shape[..] {
            [rows, columns] if rows == n_all as i64 => n_classes + columns as usize,
            _ => {
                let expected = format!("[{n_all}, m] (a state for each text)");
                return Err(models.wrong_shape_of(variant, READER, expected, &state.shape));
            }
        };
        let empty = Text {
            text: String::new(),
            score: 1.0,
            left_out: None,
        };
        let mut texts = vec![empty; n_all];
        // The members that are still in the batch, by ordinal.
        let mut staying: Vec<usize> = (0..n_all).collect();
        let mut inputs = [Tensor::new(vec![n_all as i64], vec![0.0; n_all]), state];
        // One step more than letters: it says the end of the longest.
        for _ in 0..=self.max_output {
            let n = staying.len();
            let mut output = models.forward_part(variant, STEP, &inputs)?;
            if output.shape != [n as i64, n_row as i64] {
                let expected = format!(
                    "[{n}, {n_row}] ({n_classes} scores of the end and the letters, then the next state)"
                );
                return Err(models.wrong_shape_of(variant, STEP, expected, &output.shape));
            }
            let mut written = Vec::with_capacity(n);
            let mut stays = vec![false; n];
            for (i, row) in output.data.chunks_exact_mut(n_row).enumerate() {
                let scores = &mut row[..n_classes];
                self.activation.apply(scores);
                // What is no number ends the text.
                let (class, score) = best(scores).unwrap_or((0, 0.0));
                let text = &mut texts[staying[i]];
                // A text is as sure as its least sure letter.
                text.score = text.score.min(score);
                if class > 0 {
                    stays[i] = true;
                    text.text.push(self.letters[class - 1]);
                    written.push(class as f32);
                }
            }
            staying = (staying.iter().zip(&stays))
                .filter_map(|(ordinal, stays)| stays.then_some(*ordinal))
                .collect();
            if staying.is_empty() {
                break;
            }
            let state = keep_rows(&output, n_classes, &stays);
            inputs = [Tensor::new(vec![written.len() as i64], written), state];
        }
        let mut results: Vec<Result<Text, OperatorError>> = texts.into_iter().map(Ok).collect();
        for ordinal in staying {
            results[ordinal] = Err(OperatorError::Other(format!(
                "the text did not end within {} letters (options.max_output)",
                self.max_output
            )));
        }
        Ok(results)
    }
}

impl Operator for TextGeneratorOperator {
    fn run(&mut self, variant: usize, batch: &[Inputs]) -> Vec<Result<Outputs, OperatorError>> {
        if let Err(error) = self.models.check(variant) {
            return all_fail(batch.len(), &error);
        }
        let unwritten = |left_out| Text {
            text: String::new(),
            score: 0.0,
            left_out,
        };
        let mut data = Vec::new();
        // Request and text of each row.
        let mut places = Vec::new();
        let mut results: Vec<Result<Vec<Text>, OperatorError>> = Vec::with_capacity(batch.len());
        for (request, inputs) in batch.iter().enumerate() {
            let rows = self.reading.rows(inputs, self.from_texts);
            results.push(rows.map(|rows| {
                // Of a box that was not looked at there is no text to go on from.
                let mut left_out: Vec<Option<LeftOut>> = match inputs.get(1) {
                    Some(Some(Value::Texts(texts))) => texts.iter().map(|t| t.left_out).collect(),
                    _ => vec![None; rows.len()],
                };
                let mut n_read = 0;
                for (i, row) in rows.into_iter().enumerate() {
                    let Some(row) = row else { continue };
                    if n_read == self.limit {
                        left_out[i] = Some(LeftOut::OverLimit);
                        continue;
                    }
                    n_read += 1;
                    places.push((request, i));
                    data.extend(row);
                }
                left_out.into_iter().map(unwritten).collect()
            }));
        }
        if !places.is_empty() {
            let shape = vec![places.len() as i64, self.reading.width as i64];
            let input = Tensor::new(shape, data);
            match self.writing.write(&mut self.models, variant, input) {
                Ok(texts) => {
                    for ((request, i), text) in places.into_iter().zip(texts) {
                        match (text, &mut results[request]) {
                            (Ok(text), Ok(list)) => list[i] = text,
                            (Err(error), result @ Ok(_)) => *result = Err(error),
                            // Another text of this request has failed it already.
                            (_, Err(_)) => {}
                        }
                    }
                }
                Err(error) => {
                    for (request, _) in places {
                        results[request] = Err(error.again());
                    }
                }
            }
        }
        let results = results.into_iter();
        results
            .map(|r| r.map(|texts| vec![Value::Texts(list(texts))]))
            .collect()
    }

    /// A text of half the width, or `objects` of them.
    fn example(&self, objects: usize) -> Inputs {
        let Reading {
            alphabet, width, ..
        } = &self.reading;
        let text: String = alphabet
            .iter()
            .rev()
            .cycle()
            .take(width.div_ceil(2))
            .collect();
        if self.from_texts {
            let text = Text {
                text,
                score: 1.0,
                left_out: None,
            };
            vec![None, Some(Value::Texts(list(vec![text; objects])))]
        } else {
            vec![Some(Value::Bytes(text.into_bytes().into())), None]
        }
    }
}
