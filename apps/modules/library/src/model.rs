//! `model` and `embedder`: any model that takes one picture; its numbers as they are, or as a vector of length 1. Where boxes are
//! wired, each box is cut out and becomes a picture: all objects of all frames of a batch are one forward, and each object has one row.

use std::sync::{Arc, OnceLock};

use spillgate_backend::operator::{
    BuildContext, Inputs, ModuleKind, Operator, OperatorError, Outputs, Pass, Prepare,
};
use spillgate_pipeline::catalog::{ExecutionTime, ModelNeed, ModuleType, OptionType, ValueType};
use spillgate_process::value::{Embedding, LeftOut, Tensor, Value};

use crate::batch::{Crops, Parts, example_boxes, example_image, list, pass_over_pictures};
use crate::classifier::SIDE;
use crate::facts::Facts;
use crate::input::InputBuffers;
use crate::models::{Models, wrong_shape};
use crate::one_pass::{OnePass, OnePassOperator};
use crate::options::Options;
use crate::picture::{self, FitBy};

/// The type `model`.
pub(crate) struct AnyModel;
/// The type `embedder`.
pub(crate) struct Embedder;

/// Most outputs of a model of which one can be chosen; models have a handful.
const OUTPUTS_MAX: usize = 16;

/// What becomes of the rows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gives {
    Tensor,
    Embedding,
}

impl ModuleKind for AnyModel {
    fn module_type(&self) -> ModuleType {
        let ty = ModuleType::new(
            "model",
            "runs any model on a picture or on each box and gives its numbers",
            ModelNeed::Required,
        );
        let boxes = "run on these parts instead of the whole picture, each cut out and stretched to `size`: one row a box";
        let ty = ports(ty, boxes).output(
            "tensor",
            ValueType::Tensor,
            "the output as it is; with boxes a row a box, zeros for a box that has no area or that the frame's bound left out",
        );
        further(ty, "the first")
    }

    fn build(&self, context: BuildContext<'_>) -> Result<Box<dyn Operator>, OperatorError> {
        build(context, Gives::Tensor)
    }
}

impl ModuleKind for Embedder {
    fn module_type(&self) -> ModuleType {
        let ty = ModuleType::new(
            "embedder",
            "makes a vector of a picture or of each box, by which alike ones are found",
            ModelNeed::Required,
        );
        let boxes = "make a vector of each of these parts instead of the whole picture, each cut out and stretched to `size`";
        let ty = ports(ty, boxes).output(
            "embeddings",
            ValueType::Embeddings,
            "one vector of length 1, or one a box; empty for a box that was not looked at, or where the model gives no direction",
        );
        further(
            ty,
            "that whose name has `embed` or `pool` in it, else the first",
        )
    }

    fn build(&self, context: BuildContext<'_>) -> Result<Box<dyn Operator>, OperatorError> {
        build(context, Gives::Embedding)
    }
}

fn ports(ty: ModuleType, boxes: &str) -> ModuleType {
    ty.input("image", ValueType::Image, "the picture")
        .optional_input("boxes", ValueType::Boxes, boxes)
}

/// The options.
fn further(ty: ModuleType, output: &str) -> ModuleType {
    let ty = ty
        .option(
            "output",
            OptionType::Text,
            &format!("which output of the model: its name in an ONNX file, or its number from 0 (default: {output})"),
        )
        .option(
            "region",
            OptionType::Numbers(4),
            "part of each box to look at: [left, top, right, bottom] in fractions of it (default [0, 0, 1, 1])",
        )
        .time(ExecutionTime::VariesWith("boxes".to_owned()));
    let ty = picture::options(ty, ", else [224, 224]");
    picture::fit_options(ty, "stretch")
}

fn build(mut context: BuildContext<'_>, gives: Gives) -> Result<Box<dyn Operator>, OperatorError> {
    let options = Options::new(&context);
    let with_boxes = context.module.inputs.get(1).is_some_and(Option::is_some);
    let region = picture::region(&options, with_boxes)?;
    let limit = context.limits.objects;
    let buffers = InputBuffers::of(&*context.backend);
    let models = Models::load(&mut context)?;
    let mut variants = Vec::new();
    for (i, facts) in models.facts()?.iter().enumerate() {
        let model = models.name(i).to_owned();
        let size = picture::size(&options, &model, (models.input(i), facts), Some(SIDE))?;
        let mut crops = Crops::new(region, size, limit, buffers.clone());
        crops.format = picture::format(&options, facts)?;
        variants.push(Variant {
            output: output(&options, &model, facts, gives)?,
            model,
            fit: picture::fit(&options, facts, "stretch")?,
            crops,
        });
    }
    let network = Network {
        variants,
        gives,
        with_boxes,
        buffers,
    };
    Ok(Box::new(OnePassOperator::new(models, network)))
}

