//! `classifier`: names the class of the whole picture or, where boxes are wired, of each box. All
//! cut-outs of a batch are one forward.

use std::sync::Arc;

use spillgate_backend::operator::{
    BuildContext, Inputs, ModuleKind, Operator, OperatorError, Outputs,
};
use spillgate_backend::value::{Label, Tensor, Value};
use spillgate_pipeline::catalog::{ExecutionTime, ModelNeed, ModuleType, OptionType, ValueType};

use crate::batch::{Crops, all_fail, example_boxes, example_image, list, pictures_or_boxes};
use crate::labels;
use crate::models::Models;
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
        let models = Models::load(&mut context)?;
        let mut variants = Vec::new();
        for i in 0..models.len() {
            let side = models.input(i).unwrap_or(SIDE as usize);
            let mut crops = Crops::new([0.0, 0.0, 1.0, 1.0], (side, side), limit);
            crops.format = format.clone();
            variants.push((crops, labels::read(models.path(i), labels_file.clone())?));
        }
        Ok(Box::new(ClassifierOperator {
            models,
            variants,
            with_boxes,
            k,
            activation,
        }))
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

struct ClassifierOperator {
    models: Models,
    variants: Vec<(Crops, Arc<[Arc<str>]>)>,
    with_boxes: bool,
    k: usize,
    activation: Activation,
}

impl Operator for ClassifierOperator {
    fn run(&mut self, variant: usize, batch: &[Inputs]) -> Vec<Result<Outputs, OperatorError>> {
        let ClassifierOperator {
            models,
            variants,
            with_boxes,
            k,
            activation,
        } = self;
        if let Err(error) = models.check(variant) {
            return all_fail(batch.len(), &error);
        }
        let (crops, classes) = &mut variants[variant];
        let name = |input: &Tensor| {
            let mut output = models.forward(variant, input)?;
            let n = input.shape[0] as usize;
            if !is_class_scores(&output, n, classes.len()) {
                let expected = format!("[{n}, {}] (one score a class)", classes.len());
                return Err(models.wrong_shape(variant, expected, &output.shape));
            }
            let labels = |row: &mut [f32]| -> Vec<Label> {
                activation.apply(row);
                let label = |(class, score): (usize, f32)| Label {
                    label: Arc::clone(&classes[class]),
                    score,
                };
                top(row, *k).into_iter().map(label).collect()
            };
            Ok(output
                .data
                .chunks_exact_mut(classes.len())
                .map(labels)
                .collect())
        };
        // Boxes over the frame's bound keep their place.
        let missing = vec![
            Label {
                label: Arc::from("unknown"),
                score: 0.0
            };
            (*k).min(classes.len())
        ];
        let results = pictures_or_boxes(crops, batch, *with_boxes, &missing, name);
        results
            .into_iter()
            .map(|result| result.map(|labels| vec![Value::Labels(list(labels.concat()))]))
            .collect()
    }

    fn example(&self, objects: usize) -> Inputs {
        vec![
            Some(example_image()),
            self.with_boxes.then(|| example_boxes(objects)),
        ]
    }
}
