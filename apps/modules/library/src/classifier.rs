//! `classifier`: names the class of the whole picture or, where boxes are wired, of each box. All
//! cut-outs of a batch are one forward.

use std::sync::Arc;

use spillgate_backend::operator::{
    BuildContext, Inputs, ModuleKind, Operator, OperatorError, Pass, Prepare,
};
use spillgate_pipeline::catalog::{ExecutionTime, ModelNeed, ModuleType, OptionType, ValueType};
use spillgate_process::value::{Label, Tensor, Value};

use crate::batch::{Crops, Parts, example_boxes, example_image, list};
use crate::input::InputBuffers;
use crate::labels;
use crate::models::{Models, wrong_shape};
use crate::one_pass::{OnePass, OnePassOperator};
use crate::options::Options;
use crate::resample::PixelFormat;
use crate::scores::{Activation, is_class_scores, top};

/// The type `classifier`.
pub(crate) struct Classifier;

/// The input of most classifiers trained on ImageNet.
const SIDE: u32 = 224;

impl ModuleKind for Classifier {
    fn module_type(&self) -> ModuleType {
        let ty = ModuleType::new(
            "classifier",
            "names the class of a picture or of each box",
            ModelNeed::Required,
        )
        .input("image", ValueType::Image, "the picture")
        .optional_input(
            "boxes",
            ValueType::Boxes,
            "classify these parts instead of the whole picture",
        )
        .output(
            "labels",
            ValueType::Labels,
            "the best `top` classes of the picture, or of each box one after the other",
        )
        .option(
            "top",
            OptionType::Integer(1, 100),
            "how many classes to name, best first (default 1)",
        )
        .option(
            "labels",
            OptionType::File,
            "class names, one a line (default: beside the model, light.pt has light.labels)",
        )
        .option(
            "mean",
            OptionType::Numbers(3),
            "taken from red, green, blue after scaling to 0..1 (default [0, 0, 0])",
        )
        .option(
            "std",
            OptionType::Numbers(3),
            "red, green, blue are divided by it, after `mean` (default [1, 1, 1])",
        )
        .time(ExecutionTime::VariesWith("boxes".to_owned()));
        Activation::option(ty)
    }

    fn build(&self, mut context: BuildContext<'_>) -> Result<Box<dyn Operator>, OperatorError> {
        let options = Options::new(&context);
        let k = options.count("top", 1)?;
        let labels_file = options.file("labels")?;
        let format = normalised(&options)?;
        let activation = Activation::read(&options)?;
        let with_boxes = context.module.inputs.get(1).is_some_and(Option::is_some);
        let limit = context.limits.objects;
        let buffers = InputBuffers::of(&*context.backend);
        let models = Models::load(&mut context)?;
        let all = labels::of_variants(&options, &models, labels_file.as_deref())?;
        let mut variants = Vec::new();
        for (i, classes) in all.into_iter().enumerate() {
            let side = models.input(i).unwrap_or(SIDE as usize);
            let mut crops = Crops::new([0.0, 0.0, 1.0, 1.0], (side, side), limit, buffers.clone());
            crops.format = format.clone();
            variants.push(Variant {
                model: models.name(i).to_owned(),
                crops,
                classes,
            });
        }
        let best = Best {
            variants,
            with_boxes,
            k,
            activation,
        };
        Ok(Box::new(OnePassOperator::new(models, best)))
    }
}

/// The options `mean` and `std` as a pixel format.
fn normalised(options: &Options<'_>) -> Result<PixelFormat, OperatorError> {
    let mean = options.numbers("mean", [0.0; 3])?;
    let std = options.numbers("std", [1.0; 3])?;
    if std.iter().any(|v| *v <= 0.0) {
        return Err(options.error(format_args!("options.std: {std:?} must be above 0")));
    }
    Ok(PixelFormat {
        mul: std.map(|s| 1.0 / (255.0 * s)),
        add: std::array::from_fn(|c| -mean[c] / std[c]),
        ..PixelFormat::UNIT
    })
}

struct Variant {
    /// Its file.
    model: String,
    crops: Crops,
    classes: Arc<[Arc<str>]>,
}

/// The best classes of pictures.
struct Best {
    variants: Vec<Variant>,
    with_boxes: bool,
    k: usize,
    activation: Activation,
}

impl Best {
    /// Those of each row of scores.
    fn of(
        &self,
        variant: usize,
        n: usize,
        mut scores: Tensor,
    ) -> Result<Vec<Vec<Label>>, OperatorError> {
        let Variant { model, classes, .. } = &self.variants[variant];
        if !is_class_scores(&scores, n, classes.len()) {
            let expected = format!("[{n}, {}] (one score a class)", classes.len());
            return Err(wrong_shape(model, expected, &scores.shape));
        }
        let labels = |row: &mut [f32]| -> Vec<Label> {
            self.activation.apply(row);
            let label = |(class, score): (usize, f32)| Label {
                label: Arc::clone(&classes[class]),
                score,
            };
            top(row, self.k).into_iter().map(label).collect()
        };
        let rows = scores.data.chunks_exact_mut(classes.len());
        Ok(rows.map(labels).collect())
    }
}

impl Prepare for Best {
    fn prepare(self: Arc<Self>, variant: usize, batch: &[Inputs]) -> Pass {
        let best = self.clone();
        let Variant { crops, classes, .. } = &best.variants[variant];
        // Boxes over the frame's bound keep their place.
        let unknown = Label {
            label: Arc::from("unknown"),
            score: 0.0,
        };
        let missing = vec![unknown; self.k.min(classes.len())];
        crops.pass(
            Parts::of(batch, self.with_boxes).frames(),
            missing,
            move |n, scores| self.of(variant, n, scores),
            |labels| vec![Value::Labels(list(labels.concat()))],
        )
    }
}

impl OnePass for Best {
    fn example(&self, objects: usize) -> Inputs {
        vec![
            Some(example_image()),
            self.with_boxes.then(|| example_boxes(objects)),
        ]
    }
}