/// The place of the output that is read.
fn output(
    options: &Options<'_>,
    model: &str,
    facts: &Facts,
    gives: Gives,
) -> Result<usize, OperatorError> {
    let names: Vec<&str> = facts
        .outputs
        .iter()
        .map(|port| port.name.as_str())
        .collect();
    let Some(chosen) = options.chosen("output")? else {
        let is_vector = |name: &&str| name.contains("embed") || name.contains("pool");
        let vector = names
            .iter()
            .position(is_vector)
            .filter(|_| gives == Gives::Embedding);
        return Ok(vector.unwrap_or(0));
    };
    let number = chosen.parse::<usize>().ok();
    let known = if names.is_empty() {
        OUTPUTS_MAX
    } else {
        names.len().min(OUTPUTS_MAX)
    };
    let place = names.iter().position(|name| *name == chosen).or(number);
    place.filter(|at| *at < known).ok_or_else(|| match names.is_empty() {
        true => options.error(format_args!(
            "options.output: {chosen:?}: the outputs of {model} have no names; write a number from 0 to {}",
            OUTPUTS_MAX - 1
        )),
        false => options.error(format_args!(
            "options.output: {chosen:?} is no output of {model}; it has {}",
            names.join(", ")
        )),
    })
}

struct Variant {
    /// Its file.
    model: String,
    /// The place of the output that is read.
    output: usize,
    /// Of whole pictures.
    fit: FitBy,
    crops: Crops,
}

struct Network {
    variants: Vec<Variant>,
    gives: Gives,
    with_boxes: bool,
    buffers: InputBuffers,
}

impl Network {
    /// The output that is read, which has a row for each of `n`.
    fn read<'a>(
        &self,
        variant: usize,
        n: usize,
        outputs: &'a [Tensor],
    ) -> Result<&'a Tensor, OperatorError> {
        let Variant { model, output, .. } = &self.variants[variant];
        let Some(output) = outputs.get(*output) else {
            return Err(OperatorError::Other(format!(
                "{model}: the model gave {} outputs, and number {output} is to be read, counted from 0",
                outputs.len()
            )));
        };
        if output.shape.first() == Some(&(n as i64)) {
            return Ok(output);
        }
        let what = if self.with_boxes { "box" } else { "picture" };
        let expected = format!("[{n}, ...] (one row a {what})");
        Err(wrong_shape(model, expected, &output.shape))
    }

    /// What each picture gives.
    fn of_pictures(
        &self,
        variant: usize,
        n: usize,
        outputs: &[Tensor],
    ) -> Result<Vec<Outputs>, OperatorError> {
        let output = self.read(variant, n, outputs)?;
        let value = |i| match self.gives {
            Gives::Tensor => Value::Tensor(Arc::new(Tensor::new(
                output.shape[1..].to_vec(),
                output.row(i).to_vec(),
            ))),
            Gives::Embedding => Value::Embeddings(list(vec![embedding(Ok(output.row(i)))])),
        };
        Ok((0..n).map(|i| vec![value(i)]).collect())
    }
}

/// The vector of a row, of length 1. A row without a direction has none: zeros, or what is no number.
fn embedding(row: Result<&[f32], LeftOut>) -> Embedding {
    let of = |row: &[f32]| {
        // Their squares may be beyond what 32 bits hold.
        let length = row
            .iter()
            .map(|v| f64::from(*v).powi(2))
            .sum::<f64>()
            .sqrt();
        let has_direction = length.is_finite() && length > 0.0;
        let unit = || {
            row.iter()
                .map(|v| (f64::from(*v) / length) as f32)
                .collect()
        };
        has_direction.then(unit).ok_or(LeftOut::NoNumber)
    };
    match row.and_then(of) {
        Ok(values) => Embedding {
            values,
            left_out: None,
        },
        Err(why) => Embedding {
            values: Vec::new(),
            left_out: Some(why),
        },
    }
}

