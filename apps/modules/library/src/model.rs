//! `model`: any model that takes one picture; its output as it is. Where boxes are wired, each box is cut out and
//! becomes a picture: all objects of all frames of a batch are one forward, and each object has one row.

use std::sync::{Arc, OnceLock};

use spillgate_backend::operator::{
    BuildContext, Inputs, ModuleKind, Operator, OperatorError, Outputs, Pass, Prepare,
};
use spillgate_pipeline::catalog::{ExecutionTime, ModelNeed, ModuleType, OptionType, ValueType};
use spillgate_process::value::{Tensor, Value};

use crate::batch::{Crops, Parts, example_boxes, example_image, only, pass_over_pictures};
use crate::classifier::SIDE;
use crate::input::InputBuffers;
use crate::models::{Models, wrong_shape};
use crate::one_pass::{OnePass, OnePassOperator};
use crate::options::Options;
use crate::picture::{self, FitBy};

/// The type `model`.
pub(crate) struct AnyModel;

impl ModuleKind for AnyModel {
    fn module_type(&self) -> ModuleType {
        let ty = ModuleType::new(
            "model",
            "runs any model on a picture or on each box and gives its numbers",
            ModelNeed::Required,
        )
        .input("image", ValueType::Image, "the picture")
        .optional_input(
            "boxes",
            ValueType::Boxes,
            "run on these parts instead of the whole picture, each cut out and stretched to `size`: one row a box",
        )
        .output(
            "tensor",
            ValueType::Tensor,
            "the first output as it is; with boxes a row a box, zeros for a box that has no area or that the frame's bound left out",
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

    fn build(&self, mut context: BuildContext<'_>) -> Result<Box<dyn Operator>, OperatorError> {
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
                model,
                fit: picture::fit(&options, facts, "stretch")?,
                crops,
            });
        }
        let network = Network {
            variants,
            with_boxes,
            buffers,
        };
        Ok(Box::new(OnePassOperator::new(models, network)))
    }
}

struct Variant {
    /// Its file.
    model: String,
    /// Of whole pictures.
    fit: FitBy,
    crops: Crops,
}

struct Network {
    variants: Vec<Variant>,
    with_boxes: bool,
    buffers: InputBuffers,
}

impl Network {
    /// Checks that there is a row for each of `n`.
    fn check(&self, variant: usize, n: usize, output: &Tensor) -> Result<(), OperatorError> {
        if output.shape.first() == Some(&(n as i64)) {
            return Ok(());
        }
        let what = if self.with_boxes { "box" } else { "picture" };
        let expected = format!("[{n}, ...] (one row a {what})");
        Err(wrong_shape(
            &self.variants[variant].model,
            expected,
            &output.shape,
        ))
    }

    /// The tensor of each picture.
    fn tensors(
        &self,
        variant: usize,
        n: usize,
        output: &Tensor,
    ) -> Result<Vec<Outputs>, OperatorError> {
        self.check(variant, n, output)?;
        let tensor = |i| Tensor {
            shape: output.shape[1..].to_vec(),
            data: output.row(i).to_vec(),
            left_out: Vec::new(),
        };
        Ok((0..n)
            .map(|i| vec![Value::Tensor(Arc::new(tensor(i)))])
            .collect())
    }

    /// The row of each box.
    fn rows(&self, variant: usize, n: usize, output: &Tensor) -> Result<Vec<Row>, OperatorError> {
        self.check(variant, n, output)?;
        Ok((0..n).map(|i| Some(output.row(i).to_vec())).collect())
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
                move |pictures, outputs| self.tensors(variant, pictures.len(), only(outputs)?),
            );
        }
        // The shape of one row is known once the model has run.
        let shape = Arc::new(OnceLock::new());
        let known = shape.clone();
        crops.pass(
            Parts::of(batch, true).frames(),
            |_| None,
            move |n, output| {
                let rows = self.rows(variant, n, &output)?;
                let _ = known.set(output.shape[1..].to_vec());
                Ok(rows)
            },
            move |rows| {
                let shape = shape.get().map_or(&[0][..], Vec::as_slice);
                vec![stacked(&rows, shape)]
            },
        )
    }
}

impl OnePass for Network {
    fn example(&self, objects: usize) -> Inputs {
        vec![
            Some(example_image()),
            self.with_boxes.then(|| example_boxes(objects)),
        ]
    }
}

/// The numbers of a row; `None` for a box that was not looked at.
type Row = Option<Vec<f32>>;

/// Rows of one shape as one tensor, zeros where there is none.
fn stacked(rows: &[Row], shape: &[i64]) -> Value {
    let n_row = shape.iter().product::<i64>() as usize;
    let mut data = Vec::with_capacity(rows.len() * n_row);
    for row in rows {
        match row {
            Some(row) => data.extend_from_slice(row),
            None => data.resize(data.len() + n_row, 0.0),
        }
    }
    let left_out = (0..)
        .zip(rows)
        .filter_map(|(i, row)| row.is_none().then_some(i));
    let shape = std::iter::once(rows.len() as i64).chain(shape.iter().copied());
    Value::Tensor(Arc::new(Tensor {
        shape: shape.collect(),
        data,
        left_out: left_out.collect(),
    }))
}