impl Prepare for Network {
    fn prepare(self: Arc<Self>, variant: usize, batch: &[Inputs]) -> Pass {
        let network = self.clone();
        let Variant { crops, fit, .. } = &network.variants[variant];
        if !network.with_boxes {
            let size = (crops.width, crops.height);
            return pass_over_pictures(
                &network.buffers,
                (size, &crops.format),
                batch,
                |image, target, resampler| fit.fit(image, size).paint(image, resampler, target),
                move |pictures, outputs| self.of_pictures(variant, pictures.len(), &outputs),
            );
        }
        // The shape of one row is known once the model has run.
        let shape = Arc::new(OnceLock::new());
        let known = shape.clone();
        let gives = network.gives;
        crops.pass(
            Parts::of(batch, true).frames(),
            Err,
            move |n, outputs| {
                let output = self.read(variant, n, &outputs)?;
                let _ = known.set(output.shape[1..].to_vec());
                Ok((0..n).map(|i| Ok(output.row(i).to_vec())).collect())
            },
            move |rows: Vec<Row>| {
                let shape = shape.get().map_or(&[0][..], Vec::as_slice);
                vec![match gives {
                    Gives::Tensor => stacked(&rows, shape),
                    Gives::Embedding => {
                        let rows = rows.iter().map(|row| row.as_deref().map_err(|why| *why));
                        Value::Embeddings(list(rows.map(embedding).collect()))
                    }
                }]
            },
        )
    }
}

impl OnePass for Network {
    fn outputs(&self) -> usize {
        let read = self.variants.iter().map(|variant| variant.output + 1);
        read.max().unwrap_or(1)
    }

    fn example(&self, objects: usize) -> Inputs {
        vec![
            Some(example_image()),
            self.with_boxes.then(|| example_boxes(objects)),
        ]
    }
}

/// The numbers of a row, or why a box was not looked at.
type Row = Result<Vec<f32>, LeftOut>;

/// Rows of one shape as one tensor, zeros where a box was not looked at.
fn stacked(rows: &[Row], shape: &[i64]) -> Value {
    let n_row = shape.iter().product::<i64>() as usize;
    let mut data = Vec::with_capacity(rows.len() * n_row);
    for row in rows {
        match row {
            Ok(row) => data.extend_from_slice(row),
            Err(_) => data.resize(data.len() + n_row, 0.0),
        }
    }
    let left_out = (0..)
        .zip(rows)
        .filter_map(|(i, row)| row.is_err().then_some(i));
    let shape = std::iter::once(rows.len() as i64).chain(shape.iter().copied());
    Value::Tensor(Arc::new(Tensor {
        shape: shape.collect(),
        data,
        left_out: left_out.collect(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct Case {
        inputs: Vec<Given>,
        expected: Expected,
    }

    #[derive(serde::Deserialize)]
    struct Given {
        shape: Vec<i64>,
        data: Vec<f32>,
    }

    #[derive(serde::Deserialize)]
    struct Expected {
        unit: Vec<Vec<f32>>,
    }

    #[test]
    fn vectors_have_the_length_1_as_torch_makes_them() {
        #[derive(serde::Deserialize)]
        struct Vectors {
            cases: Vec<Case>,
        }
        let text = include_str!("heads/vectors/embedding.json");
        let vectors: Vectors = serde_json::from_str(text).expect("vectors");
        for Case { inputs, expected } in vectors.cases {
            let Given { shape, data } = inputs.into_iter().next().expect("an input");
            let rows = Tensor::new(shape, data);
            for (i, unit) in expected.unit.iter().enumerate() {
                let found = embedding(Ok(rows.row(i)));
                assert_eq!(found.values.len(), unit.len());
                for (a, b) in found.values.iter().zip(unit) {
                    assert!((a - b).abs() < 1e-4, "{a} {b}");
                }
            }
        }
    }

    #[test]
    fn what_has_no_direction_has_no_vector() {
        for row in [[0.0, 0.0], [f32::NAN, 1.0], [f32::INFINITY, 1.0]] {
            assert_eq!(embedding(Ok(&row)).left_out, Some(LeftOut::NoNumber));
        }
        assert_eq!(
            embedding(Err(LeftOut::OverLimit)).left_out,
            Some(LeftOut::OverLimit)
        );
        for size in [1e30, 1e-30] {
            let found = embedding(Ok(&[3.0 * size, 4.0 * size])).values;
            let close = found
                .iter()
                .zip([0.6, 0.8])
                .all(|(a, b)| (a - b).abs() < 1e-6);
            assert!(close && found.len() == 2, "{found:?}");
        }
    }
}
